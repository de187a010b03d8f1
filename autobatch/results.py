"""From the threads' results to what the caller gets.

Numbers and tensors stack along a new dimension 0, structures are those of one example with
stacked leaves, anything else is a list of B. Structures that differ between threads are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from autobatch.errors import Diagnostic, OptionError, StackingError
from autobatch.source import Span
from autobatch.vm.values import (
    NUMBER_DTYPES,
    NUMBER_TAGS,
    Cell,
    Column,
    Container,
    Uniform,
    fits_column,
    is_number,
    read,
)


def stacked_cell(
    cell: Cell, k: int, device: torch.device, rows: Callable[[Cell], list[Any]]
) -> Any:
    """The result for the threads of one group; ``rows`` gives a cell's real values."""
    value = read(cell)
    match value:
        case Column(data=data):
            return data
        case Uniform(obj=obj):
            if isinstance(obj, Tensor):
                return obj.expand(k, *obj.shape)
            if fits_column(obj):
                dtype = NUMBER_DTYPES[NUMBER_TAGS[type(obj)]]
                return torch.full((k,), obj, dtype=dtype, device=device)
            if not is_structure(obj):
                return Batchless([obj] * k)
        case Container(type=kind) if kind is list or is_tuple_type(kind):
            parts = [stacked_cell(child, k, device, rows) for child in value.children()]
            return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
        case Container(type=kind, cells=cells) if kind is dict and isinstance(cells, dict):
            return {key: stacked_cell(c, k, device, rows) for key, c in cells.items()}
    return stacked_rows(rows(cell), device)


def is_tuple_type(kind: Any) -> bool:
    """Tuples, named tuples and ``torch.return_types``; a shape is one object."""
    return isinstance(kind, type) and issubclass(kind, tuple) and kind is not torch.Size


def is_structure(obj: Any) -> bool:
    return type(obj) in (list, dict) or is_tuple_type(type(obj))


def stacked_rows(
    items: Sequence[Any], device: torch.device, spans: Sequence[Span | None] = ()
) -> Any:
    """The result for one real value per thread."""
    first: Any = items[0] if items else None
    if any(isinstance(item, Tensor) or is_number(item) for item in items):
        return stacked_leaves(items, device)
    if not is_structure(first):
        if any(is_structure(item) for item in items):
            raise mixed(items)
        return Batchless(items)
    spec = outline(first)
    for item in items:
        if outline(item) != spec:
            raise mixed(items)
    if isinstance(first, dict):
        return {key: stacked_rows([item[key] for item in items], device, spans) for key in first}
    parts = [stacked_rows(list(part), device, spans) for part in zip(*items, strict=True)]
    return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)


def outline(item: Any) -> Any:
    """The top of a structure: what must agree for results to stack."""
    if isinstance(item, dict):
        return (dict, tuple(item))
    if is_structure(item):
        return (type(item), len(item))
    return None


def stacked_leaves(items: Sequence[Any], device: torch.device) -> Any:
    if all(type(item) is int for item in items) and not all(map(fits_column, items)):
        return Batchless(items)
    if all(is_number(item) for item in items):
        kinds = {type(item) for item in items}
        if kinds == {int, float} and not all(map(fits_column, items)):
            return Batchless(items)
        tensors = [torch.tensor(item, dtype=number_dtype(item), device=device) for item in items]
    elif all(isinstance(item, Tensor) or fits_column(item) for item in items):
        tensors = [
            item if isinstance(item, Tensor) else torch.as_tensor(item, device=device)
            for item in items
        ]
    else:
        raise mixed(items)
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) > 1:
        raise StackingError(
            Diagnostic(
                "Threads return tensors of different shapes.",
                notes=(f"the shapes are {', '.join(map(str, sorted(shapes)))}.",),
                hints=("pad the results to one shape, or return a Python object of your own.",),
                code="ragged-result",
            )
        )
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return torch.stack([tensor.to(dtype) for tensor in tensors])


def number_dtype(item: Any) -> torch.dtype:
    return NUMBER_DTYPES[NUMBER_TAGS[type(item)]]


def describe(item: Any) -> str:
    if isinstance(item, Tensor):
        return f"a tensor of shape {tuple(item.shape)}"
    if type(item) is tuple:
        return f"a tuple of {len(item)}"
    if type(item) is list:
        return f"a list of {len(item)}"
    if type(item) is dict:
        return f"a dict with the keys {', '.join(map(repr, item))}"
    return "None" if item is None else f"a {type(item).__name__}"


def mixed(items: Sequence[Any]) -> StackingError:
    found: dict[str, int] = {}
    for index, item in enumerate(items):
        found.setdefault(describe(item), index)
    listed = [f"thread {index} returns {what}" for what, index in list(found.items())[:4]]
    return StackingError(
        Diagnostic(
            "Threads return different structures.",
            notes=("; ".join(listed) + "; results of a batch must stack.",),
            hints=("return the same structure on every path.",),
            code="mixed-results",
        )
    )


def plain(result: Any) -> Any:
    """The result with its lists of B as ordinary lists."""
    return pytree.tree_map(lambda leaf: list(leaf) if isinstance(leaf, Batchless) else leaf, result)


class Batchless(list[Any]):
    """A list of B results that do not stack."""


def moved(result: Any, out_dims: Any, name: str) -> Any:
    """The batch dimension of the result's tensors where ``out_dims`` wants it."""
    if out_dims == 0:
        return result
    flat, spec = pytree.tree_flatten(result)
    if isinstance(out_dims, int) or out_dims is None:
        dims: list[int | None] | None = [out_dims] * len(flat)
    else:
        dims = pytree._broadcast_to_and_flatten(out_dims, spec)
    if dims is None:
        raise OptionError(f"out_dims={out_dims!r} does not fit the result of {name}.")
    leaves = [move(leaf, dim, name) for leaf, dim in zip(flat, dims, strict=True)]
    return pytree.tree_unflatten(leaves, spec)


def move(leaf: Any, dim: int | None, name: str) -> Any:
    if not isinstance(leaf, Tensor) or dim == 0:
        return leaf
    if dim is None:
        raise OptionError(f"out_dims is None for a result of {name} that differs by thread.")
    if not -leaf.dim() <= dim < leaf.dim():
        shape = tuple(leaf.shape)
        raise OptionError(f"out_dims has dimension {dim} for a result of shape {shape}.")
    return leaf.movedim(0, dim)
