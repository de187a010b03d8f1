"""Rows of one value in parts: what late threads return, for the frames that they are of."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from autobatch.presence.kinds import Cut
from autobatch.presence.moves import PLACE, cut, move_of, notes_of
from autobatch.presence.walk import needed
from autobatch.values.cells import Cell, Column, Container, Objects
from autobatch.values.heap import selecting


def pair(size: int) -> tuple[Cell, list[torch.Tensor]]:
    tables = [torch.randn(size, 3), torch.randn(size)]
    return Cell(Container(tuple, [Cell(Column(table)) for table in tables])), tables


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        ([0, 1, 2, 3, 4], [2, 3]),
        ([3, 4, 0, 1, 2], [2, 3]),
        ([3, 4, 0, 1, 2], [2, 0, 3]),
        ([4, 0, 2, 1, 3], [1, 4]),
        ([0, 1, 0, 1, 2], [2, 3]),
        ([1, 2, 3], [1, 2]),
        ([0, 1, 2, 3, 4], [5]),
    ],
)
def test_parts_hold_the_rows_in_order(rows: list[int], sizes: list[int]) -> None:
    root, tables = pair(5)
    parts = selecting.divided(root, np.array(rows), sizes)
    assert parts is not None
    for place, table in enumerate(tables):
        found = [part.value.cells[place].value.data for part in parts]  # type: ignore[union-attr]
        assert [len(each) for each in found] == sizes
        torch.testing.assert_close(torch.cat(found), table[rows])


def test_runs_of_rows_are_not_copied() -> None:
    root, (table, _) = pair(5)
    parts = selecting.divided(root, np.array([3, 4, 0, 1, 2]), [2, 3])
    assert parts is not None
    data = parts[0].value.cells[0].value.data  # type: ignore[union-attr]
    assert data.untyped_storage().data_ptr() == table.untyped_storage().data_ptr()


def test_what_has_more_than_rows_is_not_divided() -> None:
    column = Cell(Column(torch.randn(4, 2)))
    twice = Cell(Container(tuple, [column, column]))
    listed = Cell(Container(list, [column]))
    objects = Cell(Objects([1, "a", None, 2]))
    outside = Cell(Column(torch.randn(4, 2), outside=True))
    for root in (twice, listed, objects, outside):
        assert selecting.divided(root, np.arange(4), [2, 2]) is None


def test_the_gradient_of_parts_is_one() -> None:
    data = torch.randn(5, 2, requires_grad=True) * 1.0
    first, second = cut(data, (2, 3))
    assert first.grad_fn is second.grad_fn
    assert isinstance(move_of(first.grad_fn), Cut)


def test_rows_of_parts_that_nothing_needs_are_known() -> None:
    data = torch.randn(5, 2, requires_grad=True) * 1.0
    _, second = cut(data, (2, 3))
    taken = second * 2.0
    notes_of(data.grad_fn)[PLACE] = "data"
    masks = needed([(taken.grad_fn, 0)]).masks
    np.testing.assert_array_equal(masks["data"], [False, False, True, True, True])
