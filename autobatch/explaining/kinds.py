"""The kinds of values in words, as ``explain`` names them: ``column float32 [3]``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from autobatch.explaining.report import listed
from autobatch.values.cells import PACKED, Column, Container, Mark, Objects, Uniform, Value, read

LISTED = 4
"""Kinds of tensors in one list that a note shows."""

SIZED = (list, tuple, dict)
"""Types of which the notes of failures say how many parts there are."""


def is_data(value: Value) -> bool:
    """Whether it is more than a step on the way: no function, method, iterator or None."""
    match value:
        case Uniform(obj=obj):
            return obj is not None and (not callable(obj) or isinstance(obj, nn.Module))
        case Container(type=kind):
            return not isinstance(kind, Mark) or kind is PACKED
    return True


def kind_of(value: Value) -> str:
    match value:
        case Uniform(obj=obj):
            return f"uniform {described(obj)}"
        case Column(data=data, tag="tensor"):
            return f"column {tensor_kind(data, 1)}"
        case Column(tag=tag):
            return f"column {tag}"
        case Objects(items=items):
            names = sorted({described(item) for item in items})
            return f"objects ({listed(tuple(names))})" if names else "objects"
        case Container(type=kind, static=table) if kind is PACKED:
            return f"packed {tensor_kind(table, 1)} of any length"
        case Container():
            return container_kind(value)
    raise AssertionError(value)


def container_kind(value: Container, deep: bool = True) -> str:
    name = value.type.name if isinstance(value.type, Mark) else value.type.__name__
    if not deep or isinstance(value.type, Mark):
        return f"container {name}"
    parts = dict.fromkeys(
        container_kind(part, False) if isinstance(part, Container) else kind_of(part)
        for part in map(read, value.children())
    )
    return f"container {name} of {listed(tuple(parts))}" if parts else f"container {name}"


def described(obj: Any) -> str:
    return tensor_kind(obj) if isinstance(obj, Tensor) else type(obj).__name__


def operand(value: Value, row: int | None = None) -> str:
    """What one thread's operand is, as the notes of failures show it: ``float32 [3]``, ``int``.

    Of a list, a tuple or a dict it is how long that is, and what tensors are in it. Without a row,
    what objects of several types are is not told.
    """
    match value:
        case Uniform(obj=obj):
            return sized(obj)
        case Column(table=table, tag="tensor"):
            return tensor_kind(table, 1)
        case Column(tag=tag):
            return tag
        case Objects(lists=found) if found is not None:
            return "list" if row is None else f"list of {found.lengths[row]}"
        case Objects(items=items):
            kinds = {sized(item) for item in (items if row is None else items[row : row + 1])}
            if len(kinds) > 1:
                kinds = {described(item) for item in items}
            return kinds.pop() if len(kinds) == 1 else "object"
        case Container(type=kind, cells=cells) if isinstance(kind, type):
            if kind not in SIZED:
                return kind.__name__
            told = (operand(part, row) for part in map(read, value.children()) if is_tensors(part))
            return f"{kind.__name__} of {len(cells)}{shown(told)}"
        case Container(static=table, type=kind) if kind is PACKED:
            return f"{tensor_kind(table, 1)} of any length"
    return "object"


def is_tensors(value: Value) -> bool:
    match value:
        case Uniform(obj=obj):
            return isinstance(obj, Tensor)
        case Column(tag=tag):
            return tag == "tensor"
    return False


def sized(obj: Any) -> str:
    if type(obj) not in SIZED:
        return described(obj)
    parts = obj.values() if type(obj) is dict else obj
    told = (described(part) for part in parts if isinstance(part, Tensor))
    return f"{described(obj)} of {len(obj)}{shown(told)}"


def shown(kinds: Iterable[str]) -> str:
    """The kinds of the tensors in a list, each once, as those of ``torch.cat``."""
    each = list(dict.fromkeys(kinds))
    more = "; …" if len(each) > LISTED else ""
    return f" ({'; '.join(each[:LISTED])}{more})" if each else ""


def tensor_kind(data: Tensor, skip: int = 0) -> str:
    """Dtype and event shape, ``float32 [3]``; of a nested tensor how many parts it has."""
    if data.is_nested:  # some have no shape
        return f"nested {str(data.dtype).removeprefix('torch.')} of {data.size(0)}"
    return f"{str(data.dtype).removeprefix('torch.')} {list(data.shape[skip:])}"
