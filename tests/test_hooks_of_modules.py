"""Hooks of torch's own modules: what they write, keep and give is each example's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch
from tests.expected import check

XS = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0], [0.5, 0.25, 0.125]])
WAYS: tuple[dict[str, Any], ...] = (
    {"executor": "vmap"},
    {"executor": "traced", "trace_after": 0},
    {"engine": "program_counter"},
    {"engine": "sequential"},
    {},
)
ways = pytest.mark.parametrize("way", WAYS, ids=str)


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 3)


def calling(module: nn.Module) -> Any:
    return lambda x: module(x)


def rounds(layer: nn.Module) -> Any:
    def program(x: Tensor) -> Tensor:
        n = 0
        while layer(x).sum() > -4 and n < 3:
            x, n = layer(x) - 1, n + 1
        return x

    return program


@ways
@pytest.mark.parametrize("keeps", ["append", "count", "buffer"])
def test_what_a_hook_writes_is_refused(way: dict[str, Any], keeps: str) -> None:
    if way.get("engine") == "sequential":
        pytest.skip("examples run one after the other")
    layer, seen = linear(), [0]
    layer.register_buffer("calls", torch.zeros(()))

    def hook(module: nn.Module, given: Any, out: Tensor) -> None:
        if keeps == "append":
            seen.append(out.norm())
        elif keeps == "count":
            seen[0] += 1
        else:
            module.calls.mul_(2).add_(out.sum())

    layer.register_forward_hook(hook)
    for func in (rounds(layer), calling(layer), calling(nn.Sequential(layer, nn.ReLU()))):
        with pytest.raises(autobatch.SharedWriteError):
            autobatch.vmap(func, **way)(XS)
    assert seen == [0] and layer.calls == 0


@ways
def test_what_a_hook_gives_is_each_examples_own(way: dict[str, Any]) -> None:
    layer = linear()
    layer.register_forward_pre_hook(lambda module, given: (given[0] * 2,))
    layer.register_forward_hook(
        lambda module, given, out: out + 1 if out.sum() > 0 else out - given[0]
    )
    for func in (rounds(layer), calling(layer), calling(nn.Sequential(layer, nn.ReLU()))):
        check(autobatch.vmap(func, **way)(XS), torch.stack([func(x) for x in XS]))


@ways
def test_hooks_within_a_module_of_torchs_run_example_by_example(way: dict[str, Any]) -> None:
    encoder = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).double()
    norms: list[float] = []
    encoder.linear1.register_forward_hook(
        lambda module, given, out: norms.append(float(out.norm()))
    )
    xs = torch.linspace(-1.0, 1.0, 24, dtype=torch.float64).reshape(2, 3, 4)
    expected = torch.stack([encoder(x) for x in xs])
    kept, norms[:] = list(norms), []
    check(autobatch.vmap(calling(encoder), **way)(xs), expected)
    assert norms == pytest.approx(kept)


@ways
def test_a_hook_of_torchs_runs_example_by_example(way: dict[str, Any]) -> None:
    def made() -> nn.Module:
        return nn.utils.spectral_norm(linear())

    ours, theirs = made(), made()
    expected = torch.stack([theirs(x) for x in XS])
    check(autobatch.vmap(calling(ours), **way)(XS), expected)
    check(ours.weight_u, theirs.weight_u)


@ways
def test_functional_call_runs_them_example_by_example(way: dict[str, Any]) -> None:
    layer, sums = linear(), []
    layer.register_forward_hook(lambda module, given, out: sums.append(float(out.sum())))
    given = {name: param.detach() for name, param in layer.named_parameters()}

    def func(params: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(layer, params, (x,))

    expected = torch.stack([func(given, x) for x in XS])
    kept, sums[:] = list(sums), []
    check(autobatch.vmap(func, in_dims=(None, 0), **way)(given, XS), expected)
    assert sums == pytest.approx(kept)
