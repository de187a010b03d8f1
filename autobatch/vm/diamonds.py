"""Diamonds: threads that part at an ``if`` in a loop, and meet again behind it.

    b2: branch %1 ? b3 : b4        h = step(h)      for the threads of b3
    b3: h = step(h)                h = other(h)     for those of b4
        jump b5
    b4: h = other(h)               and the rows of both come to lie where they lay
        jump b5
    b5: ...

To split a group moves all that is live, and so does it when the threads meet again. Here only what
an arm reads is taken apart, and only what an arm assigns is put together; all else stays where it
is. The block executions are those of the queue: an arm after the other, each for its threads.

What is kept in an object, dict or list is as good as a variable (see ``slots``).

In: a block of a loop that ends in a branch, and which threads take it. Out: the group, at the join.
None, with nothing done, where that is not plain: arms are operations that only assign variables and
items that there are, which one driver runs all of; what both assign is alike; and nobody can tell
two names for one tensor from two tensors (``aliasing``), since what an arm assigns had other names
before.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.effects import MUTATING_METHODS, is_inplace_name
from autobatch.batching.operations import Env
from autobatch.batching.stretches.stores import OF_STORES
from autobatch.compat import on_device
from autobatch.ir.dataflow import op_reads, op_writes
from autobatch.ir.definitions import Definitions
from autobatch.ir.ops import INPLACE, OF_A_FRAME, info
from autobatch.ir.program import Block, Branch, Jump, Label, Op, Var
from autobatch.presence.arranging import Part, arranged
from autobatch.values.cells import (
    NUMBER_DTYPES,
    Cell,
    Column,
    Uniform,
    Value,
    fits_column,
    is_mutable,
    join_bounds,
    read,
)
from autobatch.values.heap import selecting
from autobatch.values.heap.merging import merged, same_uniforms
from autobatch.values.strides import is_watched
from autobatch.vm.slots import Item, item_of

MOST_MISSES, TRIED_AGAIN = 16, 64
"""How often a diamond may come to nothing before it is tried but once in so many times."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Arm:
    """A block that threads of one way run, and the diamond ``within`` that it ends in, if it does.

    It ``reads`` variables that there were before, ``gives`` others to the join, and is ``sure`` to
    assign some, whichever way threads go in it. What ``stores`` are of, there was before, too.
    """

    label: Label
    reads: frozenset[Var]
    gives: frozenset[Var]
    sure: frozenset[Var]
    stores: frozenset[Item] = frozenset()
    within: Diamond | None = None

    @property
    def labels(self) -> frozenset[Label]:
        return frozenset({self.label}) | (self.within.labels if self.within else NO_LABELS)


@dataclass(eq=False, repr=False)
class Diamond:
    """``arms`` are those of the threads that take the branch, and of the others: None where these
    go straight to the ``join``, which may be the head of the loop. ``misses`` is how often it has
    come to nothing since it last did.
    """

    arms: tuple[Arm | None, Arm | None]
    join: Label
    misses: int = 0

    def is_tried(self) -> bool:
        """Whether it is worth a try, which counts until one comes to something."""
        self.misses += 1
        return self.misses < MOST_MISSES or not self.misses % TRIED_AGAIN

    @cached_property
    def own(self) -> Sequence[Arm]:
        return [arm for arm in self.arms if arm is not None]

    @cached_property
    def labels(self) -> frozenset[Label]:
        """All blocks between the branch and the join."""
        return NO_LABELS.union(*(arm.labels for arm in self.own))

    @cached_property
    def last(self) -> Label:
        return max(self.labels)

    @cached_property
    def gives(self) -> frozenset[Var]:
        return NOTHING.union(*(arm.gives for arm in self.own))

    @cached_property
    def stores(self) -> frozenset[Item]:
        return frozenset[Item]().union(*(arm.stores for arm in self.own))

    @cached_property
    def sure(self) -> frozenset[Var]:
        """What all threads assign."""
        first, second = (NOTHING if arm is None else arm.sure for arm in self.arms)
        return first & second

    @cached_property
    def reads(self) -> frozenset[Var]:
        """What there has to be before: also what threads of one way alone assign."""
        return NOTHING.union(self.gives - self.sure, *(arm.reads for arm in self.own))

    def needs(self, arm: Arm | None) -> frozenset[Var]:
        """What is taken apart for the threads of one way."""
        return self.gives if arm is None else arm.reads | (self.gives - arm.sure)


NOTHING: frozenset[Var] = frozenset()
NO_LABELS: frozenset[Label] = frozenset()


class Coded(Protocol):
    """A lowered function, ready to run; see ``code.Code``."""

    @property
    def blocks(self) -> tuple[Block, ...]: ...
    @property
    def live(self) -> Sequence[tuple[str, ...]]: ...
    @property
    def exits(self) -> frozenset[int]: ...

    @property
    def definitions(self) -> Definitions: ...

    def varying(self, pc: int) -> frozenset[str] | None: ...


