"""Values of a length of each example's own: what nobody needed of them adds nothing to derivatives.

The derivative of ``x.sqrt()`` is none below zero, and infinite at it.
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
from tests.test_rows_stay import (
    NS,
    XS,
    added,
    agree,
    dropped_in_a_loop,
    loop,
    returned_by_some,
    slopes,
    written,
)

Make = Callable[[Tensor, Tensor, int], Tensor]


def own(y: Tensor, n: int) -> Tensor:
    """Two or three of its elements."""
    return y[n % 2 :]


def iterated(z: Tensor) -> Tensor:
    total = z.sum() * 0
    for row in z:
        total = total + row * row
    return total


def until(z: Tensor) -> Tensor:
    for row in z:
        if row > 0.4:
            return row
    return z[0]


def listed(y: Tensor, n: int, times: Tensor) -> Tensor:
    rows = []
    for k in range(n):
        rows.append(y[k % 2] * times[0])
    return torch.stack(rows)


def elements(y: Tensor, n: int) -> Tensor:
    rows = list(y)
    for _ in range(n):
        rows.append(y[0])
    return torch.stack(rows)


def sliced_list(y: Tensor, n: int) -> Tensor:
    rows = [y[0], y[1], y[2]]
    return torch.stack(rows[n % 2 :])


class Box:
    def __init__(self, z: Tensor) -> None:
        self.z = z

    def total(self) -> Tensor:
        return self.z.sum() + self.z[0]


def halved(z: Tensor) -> Tensor:
    return z.sum() if len(z) <= 1 else halved(z[1:]) * 2 + z[0]


def shortened(z: Tensor) -> Tensor:
    while len(z) > 1:
        z = z[1:]
    return z


def in_place(z: Tensor, x: Tensor) -> Tensor:
    z = z.clone()
    z.mul_(2)
    z[1:] += x[0]
    z[0] = z[1] * 2
    return z


def beside(z: Tensor, x: Tensor) -> Tensor:
    total = x[0] * 0
    for k, (a, b) in enumerate(zip(z, x, strict=True)):
        total = total + a * b * k
    return total


def meeting(y: Tensor, n: int) -> Tensor:
    if n == 4:
        z = own(y, n)[1:]
    elif n == 1:
        z = y.log()
    else:
        z = torch.cat([y, y])
    return z * z


def steep_list(y: Tensor, n: int) -> list[Tensor]:
    rows = []
    for k in range(n):
        rows.append(y[k % 2].sqrt())
    return rows


def summed(y: Tensor, n: int) -> Any:
    found = {}
    for k in range(n):
        found[k] = own(y, n) * k
    return sum(found.values())


@autobatch.per_thread
def sum_on_host(rows: list[Tensor]) -> Any:
    return sum(row * 2 for row in rows)


@autobatch.per_thread
def steep_on_host(z: Tensor) -> Tensor:
    return z.sqrt()


def mask(n: int) -> Tensor:
    return torch.tensor([n % 2 == 0, True, False])


@autobatch.per_thread
def on_host(z: Tensor) -> Tensor:
    return z * z


GRID = torch.linspace(0.5, 2, 6, dtype=torch.float64).view(3, 2)


def rows(y: Tensor, n: int) -> Tensor:
    """A matrix of as many rows."""
    return (y[:, None] * GRID)[n % 2 :]


MADE: dict[str, Make] = {
    "from": lambda x, y, n: own(y, n),
    "up to": lambda x, y, n: y[: n % 3 + 1],
    "between": lambda x, y, n: y[n % 2 : n % 2 + 1 + n // 4],
    "by steps": lambda x, y, n: own(y, n)[::2],
    "of rows": lambda x, y, n: rows(y, n),
    "columns of rows": lambda x, y, n: rows(y, n)[:, 1],
    "mask": lambda x, y, n: y[mask(n)],
    "mask of values": lambda x, y, n: y[y > 0.4],
    "mask of ragged": lambda x, y, n: own(y, n)[own(y, n) > 0.4],
    "mask of matrices": lambda x, y, n: (y[:, None] * GRID)[(y[:, None] * GRID) > 0.4],
    "mask of ragged matrices": lambda x, y, n: rows(y, n)[rows(y, n) > 0.4],
    "masked_select": lambda x, y, n: y.masked_select(mask(n)),
    "places of its own": lambda x, y, n: y[torch.arange(n)[: n % 3 + 1] % 3],
    "places of ragged": lambda x, y, n: own(y, n)[torch.arange(n % 2 + 1)],
    "index_select": lambda x, y, n: own(y, n).index_select(0, torch.arange(n % 2 + 1)),
    "list": lambda x, y, n: own(y, n)[[1, 0]],
    "number": lambda x, y, n: own(y, n)[1],
    "own number": lambda x, y, n: own(y, n)[n % 2],
    "last": lambda x, y, n: own(y, n)[-1],
    "rows and column": lambda x, y, n: rows(y, n)[1, 0],
    "flip": lambda x, y, n: own(y, n).flip(0),
    "cumsum": lambda x, y, n: own(y, n).cumsum(0),
    "cumprod": lambda x, y, n: own(y, n).cumprod(0),
    "cummax": lambda x, y, n: own(y, n).cummax(0).values,
    "sort": lambda x, y, n: own(y, n).sort().values,
    "sort of rows": lambda x, y, n: rows(y, n).sort(1, descending=True).values,
    "cat": lambda x, y, n: torch.cat([own(y, n), x, y[:n]]),
    "cat with it": lambda x, y, n: torch.cat([x, own(y, n)]),
    "stack": lambda x, y, n: torch.stack([own(y, n), own(x, n)]),
    "stack beside": lambda x, y, n: torch.stack([own(y, n), own(x, n)], 1),
    "sum": lambda x, y, n: own(y, n).sum(),
    "sum of rows": lambda x, y, n: rows(y, n).sum(0),
    "sum of all": lambda x, y, n: rows(y, n).sum(),
    "mean": lambda x, y, n: own(y, n).mean(),
    "mean of all": lambda x, y, n: rows(y, n).mean(),
    "prod": lambda x, y, n: own(y, n).prod(),
    "prod of all": lambda x, y, n: rows(y, n).prod(),
    "max": lambda x, y, n: own(y, n).max(),
    "amax": lambda x, y, n: rows(y, n).amax(0),
    "max of rows": lambda x, y, n: rows(y, n).max(0).values,
    "min of rows": lambda x, y, n: rows(y, n).min(0)[0],
    "std": lambda x, y, n: own(y, n).std(),
    "norm": lambda x, y, n: own(y, n).norm(),
    "norm of all": lambda x, y, n: rows(y, n).norm(),
    "logsumexp": lambda x, y, n: own(y, n).logsumexp(0),
    "softmax": lambda x, y, n: own(y, n).softmax(0) * own(y, n),
    "log_softmax": lambda x, y, n: rows(y, n).log_softmax(0),
    "softmax of rows": lambda x, y, n: rows(y, n).softmax(1) * rows(y, n),
    "steep": lambda x, y, n: own(x, n).sqrt(),
    "steep twice": lambda x, y, n: own(own(x, n).sqrt().log(), n),
    "steep of rows": lambda x, y, n: rows(x, n).pow(0.5)[:, 1],
    "quotient": lambda x, y, n: own(x, n) / own(x + 1, n),
    "beside": lambda x, y, n: own(x, n) * y[0] + own(x, n) - y.sum(),
    "clamped": lambda x, y, n: own(y, n).clamp(max=1) + 1,
    "product": lambda x, y, n: own(y, n) @ own(y, n),
    "products": lambda x, y, n: (rows(y, n) @ rows(y, n).T).sum(1),
    "matrices": lambda x, y, n: (rows(y, n) @ rows(x, n).T).softmax(-1) @ rows(y, n),
    "matrix": lambda x, y, n: rows(y, n) @ GRID.T,
    "iterated": lambda x, y, n: iterated(own(y, n)),
    "iterated until": lambda x, y, n: until(own(y, n)),
    "reversed": lambda x, y, n: sum(reversed(own(y, n))),
    "sum of Python's": lambda x, y, n: sum(own(y, n)),
    "sum of a generator": lambda x, y, n: sum(q * 2 for q in own(y, n)),
    "stacked again": lambda x, y, n: torch.stack([q * 2 for q in own(y, n)]),
    "list of its own": lambda x, y, n: listed(y, n, y),
    "list of elements": lambda x, y, n: elements(y, n),
    "part of a list": lambda x, y, n: sliced_list(y, n),
    "written": lambda x, y, n: written(own(y, n), 0, x[0]),
    "written into": lambda x, y, n: written(own(x, n), 1, y[0]),
    "slice written": lambda x, y, n: written(y, slice(n % 2, None), x[0]),
    "slice written into": lambda x, y, n: written(x, slice(n % 2, None), own(y, n)),
    "mask written": lambda x, y, n: written(x, mask(n), y[mask(n)]),
    "mask written into": lambda x, y, n: written(y, mask(n), x[mask(n)]),
    "added": lambda x, y, n: added(own(y, n), 1, x[0]),
    "added to all": lambda x, y, n: added(own(x, n), slice(None), own(y, n)),
    "index_add": lambda x, y, n: x.index_add(0, torch.arange(3)[n % 2 :], own(y, n)),
    "index_add of it": lambda x, y, n: y.index_add(0, torch.arange(3)[n % 2 :], own(x, n)),
    "index_add to it": lambda x, y, n: own(y, n).index_add(0, torch.arange(n % 3), x[: n % 3]),
    "scatter_add": lambda x, y, n: x.scatter_add(0, torch.arange(3)[n % 2 :], own(y, n)),
    "where": lambda x, y, n: torch.where(own(x, n) > 0, own(y, n), own(x, n)),
    "on the host": lambda x, y, n: on_host(own(y, n)),
    "by shape": lambda x, y, n: own(y, n).repeat(2),
    "outer": lambda x, y, n: own(y, n).outer(own(x, n)),
    "diff": lambda x, y, n: own(y, n).diff(),
    "in an object": lambda x, y, n: Box(own(y, n)).total(),
    "recursion": lambda x, y, n: halved(own(y, n)),
    "shorter each time": lambda x, y, n: shortened(own(y, n)),
    "in place": lambda x, y, n: in_place(own(y, n), x),
    "two beside": lambda x, y, n: beside(own(y, n), own(x, n)),
    "where others meet": lambda x, y, n: meeting(y, n),
    "steep list": lambda x, y, n: torch.stack(steep_list(y, n)),
    "list on the host": lambda x, y, n: sum_on_host(steep_list(y, n)),
    "elements on the host": lambda x, y, n: sum_on_host(list(own(y, n))),
    "steep on the host": lambda x, y, n: steep_on_host(own(x, n)),
    "dict": lambda x, y, n: summed(y, n),
    "padded": lambda x, y, n: F.pad(own(y, n), (1, 2)),
    "topk": lambda x, y, n: own(y, n).topk(2).values,
    "largest place": lambda x, y, n: own(y, n)[own(y, n).argmax()],
    "Python's max": lambda x, y, n: max(own(y, n)),
    "true places": lambda x, y, n: y[torch.nonzero(y > 0.4)[:, 0]],
    "mapped": lambda x, y, n: autobatch.vmap(lambda a: a * 2)(own(y, n)),
    "grad": lambda x, y, n: autobatch.grad(lambda a: (a * a).sum())(own(y, n)),
}


@pytest.mark.sampled(16)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", [returned_by_some, dropped_in_a_loop])
@pytest.mark.parametrize("name", MADE)
def test_rows_that_nobody_needed(name: str, form: Callable[..., Any], way: str) -> None:
    function = form(MADE[name])
    want = slopes(loop(function), XS)
    assert want.isfinite().all()
    agree(function, XS, want, {"plain": "never", **WAYS[way]})


@pytest.mark.sampled(16)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MADE)
def test_rows_that_are_needed(name: str, way: str) -> None:
    """They may have an infinite derivative, as in the loop: in parts that are not used, too."""
    function, xs = returned_by_some(MADE[name]), XS.clone()
    xs[1, 0], xs[3, 2] = 0, 0
    want = slopes(loop(function), xs)
    assert want[[0, 2]].isfinite().all()
    agree(function, xs, want, {"plain": "never", **WAYS[way]})


LONG = [[-0.3, 0.2, 0.5], [0.1, 0.2], [0.5, -1.0, 2.0, 0.3], [0.4, 0.6, 0.7, 0.8]]


def own_rows(rows: list[list[float]] = LONG) -> list[Tensor]:
    return [torch.tensor(row, dtype=torch.float64, requires_grad=True) for row in rows]


def along(function: Callable[..., Any], xs: list[Tensor], *shared: Tensor) -> tuple[Tensor, ...]:
    total = sum(function(x, *shared, int(n)) for x, n in zip(xs, NS, strict=True))
    return torch.autograd.grad(total, (*xs, *shared), materialize_grads=True)


OF_ANY_LENGTH = [
    name
    for name in MADE
    if not name.startswith(("mask", "index_add", "scatter_add", "part of a list", "topk"))
    and not any(word in name for word in ("row", "mat", "products", "of all", "amax", "softmax"))
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", [returned_by_some, dropped_in_a_loop])
@pytest.mark.parametrize("name", OF_ANY_LENGTH)
def test_ragged_arguments(name: str, form: Callable[..., Any], way: str) -> None:
    function, xs = form(MADE[name]), own_rows()
    want = along(function, xs)
    assert all(each.isfinite().all() for each in want)
    batch = autobatch.vmap(function, scalars="python", plain="never", **WAYS[way])
    for _ in range(3):
        total = batch(autobatch.ragged(xs), NS).sum()
        torch.testing.assert_close(torch.autograd.grad(total, xs), want)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", ["pad", "list", "nested"])
@pytest.mark.parametrize(
    "name", ["from", "mask", "flip", "cumsum", "stacked again", "list of its own", "on the host"]
)
def test_ragged_results(name: str, form: str, way: str) -> None:
    def function(x: Tensor, n: int) -> Tensor:
        z = MADE[name](x, x.sqrt(), n)
        return z * 2 if n > 2 else own(x, n) * 3

    def total(out: Any) -> Tensor:
        parts = out if form == "list" else [out[0] if form == "pad" else out.values()]
        return torch.stack([part.sum() for part in parts])

    want = slopes(
        lambda xs: torch.stack([function(x, int(n)).sum() for x, n in zip(xs, NS, strict=True)]), XS
    )
    options = {"plain": "never", "ragged_out": form, **WAYS[way]}
    batch = autobatch.vmap(function, scalars="python", **options)
    for _ in range(3):
        found = slopes(lambda xs: total(batch(xs, NS)), XS)
        torch.testing.assert_close(found, want)


def factors(x: Tensor, w: Tensor, n: int) -> Tensor:
    z = (x * w[0]).tanh() + x * w[1:2]
    return z.sum() if n > 2 else w.sum()


def a_matrix(x: Tensor, w: Tensor, n: int) -> Tensor:
    z = F.linear(x[:, None], w[:1, None]) @ w[None, :]
    return z.relu().sum() if n > 2 else w.sum()


def probabilities(x: Tensor, w: Tensor, n: int) -> Tensor:
    z = x.softmax(0) * w[0] + x.logsumexp(0)
    return z.sum() if n > 2 else w.sum()


def quotients(x: Tensor, w: Tensor, n: int) -> Tensor:
    z = x.log() / w[1] + w[0] / x
    return z.sum() if n > 2 else w.sum()


def reduced(x: Tensor, w: Tensor, n: int) -> Tensor:
    z = x.prod() + x.std() + (x * w[0]).norm() + x.cumprod(0).sum() + x.mean()
    return z if n > 2 else w.sum()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("weights", [(0.5, 2.0), (-1.0, 0.0)])
@pytest.mark.parametrize("function", [factors, a_matrix, probabilities, quotients, reduced])
def test_infinite_rows(function: Callable[..., Any], weights: Any, way: str) -> None:
    xs = own_rows([[-0.3, torch.inf, 0.5], [0.1, 0.2], [torch.inf, -1.0, 0, 0.3], LONG[3]])
    w = torch.tensor(weights, dtype=torch.float64, requires_grad=True)
    want = along(function, xs, w)
    batch = autobatch.vmap(
        function, in_dims=(0, None, 0), scalars="python", plain="never", **WAYS[way]
    )
    for _ in range(3):
        total = batch(autobatch.ragged(xs), w, NS).sum()
        found = torch.autograd.grad(total, (*xs, w), materialize_grads=True)
        torch.testing.assert_close(found, want, equal_nan=True)


def by_grad(function: Callable[..., Any]) -> Tensor:
    return torch.func.grad(lambda xs: function(xs).sum())(XS)


def twice(function: Callable[..., Any]) -> Tensor:
    xs = XS.clone().requires_grad_()
    total = function(xs).sum()
    (found,) = torch.autograd.grad(total, xs, create_graph=True)
    (again,) = torch.autograd.grad(found.sin().sum() + total, xs)
    return torch.stack([found.detach(), again])


@pytest.mark.sampled(16)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("derivative", [by_grad, twice])
@pytest.mark.parametrize("name", MADE)
def test_derivatives(name: str, derivative: Callable[..., Tensor], way: str) -> None:
    function = returned_by_some(MADE[name])
    batch = autobatch.vmap(function, scalars="python", plain="never", **WAYS[way])
    for _ in range(3):
        found = derivative(lambda xs: batch(xs, NS))
        torch.testing.assert_close(found, derivative(loop(function)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", MADE)
def test_gradients_of_examples(name: str) -> None:
    function = returned_by_some(MADE[name])
    want = torch.stack([torch.func.grad(function)(x, int(n)) for x, n in zip(XS, NS, strict=True)])
    batch = autobatch.vmap(autobatch.grad(function), scalars="python", plain="never")
    for _ in range(3):
        torch.testing.assert_close(batch(XS, NS), want)
