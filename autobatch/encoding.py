"""Trees of Python objects as index arrays: ``encode``.

A program that goes down a tree of objects reads their attributes on the host, object by object. Of
encoded trees it reads tensors: a node is a number, ``nodes.left[i]`` the number of its child, and
each such read is one gather for all threads.

In: root objects. Out: ``Nodes``, the same for all threads, with tensors over the nodes of all
trees, and the number of each root. A node that several places refer to has one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import torch
from torch import Tensor, nn

from autobatch.batching.effects import is_library_module
from autobatch.errors import OptionError
from autobatch.structure import own_attributes

NONE: Final = -1
"""The number of no node."""
ATOMS = (bool, int, float)
NO_NODES = (Enum, nn.Module, Tensor)
Getter = Callable[[Any], Any]


class Parts:
    """Tensors of different lengths, one for each node: ``parts[i]`` is ``[length, *E]``.

    They are parts of one ``table``, of which a copy is given; ``bounds [N, 2]`` says from where to
    where each goes.
    """

    def __init__(self, table: Tensor, bounds: Tensor) -> None:
        self.table = table
        self.bounds = bounds
        lengths = bounds[:, 1] - bounds[:, 0]
        self.longest = int(lengths.max()) if len(lengths) else 0

    def __len__(self) -> int:
        return len(self.bounds)

    def __getitem__(self, index: Any) -> Tensor:
        begin, end = self.bounds[index].tolist()
        return self.table[begin:end].clone()

    def to(self, *args: Any, **kwargs: Any) -> Parts:
        """The same with the table and the bounds where ``Tensor.to`` puts them."""
        return Parts(self.table.to(*args, **kwargs), moved(self.bounds, args, kwargs))

    def __repr__(self) -> str:
        return f"<{len(self)} parts of a {list(self.table.shape)}>"


class Nodes:
    """Encoded trees, see ``encode``: a tensor or ``Parts`` over all nodes for each attribute.

    ``roots [B]`` are the numbers of the trees' roots, ``len(nodes)`` is how many nodes there are.
    """

    def __init__(self, roots: Tensor, size: int, columns: Mapping[str, Tensor | Parts]) -> None:
        self.roots = roots
        self._size = size
        self._columns = dict(columns)
        self.__dict__.update(columns)

    def __len__(self) -> int:
        return self._size

    def __getattr__(self, name: str) -> Any:  # of what is not there
        known = ", ".join(self.__dict__.get("_columns", ())) or "none"
        raise AttributeError(
            f"the nodes have no {name!r}; what was encoded is {known}. features={{{name!r}: fn}} "
            "encodes what a function gives for each node."
        )

    def to(self, *args: Any, **kwargs: Any) -> Nodes:
        """The same on another device or, for floating-point tensors, in another dtype."""
        columns = {
            name: column.to(*args, **kwargs)
            if isinstance(column, Parts)
            else moved(column, args, kwargs)
            for name, column in self._columns.items()
        }
        return Nodes(moved(self.roots, args, kwargs), self._size, columns)

    def __repr__(self) -> str:
        columns = [f"{name}={looks(column)}" for name, column in self._columns.items()]
        trees = f"{len(self)} nodes of {len(self.roots)} trees"
        return f"<{', '.join([trees, *columns])}>"


def moved(tensor: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """``tensor.to(...)``, which leaves numbers of nodes integers."""
    new = tensor.to(*args, **kwargs)
    return new if tensor.is_floating_point() else new.to(tensor.dtype)


def looks(column: Tensor | Parts) -> str:
    return repr(column) if isinstance(column, Parts) else str(list(column.shape))


def encode(
    trees: Iterable[Any],
    *,
    children: Getter | Sequence[str] | None = None,
    features: Mapping[str, Getter | str] | Sequence[str] | None = None,
) -> Nodes:
    """Turn trees of Python objects into index arrays, once, for programs that go down them.

    A program takes the nodes, the same for all threads, and the number of one:

        def depth(nodes, i):
            if i < 0:
                return 0
            return 1 + max(depth(nodes, nodes.left[i]), depth(nodes, nodes.right[i]))

        nodes = autobatch.encode(trees)
        autobatch.vmap(depth, in_dims=(None, 0))(nodes, nodes.roots)

    Args:
        trees: B root objects, or None: its number is -1.
        children: what refers to other nodes: names of attributes, or a function that gives the
            sequence of a node's children, which becomes ``nodes.children``. None: every attribute
            that holds a node, or a list or tuple of nodes, in at least one node, or nothing but
            None or empty lists in all. A node is
            an object of a class of your own, but for modules and enumerations.
        features: what else is encoded: names of attributes, or a name for each attribute or
            function of a node. None: every attribute that can be.

    Returns:
        ``Nodes``, of ``N`` nodes, with ``roots`` int64 ``[B]`` and for each attribute

        - that holds one node or None: int64 ``[N]``, the child's number, -1 for None;
        - that holds nodes in a list or tuple: ``Parts``; ``nodes.children[i]`` is int64 ``[n]``;
        - that holds a number: ``[N]``, as ``torch.tensor`` makes it;
        - that holds tensors of one shape and dtype: ``[N, *E]``; of different lengths: ``Parts``.
          Gradients flow to them.

    Raises:
        OptionError: for a named feature that has no such form, a name that no node has, roots
            without attributes, or arguments of other kinds.
    """
    if not isinstance(trees, Iterable):
        raise OptionError(f"trees is a {type(trees).__name__}; it must be an iterable of roots.")
    fields = Fields(named(children, "children"), named(features, "features"))
    roots = list(trees)
    fields.check_roots(roots)
    found = Walk(fields).over(roots)
    fields.check_children(found.nodes)
    columns: dict[str, Tensor | Parts] = {}
    for name in found.links:
        columns[name] = found.link(name)
    for name, get in fields.features_of(found.nodes, found.links):
        column = encoded([get(node) for node in found.nodes])
        if column is None and fields.features is not None:
            raise OptionError(
                f"The feature {name!r} is not a number in all nodes, nor a tensor of one dtype "
                f"and row shape: {kinds_of([get(node) for node in found.nodes])}."
            )
        if column is not None:
            columns[name] = column
    numbers = [found.number(root) for root in roots]
    return Nodes(torch.tensor(numbers, dtype=torch.int64), len(found.nodes), columns)


def named(given: Any, option: str) -> Any:
    """An option that names attributes, or gives functions; a name by itself stands for it alone."""
    is_features = option == "features"
    if given is None or (isinstance(given, Mapping) if is_features else callable(given)):
        return given
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, Iterable) or not all(isinstance(each, str) for each in names):
        other = "a dict by name" if is_features else "a function"
        raise OptionError(f"{option} is {given!r}; it must be names of attributes, or {other}.")
    return tuple(names)


@dataclass(frozen=True, slots=True)
class Fields:
    """What is to be encoded, as ``encode`` was told."""

    children: Getter | Sequence[str] | None
    features: Mapping[str, Getter | str] | Sequence[str] | None

    def check_roots(self, roots: list[Any]) -> None:
        """A dict, a list or a number has no attributes that would tell what a node holds."""
        for root in roots:
            told = root is None or self.children is not None or self.features is not None
            if not told and not is_node(root) and not attributes_of(root, {}):
                raise OptionError(
                    f"A root is a {type(root).__name__}, which has no attributes: give functions "
                    "of a node, children=lambda node: [...], features={'name': lambda node: ...}."
                )

    def check_children(self, nodes: list[Any]) -> None:
        names = () if self.children is None or callable(self.children) else self.children
        for name in names:
            if nodes and not any(hasattr(node, name) for node in nodes):
                kinds = ", ".join(dict.fromkeys(type(node).__name__ for node in nodes))
                raise OptionError(f"No node has {name!r}, which children names: {kinds}.")

    def links_of(self, node: Any, slots: dict[type, list[str]]) -> list[tuple[str, Any]]:
        """The references of a node to others, by name."""
        if callable(self.children):
            return [("children", list(self.children(node)))]
        if self.children is not None:
            return [(name, getattr(node, name, None)) for name in self.children]
        named = attributes_of(node, slots)
        return [(name, value) for name, value in named.items() if is_link(value)]

    def features_of(self, nodes: list[Any], links: Iterable[str]) -> list[tuple[str, Getter]]:
        if isinstance(self.features, Mapping):
            return [(name, getter(given)) for name, given in self.features.items()]
        if self.features is not None:
            return [(name, getter(name)) for name in self.features]
        slots: dict[type, list[str]] = {}
        names = dict.fromkeys(name for node in nodes for name in attributes_of(node, slots))
        return [(name, getter(name, MISSING)) for name in names if name not in links]


MISSING = object()


def getter(given: Getter | str, *default: Any) -> Getter:
    if callable(given):
        return given

    def get(node: Any) -> Any:
        try:
            return getattr(node, given, *default)
        except AttributeError as error:
            raise OptionError(f"A {type(node).__name__} has no {given!r} to encode.") from error

    return get


def attributes_of(node: Any, slots: dict[type, list[str]]) -> dict[str, Any]:
    """What an object holds: its ``__dict__`` and its slots, which are known by class."""
    kind = type(node)
    if kind not in slots:
        names = [name for base in kind.__mro__ for name in slots_of(base)]
        slots[kind] = [*names, *getattr(kind, "_fields", ())]
    held = {name: getattr(node, name) for name in slots[kind] if hasattr(node, name)}
    return {**held, **(own_attributes(node) or {})}


def slots_of(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def is_link(value: Any) -> bool:
    """Whether it refers to a node, or to several."""
    return any(map(is_node, value)) if is_several(value) else is_node(value)


def is_several(value: Any) -> bool:
    """Whether it is a list or tuple of nodes, and no named tuple that is a node itself."""
    return isinstance(value, list | tuple) and not is_node(value)


def is_node(value: Any) -> bool:
    """Whether it is an object of a class of the user's own."""
    return not isinstance(value, NO_NODES) and not is_library_module(type(value).__module__)


