"""Operations that call a function of the user's, which fails for some threads: those below go on.

The values that they have then decide what they raise, so ``right`` raises where one is wrong.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.oracle import CONFIGURATIONS, assert_matches_loop

N = torch.tensor([0, 1, 2, 3, 4, 3])


class Said:
    """Says what it is asked of ``n``, but not of 3."""

    def __init__(self, n):
        self.n = n

    def known(self):
        if self.n == 3:
            raise ValueError("not of 3")
        return self.n.item()

    def __bool__(self):
        return self.known() > 0

    def __contains__(self, item):
        return self.known()  # no bool

    def __eq__(self, other):
        return self.known() == other.n

    def __radd__(self, other):
        return other + self.known()

    __hash__ = None  # type: ignore[assignment]


def key_of(n):
    def key(value):
        if n > 2:
            raise ValueError("above 2")
        return -value

    return key


def right(flag):
    if not flag:
        raise KeyError("a wrong value")
    return 1


def denied(n):
    return right((not Said(n)) is (n == 0).item())


def contained(n):
    return right((1 in Said(n)) is (n != 0).item()) + right((1 not in Said(n)) is (n == 0).item())


def unequal(n):
    return right((Said(n) != Said(n)) is False)


def unequal_lists(n):
    return right(([Said(n), 1] != [Said(n - 1), 1]) is True)


def decided_before(n):  # what follows the first that decides is not asked
    three = Said(torch.tensor(3))
    flags = any([n >= 0, three]), all([n < 0, torch.ones(2)]), [Said(n), three] == [Said(n), 1]
    return right(flags == (True, False, False))


def added(n):
    return right(sum([Said(n), Said(n)]) == 2 * n.item())


def in_order(n):
    return right(sorted([3, 1, 2], key=key_of(n)) == [3, 2, 1])


def the_least(n):
    return right(min([3, 1, 2], key=key_of(n)) == 3)


def mapped(n):
    return right(list(map(key_of(n), [3, 1])) == [-3, -1])


def gone_through(n):
    total = 0
    for pair in zip(map(key_of(n), [3, 1]), "ab", strict=True):
        total += pair[0]
    return right(total == -4)


def by_a_library(n):
    return right(list(itertools.accumulate(filter(key_of(n), [3, 0, 1]))) == [3, 4])


PROGRAMS = [
    *(denied, contained, unequal, unequal_lists, decided_before, added),
    *(in_order, the_least, mapped, gone_through, by_a_library),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("func", PROGRAMS)
def test_as_the_loop(func):
    assert_matches_loop(func, (N,), configurations=CONFIGURATIONS[:3])
    assert_matches_loop(func, (N[:3],), configurations=CONFIGURATIONS[1:3])
