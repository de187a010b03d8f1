"""Operations that begin an update of what is then written: ``x[i] += v``, ``m.c = m.c + v``.

In: a ``Function``. Out: the operations whose result only goes into the place that an operand of
theirs comes from:

- ``x[i]`` of ``x[i] += v``: read to be written again;
- ``max(m.c, v)`` of ``m.c = max(m.c, v)`` or ``c.copy_(max(c, v))``, and a sum, difference or
  product in its place.

Where the place is a tensor that all threads share, such an operation is put off, and the write does
it once for all of them (``batching.merging``). That the place is the same one is seen here by how
it is named, and made sure of as it runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from autobatch.ir.dataflow import op_reads, terminator_reads
from autobatch.ir.definitions import Definitions, definitions_of
from autobatch.ir.program import Block, Function, Op, Var

OPERATORS = ("add", "sub", "mul")
INPLACE = tuple(f"i{name}" for name in OPERATORS)
Name = tuple[object, ...]


def updates_of(function: Function) -> frozenset[int]:
    """The ids of the operations that begin an update."""
    reads = Counter(name for block in function.blocks for name in reads_of(block))
    definitions = definitions_of(function)
    return frozenset(
        id(begun)
        for block in function.blocks
        for op in block.ops
        for begun in begun_by(op, definitions)
        if all(reads[out] == 1 for out in begun.outs)
    )


def reads_of(block: Block) -> Iterator[Var]:
    for op in block.ops:
        yield from op_reads(op)
    yield from terminator_reads(block.terminator)


def begun_by(op: Op, definitions: Definitions) -> Iterator[Op]:
    """The operation that begins the update which ``op`` ends, if it ends one."""
    if op.name == "setitem":
        base, index, item = op.args
        last = definitions.get(item)
        first = definitions.get(last.args[0]) if last and last.name in INPLACE else None
        if first is not None and first.name == "getitem" and first.args == (base, index):
            yield first
    elif op.name == "setattr":
        base, item = op.args
        place: Name = ("getattr", op.attr, named(base, definitions))
        yield from merging(item, place, definitions)
    elif op.name == "call" and len(op.args) == 2:
        method = definitions.get(op.args[0])
        if method is not None and method.name == "getattr" and method.attr == "copy_":
            yield from merging(op.args[1], named(method.args[0], definitions), definitions)


def merging(item: Var, place: Name, definitions: Definitions) -> Iterator[Op]:
    """What merges the content of a place with something, if that is what ``item`` is."""
    op = definitions.get(item)
    if op is None or op.name not in (*OPERATORS, "call"):
        return
    operands = op.args
    if op.name == "call":
        method = definitions.get(op.args[0])
        of = method.args if method is not None and method.name == "getattr" else ()
        operands = (*of, *op.args[1:])
    if any(named(operand, definitions) == place for operand in operands):
        yield op


def named(variable: Var, definitions: Definitions) -> Name:
    """What a variable is called in the program, as far as it has one definition."""
    op = definitions.get(variable)
    if op is None:
        return ("variable", variable)
    if op.name == "copy":
        return named(op.args[0], definitions)
    if op.name in ("global", "load_free", "getattr"):
        return (op.name, op.attr, *(named(arg, definitions) for arg in op.args))
    return ("variable", variable)
