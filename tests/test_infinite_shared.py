"""What all examples share may be infinite: rows that nobody needed have no gradients of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import autobatch
from tests.test_gradients_present import WAYS

XS = torch.tensor(
    [[-3.0, 1.0], [1.0, 1.0], [-1.0, 0.5], [-1.0, 3.0], [-2.0, 1.0], [-3.0, -1.0], [2.0, 2.0]]
)
torch.manual_seed(0)
MATRIX = torch.rand(2, 2)
MATRIX[0, 0] = math.inf
MATRIX.requires_grad_()
ROW = torch.tensor([math.inf, 1.0], requires_grad=True)
FIXED = MATRIX.detach().clone()
NUMBER = math.inf
MATRICES = [FIXED, torch.ones(2, 2)]


def infinite(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        next(module.parameters()).view(-1)[0] = math.inf
    return module


LINEAR, CELL, TABLE = nn.Linear(2, 2), nn.GRUCell(2, 2), nn.Embedding(3, 2)
CHAIN, KERNEL = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), nn.Conv1d(1, 1, 1)
FORM = nn.Bilinear(2, 2, 2)
for each in (LINEAR, CELL, TABLE, CHAIN, KERNEL, FORM):
    infinite(each)

BARE = nn.Linear(2, 2)
del BARE.weight
BARE.weight = FIXED

MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "Linear": lambda x: LINEAR(x).relu(),
    "Linear with a weight that is no parameter": lambda x: BARE(x).relu(),
    "GRUCell": lambda x: CELL(x, x),
    "Embedding": lambda x: TABLE(torch.tensor(0)) * x,
    "Sequential": lambda x: CHAIN(x),
    "Conv1d": lambda x: KERNEL(x[None]).relu(),
    "Bilinear": lambda x: FORM(x, x).relu(),
    "linear": lambda x: F.linear(x, MATRIX).relu(),
    "matrix": lambda x: (MATRIX @ x).relu(),
    "matrix without gradients": lambda x: (FIXED @ x).relu(),
    "matrix from the right": lambda x: (x @ MATRIX).relu(),
    "row": lambda x: (ROW * x).relu(),
    "a row of a matrix": lambda x: (MATRIX[0] * x).relu(),
    "what is made of it": lambda x: ((MATRIX * 2).tanh().log() @ x + MATRIX.log() @ x).relu(),
    "number": lambda x: (x * math.inf).relu(),
    "a number that is read": lambda x: (x * NUMBER).relu(),
    "in a sum": lambda x: (x + ROW) * x,
    "of one way": lambda x: chosen(x) * x,
    "an element of a list": lambda x: MATRICES[0 if x[0] < 0 else 1] @ x,
    "written to": lambda x: written(x) * x,
    "in a stack": lambda x: torch.stack([ROW, x]) @ x,
    "picked by a mask": lambda x: torch.where(x > 0, x, ROW) * x,
    "from the host": lambda x: from_the_host(x) * x,
}


def chosen(x: Tensor) -> Tensor:
    row = ROW
    if x[0] > 0:
        row = x * 2
    return row


def written(x: Tensor) -> Tensor:
    row = ROW.detach().clone()
    row[1] = x[0]
    return row


@autobatch.per_thread
def from_the_host(x: Tensor) -> Tensor:
    return ROW * 1


def program_of(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def program(x: Tensor) -> Tensor:
        y = function(x * 2)
        if x.sum() > 0:
            return y.sum()
        return (x * 3).sum()

    return program


def gradients(results: Callable[[Tensor], Tensor], held: list[Tensor]) -> tuple[Tensor, ...]:
    xs = XS.clone().requires_grad_()
    total = results(xs).sum()
    return torch.autograd.grad(total, (xs, *held), allow_unused=True, materialize_grads=True)


HELD: list[Tensor] = [MATRIX, ROW]
for each in (LINEAR, CELL, TABLE, CHAIN, KERNEL, FORM):
    HELD += each.parameters()


@pytest.mark.sampled(32)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MAPS)
def test_what_is_captured(name: str, way: str) -> None:
    program = program_of(MAPS[name])
    expected = gradients(lambda xs: torch.stack([program(x) for x in xs]), HELD)
    batched = autobatch.vmap(program, plain="never", **WAYS[way])
    for _ in range(3):
        found = gradients(batched, HELD)
        torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "function", [torch.mv, lambda w, x: x @ w, lambda w, x: w[0] * x, lambda w, x: F.linear(x, w)]
)
@pytest.mark.parametrize("w", [MATRIX, FIXED], ids=["differentiated", "fixed"])
def test_what_is_given(function: Callable[..., Tensor], w: Tensor, way: str) -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        y = function(w, x).relu()
        if x.sum() > 0:
            return y.sum()
        return (x * 3).sum()

    expected = gradients(lambda xs: torch.stack([program(x, w) for x in xs]), [MATRIX])
    batched = autobatch.vmap(program, in_dims=(0, None), plain="never", **WAYS[way])
    for _ in range(3):
        found = gradients(lambda xs: batched(xs, w), [MATRIX])
        torch.testing.assert_close(found, expected, equal_nan=True)


def test_narrow_weights_that_torch_cannot_add() -> None:
    narrow = torch.tensor([448.0, 1.0]).to(torch.float8_e4m3fn)
    program = program_of(lambda x: (narrow.to(torch.float32) * ROW * x).relu())
    batched = autobatch.vmap(program, plain="never", trace_after=0)
    expected = gradients(lambda xs: torch.stack([program(x) for x in xs]), [ROW])
    for _ in range(3):
        torch.testing.assert_close(gradients(batched, [ROW]), expected, equal_nan=True)


class Node:
    def __init__(self, value: Tensor) -> None:
        self.value = value


@pytest.mark.parametrize("way", WAYS)
def test_what_objects_hold(way: str) -> None:
    def program(x: Tensor, node: Node) -> Tensor:
        y = (node.value * x).relu()
        if x.sum() > 0:
            return y.sum()
        return (x * 3).sum()

    nodes = [Node(torch.tensor([math.inf if x.sum() < 0 else 1.0, 2.0])) for x in XS]
    expected = gradients(
        lambda xs: torch.stack([program(*row) for row in zip(xs, nodes, strict=True)]), []
    )
    batched = autobatch.vmap(program, plain="never", **WAYS[way])
    for _ in range(3):
        found = gradients(lambda xs: batched(xs, autobatch.objects(nodes)), [])
        torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("way", ["recorded", "vmap", "program counter"])
@pytest.mark.parametrize("width", [1, 3])
def test_streams(way: str, width: int) -> None:
    """Infinite arguments, objects and weights, a few examples at a time."""

    def program(x: Tensor, y: Tensor, node: Node) -> Tensor:
        product = (x * x * y * y).sum() + (node.value * x).relu().sum() + (MATRIX @ x).relu().sum()
        if x.sum() > 0:
            return product
        return (x * 3).sum()

    nodes = [Node(torch.tensor([math.inf if x.sum() < 0 else 1.0, 2.0])) for x in XS]
    ys = torch.where(XS.sum(1, keepdim=True) < 0, math.inf, XS)
    expected = gradients(
        lambda xs: torch.stack([program(*row) for row in zip(xs, ys, nodes, strict=True)]),
        [MATRIX],
    )

    def streamed(xs: Tensor) -> Tensor:
        rows = zip(xs, ys, nodes, strict=True)
        return torch.stack([out for _, out in autobatch.stream(program, rows, width, **WAYS[way])])

    for _ in range(2):
        found = gradients(streamed, [MATRIX])
        torch.testing.assert_close(found, expected, equal_nan=True)


def test_a_weight_that_has_become_infinite() -> None:
    """What was finite in one call may not be in the next."""
    linear = nn.Linear(2, 2)
    program = program_of(lambda x: linear(x).relu())
    batched = autobatch.vmap(program, plain="never", trace_after=0)

    def check() -> None:
        for _ in range(3):
            found: Any = gradients(batched, [linear.weight])
            loop = gradients(lambda xs: torch.stack([program(x) for x in xs]), [linear.weight])
            torch.testing.assert_close(found, loop, equal_nan=True)

    check()
    infinite(linear)
    check()
    linear.weight.data.fill_(0.5)
    check()
