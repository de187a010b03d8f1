"""Functions that a program makes, in machine code: ``def`` and ``lambda`` within a function.

A variable that such a function captures lives in a box, which only the call that has made it
writes (what ``nonlocal`` assigns is held in a list). So within that call a closure tells the box by
its name alone (``Own``), and sees whatever is stored there; it is *open*. Where it leaves the call,
as an argument or a result, it is *closed*: ``frame`` has what the boxes hold then, for as long as
nothing can be stored. A closure that was an argument and whose boxes may be written later is
*lent*: it is no result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autobatch.compiled.types import (
    Closure,
    Made,
    Own,
    Static,
    Structure,
    Type,
    Value,
    common,
    flat_types,
    held_types,
    refuse,
    structure,
)
from autobatch.ir.dataflow import reaching
from autobatch.ir.program import Function

HIDDEN = "<closure>"
"""The parameter by which a function that a program makes has what it has captured."""
EMPTY = Static(Made)
"""The type of what a box holds that holds nothing."""
Look = Callable[[str], Value | None]
"""What a box holds, by its name; None if there is no such box yet."""


def boxes_of(function: Function) -> frozenset[str]:
    """The variables that live in boxes of the function's own."""
    ops = (op for block in function.blocks for op in block.ops)
    return frozenset(op.outs[0] for op in ops if op.name == "box")


def settled(function: Function) -> frozenset[str]:
    """The boxes in which something is stored once: whoever has seen it has seen the last."""
    after = reaching(function.blocks)
    many: dict[str, int] = {}
    for pc, block in enumerate(function.blocks):
        for op in block.ops:
            name = op.outs[0] if op.name == "box" and op.args else None
            if op.name in ("store_box", "clear_box"):
                name = op.args[0]
            if name is not None:
                many[name] = many.get(name, 0) + (2 if pc in after[pc] else 1)
    return frozenset(name for name, count in many.items() if count == 1)


def made(function: Made, boxes: frozenset[str], names: Sequence[str], args: list[Value]) -> Value:
    """A new closure; ``names`` are the variables that its operands are."""
    free = len(function.code.free)
    captured: list[Type | Own] = []
    leaves: list[str] = []
    for at, (name, value) in enumerate(zip(names, args, strict=True)):
        if at < free and name in boxes:
            captured.append(Own(name))
        else:
            captured.append(common(value).type)
            leaves += value.leaves
    return Value(Closure(function, tuple(captured)), tuple(leaves))


def open_names(type_: Type) -> Iterator[str]:
    """The boxes of the call at work that a value may read."""
    if isinstance(type_, Structure):
        for part in type_.parts:
            yield from open_names(part)
    if isinstance(type_, Closure) and type_.frame is None:
        for each in type_.captured:
            if isinstance(each, Own):
                yield each.name
            else:
                yield from open_names(each)


def reached(types: Iterable[Type], look: Look) -> list[str]:
    """The boxes that values may read, through closures in other boxes, too."""
    found: dict[str, None] = {}
    todo = list(types)
    while todo:
        for name in open_names(todo.pop()):
            if name not in found:
                found[name] = None
                value = look(name)
                todo += [] if value is None else [value.type]
    return sorted(found)


def has_closure(type_: Type) -> bool:
    parts = type_.parts if isinstance(type_, Structure) else ()
    return isinstance(type_, Closure) or any(map(has_closure, parts))


def is_lent(type_: Type) -> bool:
    """Whether a value holds a closure whose boxes may be written later."""
    if isinstance(type_, Structure):
        return any(map(is_lent, type_.parts))
    return isinstance(type_, Closure) and (type_.lent or any(map(is_lent, held_types(type_))))


def closed(value: Value, look: Look, last: frozenset[str] | None) -> Value:
    """A value for outside of the call; ``last`` are the boxes that are settled, None for all."""
    type_ = value.type
    if isinstance(type_, Structure) and any(True for _ in open_names(type_)):
        made = structure(type_.kind, [closed(p, look, last) for p in parts(value)], type_.keys)
        assert isinstance(made.type, Structure)
        return Value(replace(made.type, site=type_.site), made.leaves)
    if not isinstance(type_, Closure) or type_.frame is not None:
        return value
    names = reached([type_], look)
    held = [look(name) or Value(EMPTY) for name in names]
    held = [common(each) for each in held]
    frame = tuple((name, each.type) for name, each in zip(names, held, strict=True))
    lent = last is not None and not last.issuperset(names)
    leaves = [*value.leaves, *(leaf for each in held for leaf in each.leaves)]
    if len(leaves) > MOST_CAPTURED:
        refuse(f"{type_} captures too much")
    return Value(replace(type_, frame=frame, lent=lent), tuple(leaves))


MOST_CAPTURED = 64
"""Leaves of what a closure has captured."""


def parts(value: Value) -> list[Value]:
    """The values that a structure or a closure holds, in the order of their leaves."""
    types = value.type.parts if isinstance(value.type, Structure) else held_types(value.type)
    found: list[Value] = []
    at = 0
    for type_ in types:
        many = len(flat_types(type_))
        found.append(Value(type_, value.leaves[at : at + many]))
        at += many
    return found


def taken(value: Value) -> tuple[list[Value], Mapping[str, Value]]:
    """What a closed closure has captured, then its defaults; and its frame."""
    type_ = value.type
    assert isinstance(type_, Closure) and type_.frame is not None
    held = parts(value)
    direct = len(held) - len(type_.frame)
    frame = dict(zip((name for name, _ in type_.frame), held[direct:], strict=True))
    rest = iter(held[:direct])

    def each(captured: Type | Own) -> Value:
        found = frame[captured.name] if isinstance(captured, Own) else next(rest)
        last = None if not type_.lent else frozenset[str]()
        return closed(found, frame.get, last)

    return [each(captured) for captured in type_.captured], frame


def free(value: Value, name: str) -> Value:
    """A captured variable of the function at work."""
    type_ = value.type
    assert isinstance(type_, Closure)
    return taken(value)[0][type_.function.code.free.index(name)]


def defaults(value: Value) -> dict[str, Any]:
    """The defaults of a function that a program has made, by their parameters' names."""
    type_ = value.type
    assert isinstance(type_, Closure)
    code = type_.function.code
    given = taken(value)[0][len(code.free) :]
    return dict(zip((p.name for p in code.params if p.has_default), given, strict=True))
