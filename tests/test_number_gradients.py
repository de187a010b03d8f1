"""Python numbers made of tensors (``x.item()``, ``float(x)``) have no gradient, as in torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch

PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "item": lambda x: x * x.item(),
    "float": lambda x: x * float(x),
    "tolist": lambda x: x * x.tolist(),
    "a sum of floats": lambda x: x * sum(float(part) for part in (x, 2 * x)),
    "back to a tensor": lambda x: x * torch.tensor(x.item()) + torch.full((2,), float(x)).sum(),
    "math": lambda x: x * math.sqrt(x) + math.floor(x) * x,
    "a ternary": lambda x: x * (float(x) if x.item() > 2 else 1.0),
}


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
@pytest.mark.parametrize("way", [{"executor": "vmap"}, {"trace_after": 0}], ids=["vmap", "traced"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_is_a_constant(name: str, way: dict[str, Any]) -> None:
    program = PROGRAMS[name]
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    expected = []
    for row in x.detach():
        alone = row.clone().requires_grad_()
        expected.append(torch.autograd.grad(program(alone), alone)[0])
    mapped = autobatch.vmap(program, **way)
    for _ in range(3):
        (got,) = torch.autograd.grad(mapped(x).sum(), x)
        torch.testing.assert_close(got, torch.stack(expected))
