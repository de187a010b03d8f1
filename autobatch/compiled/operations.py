"""The operations of the intermediate representation, in machine code: ``execute``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import torch

from autobatch.compiled import (
    closures,
    functions,
    items,
    list_functions,
    listing,
    numbers,
    objects,
    raising,
    sums,
    tables,
)
from autobatch.compiled.arrays import calls, indexing
from autobatch.compiled.arrays.lowering import real
from autobatch.compiled.operators import as_truth, binary, compare, unary
from autobatch.compiled.torch_functions import METHODS
from autobatch.compiled.types import (
    BOOL,
    INT,
    Array,
    Items,
    Listed,
    Method,
    Number,
    Range,
    Record,
    Rows,
    Scalar,
    Static,
    Structure,
    Table,
    Value,
    fresh,
    number,
    parts_of,
    refuse,
    static,
    step_of,
    structure,
)
from autobatch.compiled.writes import Place, assign, in_place
from autobatch.frontend import MISSING
from autobatch.ir.ops import BINARY, COMPARE, INPLACE, UNARY
from autobatch.ir.program import Op


def execute(place: Place, op: Op) -> Iterator[None]:
    """Write one operation; ``Refused`` if it has no compiled form.

    What is written after each step is for one way that the operation may go, such as one type of
    its result.
    """
    if op.name in STEPS:
        yield from STEPS[op.name](place, op)
    elif op.name in WAYS:
        for value in WAYS[op.name](place, op, [place.read(arg) for arg in op.args]):
            result(place, op, value)
            yield
    else:
        written(place, op)
        yield


def written(place: Place, op: Op) -> None:
    """Write an operation that goes one way."""
    if op.name == "delete":
        place.env.pop(op.attr, None)
    elif op.name == "context":
        pass  # an exception is known by its class alone
    elif op.name == "append":
        owner, value = (place.held(name) for name in op.args)
        place.share(op.args[1:])
        listing.append(place.w, in_memory(place, owner), value)
    elif op.name in INPLACE:
        in_place(place, op)
    elif op.name == "setattr":
        owner, value = (place.held(name) for name in op.args)
        place.share(op.args[1:])
        place.set_attribute(owner, op.attr, value)
    elif op.name == "store_box":
        place.set(op.args[0], place.read(op.args[1]))
        place.share(op.args)
    elif op.name == "clear_box":
        place.set(op.args[0], Value(closures.EMPTY))
    elif op.name == "copy":
        value = place.read(op.args[0])
        place.set(op.outs[0], value if op.args[0] in place.after(op) else place.held(op.args[0]))
        place.share(op.args)
    else:
        if not op.outs:
            refuse(f"the operation {op.name} has no compiled form")
        result(place, op, made(place, op, [place.read(arg) for arg in op.args]))


def result(place: Place, op: Op, value: Value) -> None:
    """What an operation gives becomes its variable's."""
    if keeps(place, op, value):
        place.share(op.args)
    place.set(op.outs[0], value)


def keeps(place: Place, op: Op, value: Value) -> bool:
    """Whether an operation's result refers to its operands, or may be one of them.

    A method that is only called does not: nothing is written before that.
    """
    if isinstance(value.type, Number) or (isinstance(value.type, Scalar) and value.type.own):
        return False
    return not isinstance(value.type, Method) or op.outs[0] in place.leaving


def made(place: Place, op: Op, args: list[Value]) -> Value:
    """What an operation with one result gives."""
    if op.name in BINARY or op.name in COMPARE:
        return computed(place, op.name, args)
    if op.name in UNARY:
        value = unary(place.w, op.name, *args)
        return value if op.name == "pos" else fresh(value)
    rule = RULES.get(op.name)
    return (
        refuse(f"the operation {op.name} has no compiled form")
        if rule is None
        else rule(place, op, args)
    )


def computed(place: Place, name: str, args: list[Value]) -> Value:
    return fresh((binary if name in BINARY else compare)(place.w, name, *args))


def judged(place: Place, op: Op, args: list[Value]) -> Value:
    return as_truth(place.w, args[0])


def constant(place: Place, op: Op, args: list[Value]) -> Value:
    return static(op.attr)


def of_global(place: Place, op: Op, args: list[Value]) -> Value:
    return fixed(place, place.names.global_(place.version.function.__globals__, op.attr), op.attr)


def captured(place: Place, op: Op, args: list[Value]) -> Value:
    """A captured variable, and what is in its box: nobody stores there while the function runs."""
    if place.closure is not None:
        found = closures.free(place.closure, op.attr)
        return refuse_empty(found, op.attr)
    found = place.names.free(place.version.function, op.attr, place.version.is_main)
    return fixed(place, found, op.attr)


