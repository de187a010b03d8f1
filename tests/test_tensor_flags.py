"""What a tensor says of autograd and of inference mode, in modes and after them."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

import autobatch
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", [inference, used_after, without_gradient])
@pytest.mark.parametrize("wants_gradient", [False, True])
def test_flags_are_those_of_the_loop(program, wants_gradient):
    xs = XS.clone().requires_grad_(wants_gradient)
    if wants_gradient and program is used_after:
        xs = xs.detach()
    assert_matches_loop(program, (xs,))


W = torch.tensor([0.5, -1.5, 2.0], requires_grad=True)
ROWS = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
WAYS = {
    "untraced": {"executor": "vmap"},
    "traced": {"trace_after": 0},
    "compiled": {"executor": "compiled", "trace_after": 0},
    "program counter": {"engine": "program_counter"},
    "chunks": {"chunk_size": 3},
    "sequential": {"engine": "sequential"},
}


def parted_inside(x):
    with torch.enable_grad():
        y = (x * W).sum() if x[0] > 0 else (2 * x * W).sum()
        while y.abs() > 1:
            y = y / 2
    return y, y.requires_grad, x.requires_grad


def parted_before(x):
    w = W if x[0] > 0 else W.detach() * 0
    kept = [w, x]
    with torch.enable_grad():
        y = (kept[0] * x).sum() if x[1] > 0 else kept[0].sum()
    return y


def marked(x):
    y = x * 2
    y.requires_grad_()
    with torch.enable_grad():
        z = (y * W).sum()
    return y.requires_grad, z.requires_grad, y, z


def from_the_host(x):
    return autobatch.per_thread(graded)(x) if x[0] > 0 else W * 0


@torch.enable_grad()
def graded(x):
    return x * W


def written(x):
    with torch.enable_grad():
        y, z, u = x * W, x * W, W * 1
    with torch.no_grad():
        y *= 2
        y[0] = 1.0
        y.fill_(x[1]) if x[2] > 0 else y.clamp_(0, 1)
        z[x > 0] = 0.5
        z.requires_grad_()
        u.mul_(3)
        u[1:] += x[0]
    return y, z, u, y.requires_grad


@pytest.mark.sampled(6)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("program", [parted_inside, parted_before, marked, from_the_host, written])
def test_tensors_keep_their_gradients_whatever_mode_the_call_is_in(program, mode):
    with mode():
        expected = [pytree.tree_leaves(program(row.clone())) for row in ROWS]
    for way, options in WAYS.items():
        with mode():
            run = autobatch.vmap(program, **options)
            run(ROWS)
            found = pytree.tree_leaves(run(ROWS))
        for one, rows in zip(found, zip(*expected, strict=True), strict=True):
            whole = torch.stack([torch.as_tensor(row) for row in rows])
            torch.testing.assert_close(one, whole, msg=way)
            assert one.requires_grad is any(torch.as_tensor(r).requires_grad for r in rows), way
            if whole.requires_grad:
                torch.testing.assert_close(gradient(one), gradient(whole), msg=way)


def gradient(result):
    (found,) = torch.autograd.grad(
        result.sum(), W, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return found
