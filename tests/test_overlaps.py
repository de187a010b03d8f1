"""Writes that read a part of what they write, at places of each example's own: torch's errors."""

from __future__ import annotations

import pytest
import torch

from tests.oracle import CONFIGURATIONS, assert_matches_loop
from tests.outside_world import program

ROWS = torch.arange(24.0).reshape(3, 8)
PLACES = ([0, 2, 4], [1, 4, 4], [4, 4, 4], [1, 1, 1], [1, 3, 4])


def into_own_place(x, k):
    y = x + 0
    y[k : k + 3] = y[1:4]
    return y


def from_own_place(x, k):
    y = x + 0
    y[1:4] = y[k : k + 3]
    return y


def by_numbers(x, k):
    y = x + 0
    k = k.item()
    y[k : k + 3] = y[1:4]
    return y


def copied(x, k):
    y = x + 0
    y[k : k + 3].copy_(y[1:4])
    return y


def added(x, k):
    y = x + 0
    y[k : k + 3] += y[1:4]
    return y


def added_to_a_name(x, k):
    y = x + 0
    a = y[k : k + 3]
    b = y[1:4]
    a.add_(b)
    return y


def given_out(x, k):
    y = x + 0
    a = y[k : k + 3]
    b = y[1:4]
    torch.add(a, b, out=a)
    return y


def doubled_out(x, k):
    y = x + 0
    a = y[k : k + 3]
    b = y[1:4]
    torch.mul(b, 2, out=a)
    return y


def one_into_many(x, k):
    y = x + 0
    a = y[k]
    y[1:4] = a
    return y


def many_by_one(x, k):
    y = x + 0
    y[1:4] *= y[k]
    return y


def sum_into_one(x, k):
    y = x + 0
    y[k] = y[1:4].sum()
    return y


