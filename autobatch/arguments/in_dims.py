"""Which arguments are mapped: as ``in_dims`` says, for ``vmap``; by their kind, for ``.batch``.

In: the caller's arguments. Out: a ``Batch``. What holds nothing that is mapped stays the caller's
own object.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils import _pytree as pytree

from autobatch import firsthand, structure
from autobatch.arguments.batch import Batch
from autobatch.arguments.batch_size import Sizes, is_leaf, leaf_titles, titles
from autobatch.arguments.mapped import Mapped, has_mapped, objects
from autobatch.errors import OptionError
from autobatch.ragged import ragged
from autobatch.runs.entry import name_of
from autobatch.values.numbers import fits_tensor, is_numpy_number

PYTHONS = frozenset((int, float, bool, complex))


def mapped_by_dims(
    args: tuple[Any, ...], kwargs: dict[str, Any], in_dims: Any, function: Any
) -> Batch:
    """Arguments as ``torch.vmap`` maps them: ``in_dims`` for ``args``, ``kwargs`` are shared."""
    plain = None if kwargs else mapped_tensors(args, in_dims)
    if plain is not None:
        return plain
    name = name_of(function)
    if isinstance(in_dims, list):
        in_dims = tuple(in_dims)
    if not isinstance(in_dims, int | tuple):
        raise OptionError(
            f"in_dims is {in_dims!r}; it must be an int or a tuple, "
            f"one entry per argument of {name}."
        )
    if not args and not kwargs:
        raise OptionError(f"{name} is mapped over no arguments; pass at least one.")
    if isinstance(in_dims, tuple) and len(in_dims) != len(args):
        number = (
            "one positional argument"
            if len(args) == 1
            else f"{len(args) or 'no'} positional arguments"
        )
        entries = "one entry" if len(in_dims) == 1 else f"{len(in_dims)} entries"
        raise OptionError(
            f"in_dims has {entries}, but {name} gets {number}{': ' if args else ''}"
            f"{', '.join(titles(function, args, {}))}. It has one for each of them; keyword "
            "arguments have none, as all examples share them."
        )
    looked_at = args if isinstance(in_dims, int) else tuple(map(looked_into, args, in_dims))
    seen = {name: arg if holds_mapped(arg) else Whole(arg) for name, arg in kwargs.items()}
    sizes = Sizes(name, lambda: leaf_titles(function, looked_at, seen))
    wholes = whole_records(looked_at, in_dims)

    def is_whole(part: Any) -> bool:
        return is_leaf(part) or id(part) in wholes

    flat, spec = structure.flattened(looked_at, is_whole)
    dims = structure.spread(in_dims, spec, is_leaf)
    if dims is None:
        raise OptionError(
            f"in_dims={in_dims!r} does not fit the arguments of {name}: "
            f"their structure is {pytree.treespec_pprint(spec)}."
        )
    leaves = [sizes.mapped(leaf, dim, "in_dims") for leaf, dim in zip(flat, dims, strict=True)]
    named, kwspec = pytree.tree_flatten(seen, is_leaf=is_leaf)
    named = [sizes.mapped(x, 0 if says_mapped(x) else None, "in_dims") for x in named]
    return Batch(
        tuple(map(as_given, structure.unflattened(leaves, spec), args)),
        {
            name: as_given(made, kwargs[name])
            for name, made in pytree.tree_unflatten(named, kwspec).items()
        },
        sizes.common([*map(unwrapped, flat), *map(unwrapped, named)]),
        function,
    )


class Whole:
    """An argument that all threads share, as a leaf: it may hold any amount of data."""

    __slots__ = ("arg",)

    def __init__(self, arg: Any) -> None:
        self.arg = arg


def looked_into(arg: Any, dim: Any) -> Any:
    """An argument, as far as its entry in ``in_dims`` has anything to say of what is in it."""
    return Whole(arg) if dim is None else arg


def says_mapped(leaf: Any) -> bool:
    """Whether a keyword argument is mapped: it is one object, or one length, for each thread."""
    return isinstance(leaf, objects | ragged)


def holds_mapped(arg: Any) -> bool:
    return any(map(says_mapped, structure.leaves(arg, is_leaf)))


def unwrapped(leaf: Any) -> Any:
    return leaf.arg if type(leaf) is Whole else leaf


def as_given(made: Any, arg: Any) -> Any:
    """An argument of which nothing is mapped is the caller's own, not one made of its leaves."""
    return made if has_mapped(made) else arg


