"""``select``: of two values the one that a thread's truth value says, for all threads at once.

Only what is alike in tag, dtype and event shape is chosen in one kernel; anything else thread by
thread, which a recording refuses. A select of tensors is a new tensor, where the program had a
second name for one that it had; ``Chosen`` tells whether anyone could notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch

from autobatch.batching import arithmetic
from autobatch.batching.context import Context
from autobatch.batching.host.rows import run_rows
from autobatch.batching.trace import Untraceable
from autobatch.ir.ops import INPLACE
from autobatch.ir.program import Op
from autobatch.values.cells import Cell, Column, Container, Uniform, Value, View, is_mutable, read
from autobatch.values.heap import walks
from autobatch.values.layouts import seen_layout

LARGEST = 64
"""Elements of a thread's tensor up to which computing both ways costs less than parting."""


def select(context: Context, condition: Cell, yes: Cell, no: Cell) -> Cell:
    """``yes if condition else no``; the condition is a uniform bool or a bool column."""
    flag = read(condition)
    if type(flag) is Uniform:
        return yes if flag.obj else no
    if yes is no:
        return yes
    numbers = arithmetic.apply(context, "select", operator_select, [condition, yes, no])
    if numbers is not None:
        return numbers
    a, b = read(yes), read(no)
    if type(flag) is Column and are_alike(a, b):
        assert type(a) is Column and type(b) is Column
        context.counter.launch()
        where = flag.data.reshape(-1, *[1] * (a.table.dim() - 1))
        return Cell(Column(torch.where(where, a.data, b.data)))
    return run_rows(context, operator_select, [condition, yes, no], {}, "the two differ in kind")


def operator_select(condition: bool, yes: object, no: object) -> object:
    return yes if condition else no


def are_alike(a: Value, b: Value) -> bool:
    """Whether they are small tensors that differ in nothing but their elements."""
    if type(a) is not Column or type(b) is not Column or a.tag != "tensor" or b.tag != "tensor":
        return False
    x, y = a.table, b.table
    same = x.dtype == y.dtype and x.shape[1:] == y.shape[1:] and x.device == y.device
    free = a.outside is False and b.outside is False and a.rows is None and b.rows is None
    if not same or not free or x.shape[1:].numel() > LARGEST:
        return False
    return not seen_layout(x) and not seen_layout(y)


@dataclass(slots=True, eq=False, repr=False)
class Chosen:
    """The tensors that selects of a stretch chose from."""

    cells: list[Cell] = field(default_factory=list)

    def follow(self, op: Op, env: Mapping[str, Cell]) -> None:
        """Take note of an operation that is to run; none may look at what was chosen from."""
        given = [env[name] for name in op.args]
        if op.name in INPLACE and is_mutable(read(given[0])):
            raise Untraceable("a tensor that a select may choose is written in place")
        if self.cells and not held(given).isdisjoint(map(id, self.cells)):
            raise Untraceable("a select has made a second tensor of one that is looked at again")
        if op.name == "select" and given[1] is not given[2]:
            self.cells += [cell for cell in given[1:] if is_mutable(cell.value)]

    def lone(
        self,
        inputs: Mapping[str, Cell],
        others: Iterable[Cell],
        env: Mapping[str, Cell],
        wanted: Iterable[str],
    ) -> tuple[str, ...] | None:
        """The inputs among them, which must have no other name when the stretch runs.

        None if some are still named, or held, when it is done. ``others`` are cells that the
        inputs hold.
        """
        chosen = {id(cell) for cell in self.cells}
        if any(type(cell.value) in (View, Container) for cell in self.cells):
            return None
        kept = held([env[name] for name in wanted if name in env])
        roots = {id(cell) for cell in inputs.values()}
        inner = {id(cell) for cell in others} - roots
        if chosen & kept or chosen & inner:
            return None
        return tuple(name for name, cell in inputs.items() if id(cell) in chosen)


def held(roots: Iterable[Cell]) -> set[int]:
    """The cells that some roots reach, themselves among them, by identity."""
    return {id(cell) for cell in walks.reached(roots)}


def are_lone(env: Mapping[str, Cell], names: Iterable[str]) -> bool:
    """Whether nothing but the name given reaches each of some variables' tensors.

    A part of a tensor is reached through that, too.
    """
    for name in names:
        own = env[name]
        if type(own.value) is View:
            return False
        for other, cell in env.items():
            if other == name:
                continue
            if cell is own:
                return False
            if type(cell.value) in (View, Container) and id(own) in held([cell]):
                return False
    return True
