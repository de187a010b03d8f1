"""A seeded problem for a program: what to call, and a batch of arguments.

``Example.args`` has one row per thread: a tensor ``[B, *E]``, or a list of B Python
objects (trees, say). ``row(i)`` are the arguments of one thread, ``mapped(objects)`` those
of the whole batch, lists wrapped by ``objects``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Example:
    function: Callable[..., Any]
    args: tuple[Tensor | list[Any], ...]

    @property
    def batch(self) -> int:
        return len(self.args[0])

    def row(self, index: int) -> tuple[Any, ...]:
        return tuple(arg[index] for arg in self.args)

    def mapped(self, objects: Callable[[list[Any]], Any]) -> tuple[Any, ...]:
        return tuple(objects(arg) if isinstance(arg, list) else arg for arg in self.args)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from ``seed`` inside, and leave the caller's generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
