"""Noting calls: ``fork`` leaves what a call is to run with, ``defer`` what waits for its result.

In: an operation of a block, and the group. Out: the group with an entry more (see ``pending``), or
with the call's result, where the call turns out not to be one that can run out of turn.

Only pure calls are forked; under a seed they may draw, by keys of their own, made where they are
forked, so that it does not matter when they run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch

from autobatch.batching import operations
from autobatch.batching.calling import resolving
from autobatch.batching.containers.starring import Differing
from autobatch.batching.context import Context, Due
from autobatch.batching.operations import CAPTURED, Scope
from autobatch.batching.tables import packed
from autobatch.compat import on_host
from autobatch.ir.program import Op
from autobatch.random.paths import Paths
from autobatch.source import Span
from autobatch.values.cells import (
    BOX,
    CLOSURE,
    DEFERRAL,
    FORK,
    METHOD,
    PENDING,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    is_iterator,
    is_mutable,
)
from autobatch.values.heap import selecting, walks
from autobatch.vm.calling import Returned, carry, reach
from autobatch.vm.entering import Entry, Forking, entered, receiver_in
from autobatch.vm.forks.disturbing import Disturbing
from autobatch.vm.forks.pending import is_branch, is_forked, is_pending, remember, snapshot
from autobatch.vm.forks.targets import is_behind
from autobatch.vm.groups import CARRIED, FORKED, Group
from autobatch.vm.state import Frame, RunState
from autobatch.vm.within import Within

KEYS = "%keys"
"""Holds the keys by which a forked call draws, among its parameters."""
IN_PLACE = frozenset([list, dict, set, deque, bytearray, torch.Tensor])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Known:
    """What is known of a call that an operation ``op`` has forked, of a ``callee``.

    ``names`` are those of its parameters; ``first`` the arguments that come with the callee,
    ``seen`` the places of those that it may hand back or write. ``receiver`` is the first argument
    where that existed before, ``static`` what its forked calls have in common. It holds until names
    may mean something else: while judgements have been given up ``times`` times.
    """

    op: Op
    callee: object
    names: tuple[str, ...]
    first: Sequence[Cell]
    seen: tuple[int, ...]
    receiver: object
    static: tuple[Any, ...]
    times: int

    def arguments(self, callee: Cell, given: Sequence[Cell]) -> list[Cell] | None:
        """The arguments of a call of what a cell holds; None unless that is the same callee."""
        value = callee.value
        if type(value) is Container:
            same = value.type is METHOD and value.static is self.callee
            args = [*value.children(), *given] if same else []
        elif type(value) is Uniform:
            args = [*self.first, *given] if is_same(value.obj, self.callee) else []
        else:
            return None
        if len(args) != len(self.names) or not args or receiver_in(args) is not self.receiver:
            return None
        for place in self.seen:
            if not is_plain(args[place]):
                return None
        return None if holds_iterators(args) else args


@dataclass(slots=True, eq=False, repr=False)
class Noting:
    """The ``fork`` and ``defer`` operations of a run; ``scopes`` are those of forked functions."""

    state: RunState
    within: Within
    disturbing: Disturbing
    scopes: dict[tuple[int, int], tuple[Scope, Any]] = field(default_factory=dict)
    known: dict[int, Known] = field(default_factory=dict)

    def note(self, frame: Frame, op: Op, group: Group, context: Context) -> None:
        """Run a ``fork`` or ``defer`` operation: the group remembers it until it joins.

        ``Due`` where what it remembers already comes first.
        """
        context.span = op.span
        if op.name == "defer":
            self.defer(frame, op, group, context)
            return
        self.fork_in(frame, op, group, context)

    def fork_in(self, frame: Frame, op: Op, group: Group, context: Context) -> None:
        """Run a ``fork`` operation, or one that was to be deferred, in its block."""
        kept = self.kept(frame, op, group)
        plain = op if op.name == "fork" else Op("fork", op.outs, op.args, op.attr[1], op.span)
        cells = operations.operands(context, op.args, group.env)
        cell = group.env[op.outs[0]] = self.forked(frame, plain, context, cells, kept, group)
        if is_forked(cell):
            remember(group, cell)

    def kept(self, frame: Frame, op: Op, group: Group) -> list[Cell]:
        """What a group goes on with after an operation of the block at work."""
        later = {*frame.code.after(self.state.tally.block[1], op), CARRIED, CAPTURED}
        return [cell for name, cell in group.env.items() if name in later]

    def branched(
        self, context: Context, op: Op, operands: Sequence[Cell], kept: Sequence[Cell]
    ) -> Cell:
        """What a branch that was taken out gives: often one of its operands, in some threads.

        ``kept`` is what its group goes on with.
        """
        context.flush()
        context.span = op.span
        callee, *given = operands
        target = resolving.resolve(callee, given, {})
        frame = self.within.failures.frames[-1]
        span, frame.span = frame.span, None  # an exception's note tells of no call
        try:
            found = self.within.framed(context, target, False, kept)
        finally:
            frame.span = span
        return self.within.joined(context, found)

    def forked(
        self,
        frame: Frame,
        op: Op,
        context: Context,
        cells: Sequence[Cell],
        kept: Sequence[Cell],
        group: Group | None = None,
    ) -> Cell:
        """A call that waits for a join, or its result; ``kept`` is what its caller goes on with.

        Where what its ``group`` has noted comes first, nothing is done, and ``Due`` raised.
        """
        callee, *given = cells
        try:
            args, kwargs = operations.arguments(context, op.attr, callee, given)
        except Differing as differing:
            at, frame.span = self.state.tally.block, op.span  # for checks that are looked at late
            pieces = self.parted(context, op, callee, differing, kept)
            self.state.tally.block = at
            return self.within.joined(context, pieces)
        context.leave()
        target = resolving.resolve(callee, args, kwargs)
        context.flush()
        entry = self.forkable(context, target, kept)
        if entry is None:
            if group is not None and self.disturbing.is_call(group, target):
                raise Due
            return self.within.invoke(context, callee, args, kwargs, True)
        params = dict(zip(entry.env, snapshot(entry.env.values()), strict=True))
        static = self.static(entry, target, op.span)
        if context.paths is not None:
            params[KEYS] = keys_cell(context.paths.opened())
        else:
            self.learn(op, callee, target, entry, static)
        return Cell(Container(FORK, params, static))

    def learn(
        self, op: Op, callee: Cell, target: resolving.Target, entry: Entry, static: Any
    ) -> None:
        """Keep what is known of a call, for when its operation comes again."""
        judgements = self.state.judgements
        if judgements is not None and judgements.keep:
            known = known_call(op, callee, target, entry, static, judgements.times)
            if known is not None:
                self.known[id(op)] = known

    def learned(self, op: Op, group: Group, context: Context) -> bool:
        """Whether it is known what a fork is to call; if not, it is found out, if that is plain.

        Nothing runs.
        """
        known, judgements = self.known.get(id(op)), self.state.judgements
        if judgements is None or not judgements.keep:
            return False
        if known is not None and known.times == judgements.times:
            return True
        if context.paths is not None or not op.attr.is_plain or op.attr.keywords:
            return False
        callee, *given = [group.env[name] for name in op.args]
        target = resolving.resolve(callee, given, {})
        entry = self.forkable(context, target, list(group.env.values()))
        if entry is None:
            return False
        self.learn(op, callee, target, entry, self.static(entry, target, op.span))
        return id(op) in self.known

    def called(self, op: Op, group: Group, context: Context) -> tuple[Known, list[Cell]] | None:
        """What a fork calls, and with which arguments, if that is known, or plain to find out."""
        if not self.learned(op, group, context):
            return None
        known = self.known[id(op)]
        callee, *given = [group.env[name] for name in op.args]
        args = known.arguments(callee, given)
        return None if args is None else (known, args)

    def parted(
        self, context: Context, op: Op, callee: Cell, differing: Differing, kept: Sequence[Cell]
    ) -> list[Returned]:
        """A call whose arguments differ in number or name, at once, for each kind of threads.

        One that does more than return a value is refused: it would have copies.
        """
        context.leave()
        context.flush()
        pieces: list[Returned] = []
        for rows in differing.parts:
            part = context.restricted(rows)
            positions = np.array(rows, dtype=np.int64)
            own, *cells = selecting.select([callee, *differing.cells, *kept], positions)
            alive = cells[len(differing.cells) :]
            cells = cells[: len(differing.cells)]
            try:
                args, kwargs = operations.arguments(part, op.attr, own, cells)
            except Differing as again:
                found = self.parted(part, op, own, again, alive)
            else:
                target = resolving.resolve(own, args, kwargs)
                if self.forkable(part, target, alive) is None:
                    raise differing
                found = self.within.framed(part, target, opens=True)
            pieces += [replace(piece, rows=positions[piece.rows]) for piece in found]
        return pieces

    def forkable(
        self, context: Context, target: resolving.Target, kept: Sequence[Cell]
    ) -> Entry | None:
        """What a call enters, if it can run out of turn; ``kept`` is what its caller goes on with.

        It cannot if it may hand back what the caller keeps: its result would be a copy. A number
        that is a row of a packed value is handed over by itself. What lies in objects it may write
        by ``+=`` and the like; where that is no number, it is found out (``effects``).
        """
        if target.effect != "program":
            return None
        seeded = context.paths is not None
        kind: Forking = "drawing" if seeded else "silent"
        entry = entered(self.state.library, context, target, kind, self.state.judgements)
        purity = entry.purity
        written = [entry.env[name] for name in purity.writes]
        surely = [entry.env[name] for name in purity.sure]
        if not purity.may_fork(seeded) or reach(written) or holds_objects(surely):
            return None
        if holds_iterators(entry.env.values()):
            return None  # all that goes through one writes it
        if self.state.tally.shown and holds_builtin(written):
            return None  # it could not begin again
        for name in purity.returns:
            entry.env[name] = packed.by_value(entry.env[name])
        handed_back = [entry.env[name] for name in purity.returns]
        if purity.outer and CAPTURED in entry.env:
            handed_back += captured(entry.env[CAPTURED])
        return None if carry(handed_back, kept, self.state.lent, self.state.is_blind) else entry

    def static(self, entry: Entry, target: resolving.Target, span: Span) -> tuple[Any, ...]:
        """What forked calls have in common if they are alike: code, closure, place."""
        callee = target.callee
        key = callee.static if isinstance(callee, Container) else callee
        self.scopes[id(entry.code), id(key)] = (entry.scope, key)
        return (entry.code, key, span)

    def defer(self, frame: Frame, op: Op, group: Group, context: Context) -> None:
        """Keep an operation on what a forked call has yet to give; run it at once if it has.

        One that writes keeps behind what has been noted before, and what reads behind what writes.
        """
        name, attr = op.attr
        plain = Op(name, op.outs, op.args, attr, op.span)
        operands = operations.operands(context, op.args, group.env)
        if not any(map(is_pending, operands)) and not is_behind(group, plain, operands):
            if name == "fork":
                self.fork_in(frame, op, group, context)
            elif is_branch(plain, operands):
                kept = self.kept(frame, op, group)
                kept += [group.env[name] for name in (FORKED,) if name in group.env]
                group.env[op.outs[0]] = self.branched(context, plain, operands, kept)
            else:
                operations.execute(context, frame.scope, plain, group.env, op)
            return
        outs = [Cell(Container(PENDING, [])) for _ in op.outs]
        remember(group, Cell(Container(DEFERRAL, [*operands, *outs], plain)))
        group.env.update(zip(op.outs, outs, strict=True))


def known_call(
    op: Op, callee: Cell, target: resolving.Target, entry: Entry, static: Any, times: int
) -> Known | None:
    """What is to be known of a call when its operation comes again; None where it is not plain.

    Plain is a function without a closure or defaults, which is not sure to write something, its
    operands one for each parameter.
    """
    function, given = target.callee, len(op.args) - 1
    if (
        not isinstance(function, FunctionType)
        or function.__closure__
        or function.__defaults__
        or function.__kwdefaults__
        or entry.purity.sure
        or not op.attr.is_plain
        or op.attr.keywords
        or target.kwargs
        or not len(entry.env) == len(target.args) >= max(given, 1)
        or any(param.kind.startswith("var_") for param in entry.code.function.params)
    ):
        return None
    value = callee.value
    called = value.static if type(value) is Container else getattr(value, "obj", None)
    if type(value) is Container and value.type is not METHOD:
        return None
    first = target.args[: len(target.args) - given]
    names = tuple(entry.env)
    seen = entry.purity.returns | entry.purity.writes
    places = tuple(place for place, name in enumerate(names) if name in seen)
    receiver = receiver_in(target.args)
    return Known(op, called, names, first, places, receiver, static, times)


def keys_cell(paths: Paths) -> Cell:
    """The keys of forked calls' paths, which move with their threads."""
    keys, _ = paths.here()
    return Cell(Column(torch.from_numpy(keys), "int"))


