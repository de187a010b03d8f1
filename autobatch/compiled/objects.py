"""Objects in machine code: attributes of those that all threads share, and those a program makes.

A program's own object is a record in memory of its thread's, known by its address, so all names see
what is written to it. Of each class there is one layout: an attribute has one type wherever it is
set. Which attributes an object has is a bit for each; one that has not been set gives up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from torch import nn

from autobatch.batching.effects import effect_of
from autobatch.batching.kinds import found_in_class, generated_init
from autobatch.batching.objects.classes import is_plain_class
from autobatch.compiled import heap
from autobatch.compiled.closures import has_closure
from autobatch.compiled.names import Names, in_class
from autobatch.compiled.types import (
    Array,
    Bound,
    Items,
    Layout,
    Range,
    Record,
    Rows,
    Scalar,
    Static,
    Value,
    common,
    flat_types,
    machine_of,
    refuse,
    static,
    structure,
)
from autobatch.compiled.writer import Writer
from autobatch.frontend import MISSING
from autobatch.structure import own_attributes

MOST_FIELDS = 31
PLAIN: Any = object.__getattribute__
MEMBER = type(Layout.kind)  # type: ignore[misc]
"""What ``__slots__`` makes of an attribute."""
TABLES = ("_parameters", "_buffers", "_modules")


def of_shared(names: Names, obj: Any, name: str) -> Any:
    """An attribute of an object that all threads share, or ``Value`` for a method of its."""
    if isinstance(obj, type):
        return of_shared_class(names, obj, name)
    kind = type(obj)
    if kind.__getattribute__ is not PLAIN or not has_plain_getattr(kind):
        refuse(f"{Static(obj)} looks its attributes up in its own way")
    names.watch(state_of, obj)
    for special in ("__getattribute__", "__getattr__"):
        names.of_class(kind, special)
    found = names.of_class(kind, name)
    own = own_attributes(obj)
    if own is not None and name in own and not is_data(found):
        return names.global_(own, name)
    if own is not None:
        names.watch(dict.__contains__, own, name)
    if found is MISSING and isinstance(obj, nn.Module):
        for table in TABLES:
            if own is not None and name in own[table]:
                return names.global_(own[table], name)
    if type(found) is FunctionType:
        return Value(Bound(found, Static(obj)))
    if type(found) is staticmethod:
        return found.__func__
    if found is MISSING or hasattr(type(found), "__get__"):
        refuse(f"the attribute {name} of {Static(obj)} has no compiled form")
    return found


def of_shared_class(names: Names, kind: type, name: str) -> Any:
    """The same of a class: what it or its bases have, where its own class has nothing to say."""
    if type(kind) is not type or in_class(type, name) is not MISSING:
        refuse(f"the attribute {name} of {Static(kind)} has no compiled form")
    found = names.of_class(kind, name)
    if type(found) is staticmethod:
        return found.__func__
    if found is MISSING or (hasattr(type(found), "__get__") and type(found) is not FunctionType):
        refuse(f"the attribute {name} of {Static(kind)} has no compiled form")
    return found


def state_of(obj: Any) -> tuple[int, int]:
    """The class of an object, and the dict that it keeps its attributes in."""
    return id(type(obj)), id(own_attributes(obj))


def has_plain_getattr(kind: type) -> bool:
    found = getattr(kind, "__getattr__", None)
    return found is None or found is nn.Module.__getattr__


def is_data(found: Any) -> bool:
    """Whether what a class has goes before what an object has of its own."""
    return found is not MISSING and hasattr(type(found), "__set__")


# Objects that a program makes


def is_made(kind: Any) -> bool:
    """Whether a call of a class makes a record."""
    plain = isinstance(kind, type) and effect_of(kind) == "program" and is_plain_class(kind)
    plain = plain and not hasattr(kind, "__del__")
    return plain and has_plain_getattr(kind) and kind.__setattr__ is object.__setattr__


def allocated(w: Writer, layout: Layout) -> Value:
    """A new object without attributes; gives up where a thread has made too many."""
    made = heap.taken(w, str(8 * (MOST_FIELDS + 1)))
    w.emit(f"store i64 0, ptr {made}")
    return Value(Record(layout), (made,))


def refuse_class_attribute(owner: Value, name: str, found: Any) -> None:
    """What a class has goes for an object that has none; a dataclass sets all its fields."""
    assert isinstance(owner.type, Record)
    kind = owner.type.layout.kind
    is_field = generated_init(kind) and name in getattr(kind, "__dataclass_fields__", ())
    if found is not MISSING and type(found) is not MEMBER and not is_field:
        refuse(f"the attribute {name} of {owner.type} is its class's")


def get(w: Writer, names: Names, owner: Value, name: str, waiter: Any) -> Value | None:
    """An attribute of an object; None if nobody has set it yet: ``waiter`` is told."""
    assert isinstance(owner.type, Record)
    layout = owner.type.layout
    found = names.of_class(layout.kind, name)
    if type(found) is FunctionType:
        return Value(Bound(found, owner.type), owner.leaves)
    refuse_class_attribute(owner, name, found)
    if name not in layout.fields:
        layout.waiting[waiter] = None
        return None
    type_, first = layout.fields[name]
    bit = list(layout.fields).index(name)
    mask = w.made(f"load i64, ptr {owner.leaf}")
    set_ = w.made(f"and i64 {mask}, {1 << bit}")
    w.give_up_if(w.made(f"icmp eq i64 {set_}, 0"))
    leaves: list[str] = []
    for at, machine in enumerate(machine_of(type_), start=first):
        leaves.append(w.made(f"load {machine}, ptr {slot(w, owner, at)}"))
    return Value(type_, tuple(leaves))


def slot(w: Writer, owner: Value, at: int) -> str:
    return w.made(f"getelementptr i64, ptr {owner.leaf}, i64 {1 + at}")


def set_(w: Writer, names: Names, owner: Value, name: str, value: Value) -> list[Any]:
    """Set an attribute; what waits for it is to be written again."""
    if not isinstance(owner.type, Record):
        refuse(f"an attribute of {owner.type} is set")
    layout = owner.type.layout
    found = names.of_class(layout.kind, name)
    refuse_class_attribute(owner, name, found)
    if found is MISSING and not layout.kind.__dictoffset__:
        refuse(f"{owner.type} has no attribute {name} in its slots")
    owned = isinstance(value.type, Scalar) and value.type.own
    value = common(value)
    for part in flat_types(value.type):
        if isinstance(part, Scalar) and not owned:
            refuse(f"a tensor that has another name becomes an attribute of {owner.type}")
        if isinstance(part, Array) or (isinstance(part, Rows) and part.lent):
            refuse(f"a tensor that the program has made becomes an attribute of {owner.type}")
    if isinstance(value.type, Range | Items | Bound) or has_closure(value.type):
        refuse(f"{value.type} becomes an attribute of {owner.type}")
    for leaf in value.leaves:
        w.exclusive.discard(w.root(leaf))
    woken: list[Any] = []
    if name not in layout.fields:
        layout.fields[name] = value.type, layout.leaves
        if layout.leaves > MOST_FIELDS:
            refuse(f"{owner.type} has too many attributes")
        woken, layout.waiting = list(layout.waiting), {}
    type_, first = layout.fields[name]
    if type_ != value.type:
        refuse(f"the attribute {name} of {owner.type} is {type_}, and then {value.type}")
    for at, (leaf, machine) in enumerate(
        zip(value.leaves, machine_of(type_), strict=True), start=first
    ):
        w.emit(f"store {machine} {leaf}, ptr {slot(w, owner, at)}")
    mask = w.made(f"load i64, ptr {owner.leaf}")
    bit = list(layout.fields).index(name)
    w.emit(f"store i64 {w.made(f'or i64 {mask}, {1 << bit}')}, ptr {owner.leaf}")
    return woken


def named_tuple(kind: Any, args: Sequence[Value], named: dict[str, Value]) -> Value | None:
    """``Point(x, y)``, if the class is a plain named tuple."""
    fields = getattr(kind, "_fields", None)
    if not isinstance(kind, type) or not issubclass(kind, tuple) or fields is None:
        return None
    made = getattr(kind.__new__, "__module__", "")
    if not made.startswith("namedtuple_") or kind.__init__ is not object.__init__:
        return None
    defaults: dict[str, Any] = getattr(kind, "_field_defaults", {})
    given = {name: static(value) for name, value in defaults.items()}
    given |= dict(zip(fields, args, strict=False))
    if len(args) > len(fields) or named.keys() & set(fields[: len(args)]):
        refuse(f"{kind.__name__} is called with other arguments than it has fields")
    given |= named
    if set(given) != set(fields):
        refuse(f"{kind.__name__} is called with other arguments than it has fields")
    return structure(kind, [given[name] for name in fields])


def dataclass_fields(
    kind: type, args: Sequence[Value], named: dict[str, Value]
) -> dict[str, Value] | None:
    """The attributes that the generated ``__init__`` of a dataclass sets; None if it is another."""
    if not dataclasses.is_dataclass(kind) or not generated_init(kind):
        return None
    every = dataclasses.fields(kind)
    if found_in_class(kind, "__post_init__") is not None or any(not each.init for each in every):
        refuse(f"{kind.__name__} does more when it is made")
    by_place = [each.name for each in every if not each.kw_only]
    given = dict(zip(by_place, args, strict=False)) | named
    if len(args) > len(by_place) or len(given) < len(args) + len(named):
        refuse(f"{kind.__name__} is called with other arguments than it has fields")
    found: dict[str, Value] = {}
    for each in every:
        if each.name in given:
            found[each.name] = given.pop(each.name)
        elif each.default is not dataclasses.MISSING:
            found[each.name] = static(each.default)
        else:
            refuse(f"the field {each.name} of {kind.__name__} has no value that is known")
    if given:
        refuse(f"{kind.__name__} has no fields {list(given)}")
    return found
