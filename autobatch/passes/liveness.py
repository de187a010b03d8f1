"""Notes at each block which variables are live, so that an engine moves no others.

Before: ``live_in`` is empty. After: one set for each block, of the variables whose value at its
start may still be read. The last pass: whatever changes blocks after it must run it again.
"""

from __future__ import annotations

from dataclasses import replace

from autobatch.ir.dataflow import liveness
from autobatch.ir.program import Function


def annotate_liveness(function: Function) -> Function:
    """The function with ``live_in`` filled."""
    return replace(function, live_in=liveness(function.blocks))
