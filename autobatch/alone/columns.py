"""Loops over ``zip(a, b)`` and ``enumerate(a)``, taken for loops over ``a`` and ``b`` themselves.

In: a function as lowered. Out: one in which the calls are gone whose items are only unpacked, at
once: each of these comes out of its own argument, where all that is in tuples is one. So the
modules of ``for cell, (h, c) in zip(self.cells, states)`` are not among the tensors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from autobatch.ir.dataflow import op_reads, op_writes, terminator_reads
from autobatch.ir.definitions import definitions_of
from autobatch.ir.program import Call, Function, Op, Var
from autobatch.vm.purity import Known

KEYWORDS = {zip: frozenset({"strict"}), enumerate: frozenset({"start"})}


@dataclass(frozen=True, slots=True)
class Rows:
    """A call; the iterators over what it gives, their items, and what these come of.

    None in ``columns`` are the numbers of the items.
    """

    call: Op
    iterators: frozenset[Var]
    items: frozenset[Var]
    columns: tuple[Var | None, ...]


def by_columns(known: Known) -> Known:
    """A function of which one looks at each column of its rows."""
    found = next(rows_of(known), None)
    if found is None:
        return known
    blocks = tuple(
        replace(block, ops=tuple(new for op in block.ops for new in in_columns(op, found)))
        for block in known.function.blocks
    )
    function = replace(known.function, blocks=blocks)
    return by_columns(replace(known, function=function, definitions=definitions_of(function)))


def rows_of(known: Known) -> Iterator[Rows]:
    """The calls that can be looked at so."""
    readers, writers = uses(known.function)
    for block in known.function.blocks:
        for op in block.ops:
            columns = columns_of(op, known)
            if columns is None or writers[op.outs[0]] != [op]:
                continue
            iterators = outs_of(readers[op.outs[0]], "iter")
            if iterators is None or any(len(writers[each]) != 1 for each in iterators):
                continue
            firsts = outs_of([each for name in iterators for each in readers[name]], "next")
            items = None if firsts is None else copies(firsts, readers)
            if items is None or not all(
                is_unpacked(item, iterators | items, len(columns), readers, writers)
                for item in items
            ):
                continue
            yield Rows(op, iterators, items, columns)


Uses = defaultdict[Var, list[Op | None]]


def uses(function: Function) -> tuple[Uses, Uses]:
    """The operations that read each variable, and that assign it; None for all else that does."""
    readers: Uses = defaultdict(list)
    writers: Uses = defaultdict(list)
    for param in function.params:
        writers[param.name].append(None)
    for block in function.blocks:
        for op in block.ops:
            for name in op_reads(op):
                readers[name].append(op)
            for name in op_writes(op):
                writers[name].append(op)
        for name in terminator_reads(block.terminator):
            readers[name].append(None)
        if isinstance(block.terminator, Call):
            writers[block.terminator.out].append(None)
    return readers, writers


def columns_of(op: Op, known: Known) -> tuple[Var | None, ...] | None:
    """What an operation puts side by side, if it is a call of ``zip`` or ``enumerate``."""
    callee = known.looked_up(op.args[0]) if op.name == "call" else None
    if callee is not zip and callee is not enumerate:
        return None
    shape = op.attr
    placed = len(shape.positional)
    if any(shape.positional) or not KEYWORDS[callee].issuperset(shape.keywords) or not placed:
        return None
    return op.args[1 : placed + 1] if callee is zip else (None, op.args[1])


def outs_of(ops: list[Op | None], name: str) -> frozenset[Var] | None:
    """What some operations give first, if all are of that name."""
    found = [op.outs[0] for op in ops if op is not None and op.name == name]
    return frozenset(found) if len(found) == len(ops) else None


def copies(names: frozenset[Var], readers: Uses) -> frozenset[Var]:
    """Variables, and those that are assigned them."""
    found = names.union(
        *(op.outs for name in names for op in readers[name] if op is not None and op.name == "copy")
    )
    return names if found == names else copies(found, readers)


def is_unpacked(
    item: Var, sources: frozenset[Var], count: int, readers: Uses, writers: Uses
) -> bool:
    """Whether a variable holds items of some iterators alone, which are only unpacked."""
    for op in writers[item]:
        if op is None or op.name not in ("next", "copy") or op.args[0] not in sources:
            return False
    for op in readers[item]:
        if op is None or op.name not in ("unpack", "copy"):
            return False
        if op.name == "unpack" and (len(op.outs) != count or op.attr.starred):
            return False
    return True


def in_columns(op: Op, rows: Rows) -> Iterator[Op]:
    """An operation on the rows, as one for each column."""
    base = op.args[0] if op.args else None
    if op is rows.call:
        return
    if op.name == "iter" and op.outs[0] in rows.iterators:
        for index, column in enumerate(rows.columns):
            if column is not None:
                yield replace(op, outs=(named(op.outs[0], index),), args=(column,))
    elif op.name == "next" and base in rows.iterators:
        for index, column in enumerate(rows.columns):
            outs = (named(op.outs[0], index), *op.outs[1:])
            if column is not None:
                yield replace(op, outs=outs, args=(named(base, index), *op.args[1:]))
    elif op.name == "copy" and base in rows.items:
        for index, column in enumerate(rows.columns):
            if column is not None:
                outs = (named(op.outs[0], index),)
                yield replace(op, outs=outs, args=(named(base, index),))
    elif op.name == "unpack" and base in rows.items:
        for index, (column, out) in enumerate(zip(rows.columns, op.outs, strict=True)):
            if column is None:
                yield replace(op, name="const", outs=(out,), args=(), attr=0)
            else:
                yield replace(op, name="copy", outs=(out,), args=(named(base, index),), attr=None)
    else:
        yield op


def named(name: Var, index: int) -> Var:
    return f"{name}:{index}"