def refuse_empty(value: Value, name: str) -> Value:
    return refuse(f"the variable {name} has no value") if value.type == closures.EMPTY else value


def imported(place: Place, op: Op, args: list[Value]) -> Value:
    return Value(Static(place.names.imported(*op.attr)))


def boxed(place: Place, op: Op, args: list[Value]) -> Value:
    """A box is known by its variable, which has what it holds."""
    (name,) = op.outs
    if any(name in closures.open_names(value.type) for value in place.env.values()):
        refuse("a variable is captured that a function of an earlier round has captured, too")
    return args[0] if args else Value(closures.EMPTY)


def unboxed(place: Place, op: Op, args: list[Value]) -> Value:
    return refuse_empty(args[0], op.attr)


def nested(place: Place, op: Op, args: list[Value]) -> Value:
    """A function that the program makes."""
    if op.attr.yields is not None:
        refuse("a function that yields has no compiled form")
    function = place.function_of(op.attr)
    return closures.made(function, closures.boxes_of(place.version.lowered), op.args, args)


def fixed(place: Place, obj: Any, name: str) -> Value:
    """What a name outside of the program means; a tensor is read where it lies."""
    if isinstance(obj, torch.Tensor):
        return real(place.w, place.names.tensor(obj, name))
    return static(obj)


def attribute(place: Place, op: Op, args: list[Value]) -> Value:
    (owner,) = args
    if isinstance(owner.type, Static) and isinstance(owner.type.obj, ModuleType):
        namespace = vars(owner.type.obj)
        if namespace.get(op.attr, MISSING) is MISSING:
            refuse(f"{owner.type} has no {op.attr} of its own")
        return fixed(place, place.names.global_(namespace, op.attr), op.attr)
    if isinstance(owner.type, Number) and op.attr in functions.METHODS:
        return Value(Method(owner.type, op.attr), owner.leaves)
    if isinstance(owner.type, Scalar | Array | Rows):
        place.names.of_class(torch.Tensor, op.attr)
    if isinstance(owner.type, Scalar) and op.attr in METHODS:
        return Value(Method(owner.type, op.attr), owner.leaves)
    if raising.is_raised(owner):
        refuse("an attribute of an exception has no compiled form")
    if isinstance(owner.type, Static):
        obj = owner.type.obj
        found = objects.of_shared(place.names, obj, op.attr)
        return found if isinstance(found, Value) else fixed(place, found, op.attr)
    if isinstance(owner.type, Record):
        return place.attribute(owner, op.attr)
    if isinstance(owner.type, Array | Rows):
        return tensor_attribute(place, owner, owner.type, op.attr)
    if isinstance(owner.type, Scalar) and calls.method(place.w, op.attr) is not None:
        return Value(Method(owner.type, op.attr), owner.leaves)
    if isinstance(owner.type, Structure) and op.attr in fields_of(owner.type.kind):
        return parts_of(owner)[fields_of(owner.type.kind).index(op.attr)]
    if isinstance(owner.type, Table):
        return tables.method(owner, op.attr)
    if listing.is_open_dict(owner.type, place.w):
        raise listing.grows(owner.type, place.w.lists.grown)
    if list_functions.is_list(owner):
        method = list_functions.method(place.w, owner, op.attr)
        if method is not None:
            return method
    return refuse(f"the attribute {op.attr} of {owner.type} has no compiled form")


def tensor_attribute(place: Place, owner: Value, type_: Array | Rows, name: str) -> Value:
    if name == "shape":
        return structure(tuple, [number(size) for size in type_.shape])
    if name == "item" or calls.method(place.w, name) is not None:
        return Value(Method(type_, name), owner.leaves)
    return calls.attribute(place.w, owner, name)


def display(kind: type) -> Callable[[Place, Op, list[Value]], Value]:
    return lambda place, op, args: structure(kind, args)


def of_list(place: Place, op: Op, args: list[Value]) -> Value:
    return listing.display(place.w, args)


def of_dict(place: Place, op: Op, args: list[Value]) -> Iterator[Value]:
    """A dict under words that nobody writes is a structure."""
    keys = [key.type.obj if isinstance(key.type, Static) else None for key in args[::2]]
    if any(type(key) is not str for key in keys) or listing.is_grown(place.w):
        yield from tables.of_pairs(place, list(zip(args[::2], args[1::2], strict=True)))
        return
    if len(set(keys)) < len(keys):
        refuse("a dict has a key twice")
    yield listing.sited(place.w, structure(dict, args[1::2], tuple(keys)))


def of_set(place: Place, op: Op, args: list[Value]) -> Iterator[Value]:
    return tables.of_members(place, args)


