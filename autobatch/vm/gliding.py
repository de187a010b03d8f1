"""Rings that glide: most of what a lap asks is asked no more.

Once the laps of a ring (``rings``) have come twice in the same order, for the same rows, the next
ones find the kinds of columns that these have found: a replay makes one kind, and no other variable
has changed. Once is enough where they have glided before, with other rows or in an earlier run: 60
us of a loop's start. So the laps *glide*: nothing is asked but what differs by value, and which way
threads go is looked at by one comparison (``hops``). Where a lap is all of its loop, threads leave
without an end of that: the others have the same kinds of columns, with fewer rows.

In: a spin whose last laps were twice those of the ring. Out: the lap that has just run, once its
threads part, all leave, or that is not plain to see; None where the next lap has still to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from autobatch.batching.arithmetic import loose_columns
from autobatch.ir.program import Label
from autobatch.vm.groups import Parts
from autobatch.vm.hops import Hop, Riding, go_on, let_turn
from autobatch.vm.laps import Lap
from autobatch.vm.state import Frame, RunState


class Spinning(Riding, Protocol):
    """A spin; see there."""

    state: RunState
    frame: Frame
    pc: Label
    nearest: float

    def may_carry(self, lap: Lap) -> bool: ...
    def last_gone(self, out: Label) -> Parts: ...
    def end(self, lap: Lap, taken: np.ndarray | None = None) -> Parts | None: ...
    def mark(self, lap: Lap, parts: Parts) -> None: ...
    def part(self, lap: Lap, parts: Parts) -> None: ...
    def settle(self) -> None: ...


def glided(spin: Spinning, laps: Sequence[Lap]) -> tuple[Lap, Parts | None] | None:
    """Go round a ring, of which the first lap has just run."""
    group, state = spin.group, spin.state
    counts = any(lap.counts for lap in laps)
    if not counts and loose_columns(group.env):
        return None
    for lap in laps:
        if lap.kept is not None:
            lap.kept.hold()
    ahead, k = [*laps[1:], laps[0]], group.k
    begun = {lap.turn.advance.args[0] for lap in laps if lap.turn.advance and lap.begins}
    hops = [Hop.of(lap, to.pc, group.env, k, begun) for lap, to in zip(laps, ahead, strict=True)]
    let_turn(hops, group.env, spin.frame)
    try:
        return gone_round(spin, hops, counts)
    finally:
        name = spin.frame.code.function.name
        for hop in hops:
            if hop.lap.kept is not None:
                hop.lap.kept.let_go()
            if hop.runs:
                hop.told(state, name)
        state.tally.block = (name, spin.pc)


def gone_round(
    spin: Spinning, hops: Sequence[Hop], counts: bool
) -> tuple[Lap, Parts | None] | None:
    """The same, by hops, which are told later what they come to."""
    group = spin.group
    env, k, size, place = group.env, group.k, len(hops), 0
    while True:
        place = (place + 1) % size
        hop = hops[place]
        lap = hop.lap
        if lap.pc >= spin.nearest or hop.runs >= hop.room:
            return None
        if spin.riders is not None and not spin.may_carry(lap):
            rode = spin.riders
            spin.settle()
            group = spin.group
            if not go_on(hops, group, env):
                return None
            env, k = group.env, group.k
            spin.riders = rode.again(k) if lap.is_safe else None
        try:
            taken = hop.goes(spin, env, k)
        except Exception:  # the general way finds out what is wrong
            return None
        kept = lap.kept if lap.kept is not None and not lap.kept.held else None
        if spin.riders is not None and not spin.riders.active:
            return lap, spin.last_gone(hop.out)
        if taken is None:
            taken = hop.read(env, counts)
        if taken is hop.sign:
            spin.pc = hop.ahead
            for dead in hop.dead:
                env.pop(dead, None)
        elif taken is True or taken is False:
            spin.settle()
            return lap, [(hop.out, spin.group)]
        else:
            spin.state.tally.block = (spin.frame.code.function.name, lap.pc)
            parts = spin.end(lap, taken)
            left = [part for to, part in parts or () if to == hop.ahead]
            if parts is None or taken is None or not left:
                return lap, parts
            if left[0] is group:
                hop.before = taken.tobytes()
            elif not go_on(hops, left[0], env):
                return lap, parts
            spin.mark(lap, parts)
            spin.part(lap, parts)
            group = spin.group
            env, k = group.env, group.k
        hop.launches += lap.asks + (hop.kernels if kept is None else lap.kernels)
        if kept is not None and kept.of is kept.rows:  # nobody has left since it ran
            kept.hold()
