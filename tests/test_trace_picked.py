"""Large parts that each thread picks of its own tensor are copied whole."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from autobatch.batching.trace import Input, Trace, record
from autobatch.batching.trace.picked import MANY

K, SIZE = 2 * MANY // 64, 3


def parts(k: int, x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
    return (x[torch.arange(k), i],)


def of_uniform(k: int, x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
    """Any rows, not each thread's own."""
    return (x[i.abs() % 2, i],)


def trace_of(fn=parts, event=(SIZE, 8, 8), dtype=torch.int64, grad=False) -> Trace:
    x = torch.randn(5, *event, requires_grad=grad)
    given = [Input("column", x), Input("column", torch.zeros(5, dtype=dtype))]
    return record(fn, given)


@pytest.mark.parametrize("k", [0, 1, 7, K])
@pytest.mark.parametrize("least", [0, -SIZE])
def test_the_same_parts(k: int, least: int) -> None:
    trace, x = trace_of(), torch.randn(K, SIZE, 8, 8)[:k]
    assert "picked(" in trace.source
    i = torch.randint(least, SIZE, (k,))
    for table in (x, x.transpose(2, 3), x.transpose(1, 2).contiguous().transpose(1, 2)):
        (found,) = trace(k, table, i)
        assert torch.equal(found, table[torch.arange(k), i])


@pytest.mark.parametrize("place", [SIZE, -SIZE - 1])
def test_a_place_out_of_range_is_torchs_error(place: int) -> None:
    i = torch.zeros(K, dtype=torch.int64)
    i[-2] = place
    with pytest.raises(IndexError, match="out of bounds"):
        trace_of()(K, torch.randn(K, SIZE, 8, 8), i)


@pytest.mark.parametrize(
    "trace",
    [
        trace_of(of_uniform),
        trace_of(event=(SIZE, 4)),
        trace_of(event=(SIZE,)),
        trace_of(dtype=torch.int32),
        trace_of(grad=True),
    ],
)
def test_where_they_are_not(trace: Trace) -> None:
    assert "picked(" not in trace.source
