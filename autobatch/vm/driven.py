"""The short way through a block: a driver runs all its operations, and its end is plain.

Most block executions of a hot loop need no context: nothing is pending, no mode is entered, nobody
looks on, and a driver knows what every operation makes. Then what is left of a step is the driver,
one host read, and the split. Whatever is not plain goes the general way (``blocks``), which means
the same.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from autobatch.batching.arithmetic import loose_columns
from autobatch.batching.compat import on_host
from autobatch.batching.stretches import Site
from autobatch.ir.program import Block, Branch, Converted, Jump, Terminator
from autobatch.vm.blocks import Parts, parted
from autobatch.vm.groups import Group
from autobatch.vm.state import Frame, RunState
from autobatch.vm.values import Column, Uniform


def is_plain(state: RunState, block: Block, group: Group) -> bool:
    """Whether a block execution has nothing but operations and an end to run."""
    return (
        not group.checks
        and group.pending is None
        and not block.modes
        and state.observer is None
        and not state.steps.listeners
    )


def driven(state: RunState, frame: Frame, pc: int, group: Group) -> bool:
    """Run all operations of a block by a driver, if one fits; else nothing has changed."""
    work, code = state.work, frame.code
    if work is None:
        return False
    ops = code.blocks[pc].ops
    if not ops:
        return True
    return by_driver(state, frame, code.site(pc, 0, work.executor), group)


def converted(state: RunState, frame: Frame, pc: int, group: Group) -> Converted | None:
    """Run a block and those behind it as one, where that is known to be right; else None.

    Nothing has changed then.
    """
    work, code = state.work, frame.code
    made = code.blocks[pc].converted
    open_ends = group.checks or group.pending is not None
    if made is None or work is None or open_ends or state.observer is not None or not group.k:
        return None
    site = code.whole(pc, work.executor)
    if by_driver(state, frame, site, group):
        return made
    if site.rests():
        return None
    context = state.context(frame, group)
    if site.advance(work, context, frame.scope, group.env) != len(made.ops):
        return None
    site.misses = 0
    return made


def by_driver(state: RunState, frame: Frame, site: Site, group: Group) -> bool:
    """Run all operations of a site by a driver, if one fits."""
    context_of = partial(state.context, frame, group)
    given = state.contributions
    driver = site.by_driver(group.env, frame.scope, len(group.rows), context_of, given)
    if driver is None:
        return False
    state.tally.launch(driver.kernels)
    return True


def plain_end(state: RunState, frame: Frame, terminator: Terminator, group: Group) -> Parts | None:
    """Where a jump or a branch on a plain bool sends the rows; None where that is not so plain."""
    if type(terminator) is Jump:
        return [(terminator.target, group)]
    if type(terminator) is not Branch or group.checks:
        return None
    taken = plain_decision(state, terminator, group)
    if taken is None:
        return None
    if type(taken) is bool:
        return [(terminator.then if taken else terminator.otherwise, group)]
    return parted(state, frame, terminator, group, taken)


def plain_decision(
    state: RunState, branch: Branch, group: Group, settled: bool = False
) -> np.ndarray | bool | None:
    """A branch's plain bool, for all threads or for each of them; None where it is not so plain.

    ``settled``: no int of the group's is so large that its read had to look where they lie.
    """
    cell = group.env.get(branch.condition)
    value = None if cell is None else cell.value
    if type(value) is Uniform and type(value.obj) is bool:
        return value.obj
    if type(value) is not Column or not (settled or not loose_columns(group.env)):
        return None
    data = value.data
    if data.dtype is not torch.bool or data.dim() != 1:
        return None
    state.tally.host_read("branch")
    return on_host(data)
