"""Sweeps: combinations of which the default run has some, and ``pytest -m slow`` the others.

Every value of every axis stands in the default run; what is left to the sweep holds the same
property for more of the same.
"""

from __future__ import annotations

from typing import Any

import pytest


def case(*values: Any, name: str, default: bool) -> Any:
    """A test's parameters under a name; if they are not of the default run, of the sweep."""
    return pytest.param(*values, id=name, marks=() if default else pytest.mark.slow)
