"""What all threads have alike is each thread's own once a recorded call has written it.

A recording computes what is alike for all threads on the host, before the rest of it runs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import autobatch
from tests.test_language_batched import WAYS

RELU = nn.ReLU(inplace=True)


def changed(buffer: Tensor, x: Tensor) -> None:
    buffer.add_(x)


WRITES: list[Callable[[Tensor, Tensor], Any]] = [
    lambda buffer, x: buffer.add_(x),
    lambda buffer, x: torch.mul(x, 2.0, out=buffer),
    lambda buffer, x: torch.mul(x, 2.0, out=buffer),
    lambda buffer, x: torch.sort(x, out=(buffer, torch.zeros(5, dtype=torch.int64))),
    lambda buffer, x: torch.relu_(buffer.add_(x)),
    lambda buffer, x: F.relu(buffer.add_(x), inplace=True),
    lambda buffer, x: F.relu(buffer.add_(x), True),
    lambda buffer, x: RELU(buffer.add_(x)),
    lambda buffer, x: torch.Tensor.add_(buffer, x),
    lambda buffer, x: operator.iadd(buffer, x),
    lambda buffer, x: torch._foreach_add_([buffer], [x]),
    lambda buffer, x: changed(buffer, x),
    lambda buffer, x: buffer.view(5, 1).add_(x.view(5, 1)),
    lambda buffer, x: buffer[1:].copy_(x[1:]),
    lambda buffer, x: buffer.scatter_(0, x.abs().long().clamp(max=4), x),
    lambda buffer, x: buffer.index_add_(0, torch.tensor([0, 1]), x[:2]),
    lambda buffer, x: buffer.__setitem__(0, x[0]),
]


def program(write: Callable[[Tensor, Tensor], Any]) -> Callable[[Tensor], Any]:
    def written(x: Tensor) -> Any:
        buffer = torch.zeros(5)
        held, part = [buffer, torch.ones(5)], buffer.view(5, 1)
        write(buffer, x)
        return buffer + 1, torch.exp(held[0]), part * 2, held[1] + 1, buffer

    return written


@pytest.mark.sampled(6)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("write", WRITES, ids=range(len(WRITES)))
def test_what_is_read_after_a_write_is_what_was_written(write: Any, way: str) -> None:
    func, xs = program(write), torch.randn(4, 5)
    expected = [func(x.clone()) for x in xs]
    batched = autobatch.vmap(func, **WAYS[way])
    for _ in range(3):
        for found, rows in zip(batched(xs), zip(*expected, strict=True), strict=True):
            torch.testing.assert_close(found, torch.stack(rows))