def keys_of(cell: Cell) -> np.ndarray:
    value = cell.value
    assert type(value) is Column
    return on_host(value.data)


def is_same(callee: object, known: object) -> bool:
    """Whether an object is another one, or a method bound to the same."""
    if type(callee) is MethodType and type(known) is MethodType:
        return callee.__self__ is known.__self__ and callee.__func__ is known.__func__
    return callee is known or (type(callee) is BuiltinMethodType and callee == known)


def is_plain(cell: Cell) -> bool:
    """Whether it holds nothing that can be changed: no caller sees whether it is a copy."""
    value = cell.value
    if type(value) is Column:
        return value.tag != "tensor"
    return type(value) in (Uniform, Objects) and not is_mutable(value)


def holds_objects(cells: Iterable[Cell]) -> bool:
    """Whether threads have objects of their own in some cells: a write to them is seen at once."""
    return any(type(cell.value) is Objects for cell in walks.reached(cells))


def holds_iterators(cells: Iterable[Cell]) -> bool:
    """Whether what some cells hold are iterators, as far as cells go."""
    return any(map(advances, walks.reached(cells)))


def advances(cell: Cell) -> bool:
    value = cell.value
    kind = type(value)
    if kind is Container:
        return is_iterator(value)
    if kind is Uniform:
        return hasattr(type(value.obj), "__next__")  # type: ignore[union-attr]
    if kind is Objects:
        return any(hasattr(each, "__next__") for each in value.kinds)  # type: ignore[union-attr]
    return False


def holds_builtin(cells: Iterable[Cell]) -> bool:
    """Whether threads have objects of their own in some cells that ``+=`` writes in place."""
    values = (cell.value for cell in walks.reached(cells))
    return any(type(value) is Objects and value.kinds & IN_PLACE for value in values)


def captured(boxes: Cell) -> list[Cell]:
    """What captured variables hold that is no function of the program's."""
    found: list[Cell] = []
    seen: set[int] = set()
    waiting = [boxes]
    while waiting:
        cell = waiting.pop()
        value = cell.value
        if id(cell) in seen:
            continue
        seen.add(id(cell))
        if cell is boxes or (type(value) is Container and value.type in (BOX, CLOSURE)):
            waiting += value.children()  # type: ignore[union-attr]
        else:
            found.append(cell)
    return found
