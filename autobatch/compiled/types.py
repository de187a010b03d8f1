"""What a value of a scalar program is known to be, and how machine code holds it.

A ``Type`` is decided before anything runs; a ``Value`` is a type and one operand of LLVM for each
of its *leaves*. Python's numbers are a 64-bit int, a double or a bit, 0-d tensors have their
dtype's machine type. What is the same for all threads and is no number (functions, modules,
strings, None) has no leaves: it is known by identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod
from types import FunctionType
from typing import Any, NoReturn

import numpy as np
import torch

from autobatch.ir.program import Function
from autobatch.llvm import literal
from autobatch.source import Span
from autobatch.structure import own_attribute

MACHINE = {
    torch.bool: "i1",
    torch.uint8: "i8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float32: "float",
    torch.float64: "double",
}
"""The dtypes that have a machine type here."""
NUMBER_MACHINE = {"int": "i64", "float": "double", "bool": "i1"}
MOST_LEAVES = 64
"""Operands of one value."""
NUMBER_OF = {int: "int", float: "float", bool: "bool"}
INTS = frozenset(dtype for dtype in MACHINE if not dtype.is_floating_point) - {torch.bool}
FLOATS = frozenset(dtype for dtype in MACHINE if dtype.is_floating_point)


class Refused(Exception):
    """The program has no compiled form: ``why``, and where in the source."""

    def __init__(self, why: str, span: Span | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.span = span


@dataclass(frozen=True, slots=True)
class Number:
    """A Python number; ``tag`` is ``int``, ``float`` or ``bool``.

    ``known``, between blocks: the number that it is, of a variable that is assigned in one place.
    """

    tag: str
    known: int | float | bool | None = None

    def __str__(self) -> str:
        return f"a Python {self.tag}"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A 0-d tensor; ``own`` if no other name refers to it, so that it may be written in place."""

    dtype: torch.dtype
    own: bool = False

    def __str__(self) -> str:
        return f"a 0-d tensor of {str(self.dtype).removeprefix('torch.')}"


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor ``[*shape]`` that stays as it is while its function runs; its leaf is its address.

    It is ``lent`` if it may be an array of a caller's, which is there no longer than the call.
    ``strides`` are torch's, ``steps`` those in memory; None where they are a contiguous tensor's.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    lent: bool = False
    strides: tuple[int, ...] | None = None
    steps: tuple[int, ...] | None = None

    def __str__(self) -> str:
        return f"a tensor of shape {list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Array:
    """A tensor ``[*shape]`` that the function has made; its leaf is its address.

    It is contiguous in memory; ``strides`` are those that it has in torch, None if it is contiguous
    there, too. A variable that is carried from block to block has room of its own for it. ``own``,
    between blocks and calls: nothing else refers to it, so that it may be written in place; within
    a block that is for its root to say.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    own: bool = False
    strides: tuple[int, ...] | None = None

    def __str__(self) -> str:
        return f"a tensor of shape {list(self.shape)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Static:
    """An object that all threads share, told by its identity."""

    obj: Any

    def __eq__(self, other: object) -> bool:
        return type(other) is Static and other.obj is self.obj

    def __hash__(self) -> int:
        return hash((Static, id(self.obj)))

    def __str__(self) -> str:
        name = own_attribute(self.obj, "__name__")
        if name is None and not isinstance(self.obj, str | None):
            return f"an object of the type {type(self.obj).__name__}"
        return f"`{name or repr(self.obj)}`"


@dataclass(frozen=True, slots=True)
class Method:
    """The method ``name`` of a number or tensor, whose leaves it has."""

    owner: Number | Scalar | Rows | Array | Listed | Table | Structure
    name: str

    def __str__(self) -> str:
        return f"the method {self.name} of {self.owner}"


@dataclass(slots=True, eq=False, repr=False)
class Layout:
    """How the objects of a class lie in memory: the type of each attribute, and its first leaf."""

    kind: type
    fields: dict[str, tuple[Type, int]] = field(default_factory=dict)
    waiting: dict[Any, None] = field(default_factory=dict)

    @property
    def leaves(self) -> int:
        return sum(len(flat_types(type_)) for type_, _ in self.fields.values())


@dataclass(frozen=True, slots=True)
class Record:
    """An object that the program has made; its leaf is its address, by which all names know it."""

    layout: Layout

    def __str__(self) -> str:
        return f"an object of the type {self.layout.kind.__name__}"


@dataclass(frozen=True, slots=True)
class Bound:
    """A program function as a method of an object, whose leaves it has."""

    function: FunctionType
    owner: Record | Static

    def __str__(self) -> str:
        return f"the method {self.function.__name__} of {self.owner}"


@dataclass(slots=True, eq=False, repr=False)
class Contents:
    """What the lists hold that one place of a program makes: values of ``kinds``.

    ``users`` are the blocks that go by them.
    """

    kinds: list[Type] = field(default_factory=list)
    users: dict[Any, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listed:
    """A list in memory, that may grow; its leaf is its address, by which all names know it."""

    contents: Contents

    def __str__(self) -> str:
        return "a list that is written"


@dataclass(frozen=True, slots=True)
class Table:
    """A dict or a set in memory: ``parts`` are the lists of its entries and of their places."""

    kind: type
    parts: tuple[Listed, Listed]

    def __str__(self) -> str:
        return f"a {self.kind.__name__} that is written"


@dataclass(frozen=True, slots=True)
class Structure:
    """A tuple, a list or a dict that nobody writes; ``keys`` are a dict's.

    ``site``: the place of the program that makes a list, where that could be one in memory.
    """

    kind: type
    parts: tuple[Type, ...]
    keys: tuple[Any, ...] = ()
    site: int | None = None

    def __str__(self) -> str:
        return f"a {self.kind.__name__} of {', '.join(map(str, self.parts)) or 'nothing'}"


@dataclass(frozen=True, slots=True)
class Range:
    """``range(…)``, or an iterator over it: the next item and how many are left.

    And the step, where that is None here.
    """

    step: int | None
    is_iterator: bool = False

    def __str__(self) -> str:
        return "an iterator over a range" if self.is_iterator else "a range"


@dataclass(frozen=True, slots=True)
class Items:
    """What a loop goes over that is no range: ``enumerate``, ``zip`` or ``reversed`` of ``parts``,
    or (``each``) a tensor's rows or a structure's parts, which are all of one type.

    Its leaves are those of its parts; an iterator has the place that is next before them. It is
    ``fresh`` while that is the first of items that there are.
    """

    kind: str
    parts: tuple[Type, ...]
    is_iterator: bool = False
    fresh: bool = False

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.parts))
        return f"an iterator over {inner}" if self.kind == "each" else f"{self.kind} of {inner}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Made:
    """A function of a program's text: ``home`` is the Python function that it stands in."""

    code: Function
    home: FunctionType


