"""Modules under ``functional_call`` that look through their parts, held to the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import autobatch


class Layers(nn.Module):
    def __init__(self, way: Callable[..., Any]) -> None:
        super().__init__()
        self.way = way
        self.net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
        self.rnn = nn.ModuleList([nn.GRU(3, 3)])
        self.listed = nn.ModuleList([nn.Linear(3, 3), nn.ModuleList([nn.Linear(3, 3)]), nn.Tanh()])
        self.by_name = nn.ModuleDict({"first": nn.Linear(3, 3), "then": nn.ReLU()})

    def forward(self, x: Tensor) -> Any:
        return self.way(self, x)


def each(m: Any, x: Tensor) -> Tensor:
    for place, layer in enumerate(m.net):
        x = layer(x) * (place + 1)
    return x


def turned(m: Any, x: Tensor) -> Tensor:
    i = 0
    while i < 3 and x.sum() < 5:
        x = m.net[i](x)
        i += 1
    return x


def recurrent(m: Any, x: Tensor) -> Any:
    for layer in m.rnn:
        x = layer(x[None])[0][0]
    return x


def by_children(m: Any, x: Tensor) -> Tensor:
    for name, layer in m.listed.named_children():
        if not isinstance(layer, nn.ModuleList):
            x = layer(x) if x.sum() > 0 else x + len(name)
    for layer in m.by_name.children():
        x = layer(x)
    for layer in m.listed[1].children():
        x = layer(x)
    return x


def by_modules(m: Any, x: Tensor) -> Tensor:
    for layer in m.listed.modules():
        if isinstance(layer, nn.Linear):
            x = layer(x)
    for name, layer in m.by_name.items():
        x = layer(x) * len(name)
    return x


def by_tensors(m: Any, x: Tensor) -> Tensor:
    for name, p in m.listed.named_parameters():
        x = x + p.sum() * len(name)
    for p in (*m.by_name.parameters(), *m.listed.state_dict().values()):
        x = x * p.mean()
    return x


def by_type(m: Any, x: Tensor) -> Tensor:
    kinds = isinstance(m.listed, nn.ModuleList), isinstance(m.listed, tuple)
    return m.net(x) * (2 if kinds == (True, False) else 3) + (type(m.by_name) is nn.ModuleDict)


WAYS: dict[str, Callable[..., Any]] = {
    "by_children": by_children,
    "by_modules": by_modules,
    "by_tensors": by_tensors,
    "by_type": by_type,
    "each": each,
    "turned": turned,
    "recurrent": recurrent,
    "place": lambda m, x: m.net[-1](x @ m.net[0].weight),
    "slice": lambda m, x: m.net[:2](x) * len(m.net),
    "parameters": lambda m, x: sum((p**2).sum() for p in m.net.parameters()) * x,
}


@pytest.mark.parametrize("way", WAYS)
def test_parts_that_a_module_looks_through_have_the_given_parameters(way: str) -> None:
    torch.manual_seed(0)
    model = Layers(WAYS[way])
    many = {name: torch.randn(3, *p.shape) for name, p in model.named_parameters()}
    given = {name: p.requires_grad_() for name, p in many.items()}
    before = {name: p.clone() for name, p in model.named_parameters()}
    xs = torch.randn(3, 3)

    def run(p: dict[str, Tensor], x: Tensor) -> Any:
        return functional_call(model, p, (x,))

    found = autobatch.vmap(run)(given, xs)
    expected = torch.stack(
        [run({name: p[i] for name, p in given.items()}, xs[i]) for i in range(3)]
    )
    torch.testing.assert_close(found, expected)
    inputs = list(given.values())
    slopes = [
        torch.autograd.grad(out.square().sum(), inputs, allow_unused=True, materialize_grads=True)
        for out in (found, expected)
    ]
    torch.testing.assert_close(*slopes)
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name])


class BySlices(nn.Module):
    """Goes by slices of a list of modules, which are such lists."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(5)])

    def forward(self, x: Tensor) -> Tensor:
        rest = self.layers[1:]
        assert isinstance(rest, nn.ModuleList) and not isinstance(rest, tuple)
        assert len(rest) == 4 and len(rest[1:][::-1]) == 3
        for layer in rest[:2]:
            x = torch.tanh(layer(x))
        x = rest[-1](x) if x.sum() > 0 else rest[1:][::2][1](x) + rest[0].weight[0]
        for i, layer in enumerate(self.layers[::-1]):
            x = x + layer(x) * i
        return x


class Scaled(nn.Sequential):
    """One whose parts are not those that it goes through."""

    def __iter__(self) -> Any:
        return iter(list(self._modules.values())[:1])


