"""Where a branch sends the rows of a group, by the one host read that it takes.

``see`` reads the condition with all that was pending; ``parted`` takes the rows apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.escapes import any_left, bind, ends_of
from autobatch.compat import on_host, on_one_device
from autobatch.ir.program import Branch
from autobatch.values.cells import Column
from autobatch.vm.groups import Group, Parts, restricted
from autobatch.vm.state import Frame, RunState


def parted(state: RunState, frame: Frame, branch: Branch, group: Group, taken: np.ndarray) -> Parts:
    """The rows that take a branch go one way, the others the other way."""
    group.checks = []
    (yes,) = taken.nonzero()
    if len(yes) == len(taken):
        return [(branch.then, group)]
    if not len(yes):
        return [(branch.otherwise, group)]
    (no,) = (~taken).nonzero()
    parts: Parts = []
    with state.moving():
        for target, rows in ((branch.then, yes), (branch.otherwise, no)):
            parts.append((target, restricted(group, rows, frame.code.live[target])))
            state.tally.copies(len(rows))
    return parts


def see(context: Context, condition: Tensor, loose: Sequence[Column] = ()) -> np.ndarray:
    """The one host read of a branch: its condition, and all that was pending."""
    context.counter.host_read("branch")
    if not context.checks and not context.escapes and not loose:
        return on_host(condition)
    failed = [check.failed for check in context.checks]
    masks = torch.stack(on_one_device([condition, *failed]))
    seen = seen_with_bounds(context, masks, loose) if loose or context.escapes else on_host(masks)
    if seen[1:].any():
        context.judge(seen[1:])
    context.checks = []
    taken: np.ndarray = seen[0]
    return taken


def seen_with_bounds(context: Context, masks: Tensor, loose: Sequence[Column]) -> np.ndarray:
    """The masks, by one read with where ints lie and whether results fit."""
    parts = [masks.flatten().to(torch.int64), *ends_of(loose)]
    if context.escapes:
        parts.append(any_left(context.escapes))
    seen = on_host(torch.cat(on_one_device(parts)))
    context.take_in(bool(context.escapes and seen[-1]))
    bind(loose, seen[masks.numel() :].tolist())
    return seen[: masks.numel()].reshape(masks.shape) != 0  # type: ignore[no-any-return]
