"""Gradients of gradients of what all threads share, of which some rows are infinite and nobody's.

By ``create_graph``: penalties, products with Hessians, steps that are differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

import autobatch

WAYS: dict[str, dict[str, Any]] = {
    "recorded": {"trace_after": 0},
    "vmap": {"executor": "vmap"},
    "program counter": {"engine": "program_counter", "trace_after": 0},
    "recompute": {"save": "recompute", "trace_after": 0},
    "program counter, recompute": {
        "engine": "program_counter", "save": "recompute", "trace_after": 0,
    },
    "offload": {"save": "offload", "trace_after": 0},
}  # fmt: skip


def guarded_sqrt(x: Tensor, w: Tensor) -> Tensor:
    h = w @ x.sqrt()
    if x.min() > 0:
        return h.sin().sum()
    return (w @ x).sin().sum()


def guarded_log(x: Tensor, w: Tensor) -> Tensor:
    h = torch.tanh(w @ x.log())
    if x.min() > 0:
        return (w @ h).pow(2).sum()
    return (w @ x).pow(3).sum()


def guarded_div(x: Tensor, w: Tensor) -> Tensor:
    y = F.linear(1 / x, w, w[0])
    if x.min() > 0:
        return y.pow(2).sum()
    return (w @ x).pow(2).sum()


def held_log(x: Tensor, w: Tensor) -> Tensor:
    """Nothing that is infinite is differentiated itself."""
    h = w @ x.detach().log()
    if x.min() > 0:
        return h.sin().sum() * x.sum()
    return (w @ x).sin().sum()


def loops(x: Tensor, w: Tensor) -> Tensor:
    h = x
    n = 0
    while n < int(x.sum() * 2) % 4 + 1:
        z = w @ (h / x)
        h = torch.tanh(w @ h + z) if x.min() > 0 else torch.sin(w @ h)
        n += 1
    return h.sum()


def deeper(x: Tensor, w: Tensor, depth: int) -> Tensor:
    y = torch.sin(w @ x.log())
    if depth == 0:
        return torch.tanh(w @ x)
    left, right = deeper(x, w, depth - 1), deeper(x * 0.5, w, depth - 1)
    both = left * right
    return both + y if x.min() > 0 else both


def recursion(x: Tensor, w: Tensor) -> Tensor:
    return deeper(x, w, 2).sum()


def by_layers(x: Tensor, w: Tensor) -> Tensor:
    h = torch.tanh(F.layer_norm(x.log(), (3,), w[0], w[1]) @ w)
    if x.min() > 0:
        return h.sum() * (w @ h).sin().sum()
    return (w @ x).sin().sum()


def shared_number(x: Tensor, w: Tensor) -> Tensor:
    s = w[0, 0]
    y = (x * s * s).sqrt() / x
    if x.min() > 0:
        return y.sum()
    return (x * s).sin().sum()


def shared_row(x: Tensor, w: Tensor) -> Tensor:
    y = w[0] / x + (w[1] + x).log() * w[2]
    if x.min() > 0:
        return y.pow(2).sum()
    return (x * w[0]).sin().sum()


def number_overflow(x: Tensor, w: Tensor) -> Tensor:
    """The first gradient of ``s`` is not finite in some example that drops it."""
    s = w[0, 0]
    y = (s * x).exp() / x
    if x.min() > 0:
        return (y * s).sum()
    return (x * s).sin().sum()


def convolved(x: Tensor, w: Tensor) -> Tensor:
    y = F.conv1d(x.log()[None, None], w[None, :1].reshape(1, 1, 3), padding=1)
    if x.min() > 0:
        return y.sin().sum()
    return (w @ x).sin().sum()


def einsum(x: Tensor, w: Tensor) -> Tensor:
    y = torch.einsum("i,ij,j->j", x.log(), w, x)
    if x.min() > 0:
        return y.sin().sum()
    return (w @ x).sin().sum()


def by_matrix(x: Tensor, w: Tensor) -> Tensor:
    m = torch.outer(1 / x, x)
    y = torch.tanh(m @ w)
    if x.min() > 0:
        return (w @ y).sin().sum()
    return (w @ x).sin().sum()


def division_by_shared(x: Tensor, w: Tensor) -> Tensor:
    y = (w @ x) / x
    if x.min() > 0:
        return y.sin().sum()
    return (w @ x).sin().sum()


MODULE = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)).double()
CELL = nn.GRUCell(3, 3).double()
LSTM = nn.LSTMCell(3, 3).double()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.sin(self.a(x.log()))
        if x.min() > 0:
            return self.b(y).sin()
        return self.b(torch.tanh(self.a(x)))


NET = Net().double()


def given(module: nn.Module, w: Tensor) -> dict[str, Tensor]:
    """Parameters that are made of ``w``."""
    found = {}
    for i, (name, each) in enumerate(module.named_parameters()):
        count = each.shape[0] // 3
        made = w.repeat(count, 1) if each.dim() > 1 else w[0].repeat(count)
        found[name] = made * (1 + 0.1 * i)
    return found


def module(x: Tensor, w: Tensor) -> Tensor:
    y = functional_call(MODULE, given(MODULE, w), (x.log(),))
    if x.min() > 0:
        return y.sin().sum()
    return functional_call(MODULE, given(MODULE, w), (x,)).sin().sum()


def net(x: Tensor, w: Tensor) -> Tensor:
    return functional_call(NET, given(NET, w), (x,)).sum()


def cell(x: Tensor, w: Tensor) -> Tensor:
    y = functional_call(CELL, given(CELL, w), (x.log(), x))
    if x.min() > 0:
        return y.sin().sum()
    return functional_call(CELL, given(CELL, w), (x, x)).sin().sum()


def lstm(x: Tensor, w: Tensor) -> Tensor:
    h, c = functional_call(LSTM, given(LSTM, w), (x, (1 / x, x)))
    if x.min() > 0:
        return h.sin().sum() * c.sum()
    h, c = functional_call(LSTM, given(LSTM, w), (x, (x, x)))
    return h.sin().sum() * c.sum()


Function = Callable[[Tensor, Tensor], Tensor]
PROGRAMS: list[Function] = [
    guarded_sqrt, guarded_log, guarded_div, held_log, loops, recursion, by_layers, shared_number,
    shared_row, number_overflow, convolved, einsum, by_matrix, division_by_shared, module, net,
    cell, lstm,
]  # fmt: skip
ROWS = [[0.0, 1, 2], [1, 2, 3], [0, 0, 0], [0.5, 1.5, 0.2], [2, 0, 1.5], [1.2, 0.2, 0.3], [1, 1, 0]]
XS = torch.tensor(ROWS, dtype=torch.float64)
W = torch.tensor([[0.6, 0.5, -0.7], [0.3, 0.8, 0.1], [0.7, -0.2, 0.4]], dtype=torch.float64)


def penalty(f: Function, xs: Tensor, w: Tensor) -> tuple[Tensor | None, ...]:
    loss = f(xs, w).sum()
    (g,) = torch.autograd.grad(loss, w, create_graph=True)
    (loss + g.pow(2).sum()).backward()
    return loss.detach(), g.detach(), w.grad, xs.grad


def hessian_product(f: Function, xs: Tensor, w: Tensor) -> tuple[Tensor | None, ...]:
    v = torch.linspace(-1, 1, 9, dtype=w.dtype).view(3, 3)
    g = torch.autograd.grad(f(xs, w).sum(), (w, xs), create_graph=True)
    value = (g[0] * v).sum() + g[1].pow(2).sum()
    return torch.autograd.grad(value, (w, xs))


def inner(f: Function, xs: Tensor, w: Tensor) -> tuple[Tensor | None, ...]:
    first = w
    for _ in range(2):
        (g,) = torch.autograd.grad(f(xs, w).sum(), w, create_graph=True)
        w = w - 0.1 * g
    return torch.autograd.grad(f(xs, w).mean(), (first, xs))


def third(f: Function, xs: Tensor, w: Tensor) -> tuple[Tensor | None, ...]:
    (g,) = torch.autograd.grad(f(xs, w).sum(), w, create_graph=True)
    (h,) = torch.autograd.grad(g.sin().sum(), w, create_graph=True)
    return torch.autograd.grad(h.sin().sum(), (w, xs))


KINDS = {"penalty": penalty, "Hessian product": hessian_product, "steps": inner, "third": third}


def loop(program: Function) -> Function:
    return lambda xs, w: torch.stack([program(x, w) for x in xs.unbind(0)])


def found_by(kind: str, f: Function, xs: Tensor, w: Tensor) -> tuple[Tensor | None, ...]:
    return KINDS[kind](f, xs.clone().requires_grad_(), w.clone().requires_grad_())


def check(program: Function, way: str, kinds: list[str], xs: Tensor, w: Tensor) -> None:
    batched = autobatch.vmap(program, in_dims=(0, None), **WAYS[way])
    for kind in kinds:
        expected = found_by(kind, loop(program), xs, w)
        assert all(each is None or bool(each.isfinite().all()) for each in expected)
        for _ in range(2):
            torch.testing.assert_close(found_by(kind, batched, xs, w), expected)


@pytest.mark.sampled(48)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_gradients_of_gradients_are_the_loops(program: Function, way: str) -> None:
    kinds = list(KINDS) if way == "recorded" else ["penalty", "Hessian product"]
    check(program, way, kinds, XS, W)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", PROGRAMS[:4], ids=lambda program: program.__name__)
def test_small_batches(program: Function, way: str) -> None:
    for size in (1, 2):
        check(program, way, ["penalty"], XS[:size], W)


@pytest.mark.parametrize("way", ["recorded", "vmap", "recompute"])
def test_of_parameters_in_single_precision(way: str) -> None:
    """The module's own parameters, and the gradients' dtypes."""
    torch.manual_seed(0)
    net = Net()
    parameters, xs = list(net.parameters()), XS.float()

    def penalised(out: Tensor) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(out.square().sum(), parameters, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), parameters)

    expected = penalised(torch.stack([net(x) for x in xs]))
    batched = autobatch.vmap(net, **WAYS[way])
    for _ in range(2):
        torch.testing.assert_close(penalised(batched(xs)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", ["recorded", "vmap"])
def test_the_inputs_of_cells(way: str) -> None:
    """First gradients: a gate that is no number gives what its cell has got nothing."""
    for program in (cell, lstm):
        batched = autobatch.vmap(program, in_dims=(0, None), **WAYS[way])
        given = XS.clone().requires_grad_()
        (expected,) = torch.autograd.grad(loop(program)(given, W).sum(), given)
        for _ in range(2):
            (found,) = torch.autograd.grad(batched(given, W).sum(), given)
            torch.testing.assert_close(found, expected)