def to_set(place: Place, op: Op, args: list[Value]) -> Iterator[Value]:
    return tables.set_of(place, args, {})


def iterator(place: Place, op: Op, args: list[Value]) -> Value:
    (over,) = args
    if not isinstance(over.type, Range):
        return items.iterator(place.w, over)
    return Value(Range(over.type.step, is_iterator=True), over.leaves)


def binary_of(name: str, place: Place, op: Op, args: list[Value]) -> Iterator[Value]:
    """An operator that lists have, too."""
    ways = list_functions.operated(place, name, args)
    if ways is None:
        yield computed(place, name, args)
    else:
        yield from ways


def called(place: Place, op: Op, args: list[Value]) -> Iterator[Value]:
    return place.outcomes(args[0], args[1:], op.attr)


def advance(place: Place, op: Op) -> Iterator[None]:
    """``item, more = next(x)``, and the iterator a step further."""
    w, held = place.w, place.held(op.args[0])
    if isinstance(held.type, Items) and held.type.is_iterator:
        for step in items.advanced(w, held):
            for name, value in zip((op.args[0], *op.outs), step, strict=True):
                place.set(name, Value(closures.EMPTY) if value is None else value)
            yield
        return
    if not isinstance(held.type, Range) or not held.type.is_iterator:
        refuse(f"next of {held.type} has no compiled form")
    item, left, *stride = held.leaves
    more = w.made(f"icmp sgt i64 {left}, 0")
    after = w.made(f"add i64 {item}, {step_of(held)}")
    fewer = w.select(more, "i64", w.made(f"sub i64 {left}, 1"), "0")
    known = Value(BOOL, (more,)) if left.startswith("%") else number(int(left) > 0)
    place.set(op.args[0], Value(held.type, (after, fewer, *stride)))
    place.set(op.outs[0], Value(INT, (item,)))
    place.set(op.outs[1], known)
    yield


def in_memory(place: Place, owner: Value) -> Value:
    """A list that is written."""
    if isinstance(owner.type, Structure):
        listing.refuse_written(place.w, owner.type)
    return owner if isinstance(owner.type, Listed) else refuse(f"{owner.type} is written in place")


def extended(place: Place, op: Op) -> Iterator[None]:
    """``[*x, …]``, and ``x += y`` of a list."""
    owner, items = (place.held(name) for name in op.args)
    if op.name == "iadd" and not list_functions.is_list(owner):
        written(place, op)
        yield
        return
    items = place.read(op.args[1])
    if op.name == "iadd" and list_functions.is_tuple(owner):
        for value in binary_of("add", place, op, [owner, items]):
            result(place, op, value)
            yield
        return
    owner = in_memory(place, owner)
    for _ in list_functions.extend(place, owner, items):
        for out in op.outs:
            place.set(out, owner)
        yield


def stored(place: Place, op: Op) -> Iterator[None]:
    """``x[i] = v``, and of a list ``x[i:j] = v``."""
    owner, at = (place.held(name) for name in op.args[:2])
    if listing.is_open_dict(owner.type, place.w):
        raise listing.grows(owner.type, place.w.lists.grown)
    if isinstance(owner.type, Table):
        place.share(op.args[1:])
        for _ in tables.setitem(place, owner, place.read(op.args[1]), place.read(op.args[2])):
            yield
        return
    if not list_functions.is_slice(at) or not list_functions.is_list(owner):
        assign(place, op)
        yield
        return
    owner = in_memory(place, owner)
    place.share(op.args[2:])
    for _ in list_functions.put_in(place, owner, at, place.read(op.args[2])):
        yield


def deleted(place: Place, op: Op) -> Iterator[None]:
    """``del x[i]``, ``del x[i:j]``."""
    owner, at = (place.read(name) for name in op.args)
    if isinstance(owner.type, Table):
        for _ in tables.delitem(place, owner, at):
            yield
        return
    owner = in_memory(place, owner)
    if list_functions.is_slice(at):
        for _ in list_functions.cut_out(place, owner, at):
            yield
        return
    listing.removed(place.w, owner, listing.place_in(place.w, owner, at))
    yield


def unpack(place: Place, op: Op) -> Iterator[None]:
    value = place.read(op.args[0])
    if isinstance(value.type, Listed) and not op.attr.starred:
        many = listing.length(place.w, value)
        place.w.raise_if(place.w.made(f"icmp ne i64 {many}, {len(op.outs)}"), ValueError)
        yield from unpacked(place, value, op.outs, 0)
        return
    if isinstance(value.type, Array | Rows):
        value = calls.called(place.w, torch.unbind, [value], {}, calls.Nowhere())
    if not isinstance(value.type, Structure) or value.type.kind is dict or op.attr.starred:
        refuse(f"unpacking {value.type} has no compiled form")
    parts = parts_of(value)
    if len(parts) != len(op.outs):
        refuse(f"{value.type} is unpacked to {len(op.outs)}")
    for out, part in zip(op.outs, parts, strict=True):
        place.set(out, part)
    yield


