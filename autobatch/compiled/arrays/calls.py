"""Operators, functions and methods of torch's on tensors with dimensions.

What torch makes of them is traced for their dtypes and shapes (``graph``) and written by the rules
of aten's operators (``lowering``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.effects import effect_of
from autobatch.batching.semantics import SEMANTICS
from autobatch.compiled import tensors
from autobatch.compiled.arrays import draws, picking
from autobatch.compiled.arrays.graph import TENSOR, Of, of_torch, traced
from autobatch.compiled.arrays.lowering import Tensors, kept, lowered
from autobatch.compiled.arrays.memory import room, store, strided
from autobatch.compiled.types import (
    FLOATS,
    NUMBER_OF,
    Array,
    Number,
    Rows,
    Scalar,
    Static,
    Structure,
    Type,
    Value,
    flat_types,
    number,
    parts_of,
    refuse,
)
from autobatch.compiled.writer import Writer


class Nowhere:
    """For what reads no tensor but its operands."""

    def tensor(self, tensor: Tensor, name: str) -> Tensor:
        return tensor


def has_dims(type_: Type) -> bool:
    return isinstance(type_, Array | Rows)


def is_tensor(type_: Type) -> bool:
    return isinstance(type_, Array | Rows | Scalar)


def operated(w: Writer, name: str, args: Sequence[Value]) -> Value:
    """A Python operator on tensors, or on a tensor and a number."""
    tensor = next(arg for arg in args if has_dims(arg.type))
    given = [as_tensor(w, arg, tensor) for arg in args]
    return called(w, SEMANTICS[name], given, {}, Nowhere())


def as_tensor(w: Writer, x: Value, other: Value) -> Value:
    """A number that is not known as the 0-d tensor that means the same beside another tensor."""
    if not isinstance(x.type, Number) or x.known is not None:
        return x
    dtype = other.type.dtype  # type: ignore[union-attr]
    if x.type.tag == "float" and dtype not in FLOATS:
        dtype = torch.get_default_dtype()
    elif x.type.tag == "int" and dtype is torch.bool:
        dtype = torch.int64
    elif x.type.tag == "bool":
        dtype = torch.bool
    return Value(Scalar(dtype), (tensors.cast(w, x, dtype),))


def called(
    w: Writer,
    function: Callable[..., Any],
    args: Sequence[Value],
    named: Mapping[str, Value],
    names: Tensors,
    of_users: bool = False,
) -> Value:
    """A pure function of torch's, or of the user's (``of_users``): its graph is not kept, then."""
    found: list[Value] = []
    drawn = draws.bounded(w, args, named) if function is torch.randint else None
    if drawn is not None:
        return kept(w, drawn, None, None)
    if function is torch.nn.functional.one_hot:
        classes_within(w, [*args, *named.values()])
    function, args = with_tensors(w, function, args)
    given = [outline(arg, found) for arg in args]
    by_name = {name: outline(arg, found) for name, arg in named.items()}
    graph = (traced if of_users else of_torch)(function, given, by_name)
    told = getattr(function, "__name__", "") in TELLING
    if any(fixed is not TENSOR for fixed in graph.fixed) and not (told and found):
        refuse(f"{function} gives what is no tensor")
    return lowered(w, graph, found, names)


def classes_within(w: Writer, args: Sequence[Value]) -> None:
    """What ``one_hot`` checks, of which its graph knows nothing."""
    index, count = strided(args[0]), args[1].known if len(args) == 2 else None
    if type(count) is not int or count < 1:
        refuse("one_hot has a compiled form for a number of classes that is known")
    picking.within(w, index, count)


TELLING = frozenset({"size", "dim", "ndimension", "numel", "nelement", "is_floating_point"}) | {
    *("is_complex", "is_contiguous", "stride", "attrgetter", "is_tensor"),
}
"""What tells of a tensor's dtype and shape."""


def filled_like(x: Tensor, value: Tensor) -> Tensor:
    return torch.zeros_like(x) + value.to(x.dtype)


TENSORS_FOR_NUMBERS: dict[Any, Any] = {
    torch.full_like: filled_like,
    **{f: f for f in (torch.where, torch.clamp, torch.clip, Tensor.clamp, Tensor.clip)},
    **{f: f for f in (torch.add, torch.sub, torch.mul, torch.div)},
}
"""Functions that mean the same of a 0-d tensor as of a number, and what to call then."""


def with_tensors(
    w: Writer, function: Callable[..., Any], args: Sequence[Value]
) -> tuple[Callable[..., Any], Sequence[Value]]:
    """Numbers that are not known as 0-d tensors, for functions where that is the same."""
    unknown = [isinstance(arg.type, Number) and arg.known is None for arg in args]
    tensor = next((arg for arg in args if is_tensor(arg.type)), None)
    if not any(unknown) or tensor is None or function not in TENSORS_FOR_NUMBERS:
        return function, args
    if function is not torch.where and (
        not is_tensor(args[0].type) or any(is_tensor(arg.type) for arg in args[1:])
    ):
        return function, args
    if function is torch.where:
        if not is_tensor(args[0].type):  # an error of torch's, where a 0-d tensor is none
            return function, args
        tensor = next((arg for arg in args[1:] if is_tensor(arg.type)), tensor)
    given = [
        as_tensor(w, Value(arg.type, arg.leaves), tensor) if isinstance(arg.type, Number) else arg
        for arg in args
    ]
    return TENSORS_FOR_NUMBERS[function], given


