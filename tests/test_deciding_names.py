"""Calls of ``sum``, ``map`` and the like become loops, only while that is what the name means.

Functions of equal code share a lowering: those that one ``def`` makes, with another function
captured each time, and one function whose module has come to mean something else by a name.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

from autobatch.vm.library import Library
from tests.oracle import assert_matches_loop

WAYS: tuple[dict[str, Any], ...] = (
    {"executor": "traced"},
    {"executor": "traced", "plain": "never", "trace_after": 0},
    {"executor": "compiled"},
    {"engine": "program_counter", "plain": "never"},
    {"engine": "sequential"},
)
N = torch.tensor([3, 1, 2])


def hold(function: Callable[..., Any], given: torch.Tensor = N) -> None:
    assert_matches_loop(function, (given,), configurations=WAYS, scalars="python")


def twice(items: Iterable[Any]) -> Any:
    return 2 * sum(items)


def folding(fold: Callable[..., Any]) -> Callable[[Any], Any]:
    def folded(n: Any) -> Any:
        return fold(k * n for k in range(1, 4))

    return folded


@pytest.mark.parametrize(
    "folds", [(sum, max, any, twice, sum), (twice, min, all, sum), (tuple, sum, max, tuple)]
)
def test_what_reduces_may_be_captured(folds: tuple[Callable[..., Any], ...]) -> None:
    for fold in folds:
        hold(folding(fold))


def within(fold: Callable[..., Any]) -> Callable[[Any], Any]:
    def outer(n: Any) -> Any:
        def inner(m: Any) -> Any:
            return fold(k * m for k in range(3))

        further = lambda m: fold(k + m for k in range(2))  # noqa: E731
        return inner(n) + further(n)

    return outer


def recursion(fold: Callable[..., Any]) -> Callable[[Any], Any]:
    def climbed(n: Any) -> Any:
        return 0 if n <= 0 else climbed(n - 1) + fold(k for k in range(n + 1))

    return climbed


@pytest.mark.parametrize("make", [within, recursion])
def test_so_it_may_by_functions_within_and_by_recursions(make: Callable[..., Any]) -> None:
    for fold in (sum, max, twice):
        hold(make(fold))


class Folder:
    def __init__(self, fold: Callable[..., Any]) -> None:
        self.fold = fold

    def folded(self, n: Any) -> Any:
        return self.fold(k * n for k in range(1, 4)) + self.most(n)

    def most(self, n: Any) -> Any:
        return self.fold(k for k in range(n + 1))


def test_so_it_may_be_an_attribute() -> None:
    for fold in (sum, max, twice):
        hold(Folder(fold).folded)


def numbering(number: Callable[..., Any]) -> Callable[[Any], Any]:
    def numbered(n: Any) -> Any:
        total = 0
        for at, item in number(k * n for k in range(3)):
            total += (at + 1) * item
        return total

    return numbered


def mapping(each: Callable[..., Any]) -> Callable[[Any], Any]:
    def mapped(n: Any) -> Any:
        return sum(each(lambda k: k + n, [1, 2]))

    return mapped


def entries(make: Callable[..., Any]) -> Callable[[Any], Any]:
    def second(n: Any) -> Any:
        return make((k, k * n) for k in range(3))[2]

    return second


def ones(items: Iterable[Any]) -> Any:
    return [(1, item) for item in items]


def tenfold(function: Callable[[Any], Any], items: Iterable[Any]) -> Any:
    return [10 * function(item) for item in items]


def reversed_list(items: Iterable[Any]) -> Any:
    return [value for _, value in items][::-1]


@pytest.mark.parametrize(
    "make, chosen",
    [
        (numbering, (enumerate, ones, enumerate)),
        (mapping, (map, tenfold, filter)),
        (entries, (dict, reversed_list, dict)),
    ],
)
def test_so_may_what_loops_go_through(
    make: Callable[..., Any], chosen: tuple[Callable[..., Any], ...]
) -> None:
    for each in chosen:
        hold(make(each))


def helper(n: Any) -> Any:
    return sum(k * n for k in range(4))


def by_helper(n: Any) -> Any:
    while n < 10:
        n = n + helper(n) + 1
    return n


@pytest.mark.parametrize("function", [helper, by_helper])
def test_a_name_of_the_module_may_come_to_mean_another(
    function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for found in (builtins.sum, max, lambda items: 100, builtins.sum):
        monkeypatch.setitem(globals(), "sum", found)
        hold(function)


class Namespace:
    fold: Any = sum


def by_attribute(n: Any) -> Any:
    return Namespace.fold(k * n for k in range(4))


def by_attribute_of_a_helper(n: Any) -> Any:
    while n < 10:
        n = n + by_attribute(n) + 1
    return n


@pytest.mark.parametrize("function", [by_attribute, by_attribute_of_a_helper])
def test_so_may_an_attribute(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for found in (builtins.sum, max, twice, builtins.sum):
        monkeypatch.setattr(Namespace, "fold", staticmethod(found))
        hold(function)


def test_functions_that_mean_the_same_share_a_lowering() -> None:
    library = Library()
    one, other, third = (folding(fold) for fold in (sum, sum, max))
    assert library.code_of(one) is library.code_of(other)
    assert library.code_of(one) is not library.code_of(third)
    assert library.code_of(third) is library.code_of(folding(max))
