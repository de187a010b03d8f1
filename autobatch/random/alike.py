"""The same draws for threads that run together, whatever way each goes (``randomness="same"``).

What a thread draws is what any thread draws that has drawn as it has: each has a *place*, the state
that torch's generators would be in had it run alone. A draw for threads of one place is one draw,
which begins there; threads of several places draw one by one. ``repeating`` gives the same to
threads, or chunks of them, that run one after the other. A generator that a draw is given by name
is none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from autobatch.compat import outside_everything
from autobatch.random.repeating import default_of


@dataclass(slots=True, eq=False, repr=False)
class State:
    """Of the generators, ``key`` in bytes; ``draws`` led to it, ``number`` is the place's."""

    number: int
    parts: tuple[Tensor, ...]
    key: bytes
    draws: int = 0


@dataclass(slots=True, eq=False, repr=False)
class Alike:
    """Where the threads of a run are; ``places`` has the number of each one's state."""

    generators: tuple[Generator, ...]
    places: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    states: dict[int, State] = field(default_factory=dict)
    numbers: dict[bytes, int] = field(default_factory=dict)
    farthest: State | None = None
    count: int = 0

    @classmethod
    def on(cls, device: torch.device) -> Alike:
        own = (default_of(device),) if device.type == "cuda" else ()
        return cls((torch.default_generator, *own))

    def are_together(self, threads: np.ndarray) -> bool:
        """Whether one draw is the same for all of these threads."""
        self.begin(threads)
        places = self.places[threads]
        return bool((places == places[:1]).all())

    @contextmanager
    def drawing(self, threads: np.ndarray, before: State | None = None) -> Iterator[None]:
        """Threads of one place draw; ``before`` is the place, if it is not where they are."""
        if not len(threads):
            yield
            return
        self.begin(threads)
        if before is None:
            before = self.states[int(self.places[threads[0]])]
        else:
            self.put(threads, before)
        for generator, part in zip(self.generators, before.parts, strict=True):
            generator.set_state(part)
        yield
        self.move(threads, before)

    def by_row(self, threads: np.ndarray, call: Callable[[int], Any]) -> Callable[[int], Any]:
        """``call`` of a row, where its thread is; a thread may have several rows."""
        self.begin(threads)
        places = self.places[threads]
        held = {number: self.states[number] for number in set(places.tolist())}

        def drawn(row: int) -> Any:
            with self.drawing(threads[row : row + 1], held[int(places[row])]):
                return call(row)

        return drawn

    def end(self) -> None:
        """All threads have ended: the generators are where most draws have led."""
        if self.farthest is not None:
            for generator, part in zip(self.generators, self.farthest.parts, strict=True):
                generator.set_state(part)

    def begin(self, threads: np.ndarray) -> None:
        if not self.count:
            self.keep(self.now(0))
        missing = int(threads.max(initial=-1)) + 1 - len(self.places)
        if missing > 0:
            self.places = np.append(self.places, np.zeros(missing, dtype=np.int64))

    def now(self, draws: int) -> State:
        with outside_everything():  # a level of a transform would wrap them
            parts = tuple(generator.get_state() for generator in self.generators)
            key = b"".join(part.numpy().tobytes() for part in parts)
        return State(self.count, parts, key, draws)

    def keep(self, state: State) -> None:
        self.states[state.number] = state
        self.numbers[state.key] = state.number
        self.count += 1

    def move(self, threads: np.ndarray, before: State) -> None:
        """The threads are where the generators are now."""
        after = self.now(before.draws + 1)
        if after.key == before.key:
            return
        if self.farthest is None or after.draws > self.farthest.draws:
            self.farthest = after
        self.put(threads, after)
        if before.number and not (self.places == before.number).any():  # 0 is where others begin
            self.states.pop(before.number, None)
            self.numbers.pop(before.key, None)

    def put(self, threads: np.ndarray, state: State) -> None:
        """The threads are at a place, which may be known by another number, or by none any more."""
        number = self.numbers.get(state.key)
        if number is None:
            number = state.number = self.count
            self.keep(state)
        self.places[threads] = number
