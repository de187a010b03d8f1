"""Thread groups: the rows of the threads that are at one place, and what their variables hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch

from autobatch.batching.context import Check
from autobatch.batching.escapes import Pending
from autobatch.compat import on_device
from autobatch.values.cells import Cell
from autobatch.values.heap import merging, selecting
from autobatch.vm.ways import Marks, joined, picked

CARRIED = "%carried"
"""Holds the caller's cells that a callee may write, so that they move with its threads."""


FORKED = "%forked"
"""Holds a group's forked calls and deferred operations, in program order, until they are joined."""


@final
@dataclass(slots=True, eq=False, repr=False)
class Group:
    """``rows[i]`` is the frame's row of the group's thread ``i``; ``env`` holds live values only.

    ``checks`` are failures that kernels have found and the host has not yet looked at; ``ways``
    says, once the threads have come to the exit, which ``return`` brought each. ``pending`` are
    results that may not fit, of a block that the group has just left; no other group has met it.
    """

    rows: np.ndarray
    env: dict[str, Cell]
    checks: list[Check] = field(default_factory=list)
    ways: Marks = None
    pending: Pending | None = None

    @property
    def k(self) -> int:
        return len(self.rows)


Parts = list[tuple[int, Group]]
"""Groups, and the program counters at which they go on."""


def restricted(group: Group, positions: np.ndarray, names: Sequence[str]) -> Group:
    """The threads at the given positions, with the named variables."""
    env = group.env
    present = [name for name in names if name in env]
    cells = selecting.select([env[name] for name in present], positions)
    checks = [restricted_check(check, positions) for check in group.checks]
    part = Group(group.rows[positions], dict(zip(present, cells, strict=True)), checks)
    if group.ways is not None:
        part.ways = picked(group.ways, positions)
    return part


def restricted_check(check: Check, positions: np.ndarray) -> Check:
    index = on_device(positions, check.failed.device)
    evaluate = check.evaluate
    failed = check.failed.index_select(0, index)
    return Check(failed, lambda row: evaluate(int(positions[row])), check.span, check.operands)


def coalesced(groups: Sequence[Group], names: Sequence[str], device: torch.device) -> Group:
    """One group for several alike ones."""
    if len(groups) == 1:
        return groups[0]
    present = [name for name in names if name in groups[0].env]
    pieces = [[group.env[name] for name in present] for group in groups]
    sizes = [group.k for group in groups]
    cells = merging.merge(pieces, sizes, device)
    rows = np.concatenate([group.rows for group in groups])
    checks: list[Check] = []
    offset = 0
    for group in groups:
        checks += [shifted(check, offset, len(rows)) for check in group.checks]
        offset += group.k
    whole = Group(rows, dict(zip(present, cells, strict=True)), checks)
    if groups[0].ways is not None:
        whole.ways = joined([group.ways for group in groups], sizes)
    return whole


def shifted(check: Check, offset: int, size: int) -> Check:
    """A check of some rows as one of a larger group that holds them from ``offset`` on."""
    failed = check.failed.new_zeros(size)
    failed[offset : offset + len(check.failed)] = check.failed
    evaluate = check.evaluate
    return Check(failed, lambda row: evaluate(row - offset), check.span, check.operands)
