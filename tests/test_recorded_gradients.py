"""``grad(f)`` inside a program as part of a recording: forward, backward and what is around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch
from tests.custom_gradient import Doubled
from tests.expected import check, stacked

Program = Callable[..., Any]
X = torch.tensor([[1.0, 2.0, -0.5], [3.0, -1.0, 0.25], [0.5, 0.25, 2.0], [-1.5, 1.0, 0.75]])
W = torch.tensor([[0.5, -1.0, 1.0], [2.0, 0.25, -2.0], [-0.75, 1.5, 0.5], [1.0, 2.0, 3.0]])


class Law(nn.Module):
    """A density with parameters, a number and an object of the user's own to go by."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, 0.25], [0.0, 0.25, 3.0]])
        )
        self.scale = 0.5
        self.curve: Callable[[Tensor], Tensor] = torch.tanh

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * (self.curve(x) @ self.weight @ x)


class Step(nn.Module):
    """One step down the density: its gradient, and what is around it, are one block."""

    def __init__(self) -> None:
        super().__init__()
        self.law = Law()

    def forward(self, x: Tensor) -> Any:
        gradient, value = torch.func.grad_and_value(self.law)(x)
        return x - 0.1 * gradient, value.exp()


def captured(x: Tensor, w: Tensor) -> Any:
    y = x.sin()
    gradient = torch.func.grad(lambda v: (v * w * y).tanh().sum())(x)
    return gradient + y


def by_argnums(x: Tensor, w: Tensor) -> Any:
    return torch.func.grad(lambda v, u: (v * u).exp().sum(), argnums=(1, 0))(x, w)


def with_aux(x: Tensor, w: Tensor) -> Any:
    return torch.func.grad_and_value(lambda v: ((v * w).sum(), (v + 1, w)), has_aux=True)(x)


def ours(x: Tensor, w: Tensor) -> Any:
    value, gradient = autobatch.value_and_grad(lambda v: (v.cos() * w).sum())(x)
    return value, gradient, autobatch.grad(lambda v: v.prod())(w)


def twice(x: Tensor, w: Tensor) -> Any:
    return torch.func.grad(lambda v: (torch.func.grad(lambda u: (u**3 * v).sum())(w) * v).sum())(x)


def of_a_tree(x: Tensor, w: Tensor) -> Any:
    return torch.func.grad(lambda d: (d["a"] * d["b"][0]).sum())({"a": x, "b": (w,)})


def by_keyword(x: Tensor, w: Tensor) -> Any:
    return torch.func.grad(lambda v, *, by: (v.pow(2) * by).sum())(x, by=w)


def of_rounds(x: Tensor, w: Tensor) -> Any:
    for power in range(1, 4):
        x = x - 0.01 * torch.func.grad(lambda v: (v**power * w).sum())(x)  # noqa: B023
    return x


def held_back(x: Tensor, w: Tensor) -> Any:
    return torch.func.grad(lambda v: (v.detach() * v * w).sum())(x)


def of_what_is_not_used(x: Tensor, w: Tensor) -> Any:
    return torch.func.grad(lambda v, u: (v * 2).sum(), argnums=1)(x, w)


def of_torch(x: Tensor, w: Tensor) -> Any:
    return torch.func.grad(torch.sum)(x) + torch.func.grad(torch.linalg.vector_norm)(w)


def custom(x: Tensor, w: Tensor) -> Any:
    return torch.func.grad(lambda v: (Doubled.apply(v) * w).sum())(x)


def without(x: Tensor, w: Tensor) -> Any:
    def cost(v: Tensor) -> Tensor:
        with torch.no_grad():
            u = v * w
        return (u * v).sum()

    return torch.func.grad(cost)(x)


def branching(x: Tensor, w: Tensor) -> Any:
    return torch.func.grad(lambda v: (v * w).sum() if w.sum() > 0 else v.prod())(x)


def keeping(x: Tensor, w: Tensor) -> Any:
    seen: list[Tensor] = []

    def cost(v: Tensor) -> Tensor:
        seen.append(v * w)
        return (v * w).sum()

    gradient = torch.func.grad(cost)(x)
    return gradient, len(seen)


def writing(x: Tensor, w: Tensor) -> Any:
    total = torch.zeros(3)

    def cost(v: Tensor) -> Tensor:
        u = v.clone()
        u.mul_(w)
        u[0] = v[1]
        return (v * u).sum()

    return torch.func.grad(cost)(x), total.add_(torch.func.grad(cost)(w))


