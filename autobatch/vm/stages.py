"""Which block runs next where threads keep coming: a schedule by stages.

The smallest program counter alone would starve what stands behind a loop, since new threads enter
before it, and would let threads that have left an inner loop wait for all others that are in it. So
a function's blocks fall into *stages*: a loop without those within it, the outermost with what
leads to it (a call counts as one, its callee may loop); and, last, the *tail*, from which no loop
is left to run. Each stage has a queue of its own, in which the run's policy says what goes next
(``schedule``), so that threads part and meet in it as they do in a batch.

- The tail runs as soon as enough threads wait there: it costs a few executions, and makes room. So
  does a stage that has no loop, the latest first.
- So does any other once its threads have waited, together, for as long as all in flight take to
  run its blocks. What threads lose by waiting is then what running a stage loses for the others:
  with steady arrivals the least of both (Harris 1913, the economic order quantity). A loop without
  others in it counts ``LONG`` blocks, so that few threads in it wait for many, but not for ever.
- Else the loop with the most threads runs, the earliest of those that have as many.

Where calls wait in the queue themselves, a callee's blocks are of its caller's stages, as if they
were written there: those that lead to its first loop are of the stage of the call, its tail is of
the stage behind it, and loops in between have stages of their own; all but the loops are of the
caller's loop if the call is in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from autobatch.ir.program import Block, Call
from autobatch.vm.groups import Group
from autobatch.vm.nests import Home, homes_of
from autobatch.vm.queue import Waiting

Queue = Waiting[Any]
Key = tuple[tuple[int, int], ...]
"""The stretch and the loop of the outermost function; of a callee's loop those of the call, too."""
Way = Sequence[tuple[Sequence[Block], int]]
"""Where a thread is: the blocks of each function that it is in, the outermost first, and which."""
LONG = 16
"""How many blocks a loop without others within it counts."""


@dataclass(slots=True, eq=False, repr=False)
class Stage:
    """``places`` are as many as threads have come to. ``loops``: it has a loop, and ``is_round``:
    that may have others within it. ``waited`` is for how many executions of others its threads have
    waited, all together; ``turns`` are how many it has before others.
    """

    key: Key
    queue: Queue
    loops: bool = False
    is_round: bool = False
    places: int = 0
    waited: int = 0
    turns: int = 0

    @property
    def held(self) -> int:
        """How many threads wait in it."""
        return sum(map(self.queue.threads_at, self.queue.places))

    @property
    def price(self) -> int:
        """How many block executions running it takes: its own, and one to join those ahead."""
        return LONG if self.loops and not self.is_round else self.places + 1


