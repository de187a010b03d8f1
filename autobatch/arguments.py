"""From the caller's batch to the cells of the threads' arguments.

``Batch`` is a call's arguments with what differs by thread told apart: leaves that are mapped
(a tensor with its batch dimension, or ``objects``) and leaves that are the same for all threads.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from autobatch import structure
from autobatch.batching.calls import is_plain_class
from autobatch.entry import name_of
from autobatch.errors import OptionError
from autobatch.ragged import Packed, ragged
from autobatch.vm.values import Cell, Column, Container, Objects, Uniform, fits_column


class objects:
    """One Python object for each thread: ``f.batch(autobatch.objects(trees))``.

    Args:
        items: a sequence of B objects (trees, strings, dicts).
    """

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"autobatch.objects({self.items!r})"


@dataclass(frozen=True, slots=True)
class Mapped:
    """A leaf that differs by thread: a tensor ``[B, *E]``, B objects, or tensors of B lengths."""

    data: Tensor | list[Any] | Packed

    def __len__(self) -> int:
        return len(self.data)

    def chunk(self, start: int, stop: int) -> Mapped:
        return Mapped(self.data[start:stop])

    def rows(self, index: np.ndarray) -> Mapped:
        """The rows of some threads; of a tensor, or of objects."""
        if isinstance(self.data, list):
            return Mapped([self.data[at] for at in index])
        assert isinstance(self.data, Tensor)
        return Mapped(self.data[torch.from_numpy(index)])


@dataclass(frozen=True, slots=True)
class Batch:
    """Arguments as trees whose mapped leaves are ``Mapped``; ``size`` is B."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    size: int

    def chunk(self, start: int, stop: int) -> Batch:
        if stop - start == self.size:
            return self

        def cut(leaf: Any) -> Any:
            return leaf.chunk(start, stop) if isinstance(leaf, Mapped) else leaf

        args, kwargs = tree_map(cut, (self.args, self.kwargs))
        return Batch(args, kwargs, stop - start)

    def rows(self, index: np.ndarray) -> Batch:
        """The arguments of some threads; all that is mapped are tensors or objects."""

        def pick(leaf: Any) -> Any:
            return leaf.rows(index) if isinstance(leaf, Mapped) else leaf

        args, kwargs = tree_map(pick, (self.args, self.kwargs))
        return Batch(args, kwargs, len(index))

    def device(self) -> torch.device:
        """Where the numbers of the threads are to live: with the first mapped tensor."""
        for arg in self.args:
            if type(arg) is not Mapped:
                break
            if isinstance(arg.data, Tensor):  # the commonest call: no tree to look through
                return arg.data.device
        for leaf in tree_leaves((self.args, self.kwargs)):
            if isinstance(leaf, Mapped) and isinstance(leaf.data, Tensor | Packed):
                return leaf.data.device
        for leaf in tree_leaves((self.args, self.kwargs)):
            if isinstance(leaf, Tensor):
                return leaf.device
        return torch.get_default_device()

    def cells(self, scalars: str) -> tuple[list[Cell], dict[str, Cell]]:
        """The threads' arguments, private to them."""
        memo: dict[int, Cell] = {}
        args = [cell_of(arg, scalars, memo) for arg in self.args]
        return args, {name: cell_of(arg, scalars, memo) for name, arg in self.kwargs.items()}

    def shared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """What of one thread's arguments may be the caller's; see ``row``."""
        pairs = [*zip(self.args, args, strict=True)]
        pairs += [(self.kwargs[name], value) for name, value in kwargs.items()]
        return tuple(part for pair in pairs for part in shared_parts(*pair))

    def row(
        self, index: int, scalars: str, copies: bool = True
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """One thread's arguments as real Python values, private copies.

        Without ``copies``, only rows of tensors are; all else is the caller's own.
        """
        args = tuple(tree_row(arg, index, scalars, copies) for arg in self.args)
        kwargs = {name: tree_row(arg, index, scalars, copies) for name, arg in self.kwargs.items()}
        return args, kwargs


def shared_parts(tree: Any, row: Any) -> Iterator[Any]:
    """What of one thread's argument may be the caller's: all but records of mapped leaves."""
    form = structure.form_of(tree) if has_mapped(tree) and not is_mapped(tree) else None
    if form is None:
        yield row
        return
    for part, own in zip(form.parts(tree), form.parts(row), strict=True):
        yield from shared_parts(part, own)


def is_of_tensors(batch: Batch) -> bool:
    """Whether all that differs by thread are tensors."""
    if not batch.kwargs and all(type(arg) is Mapped for arg in batch.args):
        return all(isinstance(arg.data, Tensor) for arg in batch.args)
    leaves = tree_leaves((batch.args, batch.kwargs))
    return all(isinstance(leaf.data, Tensor) for leaf in leaves if type(leaf) is Mapped)


def is_of_objects(batch: Batch) -> bool:
    """Whether what differs by thread are Python objects, not tensors or numbers."""
    mapped = [leaf for leaf in tree_leaves((batch.args, batch.kwargs)) if isinstance(leaf, Mapped)]
    return not any(isinstance(leaf.data, Tensor) for leaf in mapped)


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """A tree of arguments; what all threads share is the caller's own, records as they are."""

    def is_leaf(part: Any) -> bool:
        return is_mapped(part) or (structure.is_record(part) and not has_mapped(part))

    return structure.mapped(function, tree, is_leaf)


def tree_row(tree: Any, index: int, scalars: str, copies: bool = True) -> Any:
    """One thread's tree of real Python values, private copies; see ``Batch.row``."""

    def pick(leaf: Any) -> Any:
        if not isinstance(leaf, Mapped):
            return leaf.clone() if copies and isinstance(leaf, Tensor) else leaf
        item = leaf.data[index]
        if isinstance(item, Tensor) and (copies or not isinstance(leaf.data, list)):
            return row_of(item, scalars)
        return private(item) if copies else item

    return tree_map(pick, tree) if copies or has_mapped(tree) else tree


def has_mapped(tree: Any) -> bool:
    """Whether any of it differs by thread."""
    return any(isinstance(leaf, Mapped) for leaf in tree_leaves(tree))


def row_of(item: Tensor, scalars: str) -> Any:
    """One thread's row: a private, contiguous copy, or a number if ``scalars`` says so."""
    number = scalars == "python" and item.dim() == 0 and not item.is_complex()
    return item.item() if number else item.clone(memory_format=torch.contiguous_format)


def tree_leaves(tree: Any) -> Iterator[Any]:
    return structure.leaves(tree, is_mapped)


def is_mapped(leaf: Any) -> bool:
    return isinstance(leaf, Mapped)


COPIED = (list, dict, set, tuple, OrderedDict, defaultdict, deque)


def private(item: Any) -> Any:
    """An object of a thread's own: its containers and tensors copied, other objects as they are."""
    return private_part(item, {})


def private_part(part: Any, memo: dict[int, Any]) -> Any:
    is_tensors = isinstance(part, Tensor) or structure.is_collection(part)
    if type(part) not in COPIED and not is_tensors:
        return part
    made: Any = memo.get(id(part))
    if made is not None:
        return made
    if is_tensors:
        memo[id(part)] = made = part.clone()
    elif isinstance(part, list | deque):
        made = memo[id(part)] = deque(maxlen=part.maxlen) if isinstance(part, deque) else []
        made.extend(private_part(entry, memo) for entry in part)
    elif isinstance(part, dict):
        made = memo[id(part)] = type(part)()
        if isinstance(part, defaultdict):
            made.default_factory = part.default_factory
        made.update((key, private_part(entry, memo)) for key, entry in part.items())
    elif type(part) is set:
        made = memo[id(part)] = set(part)
    else:
        made = tuple(private_part(entry, memo) for entry in part)
    return made


def cell_of(arg: Any, scalars: str, memo: dict[int, Cell]) -> Cell:
    """A cell for an argument: its pytree containers become the program's own."""
    if isinstance(arg, Mapped):
        if isinstance(arg.data, list):
            return Cell(Objects([private(item) for item in arg.data]))
        if isinstance(arg.data, Packed):
            return arg.data.cell()
        return column_of(arg.data, scalars)
    known = memo.get(id(arg))
    if known is not None:
        return known
    cell = memo[id(arg)] = Cell(Uniform(arg))
    kind = type(arg)
    if kind is list:
        cell.value = Container(kind, [cell_of(item, scalars, memo) for item in arg])
    elif kind is dict:
        parts = {key: cell_of(item, scalars, memo) for key, item in arg.items()}
        cell.value = Container(dict, parts)
    elif isinstance(arg, tuple) and not isinstance(arg, torch.Size):
        cell.value = Container(kind, [cell_of(item, scalars, memo) for item in arg])
    elif structure.is_record(arg) and is_plain_class(kind) and has_mapped(arg):
        parts = {
            name: cell_of(getattr(arg, name), scalars, memo) for name in structure.attributes(arg)
        }
        cell.value = Container(kind, parts)
    elif not isinstance(arg, Tensor):
        cell.value = rows_of(arg, scalars) or Uniform(arg, shared=True)
    return cell


def rows_of(arg: Any, scalars: str) -> Objects | None:
    """Other pytree containers (``OrderedDict``, ``deque``): one real object for each thread."""
    mapped = [leaf for leaf in tree_leaves(arg) if isinstance(leaf, Mapped)]
    if not mapped:
        return None
    return Objects([tree_row(arg, index, scalars) for index in range(len(mapped[0]))])


def column_of(data: Tensor, scalars: str) -> Cell:
    """A mapped tensor ``[B, *E]``; rows without dimensions may be numbers, as ``scalars`` says.

    A row is a contiguous copy, whatever the layout of the whole.
    """
    if data.dim() > 1 and data.layout is torch.strided:
        data = data.contiguous()
    if scalars == "tensor" or data.dim() > 1 or data.is_complex():
        return Cell(Column(data))
    if data.dtype is torch.bool:
        return Cell(Column(data, "bool"))
    if data.dtype.is_floating_point:
        return Cell(Column(data.to(torch.float64), "float"))
    return Cell(Column(data.to(torch.int64), "int"))


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
        raise OptionError(
            f"in_dims has {len(in_dims)} entries, but {name} gets {len(args)} positional arguments."
        )
    sizes = Sizes(name, lambda: leaf_titles(function, args, kwargs))
    wholes = whole_records(args, in_dims)

    def is_whole(part: Any) -> bool:
        return is_leaf(part) or id(part) in wholes

    flat, spec = structure.flattened(args, is_whole)
    dims = structure.spread(in_dims, spec, is_leaf)
    if dims is None:
        raise OptionError(
            f"in_dims={in_dims!r} does not fit the arguments of {name}: "
            f"their structure is {pytree.treespec_pprint(spec)}."
        )
    leaves = [sizes.mapped(leaf, dim, "in_dims") for leaf, dim in zip(flat, dims, strict=True)]
    named, kwspec = pytree.tree_flatten(kwargs, is_leaf=is_leaf)
    named = [
        sizes.mapped(x, 0 if isinstance(x, objects | ragged) else None, "in_dims") for x in named
    ]
    return Batch(
        tuple(map(as_given, structure.unflattened(leaves, spec), args)),
        {
            name: as_given(made, kwargs[name])
            for name, made in pytree.tree_unflatten(named, kwspec).items()
        },
        sizes.common(),
    )


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
        if not 0 <= dim < arg.dim() or arg.shape[dim] != (size if leaves else arg.shape[dim]):
            return None
        size = arg.shape[dim]
        leaves.append(Mapped(arg.movedim(dim, 0) if dim else arg))
    return None if size is None else Batch(tuple(leaves), {}, size)


def mapped_by_kind(args: tuple[Any, ...], kwargs: dict[str, Any], function: Any) -> Batch:
    """Arguments as ``.batch`` maps them: tensors, arrays, lists of numbers, wrapped ones."""
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

    found = []
    for place, arg in enumerate((*args, *kwargs.values())):
        sizes.place = place
        found.append(mapped(arg))
    named = dict(zip(kwargs, found[len(args) :], strict=True))
    return Batch(tuple(found[: len(args)]), named, sizes.common())


def titles(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """How messages call the arguments."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        found = ()  # type: ignore[assignment]
    known = [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    own = [repr(name) for name in known[: len(args)]]
    own += [f"number {place + 1}" for place in range(len(own), len(args))]
    return [*own, *map(repr, kwargs)]


def leaf_titles(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """How messages call the leaves of the arguments: ``'x'``, or ``'x'[0]``."""
    own = iter(titles(function, args, kwargs))
    found: list[str] = []
    for title, arg in zip(own, (*args, *kwargs.values()), strict=True):
        leaves = structure.flattened_with_path(arg, is_leaf)
        found += [title + pytree.keystr(path) for path, _ in leaves]
    return found


def is_leaf(value: Any) -> bool:
    return isinstance(value, objects | ragged | np.ndarray)


def is_mappable(arg: Any) -> bool:
    return isinstance(arg, Tensor | np.ndarray | objects | ragged) or structure.is_collection(arg)


def is_numbers(arg: Any) -> bool:
    return (
        type(arg) in (list, tuple)
        and bool(arg)
        and all(type(item) in (int, float, bool) for item in arg)
    )


def numbers_of(items: Sequence[Any]) -> np.ndarray | objects:
    """A list of numbers as an array; with ints that do not fit int64, as Python's numbers."""
    if all(map(fits_column, items)):
        return np.asarray(items)
    return objects(items)


def tensor_of(array: np.ndarray) -> Tensor:
    """An array as a tensor; arrays that torch cannot share memory with are copied."""
    backwards = any(stride < 0 for stride in array.strides)
    return torch.as_tensor(array.copy() if backwards or not array.flags.writeable else array)


@dataclass(slots=True, eq=False)
class Sizes:
    """Collects the batch sizes of mapped leaves and holds them to one.

    ``place`` is where among the arguments the next leaf stands, ``titles`` gives their names.
    """

    name: str
    titles: Callable[[], list[str]]
    found: list[tuple[int, int]] = field(default_factory=list)
    place: int | None = None
    seen: int = -1

    def mapped(self, leaf: Any, dim: Any, option: str) -> Any:
        self.seen += 1
        if dim is None:
            return leaf
        if isinstance(leaf, objects):
            self.add(len(leaf))
            return Mapped(leaf.items)
        if isinstance(leaf, Tensor) and leaf.is_nested:
            leaf = ragged(leaf)
        if isinstance(leaf, ragged):
            return self.packed(leaf, dim, option)
        if isinstance(leaf, np.ndarray):
            leaf = tensor_of(leaf)
        if structure.is_collection(leaf):
            return self.unbound(leaf, dim, option)
        if not isinstance(leaf, Tensor):
            raise OptionError(
                f"{option} maps the argument {self.title()} of {self.name}, "
                f"of type {type(leaf).__name__}, which is no tensor; "
                "use None for it, or wrap a sequence in autobatch.objects(...)."
            )
        self.check(leaf, dim, option)
        data = leaf.movedim(dim, 0)
        self.add(data.shape[0])
        return Mapped(data)

    def check(self, leaf: Any, dim: Any, option: str) -> None:
        if type(dim) is not int or not -leaf.dim() <= dim < leaf.dim():
            raise OptionError(
                f"{option} has dimension {dim} for the argument {self.title()} of {self.name}, "
                f"of shape {tuple(leaf.shape)}."
            )

    def unbound(self, leaf: Any, dim: Any, option: str) -> Mapped:
        """A ``TensorDict`` or the like: one for each thread, its batch dimension less."""
        self.check(leaf, dim, option)
        self.add(leaf.shape[dim])
        return Mapped(list(leaf.unbind(dim)))

    def packed(self, leaf: ragged, dim: Any, option: str) -> Mapped:
        if dim != 0:
            raise OptionError(
                f"{option} has dimension {dim} for the argument {self.title()} of {self.name}, "
                "which is ragged: its parts lie along dimension 0."
            )
        self.add(len(leaf))
        return Mapped(leaf.packed())

    def add(self, size: int) -> None:
        self.found.append((self.at, size))

    @property
    def at(self) -> int:
        return self.seen if self.place is None else self.place

    def title(self) -> str:
        """How messages call the argument at work."""
        return self.titles()[self.at]

    def common(self) -> int:
        if not self.found:
            raise OptionError(
                f"No argument of {self.name} is mapped: at least one must be a tensor, an array, "
                "a list of numbers, autobatch.objects(...) or autobatch.ragged(...), with in_dims "
                "other than None."
            )
        sizes = sorted({size for _, size in self.found})
        if len(sizes) > 1:
            titles = self.titles()
            each = ", ".join(dict.fromkeys(f"{titles[at]} has {size}" for at, size in self.found))
            raise OptionError(
                f"The arguments of {self.name} have batch sizes {sizes}; "
                f"all mapped arguments must have the same: {each}."
            )
        return sizes[0]
