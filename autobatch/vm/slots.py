"""What the arms of a diamond put into objects, dicts and lists: slots, as good as variables.

    if busy: s["h"] = step(s["h"])      for the threads that are busy, in a dict of their own
    else:    s["n"] = s["n"] + 1        for the others, in theirs

Each way runs with containers of its own, rows of those that there are. What both have at a slot
that either writes is put together, and the slot in the container that there is holds it: whatever
else leads to that container leads there.

In: the stores of arms, and what variables hold. Out: the slots, and what they are to hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autobatch.batching.operations import Env
from autobatch.batching.stretches.stores import is_within
from autobatch.ir.definitions import Definitions
from autobatch.ir.program import Op, Var
from autobatch.values.cells import Cell, Container

Key = int | str
Item = tuple[Var, Key]
"""The variable of a container, and an attribute, a key or an index."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Slot:
    """What ``items`` name, each by a variable of its own for the ``container``."""

    container: Container
    key: Key
    items: Sequence[Item]

    @property
    def cell(self) -> Cell:
        return cells_of(self.container)[self.key]

    def own(self, held: dict[Item, Container]) -> Cell | None:
        """What it holds in the containers of one way, which that has by its items; None if it has
        no such.
        """
        found = next((held[item] for item in self.items if item in held), None)
        return None if found is None else cells_of(found)[self.key]

    def put(self, cell: Cell) -> None:
        cells_of(self.container)[self.key] = cell


def cells_of(container: Container) -> dict[Key, Cell]:
    """By attribute, key or index."""
    return container.cells  # type: ignore[return-value]


def item_of(op: Op, definitions: Definitions) -> Item | None:
    """What a store gives another value; None where that depends on a value."""
    if op.name == "setattr":
        return op.args[0], op.attr
    index = definitions.get(op.args[1])
    if index is None or index.name != "const" or type(index.attr) not in (int, str):
        return None
    return op.args[0], index.attr


def containers_of(env: Env, items: Iterable[Item]) -> dict[Item, Container]:
    """The containers of the program's own that have such an item already, by the items."""
    found: dict[Item, Container] = {}
    for name, key in items:
        value = env[name].value if name in env else None
        if type(value) is Container and has(value, key):
            found[name, key] = value
    return found


def has(container: Container, key: Key) -> bool:
    if type(container.cells) is list:
        return type(key) is int and is_within(container.cells, key)
    return key in container.cells


def slots_of(env: Env, items: Iterable[Item]) -> list[Slot] | None:
    """The slots that items name, of which several may be one; None where one is none yet."""
    wanted = list(items)
    found = containers_of(env, wanted)
    if len(found) < len(wanted):
        return None
    named: dict[tuple[int, Key], list[Item]] = {}
    for item, container in found.items():
        key = item[1]
        if type(key) is int and type(container.cells) is list:
            key %= len(container.cells)
        named.setdefault((id(container), key), []).append(item)
    return [Slot(found[some[0]], key, some) for (_, key), some in named.items()]
