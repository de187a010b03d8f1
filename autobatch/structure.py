"""What a structure is: a value that has parts, which are mapped and stacked one by one.

Lists, tuples, dicts, every type registered with ``torch.utils._pytree``, and *records*: instances
of dataclasses, whose parts are their attributes. A dataclass that is declared to hold more of its
kind (a tree's node) is no structure but an object: trees do not stack. Nor is one that keeps state
of another kind (a module, an exception, a subclass of ``dict``).

``form_of`` tells the top of a structure; ``flattened`` and its like see whole trees as torch's
pytree functions do, and records in them.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import typing
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

DICTS = (dict, OrderedDict, defaultdict)
"""Of these the keys count, not their order."""
SINGLE = frozenset({bool, int, float, complex, str, bytes, type(None)})
"""Types of values that have no parts."""
IsLeaf = Callable[[Any], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """The top of one structure: its type, the keys of its parts, and what else makes it."""

    kind: Any
    keys: tuple[Any, ...]
    context: Any = None

    def fits(self, item: Any) -> bool:
        """Whether another value is such a structure; dicts may have their keys in any order."""
        other = form_of(item) if type(item) is self.kind else None
        if other is None:
            return False
        if self.kind in DICTS:
            return set(other.keys) == set(self.keys)
        return other.keys == self.keys and bool(other.context == self.context)

    def parts(self, item: Any) -> Sequence[Any]:
        """The parts of a structure that fits, in the order of the keys."""
        if self.kind in DICTS:
            return [item[key] for key in self.keys]
        if is_record(item):
            return [getattr(item, name) for name in self.keys]
        return item if is_tuple_type(self.kind) or self.kind is list else children(item)

    def made(self, parts: Iterable[Any]) -> Any:
        """Such a structure of other parts."""
        if self.kind is defaultdict:
            return defaultdict(self.context, zip(self.keys, parts, strict=True))
        if self.kind in DICTS:
            return self.kind(zip(self.keys, parts, strict=True))
        if is_record_type(self.kind):
            return instance(self.kind, self.keys, parts)
        if hasattr(self.kind, "_fields"):
            return self.kind(*parts)
        if is_tuple_type(self.kind) or self.kind is list:
            return self.kind(list(parts))
        return pytree.SUPPORTED_NODES[self.kind].unflatten_fn(list(parts), self.context)

    def place(self, key: Any) -> str:
        """How messages write the way to a part."""
        return f".{key}" if is_record_type(self.kind) else f"[{key!r}]"


def form_of(obj: Any) -> Form | None:
    """The top of a structure; None if it has no parts."""
    kind = type(obj)
    if kind in DICTS:
        return Form(kind, tuple(obj), getattr(obj, "default_factory", None))
    if kind is list or is_tuple_type(kind):
        return Form(kind, tuple(range(len(obj))))
    if is_registered(obj):
        parts, context = pytree.SUPPORTED_NODES[kind].flatten_fn(obj)
        return Form(kind, tuple(range(len(parts))), context)
    if is_record(obj):
        return Form(kind, tuple(attributes(obj)))
    return None


def are_single(parts: Iterable[Any]) -> bool:
    """Whether all are numbers and texts of Python's, which have no parts; says so at once."""
    return SINGLE.issuperset(map(type, parts))


def is_structure(obj: Any) -> bool:
    kind = type(obj)
    return (
        kind in DICTS or kind is list or is_tuple_type(kind) or is_record(obj) or is_registered(obj)
    )


def is_registered(obj: Any) -> bool:
    """Whether torch's pytrees know its type; a shape is one object all the same."""
    kind = type(obj)
    known = kind in pytree.SUPPORTED_NODES and kind is not torch.Size
    return known and not is_collection(obj)


def children(obj: Any) -> Sequence[Any]:
    """The parts of an instance of a registered type."""
    return list(pytree.SUPPORTED_NODES[type(obj)].flatten_fn(obj)[0])


def is_tuple_type(kind: Any) -> bool:
    """Tuples, named tuples and ``torch.return_types``; a shape is one object."""
    return isinstance(kind, type) and issubclass(kind, tuple) and kind is not torch.Size


def is_collection(obj: Any) -> bool:
    """Whether it is a ``TensorDict`` or the like, which stacks and comes apart by itself."""
    tensordict = sys.modules.get("tensordict")  # where none is imported, nobody has one
    return tensordict is not None and bool(tensordict.is_tensor_collection(obj))


# Records.


def is_record(obj: Any) -> bool:
    return is_record_type(type(obj))  # type: ignore[arg-type]


@lru_cache(maxsize=4096)
def is_record_type(kind: Hashable) -> bool:
    """Whether a class is a dataclass whose instances are no more than their attributes."""
    return (
        isinstance(kind, type)
        and dataclasses.is_dataclass(kind)
        and kind.__new__ is object.__new__
        and not issubclass(kind, nn.Module)
        and kind not in pytree.SUPPORTED_NODES
        and not holds_its_kind(kind)
    )


def holds_its_kind(kind: Any) -> bool:
    """Whether the fields of a dataclass may, as declared, hold an instance of it again."""
    seen: set[Any] = set()
    pending: list[Any] = [kind]
    while pending:
        for hint in declared(pending.pop()):
            if hint is kind or (isinstance(hint, type) and is_base(hint, kind)):
                return True
            if isinstance(hint, type) and dataclasses.is_dataclass(hint) and hint not in seen:
                seen.add(hint)
                pending.append(hint)
    return False


def is_base(hint: type, kind: type) -> bool:
    return hint in kind.__mro__ and hint is not object


