"""The modes of a block: ``with torch.no_grad():`` around each execution of the blocks inside.

Modes are entered and left around every block execution, so they never leak to other groups.
A manager that can be entered only once works where the ``with`` body is a single block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from autobatch.batching.context import Context, RowsFail
from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.ir.program import Block, Function
from autobatch.vm.values import Cell, Uniform, read

REPEATABLE = (
    torch.no_grad,
    torch.enable_grad,
    torch.set_grad_enabled,
    torch.inference_mode,
    torch.autocast,
    torch.device,
    torch.autograd.set_detect_anomaly,
    torch.autograd.detect_anomaly,
)


@contextmanager
def entered_modes(
    function: Function, block: Block, env: dict[str, Cell], context: Context
) -> Iterator[None]:
    """The block's managers entered, outermost first; what they gave is ``context.entered``."""
    with ExitStack() as stack:
        for name in block.modes:
            manager = manager_of(function, block, name, env)
            try:
                context.entered[name] = stack.enter_context(manager)
            except Exception as error:
                raise RowsFail(context.lowest(), error) from error
        yield


def manager_of(function: Function, block: Block, name: str, env: dict[str, Cell]) -> Any:
    value = read(env[name])
    if type(value) is not Uniform:
        raise refused(block, "its manager differs by thread")
    if isinstance(value.obj, REPEATABLE):
        return value.obj
    if sum(name in other.modes for other in function.blocks) > 1:
        raise refused(block, "its body branches or calls, so it runs in several parts")
    return value.obj


def refused(block: Block, why: str) -> UnsupportedError:
    span = block.ops[0].span if block.ops else block.terminator.span
    return UnsupportedError(
        Diagnostic(
            "This `with` statement cannot run in a batch.",
            span,
            "inside it",
            (f"{why}; only torch's modes (no_grad, autocast, …) can be entered again and again.",),
            ("keep branches, loops and calls out of its body, or use autobatch.per_thread.",),
            "with-manager",
        )
    )
