"""What would change what calls were noted with before they have run: then these come first.

A noted call has copies of the cells that it was given; but the threads' own objects (``Objects``)
it has as they are, and a deferred operation has its operands themselves. In: an operation of a
group with entries, or a call that is to run at once. Out: whether it may write what an entry is to
read. The caller's objects are not among that: to write one is refused, and they hold no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import BuiltinMethodType, MethodType
from typing import Any

from autobatch.batching.calling import resolving
from autobatch.batching.foreign import BUILTIN, Foreign, memory_of, parts
from autobatch.batching.host.own_methods import is_own
from autobatch.errors import AutobatchError
from autobatch.frontend import MISSING
from autobatch.ir.ops import info
from autobatch.ir.program import Op
from autobatch.values.cells import DEFERRAL, Cell, Container, Objects
from autobatch.values.heap import walks
from autobatch.vm.calling import reach
from autobatch.vm.entering import opened, receiver_in
from autobatch.vm.forks.pending import entries
from autobatch.vm.forks.targets import ITERATORS, MOST_PARTS, VALUES
from autobatch.vm.groups import FORKED, Group
from autobatch.vm.library import Library
from autobatch.vm.nested import Nested
from autobatch.vm.purity import may_change
from autobatch.vm.settled import Settled
from autobatch.vm.state import RunState

WRITING = ("writes", "advances")
"""Effects of operations that change their first operand."""
ATOMS = VALUES - {tuple, frozenset}
Place = tuple[str, int]


@dataclass(slots=True, eq=False, repr=False)
class Disturbing:
    """Asks that of what a run comes to."""

    state: RunState

    def is_op(self, op: Op, group: Group) -> bool:
        """Whether an operation may that is no fork; what a deferred one writes keeps its place."""
        if op.name == "defer":
            return False
        cells = [group.env[name] for name in op.args if name in group.env]
        if op.name != "call":
            writes = info(op.name).effect in WRITING
            return writes and self.meets(group, cells[:1], within=False)
        if not self.meets(group, cells):
            return False
        if "out" in op.attr.keywords:
            return True
        callee, *given = cells
        return self.is_call(group, resolving.resolve(callee, given, {}), callee)

    def is_call(self, group: Group, target: resolving.Target, called: Cell | None = None) -> bool:
        """Whether a call may, or may have an effect of another kind; ``called`` names it."""
        if FORKED not in group.env:
            return False
        if target.effect in ("program", "construct"):
            written = written_by(self.state.library, target)
            return written is None or self.meets(group, written)
        if target.effect == "objects":
            return self.meets(group, [*target.args, *target.kwargs.values(), target.callee])
        written = target.args[:1] if called is None else [called, *target.args[:1]]
        return may_change(target.callee) and self.meets(group, written, within=False)

    def meets(self, group: Group, cells: Iterable[Cell], within: bool = True) -> bool:
        """Whether entries read what some cells have, or what that holds if ``within``."""
        cells = list(cells)
        noted = [entry for _, entry in entries(group)]
        written = reach(cells) if within else set(map(id, cells))
        deferred = (cell for entry in noted if entry.type is DEFERRAL for cell in entry.children())
        if written and any(id(cell) in written for cell in walks.reached(deferred)):
            return True
        own = objects_in(walks.reached(cells) if within else cells)
        if not own:
            return False
        read = objects_in(walks.reached(cell for entry in noted for cell in entry.children()))
        foreign = self.state.services.foreign
        return bool(read) and may_meet(held(own, foreign, within), held(read, foreign))


def written_by(library: Library, target: resolving.Target) -> list[Cell] | None:
    """What a call of a program function may write; None if it may have effects of another kind.

    That is all that it is given or has captured, where it calls what is not known.
    """
    given = [*target.args, *target.kwargs.values()]
    found: Any = target.callee
    if isinstance(found, Container):
        found = Nested(*found.static[:2])
    elif target.effect == "program" and receiver_in(target.args) is not MISSING:
        found = MethodType(found, receiver_in(target.args))
    purity = library.purity_of(found)
    if purity is None or not purity.is_pure:
        return None
    if target.effect == "construct":
        return given
    try:
        _, _, env = opened(library, target)
    except (TypeError, AutobatchError):
        return None  # the call raises it; what comes before may fail first
    if Settled(library, draws=True).is_settled_callee(found):
        return [env[name] for name in purity.writes]
    return list(env.values())


def objects_in(cells: Iterable[Cell]) -> list[Objects]:
    """The threads' own objects; lists that lie in one table are copied with their cells."""
    values = (cell.value for cell in cells)
    return [value for value in values if type(value) is Objects and value.lists is None]


def may_meet(written: Iterable[Place | None], read: Iterable[Place | None]) -> bool:
    """Whether the same is among places of two kinds; None among them may be any."""
    places: set[Place | None] = set()
    for place in written:
        places.add(place)
        if place is None or len(places) > MOST_PARTS:
            return any(True for _ in read)
    if not places:
        return False
    known = enumerate(read)
    return any(place is None or place in places or count > MOST_PARTS for count, place in known)


def held(
    values: Iterable[Objects], foreign: Foreign, within: bool = True
) -> Iterator[Place | None]:
    """Where what can be written lies, among some objects and what they hold ``within``.

    None for what may hold more than can be seen.
    """
    waiting: list[Any] = [item for value in values for item in value.items]
    seen: set[int] = set()
    while waiting:
        item = waiting.pop()
        kind = type(item)
        if kind in ATOMS or id(item) in seen or foreign.holds(item):
            continue
        seen.add(id(item))
        place = memory_of(item)
        if place:
            yield "memory", place
            continue
        if kind is BuiltinMethodType:
            waiting.append(item.__self__)
            continue
        if kind not in (tuple, frozenset):
            yield "object", id(item)
        if not within:
            continue
        if kind is MethodType or kind in BUILTIN or is_own(kind):
            waiting += parts(item)
        elif kind in ITERATORS:
            waiting += item.__reduce__()[1]
        else:
            yield None
