"""Threads of a spin part at an ``if`` and meet behind it, as a diamond has it (``diamonds``).

In: a spin whose lap has just come to such a branch. Out: its group at the join, whose variables are
what both arms have made of them; or where the threads go that have parted in the general way. None,
with nothing done, where it is no such branch, or others would run in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Protocol

import numpy as np
import torch

from autobatch.batching.arithmetic import loose_columns
from autobatch.batching.operations import Env
from autobatch.batching.stretches import Site
from autobatch.ir.program import Branch, Label
from autobatch.values.cells import Cell, Column, Container
from autobatch.values.layouts import are_seen
from autobatch.vm.branching import parted, see
from autobatch.vm.diamonds import Arm, Diamond, put_together, taken_apart
from autobatch.vm.driven import plain_decision
from autobatch.vm.groups import Group, Parts
from autobatch.vm.laps import Lap
from autobatch.vm.rings import Track
from autobatch.vm.slots import Item, Slot, containers_of, slots_of
from autobatch.vm.state import Frame, RunState
from autobatch.vm.turns import Turn

Ran = tuple[Label, Lap, int]
"""A block that has run, by which lap, and for how many threads."""
Stored = Sequence[tuple[Slot, Cell]]
"""What slots are to hold."""


class Engine(Protocol):
    """What is asked of an engine."""

    def is_next(self, frame: Frame, target: Label) -> bool: ...


class Spinning(Protocol):
    """A spin; see there."""

    state: RunState
    frame: Frame
    group: Group
    nearest: float
    track: Track

    @property
    def engine(self) -> Engine: ...
    @property
    def may_launch(self) -> bool: ...
    def fitting(self, turn: Turn, pc: Label, group: Group) -> Lap | None: ...


def crossed(spin: Spinning, lap: Lap) -> Parts | None:
    """Where the threads go after a lap that begins a diamond: to its join, where both ways are
    plain. None where it begins none that may be gone through here.
    """
    frame, group, branch = spin.frame, spin.group, lap.turn.terminator
    if type(branch) is not Branch:
        return None
    diamond = frame.code.diamond(lap.turn.ends)
    if diamond is None or not may_cross(spin, diamond):
        return None
    taken = decision(spin, branch, group)
    if taken is None:
        return None
    if type(taken) is bool or (rows := apart(taken)) is None:
        return [(branch.then if np.all(taken) else branch.otherwise, group)]
    env = through(spin, diamond, rows) if diamond.is_tried() else None
    if env is None:
        return parted(spin.state, frame, branch, group, taken)
    spin.track.forget()
    group.env = env
    return [(diamond.join, group)]


def decision(spin: Spinning, branch: Branch, group: Group) -> np.ndarray | bool | None:
    """Which threads take a branch; None where that is not so plain.

    Where ints lie that somebody reads after it is looked at with it, as in the general way
    (``k = int(row.argmax()) % 3``).
    """
    live = spin.frame.code.live
    names = (*live[branch.then], *live[branch.otherwise])
    loose = {name: each for name, each in loose_columns(group.env).items() if name in names}
    value = group.env[branch.condition].value if branch.condition in group.env else None
    if not loose or type(value) is not Column:
        return plain_decision(spin.state, branch, group, settled=not loose)
    if value.data.dtype is not torch.bool or value.data.dim() != 1:
        return None
    context = spin.state.context(spin.frame, group)
    context.span = branch.span
    return see(context, value.data, list(loose.values()))


def apart(taken: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The rows that take a branch, and the others; None where all go one way."""
    (yes,), (no,) = taken.nonzero(), (~taken).nonzero()
    return (yes, no) if len(yes) and len(no) else None


def may_cross(spin: Spinning, diamond: Diamond) -> bool:
    """Whether the arms of a diamond are what runs next, and nobody sees how."""
    if diamond.last >= spin.nearest or not spin.may_launch or spin.group.checks:
        return False
    if are_seen() or not spin.state.is_blind():
        return False
    return spin.engine.is_next(spin.frame, diamond.last)


def through(spin: Spinning, diamond: Diamond, rows: Sequence[np.ndarray]) -> Env | None:
    """What the variables are once threads have gone through a diamond, these ``rows`` each way;
    None where that cannot be.

    Nothing has changed until all arms have run, and what they give has been put together.
    """
    state, frame, env = spin.state, spin.frame, spin.group.env
    ran: list[Ran] = []
    found = both(spin, diamond, spin.group, rows, ran)
    if found is None:
        return None
    given, stored = found
    put(stored)
    diamond.misses = 0
    for label, lap, k in sorted(ran, key=itemgetter(0)):
        state.steps.begin(frame.code.function, label, k)
        state.tally.launch(lap.kernels + lap.asks)
        state.tally.copies(k)
    return {name: env[name] for name in frame.code.live[diamond.join] if name in env} | given


def both(
    spin: Spinning, diamond: Diamond, group: Group, rows: Sequence[np.ndarray], ran: list[Ran]
) -> tuple[Env, Stored] | None:
    """Run the arms, each for some rows of a group: what they give and store, put together."""
    state, made, held = spin.state, list[Env](), list[dict[Item, Container]]()
    slots = slots_of(group.env, diamond.stores)
    if slots is None:
        return None
    for arm, some in zip(diamond.arms, rows, strict=True):
        with state.moving():
            own = taken_apart(group.env, diamond.needs(arm), some)
        made.append(own)
        held.append({} if arm is None else containers_of(own, diamond.stores))
        if arm is not None and not run(spin, arm, Group(group.rows[some], own), ran):
            return None
    given, stored, device = Env(), list[tuple[Slot, Cell]](), state.settings.device
    with state.moving():
        for name in diamond.gives:
            ways = [(own[name], some) for own, some in zip(made, rows, strict=True) if name in own]
            whole = put_together(ways, device) if len(ways) == len(made) else None
            if whole is None:
                return None
            given[name] = whole
        for slot in slots:
            cells = [at_slot(slot, own, some) for own, some in zip(held, rows, strict=True)]
            whole = put_together(list(zip(cells, rows, strict=True)), device)
            if whole is None:
                return None
            stored.append((slot, whole))
    return given, stored


def at_slot(slot: Slot, own: dict[Item, Container], rows: np.ndarray) -> Cell:
    """What a slot holds for some rows, which may have a container of their ``own``."""
    cell = slot.own(own)
    return taken_apart({"": slot.cell}, [""], rows)[""] if cell is None else cell


def put(stored: Stored) -> None:
    for slot, cell in stored:
        slot.put(cell)


def run(spin: Spinning, arm: Arm, group: Group, ran: list[Ran]) -> bool:
    """Run an arm for a group of its own, with the diamond within it, if it has one."""
    lap = arm_lap(spin, arm, group)
    if lap is None:
        return False
    ran.append((arm.label, lap, group.k))
    within, branch = arm.within, spin.frame.code.blocks[arm.label].terminator
    if within is None:
        return True
    assert type(branch) is Branch
    with counting_at(spin, arm):
        taken = decision(spin, branch, group)
    if taken is None:
        return False
    if type(taken) is bool or (rows := apart(taken)) is None:
        way = within.arms[not np.all(taken)]
        return way is None or run(spin, way, group, ran)
    found = both(spin, within, group, rows, ran)
    if found is None:
        return False
    given, stored = found
    group.env.update(given)
    put(stored)
    return True


def arm_lap(spin: Spinning, arm: Arm, group: Group) -> Lap | None:
    """The lap of an arm, which has run; None where it is not all run at once."""
    work = spin.state.work
    assert work is not None
    turn = spin.frame.code.turn(arm.label, work.executor, False)
    if turn is None or turn.advance is not None or turn.tail.appends:
        return None
    lap = spin.fitting(turn, arm.label, group)
    if lap is None and turn.site is not None and recorded(spin, turn, arm, turn.site, group):
        lap = Lap(arm.label, turn, None, None, None, None, marks=False)
    return lap


def recorded(spin: Spinning, turn: Turn, arm: Arm, site: Site, group: Group) -> bool:
    """Whether an arm has run of which no driver is known yet that fits, or none ever."""
    state, work = spin.state, spin.state.work
    assert work is not None
    try:
        with counting_at(spin, arm):
            context = state.context(spin.frame, group)
            end = site.advance(work, context, spin.frame.scope, group.env)
    except Exception:  # whose it is, the general way finds out
        return False
    return end == turn.end and not (group.checks or context.escapes or context.lost)


@contextmanager
def counting_at(spin: Spinning, arm: Arm) -> Iterator[None]:
    """What is counted inside is of an arm's block."""
    tally = spin.state.tally
    before, tally.block = tally.block, (spin.frame.code.function.name, arm.label)
    try:
        yield
    finally:
        tally.block = before