def whole_records(args: Any, dims: Any) -> set[int]:
    """The records among the arguments that ``dims`` leave alone, by ``id``: nothing looks inside.

    Where ``dims`` do not fit the arguments is not for this to say.
    """
    if dims is None:
        return {id(args)} if structure.is_record(args) else set()
    form, other = structure.form_of(args), structure.form_of(dims)
    if form is None or other is None or (form.kind is dict and not form.fits(dims)):
        return set()
    pairs = zip(form.parts(args), other.parts(dims), strict=False)
    return set().union(*(whole_records(arg, dim) for arg, dim in pairs))


def mapped_tensors(args: tuple[Any, ...], in_dims: Any) -> Batch | None:
    """The commonest call: a dimension of each of some tensors; None if it is not as plain."""
    dims = in_dims if type(in_dims) is tuple else (in_dims,) * len(args)
    if len(dims) != len(args):
        return None
    leaves: list[Mapped] = []
    size = None
    for arg, dim in zip(args, dims, strict=True):
        if type(arg) is not Tensor or type(dim) is not int or arg.is_nested:
            return None
        if not 0 <= dim < len(arg.shape) or arg.shape[dim] != (size if leaves else arg.shape[dim]):
            return None
        size = arg.shape[dim]
        leaves.append(Mapped(firsthand.movedim(arg, dim, 0) if dim else arg))
    return None if size is None else Batch(tuple(leaves), {}, size)


def mapped_by_kind(args: tuple[Any, ...], kwargs: dict[str, Any], function: Any) -> Batch:
    """Arguments as ``.batch`` maps them: tensors, arrays, lists of numbers, wrapped ones.

    A list without any is one of no numbers where nothing that is mapped has an example.
    """
    sizes = Sizes(name_of(function), lambda: titles(function, args, kwargs))

    def mapped(arg: Any) -> Any:
        if is_numbers(arg):
            arg = numbers_of(arg)
        if is_mappable(arg):
            return sizes.mapped(arg, 0, "the arguments")
        if any(map(is_mappable, structure.leaves(arg, is_leaf))):
            made = structure.mapped(
                lambda leaf: sizes.mapped(leaf, 0, "the arguments") if is_mappable(leaf) else leaf,
                arg,
                is_leaf,
            )
            return as_given(made, arg)
        return arg

    given = (*args, *kwargs.values())
    found = []
    for place, arg in enumerate(given):
        sizes.place = place
        found.append(mapped(arg))
    if not any(size for _, size in sizes.found):
        for place, arg in enumerate(given):
            if type(arg) in (list, tuple) and not arg:
                sizes.place = place
                found[place] = sizes.mapped(numbers_of(arg), 0, "the arguments")
    named = dict(zip(kwargs, found[len(args) :], strict=True))
    return Batch(tuple(found[: len(args)]), named, sizes.common(given), function)


def is_mappable(arg: Any) -> bool:
    return isinstance(arg, Tensor | np.ndarray | objects | ragged) or structure.is_collection(arg)


def is_numbers(arg: Any) -> bool:
    """Whether it is a list of Python's numbers, or of numpy's, as ``list(array)`` is one."""
    return (
        type(arg) in (list, tuple)
        and bool(arg)
        and all(type(item) in PYTHONS or is_numpy_number(item) for item in arg)
    )


def numbers_of(items: Sequence[Any]) -> np.ndarray | objects:
    """A list of numbers as an array; with ints that do not fit int64, as Python's numbers."""
    if all(map(fits_tensor, items)):
        return np.asarray(items)
    return objects(items)
