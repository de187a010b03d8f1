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

from typing import Any

from autobatch.batching import generators, guards
from autobatch.batching.calling.resolving import Target
from autobatch.batching.context import Context
from autobatch.batching.generators import ATOMS, Given
from autobatch.batching.host.own_methods import classes
from autobatch.batching.host.rows import run_rows
from autobatch.batching.kinds import is_number_column
from autobatch.batching.trace import Untraceable
from autobatch.values.cells import Cell, Container, Objects, Uniform, read
from autobatch.values.heap import walks

WHY = "a generator is no program: Python runs it"


def call(context: Context, target: Target) -> Cell:
    """The generators of a call, each of a thread's own."""
    function, services = target.callee, context.services
    if services.handing is None:
        raise Untraceable("it makes a generator")
    args, kwargs = target.args, target.kwargs
    for cell in (*args, *kwargs.values()):
        guards.refuse_iterator(context, cell)
    kinds = {kind for kind, _ in classes([*args, *kwargs.values()], True, True)}
    given = Given.of(function, kinds, args, kwargs, is_atom, is_data, meant)
    services.handing.refuse_generator(function, given)
    return run_rows(context, function, args, kwargs, WHY, keep=True, fresh=False, effect=False)


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
        case Objects(lists=None, items=items):
            return all(map(generators.is_data, items))
    return is_number_column(value)


def meant(cell: Cell) -> object:
    return getattr(read(cell), "obj", None)
