"""What examples return that have left others behind: those add nothing to derivatives.

The derivative of ``x.sqrt()`` is none below zero, and infinite at it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.results import holding
from tests.test_gradients_present import WAYS

NS = torch.tensor([0, 2, 3, 1, 4])


def of_some(x, n):
    y = x.sqrt()
    if n > 1:
        return x * 0
    return y


def parts_of_some(x, n):
    y = x.sqrt()
    if n > 1:
        return x * 0
    return y[1:]


def of_those_that_finish(x, n):
    y = x.sqrt()
    if n > 1:
        raise ValueError("more than one")
    return y


def several(x, n):
    rows = []
    for each in x:
        rows.append(each.sqrt())
    y = torch.stack(rows)
    return y, y[1:], x[[0, 1, 5, 5, 5][int(n)]]


def rows(length: int, sizes: Sequence[int] = (0, 0, 0, 0, 0)) -> list[Tensor]:
    values = (1.0, -1.0, 0.0, 2.0, -3.0)
    return [torch.full((length + n,), each) for each, n in zip(values, sizes, strict=True)]


def loop(function: Callable[..., Any], xs: list[Tensor]) -> Tensor:
    total = torch.zeros(())
    for x, n in zip(xs, NS, strict=True):
        with suppress(ValueError, IndexError):
            total = total + sums(function(x, n))
    return total


def sums(result: Any) -> Tensor:
    return torch.stack(
        [each.sum() for each in (result if type(result) is tuple else [result])]
    ).sum()


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("sizes", [(0, 0, 0, 0, 0), (0, 1, 2, 3, 0)])
@pytest.mark.parametrize("function", [of_some, parts_of_some, of_those_that_finish, several])
def test_those_of_a_length_of_their_own(function, sizes, options):
    xs = [x.requires_grad_() for x in rows(2, sizes)]
    slopes = torch.autograd.grad(loop(function, xs), xs, allow_unused=True)
    for _ in range(3):
        others = [x.detach().clone().requires_grad_() for x in xs]
        found = autobatch.vmap(function, on_error="isolate", **options)(
            autobatch.ragged(others), NS
        )
        held(total_of(found), others, slopes)
        if function in (of_some, parts_of_some):
            listed = autobatch.vmap(function, ragged_out="list", **options)
            held(sum(map(sums, listed(autobatch.ragged(others), NS))), others, slopes)


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("function", [of_some, of_those_that_finish, several])
def test_those_of_large_rows(function, options):
    xs = [x.requires_grad_() for x in rows(5000 if function is not several else 3)]
    slopes = torch.autograd.grad(loop(function, xs), xs, allow_unused=True)
    for _ in range(3):
        whole = torch.stack([x.detach() for x in xs])
        others = [x.requires_grad_() for x in whole.clone()]
        found = autobatch.vmap(function, on_error="isolate", **options)(torch.stack(others), NS)
        held(total_of(found), others, slopes)


def total_of(results: list[autobatch.Result]) -> Tensor:
    return torch.stack([sums(each.value) for each in results if each.exception is None]).sum()


def held(total: Tensor, xs: list[Tensor], slopes: Sequence[Tensor | None]) -> None:
    for x, slope, found in zip(
        xs, slopes, torch.autograd.grad(total, xs, allow_unused=True), strict=True
    ):
        zero = torch.zeros_like(x)
        assert torch.equal(zero if found is None else found, zero if slope is None else slope)


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS.keys())
def test_nothing_is_added_where_no_example_has_a_row(options):
    def written(x):
        y = x[-2:] * 1.0
        y[::2] = x[: len(x) - 1].square().sum().sqrt()
        return y.prod()

    for _ in range(3):
        xs = [torch.ones(1, requires_grad=True) for _ in range(3)]
        autobatch.vmap(written, **options)(autobatch.ragged(xs)).sum().backward()
        assert all(torch.equal(x.grad, torch.zeros(1)) for x in xs)


class Box:
    def __init__(self, y: Tensor) -> None:
        self.y = y


class Slot:
    __slots__ = ("y",)

    def __init__(self, y: Tensor) -> None:
        self.y = y


@autobatch.per_thread
def by_itself(kind, x):
    return kind(x)


def in_a_dict(y, n):
    return {int(n): y * 2}


def in_an_instance(y, n):
    return by_itself(Box, y * 2)


def in_a_slot(y, n):
    return by_itself(Slot, y * 2)


def in_lists(y, n):
    return [y * 2] * int(n)


def deeper(y, n):
    found = {}
    found[str(int(n))] = (by_itself(Box, y), [y * 3])
    return found


def in_a_function(y, n):
    return by_itself(lambda own: lambda: own, y)


def parts_by_the_host(y, n):
    return {int(n): by_itself(lambda own: own.unbind()[1], y)}


def held_tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if callable(value):
        return held_tensors(value())
    if isinstance(value, Box | Slot):
        return held_tensors(value.y)
    parts = value.values() if isinstance(value, dict) else value
    return [tensor for part in parts for tensor in held_tensors(part)]


def test_functions_hold_what_the_program_gave_them(monkeypatch):
    """Not the engine that runs them, by which everything there is can be reached."""
    looked: list[Any] = []
    parts_of = holding.parts_of
    monkeypatch.setattr(holding, "parts_of", lambda obj: looked.append(obj) or parts_of(obj))
    ys = torch.randn(4, 3, requires_grad=True)
    autobatch.vmap(lambda y, n: (in_a_function(y * 2, n), y), trace_after=0)(ys, torch.arange(4))
    assert 0 < len(looked) < 1000


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize(
    "wrapped",
    [in_a_dict, in_an_instance, in_a_slot, in_lists, deeper, in_a_function, parts_by_the_host],
)
def test_what_objects_hold_is_needed(wrapped, options):
    """Other results tell that they need some of its rows."""

    def function(x, n):
        y = by_itself(lambda own: own * 1.5, x) * 2
        return wrapped(y, n), y * 3 if n == 0 else x

    def total(results: Any) -> Tensor:
        return torch.stack([each.sum() for each in held_tensors(results)]).sum()

    batched = autobatch.vmap(function, on_error="isolate", **options)
    for _ in range(3):
        xs = torch.randn(5, 2, requires_grad=True)
        loop = total([function(x, n) for x, n in zip(xs.clone(), NS, strict=True)])
        found = total([each.value for each in batched(xs, NS)])
        (wanted,), (slopes,) = torch.autograd.grad(loop, xs), torch.autograd.grad(found, xs)
        torch.testing.assert_close(slopes, wanted)


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS.keys())
def test_of_results_one_by_one_those_are_needed_that_are_used(options):
    """Each is a tensor of its own, as in the loop: what others are made of adds nothing."""

    def function(x, n):
        y = x.sqrt()
        while n > 0:
            y, n = y * 0.5, n - 1
        return {"y": y, "part": y[1:]}, x.sum().sqrt()

    def total(results: list[Any]) -> Tensor:
        found, last = results[0], results[3]
        return found[0]["y"].sum() + found[1] + last[0]["part"].sum()

    for _ in range(3):
        xs, mine, others = (torch.stack(rows(2)).requires_grad_() for _ in range(3))
        total([function(x.clone(), n) for x, n in zip(xs, NS, strict=True)]).backward()
        found = autobatch.vmap(function, on_error="isolate", **options)(mine, NS)
        total([each.value for each in found]).backward()
        assert torch.equal(mine.grad, xs.grad)
        examples = zip(others.unbind(), NS, strict=True)
        stream = autobatch.stream(function, examples, 3, order="input", **options)
        total([result for _, result in stream]).backward()
        assert torch.equal(others.grad, xs.grad)


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("chunk_size", [None, 2])
def test_of_listed_tensors_those_are_needed_that_are_used(options, chunk_size):
    def function(x, n):
        y = x.sqrt()
        while n > 1:
            y, n = y * 0.5, n - 1
        if n:
            return y, y[1:], [y.sum(), 1.0], x.sum()
        return y, y[n:], [y.sum(), 2.0], x.sum()

    def total(found: Any, rows: list[int]) -> Tensor:
        return sum(found[0][r].sum() + found[1][r].sum() + found[2][r][0] for r in rows)

    for rows_used in ([0], [3], [0, 3], [0, 4]):
        for _ in range(4):
            xs, mine = (torch.stack(rows(3)).requires_grad_() for _ in range(2))
            loop = [function(x.clone(), n) for x, n in zip(xs, NS, strict=True)]
            total(list(zip(*loop, strict=True)), rows_used).backward()
            batched = autobatch.vmap(function, ragged_out="list", chunk_size=chunk_size, **options)
            found = batched(mine, NS)
            (total(found, rows_used) + found[3].sum() * 0).backward()
            assert torch.equal(mine.grad.nan_to_num(7.0), xs.grad.nan_to_num(7.0))
        for own in found[0]:
            own.mul_(2)  # each example's own tensor, in autograd's eyes, too
