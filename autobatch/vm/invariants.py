"""What must hold before each block execution of a frame; checked in tests, off otherwise.

- Every row of the frame is in exactly one place: the group that runs next, a group that waits, a
  frame that has taken it up (see ``late``), or a group that has returned. Only rows of threads that
  a failure has dropped are in none, and those that are free.
- No group is empty, and none is ahead of the one that runs next.
- Groups that wait at one block side by side are not alike; a group holds only what lives there.
- Each cell that a group reaches has one row per thread; number columns have their tag's dtype,
  and their bounds enclose what they hold.
- When the frame ends nothing waits.
- Under the program-counter engine, where one queue is a run's: each call that a thread is in has
  one row of saved variables.

``with checking():`` turns the checks on for the runs of this host thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from autobatch.values.cells import NUMBER_DTYPES, Cell, Column, Objects
from autobatch.values.heap import likeness, walks
from autobatch.vm.groups import Group
from autobatch.vm.queue import Key, Waiting
from autobatch.vm.state import NOBODY, Frame

_CHECKING: ContextVar[bool] = ContextVar("autobatch.invariants", default=False)


@contextmanager
def checking(on: bool = True) -> Iterator[None]:
    """Hold the frames that start inside the ``with`` to the invariants, or do not."""
    token = _CHECKING.set(on)
    try:
        yield
    finally:
        _CHECKING.reset(token)


SELDOM = 4
"""Of so many block executions, the stack of calls is looked at once, and what groups hold once a
frame has run for long: what is wrong with them mostly stays wrong."""
LONG = 32
"""Block executions after which a frame has run for long."""
NO_ROWS = np.empty(0, dtype=np.int64)


class InvariantError(AssertionError):
    """The engine broke a promise of its own; no program can be the cause."""


@dataclass(slots=True, eq=False, repr=False)
class Watch:
    """One frame under watch; ``looks`` counts the block executions that were looked at."""

    frame: Frame
    looks: int = 0

    @property
    def title(self) -> str:
        return self.frame.code.function.name

    @property
    def waiting(self) -> Waiting[Any]:
        return self.frame.waiting

    def ahead(self, pc: Any, group: Group) -> None:
        """``group`` is about to run the block ``pc``."""
        queue = self.waiting
        waiting = list(groups_of(queue))
        may_be_empty, in_any_order = queue.empty, queue.choose is not None
        if not group.k and not may_be_empty:
            self.fail(f"an empty group at b{pc}")
        for place, other in waiting:
            if not other.k and not may_be_empty:
                self.fail(f"an empty group at b{place}")
            if not in_any_order and place < pc:
                self.fail(f"b{pc} runs before b{place}")
        if not group.env.keys() <= set(queue.names[pc]):
            self.fail(f"dead names at b{pc}")
        self.looks += 1
        due = not self.looks % SELDOM
        if due or self.looks <= LONG:
            fits = group.pending is None  # what may not fit is beyond its bounds until it is seen
            check_cells(group.env.values(), group.k, f"{self.title} b{pc}", fits)
        for other_queue in self.frame.aside:
            waiting += groups_of(other_queue) if other_queue is not queue else ()
        late = self.frame.late
        away = [] if late is None else late.elsewhere()
        self.rows([group.rows, *(other.rows for _, other in waiting), *away])
        self.queue(pc, group)
        if due:
            self.stack()

    def stack(self) -> None:
        for fault in self.frame.faults():
            self.fail(fault)

    def end(self) -> None:
        """The frame has ended without an exception."""
        if self.waiting.counters or self.waiting.places:
            self.fail("something waits still")
        self.rows([] if self.frame.late is None else self.frame.late.elsewhere())
        self.stack()

    def rows(self, at_work: list[np.ndarray]) -> None:
        """Disjoint, and together all rows but those that a failure has dropped."""
        threads, gone = self.frame.threads, self.frame.gone
        everywhere = np.concatenate(
            [NO_ROWS, *at_work, *(piece.rows for piece in self.frame.returned)]
        )
        seen = np.bincount(everywhere, minlength=len(threads))
        if len(everywhere) == len(threads) == len(seen) and seen.all():
            return
        if (seen > 1).any():
            self.fail(f"rows in two places: {np.flatnonzero(seen > 1)}")
        lost = np.flatnonzero(seen == 0)
        missed = threads[lost] != NOBODY
        if gone is not None:
            missed &= gone.spares(threads[lost])
        if missed.any():
            self.fail(f"rows are lost: {lost[missed]}")

    def queue(self, pc: Any, group: Group) -> None:
        """Counters match places; what still waits at the block that runs is unlike, key by key.

        Each place comes to run, so it is enough to look at that one.
        """
        waiting = self.waiting
        if len(waiting.counters) != len(waiting.places) or set(waiting.counters) != set(
            waiting.places
        ):
            self.fail("counters are not places")
        place = waiting.places.get(pc)
        if place is None:
            return
        if isinstance(place, Group):
            self.fail(f"two groups at b{pc} were not compared")
        keys = [self.key(groups, pc) for groups in ([group], *place.values())]
        if len(set(keys)) < len(keys):
            self.fail(f"alike groups wait side by side at b{pc}")

    def key(self, groups: list[Group], pc: Any) -> Key:
        first, *rest = [self.waiting.key(group, self.waiting.names[pc]) for group in groups]
        for key in rest:
            both = likeness.agreed(first, key)
            if both is None:
                self.fail(f"groups that wait as one at b{pc} are not alike")
            first = both
        return first

    def fail(self, what: str) -> NoReturn:
        raise InvariantError(f"{self.title}: {what}")


def groups_of(waiting: Waiting[Any]) -> Iterator[tuple[Any, Group]]:
    for pc, place in waiting.places.items():
        if isinstance(place, Group):
            yield pc, place
        else:
            for groups in place.values():
                yield from ((pc, group) for group in groups)


def watch(frame: Frame) -> Watch | None:
    """A watch for a frame that starts; None unless checking is on."""
    return Watch(frame) if _CHECKING.get() else None


def check_cells(roots: Iterable[Cell], k: int, place: str, fits: bool = True) -> None:
    """Each cell that the roots reach stands for ``k`` threads, and numbers lie in their bounds."""
    for cell in walks.reached(roots):
        value = cell.value
        if type(value) is Objects and value.lists is not None:
            check_lists(value.lists, k, place)
        elif type(value) is Objects and len(value.items) != k:
            raise InvariantError(f"{place}: objects of {len(value.items)} threads among {k}")
        elif type(value) is Column:
            check_column(value, k, place)
            if fits and value.bounds is not None:
                check_bounds(value, place)


def check_lists(lists: Any, k: int, place: str) -> None:
    """Each thread has a list, which its row of the table has room for."""
    table, lengths = lists.table, lists.lengths
    if table.shape[0] != k or len(lengths) != k:
        raise InvariantError(f"{place}: lists {list(table.shape)} of {k} threads")
    ends = (int(lengths.min(initial=lists.most)), int(lengths.max(initial=0)))
    if ends != (lists.least, lists.most) or not 0 <= ends[0] <= ends[1] <= table.shape[1]:
        raise InvariantError(f"{place}: lists of {lengths} in {list(table.shape)}")
    if lists.is_logged:
        slots = table.slots[table.used(lengths)]
        if slots.min(initial=0) < 0 or slots.max(initial=0) >= table.log.size:
            raise InvariantError(f"{place}: lists of {slots} in a log of {table.log.size}")
        return
    if lists.tag != "tensor" and (table.dtype, table.dim()) != (NUMBER_DTYPES[lists.tag], 2):
        raise InvariantError(f"{place}: {table.dtype}{list(table.shape)} holds {lists.tag}s")


def check_column(column: Column, k: int, place: str) -> None:
    data = column.data
    if data.dim() < 1 or data.shape[0] != k:
        raise InvariantError(f"{place}: a column {list(data.shape)} of {k} threads")
    if column.tag != "tensor" and (data.dtype, data.dim()) != (NUMBER_DTYPES[column.tag], 1):
        raise InvariantError(f"{place}: {data.dtype}{list(data.shape)} holds {column.tag}s")


def check_bounds(column: Column, place: str) -> None:
    bounds, data = column.bounds, column.data
    if bounds is None or data.device.type != "cpu" or not len(data):
        return
    try:
        values = data.numpy()
    except RuntimeError:
        return  # within a function transform there is no data to look at
    if values.min() < bounds[0] or values.max() > bounds[1]:
        raise InvariantError(f"{place}: {values} where bounds say {bounds}")
