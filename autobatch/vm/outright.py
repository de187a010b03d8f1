"""Calls that run outright: a callee of one block, by a driver, within its caller's step.

Most of what a short call costs is to save the caller's variables, to wait, and to take them up
again. None of that is needed where the callee is one block that a driver runs to its end: then no
thread parts, fails or draws in it. It counts as the block execution that it is.

In: a call that ends its block, of a function whose block would be the next to run, for the
caller's threads alone. Out: its result; None where the call goes the general way, and then nothing
has changed.
"""

from __future__ import annotations

from types import FunctionType

from autobatch.batching.calling.resolving import Target
from autobatch.errors import AutobatchError
from autobatch.ir.program import Call, Return
from autobatch.values.cells import Cell
from autobatch.vm.entering import Entry, entrance_of, module_of, receiver_of
from autobatch.vm.groups import Group
from autobatch.vm.state import Frame, RunState
from autobatch.vm.ways import is_tail


def may_run(state: RunState, frame: Frame, call: Call, group: Group) -> bool:
    """Whether a call in a frame may run outright, whatever it calls."""
    return (
        state.work is not None
        and group.k > 0
        and not frame.catches
        and frame.gone is None
        and frame.paths is None
        and state.observer is None
        and state.guard is None
        and not state.steps.listeners
        and not state.steps.spent
        and state.steps.own is None
        and not frame.code.blocks[state.tally.block[1]].modes
        and not (frame.answers and is_tail(frame.code.function, call))
    )


def is_straight(state: RunState, target: Target) -> bool:
    """Whether a call is of a Python function of one block."""
    if target.effect != "program" or type(target.callee) is not FunctionType:
        return False
    try:
        entrance = entrance_of(state.library, target, state.judgements)
        if entrance is not None:
            return entrance.code.is_outright
        known = receiver_of(target) or module_of(target)
        return state.library.code_of(target.callee, *known).is_outright
    except AutobatchError:  # what is wrong is told, with its place, as the call is made
        return False


def run(state: RunState, entry: Entry, group: Group) -> Cell | None:
    """What a call returns for all threads of a group, if a driver runs it."""
    code, work = entry.code, state.work
    if work is None or not code.is_outright:
        return None
    (block,) = code.blocks
    end, kernels = block.terminator, 0
    assert isinstance(end, Return)
    if block.ops:
        site = code.site(0, 0, work.executor)
        driver = site.by_driver(entry.env, entry.scope, group.k, None, state.contributions)
        if driver is None:
            return None
        kernels = driver.kernels
    here = state.tally.block
    state.steps.begin(code.function, 0, group.k)
    state.tally.launch(kernels)
    state.tally.block = here
    return entry.env[end.value]
