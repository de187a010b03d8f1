"""The recording budget of a place: a signature is recorded once it has been met often enough.

A recording costs as much as some hundred operations that run one by one, so it pays only for a
signature that comes again. The rule goes by counts alone, so that it does the same on any
machine: **every recording of a place doubles how often the next signature must be met there,
from ``trace_after`` up to sixteen times that; after four that differ in event shapes and lengths
of lists only, others like them must be met 32 times that.** So what grows without end runs
untraced, and the lengths that each decoding of a text goes through are recorded in time. With a
``trace_after`` of zero there are four. Signatures that never come again (of a module that is made
anew for each call, say) thus use up nothing.

That a place waits, too, until it has run as long as a recording takes was tried: of k-means++ with
a seed the first call took half the time, but loops with a place that each call comes to once did
not glide for a hundred calls (Mandelbrot at 1,024: 1.3 to 1.9 times as long).
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


@dataclass(slots=True, eq=False, repr=False)
class Budget:
    """What one place has recorded, and how often it has met what it has not.

    ``reached`` counts all executions until the first recording: that is due whatever comes then.
    """

    reached: int = 0
    recordings: int = 0
    met: dict[Hashable, int] = field(default_factory=dict)
    families: dict[Hashable, int] = field(default_factory=dict)

    def is_cold(self, trace_after: int) -> bool:
        """Whether the place has been reached too seldom for any recording."""
        self.reached += 1
        return self.reached <= trace_after

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
