"""The short way through a block: a driver runs all its operations, and its end is plain.

Most block executions of a hot loop need no context: nothing is pending, no mode is entered, nobody
looks on, and a driver knows what every operation makes. Then what is left of a step is the driver,
one host read, and the split. Whatever is not plain goes the general way (``blocks``), which means
the same.
"""

from __future__ import annotations

import numpy as np
import torch

from autobatch.batching.arithmetic import loose_columns
from autobatch.batching.context import Context
from autobatch.batching.host.rows import note_fallback
from autobatch.batching.truths import says_no_code
from autobatch.compat import on_host
from autobatch.ir.program import Block, Branch, Converted, Join, Jump, Terminator
from autobatch.values.cells import Cell, Column, Objects, Uniform
from autobatch.vm.blocks import Forks
from autobatch.vm.branching import parted
from autobatch.vm.groups import Group, Parts
from autobatch.vm.state import Frame, RunState


def is_plain(state: RunState, block: Block, group: Group) -> bool:
    """Whether a block execution has nothing but operations and an end to run."""
    return (
        not group.checks
        and group.pending is None
        and not block.modes
        and state.observer is None
        and not state.steps.listeners
    )


def driven(
    state: RunState, forks: Forks, frame: Frame, pc: int, group: Group
) -> tuple[int, Context | None]:
    """Run operations of a block by drivers, and note the calls that it forks, as far as that is
    plain: the position of the first that has not run, and the context if there is one.
    """
    work, code = state.work, frame.code
    ops, position = code.blocks[pc].ops, 0
    context: Context | None = None
    if work is None:
        return position, context
    given, whole = state.contributions, frame.exact
    while position < len(ops):
        op = ops[position]
        if op.name in ("fork", "defer"):
            if whole or not forks.noted(frame, op, group):
                break
            position += 1
            continue
        site = code.site(pc, position, work.executor)
        if context is None and site.asks_context:
            context = state.context(frame, group)
        driver = site.by_driver(group.env, frame.scope, group.k, context, given, whole)
        if driver is None:
            break
        state.tally.launch(driver.kernels)
        position = driver.end
    return position, context


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
    context = state.context(frame, group) if site.asks_context else None
    given = state.contributions
    driver = site.by_driver(group.env, frame.scope, group.k, context, given)
    if driver is not None:
        state.tally.launch(driver.kernels)
        return made
    if site.rests():
        return None
    context = context or state.context(frame, group)
    if site.advance(work, context, frame.scope, group.env) != len(made.ops):
        return None
    site.misses = 0
    return made


def plain_end(
    state: RunState,
    frame: Frame,
    terminator: Terminator,
    group: Group,
    context: Context | None = None,
) -> Parts | None:
    """Where a jump or a branch on a plain bool sends the rows; None where that is not so plain."""
    if type(terminator) is Jump:
        return [(terminator.target, group)]
    if group.checks:
        return None
    if type(terminator) is Join:
        frame.joining.append(group)
        return []
    if type(terminator) is not Branch:
        return None
    cell = group.env.get(terminator.condition)
    if cell is not None and type(cell.value) is Objects:
        context = context or state.context(frame, group)
        context.span = terminator.span
        taken: np.ndarray | bool | None = truth_of_objects(context, cell, group)
    else:
        taken = plain_decision(state, terminator, group)
    if taken is None:
        return None
    if type(taken) is bool:
        return [(terminator.then if taken else terminator.otherwise, group)]
    return parted(state, frame, terminator, group, taken)


def truth_of_objects(context: Context, cell: Cell, group: Group) -> np.ndarray | None:
    """Which threads' objects are true, where no code of the user's says so; else None."""
    value = cell.value
    assert type(value) is Objects
    if not says_no_code(value) or not group.k or context.lost or loose_columns(group.env):
        return None
    try:
        taken = np.fromiter(map(bool, value.items), dtype=bool, count=group.k)
    except Exception:  # the general way finds out whose it is
        return None
    note_fallback(context, bool, (cell,), "objects")
    context.counter.host_read("branch")
    return taken


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
