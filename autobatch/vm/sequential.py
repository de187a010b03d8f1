"""The definitional interpreter: a lowered function run for one example, on real Python values.

In: a function with what it closes over, and arguments. Out: what plain Python gives for that
example: result, effects, exception (with a note). It is the meaning of the intermediate
representation, and the oracle that tests lowering apart from batching. Frames stand on a list
of their own, so ``max_depth`` bounds a recursion, not Python's stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

from torch import nn

from autobatch import errors
from autobatch.batching.binding import bind
from autobatch.batching.calling.resolving import resolve_object
from autobatch.batching.calling.seeding import for_one
from autobatch.batching.kinds import generated_init
from autobatch.batching.objects.classes import is_plain_class
from autobatch.batching.raising import raised
from autobatch.batching.semantics import apply, arguments, handled
from autobatch.ir.dataflow import handled_at
from autobatch.ir.program import Branch, Call, CallShape, Jump, Op, Raise, Return, Terminator
from autobatch.random.drawing import SOURCE
from autobatch.source import Span
from autobatch.transforms.rounds import round_by_round
from autobatch.values.cells import Cell, Uniform
from autobatch.vm.frames import (
    OF_THE_FRAME,
    Callee,
    Closure,
    Frame,
    Lookup,
    Origin,
    note,
    receiver_of,
    receiver_shown,
)
from autobatch.vm.steps import Steps, too_deep
from autobatch.vm.watching import Unwatched
from autobatch.vm.ways import Way

MOST_ORIGINS = 64


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a call runs: a ``Callee``, or as plain Python; an ``__init__`` fills ``instance``.

    ``opens``: plain Python that draws from a path of its own where the call ends a block.
    """

    called: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    instance: Any = None
    opens: bool = False


def fills(kind: type) -> bool:
    """Whether building an instance is to run its ``__init__`` on an empty one."""
    return is_plain_class(kind) and not generated_init(kind)


def object_of(cell: Cell) -> Any:
    """What a call hands on by itself: a receiver, or a partial's arguments."""
    value = cell.value
    assert type(value) is Uniform
    return value.obj


