"""The recording budget of a place: a signature is recorded once it has been met often enough.

A recording costs as much as some hundred operations that run one by one, so it pays only for a
signature that comes again. The rule goes by counts alone, so that it does the same on any
machine: **every recording of a place doubles how often the next signature must be met there,
from ``trace_after`` up to sixteen times that; after four that differ in event shapes and lengths
of lists only, others like them must be met 32 times that.** So what grows without end runs
untraced, and the lengths that each decoding of a text goes through are recorded in time. With a
``trace_after`` of zero there are four. Signatures that never come again (of a module that is made
anew for each call, say) thus use up nothing.

The executor's own first recording (not with a ``trace_after`` of zero) of a place waits, too, until
``PAID`` operations that launch kernels have run there, 10 to 45 ms against 70 to 130 microseconds
each, or ``FEW_CALLS`` calls have come: k-means++ with a seed for 64 examples took 0.28 s in its
first call that took 0.6 to 0.8, and 0.75 to 0.9 of the time in eight. Without that end to it, loops
with a place that each call comes to once did not glide for a hundred calls (Mandelbrot at 1,024:
1.3 to 1.9 times as long); with it they take what they took, 0.99 and 1.00 (a value loop at 256).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from autobatch.batching.stretches.signature import Signature, shapeless

MOST_SHAPES = 4
MOST_RECORDINGS = 64
LARGEST_FACTOR = 16
PAST_SHAPES = 32
MOST_COUNTED = 256
PAID = 100
"""Operations at a place that take as long as a recording, or a little less."""
FEW_CALLS = 4
"""Calls that come to a place, after which more of them are taken to come."""


@dataclass(slots=True, eq=False, repr=False)
class Budget:
    """What one place has recorded, and how often it has met what it has not.

    ``reached`` counts all executions until the first recording: that is due whatever comes then.
    """

    reached: int = 0
    spent: int = 0
    call: int = 0
    calls: int = 0
    recordings: int = 0
    met: dict[Hashable, int] = field(default_factory=dict)
    families: dict[Hashable, int] = field(default_factory=dict)

    def is_cold(self, trace_after: int) -> bool:
        """Whether the place has been reached too seldom for any recording."""
        self.reached += 1
        return self.reached <= trace_after

    def is_unpaid(self, operations: int, call: int) -> bool:
        """Whether fewer have run here, with these, than a recording takes the time of.

        Not where some calls have come here, the one of this number the last.
        """
        self.spent += max(operations, 1)
        if call != self.call:
            self.call = call
            self.calls += 1
        return self.spent < PAID and self.calls <= FEW_CALLS

    def grants(self, signature: Signature, trace_after: int) -> bool:
        """Whether this signature, met now, is to be recorded; it is noted as recorded then."""
        family = shapeless(signature)
        past = self.families.get(family, 0) >= MOST_SHAPES
        if (past and not trace_after) or self.recordings >= MOST_RECORDINGS:
            return False
        if self.recordings and trace_after:
            factor = PAST_SHAPES if past else min(2**self.recordings, LARGEST_FACTOR)
            if len(self.met) >= MOST_COUNTED:
                self.met.clear()  # most of them never come again
            times = self.met[signature] = self.met.get(signature, 0) + 1
            if times <= trace_after * factor:
                return False
        self.met.pop(signature, None)
        self.recordings += 1
        self.families[family] = self.families.get(family, 0) + 1
        return True
