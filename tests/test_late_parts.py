"""Reads of a shared tensor after a write, by what is a part of it, or it in some threads only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch
from autobatch import SharedWriteError

OPTIONS: list[dict[str, Any]] = [
    {},
    {"plain": "never", "trace_after": 0},
    {"engine": "program_counter", "plain": "never", "trace_after": 0},
    {"executor": "vmap"},
    {"chunk_size": 2},
]


class Table(nn.Module):
    cells: Tensor
    other: Tensor

    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        self.body = body
        self.register_buffer("cells", torch.arange(4.0))
        self.register_buffer("other", torch.ones(4))
        self.list = [torch.zeros(4), torch.zeros(4)]

    def forward(self, i: Any, x: Any) -> Any:
        return self.body(self, i, x)


def returns_what_it_adds_to(table: Table, i: Any, x: Any) -> Any:
    old = table.cells[i]
    table.cells[i] += x
    return old


def reads_what_it_adds_to(table: Table, i: Any, x: Any) -> Any:
    old = table.cells[i]
    table.cells[i] += x
    return old * 2


def reads_a_slice(table: Table, i: Any, x: Any) -> Any:
    old = table.cells[i : i + 1]
    table.cells[i] += x
    return old.sum()


def picks_of_a_list(table: Table, i: Any, x: Any) -> Any:
    parts = [table.cells, table.other, table.cells, table.other]
    part = parts[i]
    table.cells += x
    return part + 0


def meets_another(table: Table, i: Any, x: Any) -> Any:
    if i > 1:
        table.cells += x
        y = table.cells
    else:
        y = x.expand(4)
    return y * 2


def meets_first(table: Table, i: Any, x: Any) -> Any:
    y = table.cells if i > 1 else x.expand(4)
    table.cells += x
    while y.sum() < 100:
        y = y + 10
    return y


def returns_it_in_some(table: Table, i: Any, x: Any) -> Any:
    if i > 1:
        table.cells += x
        return table.cells
    return x.expand(4)


LATE = [
    returns_what_it_adds_to,
    reads_what_it_adds_to,
    reads_a_slice,
    picks_of_a_list,
    meets_another,
    meets_first,
    returns_it_in_some,
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("body", LATE, ids=lambda body: body.__name__)
def test_a_part_read_after_the_write_is_refused(
    body: Callable[..., Any], options: dict[str, Any]
) -> None:
    table = Table(body)
    batched = autobatch.vmap(table, **options)
    for _ in range(3):
        with pytest.raises(SharedWriteError, match="after it has written") as caught:
            batched(torch.tensor([0, 2, 3]), torch.tensor([1.0, 2.0, 3.0]))
        assert "^" in str(caught.value)
        assert torch.equal(table.cells, torch.arange(4.0))


def reads_another(table: Table, i: Any, x: Any) -> Any:
    old = table.cells[i]
    table.other[i] += x
    return old * 2


def copies_first(table: Table, i: Any, x: Any) -> Any:
    old = table.cells[i].clone()
    table.cells[i] += x
    return old * 2


def takes_part_of_it(table: Table, i: Any, x: Any) -> Any:
    rows = table.cells.view(2, 2)[i // 2]
    table.cells[i] += x
    return rows.shape[0] * x + rows[0].dim()


def writes_in_others(table: Table, i: Any, x: Any) -> Any:
    if i > 1:
        table.cells += x
        y = x
    else:
        y = table.cells[i] * x
    return y + 1


def adds_to_items(table: Table, i: Any, x: Any) -> Any:
    parts = [table.cells, table.other]
    parts[0] += x
    parts[1][i] -= x
    table.list[0] += x
    table.list[-1][i] += 1
    return x


TENSORS = {"sum": torch.zeros(4), "scale": 3}
TENSOR: Any = TENSORS["sum"]


def adds_to_an_entry(table: Table, i: Any, x: Any) -> Any:
    TENSORS["sum"] += x
    TENSORS["sum"][i] += TENSORS["scale"]
    return x


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    "body",
    [
        reads_another,
        copies_first,
        takes_part_of_it,
        writes_in_others,
        adds_to_items,
        adds_to_an_entry,
    ],
    ids=lambda body: body.__name__,
)
def test_other_reads_are_those_of_the_loop(
    body: Callable[..., Any], options: dict[str, Any]
) -> None:
    mine, theirs = Table(body), Table(body)
    batched = autobatch.vmap(mine, **options)
    places, xs = torch.tensor([0, 3, 1, 2]), torch.tensor([1.0, 2.0, 3.0, 4.0])
    for _ in range(4):
        TENSOR.zero_()
        result = batched(places, xs)
        entry = TENSOR.clone()
        TENSOR.zero_()
        start = theirs.cells.clone()
        expected = []
        for i, x in zip(places, xs, strict=True):
            given = Table(body)
            given.cells.copy_(start)  # all threads see what was there before the call
            expected.append(given(i, x.clone()))
            theirs(i, x.clone())
        torch.testing.assert_close(result, torch.stack(expected))
        TENSOR.mul_(0.5)  # the loop has gone over it twice
        torch.testing.assert_close(entry, TENSOR)
        for name in ("cells", "other"):
            torch.testing.assert_close(getattr(mine, name), getattr(theirs, name))
        torch.testing.assert_close(mine.list, theirs.list)


@pytest.mark.parametrize("body", [returns_what_it_adds_to, returns_it_in_some])
def test_results_of_streams_that_show_what_was_written_are_refused(
    body: Callable[..., Any],
) -> None:
    table = Table(body)
    examples = [(torch.tensor(i), torch.tensor(1.0)) for i in (0, 3, 1, 2)]
    with pytest.raises(SharedWriteError, match="after it has written") as caught:
        list(autobatch.stream(table, examples, 2))
    assert "^" in str(caught.value)
    assert torch.equal(table.cells, torch.arange(4.0))
