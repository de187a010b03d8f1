"""The first calls of few threads, which are over before anything would have been recorded.

A first call that is recorded takes from a tenth of a second to two, where plain Python takes seven
threads some milliseconds. In: a call that computes with tensors, of which it is proved
that nobody sees who runs it. Out: what its threads return (``Alone``), or None where it goes the
general way: after so many calls, once one has gone that way, or if its first thread foretells that
all take longer than recordings do. So a script that calls a function once has its results at once,
and one that goes on calls it together after a count that no clock decides, so that its floats are
rounded alike in every run. Whoever counts, or asks for warnings, wants to see the general way.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from autobatch.alone.computing import Limits
from autobatch.alone.running import Alone, Asked, is_much, note, run, worth_it
from autobatch.listeners import is_counting
from autobatch.runs.trial import is_measuring

CALLS = 3
"""Calls of a kind that begin so: who measures warms up so often, and then is to see what lasts."""
MOST_THREADS = 64
SECONDS = 0.25
"""What one of them may take: first calls of 37 textbook programs took 0.02 to 2.2, 0.35 half of
them, on 7 threads."""


def begun(asked: Asked) -> Alone | None:
    """What the threads return, where it is one of the first calls; else None."""
    if not may_begin(asked):
        return None
    found, outline = asked.findings.begun, asked.outline
    before = found.get(outline, 0)
    if before >= CALLS:
        return None
    limits = Limits.of(asked.batch.size, asked.options.save == "keep", begins=True)
    asked = replace(asked, limits=limits)
    proof = worth_it(asked, computes=True) if asked.may_compute() else None
    if proof is None or proof.prints is not None or proof.is_alone:
        return None
    done = run(asked, proof, SECONDS)
    is_no_use = done.is_long or is_much(done.printed, asked.batch.size)
    note(found, outline, CALLS if is_no_use else before + 1)
    return None if is_no_use else done


def may_begin(asked: Asked) -> bool:
    return (
        asked.batch.size <= MOST_THREADS
        and asked.options.may_begin_plainly
        and is_measuring()
        and not is_counting()
        and not torch.are_deterministic_algorithms_enabled()
    )


def goes_on(asked: Asked) -> None:
    """Note that such calls go the general way from now on."""
    note(asked.findings.begun, asked.outline, CALLS)
