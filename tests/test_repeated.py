"""Columns that repeat a differentiated tensor: no copies when threads part; the loop's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.values.cells import Cell, Column
from autobatch.values.heap import merging, selecting
from autobatch.values.repeated import LARGE, bmm, is_repeated, is_shared, rows_of
from tests.test_transforms import engines, same

WIDTH = 40
W = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(0)).double() / WIDTH**0.5
X = torch.randn(6, WIDTH, generator=torch.Generator().manual_seed(1)).double()
N = torch.tensor([1, 5, 3, 2, 4, 3])


def test_what_is_repeated() -> None:
    assert W.numel() * W.element_size() >= LARGE
    assert is_repeated(W.expand(4, WIDTH, WIDTH))
    assert not is_shared(W.expand(4, WIDTH, WIDTH))
    assert is_shared(W.clone().requires_grad_().expand(4, WIDTH, WIDTH))
    assert not is_repeated(W[None])
    assert not is_repeated(torch.stack([W, W]))
    assert not is_repeated(torch.zeros(3).expand(4, 3))


def test_parting_and_meeting_copies_nothing() -> None:
    w = W.clone().requires_grad_()
    whole = Cell(Column(w.expand(6, WIDTH, WIDTH)))
    (one,) = selecting.select([whole], np.array([0, 2, 5]))
    (other,) = selecting.select([whole], np.array([1, 3]))
    (both,) = merging.merge([[one], [other]], [3, 2], torch.device("cpu"))
    for cell in (one, other, both):
        data = cell.value.data  # type: ignore[union-attr]
        assert data.stride(0) == 0
        assert data.untyped_storage().data_ptr() == w.untyped_storage().data_ptr()
    assert len(both.value.data) == 5  # type: ignore[union-attr]


def test_each_row_has_its_gradient() -> None:
    table = W.expand(6, WIDTH, WIDTH).clone()[:1].expand(6, WIDTH, WIDTH).requires_grad_()
    index = torch.tensor([4, 1, 4])
    scale = torch.tensor([1.0, 2.0, 3.0]).double()[:, None, None]
    (rows_of(table, index) * scale).sum().backward()
    assert table.grad is not None
    assert table.grad[:, 0, 0].tolist() == [0.0, 2.0, 0.0, 0.0, 4.0, 0.0]


@pytest.mark.parametrize("side", ["left", "right"])
def test_products(side: str) -> None:
    repeated = W.clone().requires_grad_()
    other = torch.randn(4, WIDTH, 3, generator=torch.Generator().manual_seed(2)).double()
    other = (other if side == "left" else other.mT.contiguous()).requires_grad_()

    def product(kernel: Any, w: Tensor, x: Tensor) -> Tensor:
        table = w.expand(4, WIDTH, WIDTH)
        found: Tensor = kernel(table, x) if side == "left" else kernel(x, table)
        return found

    same(product(bmm, repeated, other), product(torch.bmm, repeated, other))
    for module in (torch.func.jacrev, torch.func.jacfwd):
        for place in (0, 1):
            got, expected = (
                module(lambda *given, k=kernel: product(k, *given).sum(0)[:2], place)(
                    repeated.detach(), other.detach()
                )
                for kernel in (bmm, torch.bmm)
            )
            same(got, expected)

    def slope(w: Tensor, x: Tensor) -> Tensor:
        return (product(bmm, w, x) ** 2).sum()

    assert torch.autograd.gradgradcheck(
        lambda w, x: slope(w, x), (repeated, other), fast_mode=True, atol=1e-4
    )


def deep(w: Tensor, x: Tensor, n: Tensor) -> Tensor:
    """Two ways through the parameter, a loop of each example's own length."""
    i = 0
    while i < n:
        if x.sum() > 0:
            x = torch.tanh(w @ x)
        else:
            x = torch.sin(torch.nn.functional.linear(x, w) * 0.3) + w[0]
        i += 1
    return (x * x).sum()


@pytest.mark.sampled(2)
@engines
def test_gradients_of_a_large_shared_parameter(way: dict[str, Any]) -> None:
    rows = [(W, x, n) for x, n in zip(X, N, strict=True)]
    for _ in range(3):
        got = autobatch.vmap(autobatch.grad(deep), in_dims=(None, 0, 0), **way)(W, X, N)
        same(got, torch.stack([torch.func.grad(deep)(*row) for row in rows]))

    def of(module: Any) -> Any:
        def twice(w: Tensor, x: Tensor, n: Tensor) -> Tensor:
            return (module.grad(deep)(w, x, n) ** 2).sum()

        def along(w: Tensor, x: Tensor, n: Tensor) -> Any:
            return module.jvp(lambda v: module.grad(deep)(v, x, n), (w,), (w * x,))

        def both(w: Tensor, x: Tensor, n: Tensor) -> Tensor:
            return torch.stack([deep(w, x, n), (w @ x).sum()])

        return module.grad(twice), along, module.jacrev(both)

    for ours, theirs in zip(of(autobatch), of(torch.func), strict=True):
        got = autobatch.vmap(ours, in_dims=(None, 0, 0), **way)(W, X, N)
        expected = [theirs(*row) for row in rows]
        if isinstance(got, tuple):
            for part, column in zip(got, zip(*expected, strict=True), strict=True):
                same(part, torch.stack(column))
        else:
            same(got, torch.stack(expected))
