"""Gradients of rows that a thread computes and does not use are absent, as in the loop."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import autobatch

WAYS: dict[str, dict[str, Any]] = {
    "recorded": {"trace_after": 0},
    "not yet recorded": {},
    "vmap": {"executor": "vmap"},
    "program counter": {"engine": "program_counter", "trace_after": 0},
    "program counter, vmap": {"engine": "program_counter", "executor": "vmap"},
    "recompute": {"save": "recompute", "trace_after": 0},
    "offload": {"save": "offload", "trace_after": 0},
    "no forks": {"fork": "off", "trace_after": 0},
}


def dropped_at_return(x: Tensor, w: Tensor) -> Tensor:
    y = x.sqrt()
    if x > 0:
        return y * w
    return x * w


def used_later(x: Tensor, w: Tensor) -> Tensor:
    """Both ways keep ``y``; what comes after drops it."""
    y = torch.log(x)
    z = x * w
    if x > 2:
        z = z + 1
    elif x > 1:
        z = z * 3
    if x > 0:
        z = z + y
    return z


def in_a_loop(x: Tensor, w: Tensor) -> Tensor:
    total = x * 0
    n = 0
    while n < 3:
        n += 1
        y = 1 / (x - n)
        if x > n:
            total = total + y * w
        elif x < n:
            total = total - y
    return total


def truly_zero(x: Tensor, w: Tensor) -> Tensor:
    """The cotangent arrives, and is zero: nan, as in the loop."""
    y = x.sqrt()
    if x > 0:
        return y * w
    return y * 0 + w


def shared_divisor(x: Tensor, w: Tensor) -> Tensor:
    y = w / x
    if x > 0:
        return y
    return w * 2


def infinite_factor(x: Tensor, w: Tensor) -> Tensor:
    """``y`` has no gradient of its own, and ``w`` one that is infinite."""
    with torch.no_grad():
        y = torch.log(x)
    z = y * w
    if x > 0:
        return z
    return x * w


def factor_of_another_block(x: Tensor, w: Tensor) -> Tensor:
    y = x.detach().log()
    if x > 1:
        x = x + 1
    z = y * w
    if x > 0:
        return z * x
    return x * w


def partly(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Only the first result is used outside: ``y`` goes into the second for some threads."""
    y = x.sqrt()
    if x > 0:
        return y * w, x * 2
    return x * w, y * w


def helper(x: Tensor, depth: int) -> Tensor:
    y = x.pow(0.5)
    if depth == 0:
        return x * 2
    below = helper(x - 1, depth - 1)
    if x > 3:
        return y + below
    return below


def recursion(x: Tensor, w: Tensor) -> Tensor:
    return helper(x + 1, 3) * w


def forked(x: Tensor, depth: Tensor) -> Tensor:
    y = torch.rsqrt(x)
    if depth < 1:
        return x + 1
    both = forked(x * 0.5, depth - 1) + forked(x * 2, depth - 2)
    return both * y if x > 0 else both


def fork_join(x: Tensor, w: Tensor) -> Tensor:
    return forked(x, x.detach().abs() + 1) * w


def picked(x: Tensor, w: Tensor) -> Tensor:
    parts = [x * 1.0, x.sqrt(), x.log() * w]
    where = 0
    if x > 0:
        where = 2 if x > 2 else 1
    return parts[where] * w


def by_objects(x: Tensor, w: Tensor) -> Tensor:
    """Some of it runs thread by thread."""
    y = {"root": x.sqrt()}
    for _ in range(int(x)):
        y["root"] = y["root"] + w
    if x > 0:
        return y["root"]
    return x * w


def kept_in_a_list(x: Tensor, w: Tensor) -> Tensor:
    rows = [x.sqrt()]
    while len(rows) < 3:
        rows.append(1 / rows[-1])
    if x > 0:
        return torch.stack(rows).sum() * w
    return x * w


def vector(x: Tensor, w: Tensor) -> Tensor:
    direction = torch.stack([x, x * w])
    unit = direction / direction.norm()
    if x > 0:
        return unit.sum()
    return direction.sum()


def in_place(x: Tensor, w: Tensor) -> Tensor:
    y = x * 1
    y.sqrt_()
    if x > 0:
        return y * w
    return x * w


