"""The stackless engine: a program counter, thread groups, a queue of waiting blocks per frame.

In: a lowered function and the cells of its arguments. Out: the returned groups of threads. A
frame runs the block with the smallest program counter for the threads that wait there, all at
once; a branch splits a group, groups that wait at one block coalesce, a call runs a frame of its
own (on Python's stack). After TensorFlow Probability's ``stackless.execute`` and Bradbury & Fu
2018, with groups that hold the rows of their own threads only.

A failing operation ends the threads from the lowest failing one on; those below it finish, since
one of them may fail with an exception that comes first in the plain loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch import errors
from autobatch.batching import calls, operations, operators
from autobatch.batching.binding import bind, defaults_of
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.effects import effect_of
from autobatch.batching.fallbacks import Policy
from autobatch.batching.foreign import Foreign
from autobatch.batching.operations import CAPTURED, Scope
from autobatch.batching.rows import Rower, from_rows
from autobatch.batching.stretches import COLD, Work
from autobatch.batching.stretches.outside import function_reads, outside_reads
from autobatch.batching.trace import Untraceable
from autobatch.batching.truths import truth
from autobatch.ir.program import Branch, Call, Jump, Op, Raise, Return
from autobatch.source import Span
from autobatch.vm import heap, invariants
from autobatch.vm.calling import KEPT, Returned, carry, settled
from autobatch.vm.frames import Callee, Closure, nested_title
from autobatch.vm.groups import CARRIED, Group, restricted
from autobatch.vm.library import Code, Library
from autobatch.vm.listeners import Listener, Step, Tally
from autobatch.vm.modes import entered_modes
from autobatch.vm.observer import Observer
from autobatch.vm.queue import Waiting
from autobatch.vm.sequential import run_callee
from autobatch.vm.values import Cell, Column, Container, Objects, Uniform, read, uniform

NO_MODES = nullcontext()


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is to respect; see ``options.Options`` for their meaning."""

    device: torch.device
    batch: int
    randomness: str = "error"
    max_steps: int | None = None
    max_depth: int = 10_000
    listeners: tuple[Listener, ...] = ()


@dataclass(slots=True, eq=False)
class Frame:
    """One call at work: its code, what it closes over, and the thread index of each row."""

    code: Code
    scope: Scope
    threads: np.ndarray
    waiting: Waiting
    depth: int
    returned: list[Returned] = field(default_factory=list)
    span: Span | None = None


