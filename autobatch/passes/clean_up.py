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
from itertools import cycle, islice

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
    idle = 0
    for each in islice(cycle(ROUND), MOST * len(ROUND)):
        made = each(function)
        idle += 1
        if made.blocks != function.blocks:
            function, idle = replace(made, live_in=()), 0
            check(function, each.__name__)
        if idle == len(ROUND):
            break
    return function
