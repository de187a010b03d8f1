"""What plain Python takes for a call, measured on some of its threads.

In: a call that computes with tensors and is kept together, for now. Out: the seconds that plain
Python takes for all of its threads, and, noted with the function, whether calls of its kind are
better run so (``runs.trial`` decides). Nobody sees that threads run once more: that is proved.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from time import thread_time

import numpy as np
import torch

from autobatch.alone.beginning import goes_on
from autobatch.alone.computing import need_gradients
from autobatch.alone.contents import Contents
from autobatch.alone.kinds import NotAlone
from autobatch.alone.proof import Proof
from autobatch.alone.running import Alone, Asked, Outline, note, run, worth_it
from autobatch.compat import outside_levels
from autobatch.runs.trial import Trial

PART = 0.1
"""What measuring takes, of what a run has, if a thread is not dear."""
LEAST = 0.002
"""Seconds that it may take in any case."""
MOST_MEASURED = 16
"""Threads."""
FEW, WITH_BACKWARD = 8, 2
"""Threads past which a backward counts, and how many times as long plain Python takes with it: it
goes through nodes of each thread, in 1.1 to 1.5 times what the forward takes (a mixture of experts,
a neural Turing machine, at 64), where one for all takes a fifth of that.
"""
SURE = 3
"""How often a call is measured to be none to run alone, until that is taken to be so."""


@dataclass(slots=True, eq=False, repr=False)
class Kind:
    """A call among those like it, as ``runs.trial`` asks of it; ``plain`` has been measured.

    It is asked within blocks, under their modes and functorch's levels, which wrap what is made;
    ``gradients``: whether the call is without one.
    """

    asked: Asked
    gradients: bool
    outline: Outline
    plain: float | None = None

    @classmethod
    def of(cls, asked: Asked) -> Kind:
        return cls(asked, torch.is_grad_enabled(), asked.outline)

    @property
    def is_open(self) -> bool:
        """Whether it may be proved and measured that plain Python is better; it may not often."""
        asked = self.asked
        size, times = asked.findings.together.get(self.outline, (0, 0))
        if asked.batch.size >= size and times >= SURE:
            return False
        return not asked.findings.refused.holds((True, self.outline))

    @contextmanager
    def as_called(self) -> Iterator[None]:
        with outside_levels(), torch.set_grad_enabled(self.gradients):
            yield

    def may_end(self) -> bool:
        with self.as_called():
            proof = worth_it(self.asked, computes=True)
        if proof is None:
            return False
        note(self.asked.findings.apart, self.outline, self.asked.batch.size)
        return proof.prints is None  # else somebody may have seen the run

    def plain_seconds(self, spent: float) -> float | None:
        asked = self.asked
        if self.plain is None:
            with self.as_called():
                some = measured(asked, asked.findings.slower.get(self.outline, False))
                proof = worth_it(some, True, self.outline)
                if proof is not None:
                    self.plain = seconds(some, proof, spent, asked.batch.size)
        return self.plain

    def in_all(self, spent: float) -> float:
        before = self.asked.findings.spent
        note(before, self.outline, before.get(self.outline, 0.0) + spent)
        return before[self.outline]

    def counts_anew(self) -> None:
        note(self.asked.findings.spent, self.outline, 0.0)

    def again(self, slower: bool) -> bool:
        found, outline = self.asked.findings.slower, self.outline
        before = found.get(outline, False)
        note(found, outline, slower)
        return slower and before

    def stays(self) -> None:
        found, asked = self.asked.findings.together, self.asked
        size, times = found.get(self.outline, (asked.batch.size, 0))
        note(found, self.outline, (min(size, asked.batch.size), times + 1))


def measured(asked: Asked, again: bool) -> Asked:
    """The threads that may be measured: only what these hold is looked through.

    Measured ``again``, they are others.
    """
    return asked.some(spread(asked.batch.size, MOST_MEASURED, 0.75 if again else 0.25))


def spread(size: int, count: int, begin: float) -> np.ndarray:
    """So many indices of some, or all, from one end to the other."""
    count = min(size, count)
    return ((np.arange(count) + begin) * size / count).astype(np.int64)


def seconds(some: Asked, proof: Proof, spent: float, size: int) -> float:
    """What plain Python takes for so many threads as one of ``some``, and then others, take."""
    one, found = timed(some.some(np.array([some.batch.size // 2])), proof)
    whole = size * WITH_BACKWARD if size > FEW and gives_gradients(proof, found) else size
    count = min(some.batch.size, int(max(PART * spent, LEAST) / one))
    if not count:
        return whole * one
    taken, _ = timed(some.some(spread(some.batch.size, count, 0.5)), proof)
    return whole * taken / count


def timed(asked: Asked, proof: Proof) -> tuple[float, Alone]:
    """What plain Python takes, and gives; of threads that it gives up, no time is worth it."""
    begin = thread_time()
    found = run(asked, proof)
    return inf if found.printed else max(thread_time() - begin, 1e-9), found


def gives_gradients(proof: Proof, found: Alone) -> bool:
    """Whether a backward may go through what threads have given."""
    contents = Contents(takes_tensors=True)
    try:
        contents.nature(found.items)
    except NotAlone:  # something that is not known holds some, perhaps
        return proof.attached
    return need_gradients(contents.tensors)


def trial(asked: Asked) -> Trial | None:
    """What finds out whether a call that computes with tensors is better run alone after all.

    None where that is known, or where it must not.
    """
    goes_on(asked)
    if asked.is_apart or not asked.may_compute():
        return None
    call = Kind.of(asked)
    same_each_time = torch.are_deterministic_algorithms_enabled()  # to the last bit
    return Trial.measured(call) if call.is_open and not same_each_time else Trial(call)