@dataclass(slots=True, eq=False)
class Interpreter:
    """Runs calls for one thread.

    ``lookup`` gives a callee's lowering, None to run it as plain Python; ``steps`` counts block
    executions; ``threads`` holds the thread's index, for notes and listeners. ``way`` is where
    the last result came from; ``origins`` are those of exceptions that handlers have had of late;
    ``watch`` refuses writes to what existed before.
    """

    lookup: Lookup = lambda _: None
    steps: Steps = field(default_factory=Steps)
    max_depth: int | None = None
    threads: tuple[int, ...] = ()
    frames: list[Frame] = field(default_factory=list)
    origins: dict[int, Origin] = field(default_factory=dict)
    noted: BaseException | None = None
    way: Way | None = None
    watch: Unwatched = Unwatched()  # noqa: RUF009

    def run(
        self, callee: Callee, args: tuple[Any, ...], kwargs: dict[str, Any], instance: Any = None
    ) -> Any:
        """A call from Python: steps until the callee's own frame has returned."""
        base = len(self.frames)
        try:
            self.push(callee, args, kwargs, instance)
            while True:
                try:
                    if self.advance(base):
                        return self.frames.pop().result
                except BaseException as error:
                    if not self.handle(error, base):
                        raise
        except BaseException as error:
            self.unwind(error, base)
            raise

    def advance(self, base: int) -> bool:
        """One block execution; true if it ends the call whose frame stands at ``base``."""
        frame = self.frames[-1]
        if not self.step(frame):
            return False
        if len(self.frames) == base + 1:
            self.way = frame.way
            SOURCE.set(frame.source)
            return True
        SOURCE.set(self.frames.pop().source)
        self.frames[-1].resume(frame.result, frame.way)
        return False

    def push(
        self,
        callee: Callee,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        instance: Any = None,
        opens: bool = False,
    ) -> None:
        """Begin a call; it draws where its caller does, unless it ``opens`` a path."""
        values = bind(callee.function.params, callee.title, args, kwargs, callee.defaults)
        if self.max_depth is not None and len(self.frames) >= self.max_depth:
            raise too_deep(self.max_depth, self.frames[-1].span)
        source = SOURCE.get()
        frame = Frame(callee, values, callee.function.span, instance=instance, source=source)
        self.frames.append(frame)
        if opens and source is not None:
            SOURCE.set(source.opened())

    def step(self, frame: Frame) -> bool:
        """One block execution; true if the frame has returned."""
        function, pc, depth = frame.callee.function, frame.label, len(self.frames) - 1
        block = function.blocks[pc]
        frame.reach(block.terminator.span)
        if self.steps.spent:
            raise self.steps.too_many(frame.span, 1)
        self.steps.begin(function, pc, 1)
        started = perf_counter()
        frame.enter(block.modes)
        for op in block.ops:
            frame.reach(op.span)
            frame.assign(op, self.execute(op, frame))
        returned = self.finish(block.terminator, frame)
        self.steps.end(function, pc, self.threads, depth, perf_counter() - started)
        frame.before = pc
        return returned

    def finish(self, terminator: Terminator, frame: Frame) -> bool:
        frame.reach(terminator.span)
        match terminator:
            case Jump(target):
                frame.label = target
            case Branch(condition, then, otherwise):
                value = self.watch.truth(frame.read(condition), frame.span)
                frame.label = then if value else otherwise
            case Call():
                self.call(terminator, frame)
            case Raise(exception, None):
                raise raised(frame.read(exception))
            case Raise(exception, str(cause)):
                raise raised(frame.read(exception), frame.read(cause))
            case Return(value):
                frame.give(frame.read(value))
        return isinstance(terminator, Return)

    def execute(self, op: Op, frame: Frame) -> Any:
        if op.name in OF_THE_FRAME:
            return self.watch.seen(op.name, frame.run(op))
        frame.operands = tuple(map(frame.read, op.args))
        if op.name == "handled":
            return handled(op.attr, frame.operands[0] if op.args else self.handled())
        if op.name == "call":
            target, *operands = frame.operands
            frame.operands = (*receiver_shown(target), *operands)
            found = self.resolved(op.attr, target, operands, frame.span)
            return self.made(found, frame.span)
        if op.name == "function":
            return Closure(frame.callee.nested(op, frame.operands), self.run)
        self.watch.operation(op.name, op.attr, frame.operands, op.span)
        return apply(op.name, op.attr, frame.operands)

    def call(self, call: Call, frame: Frame) -> None:
        target = frame.read(call.callee)
        frame.operands = tuple(map(frame.read, call.args))
        try:
            found = self.resolved(call.shape, target, list(frame.operands), frame.span)
        except errors.UnsupportedError as error:
            raise errors.placed(error, frame.span) from None
        if isinstance(found.called, Callee):
            self.push(found.called, found.args, found.kwargs, found.instance, opens=True)
        else:
            frame.resume(self.made_apart(found, frame.span), None)

    def resolved(
        self, shape: CallShape, target: Any, operands: list[Any], span: Span
    ) -> Resolution:
        """What a call runs, as a ``Callee`` or as plain Python, and its arguments."""
        given, kwargs = arguments(shape, target, tuple(operands))
        args = tuple(given)
        receiver, function = receiver_of(target)
        callee = Callee.find(function, self.watch.lookup(receiver) or self.lookup)
        if callee is not None:
            return Resolution(callee, (*receiver, *args), kwargs)
        opened = resolve_object(target, [], {})
        own = tuple(object_of(cell) for cell in opened.args)
        named = {name: object_of(cell) for name, cell in opened.kwargs.items()}
        lookup = self.watch.lookup(own) or self.lookup
        if opened.effect == "construct" and fills(opened.callee):
            callee = Callee.find(opened.callee.__init__, lookup)
            instance = opened.callee.__new__(opened.callee)
            if callee is not None:
                return Resolution(callee, (instance, *own, *args), {**named, **kwargs}, instance)
        if opened.effect == "program":
            callee = Callee.find(opened.callee, lookup)
            if callee is not None:
                return Resolution(callee, (*own, *args), {**named, **kwargs})
        if opened.effect == "chain" and len(args) == 1 and not kwargs:
            return Resolution(partial(self.chained, opened.callee, span), args, kwargs)
        called = round_by_round(target)
        if called is None:
            called = target if SOURCE.get() is None else for_one(target, kwargs, span)
        return Resolution(called, args, kwargs, opens=opened.effect == "construct")

    def made(self, found: Resolution, span: Span) -> Any:
        """The result of a call within a block."""
        if isinstance(found.called, Callee):
            return self.run(found.called, found.args, found.kwargs, found.instance)
        return self.watch.plain(found.called, list(found.args), found.kwargs, span)

    def made_apart(self, found: Resolution, span: Span) -> Any:
        """The result of plain Python, of a call that ends its block."""
        source = SOURCE.get()
        if source is None or not found.opens:
            return self.made(found, span)
        SOURCE.set(source.opened())
        try:
            return self.made(found, span)
        finally:
            SOURCE.set(source)

    def chained(self, modules: nn.Sequential, span: Span, item: Any) -> Any:
        """``nn.Sequential``'s forward."""
        for module in modules:
            item = self.made(self.resolved(CallShape((False,)), module, [item], span), span)
        return item

    def handled(self) -> Any:
        """The exception that one of the functions around that at work handles, if any."""
        for frame in reversed(self.frames[:-1]):
            name = handled_at(frame.callee.function.blocks, frame.label)
            if name is not None:
                return frame.read(name)
        return None

    def handle(self, error: BaseException, base: int) -> bool:
        """Go on in the innermost handler of this call's; whether there is one."""
        if isinstance(error, errors.AutobatchError):
            return False
        caught = [place for place in range(base, len(self.frames)) if self.frames[place].handler]
        if not caught:
            return False
        frame = self.frames[caught[-1]]
        handler = frame.handler
        assert handler is not None
        self.arise(error)
        modes = frame.callee.function.blocks[handler.target].modes
        inner = caught[-1] + 1
        if len(self.frames) > inner:
            SOURCE.set(self.frames[inner].source)
        raised = self.leave(error, inner, frame.entered_beyond(modes))
        self.arise(raised)
        frame.variables[handler.out] = raised
        frame.label, frame.way = handler.target, None
        return True

    def arise(self, error: BaseException) -> Origin:
        """Where an exception arose: here, unless a handler has had it and it is raised again."""
        found = self.origins.get(id(error))
        if found is None:
            spans = tuple(frame.span for frame in self.frames)
            operands = self.frames[-1].operands if self.frames else ()
            found = self.origins[id(error)] = Origin(error, spans, operands)
        while len(self.origins) > MOST_ORIGINS:
            del self.origins[next(iter(self.origins))]
        return found

    def leave(self, error: BaseException, base: int, ways: Sequence[ExitStack]) -> BaseException:
        """Leave the frames from ``base`` on and their modes, and before these some others.

        What is raised then: ``error``, or what leaving a mode raises in its place.
        """
        try:
            with ExitStack() as modes:
                modes.callback(self.frames.__delitem__, slice(base, None))
                for way in ways:
                    modes.push(way.__exit__)
                for frame in self.frames[base:]:
                    for way in frame.entered_beyond(()):
                        modes.push(way.__exit__)
                raise error
        except BaseException as raised:
            return raised
        raise AssertionError("a mode swallows an exception")

    def unwind(self, error: BaseException, base: int) -> None:
        """Note where the error arose, once, and leave the frames of this call and their modes."""
        if self.frames and not any(frame.handler for frame in self.frames[:base]):
            if self.noted is not error:
                note(error, self.arise(error), self.threads)
            self.noted = error
        if len(self.frames) > base:
            SOURCE.set(self.frames[base].source)
        raise self.leave(error, base, ())
