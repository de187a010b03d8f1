"""The definitional interpreter: a lowered function run for one example, on real Python values.

In: a function with what it closes over, and arguments. Out: what plain Python gives for that
example: result, effects, exception (with a note). It is the meaning of the intermediate
representation, and the oracle that tests lowering apart from batching. Frames stand on a list
of their own, so ``max_depth`` bounds a recursion, not Python's stack.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from autobatch import errors
from autobatch.batching.binding import bind
from autobatch.batching.semantics import apply, arguments
from autobatch.ir.program import Branch, Call, CallShape, Jump, Op, Raise, Return, Terminator
from autobatch.vm.frames import OF_THE_FRAME, Callee, Closure, Frame, Lookup, note, receiver_of
from autobatch.vm.steps import Steps, too_deep
from autobatch.vm.watching import Unwatched
from autobatch.vm.ways import Way

SWALLOWED = "A `with` statement swallowed an exception, which a program cannot do."


@dataclass(slots=True, eq=False)
class Interpreter:
    """Runs calls for one thread.

    ``lookup`` gives a callee's lowering, None to run it as plain Python; ``steps`` counts block
    executions; ``threads`` holds the thread's index, for notes and listeners. ``way`` is where
    the last result came from; ``watch`` refuses writes to what existed before.
    """

    lookup: Lookup = lambda _: None
    steps: Steps = field(default_factory=Steps)
    max_depth: int | None = None
    threads: tuple[int, ...] = ()
    frames: list[Frame] = field(default_factory=list)
    noted: BaseException | None = None
    way: Way | None = None
    watch: Unwatched = Unwatched()  # noqa: RUF009

    def run(self, callee: Callee, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call from Python: steps until the callee's own frame has returned."""
        base = len(self.frames)
        try:
            self.push(callee, args, kwargs)
            while True:
                frame = self.frames[-1]
                if self.step(frame):
                    self.frames.pop()
                    if len(self.frames) == base:
                        self.way = frame.way
                        return frame.result
                    self.frames[-1].resume(frame.result, frame.way)
        except BaseException as error:
            self.unwind(error, base)
            raise

    def push(self, callee: Callee, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        values = bind(callee.function.params, callee.title, args, kwargs, callee.defaults)
        if self.max_depth is not None and len(self.frames) >= self.max_depth:
            raise too_deep(self.max_depth, self.frames[-1].span)
        self.frames.append(Frame(callee, values, callee.function.span))

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
                raise frame.read(exception)
            case Raise(exception, str(cause)):
                raise frame.read(exception) from frame.read(cause)
            case Return(value):
                frame.give(frame.read(value))
        return isinstance(terminator, Return)

    def execute(self, op: Op, frame: Frame) -> Any:
        if op.name in OF_THE_FRAME:
            return self.watch.seen(op.name, frame.run(op))
        frame.operands = tuple(map(frame.read, op.args))
        if op.name == "call":
            called, args, kwargs = self.resolved(op.attr, *frame.operands)
            if isinstance(called, Callee):
                return self.run(called, args, kwargs)
            return self.watch.plain(called, args, kwargs, frame.span)
        if op.name == "function":
            return Closure(frame.callee.nested(op, frame.operands), self.run)
        self.watch.operation(op.name, op.attr, frame.operands, op.span)
        return apply(op.name, op.attr, frame.operands)

    def call(self, call: Call, frame: Frame) -> None:
        target = frame.read(call.callee)
        frame.operands = tuple(map(frame.read, call.args))
        called, args, kwargs = self.resolved(call.shape, target, *frame.operands)
        if isinstance(called, Callee):
            self.push(called, args, kwargs)
        else:
            frame.resume(self.watch.plain(called, args, kwargs, frame.span), None)

    def resolved(self, shape: CallShape, target: Any, *operands: Any) -> tuple[Any, Any, Any]:
        """What a call runs, as a ``Callee`` or as plain Python, and its arguments."""
        args, kwargs = arguments(shape, target, operands)
        receiver, function = receiver_of(target)
        callee = Callee.find(function, self.watch.lookup(receiver) or self.lookup)
        return (target, args, kwargs) if callee is None else (callee, (*receiver, *args), kwargs)

    def unwind(self, error: BaseException, base: int) -> None:
        """Note where the error arose, once, and leave the frames of this call and their modes."""
        if self.frames and self.noted is not error:
            note(error, self.frames, self.threads)
        self.noted = error
        with ExitStack() as modes:
            modes.callback(self.frames.__delitem__, slice(base, None))
            for frame in self.frames[base:]:
                for _, stack in frame.entered.values():
                    modes.push(stack.__exit__)
            raise error
        raise errors.UnsupportedError(SWALLOWED) from error
