"""Transformations, maps and forms within one another, through control flow, held to the loop."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.func as tf
from torch import Tensor

import autobatch as ab

XS = torch.randn(7, 3, generator=torch.Generator().manual_seed(1)) * 3
WEIGHT = torch.arange(6.0).reshape(2, 3)


def shrunk(x):
    rounds = 0
    while x.norm() > 1 and rounds < 5:
        x = x * 0.5 + x.sin() * 0.1
        rounds += 1
    return (x * x).sum() if rounds % 2 else x.exp().sum()


def grown(x):
    found = []
    while x.sum() < 4 and len(found) < 4:
        x = x * 1.5 + 1
        found.append(x)
    return torch.stack(found).sum(0) if found else x * 2


def slope_of_slope(m):
    return lambda x: m.grad(lambda y: m.grad(shrunk)(y).pow(2).sum())(x)


def inside(m):
    def program(x):
        slope = m.grad(shrunk)(x)
        if slope.sum() > 0:
            return m.jvp(shrunk, (x,), (slope,))[1]
        found, pull = m.vjp(grown, x)
        return pull(found * 2)[0].sum()

    return program


def curvature_of_rows(m, mapped):
    def program(x):
        found = mapped(m.hessian(lambda scale: shrunk(scale * x)), torch.stack([x, x + 1]))
        return found.sum() if found.sum() > 0 else found.abs().sum() * 2

    return program


def rowwise(function, rows):
    return torch.stack([function(row) for row in rows])


def rounds(x):
    def inner(i):
        return ab.pfor(lambda j: WEIGHT[i, j] * x[j] if x[j] > 0 else WEIGHT[i, j], 3).sum()

    return ab.pfor(inner, 2)


def settled(x):
    return ab.while_loop(
        lambda s, n: s.norm() > 1, lambda s, n: (s * 0.7, n + 1), (x, torch.tensor(0))
    )


def scanned(x):
    return ab.scan(lambda c, e: (c * 0.5 + e if e > 0 else c - e, c * e), x.sum(), x)


def folded(x):
    def step(a, e):
        return a * 2 + e if e > 0 else a - e

    return ab.foldl(step, x, torch.tensor(1.0)) * ab.foldr(step, x, torch.tensor(1.0))


def chosen(x):
    return ab.cond(
        x.sum() > 0,
        lambda x: ab.scan(lambda c, e: (c + e * e, c), x[0] * 0, x)[0],
        lambda x: settled(x)[0].sum(),
        (x,),
    )


def of_scan(x):
    last, each = scanned(x)
    return last + each.sum()


PER_EXAMPLE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "hessian": (ab.hessian(shrunk), tf.hessian(shrunk)),
    "forward over reverse": (ab.jacfwd(ab.jacrev(shrunk)), tf.hessian(shrunk)),
    "reverse over forward": (ab.jacrev(ab.jacfwd(shrunk)), tf.hessian(shrunk)),
    "jacrev": (ab.jacrev(grown), tf.jacrev(grown)),
    "jacfwd": (ab.jacfwd(grown), tf.jacfwd(grown)),
    "grad of grad": (slope_of_slope(ab), slope_of_slope(tf)),
    "inside": (inside(ab), inside(tf)),
    "torch's inside": (inside(tf), inside(tf)),
    "grad of inside": (ab.grad(inside(ab)), tf.grad(inside(tf))),
    "jacfwd of inside": (ab.jacfwd(inside(ab)), tf.jacfwd(inside(tf))),
    "rows inside": (
        curvature_of_rows(ab, lambda f, rows: ab.vmap(f)(rows)),
        curvature_of_rows(tf, rowwise),
    ),
    "pfor": (rounds, rounds),
    "grad of pfor": (
        ab.grad(lambda x: rounds(x).sum()),
        lambda x: torch.where(x > 0, WEIGHT.sum(0), 0.0),
    ),
    "while_loop": (lambda x: settled(x)[0], lambda x: settled(x)[0]),
    "scan": (of_scan, of_scan),
    "grad of scan": (ab.grad(of_scan), tf.grad(of_scan)),
    "folds": (folded, folded),
    "hessian of folds": (ab.hessian(folded), tf.hessian(folded)),
    "cond": (chosen, chosen),
    "hessian of cond": (ab.hessian(chosen), tf.hessian(chosen)),
}


@pytest.mark.sampled(32)
@pytest.mark.parametrize("options", [{}, {"executor": "vmap"}, {"engine": "program_counter"}])
@pytest.mark.parametrize("name", PER_EXAMPLE)
def test_of_each_example(name: str, options: Any) -> None:
    mine, plain = PER_EXAMPLE[name]
    found = ab.vmap(mine, **options)(XS)
    torch.testing.assert_close(found, rowwise(plain, XS), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("transform", ["jacrev", "jacfwd", "hessian"])
def test_of_the_batch(transform: str) -> None:
    mine, plain = getattr(ab, transform), getattr(tf, transform)
    if transform == "hessian":
        found = mine(lambda rows: ab.vmap(shrunk)(rows).sum())(XS)
        wanted = plain(lambda rows: rowwise(shrunk, rows).sum())(XS)
    else:
        found = mine(ab.vmap(grown))(XS)
        wanted = plain(lambda rows: rowwise(grown, rows))(XS)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_map_fn_is_differentiated() -> None:
    found = ab.grad(lambda rows: ab.map_fn(shrunk, rows).sum())(XS)
    torch.testing.assert_close(found, rowwise(tf.grad(shrunk), XS))


def drawn(x: Tensor) -> Any:
    total = x.sum() * 0
    for _ in range(3):
        if torch.rand(()) > 0.4:
            total = total + torch.randn(3).sum() + torch.randint(0, 9, ()).float()
        total = total + ab.pfor(lambda j: torch.randn(()) * (j + 1.0), 2).sum()
    picked = torch.multinomial(torch.tensor([0.2, 0.3, 0.5]), 2).float()
    coins, noise = torch.bernoulli(torch.full((2,), 0.5)), torch.normal(torch.zeros(2), 1.0)
    dropped = torch.nn.functional.dropout(torch.ones(4), 0.5)
    slope = ab.grad(lambda y: (y * torch.randn(3)).sum())(x)
    return torch.cat([total[None], picked, coins, noise, dropped, slope]), random.random()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "options",
    [
        *({"chunk_size": 4}, {"engine": "program_counter"}, {"executor": "vmap"}, {"fork": "off"}),
        *({"schedule": "most_threads"}, {"engine": "sequential"}, {"executor": "compiled"}),
    ],
    ids=str,
)
def test_seeded_draws_are_the_same_however_it_runs(options: Any) -> None:
    rows = XS.repeat(2, 1)[:13]
    wanted = ab.vmap(drawn, seed=5)(rows)
    found = ab.vmap(drawn, seed=5, **options)(rows)
    alone = ab.vmap(drawn, seed=5, thread_offset=6, **options)(rows[6:7])
    for one, other, single in zip(wanted, found, alone, strict=True):
        assert torch.equal(one, other) and torch.equal(one[6:7], single)
