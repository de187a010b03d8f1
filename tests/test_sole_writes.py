"""Writes to a tensor that one name alone knows: nobody sees them, so groups still go by values."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop
from tests.test_aliasing import tells

XS = torch.linspace(-2, 2, 21).reshape(7, 3)


def written_and_kept(x):
    out = [x]
    for i in range(3):
        y = x.clone()
        y[i] = y[i] * 2 if y[i] > 0 else 0.5
        out.append(y)
    return torch.stack(out)


def solved(x):
    y, r, k = torch.zeros_like(x), x.clone(), 0
    while r.norm() > 0.1 and k < 9:
        y += 0.5 * r
        r -= 0.5 * r
        k += 1
    return y, k


def by_its_methods(x):
    y = x.new_zeros(3)
    if x[0] > 0:
        y.add_(1)
        y.mul_(x)
    y.clamp_(max=1.5)
    return y + x


def chosen_before(x):
    y = x.clone()
    if x[0] > 0:
        y = torch.ones(3)
    y[1] = 4.0
    return y


def of_sizes(x):
    n = x.shape[0]
    while n > 1:
        n -= 1
    n += len(x)
    return x * n


def counted_in_a_box(x):
    seen = [x]
    add = lambda: len(seen)  # noqa: E731
    seen[0] = x * 2
    return seen[0] * add()


SOLE = (written_and_kept, solved, by_its_methods, chosen_before, of_sizes, counted_in_a_box)


def after_it_was_kept(x):
    y = x.clone()
    out = [y]
    y[0] = 5.0
    return out[0]


def through_a_part(x):
    y = x.clone()
    z = y[0]
    y[0] = 5.0
    return z


def through_a_slice(x):
    y = x.clone()
    for i in range(2):
        z = y[i:]
        if x[i] > 0:
            y += 1.0
        x = x + z.sum()
    return x


def with_a_second_name(x):
    y = x.clone()
    z = y
    if x[0] > 0:
        z = x
    y[0] = 5.0
    return z


def in_a_list_of_lists(x):
    y = x.clone()
    first = [y]
    second = first + []  # noqa: RUF005
    first = None
    y[0] = 5.0
    return second[0]


def in_a_tuple(x):
    y = x.clone()
    both = (y, x)
    y[0] = 5.0
    return both[0] + both[1]


def in_an_iterator(x):
    y, total = x.clone(), 0.0
    for row in y:
        y[2] = 7.0
        total = total + row
    return total


def by_a_closure(x):
    y = x.clone()
    look = lambda: y.sum()  # noqa: E731
    y[0] = 5.0
    return look()


def from_the_last_round(x):
    y, before = x.clone(), x
    for _ in range(3):
        y[0] = y[0] + 1
        before, y = y, x.clone()
    return before + y


def of_the_last_round(x):
    y = before = x.clone()
    for i in range(3):
        before[0] = 9.0
        before, y = y, y + 1 if x[i] > 0 else y
    return before + y


def returned_as_it_is(x):
    y = x.clone()
    z = +y
    y[0] = 5.0
    return z


def one_of_two(x):
    y, z = x.clone(), x.clone()
    w = y if x[0] > 0 else z
    w[0] = 5.0
    return y + z


def one_of_a_list(x):
    parts = [x.clone(), x.clone()]
    i = 1 if x[0] > 0 else 0
    y = parts[i]
    parts[0][1] = 3.0
    return y


def handed_to_a_helper(x):
    y = x.clone()
    z = same(y)
    y[0] = 5.0
    return z


def same(x):
    return x


SEEN = (
    *(after_it_was_kept, through_a_part, through_a_slice, with_a_second_name, in_a_list_of_lists),
    *(in_a_tuple, in_an_iterator, by_a_closure, of_the_last_round, returned_as_it_is, one_of_two),
    *(one_of_a_list, handed_to_a_helper),
)


@pytest.mark.parametrize("function", SOLE, ids=lambda f: f.__name__)
def test_a_write_to_what_one_name_knows_tells_nothing(function: Any) -> None:
    assert not tells(function)


@pytest.mark.parametrize("function", SEEN, ids=lambda f: f.__name__)
def test_a_write_that_something_else_sees_tells(function: Any) -> None:
    assert tells(function)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("function", [*SOLE, from_the_last_round, *SEEN], ids=lambda f: f.__name__)
def test_both_are_the_loops(function: Any) -> None:
    assert_matches_loop(function, (XS,), batch_sizes=(1, 2, 7))


def test_threads_that_wrote_meet_those_that_did_not() -> None:
    def kept(x):
        best = x
        for i in range(3):
            y = best.clone()
            y[i] = -y[i]
            if y.sum() > best.sum():
                best = y
        return best + x

    assert_matches_loop(kept, (XS,), batch_sizes=(1, 2, 7))
    with autobatch.counts() as counts:
        autobatch.vmap(kept)(XS)
    with autobatch.counts() as more:
        autobatch.vmap(kept)(XS.repeat(9, 1))
    assert more.block_executions == counts.block_executions
