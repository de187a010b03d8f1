"""What running costs: estimates by a roofline, for a machine.

    seconds = kernels * launch + max(bytes / bandwidth, flops / rate)

(Williams, Waterman and Patterson 2009, "Roofline"). Decisions that change how often blocks run
(whether both ways of a branch are computed, whether rows of threads that have left are) go by
shapes and the constants here alone, never by what was measured: so counts and results are the same
on any machine and in any run. ``explain`` sets measurements and estimates for the machine at hand
(``batching.calibration``) side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

LAUNCH = 1e-6
"""Seconds that a small kernel takes on the host."""
ELEMENT = 0.5e-9
"""Seconds that a cheap kernel takes for one element more, on a core of a CPU."""
MULTIPLICATION = 0.025e-9
"""Seconds that a matrix product takes for one multiplication and addition more, on such a core."""
PARTING = 12e-6
"""Seconds that it takes to part threads at a branch, however few they are."""


@dataclass(frozen=True, slots=True)
class Work:
    """What operations do: kernels that they launch, bytes that these read and write, arithmetic."""

    kernels: int = 0
    moved: int = 0
    flops: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.kernels + other.kernels, self.moved + other.moved, self.flops + other.flops
        )


@dataclass(frozen=True, slots=True)
class Machine:
    """``launch`` in seconds, ``bandwidth`` in bytes a second, ``rate`` in operations a second."""

    launch: float
    bandwidth: float
    rate: float

    def seconds(self, work: Work) -> float:
        """What work takes at least, kernel after kernel."""
        return work.kernels * self.launch + max(work.moved / self.bandwidth, work.flops / self.rate)
