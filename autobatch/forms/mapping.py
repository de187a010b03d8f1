"""``tree_map`` of ``torch.utils._pytree``, as Python for one example: its function is called for
each leaf, as any function of the program's is.

Lists, tuples, named tuples and dicts are gone through here; for other nodes torch's own runs,
thread by thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils import _pytree as pytree

from autobatch.structure import own_attribute


def node(kind: type) -> str:
    """What an instance of a class is in a tree of torch's."""
    if kind is list or kind is tuple:
        return "sequence"
    if kind is dict:
        return "dict"
    if issubclass(kind, tuple) and own_attribute(kind, "_fields") is not None:
        return "named"
    return "other" if kind in pytree.SUPPORTED_NODES or pytree.is_structseq_class(kind) else "leaf"


def by_torch(func: Any, tree: Any, rests: tuple[Any, ...], is_leaf: Any) -> Any:
    return pytree.tree_map(func, tree, *rests, is_leaf=is_leaf)


node.__autobatch__ = "host"  # type: ignore[attr-defined]
by_torch.__autobatch__ = "unknown"  # type: ignore[attr-defined]


def mapped(func: Callable[[Any], Any], tree: Any) -> Any:
    """``tree_map`` of one tree."""
    kind = type(tree)
    what = node(kind)
    if what == "leaf":
        return func(tree)
    if what == "dict":
        return {key: mapped(func, item) for key, item in tree.items()}
    if what == "other":
        return by_torch(func, tree, (), None)
    items = [mapped(func, item) for item in tree]
    return kind(*items) if what == "named" else kind(items)


def tree_map(
    func: Callable[..., Any],
    tree: Any,
    *rests: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """``torch.utils._pytree.tree_map``."""
    if is_leaf is None and len(rests) == 0:
        return mapped(func, tree)
    if is_leaf is not None and is_leaf(tree):
        return func(tree, *rests)
    kind = type(tree)
    what = node(kind)
    if what == "leaf":
        return func(tree, *rests)
    alike = [type(rest) is kind and len(rest) == len(tree) for rest in rests]
    if what == "other" or not all(alike):
        return by_torch(func, tree, rests, is_leaf)
    places = list(tree) if what == "dict" else range(len(tree))
    items = [
        tree_map(func, tree[at], *[rest[at] for rest in rests], is_leaf=is_leaf) for at in places
    ]
    if what == "dict":
        return dict(zip(places, items, strict=True))
    return kind(*items) if what == "named" else kind(items)


def tree_map_(
    func: Callable[..., Any],
    tree: Any,
    *rests: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """``torch.utils._pytree.tree_map_``."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree
