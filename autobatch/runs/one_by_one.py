"""One thread after the other, by the definitional interpreter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any

import numpy as np

from autobatch.arguments.batch import Batch
from autobatch.batching.calling.resolving import resolve_object
from autobatch.batching.effects import effect_of
from autobatch.batching.foreign import Foreign
from autobatch.batching.host.making import handed_on
from autobatch.batching.replaced import NOTHING, Replaced, read_by
from autobatch.errors import LIMITS, AutobatchError
from autobatch.ir.program import Function
from autobatch.options import Options
from autobatch.random.drawing import drawing
from autobatch.random.paths import key_of
from autobatch.random.repeating import Repeating
from autobatch.random.sources import Thread
from autobatch.results.outcome import Chunk
from autobatch.results.stacking import Result
from autobatch.runs.entry import started
from autobatch.runs.machines import steps_of
from autobatch.values.cells import Cell, Container, Objects
from autobatch.vm.calling import Returned
from autobatch.vm.failing import Errors
from autobatch.vm.handing import Handing
from autobatch.vm.library import Library
from autobatch.vm.sequential.calls import object_of
from autobatch.vm.sequential.draws import refusing
from autobatch.vm.sequential.frames import Callee
from autobatch.vm.sequential.interpreter import Interpreter
from autobatch.vm.sequential.watching import Unwatched
from autobatch.vm.steps import Steps
from autobatch.vm.ways import UNKNOWN, Way, Ways


@dataclass(frozen=True, slots=True)
class OneByOne:
    """A function by the definitional interpreter; ``repeating``: all threads draw the same."""

    function: Callable[..., Any]
    options: Options
    library: Library
    steps: Steps
    repeating: Repeating | None = None

    def run(
        self,
        index: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        given: tuple[Any, ...] | None = None,
    ) -> tuple[Any, Way | None]:
        """The result of the thread ``index``, and the way it has come, if that is known.

        ``given`` is what of its arguments may be the caller's: by default, all of them.
        """
        target, draws = resolve_object(self.function, [], {}), self.options.draws
        if target.effect == "transform":  # its function runs in frames, as within a program
            target = started(self.function)
        receivers = tuple(map(object_of, target.args))
        named = {name: object_of(cell) for name, cell in target.kwargs.items()}
        is_lowered = target.effect in ("program", "generator")
        callee = self.callee(target.callee, receivers[:1]) if is_lowered else None
        if callee is None:
            asked = refusing(self.function, args) if draws == "error" else nullcontext()
            with self.drawing(index), asked:
                return self.function(*args, **kwargs), None
        limit = self.options.depth_limit
        watch = self.watch()
        watch.closure((*callee.boxes.values(), *map(CellType, callee.defaults.values())))
        watch.given((*receivers, *((*args, *kwargs.values()) if given is None else given)))
        interpreter = Interpreter(
            self.lookup, self.steps, limit, (index,), watch=watch, draws=draws
        )
        with self.drawing(index):
            result = interpreter.run(callee, (*receivers, *args), {**named, **kwargs})
        interpreter.calls.generators.check()
        return result, interpreter.way

    def callee(self, called: Any, receiver: tuple[Any, ...]) -> Callee | None:
        """What runs in a frame: of a Python function, or of one that a program has made."""
        if isinstance(called, FunctionType):
            return Callee.of(self.library.code_of(called, *receiver).function, called)
        if type(called) is Container:
            if called.static[0].yields is not None:
                raise handed_on(called.static[0], called.static[0].span)
            return Callee.made(called.static, list(map(object_of, called.children())))
        return None

    def watch(self) -> Unwatched:
        """What keeps a thread from writing what existed before it, unless it may."""
        if self.options.writes:
            return Unwatched()
        return Handing(self.library, Foreign(), self.options.draws).watch()

    def lookup(self, function: FunctionType) -> Function | None:
        """The lowering of a function that a thread calls; None for what runs as plain Python."""
        return self.library.code_of(function).function if effect_of(function) == "program" else None

    def drawing(self, index: int) -> AbstractContextManager[None]:
        """The thread draws from words of its own if there is a seed, else what all draw, if so."""
        options = self.options
        if options.seed is None:
            return nullcontext() if self.repeating is None else self.repeating.thread()
        if self.library.replaced is not NOTHING:
            refuse_seed(self.library.replaced)
        return drawing(Thread(index + options.thread_offset, key_of(options.seed)))

    def isolated(
        self,
        index: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        given: tuple[Any, ...] | None = None,
    ) -> tuple[Result, Way | None]:
        """The same as a result that has its exception, where threads are isolated."""
        try:
            value, way = self.run(index, args, kwargs, given)
        except Exception as error:
            own = isinstance(error, AutobatchError) and not isinstance(error, LIMITS)
            if own or self.options.on_error != "isolate":
                raise
            return Result(None, error.with_traceback(None)), None
        return Result(value), way


def refuse_seed(replaced: Replaced) -> None:
    """Refuse numbers of a seed that would be made by what somebody has put in torch's place."""
    names = sorted(replaced.names & read_by("autobatch.random"))
    if names:
        raise AutobatchError(
            f"Torch's {' and '.join(names)} has been replaced, by which autobatch makes the "
            "numbers of a seed. Put it back for this call, or pass no seed."
        )


def run_sequential(
    function: Callable[..., Any], batch: Batch, options: Options, library: Library
) -> Chunk:
    """One thread after the other."""
    repeating = Repeating() if options.randomness == "same" else None
    each = OneByOne(function, options, library, steps_of(options, batch), repeating)
    ways = Ways()
    items: list[Any] = [None] * batch.size
    marks = np.full(batch.size, UNKNOWN)
    errors: Errors = {}

    try:
        for index in range(batch.size):
            row = batch.row(index, options.scalars, not options.writes)
            result, way = each.isolated(index, *row, batch.shared(*row))
            items[index] = result.value
            if result.exception is not None:
                errors[index] = result.exception
            if way is not None:
                marks[index] = ways.number(way.function, way.label)
    finally:
        if repeating is not None:
            repeating.end()
    piece = Returned(np.arange(batch.size), Cell(Objects(items)), ways=marks)
    return Chunk(0, [piece], ways, lambda rows: lambda cell: items, errors)
