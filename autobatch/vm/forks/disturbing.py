"""What would change what calls were noted with before they have run: then these come first.

A noted call has copies of the cells that it was given; but the threads' own objects (``Objects``)
it has as they are, and a deferred operation has its operands themselves. In: an operation of a
group with entries, or a call that is to run at once. Out: whether it may write what an entry is to
read. The caller's objects are not among that: to write one is refused, and they hold no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import BuiltinMethodType, MethodType
from typing import Any

from autobatch.batching.calling import resolving
from autobatch.batching.foreign import BUILTIN, Foreign, memory_of, parts
from autobatch.batching.host.own_methods import is_own
from autobatch.errors import AutobatchError
from autobatch.frontend import MISSING
from autobatch.ir.ops import info
from autobatch.ir.program import Op
from autobatch.values.cells import (
    CLOSURE,
    DEFERRAL,
    METHOD,
    PARTIAL,
    Cell,
    Container,
    Objects,
)
from autobatch.values.heap import walks
from autobatch.vm.calling import reach
from autobatch.vm.entering import opened, receiver_in
from autobatch.vm.forks.pending import entries, has_deferred
from autobatch.vm.forks.targets import ITERATORS, MOST_PARTS, VALUES
from autobatch.vm.groups import FORKED, Group
from autobatch.vm.nested import Nested
from autobatch.vm.own_code import MOVES
from autobatch.vm.purity import may_change
from autobatch.vm.settled import Settled
from autobatch.vm.state import RunState

ATOMS = VALUES - {tuple, frozenset}
Place = tuple[str, int]


@dataclass(slots=True, eq=False, repr=False)
class Disturbing:
    """Asks that of what a run comes to."""

    state: RunState
    noted: list[Cell] = field(default_factory=list)
    known: list[Objects] = field(default_factory=list)
    """Entries, and threads' own objects in them: calls that are noted one by one add to both."""

    def is_op(self, op: Op, group: Group) -> bool:
        """Whether an operation may that is no fork; what a deferred one writes keeps its place."""
        if op.name == "defer":
            return False
        cells = [group.env[name] for name in op.args if name in group.env]
        if op.name != "call":
            if op.name not in MOVES and self.runs(group, cells):
                return True
            effect = info(op.name).effect
            if effect == "advances":
                return self.advances(group, cells[:1])
            return effect == "writes" and self.meets(group, cells[:1], within=False)
        callee, *given = cells
        if "out" in op.attr.keywords:
            return self.meets(group, given)
        return self.is_call(group, resolving.resolve(callee, given, {}), callee)

    def is_call(self, group: Group, target: resolving.Target, called: Cell | None = None) -> bool:
        """Whether a call may, or may have an effect of another kind; ``called`` names it."""
        if FORKED not in group.env:
            return False
        if self.runs(group, [*target.args, *target.kwargs.values()]):
            return True
        if target.effect in ("program", "construct"):
            return self.is_program(group, target)
        if target.effect == "objects":
            return self.meets(group, [*target.args, *target.kwargs.values(), target.callee])
        written = target.args[:1] if called is None else [called, *target.args[:1]]
        return may_change(target.callee) and self.meets(group, written, within=False)

    def is_program(self, group: Group, target: resolving.Target) -> bool:
        """The same of a program function: one that calls what is not known may write all it has."""
        library, found = self.state.library, called_by(target)
        purity = library.purity_of(found)
        if purity is None or not purity.is_pure:
            return True
        is_known = Settled(library, draws=True).is_settled_callee(found)
        if is_known and not purity.writes:
            return False
        given = [*target.args, *target.kwargs.values()]
        if isinstance(target.callee, Container):
            given += target.callee.children()
        if not self.meets(group, given):
            return False
        if not is_known or target.effect == "construct":
            return True
        try:
            _, _, env = opened(library, target)
        except (TypeError, AutobatchError):
            return True  # the call raises it; what comes before may fail first
        return self.meets(group, [env[name] for name in purity.writes])

    def advances(self, group: Group, cells: Iterable[Cell]) -> bool:
        """Whether entries got what is gone through, an iterator, themselves."""
        values = objects_in(cells)
        if not values:
            return False
        kinds = {kind for value in values for kind in value.kinds}
        alike = [value for value in self.objects(group) if not kinds.isdisjoint(value.kinds)]
        own = {id(item) for value in values for item in value.items}
        return any(id(item) in own for value in alike for item in value.items)

    def objects(self, group: Group) -> list[Objects]:
        """Those that a group's entries have as they are; operands of deferred operations change."""
        now = [cell for cell, _ in entries(group)]
        before = len(self.noted)
        if has_deferred(group) or now[:before] != self.noted:
            before, self.known = 0, []
        new = (part for cell in now[before:] for part in cell.value.children())  # type: ignore[union-attr]
        self.known += objects_in(walks.reached(new))
        self.noted = now
        return self.known

    def forget(self) -> None:
        """The entries have run."""
        self.noted, self.known = [], []

    def runs(self, group: Group, cells: Iterable[Cell]) -> bool:
        """Whether among operands is what may write, when it is called, what entries read.

        ``map(xs.append, ys)``, ``sorted(ys, key=adds_to_xs)``; or what does as it is gone through.
        """
        own = list(filter(may_call, cells))
        return bool(own) and self.meets(group, own)

    def meets(self, group: Group, cells: Iterable[Cell], within: bool = True) -> bool:
        """Whether entries read what some cells have, or what that holds if ``within``."""
        cells = list(cells)
        if has_deferred(group):  # else many calls that are noted one by one would all be asked
            written = reach(cells) if within else set(map(id, cells))
            noted = [entry for _, entry in entries(group) if entry.type is DEFERRAL]
            deferred = (cell for entry in noted for cell in entry.children())
            if written and any(id(cell) in written for cell in walks.reached(deferred)):
                return True
        own = objects_in(walks.reached(cells) if within else cells)
        if not own:
            return False
        foreign = self.state.services.foreign
        read = foreign.others(item for value in self.objects(group) for item in value.items)
        if ATOMS.issuperset(map(type, read)):
            return False
        mine = foreign.others(item for value in own for item in value.items)
        return may_meet(held(mine, foreign, within), held(read, foreign))


def may_call(cell: Cell) -> bool:
    """Whether it holds functions or methods that may write, or what runs code as it gives items."""
    value = cell.value
    if type(value) is Container:
        return value.type in (CLOSURE, METHOD, PARTIAL)
    return type(value) is Objects and any(map(is_called, value.kinds))


def is_called(kind: type) -> bool:
    if kind in (BuiltinMethodType, MethodType):
        return True
    return hasattr(kind, "__next__") and kind not in ITERATORS


def called_by(target: resolving.Target) -> object:
    """The program function of a call, as it is known to what judges it."""
    callee: Any = target.callee
    if isinstance(callee, Container):
        return Nested(*callee.static[:2])
    receiver = receiver_in(target.args) if target.effect == "program" else MISSING
    return callee if receiver is MISSING else MethodType(callee, receiver)


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


def held(items: Iterable[Any], foreign: Foreign, within: bool = True) -> Iterator[Place | None]:
    """Where what can be written lies, among some objects and what they hold ``within``.

    None for what may hold more than can be seen.
    """
    waiting = list(items)
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
