"""Reads of shared tensors within calls whose code nobody looks into.

In: a call of a function on the host, or of one taken to be a single operation, while contributions
wait to be applied. Out: its result, or an error if it has computed with tensors that its threads
have written, which a mode finds that sees each operation of torch's. What the call looks at in
another way (``t.numpy()``) is not found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from autobatch.batching.containers.callees import is_code, is_used_up
from autobatch.batching.context import Context
from autobatch.batching.contributions import Contributions
from autobatch.batching.effects import belongs_to_torch
from autobatch.batching.shared import refusals
from autobatch.errors import SharedWriteError
from autobatch.modes import DispatchMode
from autobatch.structure import own_attribute
from autobatch.transforms.records import made_of
from autobatch.values.cells import Cell, Uniform, read


class Watch(DispatchMode):
    """``found`` are the tensors read that ``threads`` have written."""

    def __init__(self, given: Contributions, threads: np.ndarray) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.given = given
        self.threads = threads
        self.found: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if not getattr(func, "is_view", False):
            operands = tree_leaves((args, named))
            tensors = [leaf for leaf in operands if isinstance(leaf, Tensor)]
            self.found += [t for t in tensors if self.given.has_written(self.threads, [t])]
        return func(*args, **named)


def watched(
    context: Context, effect: str, callee: Any, cells: Sequence[Cell], run: Callable[[], Cell]
) -> Cell:
    """What ``run`` gives, a call with ``cells``; reads that come late are told, whatever it is."""
    given = context.contributions
    if given is None or not is_unseen(effect, callee, cells):
        return run()
    watch = Watch(given, context.threads)
    try:
        with watch:
            result = run()
    except Exception as error:
        if watch.found:
            raise refuse_late(context, watch.found) from error
        raise
    if watch.found:
        raise refuse_late(context, watch.found)
    return result


def is_unseen(effect: str, callee: Any, cells: Sequence[Cell]) -> bool:
    """Whether a call runs Python code that is not lowered."""
    if effect == "unknown":
        return True
    if effect == "host":
        return any(is_code(cell) or is_used_up(cell) for cell in cells)
    if effect == "transform":
        return runs_module(callee) or any(map(is_module, cells))
    if isinstance(own_attribute(callee, "__self__"), nn.Module):
        return True
    return isinstance(callee, FunctionType | MethodType) and not belongs_to_torch(callee)


def runs_module(callee: Any) -> bool:
    """Whether it is a transform of a module, of which nothing but its tensors is looked into."""
    while (made := made_of(callee)) is not None:
        callee = made.function
    while isinstance(callee, partial):
        callee = callee.func
    return isinstance(callee, nn.Module) or isinstance(own_attribute(callee, "__self__"), nn.Module)


def is_module(cell: Cell) -> bool:
    value = read(cell)
    return type(value) is Uniform and runs_module(value.obj)


def refuse_late(context: Context, found: Sequence[Tensor]) -> SharedWriteError:
    """The error for a read of tensors that some of the threads have written."""
    assert context.contributions is not None
    before = context.contributions.has_written(context.threads, found)
    assert before is not None
    return refusals.read_late(context.span, before)
