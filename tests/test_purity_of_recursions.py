"""What functions that call themselves, or each other, write and give back: found to its end.

A call may write the parameter of its caller's that it gets in another place.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from autobatch.vm import library as library_module
from autobatch.vm.library import Library
from autobatch.vm.purity import Names
from tests.generator.record import load_module
from tests.oracle import assert_matches_loop

NUMBERS = torch.tensor([4, 3, 0, 2, 1])


def swapped(n, a, b):
    if n <= 0:
        return 1
    a += [n] if type(a) is list else n
    return swapped(n - 1, b, a) + 1


def swapped_lists(n):
    seen = [0]
    total = swapped(n, 1, seen) + swapped(n, 2, seen)
    return total, str(seen)


def doubled(n, a, b):
    if n <= 0:
        return 1
    a *= 2
    return doubled(n - 1, b, a) + 1


def swapped_tensors(n):
    seen = torch.ones(2)
    total = doubled(n, 1, seen) + doubled(n, 2, seen)
    return total, seen


def first(n, a, b):
    if n <= 0:
        return 1
    a *= 2
    return second(n - 1, a, b) + 1


def second(n, a, b):
    return first(n - 1, b, a) + third(n - 1, b, a)


def third(n, a, b):
    if n <= 0:
        return 1
    return 1 + second(n - 2, a, b)


def swapped_in_a_ring(n):
    seen = [0]
    total = first(n, 1, seen) + first(n, 2, seen)
    return total, str(seen)


def turned(n, a, b, c):
    if n <= 0:
        return 0
    a *= 2
    return turned(n - 1, b, c, a)


def turned_threefold(n):
    seen = torch.ones(2)
    total = turned(n, 1, 2, seen) + turned(n, 3, 4, seen)
    return total, seen


def handed_back(n, a, b):
    if n <= 0:
        return a
    return handed_back(n - 1, b, a)


def given_back(n):
    one, other = [1], [2]
    left, right = handed_back(n, one, other), handed_back(n + 1, one, other)
    left.append(n)
    return left is one, right is other, str((one, other, left, right))


def leaves(n, xs):
    return n


def adds(n, xs):
    xs += [n]
    return n


def calling(function):
    def inner(n, xs):
        return 0 if n <= 0 else function(n, xs) + inner(n - 1, xs)

    return inner


leaving, adding = calling(leaves), calling(adds)


def both(n, xs):
    return leaving(n, xs) + adding(n, xs)


wrapped = calling(adding)


def wrapped_twice(n):
    seen = [0]
    total = wrapped(n, seen) + wrapped(n + 1, seen)
    return total, str(seen)


def of_one_code(n):
    seen = [0]
    total = both(n, seen) + both(n + 1, seen)
    return total, str(seen)


PROGRAMS = [
    of_one_code,
    wrapped_twice,
    swapped_lists,
    swapped_tensors,
    swapped_in_a_ring,
    turned_threefold,
    given_back,
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("func", PROGRAMS)
def test_what_a_recursion_writes_in_other_places_is_not_lost(func):
    assert_matches_loop(func, (NUMBERS,), batch_sizes=(1, 2, 5), scalars="python")


@pytest.mark.parametrize("func", [swapped, doubled, first, second, third, turned, both, wrapped])
def test_each_place_that_may_be_written(func):
    library = Library()
    purity = library.purity(library.code_of(func), Names.of(func))
    assert purity.writes == {param.name for param in purity.params} - {"n"}


RING = 8


def ring() -> Any:
    """Functions that all call each other."""
    lines: list[str] = []
    for place in range(RING):
        calls = " + ".join(f"ring_{other}(n - 1 - {other})" for other in range(RING))
        lines += [f"def ring_{place}(n):", f"    return 1 if n <= 0 else {calls}", "", ""]
    return load_module("\n".join(lines))


def test_functions_that_all_call_each_other_are_judged_soon(monkeypatch):
    """Each once a round, not once for each way there."""
    looks: list[int] = []
    analysis = library_module.Analysis
    monkeypatch.setattr(
        library_module, "Analysis", lambda *args: looks.append(1) or analysis(*args)
    )
    library, first_of = Library(), ring().ring_0
    assert library.purity(library.code_of(first_of), Names.of(first_of)).is_silent
    assert len(looks) <= 3 * RING
