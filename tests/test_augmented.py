"""``x |= y`` and its kin: what they write, and what Python and torch say where they do not fit."""

from __future__ import annotations

import pytest
import torch

import autobatch
from tests.oracle import CONFIGURATIONS, assert_matches_loop
from tests.outside_world import program

SOME = CONFIGURATIONS[1:3]
ONES = {
    "number": (torch.tensor([1, 2]), "python"),
    "float": (torch.tensor([1.5, 2.0]), "python"),
    "tensor": (torch.tensor([1, 2]), "tensor"),
    "row": (torch.ones(2, 3, dtype=torch.int8), "tensor"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("operator", ["|=", "<<=", "^=", "@="])
@pytest.mark.parametrize("kind", ONES)
def test_operands_of_unlike_kinds(operator: str, kind: str) -> None:
    xs, scalars = ONES[kind]
    other = "x * 0.5" if kind == "row" else "x + 0.5"
    run = program(f"{kind} {operator}", [f"y = {other}", f"x {operator} y", "return x"], {})
    if operator == "@=" and kind == "row":
        run = program("rows @=", ["y = x", "x @= x", "return x, y"], {})
        xs = torch.ones(2, 3, 3, dtype=torch.int8)
    assert_matches_loop(run, [xs], scalars=scalars, configurations=SOME)


def test_a_refused_one_has_a_note() -> None:
    run = program("noted |=", ["y = x * 0.5", "x |= y", "return x"], {})
    with pytest.raises(RuntimeError, match="result type Float can't be cast") as raised:
        autobatch.vmap(run)(torch.ones(2, 3, dtype=torch.int8))
    assert "x |= y" in raised.value.__notes__[0] and "int8 [3]" in raised.value.__notes__[0]


def test_a_matrix_product_is_no_write() -> None:
    """Tensors have no ``__imatmul__``: ``x @= y`` gives the name another tensor."""
    run = program("@=", ["y = x", "x @= y", "for i in range(2):", "    x @= y", "return x, y"], {})
    assert_matches_loop(run, [torch.arange(8.0).reshape(2, 2, 2)])
