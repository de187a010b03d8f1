"""Modes of torch's that differ by thread: the threads of each mode run apart inside."""

from __future__ import annotations

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

XS = torch.tensor([0.5, 2.0, 3.0, -1.0])
FLAGS = torch.tensor([True, False, True, False])


def cast(x, flag):
    with torch.autocast("cpu", enabled=bool(flag), dtype=torch.bfloat16):
        y = torch.mm(torch.ones(2, 2), torch.ones(2, 2) * x)
        inside = torch.is_autocast_enabled("cpu")
    return y.float(), y.dtype == torch.bfloat16, inside, torch.is_autocast_enabled("cpu")


def parted(x, flag):
    with torch.set_grad_enabled(bool(flag)):
        y = x * 2
        if x > 1:
            y = y * 3
        while y > 1:
            y = y / 2
        inside = y.requires_grad, torch.is_grad_enabled()
    return y, inside, torch.is_grad_enabled()


def nested(x, flag):
    inside = 0
    for n in range(3):
        with torch.inference_mode(mode=bool(flag) and n == 1), torch.set_grad_enabled(bool(x > 0)):
            inside = inside * 10 + 2 * torch.is_inference_mode_enabled() + torch.is_grad_enabled()
    return inside, torch.is_grad_enabled(), torch.is_inference_mode_enabled()


def helper(x, flag):
    def inner(y):
        return y * 2 if y > 1 else torch.is_grad_enabled()

    with torch.set_grad_enabled(bool(flag)):
        found = inner(x), inner(x + 3)
        wanted = found[1].requires_grad
    return str(type(found[0]).__name__), found[1], wanted


def fails(x, flag):
    with torch.set_grad_enabled(bool(flag)):
        if x < 0:
            raise ValueError(f"{float(x)} under {torch.is_grad_enabled()}")
    return x


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", [cast, parted, nested, helper, fails])
def test_each_thread_has_its_own_mode(program):
    assert_matches_loop(program, (XS, FLAGS))
    assert_matches_loop(program, (XS.clone().requires_grad_(), FLAGS))
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


def test_gradients_are_those_of_the_loop():
    xs = XS.clone().requires_grad_()
    autobatch.vmap(parted)(xs, FLAGS)[0].sum().backward()
    one_by_one = XS.clone().requires_grad_()
    rows = [parted(x, flag)[0] for x, flag in zip(one_by_one, FLAGS, strict=True)]
    sum(row for row in rows if row.requires_grad).backward()
    assert torch.equal(xs.grad, one_by_one.grad)
