"""Laps of a spin: a block of a loop, run again and again, and several laps as one launch.

Several laps are one where a lap is one kernel that fails on no row, which has run as many times on
end in this spin, and nothing else changes from lap to lap (``stretches.looping``). So no thread is
computed along for more laps than it has taken, and what a lap's driver checks has been found to
hold of what a lap makes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.containers.in_step import steps_of
from autobatch.batching.fused import LAPS, Hot, Laps
from autobatch.batching.operations import Env, Scope
from autobatch.batching.stretches.drivers import Again, Driver, Rounds
from autobatch.batching.stretches.keeping import Kept
from autobatch.batching.stretches.looping import loop_of
from autobatch.ir.program import Branch, Label
from autobatch.values.cells import Cell
from autobatch.vm.groups import Group
from autobatch.vm.tails import lists_of
from autobatch.vm.turns import Turn

NOWHERE = torch.zeros(0, device="cpu")


@dataclass(slots=True, eq=False, repr=False)
class Launch:
    """A replay of several laps; ``back`` is how often each thread went back in the last one."""

    hot: Hot
    laps: Laps
    back: Tensor = NOWHERE

    def __call__(self, k: int, *values: Any) -> Sequence[Tensor]:
        outs = self.hot.launched(self.laps, k, *values)
        self.back = outs[-1]
        return outs


@dataclass(slots=True, eq=False, repr=False)
class Lap:
    """The turn at ``pc`` as this spin runs it: ``again``, of ``driver``, runs its operations, if it
    has any, and ``glide`` where it is known what kinds of columns they find.

    ``marks``: it leads to the function's exit, where it matters for results which way they came;
    ``asks``: the kernels that its ``next`` has taken: for who goes on, for a row of a tensor.
    ``launch`` runs several laps at once, where this is such a one; ``kept`` replays what changes
    from lap to lap, where that is not all. ``tells``: it replays the recording of what may be
    compiled one day, and is told how often. ``runs`` counts single ones,
    since the time ``since``, and ``several`` is what they come to be.
    """

    pc: Label
    turn: Turn
    again: Again | None
    glide: Again | None
    rounds: Rounds | None
    driver: Driver | None
    marks: bool
    asks: int = 0
    launch: Launch | None = None
    kept: Kept | None = None
    tells: Hot | None = None
    runs: int = 0
    since: float = field(default_factory=perf_counter)
    several: Lap | None = None

    @property
    def number(self) -> int:
        """How many laps a run is."""
        return 1 if self.launch is None else LAPS

    @property
    def is_safe(self) -> bool:
        """Whether rows of threads that have left may be computed along: nothing fails for them."""
        turn, driver = self.turn, self.driver
        safe = turn.safe or (driver is not None and driver.plan.is_safe)
        return turn.stay is not None and safe

    @property
    def counts(self) -> bool:
        """Whether it may give ints of each thread's own."""
        driver = self.driver
        return driver is not None and driver.plan.makes_ints

    @property
    def room(self) -> float:
        """How many laps may be run before what they replay is due to be compiled."""
        return math.inf if self.tells is None else self.tells.room

    def ran(self, times: int) -> None:
        if self.tells is not None:
            self.tells.ran(times)

    def row_cost(self, largest: int) -> float:
        """What one row more costs (see ``Plan``)."""
        return 0.0 if self.driver is None else self.driver.plan.row_cost(largest)

    @property
    def kernels(self) -> int:
        if self.kept is not None:
            return self.kept.kernels
        return 0 if self.driver is None else self.driver.kernels

    @property
    def begins(self) -> bool:
        """Whether it makes the iterator that its ``next`` asks: a loop within the loop begins."""
        advance, driver = self.turn.advance, self.driver
        return advance is not None and driver is not None and advance.args[0] in driver.assigns

    def run(self, group: Group) -> bool:
        """Run the operations; where that cannot be, nothing has changed."""
        if self.room < 1:
            return False
        env, advance, appends = group.env, self.turn.advance, self.turn.tail.appends
        steps, lists = None, lists_of(appends, env) if appends else []
        if lists is None:
            return False
        begins = self.begins
        if advance is not None and not begins:
            iterator = env.get(advance.args[0])
            steps = None if iterator is None else steps_of(iterator)
            if steps is None:
                return False
        if self.kept is not None:
            self.kept.rows = group.rows
        try:
            if self.again is not None and not self.again(env, len(group.rows)):
                return False
        except Exception:  # the general way finds out what is wrong
            return False
        self.ran(1)
        if lists:
            self.append(lists, env)
        if advance is not None:
            steps = steps_of(env[advance.args[0]]) if begins else steps
            assert steps is not None  # of what has been ``begun``
            env.update(zip(advance.outs, steps.next(), strict=True))
            self.asks = steps.launches
        return True

    def append(self, lists: Sequence[list[Cell]], env: Env) -> None:
        for cells, append in zip(lists, self.turn.tail.appends, strict=True):
            cells.append(env[append.item])

    def glides(self, env: Env, k: int) -> bool:
        """The same for the rows that have run it before, with the kinds of columns found then."""
        advance, appends = self.turn.advance, self.turn.tail.appends
        lists = lists_of(appends, env) if appends else []
        begins = self.begins
        steps = None if advance is None or begins else steps_of(env[advance.args[0]])
        if lists is None or (advance is not None and steps is None and not begins):
            return False
        if self.glide is not None and not self.glide(env, k):
            return False
        if lists:
            self.append(lists, env)
        if advance is None:
            return True
        steps = steps_of(env[advance.args[0]]) if begins else steps
        assert steps is not None
        env[advance.outs[0]], env[advance.outs[1]] = steps.next()
        self.asks = steps.launches
        return True


def together(lap: Lap, pc: Label, env: Env, scope: Scope) -> Lap:
    """Several laps of the loop at ``pc``, where they are made or due to be; else the lap itself."""
    more = lap.several
    if more is not None and more.launch is not None:
        return lap if more.launch.laps.why else more
    lap.runs += 1
    if lap.runs % LAPS:
        return lap
    now = perf_counter()
    launch = launch_of(lap, pc)
    if launch is not None and launch.laps.is_due(LAPS, now - lap.since):
        assert lap.driver is not None
        begun = lap.driver.starts(env, scope, launch)
        if begun is not None:
            lap.several = Lap(pc, lap.turn, *begun, lap.driver, lap.marks, launch=launch)
    lap.since = now
    return lap.several or lap


def launch_of(lap: Lap, pc: Label) -> Launch | None:
    """What runs several laps; None where they cannot be one."""
    driver, branch, tail = lap.driver, lap.turn.terminator, lap.turn.tail
    if driver is None or driver.feeds is None or type(branch) is not Branch:
        return None
    if tail.advance is not None or tail.appends:
        return None
    hot = driver.plan.run
    if type(hot) is not Hot or not hot.is_whole:
        return None
    loop = loop_of(driver.plan, driver.feeds, branch.condition, branch.then == pc)
    return None if loop is None else Launch(hot, hot.laps(loop))
