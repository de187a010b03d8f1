"""Gradients by autograd alone: what is shared gathers its own, nothing else hangs on the leaves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import autobatch
from autobatch.values.gathering import Gathering, gathering
from autobatch.values.repeated import bmm, rows_of
from tests.test_transforms import engines, same

K, WIDTH = 5, 40


class Wide(TorchDispatchMode):
    """Counts the operators that make a tensor of one shape."""

    def __init__(self, *shape: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.shape, self.names = torch.Size(shape), list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        aliases = [each.alias_info for each in func._schema.returns]
        if isinstance(made, Tensor) and made.shape == self.shape and not any(aliases):
            self.names.append(func._schema.name)
        return made


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.around = nn.Linear(WIDTH, WIDTH, bias=False)
        self.inward = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        h = torch.zeros_like(x)
        i = 0
        while i < steps:
            h = torch.tanh(self.around(h) + self.inward(x))
            i += 1
        return h


def made_inputs() -> tuple[nn.Module, dict[str, Tensor], Tensor]:
    model = Recurrent().double()
    given = {name: value.detach() for name, value in model.named_parameters()}
    return model, given, torch.randn(K, WIDTH).double()


def size_of(model: nn.Module) -> Any:
    def size(given: dict[str, Tensor], x: Tensor, steps: Any) -> Tensor:
        out = torch.func.functional_call(model, given, (x, steps))
        return (out * out).sum()

    return size


@pytest.mark.sampled(2)
@engines
@pytest.mark.parametrize("steps", [torch.full((K,), 12), torch.tensor([3, 12, 1, 7, 12])])
def test_a_modules_parameters(way: dict[str, Any], steps: Tensor) -> None:
    model, given, x = made_inputs()
    size = size_of(model)
    mapped = autobatch.vmap(autobatch.grad(size), in_dims=(None, 0, 0), **way)
    for _ in range(2):
        found = mapped(given, x, steps)
    rows = [torch.func.grad(size)(given, *row) for row in zip(x, steps, strict=True)]
    for name, got in found.items():
        same(got, torch.stack([row[name] for row in rows]))
        assert not got.requires_grad


def test_steps_add_up_at_once() -> None:
    model, given, x = made_inputs()
    mapped = autobatch.vmap(autobatch.grad(size_of(model)), in_dims=(None, 0, None))
    mapped(given, x, 12)
    with Wide(K, WIDTH, WIDTH) as wide:
        mapped(given, x, 12)
    assert wide.names == ["aten::bmm", "aten::bmm"]  # one for each of two parameters


def test_factors_that_are_many_do_not_wait() -> None:
    leaf = torch.zeros(WIDTH, WIDTH).double().expand(K, WIDTH, WIDTH).requires_grad_()
    gathered = Gathering.of([leaf])
    x = torch.randn(K, WIDTH, 20).double()
    with gathering(gathered):
        out = bmm(leaf, x) + bmm(leaf, x * 2) + bmm(x.mT, leaf).mT
    torch.autograd.grad(out.sum(), leaf, allow_unused=True)
    (each,) = gathered.sums
    assert each.waiting == 20  # of the third one: two were as many as make a product
    expected = torch.zeros(K, WIDTH, WIDTH).double()
    expected += 3 * x.sum(2)[:, None] + x.sum(2)[:, :, None]
    assert torch.allclose(each.total(), expected, atol=1e-4)  # type: ignore[arg-type]


def test_rows_of_rows() -> None:
    leaf = torch.randn(WIDTH, WIDTH).double().expand(K, WIDTH, WIDTH).requires_grad_()
    gathered = Gathering.of([leaf])
    x = torch.randn(2, WIDTH, 1).double()
    with gathering(gathered):
        some = rows_of(rows_of(leaf, torch.tensor([4, 2, 0])), torch.tensor([2, 0]))
        out = bmm(some.mT, x)
    assert torch.autograd.grad(out.sum(), leaf, allow_unused=True) == (None,)
    total = gathered.sums[0].total()
    assert total is not None
    expected = x.mT.expand(2, WIDTH, WIDTH).mT
    assert torch.allclose(total[[0, 4]], expected)
    assert not total[[1, 2, 3]].any()


def test_another_matrix_is_not_taken_for_the_leaf() -> None:
    leaf = torch.randn(WIDTH, WIDTH).double().expand(K, WIDTH, WIDTH).requires_grad_()
    gathered = Gathering.of([leaf])
    x = torch.randn(K, WIDTH, 1).double()
    with gathering(gathered):
        out = bmm((leaf[:1] * 2).expand(K, WIDTH, WIDTH), x)
    (found,) = torch.autograd.grad(out.sum(), leaf)
    assert gathered.sums[0].total() is None
    assert torch.allclose(found[0], 2 * x.sum((0, 2)).expand(WIDTH, WIDTH), atol=1e-4)


# What comes out of a run.


@engines
def test_what_leaves_a_run_hangs_on_nothing(way: dict[str, Any]) -> None:
    def whole(x: Tensor) -> Any:
        seen = []

        def square(v: Tensor) -> Any:
            seen.append(v * 3)
            return v * v, v.sin()

        (value, aux), slope = autobatch.value_and_grad(square, has_aux=True)(x)
        return slope, value, aux, seen[0]

    x = torch.tensor([1.0, 2.0, 3.0])
    for _ in range(3):
        found = autobatch.vmap(whole, **way)(x)
    for got, expected in zip(found, (2 * x, x * x, x.sin(), x * 3), strict=True):
        assert torch.allclose(got, expected)
        assert not got.requires_grad


@engines
def test_derivatives_by_what_the_function_reads_besides(way: dict[str, Any]) -> None:
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)

    def scaled(x: Tensor) -> Tensor:
        return (x * scale).sin()

    x = torch.tensor([0.5, 1.0, 2.0]).double()
    for _ in range(3):
        found = autobatch.vmap(autobatch.grad(scaled), **way)(x)
        (slope,) = torch.autograd.grad(found.sum(), scale)
    rows = torch.stack([torch.func.grad(scaled)(row) for row in x])
    same(found, rows)
    same(slope, torch.autograd.grad(rows.sum(), scale)[0])


def test_recompute_within_a_gradient() -> None:
    def slope(h: Tensor, w: Tensor) -> Tensor:
        for _ in range(30):
            h = torch.tanh(w @ h)
        return h.sum()

    h, w = torch.randn(4, 3), torch.randn(3, 3)
    options: dict[str, Any] = {"in_dims": (0, None), "trace_after": 0}
    kept = autobatch.vmap(autobatch.grad(slope, (0, 1)), **options)
    again = autobatch.vmap(autobatch.grad(slope, (0, 1)), save="recompute", **options)
    for _ in range(2):
        with autobatch.counts() as seen:
            found = again(h, w)
        for again_found, expected in zip(found, kept(h, w), strict=True):
            torch.testing.assert_close(again_found, expected)
    assert seen.recomputed > 0
