"""The stack of a run as data: what the threads of each call need when it has returned.

A thread that makes a call takes a *slot*; its slots, from ``tops`` on by ``below``, are its
stack. What lives across the call lies in a ``Saved``, one row per slot: the calls that a group
has made in one step, or several such that have been joined, so that a return does not pick each
thread's row out of another heap. Rows of slots that have been left are dropped when they are as
many as the others: memory follows the sum of the threads' depths.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from autobatch.ir.program import Call
from autobatch.values.heap import likeness
from autobatch.vm.groups import Group, coalesced, restricted
from autobatch.vm.places import Place

NONE = 0
"""The slot of no call: the thread returns from the run."""
FIRST = np.zeros(1, dtype=np.int64)
FEW = 1024
"""Rows that are joined with others rather than picked where they are."""


@dataclass(slots=True, eq=False, repr=False)
class Saved:
    """Calls at work: ``group`` holds what lives at ``place``, where their threads go on.

    The group's ``rows`` are slots; ``left`` says which of them have been left (None: none has).
    ``call`` ends the block ``pc`` of the caller; one that ``constructs`` has its result in
    ``group`` already.
    """

    group: Group
    place: Place
    call: Call
    pc: int = 0
    constructs: bool = False
    left: np.ndarray | None = None
    known: Hashable = None

    @property
    def key(self) -> Hashable:
        """Equal for calls that may be joined; until rows are dropped, nobody changes the others."""
        if self.known is None:
            env = self.group.env
            same = (self.place, self.pc, self.constructs, tuple(env))
            self.known = (*same, *likeness.alike(env.values()))
        return self.known

    def leave(self, positions: np.ndarray) -> int:
        """Mark rows as left; how many have not been."""
        if self.left is None:
            self.left = np.zeros(self.group.k, dtype=bool)
        self.left[positions] = True
        return self.group.k - int(self.left.sum())


@dataclass(frozen=True, slots=True)
class Resumed:
    """Threads that return from alike calls, their rows among those asked for (None: all).

    ``group`` holds their variables; its ``rows`` are the slots that they have left.
    """

    saved: Saved
    positions: np.ndarray | None
    group: Group


@dataclass(slots=True, eq=False, repr=False)
class Stack:
    """``tops[row]`` is the slot of the call that a thread is in, ``depths[row]`` how deep that is.

    Of each slot, ``below`` is the slot of the call around it, ``home`` the number of its
    ``saved`` and ``position`` its row there. ``free`` holds the slots not in use, in its first
    ``spare`` places.
    """

    tops: np.ndarray
    depths: np.ndarray
    device: torch.device
    below: np.ndarray = field(default_factory=FIRST.copy)
    home: np.ndarray = field(default_factory=FIRST.copy)
    position: np.ndarray = field(default_factory=FIRST.copy)
    free: np.ndarray = field(default_factory=FIRST.copy)
    spare: int = 0
    saved: dict[int, Saved] = field(default_factory=dict)
    last: int = 0

    @classmethod
    def of(cls, size: int, device: torch.device) -> Stack:
        """For threads that are in no call; a batch of none has one stack all the same."""
        tops = np.zeros(max(size, 1), dtype=np.int64)
        return cls(tops, tops.copy(), device)

    def depth(self, rows: np.ndarray) -> int:
        """How deep the deepest of these threads is."""
        return int(self.depths[some(rows)].max())

    def push(self, rows: np.ndarray, call: Saved) -> None:
        """The threads at ``rows`` enter calls, whose variables ``call`` holds in that order."""
        rows = some(rows)
        slots = self.taken(len(rows))
        self.below[slots] = self.tops[rows]
        self.tops[rows] = slots
        self.depths[rows] += 1
        call.group.rows = slots[: call.group.k]
        self.keep(call, slots)

    def keep(self, call: Saved, slots: np.ndarray) -> None:
        self.last += 1
        self.saved[self.last] = call
        self.home[slots] = self.last
        self.position[slots] = np.arange(len(slots))

    def pop(self, rows: np.ndarray) -> Iterator[Resumed]:
        """The threads at ``rows``, each of which is in a call, return from it."""
        rows = some(rows)
        slots = self.tops[rows]
        self.tops[rows] = self.below[slots]
        self.depths[rows] -= 1
        homes = self.home[slots]
        if (homes == homes[0]).all():
            yield self.picked(int(homes[0]), slots, None)
        else:
            yield from self.gathered(homes, slots)
        self.release(slots)

    def gathered(self, homes: np.ndarray, slots: np.ndarray) -> Iterator[Resumed]:
        """Several calls' rows: small ones that are alike as one."""
        alike: dict[Hashable, list[int]] = {}
        for number in np.unique(homes).tolist():
            saved = self.saved[number]
            alike.setdefault(saved.key if saved.group.k <= FEW else number, []).append(number)
        for numbers in alike.values():
            positions = np.flatnonzero(np.isin(homes, numbers))
            number = numbers[0] if len(numbers) == 1 else self.joined(numbers)
            everyone = None if len(positions) == len(slots) else positions
            yield self.picked(number, slots[positions], everyone)

    def joined(self, numbers: list[int]) -> int:
        """Put alike calls' rows together."""
        calls = [self.saved.pop(number) for number in numbers]
        first = calls[0]
        group = coalesced([call.group for call in calls], list(first.group.env), self.device)
        left = [np.zeros(c.group.k, dtype=bool) if c.left is None else c.left for c in calls]
        whole = Saved(
            group, first.place, first.call, first.pc, first.constructs, np.concatenate(left)
        )
        self.last += 1
        self.saved[self.last] = whole
        here = np.flatnonzero(~whole.left)  # type: ignore[operator]
        self.home[group.rows[here]] = self.last
        self.position[group.rows[here]] = here
        return self.last

    def picked(self, number: int, slots: np.ndarray, positions: np.ndarray | None) -> Resumed:
        """The rows of some slots, which leave, in the given order."""
        saved = self.saved[number]
        group = saved.group
        if not group.k or (len(slots) == group.k and (slots == group.rows).all()):
            del self.saved[number]
            return Resumed(saved, positions, group)
        at = self.position[slots]
        chosen = restricted(group, at, list(group.env))
        self.left(number, at)
        return Resumed(saved, positions, chosen)

    def packed(self, saved: Saved) -> None:
        """Drop the rows that have been left."""
        assert saved.left is not None
        kept = np.flatnonzero(~saved.left)
        saved.group = restricted(saved.group, kept, list(saved.group.env))
        saved.left = saved.known = None  # known anew: what was a view may come out plain
        self.position[saved.group.rows] = np.arange(len(kept))

    def drop(self, rows: np.ndarray) -> None:
        """The threads at ``rows`` leave all their calls, which they will not return from."""
        slots: list[np.ndarray] = []
        tops = self.tops[rows]
        while len(tops := tops[tops != NONE]):
            slots.append(tops)
            tops = self.below[tops]
        if not slots:
            return
        left = np.concatenate(slots)
        self.tops[rows] = NONE
        self.depths[rows] = 0
        homes = self.home[left]
        order = np.argsort(homes, kind="stable")
        numbers, starts = np.unique(homes[order], return_index=True)
        for number, own in zip(numbers.tolist(), np.split(left[order], starts[1:]), strict=True):
            self.left(number, self.position[own])
        self.release(left)

    def left(self, number: int, positions: np.ndarray) -> None:
        """Rows of a group of calls have been left."""
        saved = self.saved[number]
        remaining = saved.leave(positions)
        if not remaining:
            del self.saved[number]
        elif 2 * remaining <= saved.group.k:
            self.packed(saved)

    def calls(self, row: int) -> list[Call]:
        """The calls that a thread is in, outermost first."""
        found: list[Call] = []
        slot = int(self.tops[row])
        while slot != NONE:
            found.append(self.saved[int(self.home[slot])].call)
            slot = int(self.below[slot])
        return found[::-1]

    def faults(self) -> Iterator[str]:
        """What is wrong, if anything: every call of every thread has one row, and no other has."""
        used = len(self.below) - 1 - self.spare
        if int(self.depths.sum()) != used:
            yield f"{used} slots for calls {self.depths.sum()} deep in all"
        if self.saved:
            slots, numbers, positions = self.kept()
            if (self.home[slots] != numbers).any():
                yield "a slot does not know its home"
            if (self.position[slots] != positions).any():
                yield "a slot does not know its row"
            used -= len(slots)
        for saved in self.saved.values():
            if saved.left is not None and 2 * int(saved.left.sum()) >= saved.group.k:
                yield "rows that have been left are kept"
        if used and len(self.tops) > 1:
            yield f"{used} slots without a row"

    def kept(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The slots of all rows that have not been left, the number of their group, their row."""
        groups = [saved.group.rows for saved in self.saved.values()]
        sizes = [len(rows) for rows in groups]
        slots = np.concatenate(groups)
        numbers = np.repeat(list(self.saved), sizes)
        positions = np.arange(len(slots)) - np.repeat(np.cumsum([0, *sizes[:-1]]), sizes)
        if all(saved.left is None for saved in self.saved.values()):
            return slots, numbers, positions
        stay = np.concatenate(
            [
                np.ones(size, dtype=bool) if saved.left is None else ~saved.left
                for saved, size in zip(self.saved.values(), sizes, strict=True)
            ]
        )
        return slots[stay], numbers[stay], positions[stay]

    # Slots

    def taken(self, count: int) -> np.ndarray:
        """Slots to use."""
        if self.spare < count:
            self.grow(count)
        self.spare -= count
        return self.free[self.spare : self.spare + count].copy()

    def release(self, slots: np.ndarray) -> None:
        self.free[self.spare : self.spare + len(slots)] = slots
        self.spare += len(slots)

    def grow(self, count: int) -> None:
        """At least twice as many slots as before."""
        before = len(self.below)
        size = max(2 * before, before + count)
        for name in ("below", "home", "position", "free"):
            array = np.zeros(size, dtype=np.int64)
            array[:before] = getattr(self, name)
            setattr(self, name, array)
        fresh = np.arange(size - 1, before - 1, -1)
        self.free[self.spare : self.spare + len(fresh)] = fresh
        self.spare += len(fresh)


def some(rows: np.ndarray) -> np.ndarray:
    """The threads that stand for a group's: its rows, or the stack of a batch of none."""
    return rows if len(rows) else FIRST
