"""Transforms of programs with any control flow, against ``torch.func`` on single examples.

Every transform alone, around ``autobatch.vmap``, within it, and inside a program; each program
branches, loops or calls itself on data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import autobatch
from tests.sweeps import case

torch_func: Any = torch.func
WAYS: dict[str, dict[str, Any]] = {
    "vmap": {"executor": "vmap"},
    "traced": {"trace_after": 0},
    "program_counter": {"engine": "program_counter", "trace_after": 0},
    "chunks": {"fork": "off", "chunk_size": 2},
}
engines = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def generated(*shape: int, seed: int = 0) -> Tensor:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=made, dtype=torch.float64)


W, X = generated(5, 3, seed=1), generated(5, 3, seed=2)


def branching(w: Tensor, x: Tensor) -> Tensor:
    """One way is a square root, which has no derivative where the other way goes."""
    y = w * x
    if y.sum() > 0:
        return y.sum().sqrt() * w
    return torch.sin(w * 2) * x


def looping(w: Tensor, x: Tensor) -> Tensor:
    """A loop of each example's own length."""
    total = x * w
    steps = 0
    while total.norm() < 4.0 and steps < 20:
        total = total + torch.tanh(w * total) + 0.1
        steps += 1
    return total * steps


def recursive(w: Tensor, x: Tensor) -> Tensor:
    """A call of itself on halves of its argument."""
    if x.norm() > 0.7:
        return recursive(w, x * 0.5) * w + recursive(w, x * 0.4)
    return (x * w).exp()


def unchanged(w: Tensor, x: Tensor) -> Tensor:
    """Some examples' results do not depend on the argument."""
    return w * 2 if x[0] > 0 else x


PROGRAMS = [branching, looping, recursive, unchanged]
programs = pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)


def scalar(program: Callable[..., Any]) -> Callable[..., Any]:
    def loss(w: Tensor, x: Tensor) -> Tensor:
        return (program(w, x) ** 2).sum()

    return loss


def with_aux(program: Callable[..., Any]) -> Callable[..., Any]:
    def pair(w: Tensor, x: Tensor) -> Any:
        out = program(w, x)
        return (out * x).sum(), {"twice": out * 2, "sum": [w.sum()]}

    return pair


def tree(program: Callable[..., Any]) -> Callable[..., Any]:
    def several(w: Tensor, x: Tensor) -> Any:
        out = program(w, x)
        return {"a": out.sum(), "b": (out * x, [out[:2]])}

    return several


def grad_of_grad(module: Any, f: Callable[..., Any]) -> Any:
    return module.grad(lambda w, x: (module.grad(f)(w, x) ** 2).sum())


def nested_orders(module: Any, f: Callable[..., Any]) -> Any:
    return module.jacfwd(module.jacfwd(f)), module.jacrev(module.jacfwd(f), argnums=1)


def value_first(module: Any, f: Callable[..., Any], **options: Any) -> Any:
    if module is autobatch:
        return autobatch.value_and_grad(f, **options)

    def swapped(*args: Any) -> Any:
        gradient, value = torch_func.grad_and_value(f, **options)(*args)
        return value, gradient

    return swapped


Make = Callable[[Any, Callable[..., Any]], Any]
TRANSFORMS: dict[str, Make] = {
    "grad": lambda m, f: m.grad(scalar(f)),
    "grad, both": lambda m, f: m.grad(scalar(f), argnums=(0, 1)),
    "grad, last": lambda m, f: m.grad(scalar(f), -1),
    "grad, aux": lambda m, f: m.grad(with_aux(f), has_aux=True),
    "value and grad": lambda m, f: value_first(m, scalar(f)),
    "value and grad, aux": lambda m, f: value_first(m, with_aux(f), argnums=1, has_aux=True),
    "jacrev": lambda m, f: m.jacrev(f),
    "jacrev, tree": lambda m, f: m.jacrev(tree(f), argnums=(1, 0), chunk_size=2),
    "jacrev, aux": lambda m, f: m.jacrev(with_aux(f), has_aux=True),
    "jacfwd": lambda m, f: m.jacfwd(f),
    "jacfwd, tree": lambda m, f: m.jacfwd(tree(f), argnums=(1, 0)),
    "jacfwd, aux": lambda m, f: m.jacfwd(with_aux(f), has_aux=True),
    "hessian": lambda m, f: m.hessian(scalar(f)),
    "hessian, both": lambda m, f: m.hessian(scalar(f), argnums=(0, 1)),
    "vjp": lambda m, f: lambda w, x: m.vjp(f, w, x)[1](x * 2),
    "vjp, tree": lambda m, f: lambda w, x: pulled_tree(m, f, w, x),
    "vjp, aux": lambda m, f: lambda w, x: pulled_aux(m, f, w, x),
    "jvp": lambda m, f: lambda w, x: m.jvp(f, (w, x), (x, w)),
    "jvp, aux": lambda m, f: lambda w, x: m.jvp(with_aux(f), (w, x), (x, w), has_aux=True),
    "grad of grad": lambda m, f: grad_of_grad(m, scalar(f)),
    "jacfwd of jacfwd": lambda m, f: nested_orders(m, f)[0],
    "jacrev of jacfwd": lambda m, f: nested_orders(m, f)[1],
    "jvp of grad": lambda m, f: lambda w, x: m.jvp(m.grad(scalar(f)), (w, x), (x, w)),
    "grad of jvp": lambda m, f: m.grad(
        lambda w, x: (m.jvp(lambda v: f(v, x), (w,), (x,))[1] ** 2).sum()
    ),
}
transforms = pytest.mark.parametrize("name", TRANSFORMS)


