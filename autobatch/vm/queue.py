"""The priority queue of waiting blocks: smallest program counter first.

Groups that arrive at a block coalesce when they are alike; those that are not wait side by side
and run one after the other. When more than ``UNLIKE`` wait at one block, what they differ in
becomes objects, by the given ``objectify``, so that their number stays bounded.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import torch

from autobatch.batching.operations import CAPTURED
from autobatch.values.cells import (
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    Value,
    fits_column,
)
from autobatch.values.heap import likeness, walks
from autobatch.vm import reconciling
from autobatch.vm.groups import CARRIED, FORKED, Group, coalesced
from autobatch.vm.reconciling import promoted

UNLIKE = 8
Key = tuple[Hashable, ...]


class Ordered(Hashable, Protocol):
    """What says which block runs next: the smallest."""

    def __lt__(self, other: Any, /) -> bool: ...


class Names(Protocol):
    """The variables that live at a block."""

    def __getitem__(self, pc: Any, /) -> Sequence[str]: ...


P = TypeVar("P", bound=Ordered)


@dataclass(slots=True, eq=False, repr=False)
class Waiting(Generic[P]):
    """``names[pc]`` are the variables that live at a block; groups hold no others there.

    A program counter is a number within a frame, a ``Place`` where a queue is of several functions.
    ``choose`` picks the one to run next among those that wait, each with its number of threads, in
    ascending order; None for the smallest. ``apart`` is told of a group that is like none of those
    which wait at its block, with the first of them. ``blind`` says, when two groups meet, whether
    it does not keep them apart which names mean one tensor (see ``aliasing``).
    """

    names: Names
    device: torch.device
    objectify: Callable[[Group, Sequence[str]], None]
    empty: bool = False
    choose: Callable[[list[tuple[P, int]]], P] | None = None
    apart: Callable[[P, Group, Group], None] | None = None
    blind: Callable[[], bool] | None = None
    counters: list[P] = field(default_factory=list)
    places: dict[P, Group | dict[Key, list[Group]]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counters)

    def add(self, pc: P, group: Group) -> None:
        """Let a group wait at a block; groups without threads do so in a batch without any."""
        if not group.k and not self.empty:
            return
        place = self.places.get(pc)
        if place is None:
            self.prune(pc, group)
            self.places[pc] = group
            heapq.heappush(self.counters, pc)
            return
        names = self.names[pc]
        if type(place) is Group:
            place = self.places[pc] = {held(place, names): [place]}
        self.prune(pc, group)
        key = self.key_among(place, group, names)
        if key not in place:
            key = self.reconciled(place, group, names, key)
            if self.apart is not None and key not in place:
                self.apart(pc, next(waiting_at(place)), group)
        place.setdefault(key, []).append(group)
        if len(place) > UNLIKE and not any(FORKED in other.env for other in waiting_at(place)):
            self.places[pc] = self.unified(place, names)

    def prune(self, pc: P, group: Group) -> None:
        """Keep the variables that live at the block."""
        env = group.env
        group.env = {name: env[name] for name in self.names[pc] if name in env}

    def next(self, parts: list[tuple[P, Group]]) -> tuple[P, Group] | None:
        """Queue what a step has left, and give what runs next; None when nothing waits.

        A group that goes on alone at the smallest program counter never enters the queue.
        """
        if self.choose is not None:
            return self.chosen(parts, self.choose)
        if not parts:
            return self.pop() if self.counters else None
        best = min(parts, key=first) if len(parts) > 1 else parts[0]
        for part in parts:
            if part is not best:
                self.add(*part)
        pc, group = best
        if (group.k or self.empty) and (not self.counters or pc < self.counters[0]):
            self.prune(pc, group)
            return pc, group
        self.add(pc, group)
        return self.pop() if self.counters else None

    def is_next(self, pc: P) -> bool:
        """Whether a group that goes on to a block would run there at once, and alone."""
        return self.choose is None and (not self.counters or pc < self.counters[0])

    def chosen(
        self, parts: list[tuple[P, Group]], choose: Callable[[list[tuple[P, int]]], P]
    ) -> tuple[P, Group] | None:
        """The same by a policy's choice."""
        for part in parts:
            self.add(*part)
        if not self.counters:
            return None
        counters = sorted(self.counters)
        if len(counters) == 1:
            return self.pop()
        return self.pop(choose([(pc, self.threads_at(pc)) for pc in counters]))

    def threads_at(self, pc: P) -> int:
        place = self.places[pc]
        groups = [place] if type(place) is Group else [g for part in place.values() for g in part]
        return sum(group.k for group in groups)

    def reconciled(
        self, place: dict[Key, list[Group]], group: Group, names: Sequence[str], key: Key
    ) -> Key:
        """Let a number that meets a 0-d tensor join it, empty lists others, or tensors packed ones,
        if that is all that keeps groups apart.
        """
        for other_key in list(place):
            both = likeness.agreed(other_key, key)
            if both is not None:
                groups = place.pop(other_key)
                place.setdefault(both, []).extend(groups)
                return both
        for other_key, others in list(place.items()):
            if len(other_key) != len(key):
                continue
            joined = promoted(group, others[0], names)
            if joined is not None and self.key(joined, names) == other_key:
                group.env = joined.env
                return other_key
            joining = [promoted(other, group, names) for other in others]
            if all(new is not None and self.key(new, names) == key for new in joining):
                for other, new in zip(others, joining, strict=True):
                    assert new is not None
                    other.env = new.env
                renew(place, other_key, key)
                return key
        return self.packed(place, group, names, key)

    def packed(
        self, place: dict[Key, list[Group]], group: Group, names: Sequence[str], key: Key
    ) -> Key:
        """The same for packed rows: all that can be alike with the group are, from now on."""
        if self.blind is None or not self.blind():
            return key
        for known in list(place):
            first = place[known][0]
            mine = reconciling.packed(group, first, names) or group
            changed = [reconciling.packed(other, group, names) or other for other in place[known]]
            if mine is group and changed == place[known]:
                continue
            shared = self.key(mine, names)
            if all(self.key(each, names) == shared for each in changed):
                group.env = mine.env
                del place[known]
                place.setdefault(shared, []).extend(changed)
                key = shared
        return key

    def unified(
        self, place: dict[Key, list[Group]], names: Sequence[str]
    ) -> dict[Key, list[Group]]:
        """Turn the variables in which the groups differ into objects."""
        groups = [coalesced(groups, names, self.device) for groups in place.values()]
        nearer: dict[Key, list[Group]] = {}
        for group in groups:
            nearer.setdefault(self.key(group, names, near=True), []).append(group)
        if len(nearer) < len(place):
            return nearer
        opened = [opened_env(group) for group in groups]
        differing = [
            name
            for name in opened[0]
            if all(name in env for env in opened)
            and len({likeness.alike([env[name]], lists=True) for env in opened}) > 1
        ]
        result: dict[Key, list[Group]] = {}
        for group, env in zip(groups, opened, strict=True):
            self.objectify(Group(group.rows, env), differing)
            group.env.update({name: env[name] for name in differing if name in group.env})
            result.setdefault(self.key(group, names), []).append(group)
        return result

    def key_among(self, place: dict[Key, list[Group]], group: Group, names: Sequence[str]) -> Key:
        """The key of a group that has come to others. What its variables hold is looked at only
        where another group has the same ones, and it is not plain that they are alike.
        """
        brief = held(group, names)
        others = place.get(brief)
        if others is None:
            if all(key[0] != brief[0] for key in place):
                return brief
        elif are_plainly_alike(others[0], group):
            return brief
        else:
            renew(place, brief, self.key(others[0], names))
        return self.key(group, names)

    def key(self, group: Group, names: Sequence[str], near: bool = False) -> Key:
        """Equal for groups that are to coalesce; ``near``: for all that can."""
        return key_of(group, names, near, self.blind is not None and self.blind())

    def others(self, pc: P) -> list[Group]:
        """All groups that wait at a block, those that are alike as one."""
        found: list[Group] = []
        while pc in self.places:
            found.append(self.pop(pc)[1])
        return found

    def pop(self, wanted: P | None = None) -> tuple[P, Group]:
        """The smallest program counter, or the one wanted, and what waited there longest."""
        pc = self.counters[0] if wanted is None else wanted
        place = self.places[pc]
        if type(place) is Group:
            group = place
        else:
            key = next(iter(place))
            group = coalesced(place.pop(key), self.names[pc], self.device)
            if place:
                return pc, group
        if pc == self.counters[0]:
            heapq.heappop(self.counters)
        else:
            self.counters.remove(pc)
            heapq.heapify(self.counters)
        del self.places[pc]
        return pc, group


