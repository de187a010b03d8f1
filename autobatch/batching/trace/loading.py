"""Whether a first recording may wait, since torch's tracing takes long to load.

Fake tensors import ``torch._dynamo``, which takes a process as long as 25,000 operations spare
once they are replayed (2.5 seconds where that is 70 to 130 microseconds each; 12 programs of
``programs/``, 64 threads; 70 in a Nelder-Mead and an RNN-T's greedy search). A short job is over
before that has paid. As with skis that one rents before one buys them, a process that has not
loaded it yet runs ``WAIT`` operations first: by count, so that it is the same on any machine, and
fewer than 25,000, since who calls a function a few times to warm it up expects it to be warm then.
Counted are those that launch kernels, as far as their names tell (``ir.ops.LAUNCHES``): what looks
at objects, or builds a tuple, costs no more for not being replayed.

It cannot be done without: nearly all of torch's shape rules are wrapped in functions that load it
(``torch._prims_common.wrappers``), those of ``a + b`` among them.
"""

from __future__ import annotations

import sys

WAIT = 10_000
"""Operations that run before what records them is loaded: in less than half of what that takes."""

_left = WAIT


def is_loaded() -> bool:
    return "torch._dynamo" in sys.modules


def may_wait(operations: int) -> bool:
    """Whether these, which a recording would spare, are to run without it; they are counted."""
    global _left
    if is_loaded():
        return False
    _left -= operations
    return _left > 0
