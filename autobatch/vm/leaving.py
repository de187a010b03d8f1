"""Threads that have left a spin, those that wait at one block as one group where that is plain.

They have left from the same variables, a few at a time: to hold each few against the others in the
queue, by all that might tell them apart, takes longer than to join them.

In: groups that have left, in order, each with where it waits. Out: the same, in fewer groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from autobatch.values.cells import Column, Uniform, Value, fits_column
from autobatch.values.heap.likeness import leaf_key
from autobatch.vm.groups import Group, Parts, coalesced


def gathered(parts: Parts, names: Sequence[Sequence[str]], device: torch.device) -> Parts:
    """``names`` are the variables that live at each block, ``device`` is where numbers live."""
    if len(parts) < 2:
        return parts
    alike: dict[int, list[Group]] = {}
    others: Parts = []
    for pc, group in parts:
        known = alike.setdefault(pc, [])
        if not known or are_of_a_kind(known[0], group):
            known.append(group)
        else:
            others.append((pc, group))
    return [(pc, coalesced(groups, names[pc], device)) for pc, groups in alike.items()] + others


def are_of_a_kind(one: Group, other: Group) -> bool:
    """Whether two groups have the same variables, with columns of one kind, each by itself,
    numbers of one type, or one object, as a look at each of them shows.
    """
    mine, its = one.env, other.env
    if mine.keys() != its.keys() or one.checks or other.checks:
        return False
    for name, cell in mine.items():
        if not is_plain_pair(cell.value, its[name].value):
            return False
    return len(set(map(id, mine.values()))) == len(set(map(id, its.values()))) == len(mine)


def is_plain_pair(one: Value, other: Value) -> bool:
    if type(one) is Column and type(other) is Column:
        return one.is_whole and other.is_whole and leaf_key(one) == leaf_key(other)
    if type(one) is not Uniform or type(other) is not Uniform:
        return False
    if type(one.obj) is type(other.obj) and fits_column(one.obj) and fits_column(other.obj):
        return True  # how many rounds each has gone, say
    return one.shared and other.shared and one.obj is other.obj
