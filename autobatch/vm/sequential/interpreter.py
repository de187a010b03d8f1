"""The definitional interpreter: a lowered function run for one example, on real Python values.

In: a function with what it closes over, and arguments. Out: what plain Python gives for that
example: result, effects, exception (with a note). It is the meaning of the intermediate
representation, and the oracle that tests lowering apart from batching. Frames stand on a list
of their own, so ``max_depth`` bounds a recursion, not Python's stack.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from autobatch.batching.binding import bind
from autobatch.ir.program import Branch, Call, Jump, Op, Raise, Return, Terminator
from autobatch.random.drawing import SOURCE
from autobatch.vm.sequential.calls import Args, Calls, Kwargs, Resolution
from autobatch.vm.sequential.frames import OF_THE_FRAME, Callee, Frame, Lookup
from autobatch.vm.sequential.unwinding import HANDLED_AT, Unwinding
from autobatch.vm.sequential.watching import Unwatched
from autobatch.vm.steps import Steps, too_deep
from autobatch.vm.ways import Way


@dataclass(slots=True, eq=False, repr=False)
class Interpreter:
    """Runs calls for one thread.

    ``lookup`` gives a callee's lowering, None to run it as plain Python; ``steps`` counts block
    executions; ``threads`` holds the thread's index, for notes and listeners. ``way`` is where
    the last result came from; ``watch`` refuses writes to what existed before. ``draws`` is
    what draws mean.
    """

    lookup: Lookup = lambda _: None
    steps: Steps = field(default_factory=Steps)
    max_depth: int | None = None
    threads: tuple[int, ...] = ()
    frames: list[Frame] = field(default_factory=list)
    way: Way | None = None
    watch: Unwatched = Unwatched()  # noqa: RUF009
    draws: str = "different"
    calls: Calls = field(init=False)
    unwinding: Unwinding = field(init=False)

    def __post_init__(self) -> None:
        self.calls = Calls(self.lookup, self.watch, self.steps, self.threads, self.draws)
        self.unwinding = Unwinding(self.frames, self.threads)

    def run(self, callee: Callee, args: Args, kwargs: Kwargs, instance: Any = None) -> Any:
        """A call from Python: steps until the callee's own frame has returned."""
        base = len(self.frames)
        try:
            self.push(Resolution(callee, args, kwargs, instance))
            while True:
                try:
                    if self.advance(base):
                        return self.frames.pop().result
                except BaseException as error:
                    if not self.unwinding.handle(error, base):
                        raise
        except BaseException as error:
            self.unwinding.unwind(error, base)
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

    def push(self, call: Resolution, opens: bool = False) -> None:
        """Begin a call; it draws where its caller does, unless it ``opens`` a path."""
        callee, function = call.called, call.called.function
        values = bind(function.params, callee.title, call.args, call.kwargs, callee.defaults)
        if self.max_depth is not None and len(self.frames) >= self.max_depth:
            raise too_deep(self.max_depth, self.frames[-1].span)
        source = SOURCE.get()
        self.frames.append(Frame(callee, values, function.span, call.instance, source))
        if opens and source is not None:
            SOURCE.set(source.opened())

    def step(self, frame: Frame) -> bool:
        """One block execution; true if the frame has returned."""
        function, pc, depth = frame.callee.function, frame.label, len(self.frames) - 1
        block = function.blocks[pc]
        frame.reach(block.terminator.span)
        if self.steps.stops(self.threads):
            raise self.steps.too_many(frame.span, 1)
        self.steps.begin(function, pc, 1)
        self.steps.take_part(self.threads)
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
                value = self.watch.truth(frame.decide(condition), frame.span)
                frame.label = then if value else otherwise
            case Call():
                self.call(terminator, frame)
            case Raise(exception, cause):
                given = (frame.read(name) for name in (exception, cause) if name is not None)
                raise self.watch.raised(*given)
            case Return(value):
                frame.give(frame.read(value))
        return isinstance(terminator, Return)

    def execute(self, op: Op, frame: Frame) -> Any:
        if op.name in OF_THE_FRAME:
            return self.watch.seen(op.name, frame.run(op))
        frame.operands = tuple(map(frame.read, op.args))
        if op.name in HANDLED_AT:
            return self.unwinding.about_handled(op, frame.operands, self.watch)
        if op.name == "call":
            target, operands = frame.called()
            return self.calls.call(self.run, op.attr, target, operands, frame.span)
        if op.name == "function":
            return frame.made(op, self.run)
        self.watch.operation(op.name, op.attr, frame.operands, op.span)
        return self.calls.applied(op, frame.operands)

    def call(self, call: Call, frame: Frame) -> None:
        target = frame.read(call.callee)
        frame.operands = tuple(map(frame.read, call.args))
        found = self.calls.resolved(call.shape, target, frame.operands, frame.span)
        if isinstance(found.called, Callee):
            self.push(found, opens=True)
        else:
            frame.resume(self.calls.made_apart(self.run, found, frame.span), None)
