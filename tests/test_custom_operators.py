"""Custom operators in programs: torch's rules of theirs, and ``register_converter``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.library import custom_op, register_vmap

import autobatch
from autobatch.batching.converters import registry
from tests.oracle import assert_matches_loop
from tests.test_transforms import generated

XS = generated(5, 3, seed=31).float()
SEEN: list[Any] = []
"""What has run, for the tests that ask which rule was taken."""


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    SEEN.clear()
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))


@custom_op("autobatch_tests::ruled", mutates_args=())
def ruled(x: Tensor, limit: float) -> Tensor:
    return x.clamp(max=limit) + x


@ruled.register_fake
def _(x: Tensor, limit: float) -> Tensor:
    return torch.empty_like(x)


@register_vmap(ruled)
def _(info: Any, in_dims: Any, x: Tensor, limit: float) -> Any:
    SEEN.append("torch's rule")
    return ruled(x.movedim(in_dims[0], 0), limit), 0


@custom_op("autobatch_tests::bare", mutates_args=())
def bare(x: Tensor, y: Tensor) -> Tensor:
    if x.dim() != 1:
        raise ValueError("bare takes vectors")
    return x * y.sum()


@bare.register_fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return torch.empty_like(x)


class Ruled(torch.autograd.Function):
    """With a vmap of its own, and a gradient that is not what autograd would find."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad * 5 * ctx.saved_tensors[0] ** 2

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor) -> Any:
        SEEN.append("the function's vmap")
        return Ruled.apply(x), in_dims[0]


