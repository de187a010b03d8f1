"""Lists that a program writes: in its thread's memory, as long as they come to be.

A list is a header of three words, its length, how many items there is room for and where they lie;
so all names know it by one address. An item is as many words as its leaves, after a word that tells
its type where a list holds several. Lists that nobody writes are structures, whose parts are known:
a program is written with those first, and again for each place that makes one which is written
(``Grows``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeGuard

from autobatch.compiled import heap, numbers, tensors
from autobatch.compiled.types import (
    BOOL,
    INT,
    INTS,
    Contents,
    Listed,
    Number,
    Record,
    Refused,
    Scalar,
    Static,
    Structure,
    Table,
    Type,
    Value,
    flat_types,
    machine_of,
    of_leaves,
    parts_in,
    refuse,
    structure,
)
from autobatch.compiled.writer import Writer

MOST_KINDS = 4
"""Types of the items of one list."""
LEAST_ROOM = 4
WORD = 8
LENGTH, ROOM, ITEMS = 0, 1, 2
"""The words of a header."""
TEXT = f"""
define internal i1 @grown(ptr %list, ptr %fuel, i64 %width, i64 %many) {{
entry:
  %few = icmp ule i64 %many, {heap.HEAP}
  br i1 %few, label %fits, label %none
fits:
  %length = load i64, ptr %list
  %roomat = getelementptr i64, ptr %list, i64 {ROOM}
  %room = load i64, ptr %roomat
  %itemsat = getelementptr i64, ptr %list, i64 {ITEMS}
  %items = load ptr, ptr %itemsat
  %need = add i64 %length, %many
  %twice = shl i64 %room, 1
  %over = icmp ugt i64 %need, %twice
  %wanted = select i1 %over, i64 %need, i64 %twice
  %bytes = mul i64 %wanted, %width
  %old = mul i64 %room, %width
  %begin = ptrtoint ptr %items to i64
  %stop = add i64 %begin, %old
  %nextat = getelementptr i64, ptr %fuel, i64 1
  %next = load i64, ptr %nextat
  %lastat = getelementptr i64, ptr %fuel, i64 2
  %last = load i64, ptr %lastat
  %ends = icmp eq i64 %stop, %next
  %from = select i1 %ends, i64 %begin, i64 %next
  %after = add i64 %from, %bytes
  %beyond = icmp ugt i64 %after, %last
  br i1 %beyond, label %none, label %some
some:
  store i64 %after, ptr %nextat
  store i64 %wanted, ptr %roomat
  br i1 %ends, label %done, label %moved
moved:
  %to = inttoptr i64 %next to ptr
  %used = mul i64 %length, %width
  call void @llvm.memmove.p0.p0.i64(ptr %to, ptr %items, i64 %used, i1 false)
  store ptr %to, ptr %itemsat
  br label %done
done:
  ret i1 true
none:
  ret i1 false
}}
"""
"""Room for so many items more; the last that was taken is made longer, others are moved."""


class Grows(Exception):
    """A list is written that ``site`` makes, None for any: it is to be one in memory."""

    def __init__(self, site: int | None) -> None:
        super().__init__(site)
        self.site = site


@dataclass(slots=True, eq=False, repr=False)
class Lists:
    """The lists in memory of one compilation: the places that make them, None before any is known.

    ``again`` has blocks written again that go by what a list holds.
    """

    again: Callable[[Iterable[Any]], None]
    grown: frozenset[int | None] | None = None
    found: dict[Any, Contents] = field(default_factory=dict)

    def contents(self, site: Any) -> Contents:
        return self.found.setdefault(site, Contents())


def refuse_written(w: Writer, type_: Structure) -> NoReturn:
    """A list that is written is no structure."""
    raise grows(type_, w.lists.grown)


def refuse_twice(w: Writer, type_: Type) -> None:
    """Where a result may have one list at two places, it is to be one there: one in memory."""
    pending, seen = [type_], set[Structure]()
    while pending:
        found = pending.pop()
        if isinstance(found, Structure) and found.kind in (list, dict):
            if found in seen:
                if found.site is None and w.lists.grown is not None:
                    refuse(f"it may return {found} twice that it has not made")
                raise grows(found, w.lists.grown)
            seen.add(found)
        pending += parts_in(found)


def grows(type_: Structure, grown: frozenset[int | None] | None) -> Exception:
    """What has a list be in memory; ``Refused`` if the program has not made it."""
    if type_.kind in (list, dict) and grown is None:
        return Grows(None)
    if type_.site is None or type_.kind not in (list, dict):
        return Refused(f"{type_} is written that the program has not made as one")
    return Grows(type_.site)


def is_open_dict(type_: Type, w: Writer) -> TypeGuard[Structure]:
    """Whether a dict whose keys are known may be one in memory, as the program has made it."""
    if not isinstance(type_, Structure) or type_.kind is not dict:
        return False
    return type_.site is not None or w.lists.grown is None


def display(w: Writer, parts: Sequence[Value]) -> Value:
    """``[a, b, …]``."""
    if is_grown(w):
        return new(w, parts)
    return sited(w, structure(list, list(parts)))


def is_grown(w: Writer) -> bool:
    """Whether the place at work makes a list in memory."""
    return w.of_library or (w.lists.grown is not None and w.site in w.lists.grown)


def sited(w: Writer, value: Value) -> Value:
    """A list or dict that is a structure, as the place at work has made it."""
    assert isinstance(value.type, Structure)
    if w.lists.grown is None or value.type.kind not in (list, dict):
        return value
    return Value(replace(value.type, site=w.site), value.leaves)


def new(w: Writer, parts: Sequence[Value], room: int = 0, whole: str = "") -> Value:
    """A list in memory of its own; ``whole``: what it is a part of, if it is one of several."""
    site = (w.site, w.user[0].site) if w.of_library else w.site
    made = Listed(w.lists.contents((site, whole)))
    for part in parts:
        admit(w, made, part)
    room = max(len(parts), room, LEAST_ROOM)
    width = width_of(w, made)
    leaf = heap.taken(w, str(3 * WORD + room * width))
    value = Value(made, (leaf,))
    items = w.made(f"getelementptr i64, ptr {leaf}, i64 3")
    w.emit(f"store i64 {len(parts)}, ptr {leaf}")
    w.emit(f"store i64 {room}, ptr {word(w, leaf, ROOM)}")
    w.emit(f"store ptr {items}, ptr {word(w, leaf, ITEMS)}")
    for at, part in enumerate(parts):
        store(w, value, str(at), part)
    return value


# Words


def word(w: Writer, address: str, at: int) -> str:
    return w.made(f"getelementptr i64, ptr {address}, i64 {at}") if at else address


def length(w: Writer, x: Value) -> str:
    """How many items a list has, or entries a dict or set: those lie in its first list."""
    return w.made(f"load i64, ptr {x.leaves[0]}")


def kinds_of(w: Writer, type_: Type) -> list[Type]:
    """The types of a list's items, by which the block at work goes."""
    assert isinstance(type_, Listed)
    type_.contents.users[w.user] = None
    return type_.contents.kinds


