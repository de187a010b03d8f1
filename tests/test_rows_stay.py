"""Operations that move elements within each example's own tensor: rows that nobody needed stay so.

Torch's own nodes for them are the same that rows are moved by. The derivative of ``x.sqrt()`` is
none below zero, and infinite at it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import autobatch
from tests.test_gradients_present import WAYS

XS = torch.tensor(
    [[-0.3, 0.2, 0.5], [0.1, 0.2, 0.3], [0.5, -1.0, 2.0], [0.4, 0.3, 1.5]], dtype=torch.float64
)
NS = torch.tensor([1, 4, 2, 3])
MATRIX = torch.linspace(0.5, 2, 9, dtype=torch.float64).view(3, 3)


def written(y: Tensor, where: Any, value: Tensor) -> Tensor:
    made = y.clone()
    made[where] = value
    return made


def added(y: Tensor, where: Any, value: Tensor) -> Tensor:
    made = y.clone()
    made[where] += value
    return made


MADE: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "flip": lambda x, y, n: y.flip(0),
    "flip of two": lambda x, y, n: (MATRIX * y).flip(0, 1),
    "roll": lambda x, y, n: y.roll(1),
    "roll by dims": lambda x, y, n: (MATRIX * y).roll(1, 1),
    "index": lambda x, y, n: y[n % 3],
    "index list": lambda x, y, n: y[[2, 0, 1]],
    "indices": lambda x, y, n: (MATRIX * y)[[0, 1], n % 3],
    "column": lambda x, y, n: (MATRIX * y)[:, n % 3],
    "index_select": lambda x, y, n: y.index_select(0, torch.tensor([n % 3])),
    "take": lambda x, y, n: y.take(torch.tensor([0, n % 3])),
    "gather": lambda x, y, n: y.gather(0, torch.tensor([n % 3])),
    "index_put": lambda x, y, n: y.index_put((torch.tensor([n % 3]),), x[:1]),
    "index_add": lambda x, y, n: y.index_add(0, torch.tensor([n % 3]), x[:1]),
    "index_add of it": lambda x, y, n: x.index_add(0, torch.tensor([n % 3]), y[:1]),
    "index_copy": lambda x, y, n: y.index_copy(0, torch.tensor([n % 3]), x[:1]),
    "scatter": lambda x, y, n: y.scatter(0, torch.tensor([n % 3]), x[:1]),
    "written": lambda x, y, n: written(y, n % 3, x[0]),
    "written to a list": lambda x, y, n: written(y, [0, 2], x[0]),
    "written into": lambda x, y, n: written(x, n % 3, y[0]),
    "added": lambda x, y, n: added(y, n % 3, x[0]),
    "added into": lambda x, y, n: added(x, n % 3, y[0]),
    "added into a list": lambda x, y, n: added(x, [0, 1], y[:2]),
    "embedding": lambda x, y, n: F.embedding(torch.tensor([n % 3]), y.view(3, 1)),
    "rot90": lambda x, y, n: torch.rot90(MATRIX * y),
    "sorted": lambda x, y, n: y.sort().values,
    "one of two": lambda x, y, n: torch.stack([y, x])[n % 2],
    "grad": lambda x, y, n: torch.func.grad(lambda a: (a * a).sum())(y),
    "grad of a program": lambda x, y, n: autobatch.grad(squares)(y),
    "grad with what is captured": lambda x, y, n: autobatch.grad(lambda a: squares(a * y))(x),
    "jacobian": lambda x, y, n: autobatch.jacrev(lambda a: a * a)(y),
    "hessian": lambda x, y, n: autobatch.hessian(squares)(y),
    "pullback": lambda x, y, n: autobatch.vjp(lambda a: a * a, y)[1](x)[0],
}


def squares(a: Tensor) -> Tensor:
    total, k = a.sum() * 0, 0
    while k < 3 and total < 5:
        total = total + (a * a).sum()
        k += 1
    return total


def returned_by_some(make: Callable[..., Tensor]) -> Callable[[Tensor, int], Tensor]:
    def function(x: Tensor, n: int) -> Tensor:
        z = make(x, x.sqrt(), n)
        if n > 2:
            return z.sum() + x.sum()
        return x.sum()

    return function


def dropped_in_a_loop(make: Callable[..., Tensor]) -> Callable[[Tensor, int], Tensor]:
    def function(x: Tensor, n: int) -> Tensor:
        z = make(x, x.sqrt(), n)
        for _ in range(3 - n):
            z = x * 2
        return z.sum() + x.sum()

    return function


def agree(function: Callable[..., Any], xs: Tensor, want: Tensor, options: dict[str, Any]) -> None:
    batch = autobatch.vmap(function, scalars="python", **options)
    for _ in range(3):
        found = slopes(lambda xs: batch(xs, NS), xs)
        torch.testing.assert_close(found, want, equal_nan=True)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", [returned_by_some, dropped_in_a_loop])
@pytest.mark.parametrize("name", MADE)
def test_rows_that_nobody_needed(name: str, form: Callable[..., Any], way: str) -> None:
    function = form(MADE[name])
    want = slopes(loop(function), XS)
    assert want.isfinite().all()
    agree(function, XS, want, WAYS[way])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "name", [name for name in MADE if name.startswith(("grad", "jac", "hess"))]
)
def test_rows_that_only_a_derivative_needed(name: str, way: str) -> None:
    """Others need what it is taken of: these have an infinite derivative, too, as in the loop."""

    def function(x: Tensor, n: int) -> Tensor:
        y = x.sqrt()
        z = MADE[name](x, y, n)
        return z.sum() + x.sum() if n > 2 else y.sum()

    xs = XS.clamp(min=0)
    xs[1, 0] = 0
    want = slopes(loop(function), xs)
    assert not want[1].isfinite().all()
    agree(function, xs, want, WAYS[way])


def loop(function: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda xs: torch.stack([function(x, int(n)) for x, n in zip(xs, NS, strict=True)])


def slopes(function: Callable[[Tensor], Tensor], xs: Tensor) -> Tensor:
    xs = xs.clone().requires_grad_()
    (found,) = torch.autograd.grad(function(xs).sum(), xs)
    return found