def in_numbers(x: Tensor, w: Tensor) -> Any:
    n = int(w[0]) + 2
    return torch.func.grad(lambda v: (v * (7 // n)).sum())(x), n


RECORDED = [captured, by_argnums, with_aux, ours, twice, of_a_tree, by_keyword, of_rounds]
RECORDED += [held_back, of_what_is_not_used, of_torch]
OTHERS = [custom, without, branching, keeping, writing, in_numbers]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("func", [*RECORDED, *OTHERS], ids=lambda func: func.__name__)
def test_as_the_loop_has_it(func: Program, grad: bool, dtype: torch.dtype) -> None:
    xs, ws = X.to(dtype), W.to(dtype)
    batched = autobatch.vmap(func, trace_after=0)
    with torch.set_grad_enabled(grad):
        expected = stacked([func(x, w) for x, w in zip(xs, ws, strict=True)])
        for _ in range(4):  # the first records, the third goes by a driver
            check(batched(xs, ws), expected)
        check(batched(xs[:1], ws[:1]), stacked([func(xs[0], ws[0])]))


@pytest.mark.parametrize("func", RECORDED, ids=lambda func: func.__name__)
def test_nothing_is_interpreted_again(func: Program) -> None:
    """Once recorded, a gradient runs no block of the function that it is of."""
    batched = autobatch.vmap(func, trace_after=0)
    for _ in range(3):
        batched(X, W)
    with autobatch.counts() as counts:
        batched(X, W)
    assert {name for name, _ in counts.by_block} == {func.__name__}
    assert counts.traces == 0


def test_a_step_is_one_block_and_one_recording() -> None:
    step = Step()
    batched = autobatch.vmap(step, trace_after=0)
    for number, traces in ((4, 1), (3, 0), (2, 0)):
        with autobatch.counts() as counts:
            result = batched(X[:number])
        check(result, stacked([step(x) for x in X[:number]]), rtol=1e-5, atol=1e-6)
        assert (counts.block_executions, counts.traces, counts.fallbacks) == (1, traces, 0)


def test_what_a_module_holds_is_read_at_each_call() -> None:
    step = Step()
    batched = autobatch.vmap(step, trace_after=0)

    def as_the_loop() -> None:
        for _ in range(3):
            check(batched(X), stacked([step(x) for x in X]), rtol=1e-5, atol=1e-6)

    as_the_loop()
    with torch.no_grad():
        step.law.weight.mul_(1.5)
    as_the_loop()
    step.law.weight = nn.Parameter(step.law.weight.detach() * 2)
    as_the_loop()
    step.law.scale = 0.25
    as_the_loop()
    step.law.curve = torch.sin
    as_the_loop()
    step.law = Law()
    as_the_loop()


@pytest.mark.parametrize("func", [captured, by_argnums, twice, held_back], ids=lambda f: f.__name__)
def test_gradients_go_through(func: Program) -> None:
    """Of a loss of the gradients, with respect to the arguments of the batch."""
    batched = autobatch.vmap(func, trace_after=0)

    def gradients(run: Program) -> tuple[Tensor, ...]:
        xs, ws = X.clone().requires_grad_(), W.clone().requires_grad_()
        result = run(xs, ws)
        total = sum(part.sum() for part in (result if isinstance(result, tuple) else (result,)))
        return torch.autograd.grad(total, (xs, ws), allow_unused=True, materialize_grads=True)

    loop = gradients(lambda xs, ws: stacked([func(x, w) for x, w in zip(xs, ws, strict=True)]))
    for _ in range(3):
        check(gradients(batched), loop, rtol=1e-5, atol=1e-6)


def test_a_custom_gradient_counts_in_the_second_derivative() -> None:
    def func(x: Tensor, w: Tensor) -> Tensor:
        return torch.func.grad(lambda v: (Doubled.apply(v * w) * v).sum())(x)

    batched = autobatch.vmap(func, trace_after=0)
    xs = X.clone().requires_grad_()
    loop = torch.stack([func(x, w) for x, w in zip(xs, W, strict=True)]).sum()
    (expected,) = torch.autograd.grad(loop, xs)
    for _ in range(3):
        (found,) = torch.autograd.grad(batched(xs, W).sum(), xs)
        check(found, expected)


def test_what_all_share_is_differentiated_too() -> None:
    model = nn.Linear(3, 1)
    weights = dict(model.named_parameters())

    def func(x: Tensor) -> Any:
        return torch.func.grad(lambda p: torch.func.functional_call(model, p, (x,)).sum())(weights)

    batched = autobatch.vmap(func, trace_after=0)
    for _ in range(3):
        check(batched(X), stacked([func(x) for x in X]))


@pytest.mark.parametrize("warm", [0, 3])
def test_an_error_is_the_first_threads(warm: int) -> None:
    def func(x: Tensor, n: int) -> Tensor:
        gradient: Tensor = torch.func.grad(lambda v: v[n] * v.sum())(x)
        return gradient

    batched = autobatch.vmap(func, trace_after=0, scalars="python")
    for _ in range(warm):
        batched(X, torch.tensor([0, 1, 2, 0]))
    with pytest.raises(IndexError) as loop:
        func(X[1], 3)
    with pytest.raises(IndexError) as together:
        batched(X, torch.tensor([0, 3, 5, 1]))
    assert str(loop.value) == str(together.value)
    isolated = autobatch.vmap(func, trace_after=0, scalars="python", on_error="isolate")
    found = isolated(X, torch.tensor([0, 3, 5, 1]))
    assert [type(each.exception) for each in found] == [
        type(None),
        IndexError,
        IndexError,
        type(None),
    ]
    check(found[3].value, func(X[3], 1))


def test_a_seeded_draw_within_is_the_threads_own() -> None:
    def func(x: Tensor) -> Any:
        before = torch.rand(())
        gradient = torch.func.grad(lambda v: (v * torch.rand(3)).sum())(x)
        return before, gradient, torch.rand(())

    plain = autobatch.vmap(func, seed=3, executor="vmap")(X)
    batched = autobatch.vmap(func, seed=3, trace_after=0)
    for _ in range(3):
        check(batched(X), plain)


def test_calls_with_gradients_fork() -> None:
    """The gradient of a pure function is pure, so calls that take it run as one."""

    def deeper(x: Tensor, n: int) -> Tensor:
        if n == 0:
            return torch.func.grad(LAW)(x)
        return deeper(x + 1, n - 1) + deeper(x - 1, n - 1)

    batched = autobatch.vmap(deeper, in_dims=(0, None), trace_after=0)
    for _ in range(3):
        with autobatch.counts() as counts:
            result = batched(X, 3)
        check(result, stacked([deeper(x, 3) for x in X]), rtol=1e-4, atol=1e-4)
    assert counts.block_executions == 15


LAW = Law()


@pytest.mark.parametrize("executor", ["traced", "vmap"])
@pytest.mark.parametrize("f", [Tensor.max, torch.min, lambda x: x.reshape(3, 2).max() * x[0]])
def test_equal_elements_share_the_gradient_of_the_largest(f: Program, executor: str) -> None:
    """As in torch, whose rule for ``vmap`` picks one of them."""
    x = torch.tensor([[1.0, 2, 1, 2, 0, 2], [2, 0, 2, 0, 0, 0], [1, 1, 1, 1, 1, 1]])
    mine, wanted = x.clone().requires_grad_(), x.clone().requires_grad_()
    for _ in range(3):
        mine.grad = None
        autobatch.vmap(f, executor=executor, trace_after=0)(mine).sum().backward()
    torch.stack([f(row) for row in wanted]).sum().backward()
    torch.testing.assert_close(mine.grad, wanted.grad)


@pytest.mark.parametrize("executor", ["traced", "vmap"])
@pytest.mark.parametrize("f", [Tensor.median, torch.nanmedian, lambda x: 2 * x.median() * x[0]])
def test_equal_elements_share_the_gradient_of_the_median(f: Program, executor: str) -> None:
    nan, inf = torch.nan, torch.inf
    x = torch.tensor([[1.0, 2, 1, 1], [2, 0, 2, 2], [nan, 1, nan, 1], [inf, inf, 1, inf]])
    mine, wanted = x.clone().requires_grad_(), x.clone().requires_grad_()
    values = torch.stack([f(row) for row in wanted])
    values.sum().backward()
    for _ in range(3):
        mine.grad = None
        found = autobatch.vmap(f, executor=executor, trace_after=0)(mine)
        found.sum().backward()
        torch.testing.assert_close(found, values, equal_nan=True)
        torch.testing.assert_close(mine.grad, wanted.grad, equal_nan=True)
