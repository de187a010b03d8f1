"""Ranges, slices, iterators, named tuples and ``None`` where others stand more often."""

from __future__ import annotations

import operator
from collections import namedtuple
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import autobatch
from tests.oracle import CONFIGURATIONS, assert_matches_loop

Pair = namedtuple("Pair", ["first", "second"])
NUMBERS, PLACES = torch.tensor([5, 9, 4, 12, 7, 1]), torch.tensor([1, 0, 2, 3, 5, 0])


@dataclass
class Node:
    value: Any
    next: Any = None


def places_of_ranges(n, i):
    steps = range(2, n, 3)
    return (
        range(n)[i % n],
        range(n)[-1],
        steps[i % len(steps)] if steps else -1,
        [range(n), range(i)][i % 2][: i + 1],
    )


def beyond_a_range(n, i):
    return range(n - 3)[i]


def beyond_a_named_tuple(n, i):
    return Pair(n, i)[i]


def parts_of_slices(n, i):
    found = []
    for ask in (len, lambda part: part[0], lambda part: part[i]):
        try:
            found.append(ask(slice(n, i)))
        except TypeError as error:
            found.append(str(error))
    return str(found)


def attributes_that_iterators_lack(n, i):
    items = iter([n, i])
    try:
        found = getattr(items, "absent", n), hasattr(enumerate([n]), "absent"), 12 // i
    except ZeroDivisionError:
        found = hasattr(items, "__next__"), False, 0
    return found, next(items)


def no_room(n, i):
    said = []
    for each in (None, n, "word", (n, i), 2.5):
        try:
            each.left = i
        except AttributeError as error:
            said.append(str(error))
        try:
            del each.left
        except AttributeError as error:
            said.append(str(error))
    return str(said)


def at_the_end(n, i):
    node = Node(n, Node(i))
    while i > 0:
        node, i = node.next, i - 1
    node.value = 3
    return node.value


def an_item_of_an_instance(n, i):
    node = Node(n)
    try:
        del node[i]
    except TypeError as error:
        return str(error)


def an_item_of_a_set(n, i):
    return {n, i, 3}[0]


PROGRAMS = (
    *(places_of_ranges, beyond_a_range, beyond_a_named_tuple, parts_of_slices, no_room),
    *(attributes_that_iterators_lack, at_the_end, an_item_of_an_instance),
    an_item_of_a_set,
)
TENSORS = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])]
OF_TENSORS = {
    "text": lambda x: "%s" % x,  # noqa: UP031
    "part": lambda x: "%s" % x[0],  # noqa: UP031
    "bytes": lambda x: str(b"%a" % x),
    "array": lambda x: str(x * np.array([1.0, 2.0])),
    "none": lambda x: str(x == None),  # noqa: E711
    "fraction": lambda x: str(x + Fraction(1, 2)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_it_is_the_loops(program: Any) -> None:
    for ways in (CONFIGURATIONS, [{"executor": "compiled"}]):
        assert_matches_loop(
            program,
            [NUMBERS, PLACES],
            scalars="python",
            batch_sizes=(1, 3, 6),
            configurations=ways,
        )


def test_an_attribute_that_is_asked_for_is_no_threads_error() -> None:
    asking = autobatch.vmap(
        attributes_that_iterators_lack, scalars="python", on_error="isolate", plain="never"
    )
    found = [result.value for result in asking(NUMBERS, PLACES)]
    pairs = zip(NUMBERS.tolist(), PLACES.tolist(), strict=True)
    assert found == [attributes_that_iterators_lack(n, i) for n, i in pairs]


@pytest.mark.filterwarnings("ignore:__array_wrap__")
@pytest.mark.parametrize("name", OF_TENSORS)
def test_an_operator_of_a_tensor_and_what_is_none_is_the_hosts(name: str) -> None:
    program = OF_TENSORS[name]
    assert_matches_loop(program, [autobatch.objects(TENSORS)])
    assert_matches_loop(program, [torch.stack(TENSORS)])


def joined(x: Any) -> str:
    own = [1]
    same = operator.iconcat(own, [2]) is own
    return str((same, own, operator.iconcat("a", "b")))


@pytest.mark.parametrize(
    "program", [joined, lambda x: operator.iconcat(x, x), lambda x: operator.iconcat(int(x[0]), 2)]
)
def test_only_sequences_are_joined(program: Any) -> None:
    assert_matches_loop(program, [autobatch.objects(TENSORS)])
    assert_matches_loop(program, [torch.stack(TENSORS)])
