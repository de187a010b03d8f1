"""What an operation makes of what it has called, where a thread fails in the call, too.

In: the failure, with what the call has given to the threads below. Out: the same with what the
operation gives to them, since what has been called must not run for them again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autobatch.batching.context import Context, RowsFail
from autobatch.values.cells import Cell

Finish = Callable[[Context, Cell], Cell]
"""Goes on with the result of a call, for the threads of a context."""


def finished(context: Context, call: Callable[[], Cell], finish: Finish) -> Cell:
    """What ``finish`` makes of what ``call`` gives."""
    try:
        result = call()
    except RowsFail as failure:
        finish_below(context, failure, finish)
        raise
    return finish(context, result)


def finish_below(context: Context, failure: RowsFail, finish: Finish) -> None:
    """The threads below one that has failed in a call go on with what that gave them."""
    if failure.partial is None:
        return
    rows = rows_below(context, failure)
    part = context.restricted(rows.tolist())
    try:
        failure.partial = finish(part, failure.partial)
        part.flush()
    except RowsFail as first:  # lower than the other, so it comes first
        kept = rows if first.kept is None else rows[first.kept]
        row = int(rows[first.row])
        raise RowsFail(row, first.error, first.partial, first.span, kept) from first.error


def rows_below(context: Context, failure: RowsFail) -> np.ndarray:
    """The rows of the threads to which a call has given something, though one has failed."""
    if failure.kept is not None:
        return failure.kept
    return np.flatnonzero(context.threads < context.threads[failure.row])
