"""What a loop's replays compute of what the loop leaves alone: once, and kept from lap to lap.

``torch.tanh(self.W @ h + self.U @ x)`` multiplies ``U`` and ``x`` in each lap. A lap's graph is
taken in two (``trace.halving``), and while the same threads go round with the same tensors, only
the second half is replayed. Of threads that leave, the rows are dropped from what is kept, as from
any variable; where a gradient is wanted, or rows do not come first, the first half runs again.

Seven operations of a lap, three of them on what it leaves alone, on rows of 64 floats: 0.81, 0.70
and 0.53 of the time at 8, 64 and 1,024 threads in lockstep, 0.84, 1.03 and 0.79 where some leave in
nearly every round.

Nothing in a spin writes to a tensor, so a tensor that is the same object holds the same. It runs
where the loop's first lap would have run it, so nothing fails too early. Of random numbers there
are none: recordings hold no draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from operator import is_, itemgetter
from typing import Any

import numpy as np
from torch import Tensor

from autobatch.batching.stretches.executors import Run
from autobatch.batching.trace import Trace
from autobatch.batching.trace.codegen import Replay
from autobatch.batching.trace.graph import Count
from autobatch.batching.trace.halving import halved
from autobatch.compat import on_device

NO_ROWS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Parts:
    """``rest`` takes the inputs of the whole and what ``once`` gives; ``steady`` picks the inputs
    that ``once`` reads. ``of_rows``: each that it gives has a row for each thread first, but for
    the last ``views``, of what all threads share.
    """

    once: Trace
    rest: Trace
    steady: Callable[[Sequence[Any]], Sequence[Any]]
    of_rows: bool
    views: int


def parts_of(run: Run, steady: Set[int]) -> Parts | None:
    """The replay in two, where it is a recording as it stands and that spares kernels."""
    found = halved(run.graph, steady) if type(run) is Trace and steady else None
    if found is None:
        return None
    assert type(run) is Trace
    once, rest = run.printing.trace(found.once), run.printing.trace(found.rest)
    own = len(found.once.outputs) - found.views
    metas = [found.once.metas[out] for out in found.once.outputs[:own]]
    of_rows = all(meta.shape[:1] == (Count(1),) for meta in metas)
    places = sorted(steady)
    return Parts(once, rest, itemgetter(*places, places[0]), of_rows, found.views)


@dataclass(slots=True, eq=False, repr=False)
class Kept:
    """A replay of ``parts``, for one stay in a loop; ``rows`` are those of the threads at work.

    ``made`` is what is kept, for the rows ``of`` and the inputs ``given``; ``kernels`` are those of
    the last replay. While it is ``held``, these are known to be the ones at work.
    """

    parts: Parts
    rows: np.ndarray = field(default_factory=lambda: NO_ROWS)
    of: np.ndarray = field(default_factory=lambda: NO_ROWS)
    given: Sequence[Any] = ()
    made: Sequence[Tensor] = ()
    kernels: int = 0
    held: bool = False

    def __call__(self, k: int, *values: Any) -> Sequence[Tensor]:
        parts = self.parts
        if self.held:
            return parts.rest.replay(k, *values, *self.made)
        given = parts.steady(values)
        self.kernels = parts.rest.kernels
        if len(self.of) != k or not all(map(is_, given, self.given)):
            self.renew(k, values)
            self.of, self.given = self.rows, given
        return parts.rest.replay(k, *values, *self.made)

    def by(self, replay: Replay) -> Run:
        """The same while it is held, by another replay of the second half."""
        return lambda k, *values: replay(k, *values, *self.made)

    def hold(self) -> None:
        """It has run for the threads at work, and they go round with the same tensors."""
        self.held, self.kernels = True, self.parts.rest.kernels

    def let_go(self) -> None:
        self.held = False

    def renew(self, k: int, values: Sequence[Any]) -> None:
        """What is to be kept, for other rows."""
        places = self.places() if k < len(self.of) else None
        if places is None:
            self.made = self.parts.once.replay(k, *values)
            self.kernels += self.parts.once.kernels
            return
        own = self.own
        index = {each.device: on_device(places, each.device) for each in own}
        chosen = [each.index_select(0, index[each.device]) for each in own]
        self.made = [*chosen, *self.made[len(own) :]]
        self.kernels += len(own)

    @property
    def own(self) -> Sequence[Tensor]:
        """What is kept that has a row for each thread."""
        return self.made[: len(self.made) - self.parts.views]

    def places(self) -> np.ndarray | None:
        """Where the rows are in what is kept, if they can be picked from it."""
        if not self.parts.of_rows:
            return None
        if any(each.requires_grad or not each.is_contiguous() for each in self.own):
            return None
        places = self.of.searchsorted(self.rows)
        if not len(places) or places.max() >= len(self.of):
            return None
        same = np.array_equal(self.of[places], self.rows)  # where they are not in order, it is not
        return places if same else None
