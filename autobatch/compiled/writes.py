"""Writes in place: ``x += y`` and ``x[i] = v``, where whoever should see them does.

``Place`` is where they happen: a block that is being written, with its variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autobatch.compiled import tensors
from autobatch.compiled.arrays import indexing
from autobatch.compiled.arrays.roots import roots_of
from autobatch.compiled.names import Names
from autobatch.compiled.operators import binary
from autobatch.compiled.types import (
    Array,
    Number,
    Scalar,
    Value,
    common,
    fresh,
    refuse,
    static,
)
from autobatch.compiled.versions import Version
from autobatch.compiled.writer import Writer
from autobatch.ir.program import Block, CallShape, Op


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
    def read(self, name: str) -> Value: ...
    def held(self, name: str) -> Value: ...
    def after(self, op: Op) -> frozenset[str]: ...
    def share(self, names: Sequence[str]) -> None: ...
    def set(self, name: str, value: Value) -> None: ...
    def attribute(self, owner: Value, name: str) -> Value: ...
    def set_attribute(self, owner: Value, name: str, value: Value) -> None: ...
    def called(self, callee: Value, args: Sequence[Value], shape: CallShape) -> Value: ...


def in_place(place: Place, op: Op) -> None:
    """``x += y``: of a number it is a new one, of a tensor that no other name knows a write."""
    held, other = place.held(op.args[0]), place.read(op.args[1])
    name = op.name.removeprefix("i")
    if isinstance(held.type, Array) and isinstance(other.type, Array):
        w = place.w
        if w.root(held.leaf) == w.root(other.leaf) and held.leaf != other.leaf:
            refuse("a tensor is written in place with a part of itself")
    if is_put_back(place, op) and not isinstance(held.type, Number):
        made = binary(place.w, name, held, other)
        if isinstance(held.type, Scalar):
            made = tensors.written(place.w, name, common(held), other)
        place.set(op.outs[0], made)
        return
    if isinstance(held.type, Scalar):
        if not held.type.own or (op.outs != op.args[:1] and op.args[0] in place.after(op)):
            refuse("a tensor is written in place to which other names may refer")
        place.set(op.outs[0], fresh(tensors.written(place.w, name, common(held), other)))
    elif isinstance(held.type, Number):
        place.set(op.outs[0], fresh(binary(place.w, name, held, other)))
    elif isinstance(held.type, Array):
        refuse_seen(place, op, held)
        place.set(op.outs[0], held)
        indexing.assign(place.w, held, static(...), binary(place.w, name, held, other))
    else:
        refuse(f"{held.type} is written in place")


def is_put_back(place: Place, op: Op) -> bool:
    """Whether ``x[i] += y`` is at work: what is written in place is then assigned to ``x[i]``."""
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
        and taken.args == after.args[:2]
        and op.args[0].startswith("%")
    )


def assign(place: Place, op: Op) -> None:
    """``x[i] = v``, where all that refers to the memory of ``x`` is known."""
    owner, index, value = (place.held(name) for name in op.args)
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
    later = place.after(op) - {op.args[0]}
    for name in later & place.env.keys():
        value = place.env[name]
        if root in roots_of(w, value):
            refuse("a tensor is written in place of which another name holds a part")
