"""Hops: the laps of a ring that glides, each with all that stays as it is while it does.

In: a lap, and what the variables are. Out: a ``Hop``, which runs it, or as many rounds of its loop
as it can.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
import torch

from autobatch.batching.arithmetic import loose_columns
from autobatch.batching.containers.in_step import plain_range
from autobatch.batching.operations import Env
from autobatch.batching.stretches.bundled import Bundled
from autobatch.batching.stretches.drivers import Again, Rounds
from autobatch.compat import on_host, within_level
from autobatch.ir.program import Branch, Label, Op, Var
from autobatch.values.cells import Cell, Column, Container, Uniform
from autobatch.vm.groups import Group
from autobatch.vm.laps import Lap
from autobatch.vm.speculating import Ride, Riders
from autobatch.vm.state import Frame, RunState


class Riding(Protocol):
    """A spin, as far as threads ride along in it."""

    group: Group
    riders: Riders | None

    def put_aside(self, lap: Lap, out: Label, gone: np.ndarray, made: Env, known: bool) -> bool: ...


@dataclass(slots=True, eq=False, repr=False)
class Counting:
    """A range in which all threads of a ring stand and stop at one place; ``cells`` are what the
    ``iterator`` holds, ``end`` and ``ahead`` where it stops and how it goes on.
    """

    iterator: Var
    item: Var
    more: Var
    value: Container
    cells: list[Cell]
    end: int
    ahead: int
    goes_on: Cell = field(default_factory=lambda: Cell(Uniform(True)))

    @classmethod
    def of(cls, advance: Op, env: Env) -> Counting | None:
        """None where threads may differ."""
        iterator = advance.args[0]
        cells = plain_range(env[iterator]) if iterator in env else None
        if cells is None:
            return None
        value, end, ahead = env[iterator].value, cells[1].value, cells[2].value
        if type(value) is not Container or type(end) is not Uniform or type(ahead) is not Uniform:
            return None
        item, more = advance.outs
        return cls(iterator, item, more, value, cells, end.obj, ahead.obj)

    def is_there(self, env: Env) -> bool:
        """Whether it is still the range that was looked at."""
        return env[self.iterator].value is self.value and self.value.cells is self.cells

    def go_on(self, env: Env) -> bool:
        """``next``; whether there was one."""
        cells = self.cells
        env[self.item] = now = cells[0]
        at = now.value.obj  # type: ignore[union-attr]
        if at < self.end if self.ahead > 0 else at > self.end:
            cells[0] = Cell(Uniform(at + self.ahead))
            env[self.more] = self.goes_on
            return True
        env[self.more] = Cell(Uniform(False))
        return False

    @property
    def left(self) -> int:
        """How often it goes on yet."""
        at: int = self.cells[0].value.obj  # type: ignore[union-attr]
        return max(0, -((at - self.end) // self.ahead))  # ``len`` of a range has a limit

    def skip(self, times: int, env: Env) -> None:
        """Go on so many times, as often as it does at least."""
        if times:
            at = self.cells[0].value.obj  # type: ignore[union-attr]
            env[self.item] = Cell(Uniform(at + (times - 1) * self.ahead))
            env[self.more] = self.goes_on
            self.cells[0] = Cell(Uniform(at + times * self.ahead))


@dataclass(slots=True, eq=False, repr=False)
class Hop:
    """A lap of a ring, with all that stays as it is while the ring glides.

    Threads go on to ``ahead``, where ``dead`` are of no more use, if ``condition`` is ``sign`` for
    all of them, and to ``out`` if it is for none; without a condition they always do. ``glide``
    runs its operations, ``rounds`` as many rounds as it can, where the lap is all of its loop but
    for the hop ``between`` two of them, which only counts, and ``bundled`` so that they are one
    function of autograd's. ``counting`` is its ``next``, where that
    is alike for all. ``before`` is the condition of each thread as it was when all that are in the
    loop went on: that it is so again takes one comparison of bytes to see. It has run ``runs``
    times since that was last counted, for ``threads`` in all, with so many ``launches``, one of
    them ``kernels`` each time but for what its ``next`` takes, and ``reads``. There is ``room`` for
    so many runs before what it replays is due to be compiled.
    """

    lap: Lap
    ahead: Label
    dead: Sequence[Var]
    condition: Var | None
    sign: bool
    out: Label
    counting: Counting | None
    glide: Again | None
    kernels: int
    before: bytes
    rounds: Rounds | None = None
    bundled: Bundled | None = None
    between: Hop | None = None
    runs: int = 0
    threads: int = 0
    launches: int = 0
    reads: int = 0
    room: float = math.inf

    @classmethod
    def of(cls, lap: Lap, ahead: Label, env: Env, k: int, begun: Set[Var]) -> Hop:
        """``ahead`` is where the ring goes on; the iterators ``begun`` are others in each round."""
        turn, end = lap.turn, lap.turn.terminator
        counting = None
        if turn.advance is not None and turn.advance.args[0] not in begun:
            counting = Counting.of(turn.advance, env)
        condition, sign, out = None, True, ahead
        if type(end) is Branch:
            condition, sign = end.condition, end.then == ahead
            out = end.otherwise if sign else end.then
            if counting is not None and counting.more != condition:
                counting = None
        glide = lap.glide if turn.advance is None or counting is not None else lap.glides
        if turn.tail.appends:
            counting, glide = None, lap.glides
        kernels, before = lap.kernels, alike(sign, k)
        dead = turn.dead[ahead]
        found = cls(lap, ahead, dead, condition, sign, out, counting, glide, kernels, before)
        found.room = lap.room
        return found

    @property
    def only_counts(self) -> bool:
        """Whether it does nothing but ask its range for the next number, alike for all."""
        counting = self.counting
        if counting is None or self.glide is not None or not self.lap.is_safe:
            return False
        return self.sign and self.condition == counting.more

    def goes(self, spin: Riding, env: Env, k: int) -> np.ndarray | bool | None:
        """Run a round, or as many as those who have left may ride along for: what ``run`` says, or
        what each thread's condition is, after the last of them.
        """
        counting = self.counting if self.between is None else self.between.counting
        most = 0 if self.rounds is None else self.most(spin, counting)
        if self.rounds is None or not most:
            found = self.run(env, k)
            self.runs += 1
            self.threads += k if spin.riders is None else spin.riders.active
            return found
        step = 0 if counting is None else counting.ahead
        if counting is not None and not counting.is_there(env):
            raise NotGliding
        ride = ride_of(spin, self, most) if self.looks else None
        first = k
        if ride is not None:
            first, most = ride.riders.active, ride.may_go(1)
        bundled = None if ride is not None else self.bundled
        if bundled is not None and (room := bundled.most):
            done, each = bundled.run(env, k, min(most, room), self.before, self.sign, step)
        else:
            done, each = self.rounds(env, k, most, self.before, self.sign, step, ride)
        if not done:
            raise NotGliding
        threads = done * k
        if ride is not None:
            ride.count(done)
            threads, self.before = ride.threads, ride.before
        self.runs += done
        self.launches += self.kernels * (done - 1)
        self.threads += threads
        if self.between is not None:
            self.between.skipped(done - 1, threads - first, env)
        elif counting is not None:
            counting.skip(done, env)
        if each is None:
            return True if self.condition is None or self.counting is not None else None
        self.reads += done
        if each.tobytes() == self.before:
            return self.sign
        return each if each.dtype == np.bool_ and each.ndim == 1 else None

    def turns(self, rounds: Rounds | None, env: Env, frame: Frame) -> None:
        """It may run rounds on end."""
        self.rounds = rounds
        if rounds is not None and self.lap.driver is not None:
            self.bundled = Bundled.of(self.lap.driver, env, frame.scope)

    def most(self, spin: Riding, counting: Counting | None) -> float:
        """How many rounds it may run at once, of such a range where it has one."""
        kept = self.lap.kept
        if (kept is not None and not kept.held) or (spin.riders is not None and not self.looks):
            return 0
        room = self.room - self.runs
        if counting is None:
            return room
        return min(room, counting.left + (self.between is not None))

    @property
    def looks(self) -> bool:
        """Whether its rounds find out what each thread decides."""
        return self.lap.driver is not None and self.lap.driver.looks

    def skipped(self, times: int, threads: int, env: Env) -> None:
        """It would have run so many times, for such a sum of threads."""
        assert self.counting is not None
        self.counting.skip(times, env)
        self.runs += times
        self.threads += threads

    def run(self, env: Env, k: int) -> bool | None:
        """Whether the condition of its branch is true for all, if it is seen to be; else None.

        ``NotGliding`` where it has not run.
        """
        glide, counting = self.glide, self.counting
        if counting is not None and not counting.is_there(env):
            raise NotGliding
        if glide is not None and not glide(env, k):
            raise NotGliding
        if counting is not None:
            more = counting.go_on(env)
            return True if self.condition is None else more
        return True if self.condition is None else None

    def read(self, env: Env, counts: bool) -> np.ndarray | bool | None:
        """The same, or that of each thread, by a look at it; None where it is not plain to see.

        It is ``sign`` where it is what it was ``before``, for threads that ride along, too.
        """
        assert self.condition is not None
        value = env[self.condition].value
        if type(value) is Uniform:
            return value.obj if type(value.obj) is bool else None
        if type(value) is not Column or (counts and loose_columns(env)):
            return None
        data = value.data
        if data.dtype is not torch.bool or data.dim() != 1:
            return None
        self.reads += 1
        each = on_host(data)
        if each.tobytes() == self.before:
            return self.sign
        return each

    def goes_on(self, group: Group, before: Env) -> bool:
        """Whether it glides for those that are left of the threads that had ``before``."""
        lap = self.lap
        if lap.driver is not None and not are_of_kinds(group.env, before, lap.driver.columns):
            return False
        if self.counting is not None:
            assert lap.turn.advance is not None
            self.counting = Counting.of(lap.turn.advance, group.env)
            if self.counting is None:
                return False
        if lap.kept is not None:
            lap.kept.let_go()
            lap.kept.rows = group.rows
        self.before = alike(self.sign, group.k)
        return True

    def told(self, state: RunState, name: str) -> None:
        """Count what it has run."""
        self.lap.ran(self.runs)
        state.steps.taken += self.runs
        state.tally.block = (name, self.lap.pc)
        state.tally.executions(self.runs, self.threads, self.launches, self.reads)


def let_turn(hops: Sequence[Hop], env: Env, frame: Frame) -> None:
    """Have the one that is all of a ring but for one that only counts run round after round."""
    between = [hop for hop in hops if hop.only_counts] if len(hops) == 2 else []
    if len(hops) != len(between) + 1:
        return
    (hop,) = (each for each in hops if each not in between)
    lap, driver = hop.lap, hop.lap.driver
    if driver is None or driver.turn is None or lap.counts or within_level():
        return
    if lap.turn.tail.appends:
        return
    values = [cell.value for cell in env.values()]
    if driver.looks and any(type(v) is Column and not v.table.is_cpu for v in values):
        return
    counting = between[0].counting if between else hop.counting
    if lap.turn.advance is not None and (counting is None or not hop.sign):
        return
    if counting is None:
        hop.turns(None if hop.condition is None else lap.rounds, env, frame)
        return
    if counting.item in driver.names and counting.item != driver.turn.item:
        return
    if counting.more in driver.names:
        return
    live = frame.code.live[hop.out]
    left = {name: env[name] for name in live if name in env} if driver.looks else {}
    if counting.item in left or any(type(cell.value) is Container for cell in left.values()):
        return  # who leaves would see a range that has stood still
    hop.turns(lap.rounds, env, frame)
    hop.between = next(iter(between), None)


def alike(condition: bool, k: int) -> bytes:
    """A condition that is the same for all threads, as a column of it holds it."""
    return (b"\1" if condition else b"\0") * k


class NotGliding(Exception):
    """A lap has to be run otherwise; nothing has changed."""


def are_of_kinds(env: Env, before: Env, names: Iterable[Var]) -> bool:
    """Whether variables are columns of the kinds that they were for more threads.

    Those that a replay makes first, of a lap to come, are of the kind that it makes.
    """
    for name in names:
        if name not in env:
            continue
        value, was = env[name].value, before[name].value
        if type(value) is not Column or value.rows is not None or type(was) is not Column:
            return False
        if value.table.requires_grad is not was.table.requires_grad:
            return False
    return True


def go_on(hops: Iterable[Hop], group: Group, before: Env) -> bool:
    """Whether all of a ring glides for those that are left of the threads that had ``before``."""
    return all(hop.goes_on(group, before) for hop in hops)


def ride_of(spin: Riding, hop: Hop, most: float) -> Ride | None:
    """How threads leave in rounds that a lap is about to run, of which there may be so many; None
    where none ride along.
    """
    lap, group = hop.lap, spin.group
    if spin.riders is None and lap.is_safe:
        spin.riders = Riders.of(group)
    riders = spin.riders
    if riders is None:
        return None
    aside = partial(spin.put_aside, lap, hop.out)
    return Ride(riders, lap.row_cost(riders.largest), hop.sign, hop.before, aside, most)
