"""Results that nest deep, which stack as others do, and ones that hold themselves: objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

import autobatch
from autobatch.errors import OptionError, StackingError
from autobatch.results.nesting import rings
from tests.oracle import CONFIGURATIONS

XS = torch.tensor([1.5, -2.0, 3.0, 0.5])
WAYS = pytest.mark.parametrize("options", CONFIGURATIONS, ids=str)
DEEP = 1_500
"""Deeper than Python's stack has room for."""


class Node:
    """An object that holds itself: no structure."""

    def __init__(self, x):
        self.x, self.own = x, [self]


def ring(x):
    a = [x * 2]
    a.append(a)
    return a


def ring_of_dicts(x):
    d = {"x": x * 2}
    d["list"] = (d, [d])
    return d


def beside_a_ring(x):
    a = [x * 2]
    a.append(a)
    return x + 1, {"ring": a}


def ring_in_a_branch(x):
    a = [x * 2, 0]
    if x > 0:
        a[1] = a
    return a


def ring_or_list(x):
    a = [x * 2]
    a.append(a)
    return a if x > 0 else [x, a]


def inside_a_ring(x):
    d = {"x": x * 2}
    d["list"] = [d]
    return d["list"]


def nested(x):
    t = x * 2
    for _ in range(600):
        t = (t,)
    return t


def nested_deep(x):
    t = x * 2
    i = 0
    while i < DEEP:
        t, i = [t], i + 1
    return t


def innermost(t):
    depth = 0
    while isinstance(t, list | tuple):
        (t,), depth = t, depth + 1
    return t, depth


def run(program: Any, options: Mapping[str, Any], **more: Any) -> Any:
    return autobatch.vmap(program, **options, **more)(XS)


@WAYS
def test_what_holds_itself_comes_back_as_each_examples_own(options):
    for row, own in enumerate(run(ring, options)):
        assert own[1] is own
        assert torch.equal(own[0], XS[row] * 2)
    for row, own in enumerate(run(ring_of_dicts, options)):
        assert own["list"][0] is own
        assert own["list"][1][0] is own
        assert torch.equal(own["x"], XS[row] * 2)
    for row, own in enumerate(run(inside_a_ring, options)):
        assert own[0]["list"] is own
        assert torch.equal(own[0]["x"], XS[row] * 2)


@pytest.mark.sampled(3)
@WAYS
@pytest.mark.parametrize("chunk_size", [None, 3])
def test_what_lies_beside_it_stacks(options, chunk_size):
    whole, rest = run(beside_a_ring, options, chunk_size=chunk_size)
    assert torch.equal(whole, XS + 1)
    assert [own[1] is own for own in rest["ring"]] == [True] * 4
    moved, _ = run(beside_a_ring, options, chunk_size=chunk_size, out_dims=(-1, 0))
    assert torch.equal(moved, whole)


@WAYS
def test_it_does_not_stack_with_what_is_none(options):
    with pytest.raises(StackingError) as caught:
        run(ring_in_a_branch, options)
    assert "here a list of 2 at result[1], in thread 0" in str(caught.value)
    assert "thread 1 returns an int" in str(caught.value)
    with pytest.raises(StackingError) as caught:
        run(ring_or_list, options)
    assert "here a list of 2 that holds itself, in thread 0" in str(caught.value)
    assert "returns a list of 2, in thread 1" in str(caught.value)


@WAYS
def test_each_example_apart(options):
    results = run(ring_in_a_branch, options, on_error="isolate")
    assert [each.value[1] is each.value for each in results] == [True, False, True, True]


@pytest.mark.sampled(3)
@WAYS
def test_what_nests_deep_stacks(options):
    found, depth = innermost(run(nested, options))
    assert depth == 600
    assert torch.equal(found, XS * 2)


def test_what_nests_deeper_stacks():
    found, depth = innermost(autobatch.vmap(nested_deep, executor="vmap")(XS))
    assert depth == DEEP
    assert torch.equal(found, XS * 2)
    apart = autobatch.vmap(nested_deep, executor="vmap", on_error="isolate")(XS)
    assert [innermost(each.value) for each in apart] == [(x * 2, DEEP) for x in XS]


def test_a_ring_is_not_the_same_for_all():
    with pytest.raises(OptionError, match="differs by thread"):
        autobatch.vmap(ring, out_dims=None)(XS)


def test_only_what_lies_on_a_ring_is_an_object():
    inner = [1]
    a: list[Any] = [inner]
    a.append({"a": (a, inner)})
    outer = [a, inner]
    assert rings([outer]) == {id(part): part for part in (a, a[1], a[1]["a"])}
    assert rings([inner, Node(1)]) == {}