def unpacked(place: Place, value: Value, outs: Sequence[str], first: int) -> Iterator[None]:
    """The items of a list from a place on, to variables."""
    if not outs:
        yield
        return
    for item in listing.load(place.w, value, str(first)):
        place.set(outs[0], item)
        yield from unpacked(place, value, outs[1:], first + 1)


def element(place: Place, op: Op, args: list[Value]) -> Iterator[Value]:
    """``x[i]``: a part of a structure, or a row of a tensor."""
    owner, index = args
    if calls.has_dims(owner.type) and not indexing.by_tensor(index):
        yield indexing.getitem(place.w, owner, index)
    elif calls.is_tensor(owner.type):
        yield calls.called(place.w, operator.getitem, [owner, index], {}, calls.Nowhere())
    elif isinstance(owner.type, Table):
        yield from tables.getitem(place, owner, index)
    elif isinstance(owner.type, Listed):
        yield from list_functions.element(place, owner, index)
    elif isinstance(owner.type, Structure):
        yield from part(place, owner, owner.type, index)
    else:
        refuse(f"an element of {owner.type} has no compiled form")


def part(place: Place, owner: Value, type_: Structure, index: Value) -> Iterator[Value]:
    """A part of a structure, at a place that may not be known where all are numbers."""
    parts = parts_of(owner)
    if type_.kind is dict:
        key = index.type.obj if isinstance(index.type, Static) else None
        if listing.is_open_dict(type_, place.w) and key not in type_.keys:
            raise listing.grows(type_, place.w.lists.grown)
        if type(key) is not str or key not in type_.keys:
            refuse(f"an element of {type_} under a key that is not known to be there")
        yield parts[type_.keys.index(key)]
        return
    some = list_functions.part_of(place, owner, index)
    if some is not None:
        yield some
        return
    at = index.known
    if not parts and index.type in (INT, BOOL):
        place.w.raise_always(IndexError)
        return
    if at is None and index.type in (INT, BOOL) and items.is_picked(type_):
        found = indexing.place_in(place.w, numbers.as_int(place.w, index), len(parts))
        yield from items.parts_at(place.w, owner, found)
        return
    if not isinstance(at, int) or not -len(parts) <= at < len(parts):
        refuse(f"an element of {type_} at a place that is not known before the program runs")
    yield parts[at]


def fields_of(kind: type) -> tuple[str, ...]:
    """The names of a named tuple's parts."""
    if not issubclass(kind, tuple):
        return ()
    found: tuple[str, ...] = getattr(kind, "_fields", ()) or getattr(kind, "__match_args__", ())
    return found


def caught(place: Place, op: Op, args: list[Value]) -> Value:
    return raising.catches(*args)


def summed(part: Callable[..., Value]) -> Callable[[Place, Op, list[Value]], Value]:
    """A part of Python's ``sum``."""
    return lambda place, op, args: part(place.w, *args)


RULES: dict[str, Callable[[Place, Op, list[Value]], Value]] = {
    "const": constant,
    "truth": judged,
    "global": of_global,
    "load_free": captured,
    "free_box": captured,
    "box": boxed,
    "load_box": unboxed,
    "load_outer_box": unboxed,
    "load_outer": lambda place, op, args: args[0],
    "function": nested,
    "getattr": attribute,
    "import": imported,
    "import_from": attribute,
    "tuple": display(tuple),
    "list": of_list,
    "slice": display(slice),
    "iter": iterator,
    "catches": caught,
    "sum_begun": summed(sums.begun),
    "sum_left": summed(sums.left),
    "sum_lost": summed(sums.lost_by),
    "sum_whole": summed(sums.whole),
}
WAYS: dict[str, Callable[[Place, Op, list[Value]], Iterator[Value]]] = {
    "call": called,
    "getitem": element,
    "dict": of_dict,
    "set": of_set,
    "to_set": to_set,
    **{name: partial(binary_of, name) for name in ("add", "mul", *COMPARE)},
}
"""The same, where what the operation gives may be of several types."""
STEPS: dict[str, Callable[[Place, Op], Iterator[None]]] = {
    "next": advance,
    "unpack": unpack,
    "extend": extended,
    "iadd": extended,
    "setitem": stored,
    "delitem": deleted,
}
"""Operations with several results, or with effects, that may go several ways."""