def rows(x, k):
    y = x.reshape(2, 4) + 0
    y[k // 4] = y[0]
    return y


def parts_of_rows(x, k):
    y = x.reshape(2, 4) + 0
    y[k // 4][:2] = y[0][1:3]
    return y


def narrowed(x, k):
    y = x + 0
    y.narrow(0, int(k), 3).copy_(y.narrow(0, 1, 3))
    return y


def every_second(x, k):
    y = x + 0
    y[k::2][:2] = y[1:3]
    return y


def caught(x, k):
    y = x + 0
    a = y[k : k + 3]
    try:
        a.copy_(y[1:4])
    except RuntimeError:
        return (y, 1)
    return (y, 0)


def in_place(x, k):
    y = x + 0
    y[k : k + 3] += 1
    return y


def single_places(x, k):
    y = x + 0
    y[k] += y[k] * 2
    y[k - 1] = y[k]
    return y


def rows_swapped(x, k):
    y = x.reshape(4, 2) + 0
    i = k % 3
    y[i], y[i + 1] = (y[i + 1].clone(), y[i].clone())
    y[i] = y[i + 1]
    return y


def crosswise(x, k):
    y = x.reshape(2, 4) + 0
    y[k % 2, :2] = y[1, 2:]
    return y


def in_a_loop(x, k):
    y = x + 0
    for i in range(3):
        y[k + i - 1 : k + i] = y[k : k + 1] * 2
    return y


def filled(x, k):
    y = x + 0
    y[k : k + 3].fill_(y[1])
    y[k : k + 3].masked_fill_(y[1:4] > 0, y[2])
    y[k : k + 3].index_fill_(0, torch.tensor([0, 1]), y[k])
    return y


def of_its_own_length(x, k):
    y = x + 0
    try:
        y += y[:k]
    except RuntimeError:
        y.sub_(1)
    return y


def into_its_own_length(x, k):
    y = x + 0
    v = y[1:]
    v[:k] = y[:k]
    return y


def the_same_by_other_bounds(x, k):
    y = x + 0
    y[k : k + 1] = y[1 : k + 1]
    return y


def one_by_itself(x, k):
    y = x + 0
    try:
        y[k].copy_(y[k : k + 1])
    except RuntimeError:
        y[k : k + 1] = y[k]
        y[k] = y[k : k + 1]
    y[k : k + 1] *= y[k]
    return y


def crosswise_to_itself(x, k):
    y = x.reshape(2, 2, 2) + 0
    y[k // 4] = y[k // 4].T
    return y


def all_by_one(x, k):
    y = x + 0
    y[:] = y[k]
    y.copy_(y[k])
    return y


def masked_by_its_end(x, k):
    y = x + 0
    y[x >= x[k]] = y[k:]
    return y


def beyond_its_end(x, k):
    y = x + 0
    y[1 : k + 1][k].add_(y[:k])
    return y


def beyond_its_end_augmented(x, k):
    y = x + 0
    y[1 : k + 1][k] += y[:k]
    return y


PROGRAMS = (
    of_its_own_length,
    into_its_own_length,
    the_same_by_other_bounds,
    one_by_itself,
    crosswise_to_itself,
    all_by_one,
    masked_by_its_end,
    beyond_its_end,
    beyond_its_end_augmented,
    filled,
    into_own_place,
    from_own_place,
    by_numbers,
    copied,
    added,
    added_to_a_name,
    given_out,
    doubled_out,
    one_into_many,
    many_by_one,
    sum_into_one,
    rows,
    parts_of_rows,
    narrowed,
    every_second,
    caught,
    in_place,
    single_places,
    rows_swapped,
    crosswise,
    in_a_loop,
)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_overlap_is_what_torch_makes_of_it(program):
    for places in PLACES:
        assert_matches_loop(program, (ROWS, torch.tensor(places)))


GATHERED = (
    *("x[x[:, 0] > 2] = x[0]", "x[x[:, 0] > 9] = x[:1]", "x[x > 2] = x[0, 0]", "x[t] = x[1]"),
    *("x[t] = x[0, 0]", "x[[0, 2]] = x[1]", "x[0, [0, 1]] = x[1]", "x[..., [0, 1]] = x[1]"),
    *("x[x[:, 0] > 2, 0] = x[0, 0]", "x[0, t[:1]] = x[0, :1]", "x[t] = x[1].clone()"),
    *("x[x[:, 0] > 2, :] = x[0]", "x[torch.tensor([1, 0, 2])] = x", "x[i] = x[1]"),
    "x[x[:, 0] > 2] = x[i]",
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("line", GATHERED)
def test_what_is_written_at_places_of_a_tensor_or_list(line):
    before = ["t = torch.tensor([0, 2])", "i = x[0, 0].long() % 3"]
    write = program(line, [*before, line, "return x"], {"torch": torch})
    xs = torch.tensor([[[1.0, 2], [3, 4], [5, 6]], [[4.0, 5], [1, 1], [1, 2]]])
    assert_matches_loop(write, [xs], configurations=CONFIGURATIONS[1:3])


OF_ITS_OWN = (
    *("x[i, t[:1]] = x[1, :1]", "x[int(i), t] = x[i, :2]", "x[i][t] = x[1, :2]", "x[i, t] = x[i]"),
    *("x[int(i), t.tolist()] = x[1]", "y = x[i]; y[t] = y", "x[i, t] = x[(i + 1) % 3]"),
    *("x[i, x[i] > 2] = x[1, 0]", "x[i, t] = x[1].clone()", "x[i, t] = x[1, 0]"),
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("line", OF_ITS_OWN)
def test_what_is_written_within_a_part_of_its_own(line):
    before = ["t = torch.tensor([1, 0])", "i = x[2, 1].long() % 3"]
    write = program(line, [*before, line, "return x"], {"torch": torch})
    for first in (0.0, 1.0):
        xs = torch.stack([torch.arange(6.0).reshape(3, 2) + first + n for n in range(3)])
        assert_matches_loop(write, [xs], configurations=CONFIGURATIONS[1:3])


REFUSED_BEFORE_SHAPES = (
    *("x[i] += x", "x[i].mul_(x)", "x[i][:1].copy_(x)", "x[i : i + 1] += x"),
    *("x[0].addcmul_(2, x[i : i + 1])", "x[0].lerp_(2, x[i : i + 1])", "torch.add(x, 1, out=x[i])"),
)


@pytest.mark.parametrize("line", REFUSED_BEFORE_SHAPES)
def test_an_overlap_is_seen_after_types_and_before_shapes(line):
    write = program(line, ["i = int(x[2, 1]) % 2", line, "return x"], {"torch": torch})
    xs = torch.stack([torch.arange(6.0).reshape(3, 2) + n for n in range(3)])
    assert_matches_loop(write, [xs], configurations=CONFIGURATIONS[1:3])
    assert_matches_loop(write, [xs[1:2]], configurations=CONFIGURATIONS[1:3])


def into_expanded(x, k):
    """What is written to a part of a tensor that repeats its elements is in all of it."""
    y = x + 0
    m = y[:3].expand(3, 3)
    row = m[0]
    row += 1
    m[1] += m[0]
    if k > 1:
        m[2][0] = x[4]
        m[:2, 1] = m[1, 2]
    diagonal = torch.diagonal(m)
    diagonal *= 2
    unit = torch.zeros(1).expand(2)
    unit[0] = x[3]
    return y, m, row, diagonal, unit, x


def into_all_that_is_expanded(x, k):
    m = x[:3].expand(3, 3)
    if k > 1:
        m += 1
    return x


@pytest.mark.parametrize("func", [into_expanded, into_all_that_is_expanded])
def test_writes_to_what_repeats_its_elements(func):
    assert_matches_loop(func, [ROWS, torch.tensor([1, 4, 2])], batch_sizes=(1, 3))


def copied_to_one(x):
    y = x + 0
    y[0].copy_(x[:1])
    return y


def copied_as_rows(x):
    y = x + 0
    y.copy_(x[None])
    return y


def copied_to_a_number(x):
    y = x.sum()
    y.copy_(x[:1])
    return y


def filled_with_a_row(x):
    y = x + 0
    y.fill_(x[:1])
    return y


def filled_with_one(x):
    y = x + 0
    y.fill_(x[1])
    y[1:].copy_(x[0])
    return y


@pytest.mark.parametrize(
    "func",
    [copied_to_one, copied_as_rows, copied_to_a_number, filled_with_a_row, filled_with_one],
)
def test_what_has_more_dimensions_than_what_is_written(func):
    assert_matches_loop(func, (ROWS,))
