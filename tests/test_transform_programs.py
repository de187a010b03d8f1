"""Derivatives of programs with control flow, each transform of each, and gradients through them.

``torch.func`` on one example after the other is the oracle, for what a transform gives, and for the
gradient of that by ``backward``. Parameters are each example's own or all examples'.
"""

from __future__ import annotations

from zlib import crc32

import pytest
import torch
from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp
from torch.utils import _pytree as pytree

import autobatch


def branching(x, w):
    y = (x * w).sum()
    return y.sin() * w[0] if y > 0 else (x.exp() * w).sum()


def looping(x, w):
    n, y = 0, x
    while y.norm() < 4 and n < 5:
        y = y * 1.5 + w * 0.1 * n
        n += 1
    return (y * w).sum() * (n + 1)


def recursive(x, w):
    def go(v, depth):
        if depth == 0 or v.sum() > 3:
            return (v * w).sum()
        return go(v * 1.3, depth - 1) + go(v + w, depth - 1) * 0.5

    return go(x, 3)


def writing(x, w):
    z = torch.zeros(3, dtype=x.dtype)
    for i in range(3):
        if x[i] > 0:
            z[i] = x[i] * w[i]
        else:
            z[i] += w[i] ** 2
    z += x.cos()
    z.mul_(w)
    return z.sum()


def mixing(x, w):
    k, total = 2.0, 0
    for v in x:
        if v > 0:
            total = total + v**2 * k
        else:
            k = k * 0.5 + 0.25
            total = total - v.sin() * w[1]
    return total + 0 * x.sum() + w.prod()


def catching(x, w):
    try:
        if x.sum() > 1:
            raise ValueError
        return (x * w).tanh().sum()
    except ValueError:
        return (x**3 * w).sum()


def listing(x, w):
    made = []
    for i in range(3):
        if x[i] > w[i]:
            made.append(x[i] * w[i])
        made.append(x[i].sigmoid())
    return torch.stack(made).pow(2).sum()


def solving(x, w):
    m = torch.outer(x, w) + torch.eye(3, dtype=x.dtype)
    if m.det() > 1:
        m = m @ m
    return torch.linalg.solve(m + 3 * torch.eye(3, dtype=x.dtype), x).sum() + m.diagonal().sum()


def unused(x, w):
    return w.sum() * 2.0 if x[0] > 0 else x.sum() * 0 + 3.0


def pulled(f):
    def pulled_of(x, w):
        out, pull = vjp(f, x, w)
        return pull(out) if out > 0 else pull(out * 2)

    return pulled_of


def descending(f):
    def descent(x, w):
        slope, n = grad(f)(x, w), 0
        while slope.norm() > 0.5 and n < 3:
            x = x - 0.1 * slope
            slope = grad(f)(x, w)
            n += 1
        return x, slope, n

    return descent


def both(f):
    return lambda x, w: torch.stack([f(x, w), (x * w).sum() ** 2])


def of_rows(f):
    rows = autobatch.vmap(f, in_dims=(0, None))
    return lambda x, w: jacrev(lambda y: rows(torch.stack([y, y * 0.5, -y]), w))(x)


FUNCTIONS = [branching, looping, recursive, writing, mixing, catching, listing, solving, unused]
TRANSFORMS = {
    "grad": lambda f: grad(f, argnums=(0, 1)),
    "grad_and_value": grad_and_value,
    "jacrev": lambda f: jacrev(both(f)),
    "jacfwd": lambda f: jacfwd(both(f), argnums=1),
    "hessian": lambda f: hessian(f, argnums=(0, 1)),
    "vjp": pulled,
    "grad of grad": lambda f: grad(lambda x, w: (grad(f)(x, w) * w).sum(), argnums=(0, 1)),
    "jacrev of grad": lambda f: jacrev(grad(f, argnums=1)),
    "jacfwd of jacrev": lambda f: jacfwd(jacrev(f, argnums=1)),
    "jvp of grad": lambda f: lambda x, w: jvp(lambda v: grad(f)(v, w), (x,), (w,))[1],
    "descent": descending,
    "jacrev of vmap": of_rows,
}
WAYS = [
    {"executor": "vmap"},
    {"trace_after": 0},
    {"engine": "program_counter", "trace_after": 0},
    {"engine": "sequential"},
    {"executor": "compiled", "trace_after": 0},
]


def slopes(out, inputs):
    """The gradient of a sum of all that has one."""
    leaves = [leaf for leaf in pytree.tree_leaves(out) if leaf.requires_grad]
    if not leaves:
        return None
    total = sum((leaf.sin() * leaf).sum() for leaf in leaves)
    return torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)


@pytest.mark.sampled(48)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_as_in_the_loop(function, transform):
    seed = crc32(f"{function.__name__} {transform}".encode())
    torch.manual_seed(seed % 1000)
    dtype, shared = (torch.float32, torch.float64)[seed % 2], seed // 2 % 3 == 0
    derived, way = TRANSFORMS[transform](function), WAYS[seed // 6 % len(WAYS)]
    x = torch.randn(5, 3, dtype=dtype)
    w = torch.randn(3, dtype=dtype) if shared else torch.randn(5, 3, dtype=dtype)
    mapped = autobatch.vmap(derived, in_dims=(0, None if shared else 0), **way)
    close = {"rtol": 1e-3, "atol": 1e-4} if dtype == torch.float32 else {}
    for needs in (False, True):
        inputs = x.requires_grad_(needs), w.requires_grad_(needs)
        rows = [derived(x[i], w if shared else w[i]) for i in range(5)]
        expected = pytree.tree_map(lambda *r: torch.stack([*map(torch.as_tensor, r)]), *rows)
        found = mapped(x, w)
        torch.testing.assert_close(found, expected, **close)
        if needs:
            torch.testing.assert_close(slopes(found, inputs), slopes(expected, inputs), **close)