@dataclass(frozen=True, slots=True)
class Own:
    """A box of the call at work, or of a frame."""

    name: str


@dataclass(frozen=True, slots=True)
class Closure:
    """A function that the program has made, with what it has ``captured`` and its defaults.

    ``frame`` has what is in the boxes that it reads; None while they are those of the call at work
    (see ``closures``). Its leaves are those of what is captured otherwise, then of the frame's.
    """

    function: Made
    captured: tuple[Type | Own, ...]
    frame: tuple[tuple[str, Type], ...] | None = None
    lent: bool = False

    def __str__(self) -> str:
        return f"the function `{self.function.code.name.rpartition('.')[2]}`"


Type = (
    Number | Scalar | Rows | Array | Static | Record | Listed | Bound | Method | Structure | Table
    | Range | Items | Closure
)  # fmt: skip
INT, FLOAT, BOOL = Number("int"), Number("float"), Number("bool")
TRUTH = Scalar(torch.bool)


@dataclass(frozen=True, slots=True)
class Value:
    """``leaves`` are operands, of the types that ``machine_of`` tells; ``known`` is the number that
    it is, where that is known before anything runs.
    """

    type: Type
    leaves: tuple[str, ...] = ()
    known: int | float | bool | None = None

    @property
    def leaf(self) -> str:
        (leaf,) = self.leaves
        return leaf


def flat_types(type_: Type) -> tuple[Type, ...]:
    """The type of each leaf."""
    match type_:
        case Structure(parts=parts) | Table(parts=parts) | Items(parts=parts, is_iterator=False):
            return tuple(leaf for part in parts for leaf in flat_types(part))
        case Items(parts=parts):
            return (INT, *(leaf for part in parts for leaf in flat_types(part)))
        case Method(owner) | Bound(owner=owner):
            return flat_types(owner)
        case Closure():
            return tuple(leaf for part in held_types(type_) for leaf in flat_types(part))
        case Range(step=step):
            return (INT, INT, INT) if step is None else (INT, INT)
        case Static():
            return ()
        case _:
            return (type_,)


def held_types(type_: Type) -> tuple[Type, ...]:
    """What a closure holds itself, and in its frame."""
    assert isinstance(type_, Closure)
    direct = (each for each in type_.captured if not isinstance(each, Own))
    return (*direct, *(each for _, each in type_.frame or ()))


def machine_of(type_: Type) -> tuple[str, ...]:
    """The LLVM types of a value's leaves."""
    return tuple(_machine(leaf) for leaf in flat_types(type_))