def pulled_tree(module: Any, f: Callable[..., Any], w: Tensor, x: Tensor) -> Any:
    out, pull = module.vjp(tree(f), w, x)
    if x.sum() > 0:
        return out, pull(out)
    return out, pull({"a": out["a"], "b": (w, [x[:2]])})


def pulled_aux(module: Any, f: Callable[..., Any], w: Tensor, x: Tensor) -> Any:
    out, pull, aux = module.vjp(lambda v: with_aux(f)(v, x), w, has_aux=True)
    return pull(out)[0], aux


def loop(f: Callable[..., Any], *columns: Tensor) -> Any:
    """``f`` on every example alone, results stacked."""
    rows = [f(*(column.clone() for column in row)) for row in zip(*columns, strict=True)]
    return pytree.tree_map(lambda *leaves: torch.stack(leaves), *rows)


def same(got: Any, expected: Any) -> None:
    assert pytree.tree_structure(got) == pytree.tree_structure(expected)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.sampled(4)
@transforms
@programs
def test_alone(name: str, program: Callable[..., Any]) -> None:
    make = TRANSFORMS[name]
    same(make(autobatch, program)(W[0], X[0]), make(torch_func, program)(W[0], X[0]))


def in_every_way() -> Iterator[Any]:
    """By default each transform of each program recorded; a third of the other ways' each."""
    for place, (way, options) in enumerate(WAYS.items()):
        for first, name in enumerate(TRANSFORMS):
            for second, program in enumerate(PROGRAMS):
                default = way == "traced" or (place + first + second) % 3 == 0
                title = f"{program.__name__}-{name}-{way}"
                yield case(name, program, options, name=title, default=default)


@pytest.mark.sampled(48)
@pytest.mark.parametrize(("name", "program", "way"), in_every_way())
def test_within_vmap(name: str, program: Callable[..., Any], way: dict[str, Any]) -> None:
    make = TRANSFORMS[name]
    expected = loop(make(torch_func, program), W, X)
    mapped = autobatch.vmap(make(autobatch, program), **way)
    for _ in range(2):
        with autobatch.counts() as counts:
            same(mapped(W, X), expected)
        assert counts.fallbacks == 0


@pytest.mark.sampled(48)
@pytest.mark.parametrize("module", [torch_func, autobatch], ids=["torch.func", "autobatch"])
@transforms
@programs
def test_inside_a_program(name: str, program: Callable[..., Any], module: Any) -> None:
    if module is torch_func and name.startswith("value"):
        pytest.skip("torch.func has no such function")
    make = TRANSFORMS[name]

    def outer(w: Tensor, x: Tensor) -> Any:
        if x[1] > 0:
            return make(module, program)(w * 0.5, x)
        return make(module, program)(x, w)

    expected = loop(outer, W, X)
    same(autobatch.vmap(outer, trace_after=0)(W, X), expected)


@pytest.mark.sampled(8)
@transforms
@programs
def test_around_vmap(name: str, program: Callable[..., Any]) -> None:
    """The transform of a batched call is that of the plain loop."""
    make = TRANSFORMS[name]

    def batched(w: Tensor, x: Tensor) -> Tensor:
        return autobatch.vmap(program, in_dims=(None, 0))(w, X * x).sum(0)  # type: ignore[no-any-return]

    def looped(w: Tensor, x: Tensor) -> Tensor:
        return torch.stack([program(w, row) for row in X * x]).sum(0)

    for module in (autobatch, torch_func):
        if module is torch_func and name.startswith("value"):
            continue
        same(make(module, batched)(W[0], X[0]), make(torch_func, looped)(W[0], X[0]))
