"""``x[index]`` and ``x[index] = value`` against plain indexing of each row."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch
from autobatch.batching.applying.vmapped import (
    Batched,
    ExampleError,
    NoRule,
    apply,
    apply_inplace,
    getitem_checked,
)
from tests.batched_loop import check, difference, loop
from tests.oracle import assert_matches_loop

K = 3


def column(*event: int) -> Batched:
    return Batched(torch.arange(K * torch.Size(event).numel()).reshape(K, *event).double())


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """An index that is in range for one example of this shape."""
    parts: list[Any] = []
    ellipsis = draw(st.integers(0, len(shape) + 2))
    for dim, size in enumerate(shape):
        if dim == ellipsis:
            skipped = draw(st.integers(0, len(shape) - dim))
            parts.append(...)
            parts += draw(tails(shape[dim + skipped :]))
            return tuple(parts)
        if draw(st.booleans()) and dim > 1:
            return tuple(parts)
        if draw(st.integers(0, 5)) == 0:
            parts.append(draw(st.sampled_from([None, True])))
        parts.append(draw(part(size)))
    return tuple(parts)


def tails(sizes: tuple[int, ...]) -> st.SearchStrategy[list[Any]]:
    return st.tuples(*map(part, sizes)).map(list)


def part(size: int) -> st.SearchStrategy[Any]:
    place = st.integers(-size, size - 1)
    bounds = st.one_of(st.none(), place)
    own = st.lists(place, min_size=K, max_size=K).map(lambda rows: Batched(torch.tensor(rows)))
    table = st.lists(place, min_size=2, max_size=2)
    return st.one_of(
        place,
        st.builds(slice, bounds, bounds),
        own,
        own,
        table.map(torch.tensor),
        place.map(torch.tensor),
        st.lists(table, min_size=K, max_size=K).map(lambda rows: Batched(torch.tensor(rows))),
    )


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_getitem_equals_the_loop(data: st.DataObject) -> None:
    shape = (3, 2, 4)[: data.draw(st.integers(1, 3))]
    index = data.draw(indices(shape))
    x = column(*shape) if data.draw(st.booleans()) else column(*shape).data[0]
    if not any(type(leaf) is Batched for leaf in (x, *index)):
        return
    try:
        got = apply(operator.getitem, (x, index), None, K)
    except NoRule:
        return
    check(got, operator.getitem, (x, index), None, K)
    if type(got) is Batched:
        again, failed = getitem_checked(x, index, K)
        check(again, operator.getitem, (x, index), None, K)
        assert failed is None or not failed.any()


def assign(x: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    x[index] = value
    return x


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_setitem_equals_the_loop(data: st.DataObject) -> None:
    shape = (3, 2, 4)[: data.draw(st.integers(1, 3))]
    index = data.draw(indices(shape))
    x = column(*shape)
    like = [
        row for row in loop(operator.getitem, (x, index), None, 1) if not isinstance(row, Exception)
    ]
    if not like:
        return
    event = like[0].shape[data.draw(st.integers(0, like[0].dim())) :]
    value = data.draw(
        st.sampled_from([7.0, torch.rand(event).double(), Batched(torch.rand(K, *event).double())])
    )
    before = x.data.clone()
    try:
        new, _ = apply_inplace(operator.setitem, (x, index, value), None, K)
    except (NoRule, ExampleError) as error:
        failures = [isinstance(row, Exception) for row in loop(assign, (x, index, value), None, K)]
        assert isinstance(error, NoRule) or all(failures)
        return
    assert torch.equal(x.data, before)
    if repeats(x, index):
        return
    for row, want in enumerate(loop(assign, (x, index, value), None, K)):
        assert not (found := difference(new, want, row)), found


def repeats(x: Batched, index: Any) -> bool:
    """Whether the index names a place twice: which value stays is not defined then."""
    numbers = Batched(torch.arange(x.data[0].numel()).reshape(x.data.shape[1:]).expand_as(x.data))
    places = loop(operator.getitem, (numbers, index), None, K)
    return any(row.unique().numel() != row.numel() for row in places)


def test_an_index_out_of_range_is_clamped_and_reported() -> None:
    x, i = column(4, 2), Batched(torch.tensor([0, 4, -5]))
    got, failed = getitem_checked(x, i, K)
    assert failed.tolist() == [False, True, True]
    assert torch.equal(got.data[0], x.data[0, 0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_an_index_out_of_range_does_not_reach_a_cuda_kernel() -> None:
    x = Batched(column(4, 2).data.cuda())
    _, failed = getitem_checked(x, Batched(torch.tensor([0, 4, -5], device="cuda")), K)
    torch.cuda.synchronize()
    assert failed.tolist() == [False, True, True]


def test_an_empty_dimension_fails_in_every_row() -> None:
    got, failed = getitem_checked(column(0, 2), Batched(torch.zeros(K, dtype=torch.int64)), K)
    assert got.data.shape == (K, 2)
    assert failed.all()


def test_an_index_tensor_of_the_threads_own_is_checked_row_by_row() -> None:
    w = torch.arange(5.0)
    _, failed = getitem_checked(w, Batched(torch.tensor([[0, 1], [4, 5], [-6, 0]])), K)
    assert failed.tolist() == [False, True, True]


def test_unchecked_out_of_range_is_left_to_the_loop() -> None:
    with pytest.raises(NoRule):
        apply(operator.getitem, (column(4), Batched(torch.tensor([0, 4, 1]))), None, K)


def test_too_many_indices_is_the_users_error() -> None:
    with pytest.raises(ExampleError) as caught:
        apply(operator.getitem, (column(4), (Batched(torch.tensor([0, 1, 1])), 0)), None, K)
    assert isinstance(caught.value.original, IndexError)


@pytest.mark.parametrize(
    "index",
    [
        slice(None, Batched(torch.tensor([1, 2, 3]))),
        Batched(torch.rand(K, 4) > 0.5),
        Batched(torch.tensor([True, False, True])),
        [Batched(torch.tensor([0, 1, 2])), 1],
    ],
)
def test_what_would_be_ragged_has_no_rule(index: Any) -> None:
    with pytest.raises(NoRule):
        apply(operator.getitem, (column(4), index), None, K)


@pytest.mark.parametrize("value", [3, 2.5, torch.tensor(1.5), Batched(torch.rand(K))])
@pytest.mark.parametrize("depth", [1, 2])
def test_assignment_through_a_mask(value: Any, depth: int) -> None:
    x = column(4, 2)
    mask = Batched(torch.rand(K, *(4, 2)[:depth]) > 0.5)
    new, _ = apply_inplace(operator.setitem, (x, mask, value), None, K)
    check(new, assign, (x, mask, value), None, K)


def test_assignment_keeps_the_targets_dtype() -> None:
    x = Batched(torch.zeros(K, 4, dtype=torch.int64))
    for value in (Batched(torch.rand(K) * 9), torch.tensor(2.5), 3.5):
        new, _ = apply_inplace(
            operator.setitem, (x, Batched(torch.tensor([0, 1, 3])), value), None, K
        )
        check(new, assign, (x, Batched(torch.tensor([0, 1, 3])), value), None, K)


def index_written(x, i):
    row = x[i]
    i += 1
    if row.sum() > 0:  # noqa: SIM108 threads part while x, too, is wanted later
        y = torch.stack([row * 2])
    else:
        y = torch.stack([row - 1])
    return y, x[i], row


def test_a_row_stays_when_its_index_is_written():
    draw = torch.Generator().manual_seed(0)
    xs, index = torch.randn(7, 4, 3, generator=draw), torch.tensor([0, 1, 2, 0, 1, 2, 2])
    assert_matches_loop(index_written, [xs, index], batch_sizes=(0, 1, 2, 7))


def written_by_bools(x):
    a, b = torch.zeros(2, 3) + x, x.clone()
    a[True] += 1
    a[0, True] = x
    a[:, False] = 7
    a[True, 1, torch.tensor([0, 2])] *= x
    b[False], b[None] = 3.0, b + 1
    if x > 0:
        b[True] = 4
    picked = a[True]
    picked += 1
    return a, b, picked, a[1, True], a[..., False], a[None, True, 0]


def test_a_bool_is_an_index_into_a_new_dimension():
    assert_matches_loop(written_by_bools, [torch.tensor([1.0, -2.0, 3.0])])


def swapped(a, i):
    p = int(a.abs().argmax())
    a[[0, p]] = a[[p, 0]]
    if i > 0:
        a[[p, -1, int(i)]] += 1.0
    rows = torch.stack([a, a * 2])
    return a, rows[1, [p, 2]], rows[:, [int(i)]], a[[p]]


def test_a_list_with_the_threads_own_ints_is_an_index_tensor():
    draw = torch.Generator().manual_seed(0)
    xs, index = torch.randn(7, 5, generator=draw), torch.tensor([0, 1, 2, 0, 4, 3, 2])
    assert_matches_loop(swapped, [xs, index])
    with autobatch.counts() as counts:
        autobatch.vmap(swapped)(xs, index)
    assert counts.fallbacks == 0


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_a_list_with_a_tensor_in_it_is_what_torch_makes_of_it():
    draw = torch.Generator().manual_seed(0)
    xs, index = torch.randn(7, 5, 3, generator=draw), torch.tensor([0, 1, 2, 0, 2, 1, 2])
    assert_matches_loop(lambda x, i: x[[i, 0]], [xs, index])
    assert_matches_loop(lambda x, i: x[[i > 0, True]], [xs[:, :2], index])


def test_an_int_of_such_a_list_that_is_out_of_range_fails_as_in_the_loop():
    xs, index = torch.rand(7, 5), torch.tensor([0, 1, 2, 0, 5, 3, 2])
    assert_matches_loop(lambda x, i: x[[0, i.item()]], [xs, index])


def one_side(pair, x):
    side = int(x < 0.5)
    if x > 0.9:
        side = 1 - side
    return pair[side] + pair[-side], side


def test_an_index_that_picks_one_of_two_is_in_range():
    """``int`` of a truth is 0 or 1, across blocks too: nothing is left to look at, or clamped."""
    draw = torch.Generator().manual_seed(0)
    pairs, xs = torch.randn(20, 2, 3, generator=draw), torch.linspace(0, 1, 20)
    assert_matches_loop(one_side, [pairs, xs])
    assert_matches_loop(one_side, [pairs[:, :1], xs])
    for executor, reads in (("vmap", 1), ("traced", 0)):
        batched = autobatch.vmap(one_side, trace_after=0, executor=executor)
        batched(pairs, xs)
        with autobatch.counts() as counts:
            batched(pairs, xs)
        assert counts.host_reads == reads  # the branch's, if it is one


@pytest.mark.parametrize("index", ["a", 1.0, slice(0.5, 2), (0, 0, 0)], ids=str)
def test_parts_assigned_to_what_is_no_index_are_torchs_error(index: Any) -> None:
    def program(x):
        x[index] = x[:2]
        return x

    assert_matches_loop(program, [torch.ones(2, 3)])
