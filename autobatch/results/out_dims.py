"""Where the batch dimension goes in each result: ``out_dims``, as in ``torch.vmap``.

In: a stacked result, and what each group of threads has returned. Out: the result with its
tensors' batch dimension moved; for None, the value itself, which must be the same for all threads.

What is the same is decided by kind, not by chance: a column is computed for each thread, whatever
it holds. Groups and chunks that did not meet may each have made the value: then its bits count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from autobatch import firsthand
from autobatch.errors import OptionError
from autobatch.results.own_lists import is_made
from autobatch.results.stacking import form_of_container
from autobatch.structure import (
    flattened,
    flattened_with_path,
    form_of,
    is_collection,
    spread,
    unflattened,
)
from autobatch.values.cells import Cell, Column, Container, Objects, Uniform, read
from autobatch.values.heap.likeness import identity


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Same:
    """A leaf that is one object for all threads of a group."""

    obj: Any


def is_same(part: Any) -> bool:
    return isinstance(part, Same)


VARIES = object()
"""A part that differs by thread."""


def moved(result: Any, out_dims: Any, name: str, groups: Callable[[], list[Any]]) -> Any:
    """The result as ``out_dims`` wants it; ``groups`` gives a tree of ``Same`` for each group."""
    if out_dims == 0:
        return result
    flat, spec = flattened(result)
    dims = dims_of(out_dims, spec)
    if dims is None:
        raise OptionError(
            f"out_dims={out_dims!r} does not fit the result of {name}, "
            f"whose structure is {pytree.treespec_pprint(spec)}."
        )
    if None in dims:
        columns = list(zip(*(beneath(tree, result) for tree in groups()), strict=True))
    leaves = []
    for place, (leaf, dim) in enumerate(zip(flat, dims, strict=True)):
        if dim is not None:
            leaves.append(move(leaf, dim))
        elif (same := agreed(columns[place])) is not None:
            leaves.append(same.obj)
        else:
            raise OptionError(refusal(place, spec, name))
    return unflattened(leaves, spec)


def dims_of(out_dims: Any, spec: pytree.TreeSpec) -> list[int | None] | None:
    """One dimension for each leaf of the result; None if they do not fit it."""
    if spec.is_leaf() and isinstance(out_dims, tuple | list) and len(out_dims) == 1:
        (out_dims,) = out_dims
    if isinstance(out_dims, int) or out_dims is None:
        return [out_dims] * spec.num_leaves
    return spread(out_dims, spec)


def move(leaf: Any, dim: int) -> Any:
    if is_collection(leaf) and dim != 0:
        return firsthand.stack(leaf.unbind(0), dim)
    if not isinstance(leaf, Tensor) or dim == 0:
        return leaf
    check(dim, tuple(leaf.shape))
    return firsthand.movedim(leaf, 0, dim)


def check(dim: int, shape: tuple[int, ...]) -> None:
    """Refuse a dimension that a stacked result has not."""
    if not -len(shape) <= dim < len(shape):
        raise OptionError(f"out_dims has dimension {dim} for a result of shape {shape}.")


def refusal(place: int, spec: pytree.TreeSpec, name: str) -> str:
    numbered = unflattened(range(spec.num_leaves), spec)
    path, _ = flattened_with_path(numbered)[place]
    return (
        f"out_dims is None for the result{pytree.keystr(path)} of {name}, which differs by "
        "thread; None is for what is the same for all threads: give it a dimension."
    )


# What is the same for all threads.


def beneath(tree: Any, result: Any) -> Iterator[Any]:
    """Of a group's tree what is at each leaf of the result: ``VARIES`` where it does not fit."""
    form = None if is_collection(result) else form_of(result)
    if form is None:
        yield tree
        return
    inner = form.parts(tree) if form.fits(tree) else [VARIES] * len(form.keys)
    for own, part in zip(inner, form.parts(result), strict=True):
        yield from beneath(own, part)


def agreed(trees: Sequence[Any]) -> Same | None:
    """What all groups have at a leaf, if that is the same; it may be a list (``own_lists``)."""
    found = [flattened(tree, is_same) for tree in trees]
    leaves, spec = found[0]
    if any(spec != other for _, other in found) or not all(
        agree(same) for same in zip(*(own for own, _ in found), strict=True)
    ):
        return None
    return Same(unflattened([leaf.obj for leaf in leaves], spec))


def same_cell(cell: Cell) -> Any:
    """A group's result as a tree of ``Same``, with ``VARIES`` for what differs by thread."""
    value = read(cell)
    match value:
        case Uniform(obj=obj):
            return same_object(obj)
        case Column():
            return VARIES
        case Objects(items=items):
            return same_rows(items)
        case Container(type=kind) if is_made(kind):
            return form_of_container(value).made(map(same_cell, value.children()))
    return VARIES


def same_object(obj: Any) -> Any:
    form = form_of(obj)
    return Same(obj) if form is None else form.made(map(same_object, form.parts(obj)))


def same_rows(items: Sequence[Any]) -> Any:
    """Of one object for each thread, those parts that are the same for all."""
    form = form_of(items[0]) if items else None
    if form is None:
        same = [Same(item) for item in items]
        return same[0] if same and agree(same) else VARIES
    if not all(map(form.fits, items)):
        return VARIES
    return form.made(map(same_rows, zip(*map(form.parts, items), strict=True)))


def agree(leaves: Sequence[Any]) -> bool:
    """Whether all groups have the same value for a leaf."""
    if not all(isinstance(leaf, Same) for leaf in leaves):
        return False
    first = leaves[0].obj
    return all(same_value(first, leaf.obj) for leaf in leaves)


def same_value(one: Any, other: Any) -> bool:
    """One object, or the same bits."""
    if one is other:
        return True
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return same_bits(one, other)
    return identity(one) == identity(other)


def same_bits(one: Tensor, other: Tensor) -> bool:
    if (one.dtype, one.shape, one.device) != (other.dtype, other.shape, other.device):
        return False
    return firsthand.equal(bits(one), bits(other))


def bits(tensor: Tensor) -> Tensor:
    tensor = firsthand.detach(tensor)
    if tensor.layout is not torch.strided:
        return tensor
    flat = firsthand.contiguous(firsthand.reshape(tensor, -1))
    return cast(Tensor, firsthand.view(flat, torch.uint8))
