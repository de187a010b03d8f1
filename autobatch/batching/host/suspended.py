"""Generators that a program makes by calling a function that yields: Python runs them.

    def squares(n):
        for i in range(n):
            yield i * i

In: a call of such a function. Out: a generator for each thread, whose items are taken thread by
thread. What the function does comes between what other threads do, and as late as its items are
taken; so nobody else may see it: it is looked into as ``frontend.yielding`` lowers it, and the
classes of what it is given are. It shares lists and tensors with the program, which sees and makes
changes as in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from types import CellType, FunctionType
from typing import Any

from autobatch.batching import generators, guards
from autobatch.batching.binding import by_name
from autobatch.batching.calling.resolving import Target
from autobatch.batching.context import Context
from autobatch.batching.generators import ATOMS, Given, named
from autobatch.batching.host import making
from autobatch.batching.host.own_methods import classes
from autobatch.batching.host.rower import Rower, own_memory
from autobatch.batching.host.rows import run_rows
from autobatch.batching.kinds import is_number_column
from autobatch.batching.trace import Untraceable
from autobatch.values.cells import CLOSURE, UNSET, Cell, Container, Objects, Uniform, read
from autobatch.values.heap import walks

WHY = "a generator is no program: Python runs it"


def call(context: Context, target: Target) -> Cell:
    """The generators of a call, each of a thread's own."""
    function, args, kwargs = target.callee, target.args, target.kwargs
    if type(function) is Container:
        return call_made(context, function, args, kwargs)
    refuse(context, function, args, kwargs, {}, ())
    return run_rows(context, function, args, kwargs, WHY, keep=True, fresh=False, effect=False)


def call_made(
    context: Context, value: Container, args: list[Cell], kwargs: dict[str, Cell]
) -> Cell:
    """The same of a function that the program makes."""
    lowered, function = value.static[0], making.bare(value.static)
    count, cells = len(lowered.free), list(value.children())
    defaults = by_name(lowered.params, cells[count:])
    given = {name: cell for name, cell in defaults.items() if name not in named(function, args, {})}
    boxes = dict(zip(lowered.free, cells[:count], strict=True))
    held = {name: cell for name, box in boxes.items() for cell in contents(context, box)}
    refuse(context, function, args, {**given, **kwargs}, held, lowered.yields.lasting)
    context.settle()
    own_memory(context, held.values())
    itself = Cell(value)
    functions = Maker(context).rows(itself)

    def begin(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    begin.__name__ = begin.__qualname__ = function.__qualname__
    args = [Cell(Objects(functions)), *args]
    return run_rows(context, begin, args, kwargs, WHY, keep=True, fresh=False, effect=False)


def refuse(
    context: Context,
    function: FunctionType,
    args: list[Cell],
    kwargs: dict[str, Cell],
    held: dict[str, Cell],
    lasting: Collection[str],
) -> None:
    """Refuse it where others may see what it does, with what it is given and has ``held``."""
    handing = context.services.handing
    if handing is None:
        raise Untraceable("it makes a generator")
    every = [*args, *kwargs.values(), *held.values()]
    for cell in every:
        guards.refuse_iterator(context, cell)
    kinds = {kind for kind, _ in classes(every, True, True)}

    def callee(cell: Cell) -> Hashable:
        value = read(cell)
        if type(value) is Container and value.type is CLOSURE:
            return handing.within(value.static)
        return generators.known_callee(getattr(value, "obj", None))

    handing.refuse_generator(
        function, Given.of(function, kinds, args, kwargs, is_atom, is_data, callee, held, lasting)
    )


def contents(context: Context, box: Cell) -> Iterable[Cell]:
    """What a captured variable holds, but for a function of the program's."""
    value = read(box)
    if type(value) is Objects:
        held = [made for made in map(content, value.items) if made is not UNSET]
        return [Cell(Objects(held))] if held else []
    if type(value) is Uniform and type(value.obj) is CellType:
        found = content(value.obj)
        if value.shared:  # of a function around the program
            context.foreign.note(found)
        return [] if found is UNSET else [Cell(Uniform(found, shared=value.shared))]
    cells = value.children() if type(value) is Container else ()
    return [cell for cell in cells if not is_unset(cell) and not is_made(cell)]


def content(box: CellType) -> Any:
    try:
        return box.cell_contents
    except ValueError:
        return UNSET


def is_made(cell: Cell) -> bool:
    """Whether it is a function of the program's, which is looked into by its name."""
    return type(cell.value) is Container and cell.value.type is CLOSURE


class Maker(Rower):
    """Gives functions that yield as Python's own, with real boxes, which the program has, too.

    Functions stay what they are for the program, and so do the boxes that hold one and nothing else
    ever.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context, keep=True)
        self.lasting: set[int] = set()

    def container(self, cell: Cell, value: Container) -> list[Any]:
        handing = self.context.services.handing
        if value.type is CLOSURE and handing is not None:
            boxes = zip(value.static[0].free, value.children(), strict=False)
            names = handing.lasting(value.static)
            self.lasting.update(id(box) for name, box in boxes if name in names)
        rows = super().container(cell, value)
        if value.type is CLOSURE or id(cell) in self.lasting:
            cell.value = value
        return rows


def is_atom(cell: Cell) -> bool:
    """Whether it is a number or a text of each thread."""
    value = read(cell)
    if type(value) is Objects:
        return value.lists is None and all(kind in ATOMS for kind in value.kinds)
    return is_number_column(value) or (type(value) is Uniform and type(value.obj) in ATOMS)


def is_data(cell: Cell) -> bool:
    """Whether it is numbers and texts of each thread, in containers of Python's."""
    return all(is_of_data(part.value) for part in walks.parts(cell))


def is_of_data(value: Any) -> bool:
    match value:
        case Container(type=kind):
            return kind in (list, tuple, dict, set)
        case Uniform(obj=obj):
            return generators.is_data(obj)
        case Objects(lists=lists) if lists is not None:
            return bool(lists.tag != "tensor")  # a pattern with ``items`` would open their table
        case Objects(items=items):
            return all(map(generators.is_data, items))
    return is_number_column(value)


def is_unset(cell: Cell) -> bool:
    return type(cell.value) is Uniform and cell.value.obj is UNSET
