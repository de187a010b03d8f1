"""What a tensor says of autograd and of inference mode, in modes and after them."""

from __future__ import annotations

import pytest
import torch

from tests.oracle import assert_matches_loop

XS = torch.tensor([0.5, 2.0, 3.0, -1.0])


def inference(x):
    with torch.inference_mode():
        y = torch.zeros(2)
        z = y + x
        if x > 1:
            z = z * 2
        inside = (
            torch.is_inference_mode_enabled(),
            x.is_inference(),
            y.is_inference(),
            z.is_inference(),
            torch.is_inference(z),
            x[None].is_inference(),
        )
    if x > 2:
        return *inside, z.is_inference(), (z + 1).is_inference()
    return *inside, z.is_inference(), torch.is_inference_mode_enabled()


def used_after(x):
    with torch.inference_mode():
        y = x * 2
    n = 0
    while x > 1:
        x = x / 2
        n += 1
    return n, y.is_inference(), y


def without_gradient(x):
    y = x * 2
    with torch.no_grad():
        z = x + y
        inside = x.requires_grad, y.requires_grad, z.requires_grad, x.is_leaf, y.is_leaf, z.is_leaf
    if x > 1:
        return *inside, y.requires_grad, z.requires_grad
    return *inside, (x * z).requires_grad, (y * 1).is_leaf


@pytest.mark.parametrize("program", [inference, used_after, without_gradient])
@pytest.mark.parametrize("wants_gradient", [False, True])
def test_flags_are_those_of_the_loop(program, wants_gradient):
    xs = XS.clone().requires_grad_(wants_gradient)
    if wants_gradient and program is used_after:
        xs = xs.detach()
    assert_matches_loop(program, (xs,))
