"""Calls within a block: a program function that an operation runs, one result for all threads.

An operation cannot part its group, so what its threads return is joined: a value that all kinds
of results fit into, objects if need be. The calls themselves run in frames, by the engine's
``call``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

from autobatch.batching import calls, operations
from autobatch.batching.calling import resolving
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.effects import effect_of
from autobatch.batching.host.from_rows import from_rows
from autobatch.batching.host.rower import Rower
from autobatch.batching.objects import classes
from autobatch.batching.stretches.outside import function_reads, noted, outside_reads
from autobatch.batching.trace import Untraceable
from autobatch.ir.program import Return
from autobatch.random.paths import Paths
from autobatch.values.cells import Cell, Objects, uniform
from autobatch.values.heap import likeness, merging, selecting
from autobatch.vm.calling import Returned
from autobatch.vm.constructing import constructed
from autobatch.vm.entering import entered
from autobatch.vm.failing import Failures
from autobatch.vm.nested import Nested
from autobatch.vm.sequential.frames import Callee, Closure
from autobatch.vm.sequential.interpreter import Interpreter
from autobatch.vm.state import RunState

Caller = Callable[[Context, resolving.Target, Sequence[Cell], Paths | None], list[Returned]]
CALLS = ("call", "fork")
FRAMED = ("program", "construct")
"""Effects of callees that an engine runs in frames."""
RECORDED = ("torch", "transform")
"""Effects of callees that a recording runs as they are."""
COMPARED = ("is", "is_not", "eq", "ne", "in", "not_in")


@dataclass(slots=True, eq=False, repr=False)
class Within:
    """What a block's operations call program functions by; ``call`` is the engine's."""

    run: RunState
    failures: Failures
    call: Caller

    def invoke(
        self,
        context: Context,
        callee: Any,
        args: list[Cell],
        kwargs: dict[str, Cell],
        opens: bool = False,
        gone: Sequence[Cell] = (),
    ) -> Cell:
        """One result for all threads, whatever they return.

        ``opens``: the call opens paths, as one that ends its block does. ``gone``: arguments that
        nobody knows afterwards. A result may be one of them in some threads, and not in others.
        """
        cell = callee if isinstance(callee, Cell) else uniform(callee, shared=True)
        target = resolving.resolve(cell, args, kwargs)
        if target.effect not in (*FRAMED, "objects"):
            return calls.run(context, target)
        if target.effect == "construct" and classes.only_holds(target.callee):
            return constructed(context, target)[0]
        context.flush()
        span, at = context.span, self.run.tally.block
        kept = [each for each in (cell, *args, *kwargs.values()) if each not in gone]
        if self.failures.frames and span is not None:
            self.failures.frames[-1].span = span  # a check is looked at from a later place
        if target.effect == "objects":
            pieces = []
            for rows, part in resolving.partition(cell):
                pieces += self.part_call(context, rows, part, args, kwargs, opens)
        else:
            pieces = self.call(context, target, kept, paths_within(context, opens))
        context.span, self.run.tally.block = span, at
        return self.joined(context, pieces)

    def part_call(
        self,
        context: Context,
        rows: list[int],
        callee: Cell,
        args: list[Cell],
        kwargs: dict[str, Cell],
        opens: bool,
    ) -> list[Returned]:
        """A call for some of the rows."""
        positions = np.array(rows, dtype=np.int64)
        cells = selecting.select([*args, *kwargs.values()], positions)
        named = dict(zip(kwargs, cells[len(args) :], strict=True))
        part = context.restricted(rows)
        target = resolving.resolve(callee, cells[: len(args)], named)
        if target.effect in FRAMED:
            pieces = self.framed(part, target, opens)
        else:
            pieces = [Returned(np.arange(part.k), calls.run(part, target))]
        return [
            Returned(positions[piece.rows], piece.value, raised=piece.raised) for piece in pieces
        ]

    def framed(
        self,
        context: Context,
        target: resolving.Target,
        opens: bool,
        kept: Sequence[Cell] = (),
    ) -> list[Returned]:
        """A call of a program function that writes to nothing of what its caller keeps.

        Its result may be one of ``kept``.
        """
        return self.call(context, target, kept, paths_within(context, opens))

    def with_lost(self, context: Context, pieces: list[Returned]) -> Cell:
        """What the pieces return, and for threads that have failed, which are lost, the same."""
        here = np.concatenate([piece.rows for piece in pieces]) if pieces else np.empty(0, int)
        missing = np.setdiff1d(np.arange(context.k), here)
        for row in missing.tolist():
            context.lose(row, self.failures.errors[int(context.threads[row])])
        if not len(here):
            context.leave()
        first = pieces[0]
        rows = np.concatenate([first.rows, missing])
        order = np.argsort(rows)
        positions = np.concatenate([np.arange(len(first.rows)), np.zeros_like(missing)])[order]
        first.rows = rows[order]
        first.value, *first.carried = selecting.select([first.value, *first.carried], positions)
        if len(pieces) == 1:
            first.settle(first.originals)
        return self.joined(context, pieces)

    def with_raised(self, context: Context, pieces: list[Returned]) -> Cell:
        """The same where some raise, which are lost to a handler of the caller's.

        What they have done to the caller's cells stays done.
        """
        values = self.row_by_row(context, pieces)
        for piece in pieces:
            for row in piece.rows.tolist() if piece.raised else ():
                context.lose(row, values[row], self.failures.origin(values[row]))
        given = [row for piece in pieces if not piece.raised for row in piece.rows.tolist()]
        if not given:
            context.leave()
        whole, spare = set(given), values[given[0]]
        items = [item if row in whole else spare for row, item in enumerate(values)]
        return from_rows(context, items, fresh=False)

    def joined(self, context: Context, pieces: list[Returned]) -> Cell:
        """What the pieces return, in the order of the context's rows."""
        if any(piece.raised for piece in pieces):
            return self.with_raised(context, pieces)
        rows = np.concatenate([piece.rows for piece in pieces]) if pieces else np.empty(0, int)
        if len(rows) < context.k:
            missing = np.setdiff1d(np.arange(context.k), rows)
            lowest = int(missing[np.argmin(context.threads[missing])])
            remaining = np.sort(rows)
            if context.lost is not None:
                return self.with_lost(context, pieces)
            for piece in pieces:
                piece.rows = np.searchsorted(remaining, piece.rows)
            part = context.restricted(remaining.tolist())
            assert self.failures.failure is not None
            partial = self.joined(part, pieces) if pieces else None
            raise RowsFail(lowest, self.failures.failure, partial, kept=remaining)
        if len(pieces) == 1:
            return pieces[0].value
        if len({likeness.alike([piece.value, *piece.carried]) for piece in pieces}) == 1:
            return self.together(context, pieces)
        return from_rows(context, self.row_by_row(context, pieces), fresh=False)

    def together(self, context: Context, pieces: list[Returned]) -> Cell:
        """What pieces return that were not alike before their ends, and are now."""
        sizes = [len(piece.rows) for piece in pieces]
        with self.run.moving():
            heaps = [[piece.value, *piece.carried] for piece in pieces]
            cells = merging.merge(heaps, sizes, context.device)
            rows = np.concatenate([piece.rows for piece in pieces])
            value, *carried = selecting.select(cells, np.argsort(rows))
        whole = Returned(np.arange(context.k), value, carried)
        whole.settle(pieces[0].originals)
        return whole.value

    def row_by_row(self, context: Context, pieces: list[Returned]) -> list[Any]:
        """Each row's result; the caller's cells take over what the pieces carry, as objects."""
        originals = pieces[0].originals
        columns: list[list[Any]] = [[None] * context.k for _ in range(1 + len(originals))]
        for piece in pieces:
            rower = Rower(context.restricted(piece.rows.tolist()), keep=True)
            for column, cell in zip(columns, (piece.value, *piece.carried), strict=True):
                for row, item in zip(piece.rows.tolist(), rower.rows(cell), strict=True):
                    column[row] = item
        for original, column in zip(originals, columns[1:], strict=True):
            original.value = Objects(column)
        return columns[0]

    def inline(
        self, context: Context, callee: Any, args: list[Cell], kwargs: dict[str, Cell]
    ) -> Cell:
        """A call while a stretch is recorded: the operations of a function of a single block."""
        cell = callee if isinstance(callee, Cell) else uniform(callee, shared=True)
        target = resolving.resolve(cell, args, kwargs)
        if target.effect in RECORDED:
            return calls.run(context, target)
        if target.effect == "construct" and classes.only_holds(target.callee):
            context.assumed.append(noted(lambda: classes.only_holds(target.callee)))
            return constructed(context, target)[0]
        if target.effect != "program":
            raise Untraceable("it runs a program function")
        entry = entered(self.run.library, context, target)
        if id(target.callee) not in context.twins:
            context.assumed += function_reads(target.callee)
        terminator = entry.code.blocks[0].terminator
        if not entry.code.is_straight or not isinstance(terminator, Return):
            raise Untraceable("it runs a program function that branches")
        for op in entry.code.blocks[0].ops:
            if op.name in COMPARED and any(is_twin(context, entry.env.get(a)) for a in op.args):
                raise Untraceable("it compares functions, some of which stand for others")
            operations.execute(context, entry.scope, op, entry.env)
            context.assumed += outside_reads(entry.scope, op, entry.env, context.twins)
        return entry.env[terminator.value]

    def closure(self, static: Any) -> Callable[[tuple[Any, ...]], Closure]:
        """What makes a program's function a Python callable of one thread, of what it holds."""
        function, namespace, _ = static
        handing = self.run.services.handing
        found = self.run.library.purity_of(Nested(function, namespace))
        is_own = found is not None and not found.outer and self.is_pure(static)
        handed = None if handing is None or is_own else handing.runner()

        def of_thread(part: tuple[Any, ...]) -> Closure:
            return Closure(Callee.made(static, part), handed or self.interpreted, (static, part))

        return of_thread

    def interpreted(self, *call: Any) -> Any:
        return Interpreter(self.lookup).run(*call)

    def is_pure(self, static: Any) -> bool:
        """Whether a program's function can be seen to change nothing that it did not make."""
        function, namespace, _ = static
        found = self.run.library.purity_of(Nested(function, namespace))
        return found is not None and found.is_silent and not found.writes

    def lookup(self, function: FunctionType) -> Any:
        if effect_of(function) != "program":
            return None
        return self.run.library.code_of(function).function


def is_twin(context: Context, cell: Cell | None) -> bool:
    """Whether an operand is a function that a recording has in the place of another."""
    return cell is not None and id(getattr(cell.value, "obj", None)) in context.twins


def paths_within(context: Context, opens: bool) -> Paths | None:
    """Where a call within a block draws: where its caller does, unless it opens paths.

    A method that Python calls by itself, for an operator, opens none, nor do its own calls.
    """
    paths = context.paths
    if paths is None:
        return None
    if opens:
        return paths.opened()
    return paths if context.at is None or context.at[0].does in CALLS else paths.flattened()
