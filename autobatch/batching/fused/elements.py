"""A region element by element: what each thread has few numbers of, one tensor ``[k]`` for each.

    y [k, 2]                            y0 [k], y1 [k]
    stack((y[:, 1], -y[:, 0]), 1)   →   y1, -y0
    max(abs(y), 1)                  →   maximum(abs(y0), abs(y1))

Loops over rows of two or three numbers are too short for a machine's vectors, and what is stacked
and selected again goes through memory; of tensors ``[k]`` a kernel is one loop over the threads.
A value is an array of its event shape that holds tensors ``[k]``, or 0-d ones where all threads
share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.fused.operators import JOINING, REDUCING, VIEWS, name_of
from autobatch.batching.trace.graph import Count, Graph, Meta, Node, Ref, Symbol

MOST = 8
"""Numbers that a thread may have of each value."""
LONGEST = 1024
"""Operations that a region may come to."""

FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "all": torch.logical_and,
    "amax": torch.maximum,
    "amin": torch.minimum,
    "any": torch.logical_or,
    "max": torch.maximum,
    "mean": torch.add,
    "min": torch.minimum,
    "sum": torch.add,
}


class Whole(Exception):
    """A region that is better left in whole tensors."""


def rows_of(meta: Meta) -> bool:
    """Whether a value has a row for each thread."""
    return bool(meta.shape) and meta.shape[0] == Count(1)


def event_of(meta: Meta) -> tuple[int, ...]:
    shape = meta.shape[1:] if rows_of(meta) else meta.shape
    if any(type(size) is not int for size in shape) or math.prod(shape) > MOST:
        raise Whole
    return tuple(shape)


@dataclass(frozen=True, slots=True)
class One:
    """What an array holds: a tensor, which numpy would otherwise open."""

    tensor: Any


def slices(array: Any, axis: int) -> list[Any]:
    """An array's parts along an axis."""
    before = (slice(None),) * axis
    places: list[Any] = [(*before, place, ...) for place in range(array.shape[axis])]
    return [array[place] for place in places]


