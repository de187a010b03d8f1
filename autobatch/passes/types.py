"""Notes what operations are known to give, so that the text says it.

Before:                              After:

    b0: i = const 0                      b0: i = const 0
    b1: i = iadd i, i                    b1: i: int = iadd i, i

One of the last passes: the driver takes the note away from a function whose blocks another changes.
"""

from __future__ import annotations

from dataclasses import replace

from autobatch.ir.inference import noted
from autobatch.ir.program import Function


def note_types(function: Function) -> Function:
    """The function with ``types`` filled."""
    return replace(function, types=noted(function))