def diamond_of(code: Coded, pc: Label) -> Diamond | None:
    """The diamond that begins at a block's branch, if one does."""
    branch = code.blocks[pc].terminator
    if type(branch) is not Branch or branch.then == branch.otherwise:
        return None
    arms = {way: arm_of(code, way, pc) for way in (branch.then, branch.otherwise)}
    for join in {found[1] for found in arms.values() if found is not None}:
        ways = [(way == join, found) for way, found in arms.items()]
        if not all(ends or (found is not None and found[1] == join) for ends, found in ways):
            continue
        one, other = (None if ends or found is None else found[0] for ends, found in ways)
        diamond = Diamond((one, other), join)
        apart = sum(len(arm.labels) for arm in diamond.own) == len(diamond.labels)
        if apart and (join <= pc or diamond.last < join):
            return diamond
    return None


def arm_of(code: Coded, label: Label, pc: Label) -> tuple[Arm, Label] | None:
    """The block as an arm of a branch before it, and the join; None where it does more than to
    assign variables.
    """
    if label <= pc:
        return None
    block, within = code.blocks[label], None
    end = block.terminator
    if block.modes or block.handler is not None or code.varying(label) is None:
        return None
    if label in code.exits:
        return None
    if type(end) is Branch:
        within = diamond_of(code, label)
        join = None if within is None else within.join
    else:
        join = end.target if type(end) is Jump else None
    if join is None:
        return None
    reads: set[Var] = set()
    writes: set[Var] = set()
    stores: set[Item] = set() if within is None else {*within.stores}
    for op in block.ops:
        reads.update(name for name in op_reads(op) if name not in writes)
        writes.update(op_writes(op))
        if op.name in OF_STORES:
            item = item_of(op, code.definitions)
            if item is None:
                return None
            stores.add(item)
        elif not only_assigns(op):
            return None
    if any(container in writes for container, _ in stores):
        return None
    later = set() if within is None else {end.condition, *within.reads}  # type: ignore[union-attr]
    inner = NOTHING if within is None else within.gives
    sure = writes if within is None else writes | within.sure
    gives = (writes | inner).intersection(code.live[join])
    given = frozenset(sure & gives)
    before = frozenset(reads | (later - writes))
    return Arm(label, before, frozenset(gives), given, frozenset(stores), within), join


def only_assigns(op: Op) -> bool:
    """Whether it may be one that writes nothing; ``+=`` is one where numbers are added."""
    if op.name in INPLACE:
        return True
    if op.name == "getattr" and (op.attr in MUTATING_METHODS or is_inplace_name(op.attr)):
        return False
    if op.name in OF_A_FRAME or op.name in ("next", "fork", "defer", "is", "is_not", "delete"):
        return False
    return info(op.name).effect in ("pure", "reads", "binds", "calls")


def taken_apart(env: Env, names: Iterable[Var], rows: np.ndarray) -> dict[Var, Cell]:
    """What some variables hold for some rows; views as what they show, for nobody writes."""
    found: dict[Var, Cell] = {}
    others: list[Var] = []
    at: Tensor | None = None
    for name in names:
        if (cell := env.get(name)) is None:
            continue
        value = read(cell)
        if type(value) is Column and value.is_whole:
            device = value.table.device
            at = on_device(rows, device) if at is None or at.device != device else at
            found[name] = Cell(value.select(at))
        elif type(value) is Uniform and (value.shared or not is_mutable(value)):
            found[name] = cell
        else:
            others.append(name)
    cells = selecting.select([env[name] for name in others], rows) if others else ()
    found.update(zip(others, cells, strict=True))
    return found


def put_together(ways: Sequence[tuple[Cell, np.ndarray]], device: torch.device) -> Cell | None:
    """What some rows have one way and the others the other way, each row where it lies.

    None where these are not of one kind, or anything but numbers and tensors. ``device`` is where
    number columns live.
    """
    values = [cell.value for cell, _ in ways]
    if all(type(value) is Uniform for value in values) and same_uniforms(values):
        return ways[0][0]
    kinds = {kind_of(value, device) for value in values}
    if len(kinds) > 1 or None in kinds:
        return None
    columns = [value for value in values if type(value) is Column]
    if len(columns) == len(values) and not is_watched():
        where = columns[0].table.device
        parts = [Part(None, on_device(rows, where)) for _, rows in ways]
        table = arranged([column.table for column in columns], parts)
        bounds = join_bounds(c.bounds for c in columns) if columns[0].tag == "int" else None
        return Cell(Column(table, columns[0].tag, bounds))
    made = merged(values, [len(rows) for _, rows in ways], device)
    assert type(made) is Column
    order = np.concatenate([rows for _, rows in ways]).argsort()
    return Cell(made.select(on_device(order, made.table.device)))


def kind_of(value: Value, device: torch.device) -> Hashable:
    """Equal for columns that are one column when they lie together; None for what is no such."""
    if type(value) is Column:
        return like(value.table, value.tag, 1) if value.is_whole else None
    if type(value) is not Uniform:
        return None
    obj, tag = value.obj, type(value.obj).__name__
    if fits_column(obj):
        return tag, NUMBER_DTYPES[tag], torch.Size(()), device, (False, False)
    return like(obj, "tensor", 0) if type(obj) is Tensor and not value.shared else None


def like(table: Tensor, tag: str, batch: int) -> Hashable:
    """What rows have to be alike in; the first ``batch`` dimensions are theirs."""
    if table.layout is not torch.strided:
        return None
    return tag, table.dtype, table.shape[batch:], table.device, (table.is_conj(), table.is_neg())