@dataclass(slots=True, eq=False)
class Machine:
    """One run of a program for a batch of threads.

    ``policy`` says what to do about fallbacks, ``raising``
    is whether the block at work ends by raising.
    """

    library: Library
    settings: Settings
    tally: Tally = field(default_factory=Tally)
    steps: int = 0
    limit: int | None = None
    failure: BaseException | None = None
    work: Work | None = None
    frames: list[Frame] = field(default_factory=list)
    policy: Policy | None = None
    observer: Observer | None = None
    raising: bool = False
    foreign: Foreign = field(default_factory=Foreign)

    def run(
        self,
        function: Callable[..., Any],
        args: list[Cell],
        kwargs: dict[str, Cell],
        threads: np.ndarray,
    ) -> list[Returned]:
        """Call ``function`` for the threads with the given indices; raises what the loop raises."""
        self.foreign = Foreign.of([*args, *kwargs.values()])
        context = self.context(threads, None)
        target = calls.resolve_object(function, args, kwargs)
        try:
            returned = self.call(context, target, [])
        except RowsFail as failure:
            if not len(threads):
                raise self.no_data(failure.span) from failure.error
            self.fail(context, failure)
            returned = []
        if self.failure is not None:
            raise self.failure
        return returned

    def context(self, threads: np.ndarray, group: Group | None) -> Context:
        return Context(
            len(threads),
            threads,
            self.settings.device,
            self.tally,
            self.settings.randomness,
            self.invoke,
            self.closure,
            self.inline,
            checks=group.checks if group is not None else [],
            policy=None if self.raising else self.policy,
            foreign=self.foreign,
        )

    # Calls

    def call(self, context: Context, target: calls.Target, kept: Sequence[Cell]) -> list[Returned]:
        """Run a program function or build an instance; ``kept`` is what the caller needs later."""
        if target.effect == "construct":
            return self.construct(context, target, kept)
        code, scope, env = self.entered(context, target)
        carried = carry(env.values(), kept)
        if carried:
            env[CARRIED] = Cell(Container(tuple, carried))
        pieces = self.frame(code, scope, env, context)
        return settled(pieces, carried, context.k)

    def entered(
        self, context: Context, target: calls.Target
    ) -> tuple[Code, Scope, dict[str, Cell]]:
        """What a call of a program function runs, and its parameters' cells."""
        if isinstance(target.callee, Container):
            code, scope, defaults = self.entered_closure(target.callee)
        else:
            code, scope, defaults = self.entered_function(target)
        params = code.function.params
        try:
            env = bind(params, scope.title, target.args, target.kwargs, defaults)
        except TypeError as error:
            raise RowsFail(context.lowest(), error) from error
        for param in params:
            if param.kind == "var_positional":
                env[param.name] = Cell(Container(tuple, list(env[param.name])))
            elif param.kind == "var_keyword":
                env[param.name] = Cell(Container(dict, dict(env[param.name])))
        captured = {name: box for name, box in scope.free.items() if isinstance(box, Cell)}
        if captured:
            env[CAPTURED] = Cell(Container(dict, captured))
        return code, scope, env

    def entered_closure(self, closure: Container) -> tuple[Code, Scope, list[Cell]]:
        """A function that the program made, with its boxes and defaults."""
        lowered, namespace, title = closure.static
        cells = list(closure.children())
        boxes = zip(lowered.free, cells, strict=False)
        free: Any = {name: getattr(cell.value, "obj", cell) for name, cell in boxes}
        scope = Scope(lowered, namespace, nested_title(title, lowered), free)
        return self.library.code_for(lowered), scope, cells[len(lowered.free) :]

    def entered_function(self, target: calls.Target) -> tuple[Code, Scope, list[Cell]]:
        """A Python function, with its closure and its defaults as they are now."""
        function = target.callee
        code = self.library.code_of(function, *receiver_of(target))
        closure = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        scope = Scope(code.function, function.__globals__, function.__qualname__, dict(closure))
        given = defaults_of(function, code.function.params)
        return code, scope, [uniform(value, shared=True) for value in given]

    def inline(
        self, context: Context, callee: Any, args: list[Cell], kwargs: dict[str, Cell]
    ) -> Cell:
        """A call while a stretch is recorded: the operations of a function of a single block."""
        cell = callee if isinstance(callee, Cell) else uniform(callee, shared=True)
        target = calls.resolve(cell, args, kwargs)
        if target.effect != "program":
            raise Untraceable("it runs a program function")
        code, scope, env = self.entered(context, target)
        context.assumed += function_reads(target.callee)
        terminator = code.blocks[0].terminator
        if not code.is_straight or not isinstance(terminator, Return):
            raise Untraceable("it runs a program function that branches")
        for op in code.blocks[0].ops:
            operations.execute(context, scope, op, env)
            context.assumed += outside_reads(scope, op, env)
        return env[terminator.value]

    def construct(
        self, context: Context, target: calls.Target, kept: Sequence[Cell]
    ) -> list[Returned]:
        """An instance of a user's class: a container of its attributes, filled by ``__init__``."""
        kind, args, kwargs = target.callee, target.args, target.kwargs
        everyone = np.arange(context.k)
        if not calls.is_plain_class(kind):
            opaque = calls.Target("unknown", kind, args, kwargs)
            return [Returned(everyone, calls.run(context, opaque))]
        instance = Cell(Container(kind, {}))
        if calls.generated_init(kind):
            fields = calls.dataclass_fields(context, kind, args, kwargs)
            instance.value.cells.update(fields)  # type: ignore[union-attr]
            if not hasattr(kind, "__post_init__"):
                return [Returned(everyone, instance)]
            made = calls.Target("program", kind.__post_init__, [instance], {})
        elif kind.__init__ is object.__init__:
            if args or kwargs:
                operators.once(context, lambda: kind(*[None] * len(args), **dict.fromkeys(kwargs)))
            return [Returned(everyone, instance)]
        else:
            made = calls.resolve_object(kind.__init__, [instance, *args], kwargs)
        pieces = self.call(context, made, [*kept, instance])
        for piece in pieces:
            piece.value = piece.kept_cell(instance)
        return pieces

    def invoke(
        self, context: Context, callee: Any, args: list[Cell], kwargs: dict[str, Cell]
    ) -> Cell:
        """A call within a block: one result for all threads, whatever they return."""
        cell = callee if isinstance(callee, Cell) else uniform(callee, shared=True)
        target = calls.resolve(cell, args, kwargs)
        if target.effect not in ("program", "construct", "objects"):
            return calls.run(context, target)
        context.flush()
        span, at = context.span, self.tally.block
        kept = [*args, *kwargs.values()]
        if target.effect == "objects":
            pieces = []
            for rows, part in calls.partition(cell):
                pieces += self.part_call(context, rows, part, args, kwargs)
        else:
            pieces = self.call(context, target, kept)
        context.span, self.tally.block = span, at
        return self.joined(context, pieces)

    def part_call(
        self,
        context: Context,
        rows: list[int],
        callee: Cell,
        args: list[Cell],
        kwargs: dict[str, Cell],
    ) -> list[Returned]:
        """A call within a block for some of its rows."""
        positions = np.array(rows, dtype=np.int64)
        cells = heap.select([*args, *kwargs.values()], positions)
        named = dict(zip(kwargs, cells[len(args) :], strict=True))
        part = context.restricted(rows)
        target = calls.resolve(callee, cells[: len(args)], named)
        if target.effect in ("program", "construct"):
            pieces = self.call(part, target, [])
        else:
            pieces = [Returned(np.arange(part.k), calls.run(part, target))]
        return [Returned(positions[piece.rows], piece.value) for piece in pieces]

    def joined(self, context: Context, pieces: list[Returned]) -> Cell:
        """The results of a call within a block, in the order of the block's rows."""
        rows = np.concatenate([piece.rows for piece in pieces]) if pieces else np.empty(0, int)
        if len(rows) < context.k:
            lowest = int(np.setdiff1d(np.arange(context.k), rows)[0])
            remaining = np.sort(rows)
            for piece in pieces:
                piece.rows = np.searchsorted(remaining, piece.rows)
            part = context.restricted(remaining.tolist())
            assert self.failure is not None
            raise RowsFail(lowest, self.failure, self.joined(part, pieces) if pieces else None)
        if len(pieces) == 1:
            return pieces[0].value
        originals = pieces[0].originals
        columns: list[list[Any]] = [[None] * context.k for _ in range(1 + len(originals))]
        for piece in pieces:
            rower = Rower(context.restricted(piece.rows.tolist()), keep=True)
            for column, cell in zip(columns, (piece.value, *piece.carried), strict=True):
                for row, item in zip(piece.rows.tolist(), rower.rows(cell), strict=True):
                    column[row] = item
        for original, column in zip(originals, columns[1:], strict=True):
            original.value = Objects(column)
        return from_rows(context, columns[0], fresh=False)

    def closure(self, static: Any, part: tuple[Any, ...]) -> Closure:
        """A program's function as a Python callable of one thread."""
        function, namespace, title = static
        count = len(function.free)
        boxes = dict(zip(function.free, part[:count], strict=True))
        own = nested_title(title, function)
        callee = Callee(function, namespace, own, boxes, part[count:])
        return Closure(callee, lambda *call: run_callee(*call, lookup=self.lookup))

    def lookup(self, function: FunctionType) -> Any:
        if effect_of(function) != "program":
            return None
        return self.library.code_of(function).function

    # Frames

    def frame(
        self, code: Code, scope: Scope, env: dict[str, Cell], context: Context
    ) -> list[Returned]:
        """Run a function to its end for the threads of ``context``."""
        depth = len(self.frames)
        if depth >= self.settings.max_depth:
            raise self.too_deep(context)
        waiting = Waiting(
            code.live,
            self.settings.device,
            self.objectify_in(context),
            empty=not self.settings.batch,
        )
        frame = Frame(code, scope, context.threads, waiting, depth)
        watch = invariants.watch(code.function.name, waiting, frame.threads, frame.returned)
        self.frames.append(frame)
        try:
            at = waiting.next([(0, Group(np.arange(context.k), env))])
            while at is not None:
                if watch is not None:
                    watch.ahead(*at, self.limit)
                pc, group = at
                at = waiting.next(self.step(frame, pc, group))  # no *at: that nests on the C stack
            if watch is not None:
                watch.end(self.limit)
        finally:
            self.frames.pop()
        return [piece for piece in frame.returned if len(piece.rows) or not self.settings.batch]

    def too_deep(self, context: Context) -> errors.DepthLimitError:
        return errors.DepthLimitError(
            errors.Diagnostic(
                f"Calls nest deeper than max_depth={self.settings.max_depth}.",
                context.span,
                "called here",
                hints=("raise max_depth, or end the recursion earlier.",),
                code="depth-limit",
            )
        )

    def objectify_in(self, context: Context) -> Callable[[Group, Sequence[str]], None]:
        def objectify(group: Group, names: Sequence[str]) -> None:
            rower = Rower(context.restricted(group.rows.tolist()), keep=True)
            for name in names:
                group.env[name] = Cell(Objects(rower.rows(group.env[name])))

        return objectify

    def step(self, frame: Frame, pc: int, group: Group) -> list[tuple[int, Group]]:
        """Execute one block for a group; the groups that go on, and where."""
        group = self.without_dropped(frame, group)
        if not group.k and self.settings.batch:
            return []
        listening = bool(self.settings.listeners)
        started = time.perf_counter() if listening else 0.0
        self.count(frame, pc, group)
        block = frame.code.blocks[pc]
        context = self.context(frame.threads[group.rows], group)
        grad = torch.is_grad_enabled()
        inner = 0.0
        with (
            entered_modes(frame.code.function, block, group.env, context)
            if block.modes
            else NO_MODES
        ):
            group, context = self.operations(frame, block.ops, group, context)
            if not group.k and self.settings.batch:
                return []
            frame.span = context.span = block.terminator.span
            before = time.perf_counter() if listening else 0.0
            try:
                parts = self.finish(frame, block.terminator, group, context)
            except RowsFail as failure:
                group = self.dropped(frame, group, context, failure)
                parts = self.again(frame, block.terminator, group)
            if listening and isinstance(block.terminator, Call):
                inner = time.perf_counter() - before
        if torch.is_grad_enabled() is not grad:
            torch.set_grad_enabled(grad)
        if self.observer is not None and type(block.terminator) is Call:
            for _, part in parts:
                self.observer.operation(frame.code.function, block.terminator, part.env)
        if listening:
            self.tell(frame, pc, context.threads, time.perf_counter() - started - inner)
        return parts

    def again(self, frame: Frame, terminator: Any, group: Group) -> list[tuple[int, Group]]:
        """The terminator for the threads that a failure in it has left."""
        while group.k:
            context = self.context(frame.threads[group.rows], group)
            context.span = terminator.span
            try:
                return self.finish(frame, terminator, group, context)
            except RowsFail as failure:
                group = self.dropped(frame, group, context, failure)
        return []

    def count(self, frame: Frame, pc: int, group: Group) -> None:
        self.steps += 1
        self.tally.block = (frame.code.function.name, pc)
        self.tally.execution(group.k)
        self.raising = type(frame.code.blocks[pc].terminator) is Raise
        if self.observer is not None:
            threads = frame.threads[group.rows]
            self.observer.block(frame.code.function, pc, threads, group.env)
        limit = self.settings.max_steps
        if limit is not None and self.steps > limit:
            raise errors.StepLimitError(
                errors.Diagnostic(
                    f"The run takes more than max_steps={limit} block executions.",
                    frame.code.blocks[pc].terminator.span,
                    f"{group.k} threads are here",
                    hints=("raise max_steps, or look for a loop that does not end.",),
                    code="step-limit",
                )
            )

    def tell(self, frame: Frame, pc: int, threads: np.ndarray, seconds: float) -> None:
        mask = np.zeros(self.settings.batch, dtype=bool)
        mask[threads] = True
        name = frame.code.function.name
        step = Step(name, f"b{pc}", pc, threads, mask, frame.depth, seconds)
        for listener in self.settings.listeners:
            listener(step)

    def operations(
        self, frame: Frame, ops: Sequence[Op], group: Group, context: Context
    ) -> tuple[Group, Context]:
        """Run straight-line operations, dropping threads that fail."""
        position = 0
        work, pc = self.work, self.tally.block[1]
        while position < len(ops):
            if work is not None:
                ahead = frame.code.site(pc, position, work.executor).advance(
                    work, context, frame.scope, group.env
                )
                if ahead > position:
                    position = ahead
                    continue
                work = None if ahead == COLD else work
            op = ops[position]
            frame.span = op.span
            try:
                operations.execute(context, frame.scope, op, group.env)
            except errors.AutobatchError:
                raise
            except Exception as error:
                failure = self.blamed(frame, op, group, context, error)
                group = self.dropped(frame, group, context, failure)
                if not group.k:
                    break
                entered = context.entered
                context = self.context(frame.threads[group.rows], group)
                context.entered = entered
                if failure.partial is None:
                    continue
                if op.outs:
                    group.env[op.outs[0]] = failure.partial
            if self.observer is not None:
                self.observer.operation(frame.code.function, op, group.env)
            position += 1
        return group, context

    def blamed(
        self, frame: Frame, op: Op, group: Group, context: Context, error: Exception
    ) -> RowsFail:
        """The lowest thread for which a batched operation fails, if need be by bisection."""
        if isinstance(error, RowsFail):
            return error
        if not context.k:
            raise self.no_data(op.span) from error
        order = context.order()
        names = list(group.env)
        low, high = 0, len(order)  # the first ``high`` threads fail, the first ``low`` do not
        found: BaseException = error
        while high - low > 1:
            middle = (low + high) // 2
            raised = self.tried(frame, op, group, np.array(order[:middle], dtype=np.int64), names)
            if raised is None:
                low = middle
            else:
                high, found = middle, raised
        alone = self.tried(frame, op, group, np.array(order[high - 1 : high]), names)
        return RowsFail(order[high - 1], alone if alone is not None else found)

    def tried(
        self, frame: Frame, op: Op, group: Group, positions: np.ndarray, names: list[str]
    ) -> BaseException | None:
        part = restricted(group, positions, names)
        part.checks = []
        context = self.context(frame.threads[part.rows], part)
        try:
            operations.execute(context, frame.scope, op, part.env)
        except RowsFail as failure:
            return failure.error
        except Exception as error:
            return error
        return None

    # Failing threads

    def dropped(self, frame: Frame, group: Group, context: Context, failure: RowsFail) -> Group:
        """Record a failure; the group without the threads from the failing one on."""
        self.fail(context, failure)
        return self.without_dropped(frame, group)

    def fail(self, context: Context, failure: RowsFail) -> None:
        if not context.k:
            raise self.no_data(context.span) from failure.error
        thread = int(context.threads[failure.row])
        if self.limit is not None and thread >= self.limit:
            return
        self.limit, self.failure = thread, failure.error
        self.note(failure.error, thread, failure.span)

    def note(self, error: BaseException, thread: int, span: Span | None) -> None:
        notes = getattr(error, "__notes__", ())
        if any(note.startswith("While running this program") for note in notes):
            return
        chain = [frame.span for frame in self.frames if frame.span is not None]
        if span is not None and chain:
            chain[-1] = span
        error.add_note(errors.note_for(chain, (), (thread,)))

    def without_dropped(self, frame: Frame, group: Group) -> Group:
        if self.limit is None:
            return group
        threads = frame.threads[group.rows]
        if not len(threads) or threads.max() < self.limit:
            return group
        return restricted(group, np.flatnonzero(threads < self.limit), list(group.env))

    # Terminators

    def finish(
        self, frame: Frame, terminator: Any, group: Group, context: Context
    ) -> list[tuple[int, Group]]:
        match terminator:
            case Jump(target=target):
                group.checks = context.checks
                return [(target, group)]
            case Branch():
                return self.branch(frame, terminator, group, context)
            case Call():
                return self.finish_call(frame, terminator, group, context)
            case Return(value=value):
                context.flush()
                frame.returned.append(Returned(group.rows, group.env[value], carried_by(group)))
                return []
            case Raise():
                context.flush()
                self.raise_(context, terminator, group)
        raise AssertionError(terminator)

    def raise_(self, context: Context, terminator: Raise, group: Group) -> None:
        """All threads of the group raise; the lowest one's exception counts."""
        row = context.lowest()
        part = context.restricted([row])

        def alone(name: str) -> Any:
            (cell,) = heap.select([group.env[name]], np.array([row]))
            return Rower(part).rows(cell)[0]

        try:
            if terminator.cause is None:
                raise alone(terminator.exception)
            raise alone(terminator.exception) from alone(terminator.cause)
        except Exception as error:
            raise RowsFail(row, error) from None

    def branch(
        self, frame: Frame, terminator: Branch, group: Group, context: Context
    ) -> list[tuple[int, Group]]:
        operations_env = group.env
        (cell,) = operations.operands(context, (terminator.condition,), operations_env)
        value = read(truth(context, cell))
        if type(value) is Uniform:
            group.checks = context.checks
            return [(terminator.then if value.obj else terminator.otherwise, group)]
        if not self.settings.batch:
            raise self.no_data(terminator.span)
        assert type(value) is Column
        taken = self.see(context, value.data)
        yes, no = taken.nonzero()[0], (~taken).nonzero()[0]
        group.checks = []
        if not len(no):
            return [(terminator.then, group)]
        if not len(yes):
            return [(terminator.otherwise, group)]
        parts: list[tuple[int, Group]] = []
        for target, rows in ((terminator.then, yes), (terminator.otherwise, no)):
            parts.append((target, restricted(group, rows, frame.code.live[target])))
            self.tally.copies(len(rows))
        return parts

    def no_data(self, span: Span | None) -> errors.EmptyBatchError:
        return errors.EmptyBatchError(
            errors.Diagnostic(
                "A batch of size 0 has no threads to decide what happens here.",
                span,
                "depends on data",
                ("what the results of no threads look like does not follow without data.",),
                ("do not call the function for an empty batch.",),
                "empty-batch",
            )
        )

    def see(self, context: Context, condition: Tensor) -> np.ndarray:
        """The one host read of a branch: its condition, and the checks that were pending."""
        if not context.checks:
            self.tally.host_read("branch")
            return condition.cpu().numpy()
        masks = torch.stack([condition, *(check.failed for check in context.checks)])
        self.tally.host_read("branch")
        seen = masks.cpu().numpy()
        if seen[1:].any():
            context.judge(seen[1:].tolist())
        context.checks = []
        taken: np.ndarray = seen[0]
        return taken

    def finish_call(
        self, frame: Frame, terminator: Call, group: Group, context: Context
    ) -> list[tuple[int, Group]]:
        cells = operations.operands(context, terminator.args, group.env)
        (callee,) = operations.operands(context, (terminator.callee,), group.env)
        args, kwargs = operations.arguments(context, terminator.shape, callee, cells)
        target = calls.resolve(callee, args, kwargs)
        if target.effect == "objects":
            return self.scattered_call(frame, terminator, group, context, callee)
        if target.effect not in ("program", "construct"):
            try:
                result = calls.run(context, target)
            except RowsFail as failure:
                if failure.partial is None:
                    raise
                group = self.dropped(frame, group, context, failure)
                result = failure.partial
                context = self.context(frame.threads[group.rows], group)
            group.env[terminator.out] = result
            group.checks = context.checks
            return [(terminator.target, group)] if group.k or not self.settings.batch else []
        context.flush()
        group.checks = []
        names = frame.code.live[terminator.target]
        kept = [group.env[name] for name in names if name in group.env and name != terminator.out]
        pieces = self.call(context, target, kept)
        return self.resumed(frame, terminator, group, pieces)

    def resumed(
        self, frame: Frame, terminator: Call, group: Group, pieces: list[Returned]
    ) -> list[tuple[int, Group]]:
        """The caller's threads go on after a call, in as many groups as it returned unlike ones."""
        names = [n for n in frame.code.live[terminator.target] if n != terminator.out]
        parts: list[tuple[int, Group]] = []
        for piece in pieces:
            part = group
            if len(pieces) > 1 or len(piece.rows) < group.k:
                group.env[KEPT] = Cell(Container(tuple, list(piece.originals)))
                part = restricted(group, piece.rows, [*names, KEPT])
                piece.settle(list(part.env.pop(KEPT).value.children()))  # type: ignore[union-attr]
            part.env[terminator.out] = piece.value
            parts.append((terminator.target, part))
        return parts

    def scattered_call(
        self, frame: Frame, terminator: Call, group: Group, context: Context, callee: Cell
    ) -> list[tuple[int, Group]]:
        """A call whose callee differs by thread: each callee for its own threads."""
        parts: list[tuple[int, Group]] = []
        for rows, part in calls.partition(callee):
            own = restricted(group, np.array(rows, dtype=np.int64), list(group.env))
            own.env[terminator.callee] = part
            own = self.without_dropped(frame, own)
            if own.k:
                parts += self.again(frame, terminator, own)
        return parts


def carried_by(group: Group) -> list[Cell]:
    """The caller's cells that have moved with the group."""
    cell = group.env.get(CARRIED)
    return [] if cell is None else list(cell.value.children())  # type: ignore[union-attr]


def receiver_of(target: calls.Target) -> tuple[Any, ...]:
    """The first argument, where it is an object that existed before the call."""
    if target.args:
        value = target.args[0].value
        if type(value) is Uniform and value.shared:
            return (value.obj,)
    return ()
