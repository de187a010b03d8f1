"""Writes to parts of parts of each thread's own length: every name for the memory sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch

NS = torch.tensor([0, 2, 1, 3, 1, 2])
DENSE = torch.arange(72.0).reshape(6, 6, 2)
LENGTHS = (3, 6, 2, 4, 3, 5)
RAGGED = [torch.arange(2.0 * n).reshape(n, 2) + 10 * n for n in LENGTHS]
WAYS: tuple[dict[str, Any], ...] = (
    {"executor": "vmap"},
    {"engine": "program_counter", "trace_after": 0},
)


class Parts:
    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        self.tensors = tensors


def rows_of_a_slice(n, x):
    for row in x[n:]:
        row += 1
    return (x,)


def rows_of_another_step(n, x):
    y = x[:: n + 1]
    for row in y:
        part = row[:1]
        part += 1
    return x, y


def two_rows(n, x):
    y = x[n:] if n < 2 else x[:n]
    a = y[0]
    a += 1
    b = y[-1]
    b += 2
    a *= 3
    return x, y, a, b


def row_and_whole(n, x):
    y = x[:: n + 1]
    b = y[-1]
    b += 100
    y *= 2
    return x, y, b


def slices_of_slices(n, x):
    y = x.view(-1)[n : n * 3 + 1]
    z = y[1:]
    z += 1
    w = y.view(-1)[:n]
    w += 2
    v = w[:1]
    v *= 3
    return x, y, z, w


def other_dimensions(n, x):
    y = x.unsqueeze(0)[:, n : n * 3 + 1]
    z = y[0]
    z += 1
    u = z[n:].T
    u *= 2
    return x, y, z


def pieces(n, x):
    ps = x[n:].split(2)
    for p in ps:
        p *= len(ps)
    return x, *ps


def pieces_of_own_sizes(n, x):
    ps = x.split(n + 1)
    ps[0].zero_()
    ps[-1].add_(1)
    return x, *ps


def unbound(n, x):
    y = x[n:]
    rows = y.unbind(0)
    if rows:
        rows[0].zero_()
        rows[-1].mul_(2)
    return x, y


def unpacked(n, x):
    a, *rest = x[n % 2 :]
    a += 1
    return x, a, *[row.mul_(2) for row in rest]


def listed(n, x):
    rows = list(x[n:])
    for row in rows:
        row += 1
    return x, *rows


def splatted(n, x):
    y = x[n:]
    rows, more = tuple(y), [*y]
    for row in rows:
        row += 1
    for row in more:
        row *= 2
    return x, *rows, *more


def first_if_any(n, x):
    rows = iter(x[n:])
    a, b = next(rows, None), next(rows, None)
    if a is not None:
        a += 1
    if b is not None:
        b += 2
    return (x,)


def in_a_dict(n, x):
    held = {"part": x[:: n + 1]}
    held["part"][0] = 7
    held["part"][:, 0] += 1
    return x, held["part"]


PROGRAMS = (
    *(rows_of_a_slice, rows_of_another_step, two_rows, row_and_whole, slices_of_slices),
    *(other_dimensions, pieces, pieces_of_own_sizes, unbound, unpacked, listed, splatted),
    *(first_if_any, in_a_dict),
)
BASES: dict[str, Callable[[Callable[..., Any]], tuple[Callable[..., Any], Any]]] = {
    "rows of a column": lambda f: (f, DENSE),
    "ragged rows": lambda f: (f, RAGGED),
    "made alike by all": lambda f: (lambda n, _: f(n, torch.arange(12.0).reshape(6, 2)), DENSE),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_every_name_sees_the_write(program: Callable[..., Any], base: str) -> None:
    of_base, rows = BASES[base](program)

    def boxed(n, x):
        return Parts(of_base(n, x))

    wanted = [boxed(int(n), row.clone()).tensors for n, row in zip(NS, rows, strict=True)]
    given = autobatch.ragged(rows) if isinstance(rows, list) else rows
    for options in WAYS:
        for found, want in zip(
            autobatch.vmap(boxed, scalars="python", **options)(NS, given), wanted, strict=True
        ):
            assert len(found.tensors) == len(want)
            for one, other in zip(found.tensors, want, strict=True):
                torch.testing.assert_close(one, other)


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_rows_of_a_loop_that_gradients_flow_into_are_not_written(options: Any) -> None:
    def written(n, x):
        x = x * 1
        for row in x[n:]:
            row *= 2
        return x

    given = DENSE.clone().requires_grad_()
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace") as found:
        autobatch.vmap(written, scalars="python", **options)(NS, given)
    with pytest.raises(RuntimeError) as wanted:
        written(0, given[0])
    assert str(found.value) == str(wanted.value)
