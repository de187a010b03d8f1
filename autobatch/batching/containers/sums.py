"""``sum`` on cells: additions, and beside those of floats what they lose (see ``ir.sums``).

What a thread's sum has lost goes by the types of what it has added. Where these are the same in all
threads so is its kind: None or ``0`` for all of them, or a column beside the column of totals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from autobatch.batching import arithmetic
from autobatch.batching.context import Context
from autobatch.batching.host.rows import run_rows
from autobatch.batching.operators import binary, once
from autobatch.ir import sums
from autobatch.values.cells import Cell, Column, Objects, Uniform, Value, read, uniform

TYPES: dict[str, type] = {"int": int, "float": float, "bool": bool, "tensor": Tensor}
"""Of what columns are tagged as."""
NUMBERS = (int, float, complex)


def summed(context: Context, parts: list[Cell], total: Cell) -> Cell:
    """``sum(parts, total)``."""
    lost = begun(context, total)
    if not sums.COMPENSATED:
        for part in parts:
            total = binary(context, "add", total, part)
        return total
    for part in parts:
        total = left(context, total, lost, part)
        after = binary(context, "add", total, part)
        lost, total = lost_by(context, lost, total, part, after), after
    return whole(context, total, lost)


def begun(context: Context, start: Cell) -> Cell:
    value = read(start)
    if type(value) is Objects and not is_plain(value):
        return by_rows(context, sums.begun, start)
    if type(value) is Uniform:
        return once(context, sums.begun, value.obj)
    return beside(type_of(value), 0 if type_of(value) is int else None)


def beside(kind: type, otherwise: object) -> Cell:
    """What is lost where a total has just become a number of some type, or something else."""
    if kind in (float, complex):
        return uniform(sums.begun(kind()))
    return uniform(otherwise)


def left(context: Context, total: Cell, lost: Cell, item: Cell) -> Cell:
    state, value = read(lost), read(item)
    if not sums.WHOLE_WHEN_LEFT or is_beginning(state):
        return total
    if type(state) is Objects or (type(value) is Objects and not is_plain(value)):
        return by_rows(context, sums.left, total, lost, item)
    return total if goes_on(state, value) else whole(context, total, lost)


def is_beginning(state: Value) -> bool:
    """Whether there is nothing beside the totals of all threads."""
    if type(state) is Column:
        return state.tag == "int"
    return type(state) is Uniform and (state.obj is None or type(state.obj) is int)


def goes_on(state: Value, item: Value) -> bool:
    """``sums.goes_on``, of all threads."""
    lost = state.obj if type(state) is Uniform else 0.0
    if type(item) is Uniform:
        return sums.goes_on(lost, item.obj)
    return type_of(item) in (float, int, bool)


def lost_by(context: Context, lost: Cell, total: Cell, item: Cell, after: Cell) -> Cell:
    state, value, made = read(lost), read(item), read(after)
    if type(state) is Uniform and state.obj is None:
        return lost
    cells = (lost, total, item, after)
    found = [read(cell) for cell in cells]
    if all(type(each) is Uniform for each in found):
        return uniform(sums.lost_by(*(each.obj for each in found)))  # type: ignore[union-attr]
    if any(type(each) is Objects and not is_plain(each) for each in (state, value, made)):
        return by_rows(context, sums.lost_by, *cells)
    if is_beginning(state):
        return lost_by_ints(lost, value, made)
    if not goes_on(state, value):
        return beside(type_of(made), None) if type_of(made) is complex else uniform(None)
    if type_of(value) is not float and not sums.COMPENSATED_INTS:
        return lost
    done = arithmetic.apply(context, "sum_lost", sums.lost_by, cells)
    return by_rows(context, sums.lost_by, *cells) if done is None else done


def lost_by_ints(lost: Cell, item: Value, after: Value) -> Cell:
    """The same, where all threads have added ints so far."""
    if type_of(item) not in (int, bool):
        return beside(type_of(after), None)
    numbers = [value.obj for value in (item, after) if type(value) is Uniform]
    return lost if all(map(sums.fits, numbers)) else uniform(None)


def whole(context: Context, total: Cell, lost: Cell) -> Cell:
    state, value = read(lost), read(total)
    if is_beginning(state) or (type(state) is Uniform and not state.obj):
        return total
    if type(state) is Uniform and type(value) is Uniform:
        return uniform(sums.whole(value.obj, state.obj))
    done = arithmetic.apply(context, "sum_whole", sums.whole, (total, lost))
    return by_rows(context, sums.whole, total, lost) if done is None else done


def by_rows(context: Context, meaning: Callable[..., Any], *cells: Cell) -> Cell:
    why = "the numbers that are added up are of several types"
    return run_rows(context, meaning, cells, {}, why, fresh=False, effect=False)


def is_plain(value: Objects) -> bool:
    """Whether it makes no difference which of some objects a thread has."""
    told = (*sums.STRINGS, *NUMBERS) if sums.COMPENSATED else sums.STRINGS
    return not any(issubclass(kind, told) for kind in value.kinds)


def type_of(value: Value) -> type:
    """The type of what all threads have, if that is a number's; else any that no number has."""
    if type(value) is Column:
        return TYPES[value.tag]
    return type(value.obj) if type(value) is Uniform else object
