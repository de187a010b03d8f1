"""The pipeline of passes, and the driver that runs it.

A pass takes a ``Function`` and gives one that means the same; it need not look at nested functions,
since the driver hands them over first. The verifier runs on what comes in and after every pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from autobatch.ir.program import Block, Function, Op
from autobatch.ir.verifier import check
from autobatch.passes.hoisting import hoist_constants
from autobatch.passes.if_conversion import convert_ifs
from autobatch.passes.layout import order_blocks
from autobatch.passes.liveness import annotate_liveness
from autobatch.passes.rotation import rotate_loops
from autobatch.passes.simplify import simplify

Pass = Callable[[Function], Function]

PIPELINE: tuple[Pass, ...] = (
    simplify,
    hoist_constants,
    simplify,
    rotate_loops,
    simplify,
    order_blocks,
    simplify,
    convert_ifs,
    annotate_liveness,
)


def run_passes(function: Function, passes: Sequence[Pass] = PIPELINE) -> Function:
    """``function``, and the functions nested in it, after ``passes`` in order."""
    function = apply_pass(without_converted, function)
    check(function, "lowering")
    for each in passes:
        function = apply_pass(each, function)
        check(function, each.__name__)
    return function


def without_converted(function: Function) -> Function:
    """The function as it was before if-conversion, whose result passes need not keep up."""
    return replace(function, blocks=tuple(replace(b, converted=None) for b in function.blocks))


def apply_pass(each: Pass, function: Function) -> Function:
    """One pass over ``function``, its nested functions first."""
    if not function.nested:
        return each(function)
    nested = tuple(apply_pass(each, inner) for inner in function.nested)
    new = {id(old): inner for old, inner in zip(function.nested, nested, strict=True)}
    blocks = tuple(_with_nested(block, new) for block in function.blocks)
    return each(replace(function, nested=nested, blocks=blocks))


def _with_nested(block: Block, new: dict[int, Function]) -> Block:
    """``block`` with the operations that make nested functions making the new ones."""

    def changed(op: Op) -> Op:
        return replace(op, attr=new[id(op.attr)]) if op.name == "function" else op

    return replace(block, ops=tuple(changed(op) for op in block.ops))


__all__ = [
    "PIPELINE",
    "Pass",
    "annotate_liveness",
    "apply_pass",
    "convert_ifs",
    "hoist_constants",
    "order_blocks",
    "rotate_loops",
    "run_passes",
    "simplify",
]
