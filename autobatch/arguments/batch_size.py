"""The batch size of a call, and the names by which messages call its arguments.

``Sizes`` makes mapped leaves of what a caller maps, a tensor's batch dimension first, and holds
their sizes to one; the errors are about the call and name the argument.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils import _pytree as pytree

from autobatch import firsthand, structure
from autobatch.arguments.mapped import Mapped, objects
from autobatch.arguments.unmapped import (
    masked,
    no_numbers,
    no_such_dimension,
    no_tensor,
    nothing_mapped,
    sizes_differ,
)
from autobatch.errors import OptionError
from autobatch.ragged import ragged


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


WIDEST = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}
"""The bytes of torch's widest numbers, by numpy's kinds; a long double has more."""


def tensor_of(array: np.ndarray, title: Callable[[], str]) -> Tensor:
    """An array as a tensor; arrays that torch cannot share memory with are copied.

    ``title`` gives what messages call it: ``OptionError`` where torch has no such numbers.
    """
    if array.dtype.kind not in "biufc" or array.dtype.itemsize > WIDEST[array.dtype.kind]:
        raise no_numbers(title(), array)
    if np.ma.is_masked(array):
        raise masked(title())
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    backwards = any(stride < 0 for stride in array.strides)
    return firsthand.as_tensor(array.copy() if backwards or not array.flags.writeable else array)


@dataclass(slots=True, eq=False, repr=False)
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
            leaf = tensor_of(leaf, lambda: f"The argument {self.title()} of {self.name}")
        if structure.is_collection(leaf):
            return self.unbound(leaf, dim, option)
        if not isinstance(leaf, Tensor):
            raise no_tensor(option, self.title(), self.name, leaf)
        self.check(leaf, dim, option)
        data = firsthand.movedim(leaf, dim, 0)
        self.add(data.shape[0])
        return Mapped(data)

    def check(self, leaf: Any, dim: Any, option: str) -> None:
        dims = len(leaf.shape)
        if type(dim) is not int or not -dims <= dim < dims:
            raise no_such_dimension(option, dim, self.title(), self.name, leaf.shape)

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

    def common(self, args: Sequence[Any]) -> int:
        """The batch size; ``args`` are those that ``titles`` names."""
        if not self.found:
            raise nothing_mapped(self.name, self.titles(), args)
        (_, size), *others = self.found
        if any(other != size for _, other in others):
            titles = self.titles()
            raise sizes_differ(self.name, [(titles[at], size) for at, size in self.found])
        return size
