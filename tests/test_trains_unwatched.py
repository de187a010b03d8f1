"""Runs of modules whose parameters are finite look at no gradient, recorded or not yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

import autobatch
from autobatch.presence import record as presence
from benchmarks.workloads.lstm import make as lstm
from benchmarks.workloads.treelstm import TREELSTM_128


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[presence.Record]:
    """What has been known of each run."""
    found: list[presence.Record] = []

    made = presence.Record.__init__

    def noted(self: presence.Record, *args: Any) -> None:
        made(self, *args)
        found.append(self)

    monkeypatch.setattr(presence.Record, "__init__", noted)
    return found


class Loop(nn.Module):
    """As many rounds of a module as the example says."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, rounds: Tensor) -> Tensor:
        done = 0
        while done < rounds:
            x = self.module(x)
            done += 1
        return x


class Recurrent(nn.Module):
    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.cell(x, x)
        return found


class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 1, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.form = nn.Bilinear(4, 4, 4)
        self.table = nn.Embedding(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x[None]))[0]
        found: Tensor = torch.tanh(self.form(x, y)) + self.table(torch.tensor(1))
        return found


def rounds_of(module: nn.Module) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    return Loop(module).double(), (torch.randn(7, 4).double(), torch.tensor([0, 3, 1, 5, 2, 2, 4]))


KNOWN: dict[str, Callable[[], nn.Module]] = {
    "Linear": lambda: nn.Linear(4, 4),
    "GRUCell": lambda: Recurrent(nn.GRUCell(4, 4)),
    "RNNCell": lambda: Recurrent(nn.RNNCell(4, 4)),
    "chain": lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.LayerNorm(4), nn.PReLU()),
    "others": Image,
}


def trained(module: nn.Module, args: tuple[Any, ...]) -> None:
    """The gradients of each of four calls are the loop's."""
    batched = autobatch.vmap(module, plain="never")
    for _ in range(4):
        module.zero_grad()
        batched(*args).sum().backward()
    own = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    module.zero_grad()
    total: Any = torch.stack([module(*row) for row in zip(*args, strict=True)]).sum()
    total.backward()
    loop = [p.grad for p in module.parameters() if p.grad is not None]
    torch.testing.assert_close(own, loop, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", KNOWN)
def test_loops_of_torchs_modules(name: str, records: list[presence.Record]) -> None:
    module, args = rounds_of(KNOWN[name]())
    trained(module, args)
    assert len(records) == 4
    assert not any(record.is_wild or record.is_used for record in records)


class Fixed(nn.Module):
    """The derivative of what it only asks for is infinite at 0, which makes nothing infinite."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(4) * 0.5)

    def forward(self, x: Tensor, rounds: Tensor) -> Tensor:
        h = torch.zeros_like(x)
        while torch.linalg.vector_norm(h - x) > rounds * 0.1:
            h = torch.tanh(self.weight @ h + x)
            rounds = rounds + 1
        return h


def test_only_what_is_steep_is_watched(records: list[presence.Record]) -> None:
    args = rounds_of(nn.Identity())[1]
    trained(Fixed().double(), args)
    assert len(records) == 4
    assert all(record.is_used and not record.is_wild for record in records)


@pytest.mark.parametrize("make", [lstm, TREELSTM_128.make], ids=["lstm", "treelstm"])
def test_workloads(make: Callable[[int], Any], records: list[presence.Record]) -> None:
    problem = make(4)
    batched = autobatch.vmap(problem.function, **{**problem.options, "plain": "never"})
    for _ in range(3):
        found = batched(*problem.mapped())
        (found[0] if isinstance(found, tuple) else found).sum().backward()
    assert len(records) == 3
    assert not any(record.is_wild or record.is_used for record in records)


def rooted(module: nn.Module, args: Any, out: Tensor) -> Tensor:
    return out.abs().sqrt()


def hooked() -> nn.Module:
    linear = nn.Linear(4, 4, bias=False)
    linear.register_forward_hook(rooted)
    return linear


def replaced() -> nn.Module:
    linear = nn.Linear(4, 4, bias=False)
    linear.forward = lambda input: F.linear(input, linear.weight).abs().sqrt()  # type: ignore[method-assign]
    return linear


class Softplus(nn.Module):
    """One of the user's with the name of one of torch's."""

    def forward(self, x: Tensor) -> Tensor:
        return x.abs().sqrt()


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "hooks": hooked,
    "another forward": replaced,
    "parametrized": lambda: parametrizations.weight_norm(nn.Linear(4, 4)),
    "a name of torch's": Softplus,
    "in a chain": lambda: nn.Sequential(nn.Linear(4, 4, bias=False), hooked()),
}


@pytest.mark.parametrize("executor", ["traced", "vmap"])
@pytest.mark.parametrize("name", OTHERS)
def test_others_may_do_anything(name: str, executor: str) -> None:
    """Rows that nobody needed have an infinite derivative in them."""
    torch.manual_seed(0)
    module = OTHERS[name]()

    def program(x: Tensor) -> Tensor:
        y = module(x)
        return y.sum() if x.sum() > 0 else x.sum()

    xs = torch.randn(7, 4)
    xs[::2] = 0.0
    given, alone = xs.clone().requires_grad_(), xs.clone().requires_grad_()
    total: Any = torch.stack([program(x) for x in alone]).sum()
    total.backward()
    batched = autobatch.vmap(program, plain="never", executor=executor)
    for _ in range(3):
        given.grad = None
        batched(given).sum().backward()
        torch.testing.assert_close(given.grad, alone.grad)


@pytest.mark.parametrize("name", ["hooks", "parametrized", "in a chain"])
def test_they_are_watched(name: str, records: list[presence.Record]) -> None:
    module, args = rounds_of(OTHERS[name]())
    for _ in range(3):
        autobatch.vmap(module, plain="never", executor="vmap")(*args).sum().backward()
    assert len(records) == 3
    assert all(record.is_wild for record in records)
