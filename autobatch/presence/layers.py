"""A tensor as each of autograd's graphs sees it.

Within functorch's levels a tensor is a wrapper of one that the level below sees, and so on; in
forward mode each of them may have a tangent, which is a tensor like it. Each may have a node of its
own, in the graph of its own level.

In: a tensor and the dimension that its rows are in. Out: its *layers*, outermost first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from autobatch.compat import (
    batch_dim,
    is_batched,
    is_wrapped,
    level_of,
    tangent_of,
    unwrap_if_dead,
    unwrapped,
    within_duals,
    within_level,
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Layer:
    """``dim``: where its rows are; ``level``: whose graph it is in, 0 where there is no level."""

    tensor: Tensor
    dim: int
    level: int


def layers(tensor: Tensor, dim: int = 0) -> Iterator[Layer]:
    if not within_level() and not within_duals():
        yield Layer(tensor, dim, 0)
        return
    yield from all_layers(tensor, dim)


def alive(tensor: Tensor) -> Tensor:
    """A tensor without the wrappers of levels that have ended."""
    inner = unwrap_if_dead(tensor)
    while inner is not tensor:
        tensor, inner = inner, unwrap_if_dead(inner)
    return tensor


def all_layers(tensor: Tensor, dim: int) -> Iterator[Layer]:
    tensor = alive(tensor)
    if is_wrapped(tensor) and is_batched(tensor):
        yield from all_layers(unwrapped(tensor), dim + (batch_dim(tensor) <= dim))
        return
    yield Layer(tensor, dim, level_of(tensor) if is_wrapped(tensor) else 0)
    tangent = tangent_of(tensor)
    if tangent is not None:
        yield from all_layers(tangent, dim)
    if is_wrapped(tensor):
        yield from all_layers(unwrapped(tensor), dim)


def differentiated(tensor: Tensor, dim: int = 0) -> Iterator[Layer]:
    """The layers that have a node."""
    return (layer for layer in layers(tensor, dim) if layer.tensor.requires_grad)


def is_in_a_graph(tensor: Tensor) -> bool:
    """Whether some layer has a node."""
    if tensor.requires_grad:
        return True
    return (within_level() or within_duals()) and any(True for _ in differentiated(tensor))


def bare(tensor: Tensor) -> Iterator[Tensor]:
    """What a tensor and its tangents hold, without wrappers."""
    return (layer.tensor for layer in layers(tensor) if not is_wrapped(layer.tensor))
