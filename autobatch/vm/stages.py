"""Which block runs next where threads keep coming: a schedule by stages.

The smallest program counter alone would starve what stands behind a loop, since new threads enter
before it. So a function's blocks fall into *stages*: a loop with what leads to it (a call counts
as one, its callee may loop), and, last, the *tail*, from which no loop is left to run. Each stage
has a queue of its own, in which the run's policy says what goes next (``schedule``), so that
threads part and meet in it as they do in a batch.

- The tail runs as soon as enough threads wait there, or all that are in flight: it costs a few
  executions, and makes room. So does a stage that has no loop, the latest first.
- Else the stage with the most threads runs, the earliest of those that have as many.

Where calls wait in the queue themselves, a callee's blocks are of its caller's stages, as if they
were written there: those that lead to its first loop are of the stage of the call, its tail is of
the stage behind it, and loops in between have stages of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autobatch.ir.dataflow import reaching
from autobatch.ir.program import Block, Call
from autobatch.vm.groups import Group
from autobatch.vm.queue import Waiting

Queue = Waiting[Any]
Stage = tuple[int, ...]
"""Of the outermost function; of a callee's loop that of the call, and of the loop in the callee."""
Way = Sequence[tuple[Sequence[Block], int]]
"""Where a thread is: the blocks of each function that it is in, the outermost first, and which."""


@dataclass(slots=True, eq=False)
class Stages:
    """``way_to`` says where a waiting place is; ``enough`` threads let a stage without loops run.

    ``queues`` has one for each stage, made by ``queue_of``, ``opened`` all of them. ``recursive``:
    the outermost function calls itself, ``calling``: calls run to their end in their blocks.
    """

    way_to: Callable[[Any], Way | None]
    queue_of: Callable[[], Queue]
    enough: int
    tail: Stage
    recursive: bool = False
    calling: bool = True
    queues: dict[Stage, Queue] = field(default_factory=dict)
    opened: list[Queue] = field(default_factory=list)
    looping: set[Stage] = field(default_factory=set)
    known: dict[Any, Stage] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(self.opened)

    def add(self, parts: Iterable[tuple[Any, Group]]) -> None:
        for at, group in parts:
            stage = self.known.get(at)
            if stage is None:
                stage = self.known[at] = self.placed(at)
            self.queues[stage].add(at, group)

    def placed(self, at: Any) -> Stage:
        """The stage of a place that threads come to for the first time."""
        way = self.way_to(at)
        stage = self.tail if way is None else stage_of(way, self.recursive)
        if stage not in self.queues:
            self.queues[stage] = self.queue_of()
            self.opened.append(self.queues[stage])
            if way is not None:
                self.looping |= looping_stages(way[0][0], self.recursive, self.calling)
        if way is not None and len(way) > 1 and is_looping(*way[-1], self.calling):
            self.looping.add(stage)
        return stage

    def next(self) -> tuple[Queue, Any, Group]:
        """What runs next, and the queue that it comes from; something must wait."""
        counts = {stage: held(queue) for stage, queue in self.queues.items() if queue}
        short = [stage for stage in counts if stage == self.tail or stage not in self.looping]
        ready = [stage for stage in short if counts[stage] >= self.enough]
        long = [stage for stage in counts if stage not in short]
        if ready or not long:
            stage = max(ready or short)
        else:
            stage = min(long, key=lambda stage: (-counts[stage], stage))
        queue = self.queues[stage]
        found = queue.next([])
        assert found is not None
        return (queue, *found)

    def anew(self) -> None:
        """Place all that waits once more: calls are ``calling`` from now on."""
        self.calling = True
        waiting = [
            (at, group) for q in self.opened for at in list(q.places) for group in q.others(at)
        ]
        for kept in (self.queues, self.opened, self.looping, self.known):
            kept.clear()
        self.add(waiting)

    def clear(self) -> None:
        for queue in self.opened:
            queue.counters.clear()
            queue.places.clear()


def held(queue: Queue) -> int:
    """How many threads wait in a queue."""
    return sum(queue.threads_at(at) for at in queue.places)


def stage_of(way: Way, recursive: bool) -> Stage:
    """The stage of a place, by those of the functions that it is in."""
    stages = stages_of(way[0][0], recursive)
    stage: Stage = (stages[way[0][1]],)
    for blocks, pc in way[1:]:
        stages = stages_of(blocks, False)
        own, tail = stages[pc], stages[-1]
        if own and own == tail:
            stage = (*stage[:-1], stage[-1] + 1)
        elif own:
            stage = (*stage, own)
    return stage


def looping_stages(blocks: Sequence[Block], recursive: bool, calling: bool) -> set[Stage]:
    """The stages of the outermost function that have a loop."""
    stages = enumerate(stages_of(blocks, recursive))
    return {(stage,) for pc, stage in stages if recursive or is_looping(blocks, pc, calling)}


def is_looping(blocks: Sequence[Block], pc: int, calling: bool) -> bool:
    """Whether a block is in a loop, or calls what may have one, where calls are ``calling``."""
    return pc in reaching(blocks)[pc] or (calling and type(blocks[pc].terminator) is Call)


def stages_of(blocks: Sequence[Block], recursive: bool) -> list[int]:
    """The stage of each block, in loop order (see ``passes.layout``); the tail is the last.

    All of a function that calls itself is one loop.
    """
    if recursive:
        return [0] * len(blocks)
    follow = reaching(blocks)
    stages: list[int] = []
    stage = 0
    for pc, block in enumerate(blocks):
        stages.append(stage)
        loops = pc in follow[pc] or type(block.terminator) is Call
        if loops and not any(pc in follow[later] for later in follow[pc] if later > pc):
            stage += 1
    return stages
