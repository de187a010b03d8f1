"""The same draws for threads, or chunks of them, that run one after the other.

Each begins to draw where the first one did, so threads that draw the same things have the same
numbers, whatever way they go. Each generator ends where that has led which has drawn the most.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from autobatch.modes import DispatchMode
from autobatch.random.drawing import is_random


@dataclass(slots=True, eq=False, repr=False)
class Drawn:
    """What threads draw from a generator: where they begin, and where most of them has led."""

    generator: Generator
    begun: Tensor
    numbers: int = 0
    most: int = 0
    ended: Tensor | None = None

    def again(self) -> None:
        """A thread has ended, the next one is to begin."""
        if self.numbers > self.most:
            self.most, self.ended = self.numbers, self.generator.get_state()
        self.generator.set_state(self.begun)
        self.numbers = 0


class Repeating(DispatchMode):
    """Looks on while threads draw."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drawn: dict[int, Drawn] = {}

    @contextmanager
    def thread(self) -> Iterator[None]:
        try:
            with self:
                yield
        finally:
            for each in self.drawn.values():
                each.again()

    @contextmanager
    def chunk(self, device: torch.device) -> Iterator[None]:
        """Threads that run together; of what they draw only whether they do is known."""
        known = [self.of(torch.default_generator)]
        if device.type == "cuda":
            known.append(self.of(default_of(device)))
        try:
            yield
        finally:
            for each in known:
                each.numbers = int(not torch.equal(each.generator.get_state(), each.begun))
                each.again()

    def end(self) -> None:
        """All threads have ended."""
        for each in self.drawn.values():
            if each.ended is not None:
                each.generator.set_state(each.ended)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not is_random(func):
            return func(*args, **kwargs)
        generator = generator_of(args, kwargs)
        drawn = None if generator is None else self.of(generator)
        out = func(*args, **kwargs)
        if drawn is not None:
            outs = out if isinstance(out, tuple) else (out,)
            drawn.numbers += sum(each.numel() for each in outs if isinstance(each, Tensor))
        return out

    def of(self, generator: Generator) -> Drawn:
        """What is drawn from a generator, which stays alive."""
        known = self.drawn.get(id(generator))
        if known is None:
            known = self.drawn[id(generator)] = Drawn(generator, generator.get_state())
        return known


def generator_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Generator | None:
    """What an operation draws from; None where that is no generator of the host's or a GPU's."""
    for each in (*args, kwargs.get("generator")):
        if isinstance(each, Generator):
            return each
    devices = [each.device for each in args if isinstance(each, Tensor)]
    device = devices[0] if devices else torch.device(kwargs.get("device") or "cpu")
    if device.type == "cuda":
        return default_of(device)
    return torch.default_generator if device.type == "cpu" else None


@contextmanager
def as_it_was(device: torch.device, given_up: type[BaseException]) -> Iterator[None]:
    """What ends with an exception of this type has drawn nothing."""
    generators = generators_of(device)
    states = [generator.get_state() for generator in generators]
    try:
        yield
    except given_up:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        raise


def generators_of(device: torch.device) -> list[Generator]:
    """The host's generator, and a GPU's."""
    own = [default_of(device)] if device.type == "cuda" else []
    return [torch.default_generator, *own]


def default_of(device: torch.device) -> Generator:
    """A GPU's generator."""
    index = torch.cuda.current_device() if device.index is None else device.index
    generator: Generator = torch.cuda.default_generators[index]
    return generator
