"""What the caller writes to a result reaches no argument, whichever way the threads have gone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autobatch

WAYS = pytest.mark.parametrize(
    "way",
    [
        {},
        {"engine": "program_counter"},
        {"engine": "sequential"},
        {"executor": "compiled"},
        {"chunk_size": 1},
    ],
)


def as_it_is(x, w):
    return x if x[0] > 0 else x + 1


def part_of(x, w):
    return {"part": x[1:], "both": (x, x)} if x[0] > 0 else {"part": x[:2], "both": (x, x)}


def shared(x, w):
    return w if x[0] > 0 else w + 1


def tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    return [result["part"], *result["both"]]


@WAYS
@pytest.mark.parametrize("func", [as_it_is, part_of])
@pytest.mark.parametrize("first", [1.0, -1.0])
def test_results_are_no_arguments_memory(way, func, first):
    xs, w = torch.tensor([[first, 1.0, 1.0], [1.0, 1.0, 1.0]]), torch.ones(3)
    before = xs.clone()
    for result in (
        autobatch.vmap(func, in_dims=(0, None), **way)(xs, w),
        autobatch.function(func, in_dims=(0, None), **way).batch(xs, w),
        autobatch.vmap(func, in_dims=(0, None), on_error="isolate", **way)(xs, w)[1].value,
    ):
        for each in tensors(result):
            each.add_(1)
        assert torch.equal(xs, before)


@WAYS
@pytest.mark.parametrize("size", [1, 2])
def test_what_all_share_is_copied_too(way, size):
    w = torch.ones(3)
    result = autobatch.vmap(shared, in_dims=(0, None), **way)(torch.ones(size, 3), w)
    w.zero_()
    assert torch.equal(result, torch.ones(size, 3))


def deep(x):
    made = x
    for _ in range(1_500):
        made = [made]
    return made


def test_results_of_single_examples_nest_deep():
    xs = torch.ones(2, 3)
    found = autobatch.vmap(deep, on_error="isolate")(xs)[0].value
    while isinstance(found, list):
        (found,) = found
    found.add_(1)
    assert torch.equal(xs, torch.ones(2, 3))


def test_gradients_go_through_the_copy():
    xs = torch.ones(2, 3, requires_grad=True)
    result = autobatch.vmap(as_it_is, in_dims=(0, None))(xs, None)
    result.sum().backward()
    assert torch.equal(xs.grad, torch.ones(2, 3))


def test_arrays_and_ragged_rows_are_the_callers():
    """An array's memory is a tensor's, and so is that of one ragged row alone."""
    xs = torch.ones(2, 3)
    given = xs.numpy()
    autobatch.function(lambda x: x).batch(given).add_(1)
    rows = [torch.ones(3)]
    (row,) = autobatch.vmap(lambda x: x, ragged_out="list")(autobatch.ragged(rows))
    row.add_(1)
    assert torch.equal(xs, torch.ones(2, 3)) and torch.equal(rows[0], torch.ones(3))
