"""What a stretch writes into containers: ``x.name = v``, ``d["key"] = v`` and ``xs[2] = v``.

A store only gives a place in a container that the program has made another cell. So it is put off
to the end of its stretch, where ``v`` is known, and a later read of the place in the stretch is
``v`` itself:

    %1 = getattr[at] self                %1 = getattr[at] self
    %3 = iadd %1, %2                     %3 = iadd %1, %2
    setattr[at] self, %3        ->       %5 = copy %3
    %5 = getattr[at] self                %7 = sub %5, %6
    %7 = sub %5, %6                      self.at: %3

In: the operations of an ``Outline``, one by one. Out: what each is in the stretch, None where it
ends there. Nothing between a store and the end of the stretch may see the container in another way:
through another name, as an operand, within another container. What a recording has been given
before the first store must not lead to such a container either. Keys and indices are literals, or
the same for all threads, as those of a loop are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from autobatch.batching.kinds import is_instance
from autobatch.batching.objects.attributes import is_plainly_put
from autobatch.batching.operations import Env
from autobatch.ir.program import Op
from autobatch.values.cells import Cell, Column, Container, Uniform
from autobatch.values.heap.walks import reached

OF_STORES = {"setitem": "getitem", "setattr": "getattr"}
"""What writes a place, and what reads it."""
Place = tuple[str, str | None, Any]
"""What reads it, the variable of the key, and the name, key or index where there is none."""


@dataclass(slots=True, eq=False, repr=False)
class Stores:
    """The stores that a stretch has taken so far, each as ``store_of`` has it.

    ``latest`` is what each place holds, by the variable of the container, and the place in it.
    """

    ops: list[Op] = field(default_factory=list)
    latest: dict[tuple[str, Place], str] = field(default_factory=dict)

    def take(
        self, op: Op, env: Env, made: Set[str], reads: Sequence[str], constants: Mapping[str, Cell]
    ) -> bool:
        """Whether a store fits into the stretch, whose recording makes ``made`` of ``reads``."""
        store = store_of(op, constants)
        if store is None or any(name in made for name in (store.args[0], *store.args[2:])):
            return False
        receiver, value, *_ = store.args
        if not may_put(env, store):
            return False
        if value not in made and (value not in env or not is_plain(env[value])):
            return False
        if any(shows(env[name], [store]) for name in reads if name in env):
            return False
        self.ops.append(store)
        written = place_of_store(store)
        self.latest = {
            (other, place): kept
            for (other, place), kept in self.latest.items()
            if not may_be_one(place, written)  # nor need it be the same container
        }
        self.latest[receiver, written] = value
        return True

    def seen(self, op: Op, env: Env, made: Set[str], constants: Mapping[str, Cell]) -> Op | None:
        """What an operation after a store is; None where it may see the store in another way."""
        if not self.ops:
            return op
        if any(out in store.args for store in self.ops for out in op.outs):
            return None
        place = place_of(op, constants)
        known = all(arg in env and arg not in made for arg in op.args)
        if place is not None and known and type(env[op.args[0]].value) is Container:
            stored = self.latest.get((op.args[0], place))
            if stored is not None:
                return Op("copy", op.outs, (stored,), None, op.span)
            written = map(place_of_store, self.ops)
            return None if any(may_be_one(place, other) for other in written) else op
        given = [env[arg] for arg in op.args if arg in env and arg not in made]
        return None if any(shows(cell, self.ops) for cell in given) else op


def store_of(op: Op, constants: Mapping[str, Cell]) -> Op | None:
    """A store: its operands are the container, the value and, if it is no literal, the key or
    index; ``attr`` is the name, or the literal. None of another key.
    """
    if op.name == "setattr":
        return op
    base, index, value = op.args
    if index not in constants:
        return Op(op.name, (), (base, value, index), None, op.span)
    key = literal(constants[index])
    return None if key is None else Op(op.name, (), (base, value), key, op.span)


def literal(cell: Cell) -> int | str | None:
    key = cell.value.obj if type(cell.value) is Uniform else None
    return key if type(key) in (int, str) else None


def place_of_store(store: Op) -> Place:
    return OF_STORES[store.name], next(iter(store.args[2:]), None), store.attr


def place_of(op: Op, constants: Mapping[str, Cell]) -> Place | None:
    """The place that an operation reads, if it reads one."""
    if op.name == "getattr":
        return op.name, None, op.attr
    if op.name != "getitem":
        return None
    index = op.args[1]
    if index not in constants:
        return op.name, index, None
    key = literal(constants[index])
    return None if key is None else (op.name, None, key)


def may_be_one(one: Place, other: Place) -> bool:
    """Whether two places of containers of one kind may be the same: -1 is the last of a list."""
    (kind, variable, key), (kind_of_other, variable_of_other, key_of_other) = one, other
    if kind != kind_of_other:
        return False
    if variable is not None or variable_of_other is not None:
        return True
    if type(key) is int and type(key_of_other) is int and (key < 0) is not (key_of_other < 0):
        return True
    return bool(key == key_of_other)


def may_put(env: Env, store: Op) -> bool:
    receiver, _, *index = store.args
    if receiver not in env or any(name not in env for name in index):
        return False
    value, key = env[receiver].value, literal(env[index[0]]) if index else store.attr
    if store.name == "setattr":
        return is_plainly_put(value, store.attr)
    if key is None or not has_items(value):
        return False
    if value.type is dict:
        return type(value.cells) is dict
    return type(key) is int and is_within(value.cells, key)


def has_items(value: Any) -> TypeGuard[Container]:
    """Whether it is a list or dict of the program's, of which each item is a cell."""
    return type(value) is Container and value.type in (list, dict)


def is_within(cells: Any, index: int) -> bool:
    return type(cells) is list and -len(cells) <= index < len(cells)


def is_plain(cell: Cell) -> bool:
    return type(cell.value) in (Column, Uniform)


def shows(cell: Cell, stores: Sequence[Op]) -> bool:
    """Whether a cell leads to a container of a kind that is stored to."""
    items = any(store.name == "setitem" for store in stores)
    attributes = any(store.name == "setattr" for store in stores)
    return any(
        (attributes and is_instance(part.value)) or (items and has_items(part.value))
        for part in reached([cell])
    )


def are_stored(stores: Sequence[Op], reads: Iterable[str], env: Env) -> bool:
    """Whether stores may be put off in an environment like the one that they were taken in."""
    return all(may_put(env, store) for store in stores) and not any(
        shows(env[name], stores) for name in reads if name in env
    )


def put(stores: Iterable[Op], env: Env) -> None:
    """The stores of a stretch that has run."""
    for store in stores:
        receiver, value, *index = store.args
        whole: Any = env[receiver].value
        key = env[index[0]].value.obj if index else store.attr  # type: ignore[union-attr]
        whole.cells[key] = env[value]
