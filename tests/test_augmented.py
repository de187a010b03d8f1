"""``x |= y`` and its kin: what they write, and what Python and torch say where they do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
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


class Added:
    """Gives text where it stands on the right of a tensor, which then is none of its business."""

    def __init__(self, v: float) -> None:
        self.v = v

    def __radd__(self, other: Any) -> str:
        return f"{float(other.sum()) + self.v}"


OBJECTS: dict[str, list[Any]] = {
    "ints": [0, 1, 2],
    "floats": [0.5, 1.0, 2.0],
    "bools": [True, False, True],
    "numbers": [1, 2.5, True],
    "numpy's": [np.float64(1), np.float64(2), np.float64(0.5)],
    "arrays": [np.ones(4), np.zeros(4), np.arange(4.0)],
    "tensors": [torch.ones(4), torch.ones(1), torch.tensor(2)],
    "both": [1, torch.ones(4), 2.5],
    "others": [Added(1), 2, Added(3)],
    "texts": ["a", "b", "c"],
    "none": [1, None, 2],
}
OPERATORS = ("+=", "-=", "*=", "/=", "//=", "%=", "**=")
PLACES = (
    ["t = torch.arange(4.0) + 1", "u, v = t, t[1:]", "t {} x"],
    ["u = v = torch.ones(2, 4)", "t = u[1]", "t {} x"],
    ["u = v = torch.ones(2, 4)", "u[0] {} x", "t = u"],
    ["u = v = torch.ones(4)", "d = {{'u': u}}", "d['u'] {} x", "t = d['u']"],
    ["t = u = v = torch.ones(4)", "for i in range(2):", "    t {} x"],
)
TEXT = "return str((u.tolist(), v.tolist(), t.tolist() if isinstance(t, torch.Tensor) else t))"


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")
@pytest.mark.sampled(20)
@pytest.mark.parametrize("way", [{"plain": "never"}, *SOME], ids=str)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("kind", OBJECTS)
def test_objects_beside_a_tensor(kind: str, operator: str, way: dict[str, Any]) -> None:
    """A write where it is one for an example, whatever stands on the right: other names see it."""
    for place, lines in enumerate(PLACES):
        own = [line.format(operator) for line in lines]
        run = program(f"{kind} {operator} {place}", [*own, TEXT], {"torch": torch})
        configuration = {**way, "plain": "never"}
        for _ in range(2):
            assert_matches_loop(
                run, [autobatch.objects(OBJECTS[kind])], configurations=(configuration,)
            )
