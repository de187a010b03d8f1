"""Places: the blocks of all the functions that a run comes by, in the one order of its queue.

A ``Routine`` is a function as calls enter it: its code, what it closes over (cells that a program
made move with the group, under ``CAPTURED``, and do not count), the modes around it, and whether a
handler is. Threads whose calls agree in that are at the same place, whatever their depth. ``Place``
is a block of a routine; places compare by ``order_of``, and the smallest that has threads runs
next.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autobatch.batching.operations import Scope
from autobatch.values.cells import Cell
from autobatch.vm.code import Code
from autobatch.vm.groups import CARRIED

RESULT = "%result"
"""Holds what a thread's outermost call has returned."""

Order = tuple[tuple[float, ...], int]


@dataclass(slots=True, eq=False, repr=False)
class Routine:
    """``caller`` is where the function is first called, None for the outermost, and ``path`` says
    by that where its blocks stand; ``number`` tells routines of one function apart.

    ``modes`` are the managers around the call, outermost first, ``ambient`` what they amount to.
    What threads fail with there is for a handler of a caller's where they are to be ``caught``.
    """

    code: Code
    scope: Scope
    modes: tuple[Any, ...]
    ambient: Hashable
    caught: bool
    caller: Place | None
    number: int
    path: tuple[int, ...] = field(init=False)
    places: list[Place] = field(init=False)

    def __post_init__(self) -> None:
        caller = self.caller
        self.path = () if caller is None else (*caller.routine.path, caller.pc)
        self.places = [Place(self, pc) for pc in range(len(self.code.blocks))]


class Place:
    """A block of a routine; ``names`` are the variables that live there."""

    __slots__ = ("names", "order", "pc", "routine")

    def __init__(self, routine: Routine, pc: int) -> None:
        self.routine = routine
        self.pc = pc
        self.names: Sequence[str] = routine.code.live[pc]
        self.order = order_of(routine, pc)

    def __lt__(self, other: Place) -> bool:
        return self.order < other.order

    def __str__(self) -> str:
        return f"{self.pc} of {self.routine.code.function.name}"


def order_of(routine: Routine, pc: int) -> Order:
    """Where a block stands: a callee's blocks at its first call, as if they were written there.

    So they come after the blocks that lead to the call and before those that follow it, which
    then run once for all threads, as in the stackless engine; and in a recursion, threads go down
    to the last call before any combines what calls have returned. On 256 threads of fibonacci,
    ackermann and a TreeLSTM this order is within a tenth of the fewest executions of the
    static ones that were tried, and runs the TreeLSTM's heavy block as rarely as is possible. In
    a loop around a recursion (as in NUTS) leaves take half as many executions again as the fewest
    possible (165 for 112); the orders that reach those take 2 to 4 times the executions in all.
    """
    return ((*routine.path, pc), routine.number)


class End(Place):
    """Where threads wait when they have returned from the run: after all else."""

    __slots__ = ()

    def __init__(self) -> None:
        self.names = (RESULT, CARRIED)
        self.order = ((float("inf"),), 0)
        self.pc = -1

    def __str__(self) -> str:
        return "the end"


class Live:
    """The variables that live at places, as a queue looks them up."""

    __slots__ = ()

    def __getitem__(self, place: Place, /) -> Sequence[str]:
        return place.names


@dataclass(slots=True, eq=False, repr=False)
class Routines:
    """The routines of a run, each made when it is first called.

    ``called`` has, for each code, those that it has called; ``recursive``: one has come back.
    """

    known: dict[Hashable, Routine] = field(default_factory=dict)
    callers: dict[int, Place | None] = field(default_factory=dict)
    called: dict[int, set[int]] = field(default_factory=dict)
    recursive: bool = False

    def entry(
        self,
        code: Code,
        scope: Scope,
        caller: Place | None,
        modes: tuple[Any, ...],
        ambient: Hashable,
        caught: bool = False,
    ) -> Place:
        """The first block of a function, called at ``caller``."""
        if caller is not None and not self.recursive:
            self.note_call(id(caller.routine.code), id(code))
        key = (id(code), scope_key(scope), ambient, caught)
        routine = self.known.get(key)
        if routine is None:
            caller = self.callers.setdefault(id(code), caller)
            routine = self.known[key] = Routine(
                code, scope, modes, ambient, caught, caller, len(self.known)
            )
        return routine.places[0]

    def note_call(self, caller: int, code: int) -> None:
        """One code calls another, which may be the first time and close a ring."""
        known = self.called.setdefault(caller, set())
        if code in known:
            return
        known.add(code)
        reached: set[int] = set()
        pending = [code]
        while pending:
            at = pending.pop()
            if at not in reached:
                reached.add(at)
                pending += self.called.get(at, ())
        self.recursive = caller in reached


def scope_key(scope: Scope) -> Hashable:
    """Equal for scopes in which a function does the same; the routine keeps them alive."""
    boxes = [(name, None if isinstance(b, Cell) else id(b)) for name, b in scope.free.items()]
    return (id(scope.function), id(scope.namespace), scope.title, *boxes)