def _machine(leaf: Type) -> str:
    match leaf:
        case Number(tag):
            return NUMBER_MACHINE[tag]
        case Scalar(dtype):
            return MACHINE[dtype]
        case _:
            return "ptr"


def of_leaves(type_: Type, change: Callable[[Type, int], Type], at: int = 0) -> Type:
    """A type with the types of its leaves changed, each by itself and its place."""
    match type_:
        case Structure(parts=parts):
            return replace(type_, parts=_each(parts, change, at))
        case Items(parts=parts, is_iterator=is_iterator):
            return replace(type_, parts=_each(parts, change, at + is_iterator))
        case Closure():
            return _of_held(type_, _each(held_types(type_), change, at))
        case Number() | Scalar() | Rows() | Array():
            return change(type_, at)
        case _:
            return type_


def _of_held(type_: Closure, held: tuple[Type, ...]) -> Closure:
    """A closure that holds values of these types."""
    rest = iter(held)
    captured = tuple(each if isinstance(each, Own) else next(rest) for each in type_.captured)
    frame = None if type_.frame is None else tuple((name, next(rest)) for name, _ in type_.frame)
    return Closure(type_.function, captured, frame, type_.lent)


def _each(
    parts: tuple[Type, ...], change: Callable[[Type, int], Type], at: int
) -> tuple[Type, ...]:
    found: list[Type] = []
    for part in parts:
        found.append(of_leaves(part, change, at))
        at += len(flat_types(part))
    return tuple(found)


def unsited(type_: Type) -> Type:
    """A type of lists wherever they were made."""
    if not isinstance(type_, Structure):
        return type_
    return replace(type_, parts=tuple(map(unsited, type_.parts)), site=None)


def step_of(x: Value) -> str:
    """The step of a range."""
    assert isinstance(x.type, Range)
    return x.leaves[2] if x.type.step is None else str(x.type.step)


def bytes_of(leaf: Type) -> int:
    """What an array takes in memory; nothing else takes any."""
    return prod(leaf.shape) * leaf.dtype.itemsize if isinstance(leaf, Array) else 0


def common(value: Value) -> Value:
    """The same value, to which other names may refer."""
    if isinstance(value.type, Scalar) and value.type.own:
        return Value(Scalar(value.type.dtype), value.leaves)
    return value


def fresh(value: Value) -> Value:
    """The same value, which nobody else knows yet."""
    if isinstance(value.type, Scalar):
        return Value(Scalar(value.type.dtype, own=True), value.leaves)
    return value


def parts_of(value: Value) -> list[Value]:
    """The values in a structure, or what a loop goes over."""
    assert isinstance(value.type, Structure | Table | Items)
    found, at = [], len(value.leaves) - sum(len(machine_of(part)) for part in value.type.parts)
    for part in value.type.parts:
        width = len(machine_of(part))
        leaves = value.leaves[at : at + width]
        found.append(Value(part, leaves, as_written(part, leaves)))
        at += width
    return found


def parts_in(type_: Type | None) -> tuple[Type, ...]:
    return type_.parts if isinstance(type_, Structure) else ()


def as_written(type_: Type, leaves: tuple[str, ...]) -> int | float | bool | None:
    """The number that an operand is, if it stands there as one."""
    if not isinstance(type_, Number) or leaves[0].startswith("%"):
        return None
    (leaf,) = leaves
    if type_.tag == "float":
        return float(np.uint64(int(leaf, 16)).view(np.float64))
    return leaf == "true" if type_.tag == "bool" else int(leaf)


def structure(kind: type, parts: list[Value], keys: tuple[Any, ...] = ()) -> Value:
    """A structure of values."""
    if any(isinstance(part.type, Items) for part in parts):
        refuse("an iterator is used outside of its loop")
    types = tuple(part.type for part in parts)
    made = Value(Structure(kind, types, keys), tuple(x for part in parts for x in part.leaves))
    return made if len(made.leaves) <= MOST_LEAVES else refuse("a value has too many parts")


def number(obj: float) -> Value:
    """A number that is written in the program."""
    tag = NUMBER_OF[type(obj)]
    if tag == "int" and not -(2**63) <= obj < 2**63:
        raise Refused("an int is beyond 64 bits")
    return Value(Number(tag), (literal(obj, NUMBER_MACHINE[tag]),), obj)


def static(obj: Any) -> Value:
    """An object of the program's: a number, a tuple of such, or something known by identity."""
    if type(obj) in NUMBER_OF:
        return number(obj)
    if type(obj) is tuple:
        return structure(tuple, [static(part) for part in obj])
    return Value(Static(obj))


def refuse(why: str) -> NoReturn:
    raise Refused(why)