def outline(x: Value, found: list[Value]) -> Any:
    """An argument as tracing takes it; its tensors are added to ``found``."""
    type_ = x.type
    if isinstance(type_, Array | Rows):
        found.append(x)
        return Of(type_.dtype, type_.shape, type_.strides)
    if isinstance(type_, Scalar):
        found.append(x)
        return Of(type_.dtype, ())
    if x.known is not None:
        return x.known
    if isinstance(type_, Structure) and type_.kind in (tuple, list):
        return type_.kind(outline(part, found) for part in parts_of(x))
    if isinstance(type_, Structure) and type_.kind is slice:
        return slice(*(outline(part, found) for part in parts_of(x)))
    if isinstance(type_, Static) and is_constant(type_.obj):
        return type_.obj
    return refuse(f"{type_} is an argument of a function of torch's")


def is_constant(obj: Any) -> bool:
    known = (type(None), str, type(Ellipsis), slice, torch.dtype, torch.Size, *NUMBER_OF)
    return isinstance(obj, known) or (isinstance(obj, type) and obj in NUMBER_OF)


def within(x: Value) -> bool:
    """Whether an argument is, or holds, a tensor with dimensions."""
    return any(has_dims(leaf) for leaf in flat_types(x.type))


def of_numbers(w: Writer, args: Sequence[Value], asked: torch.dtype | None = None) -> Value | None:
    """``torch.tensor([x, y], dtype=asked)`` of numbers and 0-d tensors; None for another call."""
    if len(args) != 1 or not isinstance(args[0].type, Structure) or args[0].type.kind is dict:
        return None
    parts = parts_of(args[0])
    if not parts or not all(isinstance(part.type, Number | Scalar) for part in parts):
        return None
    tags: set[Any] = {
        part.type.tag if isinstance(part.type, Number) else part.type.dtype  # type: ignore[union-attr]
        for part in parts
    }
    if asked is not None:
        dtype = asked
    elif tags <= BY_RANK.keys():
        dtype = next(made for tag, made in BY_RANK.items() if tag in tags)
    elif len(tags) == 1:
        (dtype,) = tags
    else:
        return refuse("torch.tensor of numbers and tensors has no compiled form")
    dtype = torch.get_default_dtype() if dtype is None else dtype
    made = room(w, dtype, (len(parts),))
    for at, part in enumerate(parts):
        store(w, made, str(at), put_in(w, part, dtype))
    return Value(Array(dtype, made.shape), (made.leaf,))


def put_in(w: Writer, x: Value, dtype: torch.dtype) -> str:
    """A number, or a 0-d tensor, as ``torch.tensor`` takes it into a dtype.

    It makes a double of an int on its way to a float, and refuses ints that the dtype has not.
    """
    if isinstance(x.type, Scalar):
        if x.type.dtype is not dtype and not {x.type.dtype, dtype} <= FLOATS:
            refuse("torch.tensor of numbers and tensors has no compiled form")
    elif dtype is torch.bool and x.type.tag != "bool":  # type: ignore[union-attr]
        refuse("torch.tensor of other numbers as bools has no compiled form")
    elif dtype in FLOATS and x.type.tag == "int":  # type: ignore[union-attr]
        x = Value(Number("float"), (tensors.cast(w, x, torch.float64),))
    return tensors.cast(w, x, dtype)


BY_RANK: dict[Any, Any] = {"float": None, "int": torch.int64, "bool": torch.bool}


def has_rule(w: Writer, function: Any) -> bool:
    """Whether a callee is a pure function of torch's, or a method of its tensors.

    With a seed, also if it draws.
    """
    if not callable(function) or isinstance(function, torch.nn.Module):
        return False
    effect = effect_of(function)
    return effect == "torch" or (effect == "draw" and w.seeded)


def method(w: Writer, name: str) -> Callable[..., Any] | None:
    """A tensor's method, if calling it changes nothing."""
    found = getattr(Tensor, name, None)
    return found if has_rule(w, found) else None


def attribute(w: Writer, owner: Value, name: str) -> Value:
    """What a tensor says of itself: ``shape``, ``T``, ``dtype``."""
    if name == "ndim":
        return number(len(owner.type.shape))  # type: ignore[union-attr]
    if name == "dtype":
        return Value(Static(owner.type.dtype))  # type: ignore[union-attr]
    if name not in ("T", "mT", "H", "mH"):
        refuse(f"the attribute {name} of {owner.type} has no compiled form")
    return called(w, operator.attrgetter(name), [owner], {}, Nowhere(), of_users=True)
