"""What a run counts, held to what a listener of the same run hears, block by block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import autobatch


def counted_as_heard(
    func: Callable[..., Any], args: Sequence[Tensor], rounds: int = 6, **options: Any
) -> tuple[Any, Any, list[autobatch.Step]]:
    """Counts of a run in which threads may spin, those of one with a listener, and its steps."""
    batched = autobatch.vmap(func, trace_after=0, **options)
    steps: list[autobatch.Step] = []
    heard = autobatch.vmap(func, trace_after=0, listeners=steps.append, **options)
    with torch.no_grad():
        for _ in range(rounds):
            batched(*args)
        heard(*args)
        steps.clear()
        with autobatch.counts() as told:
            heard(*args)
        with autobatch.counts() as counted:
            batched(*args)
    assert counted.block_executions == len(steps)
    assert counted.by_block == Counter((step.function, step.pc) for step in steps)
    threads: Counter[tuple[str, int]] = Counter()
    for step in steps:
        threads[step.function, step.pc] += len(step.threads)
    assert counted.threads_by_block == threads
    assert counted.reads_by_block == told.reads_by_block
    assert counted.launches_by_block == told.launches_by_block
    assert counted.row_copies <= told.row_copies
    return counted, told, steps
