"""Small programs with traps, held to the loop: batches, engines, executors, kinds of scalars."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest
import torch

from tests.oracle import CONFIGURATIONS, assert_matches_loop
from tests.sweeps import case
from tests.traps import memory, objects, overlaps, python, rings, values

XS = torch.tensor([1.5, -2.0, 0.0, 3.0, 0.25, 2.0, -1.0])
NS = torch.tensor([3, 0, 1, 2, 5, 1, 4])
PROGRAMS = [
    found
    for module in (values, objects, memory, rings, overlaps, python)
    for name, found in vars(module).items()
    if isinstance(found, FunctionType) and name[1:].isdigit()
]
OF_IDENTITY = {objects.m01}
"""They ask whether two floats are one object, which README's limits leave out."""
BY_DEFAULT = 4
"""Of so many programs one is among the default run, with scalars of either kind by turns."""


@pytest.mark.sampled(48)
@pytest.mark.parametrize(
    ("program", "scalars"),
    [
        case(
            *(program, scalars),
            name=f"{scalars}-{program.__name__}",
            default=place % (2 * BY_DEFAULT) == turn * BY_DEFAULT,
        )
        for place, program in enumerate(PROGRAMS)
        for turn, scalars in enumerate(("tensor", "python"))
        if scalars == "tensor" or program not in OF_IDENTITY
    ],
)
def test_trap(program: Callable[..., Any], scalars: str) -> None:
    ways = (*CONFIGURATIONS, {"executor": "compiled"})
    assert_matches_loop(
        program, [XS, NS], batch_sizes=[1, 2, 7], configurations=ways, scalars=scalars
    )
