"""``functools.singledispatch`` and its methods: the class of an argument picks the function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch, singledispatchmethod
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from tests.oracle import assert_matches_loop

XS = torch.tensor([1, 5, 2, 9, 0, 4, 3])


class Counter:
    def __init__(self, k: Any) -> None:
        self.k, self.seen = k, 0

    @singledispatchmethod
    def put(self, v: Any, *more: Any, scale: int = 1) -> Any:
        self.seen += 1
        return self.k + scale

    @put.register
    def _(self, v: float, *more: Any, scale: int = 1) -> Any:
        self.seen += 10
        return v * scale + len(more)

    @put.register
    @staticmethod
    def _(v: list, *more: Any, scale: int = 1) -> Any:  # type: ignore[type-arg]
        return sum(v)

    @put.register
    @classmethod
    def _(cls, v: dict, *more: Any, scale: int = 1) -> Any:  # type: ignore[type-arg]
        return len(cls.__name__)

    @put.register
    def _(self, v: Tensor, *more: Any, scale: int = 1) -> Any:
        self.seen = self.seen + v
        if v > 3:
            return v * 2
        return v


class Above(Counter):
    @singledispatchmethod
    def put(self, v: Any) -> Any:  # type: ignore[override]
        return super().put(v) + 100


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x

    @singledispatchmethod
    def put(self, v: Any) -> Any:
        self.x = self.x + 1
        return self.x

    @put.register
    def _(self, v: str) -> Any:
        self.x = self.x * 2
        return self.x


@dataclass
class Leaf:
    v: Any


@dataclass
class Pair(Leaf):
    w: Any = 0


class Visitor:
    def __init__(self) -> None:
        self.depth, self.log = 0, []

    @singledispatchmethod
    def visit(self, node: Any) -> Any:
        raise NotImplementedError(type(node).__name__)

    @visit.register
    def _(self, node: Leaf) -> Any:
        self.depth += 1
        self.log.append("l")
        return node.v * 2

    @visit.register
    def _(self, node: Pair) -> Any:
        self.log.append("p")
        return self.visit(Leaf(node.v)) + self.visit(Leaf(node.w))

    @visit.register
    def _(self, node: tuple) -> Any:  # type: ignore[type-arg]
        return sum(self.visit(part) for part in node)


@singledispatch
def area(shape: Any) -> Any:
    raise TypeError("no area")


@area.register
def _(shape: Leaf) -> Any:
    return shape.v * shape.v


@area.register
def _(shape: Counter) -> Any:
    shape.seen += 1
    return shape.seen


def of_each_kind(n: Tensor) -> Any:
    counter = Counter(n)
    given = counter.put(1.5, 2, 3, scale=2), counter.put([1, 2]), counter.put({})
    return given, counter.put(n), counter.put("x"), counter.seen


def of_a_subclass(n: Tensor) -> Any:
    counter = Above(n)
    return counter.put("a"), counter.put(1.0), counter.put(n), counter.seen


def in_slots(n: Tensor) -> Any:
    slotted = Slotted(n)
    for i in range(int(n) % 3):
        slotted.put("a")
        slotted.put(i)
    return slotted.x


def visited(n: Tensor) -> Any:
    visitor = Visitor()
    tree = (Leaf(n), Pair(n, n + 1), (Leaf(1), Leaf(2.0))) if n > 2 else (Leaf(n),)
    return visitor.visit(tree), visitor.depth, "".join(visitor.log)


def handed_on(n: Tensor) -> Any:
    counter = Counter(n)
    put = counter.put
    found = put(1.0), put(n), list(map(counter.put, [1.0, "a"]))
    return found, counter.seen, put.__name__


def of_another_class_in_each_thread(n: Tensor) -> Any:
    counter = Counter(n)
    return counter.put(1.5 if n > 2 else "s"), counter.seen


def shadowed(n: Tensor) -> Any:
    counter = Counter(n)
    counter.put = lambda v: v + 1  # type: ignore[method-assign]
    return counter.put(n), Counter.put(counter, 1.5)


def of_none(n: Tensor) -> Any:
    return Counter(n).put()


def of_no_function(n: Tensor) -> Any:
    return Visitor().visit(n)


def areas(n: Tensor) -> Any:
    counter = Counter(n)
    total: Any = 0
    for i in range(3):
        total = total + area(Leaf(n + i)) + area(counter)
    return total, counter.seen


PROGRAMS = [
    of_each_kind, of_a_subclass, in_slots, visited, handed_on, shadowed, areas,
    of_another_class_in_each_thread, of_none, of_no_function,
]  # fmt: skip
WAYS = [
    {"plain": "never"}, {"plain": "never", "trace_after": 0}, {"engine": "program_counter"},
    {"engine": "sequential"}, {"executor": "vmap"}, {},
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_class_of_an_argument_picks(program: Callable[..., Any], way: dict[str, Any]) -> None:
    for _ in range(3):
        assert_matches_loop(program, (XS,), configurations=[way])


def test_picking_is_done_once_for_all_threads() -> None:
    with autobatch.counts() as counts:
        autobatch.vmap(areas, plain="never")(XS)
        autobatch.vmap(of_each_kind, plain="never")(XS)
    assert counts.fallbacks == 0
