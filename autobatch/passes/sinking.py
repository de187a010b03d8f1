"""The method of a list that grows is looked up where it is called, not before its argument.

Before:                          After:

    %1 = getattr[append] ys          %2 = mul y, i
    %2 = mul y, i                    %3 = call %5(%2)
    %3 = call %5(%2)                 %1 = getattr[append] ys
    %4 = call %1(%3)                 %4 = call %1(%3)

So a block of a loop that ends by appending is one stretch and its tail (``vm.tails``). Only of a
list that the function makes by a display, in one place: looking that up neither fails nor runs
anything, and it is the same list until its variable is assigned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import is_

from autobatch.ir.dataflow import op_writes
from autobatch.ir.definitions import Definitions, definitions_of
from autobatch.ir.program import Block, Function, Op, Var


def sink_methods(function: Function) -> Function:
    """The function with each such look-up before the call that it is for."""
    if not any(is_append(op) for block in function.blocks for op in block.ops):
        return function
    definitions = definitions_of(function)
    return replace(function, blocks=tuple(sunk(block, definitions) for block in function.blocks))


def is_append(op: Op) -> bool:
    return op.name == "getattr" and op.attr == "append"


def sunk(block: Block, definitions: Definitions) -> Block:
    ops = list(block.ops)
    for op in block.ops:
        if not (is_append(op) and is_list(op.args[0], definitions)):
            continue
        at = next(place for place, each in enumerate(ops) if each is op)
        call = reader(ops, at, op.outs[0])
        if call is not None and not is_written(ops[at + 1 : call], (*op.args, *op.outs)):
            ops.insert(call, op)
            del ops[at]
    return block if all(map(is_, ops, block.ops)) else replace(block, ops=tuple(ops))


def is_list(name: Var, definitions: Definitions) -> bool:
    """Whether a variable always holds a list that a display has made."""
    made = definitions.get(name)
    while made is not None and made.name == "copy":
        made = definitions.get(made.args[0])
    return made is not None and made.name == "list"


def reader(ops: Sequence[Op], at: int, name: Var) -> int | None:
    """The place of the first operation that reads a variable after a place."""
    return next((n for n in range(at + 1, len(ops)) if name in ops[n].args), None)


def is_written(ops: Sequence[Op], names: Sequence[Var]) -> bool:
    return any(name in op_writes(op) for op in ops for name in names)
