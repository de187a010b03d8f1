"""What is known of the rows that backwards needed, and of those that they needed of gradients.

A *place* is where a gradient comes by, in the backward of an operation or, for gradients of
gradients, in that of a gradient. ``Known`` is what one backward has come to. A gradient of a run is
made of what the run's results needed, so the rows of it that somebody needed are those of the
results: a backward that comes by the gradients of an earlier one asks that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from autobatch.presence.masks import Mask
from autobatch.presence.walk import Edge, Reached, needed


@dataclass(slots=True, eq=False, repr=False)
class Known:
    """One backward: ``roots`` are the results that it has come by.

    ``lent`` are backwards whose gradients it has come by, all rows of them. Of one whose gradients
    are marked where they leave (``is_marked``) the graph tells which rows. ``arrived`` are
    gradients that somebody may ask for while it runs.
    """

    roots: list[Edge] = field(default_factory=list)
    lent: list[Known] = field(default_factory=list)
    is_marked: bool = False
    arrived: dict[Any, Any] = field(default_factory=dict)
    count: int = 0
    found: dict[bytes | None, Reached] = field(default_factory=dict)

    def reached(self, rows: Mask) -> Reached:
        """What the results needed, or some rows of them."""
        if self.count != len(self.roots):
            self.count, self.found = len(self.roots), {}
        key = None if rows is None else rows.tobytes()
        if key not in self.found:
            self.found[key] = needed(self.roots, rows)
        return self.found[key]

    def lend(self, other: Known) -> None:
        if not other.is_marked and all(other is not one for one in self.lent):
            self.lent.append(other)

    def earlier(self, rows: Mask) -> dict[Known, Mask]:
        """The backwards whose gradients it has come by, and which rows of these."""
        found: dict[Known, Mask] = dict.fromkeys(self.lent)
        return {**found, **self.reached(rows).gradients}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Place:
    """An operand or a result of an operation; its nodes, one in each graph, are noted as such."""

    def masks(self, known: Known, rows: Mask = None) -> list[Mask]:
        """Which rows were needed, each way that is known of; none if nobody has."""
        here = known.reached(rows).masks
        found = [here[self]] if self in here else []
        for other, part in known.earlier(rows).items():
            found += self.masks(other, part)
        return found


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Again:
    """The gradient that a backward, ``known``, has had at a place."""

    place: Place | Again
    known: Known

    def masks(self, known: Known, rows: Mask = None) -> list[Mask]:
        earlier = known.earlier(rows)
        return self.place.masks(self.known, earlier[self.known]) if self.known in earlier else []
