"""Rings: blocks that threads of a spin go round one after the other, the same ones every time.

    b2 -> b1 -> b2 -> b1 -> ...        a loop over a range, and its body

Once such laps have come twice in the same order, for the same rows, the next ones find the kinds of
columns that these have found: a replay makes one kind, and no other variable has changed. So the
laps *glide*: nothing is asked but what differs by value, and which way threads go is looked at by
one count.

In: a spin whose last laps were twice those of the ring. Out: the lap that has just run, once its
threads part, all leave, or that is not plain to see; None where the next lap has still to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from autobatch.batching.arithmetic import loose_columns
from autobatch.batching.fused import Hot
from autobatch.batching.operations import Env
from autobatch.compat import on_host
from autobatch.ir.program import Branch, Jump, Label
from autobatch.listeners import Tally
from autobatch.values.cells import Column, Uniform
from autobatch.vm.groups import Group, Parts
from autobatch.vm.laps import Lap
from autobatch.vm.speculating import Riders
from autobatch.vm.state import Frame, RunState

LONGEST = 4
"""Blocks of a ring."""


class Spinning(Protocol):
    """A spin; see there."""

    state: RunState
    frame: Frame
    pc: Label
    group: Group
    nearest: float
    riders: Riders | None

    def end(self, lap: Lap, taken: np.ndarray | None = None) -> Parts | None: ...
    def part(self, lap: Lap, parts: Parts) -> None: ...


@dataclass(slots=True, eq=False, repr=False)
class Track:
    """The laps of a spin since its rows have last changed: ``path`` since those of ``ring``, which
    ``glides`` if it has been ``judged`` to be one.
    """

    path: list[Lap] = field(default_factory=list)
    ring: list[Lap] = field(default_factory=list)
    judged: bool = False
    glides: bool = False

    def note(self, lap: Lap) -> None:
        """A lap has run, and checked all that it reads."""
        path = self.path
        if path and path[0] is lap:
            if path != self.ring:
                self.judged = self.glides = False
            elif not self.judged:
                self.judged, self.glides = True, are_a_ring(path)
            self.ring, self.path = path, [lap]
        elif len(path) < LONGEST:
            path.append(lap)
        else:
            self.path = [lap]

    def comes_round(self, pc: Label) -> bool:
        """Whether the ring's first lap has just run, and ``pc`` is where its next one is."""
        if not self.glides or len(self.path) != 1 or self.path[0] is not self.ring[0]:
            return False
        return pc == self.ring[1 % len(self.ring)].pc

    def forget(self) -> None:
        """Rows have changed, or their way."""
        self.path, self.ring, self.judged, self.glides = [], [], False, False


def are_a_ring(laps: Sequence[Lap]) -> bool:
    """Whether the columns that some laps check, and do not leave alone, are all replays' results.

    What is compiled goes its own way: several laps at once.
    """
    drivers = [lap.driver for lap in laps if lap.driver is not None]
    if any(lap.launch is not None for lap in laps) or any(type(d.plan.run) is Hot for d in drivers):
        return False
    checked = frozenset[str]().union(*(driver.columns for driver in drivers))
    advances = [lap.turn.advance for lap in laps]
    if any(op is not None and not checked.isdisjoint(op.outs) for op in advances):
        return False
    return all(checked & driver.assigns <= driver.makes for driver in drivers)


def glided(spin: Spinning, laps: Sequence[Lap]) -> tuple[Lap, Parts | None] | None:
    """Go round a ring, of which the first lap has just run."""
    state, group = spin.state, spin.group
    env, k, tally, steps = group.env, group.k, state.tally, state.steps
    counts = any(lap.counts for lap in laps)
    if not counts and loose_columns(env):
        return None
    name, size, place = spin.frame.code.function.name, len(laps), 0
    while True:
        place = (place + 1) % size
        lap, riders = laps[place], spin.riders
        if spin.pc >= spin.nearest or (riders is not None and not riders.may_ride(1)):
            return None
        try:
            if not lap.glides(env, k):
                return None
        except Exception:  # the general way finds out what is wrong
            return None
        steps.taken += 1
        tally.block = (name, spin.pc)
        tally.execution(k if riders is None else riders.active)
        target = way_of_all(lap, env, tally, counts) if riders is None else None
        if isinstance(target, int):
            if target != laps[(place + 1) % size].pc:
                return lap, [(target, group)]
            spin.pc = target
            for dead in lap.turn.dead[target]:
                env.pop(dead, None)
        else:
            parts = spin.end(lap, target)
            if parts is None or size > 1 or parts[0] != (spin.pc, group):
                return lap, parts
            spin.part(lap, parts)
        tally.launch(lap.kernels + lap.compares)


def way_of_all(lap: Lap, env: Env, tally: Tally, counts: bool) -> Label | np.ndarray | None:
    """Where all threads go after a lap; else which of them take its branch, or None, unread."""
    end = lap.turn.terminator
    if type(end) is Jump:
        return end.target
    assert type(end) is Branch
    value = env[end.condition].value
    if type(value) is Uniform:
        taken = value.obj
        if type(taken) is not bool:
            return None
    else:
        if type(value) is not Column or (counts and loose_columns(env)):
            return None
        data = value.data
        if data.dtype is not torch.bool or data.dim() != 1:
            return None
        tally.host_read("branch")
        each = on_host(data)
        number = np.count_nonzero(each)
        if 0 < number < len(each):
            return each
        taken = number > 0
    return end.then if taken else end.otherwise
