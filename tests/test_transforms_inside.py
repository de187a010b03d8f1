"""``torch.func`` inside a program: functions of each thread's own, with what they capture."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch

W = torch.tensor([[0.5, -1.0], [2.0, 0.25], [-0.75, 1.5]])
X = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 0.25]])
N = torch.tensor([1, 2, 3])
EXECUTORS: list[dict[str, Any]] = [{"executor": "vmap"}, {"executor": "traced", "trace_after": 0}]
ways = pytest.mark.parametrize("way", EXECUTORS, ids=["vmap", "traced"])
FACTOR = 2.0


def loss(w: Tensor, x: Tensor) -> Tensor:
    return (w * x).tanh().sum() * FACTOR


def residual(w: Tensor, x: Tensor) -> Tensor:
    return torch.exp(-w * x)


def of_a_global(w: Tensor, x: Tensor) -> Any:
    jacobians = torch.func.jacfwd(residual)(w, x), torch.func.jacrev(residual, argnums=1)(w, x)
    return *jacobians, torch.func.hessian(loss)(w, x), torch.func.vmap(residual)(w, x)


def of_a_lambda(w: Tensor, x: Tensor) -> Any:
    gradient, value = torch.func.grad_and_value(lambda v: loss(v, x))(w)
    both = torch.func.grad(lambda v, y: (v * y + x).pow(2).sum(), argnums=(0, 1))(w, x)
    return gradient, value, both, torch.func.jacrev(lambda v: residual(v, x))(w)


def directly(w: Tensor, x: Tensor) -> Any:
    return torch.func.jvp(lambda v: residual(v, x), (w,), (x,))


def with_defaults(w: Tensor, x: Tensor) -> Tensor:
    gradient: Tensor = torch.func.grad(lambda v, y=x, *, z=x + 1: (v * y * z).prod())(w)
    return gradient


def of_a_nested_function(w: Tensor, x: Tensor) -> Tensor:
    parts = [x, x * 2]

    def total(v: Tensor) -> Tensor:
        out = v.sum()
        for part in parts:
            out = out + loss(v, part)
        return out

    for _ in range(2):
        w = w - 0.1 * torch.func.grad(total)(w)
    return w


def of_functions_of_each_other(w: Tensor, x: Tensor) -> Tensor:
    def inner(v: Tensor) -> Tensor:
        return residual(v, x) - x

    def cost(v: Tensor, call: Callable[[Tensor], Tensor] = inner) -> Tensor:
        return (inner(v) * call(v)).sum()

    gradient: Tensor = torch.func.grad(cost)(w)
    return gradient


def later(w: Tensor, x: Tensor) -> Tensor:
    scale = x
    gradient = torch.func.grad(lambda v: (v * scale).sum())
    scale = x * 3
    return gradient(w) + 1


BATCHED = [of_a_global, of_a_lambda, directly, with_defaults, of_a_nested_function, later]
BATCHED += [of_functions_of_each_other]


def same(got: Any, rows: list[Any]) -> None:
    if isinstance(got, tuple):
        for place, part in enumerate(got):
            same(part, [row[place] for row in rows])
    else:
        torch.testing.assert_close(got, torch.stack([torch.as_tensor(row) for row in rows]))


@pytest.mark.sampled(3)
@ways
@pytest.mark.parametrize("func", BATCHED, ids=lambda func: func.__name__)
def test_one_batched_call(func: Callable[..., Any], way: dict[str, Any]) -> None:
    with autobatch.counts() as counts:
        got = autobatch.vmap(func, **way)(W, X)
    same(got, [func(w, x) for w, x in zip(W, X, strict=True)])
    assert counts.fallbacks == 0


def of_a_branch(w: Tensor, x: Tensor) -> Tensor:
    gradient: Tensor = torch.func.grad(lambda v: (v * x).sum() if x.sum() > 1 else v.prod())(w)
    return gradient


def of_a_number(w: Tensor, n: int) -> Tensor:
    gradient: Tensor = torch.func.grad(lambda v: (v**n).sum())(w)
    return gradient


def of_dicts(w: Tensor, x: Tensor) -> Tensor:
    mapped = torch.func.vmap(lambda d: d["w"] * x.sum(), in_dims=({"w": 0},))
    product: Tensor = mapped({"w": w})
    return product


def with_an_effect(w: Tensor, x: Tensor) -> Any:
    seen: list[Tensor] = []

    def total(v: Tensor) -> Tensor:
        seen.append(x * 2)
        return (v * x).sum()

    return torch.func.grad(total)(w), len(seen), seen[0]


def with_an_effect_of_a_helper(w: Tensor, x: Tensor) -> Any:
    seen = []

    def note(v: Tensor) -> None:
        seen.append(x * 2)

    def total(v: Tensor) -> Tensor:
        note(v)
        return (v * x).sum()

    return torch.func.grad(total)(w), len(seen), seen[0]


@ways
def test_branches_effects_and_numbers(way: dict[str, Any]) -> None:
    for func in (of_a_branch, of_dicts, with_an_effect, with_an_effect_of_a_helper):
        with autobatch.counts() as counts:
            got = autobatch.vmap(func, **way)(W, X)  # type: ignore[operator]
        same(got, [func(w, x) for w, x in zip(W, X, strict=True)])  # type: ignore[operator]
        assert counts.fallbacks == 0
    got = autobatch.vmap(of_a_number, scalars="python", **way)(W, N)
    same(got, [of_a_number(w, n) for w, n in zip(W, N.tolist(), strict=True)])


@ways
def test_globals_are_read_at_each_call(way: dict[str, Any], monkeypatch: Any) -> None:
    mapped = autobatch.vmap(of_a_lambda, **way)
    for factor in (2.0, 5.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        for _ in range(2):
            same(mapped(W, X), [of_a_lambda(w, x) for w, x in zip(W, X, strict=True)])


@ways
def test_the_error_is_the_examples(way: dict[str, Any]) -> None:
    def wrong(w: Tensor, x: Tensor) -> Any:
        return torch.func.grad(lambda v: v @ x[:1])(w)

    with pytest.raises(RuntimeError) as alone:
        wrong(W[0], X[0])
    with pytest.raises(RuntimeError) as together:
        autobatch.vmap(wrong, **way)(W, X)
    assert str(together.value).splitlines()[0] == str(alone.value).splitlines()[0]


def slope(x: Tensor, module: Any) -> Tensor:
    found: Tensor = module.grad(lambda v: (v * v).sum() if v.sum() > 0 else v.sum())(x)
    return found


def forked(x: Tensor, n: Tensor) -> Tensor:
    """Derivatives within calls that run as one."""
    if n <= 0:
        return x
    return forked(x * 0.5, n - 1) + forked(slope(x, autobatch), n - 1)


@ways
def test_derivatives_within_forked_calls(way: dict[str, Any]) -> None:
    expected = torch.stack([forked(x, n) for x, n in zip(X, N, strict=True)])
    for fork in ("auto", "off"):
        with autobatch.counts() as counts:
            got = autobatch.vmap(forked, fork=fork, **way)(X, N)
        torch.testing.assert_close(got, expected)
        assert counts.fallbacks == 0


def test_effects_of_a_transforms_function_come_in_order(capsys: Any) -> None:
    def noisy(x: Tensor, n: Tensor) -> Tensor:
        def told(v: Tensor) -> Tensor:
            print(f"at {float(n):.0f} of {float(x.detach()[0]):.3f}")
            return (v * v).sum() if v[0] > 0 else v.sum()

        if n <= 0:
            return x
        first = noisy(x * 0.5, n - 1)
        second = noisy(autobatch.grad(told)(x), n - 1)
        return first + second

    expected = [noisy(x, n) for x, n in zip(X[:1], N[2:], strict=True)]
    lines = capsys.readouterr().out
    got = autobatch.vmap(noisy)(X[:1], N[2:])
    torch.testing.assert_close(got, torch.stack(expected))
    assert capsys.readouterr().out == lines and lines


def test_streams_and_explanations(capsys: Any) -> None:
    gradient = autobatch.grad(lambda w, x: loss(w, x) if w.sum() > 0 else (w * x).sum())
    expected = [gradient(w, x) for w, x in zip(W, X, strict=True)]
    results = dict(autobatch.stream(gradient, zip(W, X, strict=True), 2))
    for index, row in enumerate(expected):
        torch.testing.assert_close(results[index], row)
    autobatch.explain(autobatch.vmap(gradient), W, X)
    head = " ".join(capsys.readouterr().out.split("\n\n")[0].split())
    assert " 0 operations thread by thread" in head


def test_the_sequential_engine_is_the_same() -> None:
    for func in (of_a_branch, of_a_lambda, with_an_effect, directly):
        got = autobatch.vmap(func, engine="sequential")(W, X)  # type: ignore[operator]
        same(got, [func(w, x) for w, x in zip(W, X, strict=True)])  # type: ignore[operator]


def test_torchs_transforms_made_outside() -> None:
    """They bear the attributes of the functions that they are of; wrappers of the user's do too."""

    ws, xs = W.double(), X.double()  # of 0-d float32 tensors torch.func.jacfwd gives float64

    def branching(w: Tensor, x: Tensor) -> Tensor:
        return loss(w, x) if w.sum() > 0 else (w * x).prod()

    made = [torch.func.grad(branching), torch.func.jacrev(branching, argnums=(1, 0))]
    made += [torch.func.jacfwd(branching), torch.func.hessian(branching, argnums=1)]
    made += [torch.func.grad_and_value(branching)]
    made += [
        torch.func.jacrev(autobatch.grad(branching)),
        autobatch.jacfwd(torch.func.grad(branching)),
    ]
    for function in made:
        with autobatch.counts() as counts:
            got = autobatch.vmap(function)(ws, xs)
        same(got, [function(w, x) for w, x in zip(ws, xs, strict=True)])
        assert counts.fallbacks == 0
    inner = torch.func.vmap(branching, in_dims=(0, None))
    expected = torch.stack([torch.stack([branching(w, x) for w in ws]) for x in xs])
    torch.testing.assert_close(autobatch.vmap(inner, in_dims=(None, 0))(ws, xs), expected)

    @functools.wraps(made[0])
    def doubled(w: Tensor, x: Tensor) -> Tensor:
        return made[0](w, x) * 2

    for function in (doubled, functools.wraps(autobatch.grad(branching))(lambda w, x: w * x)):
        got = autobatch.vmap(function)(ws, xs)
        same(got, [function(w, x) for w, x in zip(ws, xs, strict=True)])


