"""Writes in place: ``x += y`` and ``x[i] = v``, where whoever should see them does.

``Place`` is where they happen: a block that is being written, with its variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Protocol

from autobatch.compiled import listing, tensors
from autobatch.compiled.arrays import indexing
from autobatch.compiled.arrays.roots import roots_of
from autobatch.compiled.closures import boxes_of
from autobatch.compiled.names import Names
from autobatch.compiled.operators import binary
from autobatch.compiled.types import (
    Array,
    Listed,
    Made,
    Number,
    Rows,
    Scalar,
    Structure,
    Value,
    common,
    flat_types,
    fresh,
    refuse,
    static,
)
from autobatch.compiled.versions import Version
from autobatch.compiled.writer import Writer
from autobatch.ir.program import Block, CallShape, Function, Op


class Place(Protocol):
    """A block that is being written."""

    w: Writer
    env: dict[str, Value]
    block: Block

    @property
    def leaving(self) -> frozenset[str]: ...
    @property
    def names(self) -> Names: ...
    @property
    def version(self) -> Version: ...
    @property
    def closure(self) -> Value | None: ...
    def function_of(self, code: Function) -> Made: ...
    def read(self, name: str) -> Value: ...
    def held(self, name: str) -> Value: ...
    def after(self, op: Op) -> frozenset[str]: ...
    def share(self, names: Sequence[str]) -> None: ...
    def set(self, name: str, value: Value) -> None: ...
    def attribute(self, owner: Value, name: str) -> Value: ...
    def set_attribute(self, owner: Value, name: str, value: Value) -> None: ...
    def outcomes(
        self, callee: Value, args: Sequence[Value], shape: CallShape
    ) -> Iterator[Value]: ...
    def entered(
        self, function: FunctionType, args: Sequence[Value], named: dict[str, Value]
    ) -> Iterator[Value]: ...


def in_place(place: Place, op: Op) -> None:
    """``x += y``: of a number it is a new one, of a tensor that no other name knows a write."""
    w, held, other = place.w, place.held(op.args[0]), place.read(op.args[1])
    name = op.name.removeprefix("i")
    if isinstance(held.type, Array):
        refuse_overlap(w, held, other)
    if isinstance(held.type, Number):
        place.set(op.outs[0], fresh(binary(w, name, held, other)))
    elif is_put_back(place, op):
        place.set(op.outs[0], written(w, name, held, other))
    elif isinstance(held.type, Scalar):
        if not held.type.own or (op.outs != op.args[:1] and op.args[0] in place.after(op)):
            refuse("a tensor is written in place to which other names may refer")
        place.set(op.outs[0], fresh(written(w, name, held, other)))
    elif isinstance(held.type, Array):
        refuse_seen(place, op, held)
        place.set(op.outs[0], held)
        indexing.assign(w, held, static(...), written(w, name, held, other))
    else:
        refuse(f"{held.type} is written in place")


def written(w: Writer, name: str, held: Value, other: Value) -> Value:
    """What a tensor holds after a write in place, which has its shape."""
    if isinstance(held.type, Scalar):
        return tensors.written(w, name, common(held), other)
    made = binary(w, name, held, other)
    assert isinstance(held.type, Array | Rows)
    if not isinstance(made.type, Array) or made.type.shape != held.type.shape:
        refuse("a tensor is written in place with one of another shape")
    return made


def refuse_overlap(w: Writer, held: Value, other: Value) -> None:
    """A tensor that is written in place with a part of itself: torch looks which."""
    for leaf, type_ in zip(other.leaves, flat_types(other.type), strict=True):
        same = isinstance(type_, Array | Scalar) and w.root(leaf) == w.root(held.leaf)
        if same and leaf != held.leaf:
            refuse("a tensor is written in place with a part of itself")


def is_put_back(place: Place, op: Op) -> bool:
    """Whether ``x[i] += y`` of a tensor is at work: what is written is then assigned to ``x[i]``.

    An item of a list is a tensor that others may know, too.
    """
    ops = place.block.ops
    at = next(n for n, other in enumerate(ops) if other is op)
    after = ops[at + 1] if at + 1 < len(ops) else None
    if after is None or after.name != "setitem" or after.args[2:] != op.outs:
        return False
    made = [other for other in ops[:at] if op.args[0] in other.outs]
    taken = made[-1] if made else None
    return (
        taken is not None
        and taken.name == "getitem"
        and not isinstance(place.held(after.args[0]).type, Listed)
        and taken.args == after.args[:2]
        and op.args[0].startswith("%")
    )


def assign(place: Place, op: Op) -> None:
    """``x[i] = v``, where all that refers to the memory of ``x`` is known."""
    owner, index, value = (place.held(name) for name in op.args)
    if isinstance(owner.type, Structure) and owner.type.kind is list:
        listing.refuse_written(place.w, owner.type)
    if isinstance(owner.type, Listed):
        place.share(op.args[2:])
        listing.store(place.w, owner, listing.place_in(place.w, owner, index), value)
        return
    refuse_seen(place, op, owner)
    indexing.assign(place.w, owner, index, value)


def refuse_seen(place: Place, op: Op, owner: Value) -> None:
    """Refuse a write to a tensor that a variable which is read later may show."""
    if not isinstance(owner.type, Array):
        refuse(f"{owner.type} is written in place")
    if 0 in (owner.type.strides or ()):
        refuse("a tensor is written in place whose elements lie on each other")
    w, root = place.w, place.w.root(owner.leaf)
    if root not in w.exclusive:
        refuse("a tensor is written in place to which other names may refer")
    later = (place.after(op) | boxes_of(place.version.lowered)) - {op.args[0]}
    for name in later & place.env.keys():
        value = place.env[name]
        if root in roots_of(w, value):
            refuse("a tensor is written in place of which another name holds a part")
