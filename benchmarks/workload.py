"""What a workload is: inputs of any batch size, the per-example program, the same by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from autobatch import objects

Run = Callable[[], Any]
Inputs = tuple[Tensor | list[Any], ...]


@dataclass(frozen=True, slots=True)
class Other:
    """A problem in a system other than torch: ``run`` gives the batch's result, as tensors.

    ``train`` runs forward and backward, from ``systems.total`` of the result to the gradients by
    the problem's parameters, in their order; None where only inference is written.
    """

    run: Run
    train: Callable[[], list[Tensor]] | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """One batch: the per-example ``function``, and its ``inputs``: ``[B, *E]``, or B objects.

    ``by_hand`` are ways to write it in batched torch, by name, the one to be held against
    first; each does all that depends on the batch, its schedule too. ``parameters`` are what a
    training step differentiates by; without any there is none. ``options`` go to autobatch.
    """

    function: Callable[..., Any]
    inputs: Inputs
    by_hand: Mapping[str, Run]
    parameters: Sequence[Tensor] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    delayable: bool = True
    """Whether dynamic batching can delay its operations: no writes in place, no transforms."""

    @property
    def batch(self) -> int:
        return len(self.inputs[0])

    @property
    def device(self) -> torch.device:
        """Where the problem lies; trees lie on the CPU, but their model's parameters count."""
        tensors = (x for x in (*self.parameters, *self.inputs) if isinstance(x, Tensor))
        return next((x.device for x in tensors), torch.device("cpu"))

    def example(self, index: int) -> tuple[Any, ...]:
        """The arguments of one example, numbers as the options say."""
        rows = (argument[index] for argument in self.inputs)
        exact = self.options.get("scalars") == "python"
        return tuple(
            x.item() if exact and isinstance(x, Tensor) and not x.dim() else x for x in rows
        )

    def mapped(self) -> tuple[Any, ...]:
        """The inputs as autobatch takes them."""
        return tuple(objects(x) if isinstance(x, list) else x for x in self.inputs)


class Make(Protocol):
    def __call__(self, batch: int, device: str = "cpu") -> Problem: ...


@dataclass(frozen=True, slots=True)
class Workload:
    """``make(batch, device)`` gives a problem; ``largest`` is the biggest batch that fits.

    Results agree to ``tolerance`` (absolute and relative): where a batched kernel rounds
    otherwise, a loop that stops at a threshold may take one step more or less.
    """

    name: str
    make: Make
    largest: int = 32_768
    tolerance: float = 0.0
