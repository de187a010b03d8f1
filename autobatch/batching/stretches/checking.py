"""Holding a replay to the operations run one by one: on a first replay, and for one thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from autobatch.batching import operations
from autobatch.batching.context import Check, Context, RowsFail
from autobatch.batching.escapes import Escape
from autobatch.batching.operations import Env, Scope
from autobatch.batching.stretches.plans import Plan, Skeleton
from autobatch.batching.stretches.rounding import same_values
from autobatch.batching.stretches.signature import Gathered
from autobatch.batching.stretches.stretch import recording_context
from autobatch.batching.trace import Untraceable
from autobatch.ir.program import Op
from autobatch.values.cells import Cell, Column, Container, Value, View, read
from autobatch.values.heap import copying, selecting
from autobatch.values.layouts import seen_layout


@dataclass(slots=True, eq=False, repr=False)
class Alone:
    """The batched operations of a stretch for one thread, to find the exception it raises."""

    skeleton: Skeleton
    scope: Scope
    context: Context
    roots: list[Cell]

    def __call__(self, row: int) -> None:
        cells = selecting.select(self.roots, np.array([row]))
        env = self.skeleton.environment(cells)
        context = self.context.restricted([row])
        context.lost = None
        for op in self.skeleton.batched:
            try:
                operations.execute(context, self.scope, op, env)
                context.flush()
            except RowsFail as failure:
                context.begin(op, env)
                context.tell(failure.error, context.operands(), 0)
                raise RowsFail(row, failure.error, span=failure.span or op.span) from failure.error


def note_checks(
    context: Context,
    scope: Scope,
    here: tuple[Skeleton, Plan],
    roots: list[Cell],
    outs: Sequence[Tensor],
) -> None:
    """Note the rows that a replay has found to fail, for the next host read to look at."""
    skeleton, plan = here
    alone = Alone(skeleton, scope, context, copying.duplicated(roots))
    context.checks += [Check(failed, alone) for failed in plan.failed(outs)]


def note_loose(
    context: Context, first: Op, before: Env, left: Tensor, ints: tuple[Column, ...]
) -> None:
    """Note ints that may have left their dtype; a stretch that begins with ``first`` made them.

    ``before`` are the variables at its beginning.
    """
    if context.k:
        context.begin(first, before)
        context.note_escape(Escape(left, ints))


def agrees(
    skeleton: Skeleton,
    plan: Plan,
    context: Context,
    scope: Scope,
    roots: list[Cell],
    gathered: Gathered,
    outs: Sequence[Tensor],
) -> bool:
    """Whether a first replay gives what the operations give one by one on the same rows."""
    cells = copying.duplicated(roots)
    leaves = Gathered(cells, skeleton.baked, skeleton.picks).leaves
    env = skeleton.environment(cells)
    quiet = recording_context(context, context.k)
    quiet.threads = context.threads
    try:
        for op in skeleton.batched:
            operations.execute(quiet, scope, op, env)
    except (RowsFail, Untraceable):
        return False
    made = plan.template.make(outs, gathered.leaves, gathered.cells)
    if any(is_view(made[node]) is not is_view(env[name]) for name, node in plan.names):
        return False
    pairs = [(made[node], leaves[leaf]) for leaf, node in plan.written]
    pairs += [(made[node], env[name]) for name, node in plan.names]
    with as_written(plan, gathered, made):
        return all(theirs is not None and same_leaf(mine, theirs) for mine, theirs in pairs)


def is_view(cell: Cell) -> bool:
    return type(cell.value) is View


@contextmanager
def as_written(plan: Plan, gathered: Gathered, made: Sequence[Cell]) -> Iterator[None]:
    """The inputs that a replay writes have their new content, which else they get only later."""
    cells = [(gathered.leaves[leaf], made[node]) for leaf, node in plan.written]
    before = [(cell, cell.value) for cell, _ in cells if cell is not None]
    for cell, new in cells:
        if cell is not None:
            cell.value = new.value
    try:
        yield
    finally:
        for cell, value in before:
            cell.value = value


def same_leaf(left: Cell, right: Cell) -> bool:
    """Whether two cells are the same in tensors, and in the containers around them."""
    waiting, seen = [(left, right)], {(id(left), id(right))}
    while waiting:
        mine, theirs = map(read, waiting.pop())
        if type(mine) is not type(theirs):
            return False
        if type(mine) is not Container:
            if not same_tensor(mine, theirs):
                return False
            continue
        for pair in zip(mine.children(), theirs.children(), strict=True):  # type: ignore[union-attr]
            places = (id(pair[0]), id(pair[1]))
            if places not in seen:
                waiting.append(pair)
            if type(pair[0].value) is Container:
                seen.add(places)
    return True


def same_tensor(mine: Value, theirs: Value) -> bool:
    a = getattr(mine, "data", getattr(mine, "obj", None))
    b = getattr(theirs, "data", getattr(theirs, "obj", None))
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return True
    if a.dtype != b.dtype or a.shape != b.shape or a.requires_grad != b.requires_grad:
        return False
    if type(mine) is Column and seen_layout(a) != seen_layout(b):
        return False  # what is recorded goes by how tensors without data lie
    return same_values(a, b)
