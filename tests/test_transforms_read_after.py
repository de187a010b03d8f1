"""What a differentiated function has captured, read once the derivative has been taken.

Its threads part and meet within a level of ``torch.func``, and so do the variables that it has
captured; those are as they were afterwards, in memory and in kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch import grad, jacrev, jvp
from tests.oracle import assert_matches_loop

XS = torch.tensor([[0.2, -0.1, 0.3], [2.0, 1.0, -1.5], [0.1, 0.2, 0.1], [-3.0, 2.0, 0.5]])
WAYS: list[dict[str, Any]] = [
    {"plain": "never", "executor": "vmap"},
    {"plain": "never", "trace_after": 0},
    {"plain": "never", "engine": "program_counter"},
    {"engine": "sequential"},
]


def in_all(x: Tensor) -> Tensor:
    def small(v: Tensor) -> Tensor:
        n = 0
        while v.abs().sum() > 1.5 and n < 4:
            v, n = v * 0.6 + 0.1 * x, n + 1
        return v + v.sin()

    z = jacrev(lambda v: torch.tanh(jvp(small, (v,), (v.detach() * 2,))[1]))(x * 1) @ x
    return grad(lambda q: (q * x[1]).sum())(z) + z


def in_some(x: Tensor) -> Tensor:
    """Some threads give back what they were given, so that results are not alike."""

    def small(v: Tensor) -> Tensor:
        n = 0
        while v.abs().sum() > 1.5 and n < 4:
            v, n = v * 0.6 + 0.1 * x, n + 1
        return v

    z = jacrev(lambda v: torch.tanh(jvp(small, (v,), (v.detach() * 2,))[1]))(x * 1) @ x
    return grad(lambda q: (q * x[1]).sum() if q[0] > 0 else q.sum() * x[0])(z) + z


def in_a_call(x: Tensor) -> Tensor:
    z = in_some(x)
    return autobatch.vmap(grad(lambda q: (q * x[1]).sum()))(torch.outer(z, x)) @ z


def written_after(x: Tensor) -> Tensor:
    z = in_some(x * 1)
    x += 1
    return grad(lambda q: (q * x).sum())(z) + x


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("program", [in_all, in_some, in_a_call, written_after])
def test_it_is_what_it_was(program: Callable[..., Any], way: dict[str, Any]) -> None:
    assert_matches_loop(program, [XS.double()], **way)
    xs = XS.double().requires_grad_()
    (given,) = torch.autograd.grad(autobatch.vmap(program, **way)(xs).sum(), xs)
    (wanted,) = torch.autograd.grad(sum(program(x.clone()).sum() for x in xs), xs)
    torch.testing.assert_close(given, wanted)


def test_results_that_are_alike_meet_as_they_are() -> None:
    """And so do the variables: no thread goes on by itself."""
    with autobatch.counts() as counts:
        autobatch.vmap(in_all, plain="never")(XS)
    assert not counts.by_thread


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_threads_share_is_looked_at_outside_the_level_that_met_it(way: dict[str, Any]) -> None:
    bound = torch.tensor([0.5, -0.2, 0.1])

    def curved(x: Tensor, bound: Tensor) -> Tensor:
        def inner(v: Tensor) -> Tensor:
            second = autobatch.hessian(lambda q: torch.where(q > bound, q**3, bound * q).sum())
            return second(v) @ v

        return jvp(inner, (x * 1,), (x,))[1]

    for _ in range(3):
        got = autobatch.vmap(curved, in_dims=(0, None), **way)(XS, bound)
        torch.testing.assert_close(got, torch.stack([curved(x, bound) for x in XS]))
