"""What the variables of a group hold, as a part that plain Python may run asks of them.

In: the cells of some variables. Out: which of them hold data alone (see ``contents``), what of it
existed before the call, and whether there are objects among it: numbers, and lists of numbers
alone, are better kept together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import CellType, FunctionType, ModuleType
from typing import Any

from torch import Tensor

from autobatch.alone.contents import SCALARS, Contents, compound
from autobatch.alone.kinds import NotAlone, check_class
from autobatch.alone.parts import Held
from autobatch.alone.taint import NONE, OUTER_DEEP, OUTERS, Share
from autobatch.alone.written import may_be_written
from autobatch.batching import known_callees as callees
from autobatch.batching.foreign import Foreign
from autobatch.ir.program import Function, Var
from autobatch.values.cells import (
    BOX,
    CLOSURE,
    DICT_ITERATOR,
    DICT_VIEW,
    DOWN_ITERATOR,
    ENUMERATE_ITERATOR,
    RANGE_ITERATOR,
    SEQUENCE_ITERATOR,
    UNSET,
    ZIP_ITERATOR,
    Cell,
    Column,
    Container,
    Mark,
    Objects,
    Uniform,
    View,
)
from autobatch.values.heap import walks

MARKS = (
    *(BOX, CLOSURE, DICT_ITERATOR, DICT_VIEW, DOWN_ITERATOR, ENUMERATE_ITERATOR),
    *(RANGE_ITERATOR, SEQUENCE_ITERATOR, ZIP_ITERATOR),
)
EMPTY = CellType()
ITERATORS = frozenset(
    {*map(type, map(iter, ([], (), "", {}, set(), range(0), {}.keys(), {}.values(), {}.items())))}
    | {type(reversed([])), zip, enumerate}
)
"""Iterators of Python's that tell what they go through, without being asked for an item."""


@dataclass(slots=True, eq=False, repr=False)
class Own(Contents):
    """The contents of objects that threads have; ``outside``: some of it existed before."""

    foreign: Foreign = field(default_factory=Foreign)
    outside: bool = False
    any_foreign: bool = True

    def is_written(self, part: Any) -> bool:
        kind = type(part)
        if kind is CellType:
            return True
        if kind in ITERATORS:
            if self.any_foreign and self.foreign.holds(part):
                raise NotAlone("an iterator that existed before")
            return True
        if kind in callees.GENERATORS:
            if self.any_foreign and self.foreign.holds(part):
                raise NotAlone("a generator that existed before")
            return True
        return super(Own, self).is_written(part)

    def parts(self, part: Any) -> list[Any]:
        if type(part) is not tuple and self.any_foreign:
            self.outside = self.outside or self.foreign.holds(part)
        if type(part) is CellType:
            return [part.cell_contents] if part != EMPTY else []
        if type(part) in ITERATORS:
            return compound(left_in(part))
        return super(Own, self).parts(part)


def left_in(iterator: Any) -> Any:
    """What an iterator holds, as it tells when it is copied."""
    try:
        return iterator.__reduce__()[1]
    except RuntimeError as error:  # its dict has changed
        raise NotAlone("an iterator that has failed") from error


def may_be_data(cell: Cell | None) -> bool:
    """Whether it may be data, at a glance: no tensor."""
    if cell is None:
        return False
    value = cell.value
    if type(value) is Column:
        return value.tag != "tensor"
    if type(value) is Uniform:
        return not isinstance(value.obj, Tensor)
    return type(value) is not View and (
        type(value) is not Container or type(value.type) is not Mark or value.type in MARKS
    )


def has_objects(cells: Iterable[Cell], lists: bool = False) -> bool:
    """Whether there are objects among it, at a glance; ``lists``: those of numbers count too."""
    waiting, seen = list(cells), set()
    while waiting:
        cell = waiting.pop()
        value = cell.value
        if type(value) is Objects and value.lists is None:
            return True
        if type(value) is Uniform and type(value.obj) in (str, dict, list, tuple, set):
            return True
        if type(value) is Container and id(cell) not in seen:
            seen.add(id(cell))
            if value.type in (dict, set) or (lists and value.type is list):
                return True
            waiting += value.children()
    return False


