"""The stack as data, held to a model: a Python list of calls per thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autobatch.values.cells import Cell, Column, Uniform
from autobatch.vm import stack as stacks
from autobatch.vm.groups import Group
from autobatch.vm.stack import NONE, Saved, Stack

CPU = torch.device("cpu")
CALLS: list[Any] = ["f", "g"]
THREADS = 6


class Model:
    """``threads[row]`` lists the calls that a thread is in: which, and what it saved there."""

    def __init__(self) -> None:
        self.stack = Stack.of(THREADS, CPU)
        self.threads: list[list[tuple[Any, int]]] = [[] for _ in range(THREADS)]
        self.count = 0

    def push(self, rows: list[int], call: Any, as_float: bool) -> None:
        values = list(range(self.count, self.count + len(rows)))
        self.count += len(rows)
        data = torch.tensor(values, dtype=torch.float64 if as_float else torch.int64)
        column = Column(data, "float" if as_float else "int")
        env = {"x": Cell(column), "same": Cell(Uniform("shared"))}
        saved = Saved(Group(np.array(rows), env), call, call)  # any object will do for a place
        self.stack.push(np.array(rows), saved)
        for row, value in zip(rows, values, strict=True):
            self.threads[row].append((call, value))

    def pop(self, rows: list[int]) -> None:
        seen: list[int] = []
        for resumed in self.stack.pop(np.array(rows)):
            mine = rows if resumed.positions is None else np.array(rows)[resumed.positions].tolist()
            column = resumed.group.env["x"].value
            assert type(column) is Column and resumed.group.env["same"].value.obj == "shared"
            for row, value in zip(mine, column.data.tolist(), strict=True):
                assert (resumed.saved.call, value) == self.threads[row].pop()
            seen += mine
        assert sorted(seen) == sorted(rows)

    def check(self) -> None:
        assert list(self.stack.faults()) == []
        assert self.stack.depths.tolist() == [len(thread) for thread in self.threads]
        for row, thread in enumerate(self.threads):
            assert self.stack.calls(row) == [call for call, _ in thread]
        rows = sum(saved.group.k for saved in self.stack.saved.values())
        assert rows <= 2 * sum(map(len, self.threads))


some_rows = st.lists(st.integers(0, THREADS - 1), min_size=1, unique=True)
pushes = st.tuples(some_rows, st.sampled_from(CALLS), st.booleans())
moves = st.lists(st.one_of(pushes, some_rows), max_size=30)


@pytest.mark.parametrize("few", [0, 3, 1024])
@settings(max_examples=60)
@given(moves=moves)
def test_each_thread_gets_back_what_it_saved(moves: list[Any], few: int) -> None:
    before, stacks.FEW = stacks.FEW, few  # how large calls may be that are joined
    try:
        model = Model()
        for move in moves:
            if isinstance(move, tuple):
                model.push(*move)
            elif rows := [row for row in move if model.threads[row]]:
                model.pop(rows)
            model.check()
    finally:
        stacks.FEW = before


def test_one_deep_thread_keeps_no_rows_of_others() -> None:
    model = Model()
    for _ in range(50):
        model.push(list(range(THREADS)), CALLS[0], False)
        model.pop([1, 2, 3, 4, 5])
    assert model.stack.depths.tolist() == [50, 0, 0, 0, 0, 0]
    assert sum(saved.group.k for saved in model.stack.saved.values()) == 50
    assert len(model.stack.below) <= 2 * (50 + THREADS)


def test_alike_calls_are_joined_when_threads_return_from_several() -> None:
    model = Model()
    for rows in ([0, 1], [2, 3], [4, 5]):
        model.push(rows, CALLS[0], False)
    assert len(model.stack.saved) == 3
    model.pop([4, 0, 2])
    assert [saved.group.k for saved in model.stack.saved.values()] == [3]
    model.push([0], CALLS[1], False)
    model.pop([0, 1, 3, 5])
    model.check()
    assert not model.stack.saved and (model.stack.tops == NONE).all()
