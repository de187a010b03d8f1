"""The operations that packed values have as a whole, in the order in which they are asked."""

from __future__ import annotations

from typing import Any

from autobatch.batching.context import Context
from autobatch.batching.tables import joins, places, products, reductions, rowwise, scans
from autobatch.values.cells import Cell

RULES = (
    *(rowwise.apply, reductions.apply, places.apply),
    *(joins.apply, scans.apply, products.apply),
)


def apply(
    context: Context, function: Any, args: list[Cell], kwargs: dict[str, Cell]
) -> Cell | None:
    """``function`` on the rows of all threads at once; None where no rule knows it so."""
    for rule in RULES:
        done = rule(context, function, args, kwargs)
        if done is not None:
            return done
    return None
