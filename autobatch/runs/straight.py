"""The short way through a call: a function that is one block, run by a driver, without an engine.

In: what a run calls, and its batch. Out: what its threads return, or None, with nothing changed and
nothing counted, where the general way (``running``) is to decide, which means the same. A warm call
of a straight program is then the checks that its driver has written down, and its kernels.
"""

from __future__ import annotations

from types import FunctionType

from autobatch.arguments.batch import Batch, is_of_tensors
from autobatch.batching.calling.resolving import Target
from autobatch.batching.operations import Env, Scope
from autobatch.batching.stretches import chosen
from autobatch.frontend import MISSING
from autobatch.listeners import Tally
from autobatch.options import Options
from autobatch.values.cells import Cell
from autobatch.vm.code import Code
from autobatch.vm.entering import opened, receiver_of
from autobatch.vm.library import Library


def straight(
    target: Target, batch: Batch, options: Options, library: Library
) -> tuple[Code, Cell] | None:
    """The code that has run and what it returns; None where the general way is to run it."""
    if not (batch.size and options.is_plain and is_of_tensors(batch)):
        return None
    if target.effect == "construct" or not isinstance(target.callee, FunctionType):
        return None
    code = library.code_of(target.callee, next(iter(receiver_of(target)), MISSING))
    if not code.is_outright:
        return None
    try:
        code, scope, env = opened(library, target.given(*batch.cells(options.scalars)))
    except TypeError:
        return None
    return driven(code, scope, env, batch.size, options)


def driven(
    code: Code, scope: Scope, env: Env, k: int, options: Options
) -> tuple[Code, Cell] | None:
    """Run the only block, and count its execution."""
    (block,) = code.blocks
    executor = chosen(options.executor_of_stretches, True, options.fast_math)
    kernels = 0
    if block.ops:
        driver = code.site(0, 0, executor).by_driver(env, scope, k, None)
        if driver is None:
            return None
        kernels = driver.kernels
    value = env.get(block.terminator.value)  # type: ignore[union-attr]
    if value is None:
        return None
    tally = Tally()
    if tally.active:
        tally.block = (code.function.name, 0)
        tally.execution(k)
        tally.launch(kernels)
    return code, value
