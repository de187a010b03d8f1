"""How an exception leaves the frames of one thread: to a handler, or out of the call.

In: the frames at work and what was raised in the innermost. Out: the frame of the handler that
goes on, its variable bound; else the error with a note of where it arose, once, and no frame of
the call left. Modes are left as ``with`` statements would leave them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from autobatch import errors
from autobatch.batching.levels import DrawError
from autobatch.batching.raising import add_context, left_generators
from autobatch.batching.semantics import handled
from autobatch.ir.dataflow import handled_at
from autobatch.ir.program import Op
from autobatch.random.drawing import SOURCE
from autobatch.vm.sequential.frames import Frame, Origin, note
from autobatch.vm.sequential.watching import Unwatched

MOST_ORIGINS = 64

HANDLED_AT = {"handled": 0, "context": 1}
"""Which operand is the exception that is being handled; the caller's, if it is not given."""


@dataclass(slots=True, eq=False, repr=False)
class Unwinding:
    """``frames`` are the interpreter's own; ``threads`` holds the thread's index, for notes.

    ``origins`` are those of exceptions that handlers have had of late.
    """

    frames: list[Frame]
    threads: tuple[int, ...]
    origins: dict[int, Origin] = field(default_factory=dict)
    noted: BaseException | None = None

    def handled(self) -> Any:
        """The exception that one of the functions around that at work handles, if any."""
        for frame in reversed(self.frames[:-1]):
            name = handled_at(frame.callee.function.blocks, frame.label)
            if name is not None:
                return frame.read(name)
        return None

    def about_handled(self, op: Op, operands: tuple[Any, ...], watch: Unwatched) -> Any:
        """An operation on the exception that is being handled, here or where a caller is."""
        if len(operands) == HANDLED_AT[op.name]:
            operands = (*operands, self.handled())
        if op.name == "handled":
            return handled(op.attr, *operands)
        new, before = operands
        watch.arises(new, before, op.span)
        return add_context(new, before)

    def handle(self, error: BaseException, base: int) -> bool:
        """Go on in the innermost handler of this call's; whether there is one."""
        if isinstance(error, (errors.AutobatchError, DrawError)):
            return False
        caught = [place for place in range(base, len(self.frames)) if self.frames[place].handler]
        if not caught:
            return False
        frame = self.frames[caught[-1]]
        handler = frame.handler
        assert handler is not None
        error = self.became(error, caught[-1])
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

    def became(self, error: BaseException, base: int) -> BaseException:
        """What an error is once it has left the code at work in the frames from ``base`` on."""
        left = left_generators(error, [frame.span for frame in self.frames[base:]])
        found = self.arise(error)
        if left is not error:
            self.origins[id(left)] = replace(found, error=left)
        return left

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
        error = self.became(error, base)
        if self.frames and not any(frame.handler for frame in self.frames[:base]):
            if self.noted is not error:
                note(error, self.arise(error), self.threads)
            self.noted = error
        if len(self.frames) > base:
            SOURCE.set(self.frames[base].source)
        raise self.leave(error, base, ())
