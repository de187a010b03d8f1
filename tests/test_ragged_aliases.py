"""Tensors of different lengths: what shares memory with them is written with them."""

import operator

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import autobatch

EVERY = (
    {"plain": "never"},
    {"plain": "never", "executor": "vmap"},
    {"plain": "never", "trace_after": 0},
    {"engine": "program_counter"},
    {"engine": "sequential"},
)
X = torch.randn(7, 4, generator=torch.Generator().manual_seed(0)).abs() * torch.tensor(
    [1, -1, 1, 1]
)
COUNTS = torch.arange(7) % 3 + 1
DROPOUT = nn.Dropout(0.5).eval()
SAME = {
    "pos": operator.pos,
    "plus": lambda v: +v,
    "positive": torch.positive,
    "method": lambda v: v.positive(),
    "special": lambda v: v.__pos__(),
    "conj": lambda v: v.conj(),
    "to": lambda v: v.to(torch.float32),
    "float": lambda v: v.float(),
    "detach": lambda v: v.detach(),
    "dropout": DROPOUT,
    "functional": lambda v: F.dropout(v, 0.5, False),
    "view": lambda v: v.view(-1),
    "first": lambda v: v[0],
    "tensor": torch.Tensor,
    "neg": operator.neg,
    "abs": abs,
}


def sliced(x, n, same):
    v = x[: int(n)]
    z = same(v)
    z += 1
    return v.sum(), z.sum(), x.sum()


def masked(x, n, same):
    v = x[x > 0]
    if n > 1:
        v = v * 2
    z = same(v)
    v += 1
    return v.sum(), z.sum(), x.sum()


def listed(x, n, same):
    v = [x * 1, x[:2] * 1, x[:3] * 1][int(n) % 3]
    z = same(v)
    z += 1
    return v.sum(), z.sum(), x.sum()


def expected(function, *shared):
    rows = [function(x.clone(), n, *shared) for x, n in zip(X, COUNTS, strict=True)]
    return [torch.stack(part) for part in zip(*rows, strict=True)]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("options", EVERY, ids=str)
@pytest.mark.parametrize("same", SAME)
@pytest.mark.parametrize("function", [sliced, masked, listed])
def test_what_shares_memory(function, same, options):
    def program(x, n):
        return function(x, n, SAME[same])

    batched = autobatch.vmap(program, **options)
    for _ in range(3):
        for found, wanted in zip(batched(X, COUNTS), expected(program), strict=True):
            torch.testing.assert_close(found, wanted)


ARRAYS = {
    "numpy": lambda v: v.numpy(),
    "asarray": np.asarray,
    "detached": lambda v: v.detach().numpy(),
    "part": lambda v: v[:1].numpy(),
    "reversed": lambda v: v.numpy()[::-1],
    "special": lambda v: v.__array__(),
}


def of_a_table(rows, n, array):
    other, part = rows, rows[1:]
    z = array(rows)
    if n > 1:
        z += 1
    return rows.sum(), other.sum(), part.sum()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("options", EVERY, ids=str)
@pytest.mark.parametrize("array", ARRAYS)
def test_arrays_of_its_memory(array, options):
    tables = [x[: int(n)].clone() for x, n in zip(X, COUNTS, strict=True)]
    rows = [of_a_table(t.clone(), n, ARRAYS[array]) for t, n in zip(tables, COUNTS, strict=True)]
    wanted = [torch.stack(part) for part in zip(*rows, strict=True)]
    batched = autobatch.vmap(lambda rows, n: of_a_table(rows, n, ARRAYS[array]), **options)
    for _ in range(2):
        for found, each in zip(batched(autobatch.ragged(tables), COUNTS), wanted, strict=True):
            torch.testing.assert_close(found, each)


def windowed(x, n):
    v = x[x > 0] * 1
    z = v.as_strided((1,), (1,))
    z += n
    return v.sum(), z.sum()


def reaching(x, n):
    z = x[: int(n)].as_strided((1,), (1,))
    z += 1
    return x.sum()


@pytest.mark.parametrize("options", EVERY[:4], ids=str)
def test_as_strided(options):
    for found, wanted in zip(
        autobatch.vmap(windowed, **options)(X, COUNTS), expected(windowed), strict=True
    ):
        torch.testing.assert_close(found, wanted)
    with pytest.raises(autobatch.AutobatchError, match="reaches around in the memory"):
        autobatch.vmap(reaching, **options)(X, COUNTS)


def opposite(x, n):
    places = torch.arange(int(n))
    near = (places[:, None] - places).abs() < 2
    return (~near).sum() + (-(near.float())).sum()


def test_operators_of_one_operand_run_batched():
    with autobatch.counts() as counts:
        found = autobatch.vmap(opposite, plain="never")(X, COUNTS)
    torch.testing.assert_close(found, expected(lambda x, n: (opposite(x, n),))[0])
    assert counts.by_thread == 0
