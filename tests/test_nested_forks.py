"""Calls of what forked calls give: joined level by level, the inner ones first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.listeners import Counts
from autobatch.vm.invariants import checking
from tests.oracle import assert_matches_loop
from tests.test_fork_join import forked

NS = (torch.arange(8), torch.arange(8).flip(0))


def inner(x):
    if x > 3:
        return x - 1
    return x + 2


def outer(x):
    if x > 3:
        return x * 2
    return x + 1


def pair(x, y):
    return outer(inner(x)) + outer(inner(y))


def three_deep(x, y):
    return outer(outer(inner(x))) - outer(outer(inner(y)))


def one_inside(x, y):
    return outer(inner(x)) + outer(y)


def in_a_list(x, y):
    return [outer(inner(n)) for n in (x, y, x + y)]


def added_up(x, y):
    total = 0
    for n in (x, y, x + y):
        total += outer(inner(n))
    return total


def one_after_the_other(x, y):
    for _ in range(3):
        x = outer(inner(x) + y)
    return x


def used_twice(x, y):
    first = inner(x)
    return outer(first) + outer(inner(y)) + first


def of_two(x, y):
    return both(inner(x), y) + both(inner(y), inner(x))


def both(x, y):
    return x - y if x > y else y + 1


def recursive(x, y):
    if x < 1:
        return y % 3
    return recursive(below(x, y), 1) + recursive(below(x, y + 1), 2)


def below(x, y):
    return recursive(x - 1, y) % x


def counted(func: Callable[..., Any], *args: Any, **options: Any) -> Counts:
    with checking(), autobatch.counts() as counts:
        autobatch.vmap(func, **options)(*args)
    return counts


FORMS = [pair, three_deep, one_inside, in_a_list, added_up, one_after_the_other]
FORMS += [used_twice, of_two, recursive]


def small(func: Callable[..., Any]) -> tuple[Tensor, ...]:
    """Numbers of which a call makes few others."""
    return tuple(ns.clamp(max=3) for ns in NS) if func is recursive else NS


@pytest.mark.sampled(6)
@pytest.mark.parametrize("scalars", ["python", "tensor"])
@pytest.mark.parametrize("func", FORMS, ids=lambda f: f.__name__)
def test_as_the_loop(func, scalars):
    assert_matches_loop(func, small(func), scalars=scalars)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("width", [1, 5])
@pytest.mark.parametrize("func", FORMS, ids=lambda f: f.__name__)
def test_in_parts(func, width):
    assert_matches_loop(func, small(func), scalars="python", max_width=width)


@pytest.mark.parametrize(
    ("func", "inner_calls", "outer_calls"),
    [(pair, 1, 1), (three_deep, 1, 2), (in_a_list, 1, 1), (added_up, 1, 1), (used_twice, 1, 1)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_inner_calls_run_as_one_then_the_outer(func, inner_calls, outer_calls):
    counts = counted(func, *NS)
    assert counts.by_block["inner", 0] == inner_calls
    assert counts.by_block["outer", 0] == outer_calls


def test_a_call_that_only_one_side_has_keeps_no_other_from_meeting():
    """The outer calls meet, as they would if the inner one were none of a program function."""
    assert counted(one_inside, *NS).by_block["outer", 0] == 1


def test_what_needs_itself_is_not_put_off():
    assert "defer[fork" not in str(forked(one_after_the_other).function)


def test_the_text_tells_what_waits():
    assert str(forked(pair).function).count("defer[fork (_)]") == 2


# Exceptions.


def fails_at_two(x):
    if x == 2:
        raise ValueError(int(x))
    return x


def fails_when_even(x):
    if x % 2 == 0:
        raise KeyError(int(x))
    return x


def fails(x, y):
    return fails_when_even(fails_at_two(x)) + fails_when_even(fails_at_two(y))


@pytest.mark.parametrize("batch", [(0, 2), (1, 2), (2, 0), (1, 0), (3, 5), (3, 2)])
def test_the_first_exception_in_program_order(batch):
    """The outer call of the left operand comes before the inner one of the right."""
    xs, ys = torch.tensor([5, 3, batch[0]]), torch.tensor([7, 1, batch[1]])
    assert_matches_loop(fails, [xs, ys], scalars="python")


def test_isolated_exceptions():
    xs, ys = torch.tensor([0, 1, 2, 1, 3]), torch.tensor([2, 2, 0, 0, 5])
    with checking():
        results = autobatch.vmap(fails, scalars="python", on_error="isolate")(xs, ys)
    assert [repr(result.exception) for result in results] == [
        "KeyError(0)",
        "ValueError(2)",
        "ValueError(2)",
        "KeyError(0)",
        "None",
    ]


# What others name, and effects.


def first_of(items):
    if len(items) > 2:
        return items
    return [*items, 0]


def grown(n):
    if n > 3:
        return [n, n, n]
    return [n]


def handed_through(x, y):
    """What the outer call gives may be what the inner one gave, which is written later."""
    inner_list = grown(x)
    left, right = first_of(inner_list), first_of(grown(y))
    inner_list.append(7)
    return left, right


def written_in_between(x, y):
    item = torch.zeros(2)
    left = scaled(shifted(x), item)
    item += 1
    right = scaled(shifted(y), item)
    return left + right


def shifted(x):
    return x + 1 if x > 2 else x


def scaled(x, item):
    return item + x if x > 2 else item - x


@pytest.mark.parametrize("func", [handed_through, written_in_between], ids=lambda f: f.__name__)
def test_what_is_written_in_between(func):
    xs, ys = NS
    if func is handed_through:
        ns = xs[4:], ys[:4]
        assert_matches_loop(func, ns, scalars="python")
    assert_matches_loop(written_in_between, NS)


class Loud:
    """An effect that shows only when a method is met."""

    def count(self, n):
        print("count", n)
        return n + 1


def counting(loud, n):
    if n > 3:
        return loud.count(n)
    return n


def counts_twice(x, y):
    loud = Loud()
    return counting(loud, counting(loud, x)) + counting(loud, counting(loud, y))


def test_effects_that_show_late_keep_their_order(capsys):
    for x, y in ((4, 7), (1, 4), (5, 2)):
        expected = counts_twice(x, y)
        told = capsys.readouterr().out
        for _ in range(2):
            found = autobatch.vmap(counts_twice, scalars="python")(
                torch.tensor([x]), torch.tensor([y])
            )
            assert found.tolist() == [expected]
            assert capsys.readouterr().out == told


# Gradients and draws.


def bent(x: Tensor) -> Tensor:
    return x.sin() if x > 0 else x * 2


def bends(x: Tensor, y: Tensor) -> Tensor:
    return bent(bent(x)) * bent(bent(y))


def test_gradients():
    x = torch.linspace(-1, 1, 7, requires_grad=True)
    y = torch.linspace(2, -1, 7, requires_grad=True)
    (batched,) = torch.autograd.grad(autobatch.vmap(bends)(x, y).sum(), [x])
    (looped,) = torch.autograd.grad(sum(bends(*pair_) for pair_ in zip(x, y, strict=True)), [x])
    torch.testing.assert_close(batched, looped)


def drawn(x: Tensor) -> Tensor:
    return x + torch.randn(()) if x > 0 else x - torch.rand(())


def draws(x: Tensor, y: Tensor) -> Tensor:
    return drawn(drawn(x)) + drawn(drawn(y))


def test_draws_are_those_of_calls_in_order():
    xs, ys = torch.linspace(-1, 1, 7), torch.linspace(2, -1, 7)
    on = autobatch.vmap(draws, seed=3)(xs, ys)
    off = autobatch.vmap(draws, seed=3, fork="off")(xs, ys)
    assert torch.equal(on, off)
