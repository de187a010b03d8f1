"""Threads that go round a loop on their own, block after block, without the queue in between.

A group is as good as certain to run next where it goes on in its loop and nothing waits earlier.
Then all that is left of a block execution is a driver, one host read and, where some threads leave,
the split; what its variables are checked for, and what it reads from outside, is known from the
last time (``Driver.begin``). Groups that leave wait here until the spin ends. Laps that are one
kernel come to run several to a launch (``vm.laps``), which then is one block execution.

In: a group at a block of a loop, for which a block execution has been counted. Out: the groups that
go on, and where, as of any block execution. Each round is one block execution, with one host read
where its branch is per thread. Whatever is not plain ends the spin, with nothing done of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from autobatch.batching.stretches.keeping import Kept
from autobatch.batching.stretches.whole_site import PATIENCE
from autobatch.compat import on_host
from autobatch.ir.program import Branch, Jump, Label, Terminator
from autobatch.values.cells import Cell
from autobatch.vm.branching import parted
from autobatch.vm.crossing import crossed
from autobatch.vm.driven import plain_decision, plain_end
from autobatch.vm.gliding import glided
from autobatch.vm.groups import Group, Parts, restricted
from autobatch.vm.laps import Lap, together
from autobatch.vm.leavers import Leavers
from autobatch.vm.leaving import gathered
from autobatch.vm.rings import Track
from autobatch.vm.speculating import Riders
from autobatch.vm.state import Frame, RunState
from autobatch.vm.turns import Turn


class Engine(Protocol):
    """What a spin asks of its engine."""

    def is_next(self, frame: Frame, target: Label) -> bool: ...
    def ended(self, frame: Frame, terminator: Terminator, group: Group) -> Parts: ...


@dataclass(slots=True, eq=False, repr=False)
class Spin:
    """``group`` is at block ``pc``; ``left`` are those that have left, ``nearest`` where the first
    of them waits. ``laps`` have run last at each block, ``known`` are all that have, by what runs
    their operations: a block may take turns, as it does with the modules of a list. ``settled``: no
    int of the group's may soon leave int64 (see ``arithmetic``).
    """

    state: RunState
    engine: Engine
    frame: Frame
    pc: Label
    group: Group
    laps: dict[Label, Lap] = field(default_factory=dict)
    known: dict[Any, Lap] = field(default_factory=dict)
    left: Parts = field(default_factory=list)
    nearest: float = math.inf
    riders: Riders | None = None
    leavers: Leavers | None = None
    settled: bool = False
    track: Track = field(init=False)

    def __post_init__(self) -> None:
        self.track = Track(self.frame.code.rings)

    def run(self) -> Parts | None:
        """Go round; None, with nothing done, where the block execution goes the general way."""
        state, frame = self.state, self.frame
        function = frame.code.function
        lap = self.begun(first=True)
        if lap is None:
            return None
        ended: Parts | None = None
        while True:
            state.tally.launch(lap.kernels + lap.asks)
            if lap.launch is not None and state.tally.active:
                self.count(lap.launch.back)
            parts, ended = ended or self.end(lap), None
            plain = parts is not None
            if parts is None:
                self.settle()
                parts = self.engine.ended(frame, lap.turn.terminator, self.group)
            self.mark(lap, parts)
            if not plain:
                return [*parts, *self.gone()]
            self.part(lap, parts)
            if frame.aside and (self.left or state.steps.paused):
                break
            if state.steps.spent:
                break
            if self.track.comes_round(self.pc) and self.may_launch:
                ring = self.track.ring
                self.track.forget()
                glide = glided(self, ring)
                if glide is not None:
                    lap, ended = glide
                    del glide  # it would hold on to rows that are dropped later
                    continue
            following = self.following()
            if following is None:
                break
            lap = following
            self.track.note(lap)
            active = self.group.k if self.riders is None else self.riders.active
            state.steps.begin(function, self.pc, active)
            if state.steps.own is not None:
                rows = self.group.rows
                state.steps.take_part(
                    frame.threads[rows if self.riders is None else rows[self.riders.stays]]
                )
        self.settle()
        self.left.append((self.pc, self.group))
        return self.gone()

    def gone(self) -> Parts:
        """Who has left."""
        self.join()
        if len(self.left) < 2:
            return self.left
        with self.state.moving():
            return gathered(self.left, self.frame.code.live, self.state.settings.device)

    def mark(self, lap: Lap, parts: Parts) -> None:
        """Which way those come that go to the function's exit, where it matters."""
        if lap.marks:
            self.state.ways.mark(self.frame.code.function, lap.turn.ends, parts)

    def part(self, lap: Lap, parts: Parts) -> None:
        """Who goes first goes on, who does not waits."""
        if len(parts) > 1:
            parts.sort(key=itemgetter(0))
            self.left += parts[1:]
            self.nearest = min(self.nearest, parts[1][0])
        self.pc, group = parts[0]
        if group is self.group:
            for name in lap.turn.dead.get(self.pc, ()):
                group.env.pop(name, None)
        else:
            self.track.forget()
        self.group = group

    def following(self) -> Lap | None:
        """The lap that has just run of the block that comes next, if nothing waits before it."""
        if self.pc >= self.nearest:
            return None
        lap = self.laps.get(self.pc)
        if lap is not None and lap.turn.stay == self.pc and lap.is_safe and self.may_launch:
            lap = together(lap, self.pc, self.group.env, self.frame.scope)
        if self.riders is not None and not (lap is not None and self.may_carry(lap)):
            self.settle()
        if lap is not None and lap.run(self.group):
            return lap
        self.settle()
        return self.begun()

    @property
    def may_launch(self) -> bool:
        """Whether nobody wants to know of each lap by itself."""
        return not self.frame.aside and self.state.steps.max_steps is None

    def count(self, back: Tensor) -> None:
        """How often threads of the loop went back within a launch."""
        rows = on_host(back) if self.riders is None else on_host(back)[self.riders.stays]
        self.state.tally.went_back(int(rows.sum()))

    # Threads that have left and are computed along

    def end(self, lap: Lap, taken: np.ndarray | bool | None = None) -> Parts | None:
        """Where the threads go after a lap; None where that is not plain. ``taken`` says which of
        them take its branch, where that has been read.
        """
        turn, group = lap.turn, self.group
        branch = turn.terminator
        if taken is None and self.riders is None and (parts := crossed(self, lap)) is not None:
            self.settled = False
            return parts
        if not lap.is_safe or self.frame.aside:
            self.settled = False
            if taken is None:
                return plain_end(self.state, self.frame, branch, group)
            assert type(branch) is Branch and type(taken) is not bool
            return parted(self.state, self.frame, branch, group, taken)
        if isinstance(branch, Jump):
            self.settled = self.settled and not lap.counts
            return [(branch.target, group)]
        if taken is None:
            taken = plain_decision(self.state, branch, group, self.settled and not lap.counts)
        if taken is None:
            return None
        self.settled = type(taken) is not bool
        if type(taken) is bool:
            target = branch.then if taken else branch.otherwise
            if target != turn.stay:
                self.settle()
            return [(target, self.group)]
        stay, out = branch.then, branch.otherwise
        stays = taken
        if stay != turn.stay:
            stay, out, stays = out, stay, ~taken
        if self.riders is None:
            staying = np.count_nonzero(stays)
            if not staying or staying == group.k:
                return [(stay if staying else out, group)]
            self.riders = Riders.of(group)
            if self.riders is None:
                return parted(self.state, self.frame, branch, group, taken)
        gone = self.riders.leave(stays, True)
        if gone is not None:
            self.put_aside(lap, out, gone, group.env)
        return [(stay, group)] if self.riders.active else self.last_gone(out)

    def may_carry(self, lap: Lap) -> bool:
        """Whether those who have left may ride a lap that comes next."""
        riders = self.riders
        assert riders is not None
        return lap.is_safe and riders.may_ride(lap.number * lap.row_cost(riders.largest))

    def last_gone(self, out: Label) -> Parts:
        """Nobody is left: those who have left last."""
        riders, self.riders = self.riders, None
        self.join()
        assert riders is not None
        return [(out, self.group) if riders.at_once else self.left.pop()]

    def put_aside(
        self, lap: Lap, out: Label, gone: np.ndarray, made: dict[str, Cell], known: bool = False
    ) -> bool:
        """Threads leave a lap which may have made some variables; their rows ride along.

        Whether those that the next rounds of this lap make are ``known`` to be of the same kinds.
        """
        group, leavers = self.group, self.leavers
        self.state.tally.copies(len(gone))
        self.nearest = min(self.nearest, out)
        if known and leavers is not None and leavers.take(made, group.rows, gone):
            return True
        there = group.env | made
        held = {name: there[name] for name in self.frame.code.live[out] if name in there}
        if leavers is None or leavers.lap is not lap or not leavers.fits(held):
            self.join()
            leavers = self.leavers = Leavers.of(lap, out, held, made)
        if leavers is not None and leavers.take(held, group.rows, gone):
            return True
        with self.state.moving():
            left = restricted(Group(group.rows, held), gone, self.frame.code.live[out])
        self.mark(lap, [(out, left)])
        self.left.append((out, left))
        return False

    def join(self) -> None:
        """Those who have left one lap, a few at a time, are one group."""
        leavers, self.leavers = self.leavers, None
        if leavers is not None and leavers.rows:
            parts = [(leavers.out, leavers.group(self.state.settings.device))]
            self.mark(leavers.lap, parts)
            self.left += parts

    def settle(self) -> None:
        """Drop the rows of threads that have left, if there are any."""
        riders, self.riders = self.riders, None
        if riders is None or riders.active == self.group.k:
            return
        self.track.forget()
        self.state.tally.copies(riders.active)
        with self.state.moving():
            self.group = restricted(self.group, riders.rows, list(self.group.env))

    def begun(self, first: bool = False) -> Lap | None:
        """The same, of what has not been round or has changed in kind."""
        code, pc, work = self.frame.code, self.pc, self.state.work
        assert work is not None
        if not first and not self.engine.is_next(self.frame, pc):
            return None
        for whole in (True, False):
            turn = code.turn(pc, work.executor, whole)
            if turn is None or (not whole and self.waits_for_whole(pc, first)):
                continue
            lap = self.fitting(turn, pc, self.group)
            if lap is not None:
                self.laps[pc] = lap
                return lap
        return None

    def waits_for_whole(self, pc: Label, first: bool) -> bool:
        """Whether a block may come to be run as converted, so is not to be run as it stands."""
        code, work = self.frame.code, self.state.work
        if code.blocks[pc].converted is None:
            return False
        return first or work is None or code.whole(pc, work.executor).misses <= PATIENCE

    def fitting(self, turn: Turn, pc: Label, group: Group) -> Lap | None:
        """A lap of a driver that fits; it has run."""
        frame = self.frame
        marks = frame.answers and turn.ends in frame.code.exits
        if turn.site is None:
            lap = Lap(pc, turn, None, None, None, None, marks)
            return lap if lap.run(group) else None
        env, scope, given = group.env, frame.scope, self.state.contributions
        for driver in turn.site.drivers:
            if driver.end != turn.end or driver.reads_written(env, scope, given):
                continue
            known = self.known.get(driver.drive)
            if known is not None and known.run(group):
                return known
            hot = driver.hot
            recording = None if hot is None else hot.recording
            kept = None
            if driver.parts is not None and (hot is None or recording is not None):
                kept = Kept(driver.parts)
            replay = None if recording is None else recording.replay
            begun = driver.starts(env, scope, kept or replay)
            if begun is not None:
                tells = None if recording is None else hot
                lap = Lap(pc, turn, *begun, driver, marks, kept=kept, tells=tells)
                if lap.run(group):
                    self.known[driver.drive] = lap
                    return lap
        return None


def spun(state: RunState, engine: Engine, frame: Frame, pc: Label, group: Group) -> Parts | None:
    """A block execution, and all that follow it in a loop; None, with nothing done, if none can.

    The first of them has been counted; it must be plain (see ``driven.is_plain``), and in a loop.
    """
    if state.work is None or frame.exact or not group.k:
        return None
    return Spin(state, engine, frame, pc, group).run()
