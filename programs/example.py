"""A seeded problem for a program: what to call, and a batch of arguments.

``Example.args`` has one row per thread: a tensor ``[B, *E]``, or a list of B tensors of
lengths of their own, or of B Python objects (trees, say). ``row(i)`` are the arguments of one
thread, ``mapped(objects, ragged)`` those of the whole batch, lists wrapped. What a program draws
depends on ``seed``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only


@dataclass(frozen=True, slots=True)
class Example:
    function: Callable[..., Any]
    args: tuple[Tensor | list[Any], ...]
    seed: int | None = None
    """What a batch draws by; None for what does not draw."""

    @property
    def batch(self) -> int:
        return len(self.args[0])

    def row(self, index: int) -> tuple[Any, ...]:
        return tuple(arg[index] for arg in self.args)

    def mapped(
        self, objects: Callable[[list[Any]], Any], ragged: Callable[[list[Tensor]], Any]
    ) -> tuple[Any, ...]:
        def wrapped(arg: Tensor | list[Any]) -> Any:
            if isinstance(arg, list):
                return ragged(arg) if isinstance(arg[0], Tensor) else objects(arg)
            return arg

        return tuple(map(wrapped, self.args))

    def to(self, device: str) -> Example:
        """The same there: the tensors among the arguments, and a module's own."""
        args = tree_map_only(Tensor, lambda arg: arg.to(device), self.args)
        function = self.function
        moved = function.to(device) if isinstance(function, nn.Module) else function
        return replace(self, function=moved, args=args)

    def options(self) -> dict[str, Any]:
        """What a batched call is to be given."""
        return {} if self.seed is None else {"seed": self.seed}


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from ``seed`` inside, and leave the caller's generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