def waiting_at(place: dict[Key, list[Group]]) -> Iterator[Group]:
    """The groups that wait at a block; what some have forked is no object before its join."""
    return (group for alike in place.values() for group in alike)


def held(group: Group, names: Sequence[str]) -> Key:
    """The key of a group of which it is only known which variables it has.

    It stands for groups that are plainly alike, where no other groups have the same variables.
    """
    env = group.env
    return (tuple([name for name in names if name in env]),)


def are_plainly_alike(one: Group, other: Group) -> bool:
    """Whether groups that have the same variables are alike, as a look at each of them shows."""
    theirs = other.env
    sequences: list[tuple[int, int]] = []
    for name, cell in one.env.items():
        its = theirs[name]
        if not are_plain_pair(cell.value, its.value):
            return False
        if type(cell.value) is Container:
            sequences.append((id(cell), id(its)))
    if len(sequences) < 2:
        return True
    return all(len(set(ids)) == len(sequences) for ids in zip(*sequences, strict=True))


def are_plain_pair(mine: Value, its: Value) -> bool:
    """The same of what one variable holds."""
    if mine is its and type(mine) is Uniform:
        return mine.shared
    kind = type(mine)
    if kind is not type(its):
        return False
    if kind is Uniform:
        one, other = mine.obj, its.obj  # type: ignore[union-attr]
        if type(one) is type(other) and fits_column(one) and fits_column(other):
            return True
        return one is other and mine.shared and its.shared  # type: ignore[union-attr]
    if kind is Objects:
        return mine.lists is None and its.lists is None  # type: ignore[union-attr]
    if kind is Container:
        if mine.type is not tuple or its.type is not tuple:  # type: ignore[union-attr]
            return False
        if len(mine.cells) != len(its.cells):  # type: ignore[union-attr]
            return False
        pairs = zip(mine.cells, its.cells, strict=True)  # type: ignore[union-attr]
        return all(type(a.value) is Uniform and are_plain_pair(a.value, b.value) for a, b in pairs)
    return kind is Column and mine.tag != "tensor" and mine.tag == its.tag  # type: ignore[union-attr]


def renew(place: dict[Key, list[Group]], old: Key, new: Key) -> None:
    """Another key for some groups, which keep their turn."""
    renamed = {new if known == old else known: groups for known, groups in place.items()}
    place.clear()
    place.update(renamed)


def first(part: tuple[P, Group]) -> P:
    return part[0]


def key_of(group: Group, names: Sequence[str], near: bool = False, blind: bool = False) -> Key:
    """Equal for groups that are to coalesce; see ``Waiting``."""
    env = group.env
    present = [name for name in names if name in env]
    roots = [env[name] for name in present]
    walks.settle(roots)
    return (tuple(present), *likeness.alike(roots, 0 if near else group.k, blind, lists=True))


def opened_env(group: Group) -> dict[str, Cell]:
    """The variables of a group, with one more for each of the cells that move with it unnamed."""
    env = dict(group.env)
    for hidden in (CARRIED, CAPTURED):
        cell = env.pop(hidden, None)
        if cell is not None:
            value = cell.value
            assert type(value) is Container
            parts = enumerate(value.children())
            env.update((f"{hidden}.{place}", part) for place, part in parts)
    return env