def with_argument(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin().sum(), x


def of_tree(tree: dict[str, Tensor]) -> tuple[Tensor, Any]:
    return (tree["a"] * tree["b"]).sum(), [tree["b"]]


def changes_aux(x: Tensor) -> Any:
    aux = autobatch.grad(with_argument, has_aux=True)(x)[1]
    if x.sum() > 1:
        aux += 1
    return x, torch.tensor(aux is x)


def changes_argument(x: Tensor) -> Any:
    _, aux = torch.func.vjp(with_argument, x, has_aux=True)[1:]
    x += 1
    return aux, x


def changes_tree(x: Tensor) -> Any:
    tree = {"a": x, "b": x[:1]}
    aux = autobatch.value_and_grad(of_tree, has_aux=True)(tree)[0][1]
    aux[0] += 5
    return x, tree["b"]


def changes_value(x: Tensor) -> Any:
    z = x.sum()
    value, _ = autobatch.value_and_grad(lambda z: z)(z)
    value += 1
    return z, value


@ways
@pytest.mark.parametrize("func", [changes_aux, changes_argument, changes_tree, changes_value])
def test_an_argument_that_a_transform_gives_back_is_the_argument(
    func: Callable[..., Any], way: dict[str, Any]
) -> None:
    xs = torch.arange(6.0).reshape(3, 2)
    expected = map(torch.stack, zip(*(func(x.clone()) for x in xs), strict=True))
    for got, wanted in zip(autobatch.vmap(func, **way)(xs), expected, strict=True):
        torch.testing.assert_close(got, wanted)
