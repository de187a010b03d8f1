"""torch's functions of Python numbers: what they take they get, what they refuse they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import default_collate

from tests.oracle import assert_matches_loop
from tests.outside_world import program

XS = torch.tensor([1.5, -2.0, 0.0])
EXPRESSIONS = (
    "torch.sin(x)", "torch.stack([x, x])", "torch.where(x > 2, x, 0.0)", "torch.maximum(x, x)",
    "torch.relu(x)", "torch.nn.functional.relu(x)", "torch.clamp(x, 0, 1)", "torch.pow(2.0, x)",
    "torch.sum(x)", "torch.softmax(x, 0)", "torch.isfinite(x)", "torch.allclose(x, x)",
    "torch.ones_like(x)", "torch.maximum(torch.ones(2), x)", "torch.stack([torch.ones(()), x])",
    "torch.ones(2).maximum(x)", "torch.cat((torch.ones(1), x))",
    "torch.add(x, 1)", "torch.add(x, x)", "torch.mul(x, torch.ones(2))", "torch.ones(2) * x",
    "torch.full((2,), x)", "torch.tensor(x)", "torch.as_tensor(x)", "torch.tensor([x, 1])",
    "torch.pow(torch.ones(2), x)", "torch.lerp(torch.zeros(2), torch.ones(2), x)",
    "torch.linspace(0, x, 3)", "torch.where(torch.tensor(True), x, 0.0)", "torch.is_tensor(x)",
    "torch.typename(x)", "torch.result_type(x, x)", "torch.asarray(x)", "torch.norm(x)",
    "torch.is_nonzero(x)", "torch.max(torch.ones(2), x)", "torch.max(torch.ones(2), int(x))",
    "torch.ones(3, 2).min(abs(int(x)) % 2).values.sum()", "torch.scalar_tensor(int(x))",
    "torch.as_tensor(x, x)", "torch.nn.ReLU()(x)", "torch.nn.Identity()(x)", "RELU(x)",
    "torch.nn.MSELoss()(torch.ones(()), x)", "F.mse_loss(torch.ones(2), x)", "F.sigmoid(x)",
    "F.l1_loss(x, torch.ones(2))", "F.softmax(x, 0)", "F.softsign(x)", "F.hardswish(x)",
    "F.huber_loss(x, x)", "F.tanhshrink(x)", "torch.nn.Linear(1, 1)(x)", "torch.Tensor.norm(x)",
    "F.margin_ranking_loss(x, x, x)", "torch.Tensor.dim_order(x)", "torch.Tensor.new(x)",
    "torch.clamp(torch.ones(2), x, 3.0)", "torch.ones(2).add(1, alpha=x)", "torch.ones(3).sub_(x)",
    "tree_leaves((torch.ones(2), {'n': x}))", "collate([{'n': x}, {'n': 2 * x}])",
    "[type(leaf).__name__ for leaf in tree_leaves((torch.ones(()), x))]",
)  # fmt: skip


GIVEN = {
    "torch": torch,
    "F": torch.nn.functional,
    "RELU": torch.nn.ReLU(),
    "tree_leaves": tree_leaves,
    "collate": default_collate,
}


def made(expression: str, before: str) -> Callable[..., Any]:
    return program(f"{before}{expression}", [before, f"return {expression}"], GIVEN)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_numbers_that_enter(expression: str) -> None:
    drawn = {"randomness": "different"}  # a Linear's weights are
    assert_matches_loop(made(expression, "pass"), [XS], scalars="python", **drawn)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_numbers_that_are_made(expression: str) -> None:
    assert_matches_loop(made(expression, "x = x.item()"), [XS], randomness="different")
