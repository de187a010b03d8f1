"""Slices whose bounds differ by thread: of one length a gather, else rows of one table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch

X = torch.arange(4 * 5 * 6 * 7.0).reshape(4, 5, 6, 7)
Y = torch.arange(4 * 6.0).reshape(4, 6)
LEFT, TOP = torch.tensor([0, 1, 2, 1]), torch.tensor([2, 0, 1, 3])
N = torch.tensor([1, 3, 2, 5])
TABLE = torch.zeros(3, 6)


def first(x, i):
    return x[i : i + 3]


def second(x, i):
    return x[:, i : i + 2]


def around(x, i, j):
    return x[i : i + 2, :, j : j + 3]


def around_some(x, i, j):
    return x[i : i + 2, 1:-1:2, j : j + 3]


def around_one(x, i, j):
    return x[i : i + 2, i, j : j + 3], x[i : i + 2, 1, j : j + 3]


def last(x, i, j):
    return x[..., j : j + 3]


def dots_between(x, i, j):
    return x[i : i + 1, ..., j : j + 3]


def stepped(x, i):
    return x[i : i + 4 : 2, ..., 0]


def from_the_end(x, i):
    return x[-3 - i : -1 - i]


def new_dimension(x, i, j):
    return x[i : i + 2, None, j], x[None, :, i : i + 2]


def empty(x, i):
    return x[i:i]


def past_the_end(x, i):
    return x[i - i + 3 : i + 40]


def written_through(x, i, j):
    y = x[i : i + 2, 1, -3 + j - j :]
    y += 1
    return x


def written(x, i, j):
    x[i : i + 2] = x[j : j + 2].sum() * 2
    x[1, j : j + 2, i] = -1.0
    return x


def parted(x, i, j):
    y = x[i : i + 2, j : j + 2]
    if i > 1:
        y.mul_(3)
    else:
        y[0] = 7.0
    return x, y


def narrow_bounds(x, i):
    i = i + 0
    return x[:, i : i + 2]


WINDOWS = (
    *(first, second, around, around_some, around_one, last, dots_between, stepped, from_the_end),
    *(new_dimension, empty, past_the_end, written_through, written, parted, narrow_bounds),
)


def summed(x, n):
    return x[:n].sum()


def added(x, n):
    y = x[:n]
    y += 1
    return x


def gone_through(x, n):
    total = 0.0
    for value in x[n:]:
        total = total + value
    return total


def branched(x, n):
    y = x[:n]
    return y.mean() if len(y) > 1 else x.sum()


def turned(x, n):
    return torch.cat([x[n:], x[:n]])


def largest(x, n):
    return (x[:n] * 2).max() if n > 0 else x[0]


def seen_later(x, n):
    y = x[n:]
    x[2] = 100.0
    return y[0]


def written_in(x, n):
    y = x[:n]
    y[0] = 5.0
    return x, y.shape[0]


def cleared(x, n):
    x[:n] = 0
    return x


def copied(x, n):
    x[:n] = x[-n:].clone()
    return x


def sliced_again(x, n):
    y = x[n - 1 :][1:]
    return y.sum() + y.shape[0]


RAGGED = (
    *(summed, added, gone_through, branched, turned, largest, seen_later, written_in),
    *(cleared, copied, sliced_again),
)


def held_to_the_loop(func: Callable[..., Any], given: tuple[Tensor, ...], **options: Any) -> Any:
    def thread(row: int) -> tuple[Any, ...]:
        own = [each[row].clone() for each in given]
        if options["scalars"] == "python":
            own = [each if each.dim() else each.item() for each in own]
        out = func(*own)
        return out if isinstance(out, tuple) else (out,)

    with autobatch.counts() as counted:
        found = autobatch.vmap(func, trace_after=0, **options)(*given)
    columns = found if isinstance(found, tuple) else (found,)
    for row in range(len(given[0])):
        for column, want in zip(columns, thread(row), strict=True):
            assert column[row].tolist() == torch.as_tensor(want).tolist()
            if isinstance(want, Tensor):
                assert column.dtype == want.dtype and column[row].shape == want.shape
    return counted


@pytest.mark.sampled(24)
@pytest.mark.parametrize("executor", ["vmap", "traced"])
@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
@pytest.mark.parametrize("scalars", ["tensor", "python"])
@pytest.mark.parametrize("func", [*WINDOWS, *RAGGED], ids=lambda func: func.__name__)
def test_the_loop_gives_the_same(func: Any, scalars: str, engine: str, executor: str) -> None:
    given = (Y, N) if func in RAGGED else (X, LEFT, TOP)
    given = given[: len(inspect.signature(func).parameters)]
    counted = held_to_the_loop(func, given, scalars=scalars, engine=engine, executor=executor)
    if func in WINDOWS and engine != "sequential":
        assert counted.fallbacks == 0


def test_lengths_are_read_once_for_an_index() -> None:
    counted = held_to_the_loop(parted_nowhere, (X, LEFT, TOP), scalars="python")
    assert counted.other_reads["slice"] == 1 and counted.fallbacks == 0


def parted_nowhere(x, i, j):
    return x[i : i + 2, :, j : j + 3]


@pytest.mark.parametrize("func", [summed, gone_through, sliced_again], ids=lambda f: f.__name__)
def test_rows_of_one_table_need_no_fallback(func: Any) -> None:
    assert held_to_the_loop(func, (Y, N), scalars="python").fallbacks == 0


@pytest.mark.parametrize("func", [second, around, summed, gone_through], ids=lambda f: f.__name__)
def test_gradients(func: Any) -> None:
    given = (Y, N) if func in RAGGED else (X, LEFT, TOP)
    given = given[: len(inspect.signature(func).parameters)]
    x = given[0].clone().requires_grad_()
    want = [func(row, *(each[k].item() for each in given[1:])) for k, row in enumerate(x.unbind())]
    (slope,) = torch.autograd.grad(sum((each**2).sum() for each in want), x)
    found = autobatch.vmap(func, scalars="python", trace_after=0)(x, *given[1:])
    assert torch.equal(torch.autograd.grad((found**2).sum(), x)[0], slope)


def bound_too_many(x, i):
    return x[0, 0, 0, i : i + 2]


def float_bound(x, i):
    return x[i * 0.5 : 3]


def backwards(x, i):
    return x[i : i + 3 : -1]


@pytest.mark.parametrize("func", [bound_too_many, float_bound, backwards], ids=lambda f: f.__name__)
def test_errors_are_torchs(func: Any) -> None:
    with pytest.raises(Exception) as wanted:
        func(X[0], 0)
    with pytest.raises(wanted.type, match=r"index|slice|step|indices"):
        autobatch.vmap(func, scalars="python")(X, LEFT)


def into_a_row(i, n):
    row = TABLE[i][:n]
    row[0] = 1.0
    return row.sum()


def into_a_window(i, n):
    row = TABLE[i][n : n + 2]
    row += 1.0
    return row.sum()


def into_rows(i, n):
    for value in TABLE[i][:n]:
        value += 1.0
    return i


@pytest.mark.parametrize("func", [into_a_row, into_a_window, into_rows], ids=lambda f: f.__name__)
def test_a_part_of_what_existed_before_is_not_written(func: Any) -> None:
    with pytest.raises(autobatch.AutobatchError, match="existed before"):
        autobatch.vmap(func, scalars="python")(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]))
    assert not TABLE.any()


def padded_walk(x, n):
    """A loop whose windows move on: one execution a round, for all threads."""
    best = x[0]
    while n < 4:
        best = torch.maximum(best, x[n : n + 2].sum())
        n += 1
    return best


def test_windows_in_a_loop_keep_threads_together() -> None:
    given = (Y, torch.tensor([0, 1, 2, 3]))
    counted = held_to_the_loop(padded_walk, given, scalars="python")
    assert counted.fallbacks == 0
    assert counted.block_executions <= 8
