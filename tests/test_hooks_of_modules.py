"""Hooks of torch's own modules: what they write, keep and give is each example's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_full_backward_hook

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


def backward_hook(module: nn.Module, given: Any, arrived: Any) -> Any:
    return (given[0] * 3,)


def backward_pre_hook(module: nn.Module, arrived: Any) -> Any:
    return (arrived[0] * 3,)


HOOKS: dict[str, Any] = {
    "after": lambda module: module.register_full_backward_hook(backward_hook),
    "before": lambda module: module.register_full_backward_pre_hook(backward_pre_hook),
    "of all": lambda module: register_module_full_backward_hook(
        lambda each, given, arrived: backward_hook(each, given, arrived) if each is module else None
    ),
}


class Within(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.layer(x * 2) if x.sum() > 0 else self.layer(x)


@pytest.mark.sampled(4)
@ways
@pytest.mark.parametrize("within", [lambda x: x, nn.Sequential, Within])
@pytest.mark.parametrize("hook", HOOKS.values(), ids=list(HOOKS))
def test_hooks_of_the_backward_see_one_example(way: dict[str, Any], hook: Any, within: Any) -> None:
    layer = linear()
    module = within(layer)
    handle = hook(layer)
    try:

        def program(x: Tensor) -> Tensor:
            return module(x * 2).sin()

        xs = XS.clone().requires_grad_()
        wanted = [xs, *layer.parameters()]
        rows = torch.stack([program(x) for x in xs])
        expected = torch.autograd.grad(rows.pow(2).sum(), wanted)
        batched = autobatch.vmap(program, **way)
        for _ in range(3):
            found = torch.autograd.grad(batched(xs).pow(2).sum(), wanted)
            torch.testing.assert_close(found, expected)
    finally:
        handle.remove()


@pytest.mark.parametrize("way", [way for way in WAYS if way.get("engine") != "sequential"])
def test_a_hook_on_a_tensor_is_refused(way: dict[str, Any]) -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if x[0] > 0.75:
            y.register_hook(lambda slope: slope * 2)
        return y

    with pytest.raises(autobatch.UnsupportedError, match="cannot hang a hook on a tensor"):
        autobatch.vmap(program, **way)(XS.clone().requires_grad_())
    with pytest.raises(RuntimeError, match="cannot register a hook on a tensor that"):
        autobatch.vmap(program, **way)(XS)


def test_a_function_that_runs_thread_by_thread_may_hang_hooks_on_tensors() -> None:
    @autobatch.per_thread
    def doubled(x: Tensor) -> Tensor:
        y = x * 2
        y.register_hook(lambda slope: slope * 2)
        return y

    xs = XS.clone().requires_grad_()
    (found,) = torch.autograd.grad(autobatch.vmap(lambda x: doubled(x) * 3)(xs).sum(), xs)
    torch.testing.assert_close(found, torch.full_like(XS, 12.0))
