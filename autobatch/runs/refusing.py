"""Refusals that are held for a while: ``Refusals``, of one function.

Finding out that a function has no quicker way may take longer than running it. So a refusal holds
for a call without a look, then for three, seven, …, at most ``MOST_WAITED``. In: an ``outline`` of
a call, what of it can be told at a glance, and how many threads it has. Out: whether it is worth
looking at. Only the way of such a call depends on it, never what the call gives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MOST_WAITED = 1023
"""Calls that a refusal holds for, at most."""
MOST_OUTLINES = 8


@dataclass(slots=True, eq=False, repr=False)
class Refusal:
    """``left`` calls of more than ``over`` threads are not looked at; then, if that is refused
    again, twice as many.
    """

    waited: int = 0
    left: int = 0
    over: int = 0

    def again(self) -> None:
        self.waited = self.left = min(2 * self.waited + 1, MOST_WAITED)


@dataclass(slots=True, eq=False, repr=False)
class Refusals:
    """By the outlines of a function's calls."""

    found: dict[Any, Refusal] = field(default_factory=dict)

    def holds(self, outline: Any, threads: int = 1) -> bool:
        """Whether a call is not worth looking at, which counts as one that was not."""
        refusal = self.found.get(outline)
        if refusal is None or not refusal.left or threads <= refusal.over:
            return False
        refusal.left -= 1
        return True

    def refused(self, outline: Any, over: int = 0) -> None:
        """Such a call, or one of more than ``over`` threads, has been looked at in vain."""
        refusal = self.found.get(outline)
        if refusal is None:
            for old in list(self.found)[: len(self.found) - MOST_OUTLINES + 1]:
                self.found.pop(old, None)
            refusal = self.found[outline] = Refusal()
        refusal.over = over
        refusal.again()

    def lifted(self, outline: Any, threads: int = 1) -> None:
        """Such a call of so many threads is not refused."""
        refusal = self.found.get(outline)
        if refusal is not None and threads > refusal.over:
            self.found.pop(outline, None)
