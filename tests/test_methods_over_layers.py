"""Methods with loops over lists of modules, called in loops: inlined, and nothing of them stale."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import autobatch
from autobatch import counts
from tests.going_round import times_asked

D = 4


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(D, D) for _ in range(3))
        self.others = nn.ModuleList(nn.Linear(D, D) for _ in range(3))
        self.drop: nn.Module = nn.Identity()

    def step(self, h: Tensor, row: Tensor) -> Tensor:
        for layer in self.layers:
            h = torch.tanh(layer(h))
        return h + row

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(D)
        for row in x:
            h = self.step(h, row)
        return h


class Numbered(Layers):
    def step(self, h: Tensor, row: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            h = torch.tanh(layer(h)) * (i + 1)
        return h + row


class Side(Layers):
    def step(self, h: Tensor, row: Tensor) -> Tensor:
        for a, b in zip(self.layers, reversed(self.others), strict=True):
            h = torch.tanh(a(h)) + b(row)
        return h


class Indexed(Layers):
    def step(self, h: Tensor, row: Tensor) -> Tensor:
        for i in range(3):
            h = torch.tanh(self.layers[i](h)) + self.others[-1 - i](row)
        return h


class Left(Layers):
    """Threads leave at different times."""

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(D)
        for row in x:
            h = self.step(h, row)
            if h.sum() > 2:
                break
        return h


KINDS = (Layers, Numbered, Side, Indexed, Left)
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
X = torch.randn(7, 9, D, generator=torch.Generator().manual_seed(3))


def made(kind: Callable[[], Layers]) -> Layers:
    torch.manual_seed(0)
    return kind()


def same(model: nn.Module, f: Callable[[Tensor], Tensor], times: int = 4) -> None:
    expected = torch.stack([model(x) for x in X])
    for _ in range(times):
        torch.testing.assert_close(f(X), expected)


@kinds
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_results(kind: Callable[[], Layers], engine: str) -> None:
    model = made(kind)
    with torch.no_grad():
        same(model, autobatch.vmap(model, engine=engine, plain="never", trace_after=0))
        same(model, autobatch.vmap(model, engine=engine, plain="never"), 8)


@kinds
def test_gradients(kind: Callable[[], Layers]) -> None:
    model = made(kind)
    weights = list(model.parameters())
    total = torch.stack([model(x) for x in X]).sum()
    expected = torch.autograd.grad(total, weights, allow_unused=True)
    f = autobatch.vmap(model, plain="never", trace_after=0)
    for _ in range(3):
        found = torch.autograd.grad(f(X).sum(), weights, allow_unused=True)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", [Layers, Numbered, Indexed], ids=lambda kind: kind.__name__)
def test_the_method_is_no_call(kind: Callable[[], Layers]) -> None:
    model = made(kind)
    f = autobatch.vmap(model, plain="never", trace_after=0)
    with torch.no_grad():
        f(X)
        with counts() as found:
            f(X)
    assert found.block_executions == 2 + 9 * 5, "a row, three layers and what ends it"


@pytest.mark.parametrize("kind", [Layers, Numbered, Indexed], ids=lambda kind: kind.__name__)
def test_rounds_go_round_on_their_own(
    kind: Callable[[], Layers], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert times_asked(made(kind), (X,), monkeypatch) <= 5  # of 47 block executions


def other_layer(model: Layers) -> None:
    model.layers[1] = nn.Linear(D, D)


def another_list(model: Layers) -> None:
    model.layers = nn.ModuleList(nn.Linear(D, D) for _ in range(2 if type(model) is Layers else 3))


def other_weights(model: Layers) -> None:
    with torch.no_grad():
        model.layers[2].weight.mul_(0.5)


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return self.part(x)
        return F.relu(self.part(x)) * 2


def layer_of_ones_own(model: Layers) -> None:
    model.layers[0] = Doubled()


def hooked(model: Layers) -> None:
    model.layers[0].register_forward_hook(lambda module, args, out: out * 2)


def another_method(model: Layers) -> None:
    def forward(x: Tensor) -> Tensor:
        return F.linear(x, model.layers[0].weight) - 1

    model.layers[0].forward = forward  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", [Layers, Numbered, Indexed], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "change",
    [other_layer, another_list, other_weights, layer_of_ones_own, hooked, another_method],
)
def test_what_changes_between_calls_is_seen(
    kind: Callable[[], Layers], change: Callable[[Layers], None]
) -> None:
    model = made(kind)
    f = autobatch.vmap(model, plain="never", trace_after=0)
    with torch.no_grad():
        same(model, f)
        change(model)
        same(model, f)


class Writing(nn.Module):
    """Its call is seen from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(D, D)
        self.seen: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(1.0)
        return self.part(x)


def test_an_effect_that_a_layer_comes_to_have_is_refused() -> None:
    model = made(Layers)
    f = autobatch.vmap(model, plain="never", trace_after=0)
    with torch.no_grad():
        same(model, f)
        model.layers[1] = writing = Writing()
        with pytest.raises(autobatch.SharedWriteError):
            f(X)
    assert writing.seen == []


def test_a_layer_that_comes_to_draw() -> None:
    model = made(Layers)
    f = autobatch.vmap(model, plain="never", trace_after=0, seed=1)
    with torch.no_grad():
        same(model, f)
        model.layers[1] = nn.Dropout(0.5)
        once, again = f(X), f(X)
    torch.testing.assert_close(once, again)
    torch.testing.assert_close(once[:1], f(X[:1]))
    assert not torch.allclose(once[0], model.eval()(X[0]))
