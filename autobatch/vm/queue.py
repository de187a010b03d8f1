"""The priority queue of waiting blocks: smallest program counter first.

Groups that arrive at a block coalesce when they are alike; those that are not wait side by side
and run one after the other. When more than ``UNLIKE`` wait at one block, what they differ in
becomes objects, by the given ``objectify``, so that their number stays bounded.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from autobatch.vm import heap
from autobatch.vm.groups import Group, coalesced
from autobatch.vm.values import Cell, Column, Uniform, is_number, read

UNLIKE = 8
Key = tuple[Hashable, ...]


@dataclass(slots=True, eq=False)
class Waiting:
    """``names[pc]`` are the variables that live at a block; groups hold no others there."""

    names: Sequence[Sequence[str]]
    device: torch.device
    objectify: Callable[[Group, Sequence[str]], None]
    counters: list[int] = field(default_factory=list)
    places: dict[int, Group | dict[Key, list[Group]]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counters)

    def smallest(self) -> int:
        return self.counters[0]

    def add(self, pc: int, group: Group) -> None:
        """Let a group wait at a block; groups without threads never do."""
        if not group.k:
            return
        place = self.places.get(pc)
        if place is None:
            self.prune(pc, group)
            self.places[pc] = group
            heapq.heappush(self.counters, pc)
            return
        names = self.names[pc]
        if type(place) is Group:
            place = self.places[pc] = {key_of(place, names): [place]}
        self.prune(pc, group)
        key = key_of(group, names)
        if key not in place:
            key = self.reconciled(place, group, names, key)
        place.setdefault(key, []).append(group)
        if len(place) > UNLIKE:
            self.places[pc] = self.unified(place, names)

    def prune(self, pc: int, group: Group) -> None:
        """Keep the variables that live at the block."""
        env = group.env
        group.env = {name: env[name] for name in self.names[pc] if name in env}

    def next(self, parts: list[tuple[int, Group]]) -> tuple[int, Group] | None:
        """Queue what a step has left, and give what runs next; None when nothing waits.

        A group that goes on alone at the smallest program counter never enters the queue.
        """
        if not parts:
            return self.pop() if self.counters else None
        best = min(parts, key=first) if len(parts) > 1 else parts[0]
        for part in parts:
            if part is not best:
                self.add(*part)
        pc, group = best
        if group.k and (not self.counters or pc < self.counters[0]):
            self.prune(pc, group)
            return pc, group
        self.add(pc, group)
        return self.pop() if self.counters else None

    def reconciled(
        self, place: dict[Key, list[Group]], group: Group, names: Sequence[str], key: Key
    ) -> Key:
        """Let a number that meets a 0-d tensor join it, if that is all that keeps groups apart."""
        for other_key, others in list(place.items()):
            if len(other_key) != len(key):
                continue
            if promote(group, others[0], names) and key_of(group, names) == other_key:
                return other_key
            key = key_of(group, names)
            if all(promote(other, group, names) for other in others):
                del place[other_key]
                for other in others:
                    place.setdefault(key_of(other, names), []).append(other)
                if key in place:
                    return key
        return key

    def unified(
        self, place: dict[Key, list[Group]], names: Sequence[str]
    ) -> dict[Key, list[Group]]:
        """Turn the variables in which the groups differ into objects."""
        groups = [coalesced(groups, names, self.device) for groups in place.values()]
        differing = [
            name
            for name in names
            if all(name in group.env for group in groups)
            and len({heap.alike([group.env[name]]) for group in groups}) > 1
        ]
        result: dict[Key, list[Group]] = {}
        for group in groups:
            self.objectify(group, differing)
            result.setdefault(key_of(group, names), []).append(group)
        return result

    def pop(self) -> tuple[int, Group]:
        """The smallest program counter, and the threads that waited there longest."""
        pc = self.counters[0]
        place = self.places[pc]
        if type(place) is Group:
            group = place
        else:
            key = next(iter(place))
            group = coalesced(place.pop(key), self.names[pc], self.device)
            if place:
                return pc, group
        heapq.heappop(self.counters)
        del self.places[pc]
        return pc, group


def first(part: tuple[int, Group]) -> int:
    return part[0]


def key_of(group: Group, names: Sequence[str]) -> Key:
    present = tuple(name for name in names if name in group.env)
    roots = [group.env[name] for name in present]
    heap.settle(roots)
    return (present, *heap.alike(roots))


def promote(group: Group, other: Group, names: Sequence[str]) -> bool:
    """Give numbers of ``group`` the dtype of the 0-d tensors that ``other`` has in their place.

    False, and nothing changed, unless every number in question fits exactly.
    """
    changes: dict[str, Cell] = {}
    for name in names:
        mine, theirs = group.env.get(name), other.env.get(name)
        if mine is None or theirs is None:
            if mine is not theirs:
                return False
            continue
        tensor = zero_dim(read(theirs))
        if tensor is None or zero_dim(read(mine)) is not None:
            continue
        joined = joined_value(read(mine), tensor)
        if joined is None:
            return False
        changes[name] = Cell(joined)
    group.env.update(changes)
    return bool(changes)


def zero_dim(value: object) -> Tensor | None:
    """A tensor of the dtype and device of a value that is a 0-d tensor in each thread."""
    if type(value) is Column and value.tag == "tensor" and value.data.dim() == 1:
        return value.data
    if type(value) is Uniform and isinstance(value.obj, Tensor) and value.obj.dim() == 0:
        return value.obj
    return None


def joined_value(value: object, like: Tensor) -> Uniform | Column | None:
    if type(value) is Uniform and is_number(value.obj):
        if type(value.obj) is bool and like.dtype is not torch.bool:
            return None
        try:
            tensor = torch.tensor(value.obj, dtype=like.dtype, device=like.device)
        except (RuntimeError, OverflowError):
            return None
        exact = tensor.item() == value.obj or value.obj != value.obj
        return Uniform(tensor) if exact else None
    if type(value) is Column and value.tag == "float" and like.dtype is torch.float64:
        return Column(value.data)
    if type(value) is Column and value.tag == "int" and value.bounds is not None:
        if like.dtype.is_floating_point:
            digits = torch.finfo(like.dtype).eps
            if max(abs(value.bounds[0]), abs(value.bounds[1])) * digits <= 2:
                return Column(value.data.to(like.dtype))
        elif like.dtype is torch.int64:
            return Column(value.data)
    return None
