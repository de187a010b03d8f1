"""Asserts and prints go, on request: what ``python -O`` leaves out, and output.

Before:                                  After:

    b0: %1 = gt x, %0                        b0: jump b2
        branch %1 ? b2 : b1
    b1: %2 = assertion                       b1: %2 = assertion
        raise %2                                 raise %2
    b2: %3 = global print                    b2: %3 = global print
        %4 = call %3(x)                          %4 = const None
        return x                                 return x

An assert goes with all that its test and its message compute, unless that assigns a variable of the
user's. ``assert False`` stays: nothing behind it has been lowered. Of a ``print``, by that name,
the arguments are still computed. No pass of the pipeline:
``passes=["strip_debug", *autobatch.passes.PIPELINE]``.
"""

from __future__ import annotations

from dataclasses import replace

from autobatch.ir.dataflow import op_writes
from autobatch.ir.program import Block, Function, Jump, Op, Raise
from autobatch.source import Span


def strip_debug(function: Function) -> Function:
    """The function without asserts and prints."""
    for place in asserts(function):
        function = without_assert(function, place)
    return without_prints(function)


def asserts(function: Function) -> list[Span]:
    """Where asserts stand, by the blocks that raise what they do."""
    return [
        block.terminator.span
        for block in function.blocks
        if isinstance(block.terminator, Raise)
        and any(block.terminator.exception in op.outs for op in block.ops if op.name == "assertion")
    ]


def without_assert(function: Function, place: Span) -> Function:
    """The function without what stands in an assert: all its tests go on to what follows it."""
    inside = [at for at, b in enumerate(function.blocks) if is_within(b.terminator.span, place)]
    passed = {
        target
        for label in inside
        for target in function.blocks[label].targets()
        if not is_part(function.blocks[target], place)
    }
    if len(passed) != 1 or assigned_within(function, place):
        return function
    (target,) = passed
    blocks = list(function.blocks)
    for label in inside:
        block = blocks[label]
        if not isinstance(block.terminator, Raise):
            ops = tuple(op for op in block.ops if not is_within(op.span, place))
            end = Jump(target, block.terminator.span)
            blocks[label] = replace(block, ops=ops, terminator=end, converted=None)
    return replace(function, blocks=tuple(blocks))


def is_part(block: Block, place: Span) -> bool:
    """Whether all that a block does stands in a place."""
    return all(is_within(record.span, place) for record in (*block.ops, block.terminator))


def assigned_within(function: Function, place: Span) -> bool:
    """Whether a place assigns variables of the user's."""
    for block in function.blocks:
        names = [name for op in block.ops if is_within(op.span, place) for name in op_writes(op)]
        if any(not name.startswith("%") for name in names):
            return True
    return False


def is_within(span: Span, place: Span) -> bool:
    if span.file != place.file or span.caller != place.caller:
        return False
    start = (span.line, span.column) >= (place.line, place.column)
    return start and (span.end_line, span.end_column) <= (place.end_line, place.end_column)


def without_prints(function: Function) -> Function:
    prints = {
        op.outs[0]
        for block in function.blocks
        for op in block.ops
        if op.name == "global" and op.attr == "print" and op.outs[0].startswith("%")
    }

    def silent(op: Op) -> Op:
        if op.name != "call" or op.args[0] not in prints:
            return op
        return Op("const", op.outs, (), None, op.span)

    blocks = (replace(block, ops=tuple(map(silent, block.ops))) for block in function.blocks)
    return replace(function, blocks=tuple(blocks))
