"""``StopIteration`` that the code of a generator expression raises (PEP 479), wherever it runs."""

from __future__ import annotations

import pytest
import torch

import autobatch
from autobatch.ir.parser import parse
from tests.oracle import CONFIGURATIONS, assert_matches_loop

N = torch.tensor([0, 1, 2, 3, 4, 3, 1])


def checked(n):
    if n > 2:
        raise StopIteration("above")
    return n * 2


def deep(n, depth):
    return checked(n) if depth == 0 else deep(n, depth - 1) + 1


def in_a_sum(n):
    it = iter([1, 2, 3])
    return sum(next(it) for _ in range(n.item()))


def in_a_list(n):  # no generator
    it = iter([1, 2, 3])
    return len([next(it) for _ in range(n.item())])


def in_a_dict(n):
    it = iter([1, 2, 3])
    return len(dict((i, next(it)) for i in range(n.item())))  # noqa: C402


def in_a_loop(n):
    it, total = iter([1, 2, 3]), n
    for item in (next(it) + n for _ in range(n.item())):
        total = total + item
    return total


def in_its_iterables(n):
    its = iter([[n], [n, n]])
    first = sum(item for item in next(its))  # taken where the expression stands
    return first + sum(item for _ in range(n.item()) for item in next(its))


def in_a_condition(n):
    it = iter([1, 2, 3])
    return any(next(it) > 9 for _ in range(n.item()))


def in_a_zip(n):
    it = iter([1, 2, 3])
    return [a * b for a, b in zip((next(it) for _ in range(n.item())), range(9), strict=False)][:1]


def under_a_name(n):
    items = (checked(n - i) for i in range(2))
    return next(items) + next(items)


def in_calls(n):
    return sum(deep(n, depth) for depth in range(3))


def caught(n):
    found = 0
    for i in range(4):
        try:
            found += max(deep(n - 2 + i, d) for d in range(2))
        except StopIteration:
            found += 1000
        except RuntimeError as error:
            found += 100 if isinstance(error.__cause__, StopIteration) else 10_000
    return found


def caught_outside(n):
    try:
        return in_calls(n) + sum(i for i in range(2))
    except RuntimeError as error:
        return n + len(str(error))


PROGRAMS = [
    *(in_a_sum, in_a_list, in_a_dict, in_a_loop, in_its_iterables, in_a_condition, in_a_zip),
    *(under_a_name, in_calls, caught, caught_outside),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("func", PROGRAMS)
def test_as_the_loop(func):
    assert_matches_loop(func, (N,), batch_sizes=(1, 2, 7))


@pytest.mark.parametrize("options", CONFIGURATIONS)
def test_cause_and_note(options):
    with pytest.raises(RuntimeError, match="generator raised StopIteration") as caught:
        autobatch.vmap(in_calls, **options)(N)
    assert type(caught.value.__cause__) is StopIteration and caught.value.__suppress_context__
    (note,) = caught.value.__notes__
    assert 'raise StopIteration("above")' in note and "Example index: 3" in note


def test_a_text_says_what_is_generated():
    program = autobatch.lower(in_a_loop)
    again = parse(str(program))
    assert str(again) == str(program) and " generated\n" in str(program)
    with pytest.raises(RuntimeError, match="generator raised StopIteration"):
        autobatch.execute(again, torch.tensor([1, 4]))
