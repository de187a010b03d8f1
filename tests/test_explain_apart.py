"""``explain`` on groups that wait at one block and are kept apart: by which variable, and why."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autobatch


def of_lists(x: Any) -> Any:
    hits = ["once"]
    if x > 0:
        hits.append("more")
    x = x + 1
    return x * len(hits)


def of_numbers(x: Any) -> Any:
    scale = 1
    if x > 0:
        scale = 0.5
    x = x + 1
    return x * scale


def of_shapes(x: Any) -> Any:
    row = torch.zeros(2)
    if x > 0:
        row = torch.zeros(3)
    x = x + 1
    return x + row.sum()


def of_aliases(x: Any) -> Any:
    a = torch.zeros(2)
    b = torch.zeros(2)
    if x > 0:
        b = a
    x = x + 1
    b += x
    return a.sum() + b.sum()


def of_parts(x: Any) -> Any:
    pair = (x, {"n": 1})
    if x > 0:
        pair = (x, {"n": None})
    x = x + 1
    return x if pair[1]["n"] is None else x * 2


def of_strings(x: Any) -> Any:
    name = "low"
    if x > 0:
        name = "high"
    x = x + 1
    return x * len(name)


def of_layouts(x: Any) -> Any:
    y = torch.zeros(3, 2)
    if x > 0:
        y = torch.zeros(2, 3).t()
    x = x + 1
    return x * y.stride(0)


def alike(x: Any) -> Any:
    if x > 0:
        x = x * 2
    return x + 1


WHY = {
    of_lists: "`hits` is a list of length 1 in some, of length 2 in others",
    of_numbers: "`scale` is float in some, int in others",
    of_shapes: "`row` is float32 [2] in some, float32 [3] in others",
    of_aliases: "`a` and `b` are one object in some, and two in others",
    of_parts: "`pair[1]['n']` is None in some, int in others",
    of_strings: "`name` is another str in some than in others",
    of_layouts: "`y` is a float32 [3, 2] that lies otherwise in memory in some than in others",
}


def told(func: Any, **options: Any) -> list[str]:
    report = autobatch.explain(autobatch.vmap(func, **options), torch.tensor([1.0, -1.0, 2.0]))
    return [note for each in report.functions for line in each.lines for note in line.apart]


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("func", WHY, ids=lambda func: func.__name__)
def test_the_variable_and_the_reason(func: Any, engine: str) -> None:
    (note,) = told(func, engine=engine)
    where, _, why = note.partition(": ")
    assert where.startswith("at block ") and where.endswith(" once") and why == WHY[func]


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_groups_that_are_alike_are_not_told_of(engine: str) -> None:
    assert told(alike, engine=engine) == []


def test_the_note_stands_at_the_line_where_the_block_begins(
    capsys: pytest.CaptureFixture[str],
) -> None:
    autobatch.explain(of_lists, torch.tensor([1.0, -1.0]))
    lines = capsys.readouterr().out.splitlines()
    (place,) = [at for at, line in enumerate(lines) if "groups kept apart" in line]
    above = next(line for line in reversed(lines[:place]) if "|     #" not in line)
    assert above.endswith("|     x = x + 1")
