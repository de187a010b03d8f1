"""Whether a call is looked at for machine code, and what comes of it: ``plan_if_worth``.

To find out whether a program has a compiled form, and to make it, takes from some milliseconds to a
second, and in a process that has not loaded torch's tracing two more for one with tensors. So
``executor="auto"`` looks where that may pay, by what can be told of a call at a glance: at those of
few threads and those of tensors with dimensions once ``CALLS`` like them have come, and then as
long as torch's tracing is not loaded for its sake (see ``batching.trace.loading``); not where one
block runs straight through, nor where a callable wants to say which block is next. What has been
refused is looked at ever more rarely (``refusing``). All of it goes by counts, so that a job does
the same in every run.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from autobatch.alone import CALLS, MOST_THREADS
from autobatch.arguments.batch import Batch
from autobatch.arguments.mapped import Mapped
from autobatch.batching.calling.resolving import Target
from autobatch.batching.trace.loading import is_loaded
from autobatch.compiled import NotLoaded, Plan, Plans, Refused, TooMany, kept, loading, plan_of
from autobatch.listeners import Tally
from autobatch.llvm import is_installed
from autobatch.options import Options
from autobatch.vm.code import Code
from autobatch.vm.entering import receiver_of
from autobatch.vm.library import Library

MOST_COUNTED = 64
"""Outlines of calls of one function."""

Outline = tuple[Any, ...]


def plan_if_worth(
    target: Target, batch: Batch, options: Options, library: Library
) -> tuple[Plan, list[Tensor]] | None:
    """A plan for a call, and its inputs; None where none is looked for, or found."""
    function = target.callee
    if target.effect != "program" or not isinstance(function, FunctionType) or not batch.size:
        return None
    auto = options.executor_at_work == "auto"
    if not auto and not options.compiles:
        return None
    code = library.code_of(function, *receiver_of(target))
    if auto and (goes_straight(code, options) or callable(options.schedule) or not is_installed()):
        return None
    plans = kept(code)
    outline = (auto, options.scalars, *map(outline_of, (*batch.args, *batch.kwargs.values())))
    if auto and is_early(plans, outline, batch.size):
        return None
    if plans.waits and not is_loaded() and outline in plans.waits:
        return None
    if plans.refusals.holds(outline, batch.size):
        return None
    try:
        with loading(not auto):
            found = plan_of(target, batch, options, library, Tally())
    except TooMany as refused:
        plans.refusals.refused(outline, over=refused.most)
        return None
    except NotLoaded:
        if len(plans.waits) < MOST_COUNTED:
            plans.waits |= {outline}
        return None
    except Refused:
        plans.refusals.refused(outline)
        return None
    plans.refusals.lifted(outline, batch.size)
    return found


def goes_straight(code: Code, options: Options) -> bool:
    """Whether it is one block, which needs no engine; see ``straight``."""
    return code.is_outright and options.is_plain


def outline_of(arg: Any) -> object:
    """What an argument looks like at a glance."""
    data = arg.data if type(arg) is Mapped else arg
    if not isinstance(data, Tensor):
        return type(data)
    return data.dtype, data.dim(), data.requires_grad and torch.is_grad_enabled()


def is_early(plans: Plans, outline: Outline, threads: int) -> bool:
    """Whether too few calls like this one have come, which counts where it matters."""
    if threads > MOST_THREADS and not any(map(has_rows, outline)):
        return False
    before = plans.calls.get(outline, 0)
    if before >= CALLS:
        return False
    if outline not in plans.calls and len(plans.calls) >= MOST_COUNTED:
        plans.calls.clear()
    plans.calls[outline] = before + 1
    return True


def has_rows(part: object) -> bool:
    """Whether what an argument looks like is a tensor with a dimension beside that of the batch."""
    return type(part) is tuple and part[1] > 1