class Walk:
    """The nodes of some trees in the order in which they are met, and who refers to whom."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self.nodes: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.links: dict[str, dict[int, Any]] = {}

    def over(self, roots: list[Any]) -> Walk:
        slots: dict[type, list[str]] = {}
        waiting = [root for root in reversed(roots) if root is not None]
        while waiting:
            node = waiting.pop()
            if id(node) in self.numbers:
                continue
            number = self.numbers[id(node)] = len(self.nodes)
            self.nodes.append(node)
            below: list[Any] = []
            for name, value in self.fields.links_of(node, slots):
                self.links.setdefault(name, {})[number] = value
                below += value if is_several(value) else [value]
            waiting += [child for child in reversed(below) if child is not None]
        if self.fields.children is None:
            self.note_empty(slots)
        return self

    def note_empty(self, slots: dict[type, list[str]]) -> None:
        """What refers to no node in any, ``left`` of trees that are leaves, may do so in others."""
        held: dict[str, dict[int, Any]] = {}
        for number, node in enumerate(self.nodes):
            for name, value in attributes_of(node, slots).items():
                held.setdefault(name, {})[number] = value
        for name, values in held.items():
            if all(value is None or (is_several(value) and not value) for value in values.values()):
                self.links.setdefault(name, values)

    def link(self, name: str) -> Tensor | Parts:
        """An attribute that refers to nodes, as numbers of nodes."""
        values = [self.links[name].get(number) for number in range(len(self.nodes))]
        if not any(map(is_several, values)):
            return torch.tensor([self.number(value) for value in values], dtype=torch.int64)
        lists = [[self.number(node) for node in nodes or ()] for nodes in values]
        flat = torch.tensor([number for numbers in lists for number in numbers], dtype=torch.int64)
        return parts_of(flat, list(map(len, lists)))

    def number(self, node: Any) -> int:
        return NONE if node is None else self.numbers[id(node)]


def encoded(values: list[Any]) -> Tensor | Parts | None:
    """One value for each node as a tensor or ``Parts``; None if they have no such form."""
    if not values:
        return None
    if all(type(value) in ATOMS for value in values):
        return None if any(map(is_wide, values)) else torch.tensor(values)
    if not all(isinstance(value, Tensor) for value in values):
        return None
    if len({(value.dtype, value.device, value.shape) for value in values}) == 1:
        return torch.stack(values)
    rows = {(value.dtype, value.device, value.shape[1:]) for value in values}
    if len(rows) > 1 or not all(value.dim() for value in values):
        return None
    return parts_of(torch.cat(values), list(map(len, values)))


def is_wide(value: Any) -> bool:
    """Whether it is an int that no tensor holds."""
    return type(value) is int and not -(2**63) <= value < 2**63


def parts_of(table: Tensor, sizes: list[int]) -> Parts:
    """A table as parts of some sizes, one after the other."""
    lengths = torch.tensor(sizes, dtype=torch.int64, device=table.device)
    ends = lengths.cumsum(0)
    return Parts(table, torch.stack([ends - lengths, ends], 1))


def kinds_of(values: list[Any]) -> str:
    seen = dict.fromkeys(
        f"{value.dtype} {list(value.shape)}"
        if isinstance(value, Tensor)
        else "int of more than 64 bits" * is_wide(value) or type(value).__name__
        for value in values
    )
    return ", ".join(list(seen)[:4])