def declared(kind: Any) -> set[Any]:
    """The classes that the annotations of a dataclass's fields name."""
    try:
        hints = typing.get_type_hints(kind)
    except Exception:  # names that are not found where the class stands: those of its own are told
        words = {
            word
            for field in dataclasses.fields(kind)
            if isinstance(field.type, str)
            for word in re.findall(r"\w+", field.type)
        }
        return {base for base in kind.__mro__ if base.__name__ in words}
    found: set[Any] = set()
    pending = [hints[field.name] for field in dataclasses.fields(kind) if field.name in hints]
    while pending:
        hint = pending.pop()
        found.add(hint if isinstance(hint, type) else None)
        pending += typing.get_args(hint)
    return found


def own_attributes(obj: Any) -> dict[str, Any] | None:
    """An object's ``__dict__``, if it has one; a ``__getattr__`` of its class is not asked."""
    try:
        table = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None
    return table if isinstance(table, dict) else None


def own_attribute(obj: Any, name: str, default: Any = None) -> Any:
    """An attribute as ``getattr`` gives it, where a user's ``__getattr__`` is not asked for it.

    That may give anything for any name, raise another error than ``AttributeError``, or note it.
    """
    kind = type(obj)
    if type(kind) is type and not hasattr(kind, "__getattr__"):
        return getattr(obj, name, default)
    if kind.__module__.partition(".")[0] == "torch":  # its operators tell more that way
        return getattr(obj, name, default)
    try:
        return kind.__getattribute__(obj, name)  # type: ignore[call-arg]
    except AttributeError:
        return default


def attributes(obj: Any) -> list[str]:
    """The attributes that a record has: its fields in order, then what else was set."""
    names = [field.name for field in dataclasses.fields(obj) if hasattr(obj, field.name)]
    return [*names, *(name for name in (own_attributes(obj) or ()) if name not in names)]


def instance(kind: Any, names: Iterable[str], parts: Iterable[Any]) -> Any:
    """A record of other parts; its own code does not run, frozen or not."""
    made = object.__new__(kind)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(made, name, part)
    return made


# Whole trees.


class Opened:
    """A record as a node of torch's pytrees; see ``opened`` and ``unflattened``."""

    def __init__(self, kind: Any, names: tuple[str, ...], parts: list[Any]) -> None:
        self.kind = kind
        self.names = names
        self.parts = parts


def _flatten(node: Opened) -> tuple[list[Any], Any]:
    return node.parts, (node.kind, node.names)


def _flatten_with_keys(node: Opened) -> tuple[list[tuple[Any, Any]], Any]:
    keys = map(pytree.GetAttrKey, node.names)
    return list(zip(keys, node.parts, strict=True)), (node.kind, node.names)


def _unflatten(parts: Iterable[Any], context: Any) -> Opened:
    kind, names = context
    return Opened(kind, names, list(parts))


pytree.register_pytree_node(Opened, _flatten, _unflatten, flatten_with_keys_fn=_flatten_with_keys)


def never(obj: Any) -> bool:
    return False


def opened(tree: Any, is_leaf: IsLeaf = never) -> Any:
    """A tree whose records are nodes to torch's pytree functions; ``is_leaf`` goes first."""

    def stop(node: Any) -> bool:
        return is_leaf(node) or is_collection(node)

    def node(leaf: Any) -> Any:
        if not is_record(leaf) or is_leaf(leaf):
            return leaf
        names = tuple(attributes(leaf))
        return Opened(type(leaf), names, [opened(getattr(leaf, name), is_leaf) for name in names])

    return pytree.tree_map(node, tree, is_leaf=stop)


def flattened(tree: Any, is_leaf: IsLeaf = never) -> tuple[list[Any], pytree.TreeSpec]:
    """The leaves of a tree, and what ``unflattened`` puts them together by."""
    return pytree.tree_flatten(
        opened(tree, is_leaf), is_leaf=lambda node: is_leaf(node) or is_collection(node)
    )


def unflattened(leaves: Iterable[Any], spec: pytree.TreeSpec) -> Any:
    """The tree of some leaves."""
    return put_together(spec, iter(leaves))


def put_together(spec: pytree.TreeSpec, leaves: Iterator[Any]) -> Any:
    if spec.is_leaf():
        return next(leaves)
    parts = [put_together(child, leaves) for child in spec.children()]
    if spec.type is Opened:
        kind, names = spec.context
        return instance(kind, names, parts)
    return pytree.SUPPORTED_NODES[spec.type].unflatten_fn(parts, spec.context)


def flattened_with_path(tree: Any, is_leaf: IsLeaf = never) -> list[tuple[Any, Any]]:
    """The leaves of a tree, each with the way to it."""
    return pytree.tree_flatten_with_path(
        opened(tree, is_leaf), is_leaf=lambda node: is_leaf(node) or is_collection(node)
    )[0]


def leaves(tree: Any, is_leaf: IsLeaf = never) -> Iterator[Any]:
    """The leaves of a tree of any depth, in order; what records refer to in a circle comes once."""
    pending, seen = [tree], set[int]()
    while pending:
        node = pending.pop()
        form = None if is_leaf(node) else form_of(node)
        if form is None:
            yield node
        elif id(node) not in seen:
            seen.update([id(node)] if is_record(node) else ())
            pending += reversed(form.parts(node))


def mapped(function: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf = never) -> Any:
    """The same tree with ``function`` of each leaf."""
    found, spec = flattened(tree, is_leaf)
    return unflattened(map(function, found), spec)


def spread(prefix: Any, spec: pytree.TreeSpec, is_leaf: IsLeaf = never) -> list[Any] | None:
    """The leaves of a tree's upper part, as many times as the tree has leaves below each."""
    return pytree._broadcast_to_and_flatten(opened(prefix, is_leaf), spec, is_leaf=is_leaf)
