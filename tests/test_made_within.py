"""Modules and generators that a program makes are each thread's own, as in the plain loop."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.quasirandom import SobolEngine

import autobatch
from tests.oracle import assert_matches_loop

WAYS: list[dict[str, Any]] = [
    {},
    {"executor": "vmap"},
    {"plain": "never"},
    {"plain": "never", "trace_after": 0},
    {"engine": "program_counter", "trace_after": 0},
    {"engine": "sequential"},
]
MODEL = nn.Linear(3, 2)


def filled(x: Tensor) -> Tensor:
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.bias.zero_()
    return layer(x)


def filled_by_init(x: Tensor) -> Tensor:
    layer = nn.Linear(3, 2, bias=False)
    nn.init.ones_(layer.weight)
    return layer(x)


def of_each_thread(x: Tensor) -> Tensor:
    layer = nn.LayerNorm(3)
    with torch.no_grad():
        layer.weight.mul_(3.0)
        layer.bias.add_(x)
    return layer(x * 2)


def statistics(x: Tensor) -> Tensor:
    norm = nn.BatchNorm1d(3).eval()
    norm.running_mean.fill_(2.0)
    if x.sum() > 0:
        norm.running_var.add_(x.abs())
    return norm(x[None])[0]


def in_training(x: Tensor) -> Tensor:
    norm = nn.Sequential(nn.BatchNorm1d(3), nn.ReLU())
    rows = torch.stack([x, x * 2])
    for _ in range(2):
        rows = norm(rows) + x if x.sum() > 0 else norm(rows)
    return rows + norm[0].running_mean * norm[0].num_batches_tracked


def at_rest(x: Tensor) -> Tensor:
    drop = nn.Sequential(nn.ReLU(), nn.Dropout(0.5)).eval()
    other = nn.Dropout(0.25)
    other.training = False
    return drop(x) + other(x) if x.sum() > 0 else x


def put_in_place(x: Tensor) -> Tensor:
    layer = nn.Linear(3, 2)
    layer.weight.data = torch.ones(2, 3) * x[0]
    layer.bias.data.zero_()
    return layer(x)


def of_the_users(x: Tensor) -> Tensor:
    net = Net()
    with torch.no_grad():
        net.inner.weight.copy_(torch.eye(3))
        net.inner.bias.fill_(0.5)
    return net(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).relu()


def copied(x: Tensor) -> Tensor:
    model = copy.deepcopy(MODEL)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(x.sum() * torch.ones_like(parameter))
    return model(x)


def without_tensors(x: Tensor) -> Tensor:
    probabilities = nn.Softmax(dim=0)(nn.ELU()(x))
    return nn.CrossEntropyLoss()(probabilities, torch.tensor(1)) + nn.PReLU()(x)


def of_an_example(x: Tensor) -> Tensor:
    module = nn.Module()
    module.w = nn.Parameter(x * 2)
    (only,) = module.parameters()
    assert isinstance(only, nn.Parameter) and only.is_leaf
    return only.sum()


def of_none(x: Tensor) -> Tensor:
    layer = nn.Linear(3, 2)
    layer.weight = nn.Parameter(x * torch.ones(2, 3))
    layer.bias = nn.Parameter(torch.zeros(2))
    with torch.no_grad():
        layer.bias.add_(x[:2])
    return layer(x)


def registered(x: Tensor) -> Tensor:
    module = nn.ParameterList([nn.Parameter(torch.ones(3)), nn.Parameter(x)])
    module.register_parameter("more", nn.Parameter(torch.zeros(3), requires_grad=False))
    while module.more.sum() < 3:
        module.more.add_(1)
    return module[0] * module[1] + module.more + len(list(module.parameters()))


def one_draw(x: Tensor) -> Tensor:
    source = torch.Generator().manual_seed(3)
    return x + torch.rand((), generator=source)


def some_draws(x: Tensor) -> Tensor:
    source = torch.Generator()
    source.manual_seed(int(x[0] > 0))
    first = torch.rand(3, generator=source)
    if x.sum() > 0:
        first = first + torch.randn(3, generator=source)
    return first * 10 + torch.randint(0, 100, (3,), generator=source) + x


def in_place(x: Tensor) -> Tensor:
    source = torch.Generator().manual_seed(4)
    state = source.get_state()
    first = torch.empty(3).normal_(generator=source)
    order = torch.randperm(3, generator=source)
    source.set_state(state)
    return first * 100 + torch.empty(3).normal_(generator=source) * 10 + order + x


def of_numpy(x: Tensor) -> Tensor:
    old, new = np.random.RandomState(3), np.random.default_rng(3)
    return x + old.rand() + old.rand() + new.random()


PROGRAMS: list[Callable[[Tensor], Tensor]] = [
    *(filled, filled_by_init, of_each_thread, statistics, at_rest, put_in_place, of_the_users),
    in_training,
    *(copied, without_tensors, one_draw, some_draws, in_place, of_numpy),
    *(of_an_example, of_none, registered),
]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_each_thread_has_its_own(program: Callable[[Tensor], Tensor], way: dict[str, Any]) -> None:
    for size in (1, 5):
        x = torch.randn(size, 3)
        want = torch.stack([program(row.clone()) for row in x])
        batched = autobatch.vmap(program, randomness="different", **way)
        for _ in range(3):
            torch.testing.assert_close(batched(x), want)


def drawn_anew(x: Tensor) -> Tensor:
    layer = nn.Linear(3, 2) if x.sum() > 0 else Net()
    return layer(x)[:2]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_weights_are_drawn_as_randomness_says(way: dict[str, Any]) -> None:
    x = torch.ones(4, 3)

    def rows(**options: Any) -> int:
        return len(autobatch.vmap(drawn_anew, **options, **way)(x).unique(dim=0))

    assert rows(randomness="different") == rows(seed=3) == 4
    assert rows(randomness="same") == 1
    first, second = (autobatch.vmap(drawn_anew, seed=3, **way)(x) for _ in range(2))
    assert torch.equal(first, second)
    with pytest.raises(RuntimeError, match="draws random numbers"):
        autobatch.vmap(drawn_anew, **way)(x)


def test_modules_without_tensors_are_made_once() -> None:
    batched = autobatch.vmap(lambda x: nn.Softmax(dim=0)(nn.ReLU()(x)), fallback="error")
    batched(torch.randn(64, 3))


# What changes a module, or what is drawn from, that the program has made: once for each example.


def appends(n: Any) -> Any:
    modules = nn.ModuleList([nn.ReLU()])
    if n > 2:
        modules.append(nn.Tanh())
    modules.extend([nn.Sigmoid(), nn.Tanh()])
    modules.insert(0, nn.Tanh())
    nn.ModuleList.append(modules, nn.ReLU())
    modules.pop(1)
    return len(modules), str([type(module).__name__ for module in modules])


def appends_parameters(n: Any) -> Any:
    parameters = nn.ParameterList()
    for i in range(n):
        parameters.append(nn.Parameter(torch.full((2,), float(i))))
    return len(parameters), sum([p.sum() for p in parameters], torch.zeros(()))


def hooks(n: Any) -> Any:
    module = nn.Dropout(0.0)
    if n > 1:
        module.register_forward_hook(lambda module, args, out: out + 1)
    return module(torch.ones(2))


def quasirandom(n: Any) -> Any:
    engine = SobolEngine(2)
    if n > 2:
        engine.fast_forward(2)
    return engine.draw(1)[0]


@pytest.mark.parametrize("func", [appends, appends_parameters, hooks, quasirandom])
def test_what_is_made_is_changed_once(func: Callable[..., Any]) -> None:
    xs = torch.tensor([0, 3, 1, 4, 2])
    assert_matches_loop(func, (xs,), scalars="python", randomness="different")
