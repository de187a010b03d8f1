"""Training through control flow: optimisers, shared parameters, modules by ``functional_call``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import autobatch
from tests.test_transforms import engines, same


class Straight(nn.Module):
    """Torch's own modules, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, h: Tensor) -> Tensor:
        return h + self.scale * torch.tanh(self.inner(h))

    def size(self, h: Tensor) -> Tensor:
        return h.norm() * self.scale


class Adaptive(nn.Module):
    """As many blocks as an example needs, by parts of every kind that a module has."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.block = Block(4)
        self.more = nn.ModuleList([Block(4), nn.Linear(4, 4)])
        self.last = nn.Sequential(nn.Tanh(), Block(4), nn.Linear(4, 2))
        self.register_buffer("limit", torch.tensor(2.0))
        self.most = 5

    def forward(self, x: Tensor, gain: float = 1.0) -> Tensor:
        h = self.first(x) * gain
        for layer in self.more:
            h = layer(h)
        n = 0
        while self.block.size(h) < self.limit and n < self.most:
            h = self.block(h)
            n += 1
        return self.last(h) + self.first.bias[:2]


def example(kind: type[nn.Module]) -> Any:
    torch.manual_seed(0)
    model = kind().double()
    params = {name: p.detach() for name, p in model.named_parameters()}
    return model, params, torch.randn(6, 3).double(), torch.randn(6, 2).double()


@pytest.mark.sampled(4)
@engines
@pytest.mark.parametrize("kind", [Straight, Adaptive])
def test_gradients_of_each_example(kind: type[nn.Module], way: dict[str, Any]) -> None:
    model, params, xs, ys = example(kind)

    def loss(p: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        out = functional_call(model, p, (x,))
        gap = out - y
        return (gap**2).sum() if out.sum() > 0 else gap.abs().sum()

    rows = [torch.func.grad(loss)(params, x, y) for x, y in zip(xs, ys, strict=True)]
    expected = {name: torch.stack([row[name] for row in rows]) for name in params}
    mapped = autobatch.vmap(autobatch.grad(loss), in_dims=(None, 0, 0), **way)
    for _ in range(2):
        with autobatch.counts() as counts:
            same(mapped(params, xs, ys), expected)
        assert counts.fallbacks == 0


def test_parameters_of_each_example() -> None:
    """An ensemble: every example has a model of its own, and keyword arguments."""
    model, params, xs, _ = example(Adaptive)
    many = {name: torch.stack([p * (1 + 0.1 * i) for i in range(6)]) for name, p in params.items()}

    def run(p: dict[str, Tensor], x: Tensor) -> Tensor:
        out: Tensor = functional_call(model, p, x, {"gain": 2.0})
        return out

    rows = [run({name: p[i] for name, p in many.items()}, xs[i]) for i in range(6)]
    with autobatch.counts() as counts:
        same(autobatch.vmap(run)(many, xs), torch.stack(rows))
    assert counts.fallbacks == 0
    some = {"block.scale": many["block.scale"]}
    rows = [run({"block.scale": some["block.scale"][i]}, xs[i]) for i in range(6)]
    same(autobatch.vmap(run)(some, xs).detach(), torch.stack(rows).detach())


def test_a_module_of_layers_with_given_parameters_is_one_block() -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.last(torch.tanh(self.first(x)))
            return out

    model = Layers()
    many = {name: torch.randn(6, *p.shape) for name, p in model.named_parameters()}
    xs = torch.randn(6, 3)

    def run(p: dict[str, Tensor], x: Tensor) -> Tensor:
        out: Tensor = functional_call(model, p, (x,))
        return out

    with autobatch.counts() as counts:
        found = autobatch.vmap(run)(many, xs)
    assert counts.block_executions == 2
    rows = [run({name: p[i] for name, p in many.items()}, xs[i]) for i in range(6)]
    torch.testing.assert_close(found, torch.stack(rows))


def test_a_jacobian_and_a_hessian_of_shared_parameters() -> None:
    def predict(w: Tensor, x: Tensor) -> Tensor:
        h = w @ x
        while h.norm() < 2:
            h = h * 1.5 + 0.1
        return torch.tanh(h)

    w, xs = torch.randn(2, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    for name in ("jacrev", "jacfwd"):
        mapped = autobatch.vmap(getattr(autobatch, name)(predict), in_dims=(None, 0))
        alone = getattr(torch.func, name)(predict)
        same(mapped(w, xs), torch.stack([alone(w, x) for x in xs]))

    def total(v: Tensor, x: Tensor) -> Tensor:
        return (predict(v, x) ** 2).sum()

    got = autobatch.vmap(autobatch.hessian(total), in_dims=(None, 0))(w, xs)
    same(got, torch.stack([torch.func.hessian(total)(w, x) for x in xs]))


def test_an_optimiser_fits_through_control_flow() -> None:
    """Newton's steps per example, until each has converged, to a root that a parameter moves."""
    goal = torch.linspace(1.0, 9.0, 16)
    power = nn.Parameter(torch.tensor(2.0))

    def root(a: Tensor) -> Tensor:
        x = a
        while (x**2 - a).abs() > 1e-4:
            x = 0.5 * (x + a / x)
        return x**power

    optimiser = torch.optim.Adam([power], lr=0.05)
    mapped = autobatch.vmap(root)
    losses = []
    for _ in range(80):
        optimiser.zero_grad()
        loss = (mapped(goal) - goal**1.5).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 1e-3 * losses[0]
    torch.testing.assert_close(power.detach(), torch.tensor(3.0), rtol=0.02, atol=0.0)


def test_training_inside_a_program() -> None:
    """Every thread fits by gradient steps of its own rate, and stops by itself."""

    def fit(rate: Tensor, target: Tensor) -> Any:
        def loss(v: Tensor) -> Tensor:
            return ((v - target) ** 2).sum() if v.sum() < 100 else v.abs().sum()

        w = torch.zeros(2, dtype=torch.float64)
        steps = 0
        while loss(w) > 1e-6 and steps < 40:
            w = w - rate * autobatch.grad(loss)(w)
            steps += 1
        return w, steps

    rates = torch.tensor([0.5, 0.1, 0.45, 0.01], dtype=torch.float64)
    targets = torch.randn(4, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    got, steps = autobatch.vmap(fit)(rates, targets)
    rows = [fit(rate, target) for rate, target in zip(rates, targets, strict=True)]
    same(got, torch.stack([row[0] for row in rows]))
    assert steps.tolist() == [row[1] for row in rows]
    assert len(set(steps.tolist())) > 2