def inner_rows(x: Tensor, w: Tensor) -> Tensor:
    y = torch.vmap(lambda part: part.sqrt())(torch.stack([x, x * w, x + 1]))
    if x > 0:
        return y.sum()
    return x * w


def rounds(x: Tensor, w: Tensor) -> Tensor:
    def each(part: Tensor) -> Tensor:
        y = 1 / part
        return y * w if part > 0 else part * 3

    return autobatch.map_fn(each, torch.stack([x, x - 1, x + 1])).sum()


def masked_after_all(x: Tensor, w: Tensor) -> Tensor:
    """``where`` needs both: nan, as in the loop."""
    y = torch.where(x > 0, x.sqrt(), x * w)
    if x > 1:
        y = y + 1
    return y


PROGRAMS: list[Callable[..., Any]] = [
    dropped_at_return, used_later, in_a_loop, truly_zero, shared_divisor, infinite_factor,
    factor_of_another_block, partly, recursion, fork_join, picked, by_objects, kept_in_a_list,
    vector, in_place, inner_rows, rounds, masked_after_all,
]  # fmt: skip
XS = (0.0, 4.0, 1.0, 0.0, 2.5, 3.0, 0.0)


def first(result: Any) -> Tensor:
    found: Tensor = result[0] if isinstance(result, tuple) else result
    return found


