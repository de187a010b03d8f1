"""The passes that make work for each other, run in turn until none of them finds any more.

What folding decides, threading goes past; what that leaves behind is pruned and joined, what is
then not read is dropped, and more can be folded. Each ends by itself: every change takes away a
branch, an edge, a block or an operation, or puts a literal in the place of an operation.

In: a function. Out: one that none of the passes changes. The verifier runs after each change, so
that a fault names the pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autobatch.ir.program import Function
from autobatch.ir.verifier import check
from autobatch.passes.dead_code import drop_dead_code
from autobatch.passes.folding import fold_constants
from autobatch.passes.jumps import thread_jumps
from autobatch.passes.simplify import simplify

ROUND: tuple[Callable[[Function], Function], ...] = (
    simplify,
    fold_constants,
    thread_jumps,
    drop_dead_code,
)
MOST = 100
"""Rounds, in case two passes should ever undo each other's work."""


def clean_up(function: Function) -> Function:
    """The function after the passes of ``ROUND``, as often as they find something."""
    for _ in range(MOST):
        before = function
        for each in ROUND:
            made = each(function)
            if made.blocks != function.blocks:
                function = replace(made, live_in=())
                check(function, each.__name__)
        if function is before:
            break
    return function