@dataclass(slots=True)
class Elements:
    """Computes a region; ``env`` has the arrays of its values."""

    graph: Graph
    env: dict[int, Any] = field(default_factory=dict)
    count: int = 0

    def enter(self, value: int, tensor: Tensor) -> None:
        """The elements of an input."""
        meta = self.graph.metas.get(value)
        event = () if meta is None else event_of(meta)
        made: Any = np.empty(event, dtype=object)
        for place in np.ndindex(event):
            made[place] = One(tensor[(..., *place)] if event else tensor)
        self.env[value] = made

    def run(self, node: Node) -> None:
        for out in node.outs:
            if out is not None:
                event_of(self.graph.metas[out])
        name = name_of(node)
        if name in VIEWS:
            made = self.viewed(name, node)
        elif name in JOINING:
            made = self.joined(name, node)
        elif name in REDUCING:
            made = self.reduced(name, node)
        else:
            made = self.each(node)
        (out,) = (out for out in node.outs if out is not None)
        if made.shape != event_of(self.graph.metas[out]):
            raise Whole
        self.env[out] = made
        self.count += made.size
        if self.count > LONGEST:
            raise Whole

    def dim(self, node: Node, dim: int) -> int:
        """The axis of an array that a dimension of its tensor is."""
        meta = self.graph.metas[node.args[0].value]
        axis = dim % len(meta.shape) - rows_of(meta)
        if axis < 0:
            raise Whole
        return axis

    def viewed(self, name: str, node: Node) -> Any:
        given = self.env[node.args[0].value]
        rest: Sequence[Any] = node.args[1:]
        if name in ("alias", "detach"):
            return given
        if name == "select" and type(rest[1]) is int:
            return slices(given, self.dim(node, rest[0]))[rest[1]]
        if name == "slice" and all(type(part) is int or part is None for part in rest):
            axis = self.dim(node, rest[0] if rest else 0)
            return given[(*(slice(None),) * axis, slice(*(*rest[1:], None, None)[:3]))]
        (out,) = node.outs
        assert out is not None
        meta, before = self.graph.metas[out], self.graph.metas[node.args[0].value]
        if rows_of(meta) != rows_of(before):
            raise Whole
        if name in ("view", "_unsafe_view", "unsqueeze", "squeeze"):
            return given.reshape(event_of(meta))
        if name == "expand":
            return np.broadcast_to(given, event_of(meta))
        raise Whole

    def joined(self, name: str, node: Node) -> Any:
        refs, dim = node.args[0], node.args[1] if len(node.args) > 1 else 0
        metas = [self.graph.metas[ref.value] for ref in refs]
        arrays = [self.env[ref.value] for ref in refs]
        dtypes = {meta.dtype for meta in metas}
        axis = dim % (len(metas[0].shape) + (name == "stack")) - 1
        if axis < 0 or len(dtypes) > 1 or not all(map(rows_of, metas)):
            raise Whole
        return np.stack(arrays, axis) if name == "stack" else np.concatenate(arrays, axis)

    def reduced(self, name: str, node: Node) -> Any:
        given, *rest = node.args
        array = self.env[given.value]
        if name == "linalg_vector_norm" and (rest[0] != 2 or len(rest) < 2):
            raise Whole
        rest = rest[1:] if name == "linalg_vector_norm" else rest
        dims = [rest[0]] if type(rest[0]) is int else list(rest[0])
        axes = sorted((self.dim(node, dim) for dim in dims), reverse=True)
        keep = len(rest) > 1 and rest[1] is True
        if node.kwargs or len(rest) > 2:
            raise Whole
        if name == "linalg_vector_norm":
            array = self.mapped(torch.square, array)
        total = math.prod(array.shape[axis] for axis in axes)
        for axis in axes:
            fold = FOLDS.get(name, torch.add)
            array = reduce(lambda a, b, fold=fold: self.mapped(fold, a, b), slices(array, axis))  # type: ignore[misc]
            if keep:
                array = np.expand_dims(array, axis)
        if name == "mean":
            return self.mapped(lambda x: x / total, array)
        return self.mapped(torch.sqrt, array) if name == "linalg_vector_norm" else array

    def each(self, node: Node) -> Any:
        """An operation for each element."""
        refs = list(dict.fromkeys(node.reads()))
        (out,) = node.outs
        assert out is not None
        for ref in refs:
            meta = self.graph.metas[ref]
            if not rows_of(meta) and len(meta.shape) >= max(len(self.graph.metas[out].shape), 1):
                raise Whole
        arrays = [self.env[ref] for ref in refs]

        def one(*values: Any) -> Tensor:
            known = dict(zip(refs, values, strict=True))

            def given(argument: Any) -> Any:
                if isinstance(argument, Ref):
                    return known[argument.value]
                if isinstance(argument, Symbol):
                    return self.env[argument.position][()].tensor
                if isinstance(argument, (Count, list, tuple)):
                    raise Whole
                return argument

            args = [given(arg) for arg in node.args]
            kwargs = {name: given(arg) for name, arg in node.kwargs.items()}
            made: Tensor = node.op.overloadpacket(*args, **kwargs)
            return made

        return self.mapped(one, *arrays)

    def mapped(self, function: Callable[..., Tensor], *arrays: Any) -> Any:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        made: Any = np.empty(shape, dtype=object)
        spread: list[Any] = [np.broadcast_to(array, shape) for array in arrays]
        for place in np.ndindex(shape):
            made[place] = One(function(*(array[place].tensor for array in spread)))
        return made

    def result(self, value: int, k: Any) -> Tensor:
        """A value in one tensor."""
        array = self.env[value]
        meta = self.graph.metas[value]
        flat = [each.tensor.expand(k) if rows_of(meta) else each.tensor for each in array.flat]
        if array.shape == ():
            return flat[0]  # type: ignore[no-any-return]
        return torch.stack(flat, -1).reshape((*flat[0].shape, *array.shape))