class ByPlaces(nn.Module):
    """Goes by the parts of an ``nn.Sequential``, slices of which are such modules."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.Linear(3, 3)
        parts = [layer, nn.Tanh(), nn.Sequential(nn.Linear(3, 3), nn.ReLU()), layer, nn.Softplus()]
        self.net = nn.Sequential(*parts)
        self.own = Scaled(nn.Linear(3, 3), nn.Linear(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        tail = self.net[2:]
        assert isinstance(tail, nn.Sequential) and len(tail) == len(self.net) - 2 == 3
        x = tail(x) if x.sum() > 0 else self.net[1:][:-2](self.net[0](x))
        for place, layer in enumerate(self.net[::-2]):
            x = x + layer(x) * place
        for layer in tail[0]:
            x = layer(x) + self.net[-2].weight[0]
        for layer in self.own:
            x = layer(x)
        return self.net[1:2](x) * tail[1].bias


@pytest.mark.sampled(3)
@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
@pytest.mark.parametrize("kind", [BySlices, ByPlaces])
def test_slices_of_lists_of_modules(kind: Any, engine: str) -> None:
    torch.manual_seed(0)
    net = kind()

    def call(given: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(net, given, (x,))

    for size, chunk in ((7, 3), (1, None), (2, None)):
        xs, scale = torch.randn(size, 3), torch.linspace(0.5, 1.5, size)
        own = {n: torch.stack([p.detach() * s for s in scale]) for n, p in net.named_parameters()}
        leaves = [p.requires_grad_() for p in own.values()]
        expected = torch.stack(
            [call({n: p[i] for n, p in own.items()}, xs[i]) for i in range(size)]
        )
        batched = autobatch.vmap(call, engine=engine, trace_after=0, chunk_size=chunk)
        with autobatch.counts() as counts:
            for _ in range(2):
                found = batched(own, xs)
                torch.testing.assert_close(found, expected)
        assert counts.fallbacks <= (0 if kind is BySlices else 2 * size)  # of ``Scaled`` alone
        slopes = [
            torch.autograd.grad(out.square().sum(), leaves, allow_unused=True)
            for out in (found, expected)
        ]
        torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("look", [lambda m: m.net[3], lambda m: m.listed[-4], lambda m: m.net["a"]])
def test_parts_that_are_not_there(look: Callable[..., Any]) -> None:
    def way(m: Any, x: Tensor) -> Tensor:
        return look(m)(x)

    model = Layers(way)
    given = {name: torch.stack([p, p]) for name, p in model.named_parameters()}
    with pytest.raises((IndexError, TypeError)) as expected:
        functional_call(model, {name: p[0] for name, p in given.items()}, (torch.ones(3),))
    with pytest.raises(expected.type) as found:
        autobatch.vmap(lambda p, x: functional_call(model, p, (x,)))(given, torch.ones(2, 3))
    assert str(found.value) == str(expected.value)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        while y.abs().sum() > 2:
            y = self.b(y) * 0.4
        return y


SOME = {
    "the weight of a layer": (lambda: nn.Linear(3, 3), ["weight"]),
    "the bias of a layer": (lambda: nn.Linear(3, 3), ["bias"]),
    "of a chain": (
        lambda: nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)),
        ["0.weight", "2.weight"],
    ),
    "of parts": (Tied, ["b.weight"]),
    "none of a part": (Tied, ["b.bias"]),
    "without a bias": (lambda: nn.Linear(3, 3, bias=False), ["weight"]),
}


@pytest.mark.parametrize("way", [{}, {"plain": "never"}, {"trace_after": 0}], ids=str)
@pytest.mark.parametrize("case", SOME)
def test_what_is_not_given_is_the_module_s(case: str, way: dict[str, Any]) -> None:
    torch.manual_seed(0)
    make, names = SOME[case]
    model = make()
    given = {name: p.detach() for name, p in model.named_parameters() if name in names}
    given |= {name: model.get_parameter(name).detach() for name in names}
    xs = torch.randn(4, 3)

    def loss(p: dict[str, Tensor], x: Tensor) -> Tensor:
        y = functional_call(model, p, x)
        return y.sum() if y.sum() > 0 else y.square().sum()

    for _ in range(3):
        got = autobatch.vmap(autobatch.value_and_grad(loss), in_dims=(None, 0), **way)(given, xs)
        rows = [torch.func.grad_and_value(loss)(given, x) for x in xs]
        values = torch.stack([value for _, value in rows])
        slopes = {name: torch.stack([grad[name] for grad, _ in rows]) for name in given}
        torch.testing.assert_close(got, (slopes, values)[::-1])


def test_two_tensors_for_a_tied_one_are_torchs_error() -> None:
    model = Tied()

    def run(x: Tensor) -> Any:
        return functional_call(model, {"a.weight": x * 1, "b.weight": x * 2}, (x[0],))

    with pytest.raises(ValueError, match="multiple values for keys") as expected:
        run(torch.ones(3, 3))
    with pytest.raises(ValueError, match="multiple values for keys") as got:
        autobatch.vmap(run, plain="never")(torch.ones(2, 3, 3))
    assert str(got.value) == str(expected.value)