@dataclass(slots=True, eq=False, repr=False)
class Stages:
    """``way_to`` says where a waiting place is; ``enough`` threads let a stage without loops run.

    ``queue_of`` makes the queue of a stage, ``opened`` has all of them. ``blocks`` are those of the
    outermost function; ``recursive``: it calls itself, ``calling``: calls run to their end in their
    blocks. ``homes`` are those of a function's blocks, which it keeps, by their identity. ``held``
    are the threads of each stage as the last one was chosen, which is ``at_work``.
    """

    way_to: Callable[[Any], Way | None]
    queue_of: Callable[[], Queue]
    enough: int
    blocks: Sequence[Block]
    recursive: bool = False
    calling: bool = True
    stages: dict[Key, Stage] = field(default_factory=dict)
    opened: list[Queue] = field(default_factory=list)
    known: dict[Any, Stage] = field(default_factory=dict)
    homes: dict[int, tuple[Sequence[Block], list[Home]]] = field(default_factory=dict)
    held: list[tuple[Stage, int]] = field(default_factory=list)
    at_work: Stage | None = None
    tail: Key = field(init=False)

    def __post_init__(self) -> None:
        last = self.homes_in(self.blocks, self.recursive)[-1]
        self.tail = ((last.stretch + self.recursive, 0),)  # behind all, where all is one loop

    def __bool__(self) -> bool:
        return any(self.opened)

    def add(self, parts: Iterable[tuple[Any, Group]]) -> None:
        for at, group in parts:
            stage = self.known.get(at)
            if stage is None:
                stage = self.known[at] = self.placed(at)
            stage.queue.add(at, group)

    # Where places stand

    def placed(self, at: Any) -> Stage:
        """The stage of a place that threads come to for the first time."""
        way = self.way_to(at)
        key, loop = (self.tail, None) if way is None else self.key_of(way)
        stage = self.stages.get(key)
        if stage is None:
            stage = self.stages[key] = Stage(key, self.queue_of())
            self.opened.append(stage.queue)
        stage.places += 1
        if loop is not None:
            stage.loops = True
            stage.is_round |= loop.nests or (loop.calls and not self.calling)
        elif way is not None and self.calling and type(way[-1][0][way[-1][1]].terminator) is Call:
            stage.loops = True
        return stage

    def key_of(self, way: Way) -> tuple[Key, Home | None]:
        """The stage of a place, by where the functions that it is in stand, and its loop."""
        home = self.homes_in(way[0][0], self.recursive)[way[0][1]]
        key: Key = ((home.stretch, home.loop),)
        loop = home if home.inside else None
        for (_, call), (blocks, pc) in pairwise(way):
            homes = self.homes_in(blocks, False)
            home = homes[pc]
            own = (home.stretch, home.loop)
            if home.inside and loop is not None:
                key = (*key, (call, 0), own)
            elif loop is not None:
                continue
            elif not home.stretch:
                key = (*key[:-1], (key[-1][0], home.loop))
            elif home.stretch == homes[-1].stretch and not home.inside:
                key = (*key[:-1], (key[-1][0] + 1, 0))
            else:
                key = (*key, own)
            loop = home if home.inside else loop
        return key, loop

    def homes_in(self, blocks: Sequence[Block], recursive: bool) -> list[Home]:
        found = self.homes.get(id(blocks))
        if found is None:
            found = self.homes[id(blocks)] = (blocks, homes_of(blocks, recursive))
        return found[1]

    # What runs

    def next(self) -> tuple[Queue, Any, Group]:
        """What runs next, and the queue that it comes from; something must wait."""
        self.held = [(stage, stage.held) for stage in self.stages.values() if stage.queue]
        stage = self.at_work = self.held[0][0] if len(self.held) == 1 else self.chosen()
        if stage.price != LONG or stage.turns == LONG:  # what leads to a loop is not the loop
            stage.waited = 0
        found = stage.queue.next([])
        assert found is not None
        return (stage.queue, *found)

    def chosen(self) -> Stage:
        """The stage that runs next, of several."""
        short = [(stage, count) for stage, count in self.held if not stage.loops]
        ready = [stage for stage, count in short if count >= self.enough]
        if ready:
            return max(ready, key=lambda stage: stage.key)
        mine = self.at_work
        if mine is not None and mine.turns and mine.queue:
            return mine
        flying = sum(count for _, count in self.held)
        due = [stage for stage, _ in self.held if stage.waited >= stage.price * flying]
        if due:
            first = max(due, key=lambda stage: stage.waited / stage.price)
            first.turns = first.price
            return first
        loops = [(-count, stage.key, stage) for stage, count in self.held if stage.loops]
        return min(loops)[2] if loops else max(short, key=lambda each: each[0].key)[0]

    @property
    def due(self) -> int | None:
        """After how many block executions another stage may be to run; None: none waits."""
        others = [(stage, count) for stage, count in self.held if stage is not self.at_work]
        if not others:
            return None
        flying = sum(count for _, count in self.held)
        waits = [(stage.price * flying - stage.waited) // count + 1 for stage, count in others]
        return max(min(waits), 1)

    def took(self, steps: int) -> None:
        """What was chosen last has run for so many block executions."""
        for stage, count in self.held:
            if stage is self.at_work:
                stage.turns = max(stage.turns - steps, 0)
            else:
                stage.waited += count * steps

    def anew(self) -> None:
        """Place all that waits once more: calls are ``calling`` from now on."""
        self.calling = True
        waiting = [
            (at, group) for q in self.opened for at in list(q.places) for group in q.others(at)
        ]
        for kept in (self.stages, self.opened, self.known, self.held):
            kept.clear()
        self.at_work = None
        self.add(waiting)

    def clear(self) -> None:
        for queue in self.opened:
            queue.counters.clear()
            queue.places.clear()
