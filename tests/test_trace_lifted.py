"""Numbers that a replay is given: as tensors that are kept, and of no other value or dtype."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import autobatch
from autobatch.batching.trace import Input, Trace, record
from autobatch.batching.trace.lifted import MOST, Lifted

NUMBERS = [1.2, 1.3, 0.0, -0.0, math.inf, -math.inf, math.nan, 1e300, 1e-300, 0.1]
OPERATIONS = [
    lambda x, n: x > n,
    lambda x, n: x == n,
    lambda x, n: x * n,
    lambda x, n: x / n,
    lambda x, n: x + n,
]


def trace_of(operation, dtype: torch.dtype) -> Trace:
    inputs = [Input("column", torch.ones(3, dtype=dtype)), Input("float", 0.7)]
    with torch.no_grad():
        return record(lambda k, x, n: (operation(x, n),), inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("place", range(len(OPERATIONS)))
def test_results_are_those_with_the_number(place: int, dtype: torch.dtype) -> None:
    operation = OPERATIONS[place]
    trace = trace_of(operation, dtype)
    x = torch.tensor([-2.0, 0.0, 1.2, 3.0]).to(dtype)
    for number in [*NUMBERS, *NUMBERS]:
        with torch.no_grad():
            (found,) = trace(4, x, number)
        wanted = operation(x, number)
        assert found.dtype is wanted.dtype
        assert torch.equal(found.nan_to_num(7.5), wanted.nan_to_num(7.5))
        assert torch.equal(found.signbit(), wanted.signbit())


def test_a_number_is_kept() -> None:
    trace = trace_of(lambda x, n: x > n, torch.float32)
    assert "constant[a1]" in trace.source
    numbers = Lifted(torch.float32)
    assert type(numbers[1.5]) is float
    assert isinstance(numbers[1.5], Tensor)
    assert numbers[1.5] is numbers[1.5]
    assert type(numbers[-0.0]) is float


def test_few_are_kept() -> None:
    numbers = Lifted(torch.float64)
    for number in range(1, 3 * MOST):
        assert numbers[float(number)] == number
        assert numbers[float(number)].item() == number
    assert len(numbers) <= MOST


def test_none_is_another_ones() -> None:
    class Sees(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    numbers = Lifted(torch.float32)
    with Sees():
        assert numbers[2.5] == 2.5
    torch.func.vmap(lambda x: x * numbers[2.5])(torch.ones(2))
    assert not numbers
    with torch.inference_mode(), torch.device("meta"):
        assert numbers[2.5] == 2.5
        assert not numbers[2.5].is_inference()
    assert numbers[2.5].is_cpu


class UntilPast:
    def __init__(self, limit: float) -> None:
        self.limit = limit

    def __call__(self, x: Tensor) -> Tensor:
        for _ in range(30):
            x = x * 1.1 + 0.1
            if x.sum() > self.limit:
                break
        return x


def test_an_attribute_that_changes_between_calls() -> None:
    program = UntilPast(3.0)
    batched = autobatch.vmap(program, trace_after=0)
    xs = torch.linspace(0.0, 1.0, 12).reshape(4, 3)
    for limit in (3.0, 9.0, 0.0, -0.0, 3.0, math.inf, 9.0):
        program.limit = limit
        with torch.no_grad():
            for _ in range(3):
                found = batched(xs)
        torch.testing.assert_close(found, torch.stack([program(x) for x in xs]))