class Generated(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x**3

    setup_context = Ruled.setup_context
    backward = Ruled.backward


def with_ruled(x: Tensor) -> Tensor:
    y = ruled(x, 0.25)
    if y.sum() > 0:
        y = torch.ops.autobatch_tests.ruled(y, 0.5)
    return torch.ops.autobatch_tests.ruled.default(y, 0.75)


def with_function(x: Tensor) -> Any:
    y = Ruled.apply(x) if x.sum() > 0 else x
    return y, autobatch.grad(lambda x: Ruled.apply(x).sum())(x)


def with_generated(x: Tensor) -> Any:
    y = Generated.apply(x) if x.sum() > 0 else x
    return y, torch.func.grad(lambda x: Generated.apply(x).sum())(x)


@pytest.mark.parametrize(
    ("program", "rule"),
    [
        (with_ruled, "torch's rule"),
        (with_function, "the function's vmap"),
        (with_generated, None),
    ],
)
def test_rules_that_operators_bring_are_taken(program: Callable[..., Any], rule: Any) -> None:
    assert_matches_loop(program, (XS,), batch_sizes=(1, None))
    with autobatch.counts() as counts:
        autobatch.vmap(program)(XS)
        autobatch.pfor(lambda i: program(XS[i]), 5)
    assert counts.fallbacks == 0
    assert rule is None or rule in SEEN


def test_no_rule_is_a_loop_and_a_warning() -> None:
    def program(x: Tensor) -> Tensor:
        return bare(x, XS[0]) * 2

    expected = torch.stack([program(x) for x in XS])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.testing.assert_close(autobatch.map_fn(program, XS), expected)
    (warning,) = caught
    line = program.__code__.co_firstlineno + 1
    text = str(warning.message)
    assert f"line {line}" in text and "`bare(x, XS[0])` runs thread by thread" in text
    assert "autobatch_tests::bare: it has no batching rule" in text


def batched_bare(info: Any, in_dims: Any, x: Tensor, y: Tensor) -> Any:
    SEEN.append((info.batch_size, in_dims))
    if in_dims[0] is None:
        return NotImplemented
    total = y.sum(1, keepdim=True) if in_dims[1] == 0 else y.sum()
    return (x * total).mT, 1


def with_bare(x: Tensor) -> Tensor:
    y = bare(x, XS[0]) if x[0] > 0 else x * 2
    return torch.ops.autobatch_tests.bare(y, x) + bare(XS[1], x)


@pytest.mark.parametrize(
    "named",
    [bare, torch.ops.autobatch_tests.bare, torch.ops.autobatch_tests.bare.default],
    ids=["definition", "packet", "overload"],
)
def test_a_converter_is_taken_by_all_names(named: Any) -> None:
    assert autobatch.register_converter(named)(batched_bare) is batched_bare
    assert_matches_loop(with_bare, (XS,), batch_sizes=(1, None))
    SEEN.clear()
    with autobatch.counts() as counts:
        autobatch.vmap(with_bare, executor="vmap")(XS)
    assert [(int((XS[:, 0] > 0).sum()), (0, None)), (5, (0, 0)), (5, (None, 0))] == SEEN
    assert counts.fallbacks == 1  # the one that it has declined


def test_converters_of_functions_modules_and_primitives() -> None:
    class Doubled(nn.Linear):
        pass

    Doubled.__module__ = "torch.nn.modules.linear"  # what programs run as one operation
    layer = Doubled(3, 2)

    @autobatch.primitive
    def pair(x: Tensor) -> Any:
        return (x.sum(), [x.tolist()[0] * x])

    @autobatch.register_converter(pair)
    def _(info: Any, in_dims: Any, x: Tensor) -> Any:
        SEEN.append("pair")
        return (x.sum(1), [x[:, :1] * x]), (0, 0)

    @autobatch.register_converter(Doubled)
    def _(info: Any, in_dims: Any, module: Any, x: Tensor) -> Any:
        SEEN.append("module")
        return nn.functional.linear(x, module.weight, module.bias), 0

    @autobatch.register_converter(torch.special.entr)
    def _(info: Any, in_dims: Any, x: Tensor) -> Any:
        SEEN.append("entr")
        return torch.special.entr(x), 0

    def program(x: Tensor) -> Any:
        return pair(x), layer(x), torch.special.entr(x.abs())

    assert_matches_loop(program, (XS,))
    assert {"pair", "module", "entr"} <= set(SEEN)
    with autobatch.counts() as counts:
        autobatch.vmap(program)(XS)
    assert counts.fallbacks == 0


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x: x, r"it gave Tensor, not \(result, out_dims\)"),
        (lambda x: (x, 1), r"dimension 1 of a tensor of shape \[5, 3\] is not the 5 threads'"),
        (lambda x: (x, "0"), "out_dims has '0'"),
        (lambda x: ([x, x], (0,)), "not nested like its result"),
        (lambda x: (x[0] @ x, 0), "it raised RuntimeError"),
    ],
)
def test_a_wrong_rule_is_told(result: Callable[[Tensor], Any], message: str) -> None:
    @autobatch.register_converter(bare)
    def wrong(info: Any, in_dims: Any, x: Tensor, y: Tensor) -> Any:
        return result(x)

    def program(x: Tensor) -> Tensor:
        return bare(x, x)

    for way in ({"executor": "vmap"}, {"trace_after": 0}, {"engine": "program_counter"}):
        with pytest.raises(autobatch.ConverterError, match=message) as caught:
            autobatch.vmap(program, **way)(XS)
        assert "The converter wrong of autobatch_tests::bare is wrong" in str(caught.value)
        span = caught.value.span
        assert span is not None and span.line == program.__code__.co_firstlineno + 1


def test_what_an_example_raises_is_raised_though_the_rule_fails() -> None:
    @autobatch.register_converter(bare)
    def _(info: Any, in_dims: Any, x: Tensor, y: Tensor) -> Any:
        raise AssertionError("not covered")

    assert_matches_loop(lambda x: bare(x.reshape(1, 3), x), (XS,))


@pytest.mark.parametrize("what", [lambda x: x, len, print, nn.Linear(2, 2), "add"])
def test_what_is_no_operation_has_no_converter(what: Any) -> None:
    with pytest.raises(TypeError, match="register_converter takes an operator"):
        autobatch.register_converter(what)
    with pytest.raises(TypeError, match="decorates a function"):
        autobatch.register_converter(torch.sin)(3)  # type: ignore[type-var]


@autobatch.primitive
def told(x, n):
    return (x * 2 if isinstance(n, int) else x * 3), n


def of_numbers(x):
    n = 0
    while x.sum() > 1:
        x, n = x / 2, n + 1
    doubled, same = told(x, n)
    tripled, _ = told(x, x.sum())
    return doubled, same, isinstance(same, int), tripled


def test_a_primitive_gets_numbers_as_numbers() -> None:
    xs = torch.tensor([[1.0, 2.0], [0.1, 0.2], [5.0, 9.0]])
    assert_matches_loop(of_numbers, (xs,))
