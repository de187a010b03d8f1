"""What torch says of numbers where it wants a tensor, and of matrices that it has no kernel for."""

from __future__ import annotations

import pytest
import torch

from tests.oracle import assert_matches_loop

NUMBERS = torch.tensor([3, 1, 2])
FUNCTIONS = (
    *(torch.is_inference, torch.Tensor.is_inference, torch.is_floating_point, torch.is_complex),
    *(torch.is_nonzero, torch.is_tensor, torch.is_signed, torch.numel, torch.is_neg),
    *(torch.is_conj, torch.is_storage, torch.isnan, torch.isfinite, torch.overrides.is_tensor_like),
)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
def test_a_predicate_of_a_number(function):
    def program(n):
        return function(n.item())

    assert_matches_loop(program, (NUMBERS,))


def trace(m):
    return m.trace()


def function_trace(m):
    return torch.trace(m)


@pytest.mark.parametrize("program", [trace, function_trace])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32])
def test_a_trace(program, dtype):
    assert_matches_loop(program, ((torch.arange(12).reshape(3, 2, 2) > 5).to(dtype),))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32])
@pytest.mark.parametrize("size", [0, 3])
def test_a_dot_product(size, dtype):
    def program(x):
        return torch.dot(x, x), x @ x, torch.vdot(x, x), torch.inner(x, x)

    assert_matches_loop(program, (torch.ones(2, size).to(dtype),))