def width_of(w: Writer, type_: Type) -> int:
    """The bytes of an item."""
    return width_of_kinds(kinds_of(w, type_))


def width_of_kinds(kinds: Sequence[Type]) -> int:
    most = max((len(machine_of(kind)) for kind in kinds), default=0)
    return WORD * max(most + (len(kinds) > 1), 1)


def address(w: Writer, x: Value, at: str) -> str:
    """Where the item at a place lies, or would."""
    items = w.made(f"load ptr, ptr {word(w, x.leaf, ITEMS)}")
    far = w.made(f"mul i64 {at}, {width_of(w, x.type)}")
    return w.made(f"getelementptr i8, ptr {items}, i64 {far}")


# Items


def plain(leaf: Type, _: int) -> Type:
    """The type of a leaf in memory."""
    if isinstance(leaf, Number):
        return Number(leaf.tag)
    return Scalar(leaf.dtype) if isinstance(leaf, Scalar) else leaf


def holds(type_: Type) -> bool:
    """Whether a list in memory may hold values of a type."""
    if isinstance(type_, Structure):
        return all(map(holds, type_.parts))
    return isinstance(type_, Number | Scalar | Static | Listed | Table | Record)


def admit(w: Writer, type_: Type, item: Value) -> Type:
    """The type of an item as a list holds it; what goes by the list's types is written again."""
    if not holds(item.type):
        refuse(f"a list is written with {item.type}")
    for leaf, leaf_type in zip(item.leaves, flat_types(item.type), strict=True):
        if isinstance(leaf_type, Scalar) and not (leaf_type.own or w.is_main):
            refuse("a list is written with a tensor that has another name")
        w.exclusive.discard(w.root(leaf))
    kinds, kind = kinds_of(w, type_), of_leaves(item.type, plain)
    if kind not in kinds:
        if len(kinds) == MOST_KINDS:
            refuse(f"a list holds items of more than {MOST_KINDS} types")
        kinds.append(kind)
        w.lists.again(list(type_.contents.users))  # type: ignore[union-attr]
    return kind