def by_loop(program: Callable[..., Any], xs: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    xs, w = xs.clone().requires_grad_(), w.clone().requires_grad_()
    total = torch.stack([first(program(x, w)) for x in xs]).sum()
    return torch.autograd.grad(total, (xs, w), materialize_grads=True)


@pytest.mark.sampled(48)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_backward_is_the_loops(program: Callable[..., Any], way: str) -> None:
    w = torch.tensor(1.5)
    for size in (1, 2, 7):
        xs = torch.tensor(XS[:size])
        expected = by_loop(program, xs, w)
        batched = autobatch.vmap(program, in_dims=(0, None), **WAYS[way])
        for _ in range(3):
            given, shared = xs.clone().requires_grad_(), w.clone().requires_grad_()
            first(batched(given, shared)).sum().backward()
            found = [torch.zeros_like(t) if t.grad is None else t.grad for t in (given, shared)]
            torch.testing.assert_close(found, list(expected), equal_nan=True)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("way", ["recorded", "vmap", "program counter"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_gradients_of_examples_are_the_loops(program: Callable[..., Any], way: str) -> None:
    w, xs = torch.tensor(1.5), torch.tensor(XS)

    def value(x: Tensor, w: Tensor) -> Tensor:
        return first(program(x, w))

    rows = [by_loop(program, x[None], w) for x in xs]
    expected = torch.cat([row[0] for row in rows]), torch.stack([row[1] for row in rows])
    slopes = autobatch.vmap(autobatch.grad(value, (0, 1)), in_dims=(0, None), **WAYS[way])
    for _ in range(3):
        torch.testing.assert_close(slopes(xs, w), expected, equal_nan=True)


def test_the_loop_has_a_nan_where_a_zero_arrives() -> None:
    """The programs that are to show it do."""
    for program in (truly_zero, masked_after_all):
        slope, _ = by_loop(program, torch.tensor(XS), torch.tensor(1.5))
        assert slope.isnan().tolist() == [x == 0 for x in XS]


def test_chunks_and_two_batches_in_a_row() -> None:
    def again(x: Tensor, w: Tensor) -> Tensor:
        return dropped_at_return(x, w)

    w, xs = torch.tensor(1.5), torch.tensor(XS)
    xs.requires_grad_()
    way: dict[str, Any] = {"in_dims": (0, None), "trace_after": 0, "chunk_size": 3}
    middle = autobatch.vmap(dropped_at_return, **way)(xs, w)
    autobatch.vmap(again, **way)(middle, w).sum().backward()
    expected = torch.tensor(XS, requires_grad=True)
    torch.stack([again(dropped_at_return(x, w), w) for x in expected]).sum().backward()
    torch.testing.assert_close(xs.grad, expected.grad)


def test_a_graph_that_is_kept_gives_the_same_twice() -> None:
    xs, w = torch.tensor(XS, requires_grad=True), torch.tensor(1.5)
    out = autobatch.vmap(dropped_at_return, in_dims=(0, None), trace_after=0)(xs, w)
    once = torch.autograd.grad(out.sum(), xs, retain_graph=True)
    twice = torch.autograd.grad(out.sum(), xs)
    assert once[0].isfinite().all() and torch.equal(once[0], twice[0])
    assert math.isclose(float(once[0][0]), 1.5)


def mapped_rows(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.linear(x, w, w[0])


def contracted(x: Tensor, w: Tensor) -> Tensor:
    return torch.einsum("ij,jk->ik", x, w)


def normed(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, (2,), w[0], w[1])


def normed_in_groups(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.group_norm(x.T[None], 2, w[0], w[1])


def bilinear(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.bilinear(x, x, w[None])


def convolved(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.conv2d(x[None], torch.stack([w, w * 2])[:, None])


def given_parameters(module: nn.Module, inputs: int = 1) -> Callable[[Tensor, Tensor], Tensor]:
    """A module whose matrices are repetitions of ``w``, and whose vectors are of its first row."""
    sizes = {name: each.shape for name, each in module.named_parameters()}
    module = module.double()

    def call(x: Tensor, w: Tensor) -> Tensor:
        given = {
            name: w.repeat(size[0] // 2, size[1] // 2)
            if len(size) > 1
            else w[0].repeat(size[0] // 2)
            for name, size in sizes.items()
        }
        out = functional_call(module, given, (x,) * inputs)
        return torch.cat([part.flatten() for part in out]) if isinstance(out, tuple) else out

    return call


def hooked() -> nn.Module:
    linear = nn.Linear(2, 2)
    linear.register_forward_hook(lambda module, args, out: out * 2)
    return linear


ALL = ("recorded", "vmap")
OF_MODULES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[str, ...]]] = {
    "Linear": (given_parameters(nn.Linear(2, 2)), ALL),
    "Sequential": (given_parameters(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))), ALL),
    "a hook": (given_parameters(hooked()), ALL),
    "GRUCell": (given_parameters(nn.GRUCell(2, 2)), ALL),
    "LSTMCell": (given_parameters(nn.LSTMCell(2, 2)), ALL),
    "RNNCell": (given_parameters(nn.RNNCell(2, 2, nonlinearity="relu")), ALL),
    "attention": (given_parameters(nn.MultiheadAttention(2, 1), 3), ALL),
    "encoder": (
        given_parameters(nn.TransformerEncoderLayer(2, 1, 4, 0.0, batch_first=True)),
        ("recorded", "vmap", "program counter"),
    ),
}
OF_MATRICES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[str, ...]]] = {
    "linear": (mapped_rows, ("recorded", "vmap", "program counter")),
    "matmul": (torch.matmul, ("recorded", "vmap", "program counter")),
    "from the left": (lambda x, w: w @ x[:2], ("recorded", "vmap")),
    "addmm": (lambda x, w: torch.addmm(w[0], x, w), ("recorded", "vmap")),
    "einsum": (contracted, ("recorded", "vmap")),
    "layer_norm": (normed, ALL),
    "group_norm": (normed_in_groups, ALL),
    "bilinear": (bilinear, ALL),
    "conv2d": (convolved, ALL),
    "prelu": (lambda x, w: torch.nn.functional.prelu(x, w[0]), ALL),
    "times a row": (lambda x, w: x * w[0], ALL),
    "times a number": (lambda x, w: w[0, 0] * x, ALL),
    "plus a row": (lambda x, w: x + w[0], ALL),
    "addcmul": (lambda x, w: torch.addcmul(x, x, w[0]), ALL),
    "by example": (autobatch.per_thread(lambda x, w: x @ w), ALL),
    **OF_MODULES,
}
"""Of a matrix of each example and one that all share; in which ways nobody's rows are left out."""
BY_EXAMPLE = {"a hook", "by example"}
"""What runs example by example."""


def of_some(function: Callable[[Tensor, Tensor], Tensor]) -> tuple[Any, ...]:
    """A program, what it is for one example, and what to call them with."""
    torch.manual_seed(0)
    xs = torch.rand(5, 3, 2, dtype=torch.float64) + 0.5
    xs[1, 2, 0] = xs[3, 0, 1] = 0.0

    def program(x: Tensor, w: Tensor) -> Tensor:
        y = function(x.log(), w).sin().sum()
        if x.min() > 0:
            return y
        return w.sum() * x.sum()

    def lazily(x: Tensor, w: Tensor) -> Tensor:
        return program(x, w) if x.min() > 0 else w.sum() * x.sum()

    return program, lazily, xs, torch.rand(2, 2, dtype=torch.float64, requires_grad=True)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", OF_MATRICES)
def test_products_of_matrices_of_which_some_are_not_needed(name: str) -> None:
    function, ways = OF_MATRICES[name]
    program, lazily, xs, w = of_some(function)
    (expected,) = torch.autograd.grad(torch.stack([lazily(x, w) for x in xs]).sum(), w)
    for way in ways:
        batched = autobatch.vmap(program, in_dims=(0, None), **WAYS[way])
        for _ in range(3):
            with autobatch.counts() as counts:
                (found,) = torch.autograd.grad(batched(xs, w).sum(), w)
            torch.testing.assert_close(found, expected)
            assert bool(counts.fallbacks + counts.meant) is (name in BY_EXAMPLE)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", OF_MATRICES)
def test_gradients_of_each_example_of_which_some_are_not_needed(name: str) -> None:
    function, ways = OF_MATRICES[name]
    program, lazily, xs, w = of_some(function)
    expected = torch.stack([torch.autograd.grad(lazily(x, w), w)[0] for x in xs])
    for way in ways:
        slopes = autobatch.vmap(autobatch.grad(program, 1), in_dims=(0, None), **WAYS[way])
        for _ in range(2):
            with autobatch.counts() as counts:
                torch.testing.assert_close(slopes(xs, w.detach()), expected)
            assert bool(counts.fallbacks + counts.meant) is (name in BY_EXAMPLE)


@pytest.mark.parametrize("way", ["recorded", "vmap"])
@pytest.mark.parametrize("module", [hooked(), nn.LSTMCell(2, 2), nn.Linear(2, 2)])
def test_parameters_of_a_module_with_hooks(module: nn.Module, way: str) -> None:
    module = copy.deepcopy(module).double()
    module.register_forward_pre_hook(lambda module, args: tuple(arg * 2 for arg in args))
    parameters = list(module.parameters())

    def function(x: Tensor, w: Tensor) -> Tensor:
        out = module(x @ w)
        return torch.cat(out) if isinstance(out, tuple) else out

    program, lazily, xs, w = of_some(function)
    wanted = [w, *parameters]
    expected = torch.autograd.grad(torch.stack([lazily(x, w) for x in xs]).sum(), wanted)
    batched = autobatch.vmap(program, in_dims=(0, None), **WAYS[way])
    for _ in range(3):
        found = torch.autograd.grad(batched(xs, w).sum(), wanted)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("way", ["recorded", "vmap"])
def test_parameters_of_a_chain_whose_forward_is_called(way: str) -> None:
    chain = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    program, lazily, xs, w = of_some(lambda x, w: chain.forward(x @ w))
    wanted = [w, *chain.parameters()]
    expected = torch.autograd.grad(torch.stack([lazily(x, w) for x in xs]).sum(), wanted)
    batched = autobatch.vmap(program, in_dims=(0, None), **WAYS[way])
    for _ in range(3):
        found = torch.autograd.grad(batched(xs, w).sum(), wanted)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("way", ["recorded", "vmap"])
def test_results_that_are_made_of_one_another(way: str) -> None:
    """The hidden state of a cell is made of its other one."""
    torch.manual_seed(0)
    cell = nn.LSTMCell(2, 2).double()
    parameters = list(cell.parameters())
    xs = torch.rand(4, 2, dtype=torch.float64)
    xs[1, 0] = 0.0

    def program(x: Tensor) -> Tensor:
        hidden, kept = cell(x.log())
        return hidden.sum() - kept.sin().sum() if x.min() > 0 else x.sum()

    def lazily(x: Tensor) -> Tensor:
        return program(x) if x.min() > 0 else x.sum()

    expected = torch.autograd.grad(torch.stack([lazily(x) for x in xs]).sum(), parameters)
    batched = autobatch.vmap(program, **WAYS[way])
    for _ in range(2):
        found = torch.autograd.grad(batched(xs).sum(), parameters)
        torch.testing.assert_close(found, expected)
