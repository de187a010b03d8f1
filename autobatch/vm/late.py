"""Rows that fork no more wait for the deepest frame, so that what they have left runs once.

The leaves of a recursion lie at all depths. In a frame of forked calls, a group that has come to
where no call is to follow is *late*: it waits until nothing else is left to run. By then the calls
that the frame's other rows forked have run, in a frame below, which takes up late groups of the
same code as guests, has them run with its own, and hands back what they return. A row is a guest
once at most, and a frame takes up no more than ``MOST`` rows, which keep kernels busy, and which
bound what is alive at once.

In: groups and the blocks that they go on at. Out: those that run now; the returned groups of the
frames that the guests are of. Only frames that a join has begun have late groups: what they run
is pure, and nobody is told of its order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np

from autobatch.values.heap import selecting
from autobatch.vm.calling import Returned
from autobatch.vm.groups import FORKED, Group, Parts
from autobatch.vm.state import Frame, Stages

MOST = 4096
"""Rows of other frames that a frame takes up."""


class Apart(Exception):
    """A frame that goes bottom up has to go depth by depth after all."""


@dataclass(frozen=True, slots=True)
class Guests:
    """Rows of another frame, which are those from ``first`` on in the frame that has taken them."""

    home: Frame
    first: int
    rows: np.ndarray


def parted(
    piece: Returned, order: np.ndarray, ends: Sequence[int]
) -> list[Callable[[np.ndarray], Returned]]:
    """What makes parts of a returned group, given the rows that they are: those between ``ends``
    in ``order``.
    """
    sizes = [stop - start for start, stop in pairwise(ends)]
    cells = None
    if piece.at is None and sum(map(bool, sizes)) > 1:
        cells = selecting.divided(piece.value, order, sizes)
    if cells is not None:
        return [partial(Returned, value=cell) for cell in cells]
    positions = [order[start:stop] for start, stop in pairwise(ends)]
    return [partial(piece.part, positions=at) for at in positions]


@dataclass(slots=True, eq=False, repr=False)
class Late:
    """What a frame has that is late: ``parts`` are its own, until a frame below takes them up.
    Where it goes bottom up, ``stages`` are all that is left to run; ``apart`` says that it is not
    to, nor those below it.

    ``callee`` is what the forked calls call. ``above`` is the frame whose late groups it may take
    up, ``most`` how many rows of it and of those above that one; ``away`` are rows of its own that
    another frame has taken. Once nothing else is left to run, what is late ``is_due``. It is
    ``alone`` once a frame below has taken up all that the frames above had, which run no more until
    this one ends.
    """

    callee: tuple[int, int]
    blocks: frozenset[int]
    above: Frame | None
    most: int
    parts: Parts = field(default_factory=list)
    guests: list[Guests] = field(default_factory=list)
    away: list[np.ndarray] = field(default_factory=list)
    is_due: bool = False
    alone: bool = False
    apart: bool = False
    stages: Stages | None = None

    def elsewhere(self) -> list[np.ndarray]:
        """The rows of the frame that are neither in its queue nor have returned."""
        stages = [] if self.stages is None else self.stages.elsewhere()
        return [*self.away, *(group.rows for _, group in self.parts), *stages]

    def put_aside(self, frame: Frame, parts: Parts) -> Parts:
        """The parts that run now; the others wait."""
        now: Parts = []
        for pc, group in parts:
            if pc in self.blocks and FORKED not in group.env:
                frame.waiting.prune(pc, group)
                self.parts.append((pc, group))
            else:
                now.append((pc, group))
        return now

    def taken_up(self, frame: Frame) -> Parts:
        """The frame's own late groups, and those of frames above, which become its rows; or the
        next stage.
        """
        if self.stages is not None:
            return self.stages.next()
        self.is_due = True
        parts, self.parts = self.parts, []
        room = self.most - sum(group.k for _, group in parts)
        homes = [] if self.alone else list(self.homes(frame))
        for home in homes:
            late = home.late
            assert late is not None
            if not late.parts:
                continue
            width = sum(group.k for _, group in late.parts)
            if width > room:
                return parts
            room -= width
            parts += [(pc, self.invited(frame, home, group)) for pc, group in late.parts]
            late.parts = []
        for home in homes:
            assert home.late is not None
            home.late.alone = True
        return parts

    def homes(self, frame: Frame) -> Iterator[Frame]:
        """The frames of the same function above, the nearest first."""
        above = self.above
        while above is not None and above.late is not None:
            if above.code is not frame.code or above.late.callee != self.callee:
                return
            yield above
            above = above.late.above

    def invited(self, frame: Frame, home: Frame, group: Group) -> Group:
        """A group of another frame as one of this."""
        assert home.late is not None
        first = len(frame.threads)
        frame.threads = np.concatenate((frame.threads, home.threads[group.rows]))
        self.guests.append(Guests(home, first, group.rows))
        home.late.away.append(group.rows)
        rows = np.arange(first, len(frame.threads))
        return Group(rows, group.env, group.checks)

    def handed_back(self, returned: Sequence[Returned]) -> list[Returned]:
        """What the frame's own rows have returned; the frames of its guests have theirs."""
        if not self.guests:
            return list(returned)
        end = self.guests[0].first
        own: list[Returned] = []
        for piece in returned:
            order = np.argsort(piece.rows)
            rows = piece.rows[order]
            firsts = [end, *(guests.first + len(guests.rows) for guests in self.guests)]
            cuts = np.searchsorted(rows, firsts).tolist()
            parts = parted(piece, order, [0, *cuts])
            if cuts[0]:
                own.append(parts[0](rows[: cuts[0]]))
            for place, guests in enumerate(self.guests):
                start, stop = cuts[place : place + 2]
                if start < stop:
                    home = guests.rows[rows[start:stop] - guests.first]
                    guests.home.returned.append(parts[place + 1](home))
        for guests in self.guests:
            assert guests.home.late is not None
            guests.home.late.away.clear()
        return own