def store(w: Writer, x: Value, at: str, item: Value) -> None:
    """Put an item to a place that there is."""
    kind = admit(w, x.type, item)
    place, kinds = address(w, x, at), kinds_of(w, x.type)
    if len(kinds) > 1:
        w.emit(f"store i64 {kinds.index(kind)}, ptr {place}")
    for n, (leaf, machine) in enumerate(zip(item.leaves, machine_of(kind), strict=True)):
        w.emit(f"store {machine} {leaf}, ptr {word(w, place, n + (len(kinds) > 1))}")


def load(w: Writer, x: Value, at: str) -> Iterator[Value]:
    """The item at a place that there is, for each type that it may have."""
    kinds = list(kinds_of(w, x.type))
    if not kinds:
        w.emit("br label %given_up")
        return
    place = address(w, x, at)
    tag = w.made(f"load i64, ptr {place}") if len(kinds) > 1 else ""
    for n, kind in enumerate(kinds):
        on = w.fresh()
        if n + 1 < len(kinds):
            here = w.fresh()
            w.emit(f"br i1 {w.made(f'icmp eq i64 {tag}, {n}')}, label %{here}, label %{on}")
            w.begin(here)
        first = int(len(kinds) > 1)
        leaves = tuple(
            w.made(f"load {machine}, ptr {word(w, place, far)}")
            for far, machine in enumerate(machine_of(kind), start=first)
        )
        yield Value(kind, leaves)
        if n + 1 < len(kinds):
            w.begin(on)


# What is done with a list


def place_in(w: Writer, x: Value, index: Value) -> str:
    """An index from either end as a place that there is, or an IndexError."""
    if index.type in (INT, BOOL):
        at = numbers.as_int(w, index)
    elif isinstance(index.type, Scalar) and index.type.dtype in INTS:
        at = tensors.to_int(w, index).leaf
    else:
        refuse(f"an item of a list at {index.type} has no compiled form")
    many = length(w, x)
    if isinstance(index.known, int):
        at = str(int(index.known)) if index.known >= 0 else w.made(f"add i64 {many}, {at}")
    else:
        below = w.made(f"icmp slt i64 {at}, 0")
        at = w.select(below, "i64", w.made(f"add i64 {at}, {many}"), at)
    w.raise_if(w.made(f"icmp uge i64 {at}, {many}"), IndexError)
    return at


