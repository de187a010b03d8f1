"""Sweeps: combinations of which the default run has some, and ``pytest -m slow`` the others.

``case`` says it of one combination: every value of every axis stands in the default run. Where
there are very many, ``@pytest.mark.sampled(n)`` leaves one in ``n`` to the default run, spread over
the axes. What is left to the sweep holds the same property for more of the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any
from zlib import crc32

import pytest


def case(*values: Any, name: str, default: bool) -> Any:
    """A test's parameters under a name; if they are not of the default run, of the sweep."""
    return pytest.param(*values, id=name, marks=() if default else pytest.mark.slow)


def leave_to_sweeps(items: Iterable[pytest.Item]) -> None:
    """Mark as slow what ``sampled(n)`` leaves out: the same cases in every run and process."""
    sampled = [
        item
        for item in items
        if item.get_closest_marker("sampled") and not item.get_closest_marker("slow")
    ]
    for _, group in groupby(sampled, lambda item: item.nodeid.partition("[")[0]):
        cases = sorted(group, key=lambda item: crc32(item.nodeid.encode()))
        (n,) = cases[0].get_closest_marker("sampled").args  # type: ignore[union-attr]
        for item in cases[-(-len(cases) // n) :]:
            item.add_marker(pytest.mark.slow)
