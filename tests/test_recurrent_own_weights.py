"""Recurrent layers over whole sequences with weights of each thread's own, held to the loop."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves

import autobatch

THREADS, STEPS, BATCH = 3, 4, 2
KINDS: dict[str, Any] = {
    "lstm": (nn.LSTM, {}),
    "projected": (nn.LSTM, {"proj_size": 2}),
    "gru": (nn.GRU, {}),
    "tanh": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
}
SHAPES = [
    {},
    {"batch_first": True, "bias": False},
    {"num_layers": 2, "bidirectional": True, "batch_first": True},
]


def own_weights(module: nn.Module, count: int = THREADS) -> dict[str, Tensor]:
    torch.manual_seed(0)
    named = module.named_parameters()
    return {key: torch.randn(count, *p.shape, dtype=p.dtype).requires_grad_() for key, p in named}


def row(weights: dict[str, Tensor], i: int) -> dict[str, Tensor]:
    return {key: weight[i] for key, weight in weights.items()}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_sequences_with_weights_of_their_own(kind: str, shape: dict[str, Any], alone: bool) -> None:
    make, options = KINDS[kind]
    module = make(3, 4, **options, **shape).double()
    weights = own_weights(module)
    sequence = (BATCH, STEPS, 3) if module.batch_first else (STEPS, BATCH, 3)
    x = torch.randn(THREADS, *((STEPS, 3) if alone else sequence)).double().requires_grad_()
    ways = module.num_layers * (2 if module.bidirectional else 1)
    batch = () if alone else (BATCH,)
    h = torch.randn(THREADS, ways, *batch, module.proj_size or 4).double().requires_grad_()
    c = torch.randn(THREADS, ways, *batch, 4).double().requires_grad_()

    def program(p: Any, x: Tensor, h: Tensor, c: Tensor) -> Any:
        return functional_call(module, p, (x, (h, c) if kind in ("lstm", "projected") else h))

    with autobatch.counts() as counts:
        found = tree_leaves(autobatch.vmap(program, fallback="error")(weights, x, h, c))
    assert counts.by_thread == 0
    rows = [tree_leaves(program(row(weights, i), x[i], h[i], c[i])) for i in range(THREADS)]
    expected = [torch.stack(each) for each in zip(*rows, strict=True)]
    torch.testing.assert_close(found, expected)
    factors = [torch.randn_like(each) for each in expected]
    inputs = [*weights.values(), x, h]
    gradients = [
        torch.autograd.grad(sum((a * b).sum() for a, b in zip(outs, factors, strict=True)), inputs)
        for outs in (found, expected)
    ]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_any_number_of_threads_and_some_weights_that_all_share(count: int) -> None:
    module = nn.GRU(3, 4, 2)
    weights = own_weights(module, count)
    shared = {key: p.detach() for key, p in module.named_parameters() if "hh" in key}
    x = torch.randn(count, STEPS, 3)

    def program(p: Any, x: Tensor) -> Tensor:
        return functional_call(module, {**p, **shared}, (x,))[0]

    found = autobatch.vmap(program)(weights, x)
    expected = [program(row(weights, i), x[i]) for i in range(count)]
    torch.testing.assert_close(found, torch.stack(expected) if count else x.new_zeros(0, STEPS, 4))


def test_gradients_of_each_model_are_recorded_once() -> None:
    module = nn.LSTM(3, 4)
    weights, x = own_weights(module), torch.randn(THREADS, STEPS, 3)

    def loss(p: Any, x: Tensor) -> Tensor:
        return functional_call(module, p, (x,))[0].square().sum()

    slopes = autobatch.vmap(autobatch.grad(loss), trace_after=0)
    slopes(weights, x)
    with autobatch.counts() as counts:
        found = slopes(weights, x)
    assert counts.traces == 0 and counts.by_thread == 0
    rows = [torch.func.grad(loss)(row(weights, i), x[i]) for i in range(THREADS)]
    for key, slope in found.items():
        torch.testing.assert_close(slope, torch.stack([each[key] for each in rows]))


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_layer_that_all_share_is_recorded_once_where_gradients_flow(make: Any) -> None:
    module, x = make(3, 4), torch.randn(THREADS, STEPS, 3)
    mapped = autobatch.vmap(lambda x: module(x)[0], trace_after=0)
    mapped(x)
    with autobatch.counts() as counts:
        mapped(x)
    assert counts.traces == 0
    with torch.no_grad():
        module.weight_hh_l0 *= 2
    torch.testing.assert_close(mapped(x), torch.stack([module(each)[0] for each in x]))
    module.weight_ih_l0 = nn.Parameter(torch.randn_like(module.weight_ih_l0))
    torch.testing.assert_close(mapped(x), torch.stack([module(each)[0] for each in x]))


def test_a_recording_sees_weights_that_are_put_beside_the_parameters() -> None:
    module, other, x = nn.GRU(3, 4), nn.GRU(3, 4), torch.randn(THREADS, STEPS, 3)
    mapped = autobatch.vmap(lambda x: module(x)[0], trace_after=0)
    with torch.no_grad():
        mapped(x)
        module._flat_weights = list(other._flat_weights)
        torch.testing.assert_close(mapped(x), torch.stack([module(each)[0] for each in x]))


def test_dropout_between_layers_draws_only_where_it_may() -> None:
    module = nn.LSTM(3, 4, 2, dropout=0.5)
    weights, x = own_weights(module), torch.randn(THREADS, STEPS, 3)

    def program(p: Any, x: Tensor) -> Tensor:
        return functional_call(module, p, (x,))[0]

    with pytest.raises(RuntimeError, match='randomness="different"'):
        autobatch.vmap(program)(weights, x)
    assert autobatch.vmap(program, randomness="different")(weights, x).shape == (3, STEPS, 4)
    module.eval()
    expected = torch.stack([program(row(weights, i), x[i]) for i in range(THREADS)])
    torch.testing.assert_close(autobatch.vmap(program)(weights, x), expected)


@pytest.mark.parametrize("x", [torch.randn(2, 0, 3), torch.randn(2, 4, 2), torch.randn(2, 3)])
def test_what_torch_refuses_is_its_error(x: Tensor) -> None:
    module = nn.GRU(3, 4)
    weights = own_weights(module, 2)

    def program(p: Any, x: Tensor) -> Any:
        return functional_call(module, p, (x,))

    with pytest.raises((RuntimeError, ValueError)) as expected:
        program(row(weights, 0), x[0])
    with pytest.raises(type(expected.value), match=re.escape(str(expected.value))):
        autobatch.vmap(program)(weights, x)