def differ(cells: Iterable[Cell]) -> bool:
    """Whether anything in it differs by thread: what does not is done once for all of them."""
    whole = (part.value for cell in cells for part in walks.parts(cell))
    return any(type(value) is not Uniform and type(value) is not Container for value in whole)


@dataclass(slots=True, eq=False, repr=False)
class Looking:
    """Looks through the variables of a group; ``is_known`` says which functions a program names."""

    foreign: Foreign
    is_known: Callable[[Var, Any], bool]
    stored: Share = NONE
    callables: dict[int, Any] = field(default_factory=dict)
    classes: set[type] = field(default_factory=set)
    made: dict[int, tuple[Function, Any]] = field(default_factory=dict)
    seen: dict[int, Share] = field(default_factory=dict)

    def held(self, cells: dict[Var, Cell]) -> tuple[Held, list[Var]]:
        """What variables hold, and those that hold no data."""
        shares: list[tuple[Var, Share]] = []
        others: list[Var] = []
        for name, cell in cells.items():
            try:
                shares.append((name, self.share(name, cell)))
            except NotAlone:
                others.append(name)
        callables = tuple(self.callables.values())
        classes, made = frozenset(self.classes), tuple(self.made.values())
        return Held(tuple(shares), self.stored, callables, classes, made), others

    def share(self, name: Var, cell: Cell) -> Share:
        if id(cell) in self.seen:
            return self.seen[id(cell)]
        self.seen[id(cell)] = NONE
        found = self.seen[id(cell)] = self.share_of(name, cell.value)
        return found

    def share_of(self, name: Var, value: Any) -> Share:
        match value:
            case Column(tag="tensor"):
                raise NotAlone("a tensor")
            case Column():
                return NONE
            case Uniform(obj=obj):
                return self.uniform(name, obj, value.shared)
            case Objects(lists=lists) if lists is not None:
                if lists.tag == "tensor":
                    raise NotAlone("lists of tensors")
                return NONE
            case Objects(items=items):
                return self.objects(items)
            case Container():
                return self.container(name, value)
        raise NotAlone("a view")

    def uniform(self, name: Var, obj: Any, shared: bool) -> Share:
        if type(obj) in SCALARS or obj is UNSET:
            return NONE
        if isinstance(obj, ModuleType):
            if self.is_known(name, obj):
                return NONE
            raise NotAlone("a module")
        if callees.is_known(obj):
            self.callables[id(obj)] = obj
            return NONE
        if isinstance(obj, FunctionType | type):
            if self.is_known(name, obj):
                return NONE
            raise NotAlone("a function as a value")
        contents = Contents()
        nature = contents.nature(obj)
        if contents.callables or contents.numpy or (nature and not shared):
            raise NotAlone("functions, or what is not a thread's own")
        self.classes |= contents.classes
        return OUTERS[nature]

    def objects(self, items: list[Any]) -> Share:
        if SCALARS.issuperset(map(type, items)):
            return NONE
        contents = Own(foreign=self.foreign, any_foreign=self.foreign.holds_any)
        contents.nature_of_any(items)
        if contents.callables or contents.numpy:
            raise NotAlone("functions, or arrays")
        self.classes |= contents.classes
        return OUTER_DEEP if contents.outside else NONE

    def container(self, name: Var, value: Container) -> Share:
        kind = value.type
        if isinstance(kind, Mark):
            if kind not in MARKS:
                raise NotAlone("a forked call, or what is bound to something")
            if kind is CLOSURE:
                lowered, namespace, _ = value.static
                if not may_be_written(lowered):
                    raise NotAlone("a function that catches exceptions")
                self.made[id(lowered)] = (lowered, namespace)
        elif kind not in (list, tuple, dict, set, slice, range):
            check_class(kind)
            self.classes.add(kind)
        for child in value.children():
            self.stored |= self.share("", child)
        return NONE if not self.stored else OUTER_DEEP
