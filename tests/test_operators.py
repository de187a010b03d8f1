"""torch's operator database in programs, under a branch, values and gradients held to the loop.

By default a few operators with all choices of the operands that differ by thread; all of them with
``-m slow``. ``OPERATORS.md`` is held to what was found under the torch that made it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch

from tests.operator_sweep import TABLE, row, sweep
from tests.operators import operators

EVERY = operators()
NAMES = list(EVERY)
ONCE_WRONG = ("addmv", "clamp", "index_fill", "select_scatter", "to_sparse")
"""A gradient was lost, doubled or an error; sparse tensors could not meet."""
LINES = TABLE.read_text().splitlines(keepends=True)
SAME_TORCH = f"torch {torch.__version__}." in "".join(LINES)


def line_of(name: str) -> str:
    return next((line for line in LINES if line.startswith(f"| `{name}` |")), "")


def check(names: Iterable[str], **options: Any) -> int:
    """How many cases had gradients; fails on what is wrong."""
    wrong: dict[str, str] = {}
    slopes = 0
    for name in names:
        found = []
        for case, each in sweep(EVERY[name], **options):
            found.append(each)
            slopes += each.slopes
            if each.wrong:
                wrong[f"{name} {case.chosen}"] = each.wrong
        if SAME_TORCH and not options and row(name, found) != line_of(name):
            wrong[name] = f"the table says {line_of(name)!r}, found {row(name, found)!r}"
    assert not wrong, "; ".join(f"{name}: {what}" for name, what in wrong.items())
    return slopes


def test_some_operators() -> None:
    assert check(NAMES[::60]) > 60


def test_operators_that_were_wrong() -> None:
    assert check(ONCE_WRONG, trace_after=0) > 60


def test_the_table_names_operators() -> None:
    rows = [line.split("`")[1] for line in LINES if line.startswith("| `")]
    assert rows == sorted(rows)
    assert set(rows) <= set(NAMES) or not SAME_TORCH
    assert f"Of the {len(NAMES)} operators" in "".join(LINES) or not SAME_TORCH


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, len(NAMES), 40))
@pytest.mark.parametrize("options", [{}, {"trace_after": 0}, {"executor": "vmap"}], ids=str)
def test_every_operator(start: int, options: dict[str, Any]) -> None:
    check(NAMES[start : start + 40], **options)