def roomy(w: Writer, x: Value, many: str) -> None:
    """Have room for so many items more, or give up."""
    width = width_of(w, x.type)
    w.shares_lists = True
    w.declared.add("declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)")
    needed = w.made(f"add i64 {length(w, x)}, {many}")
    room = w.made(f"load i64, ptr {word(w, x.leaf, ROOM)}")
    slow, on = w.fresh(), w.fresh()
    w.emit(f"br i1 {w.made(f'icmp ugt i64 {needed}, {room}')}, label %{slow}, label %{on}")
    w.begin(slow)
    grown = w.made(f"call i1 @grown(ptr {x.leaf}, ptr %fuel, i64 {width}, i64 {many})")
    w.emit(f"br i1 {grown}, label %{on}, label %given_up")
    w.begin(on)


def append(w: Writer, x: Value, item: Value) -> None:
    admit(w, x.type, item)
    roomy(w, x, "1")
    at = length(w, x)
    store(w, x, at, item)
    w.emit(f"store i64 {w.made(f'add i64 {at}, 1')}, ptr {x.leaf}")


def insert(w: Writer, x: Value, index: Value, item: Value) -> None:
    """At a place that is brought between the ends."""
    if index.type not in (INT, BOOL):
        refuse(f"an item is inserted at {index.type}")
    admit(w, x.type, item)
    roomy(w, x, "1")
    at, many = numbers.as_int(w, index), length(w, x)
    below = w.made(f"icmp slt i64 {at}, 0")
    at = w.select(below, "i64", w.made(f"add i64 {at}, {many}"), at)
    at = w.select(w.made(f"icmp slt i64 {at}, 0"), "i64", "0", at)
    at = w.select(w.made(f"icmp sgt i64 {at}, {many}"), "i64", many, at)
    shifted(w, x, at, w.made(f"add i64 {at}, 1"), w.made(f"sub i64 {many}, {at}"))
    w.emit(f"store i64 {w.made(f'add i64 {many}, 1')}, ptr {x.leaf}")
    store(w, x, at, item)


def shifted(w: Writer, x: Value, source: str, target: str, many: str) -> None:
    """Move so many items from a place to another."""
    size = w.made(f"mul i64 {many}, {width_of(w, x.type)}")
    w.move(address(w, x, target), address(w, x, source), size)


def removed(w: Writer, x: Value, at: str) -> None:
    """Take the item at a place out."""
    many = w.made(f"sub i64 {length(w, x)}, 1")
    after = w.made(f"add i64 {at}, 1")
    shifted(w, x, after, at, w.made(f"sub i64 {many}, {at}"))
    w.emit(f"store i64 {many}, ptr {x.leaf}")


def pop(w: Writer, x: Value, args: Sequence[Value]) -> Iterator[Value]:
    if args:
        at = place_in(w, x, args[0])
        for item in load(w, x, at):
            removed(w, x, at)
            yield item
        return
    many = length(w, x)
    w.raise_if(w.made(f"icmp eq i64 {many}, 0"), IndexError)
    last = w.made(f"sub i64 {many}, 1")
    w.emit(f"store i64 {last}, ptr {x.leaf}")
    yield from load(w, x, last)


def clear(w: Writer, x: Value) -> None:
    w.emit(f"store i64 0, ptr {x.leaf}")


def repeated(w: Writer, item: Value, many: str) -> Value:
    """``[item] * n``."""
    made = new(w, ())
    admit(w, made.type, item)
    some = w.made(f"icmp sgt i64 {many}, 0")
    many = w.select(some, "i64", many, "0")
    roomy(w, made, many)
    slot = w.slot("i64")
    w.emit(f"store i64 0, ptr {slot}")
    test, body, done = w.fresh(), w.fresh(), w.fresh()
    w.emit(f"br label %{test}")
    w.begin(test)
    at = w.made(f"load i64, ptr {slot}")
    w.emit(f"br i1 {w.made(f'icmp slt i64 {at}, {many}')}, label %{body}, label %{done}")
    w.begin(body)
    store(w, made, at, item)
    w.emit(f"store i64 {w.made(f'add i64 {at}, 1')}, ptr {slot}")
    w.emit(f"br label %{test}")
    w.begin(done)
    w.emit(f"store i64 {many}, ptr {made.leaf}")
    return made
