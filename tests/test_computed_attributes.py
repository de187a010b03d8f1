"""Attributes that a descriptor computes when they are read, and may keep: ``cached_property``."""

from __future__ import annotations

import collections
from collections.abc import Callable
from functools import cached_property, partialmethod, singledispatchmethod
from typing import Any

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"executor": "vmap"},
    {"trace_after": 0},
    {"engine": "program_counter"},
    {"engine": "sequential"},
)
XS = torch.tensor([1.0, -1.0, 2.0, 3.0])


class Lazy:
    """Keeps what it has computed in the instance's attribute of the same name."""

    def __init__(self, function):
        self.function = function

    def __get__(self, instance, kind=None):
        if instance is None:
            return self
        value = self.function(instance)
        setattr(instance, self.function.__name__, value)
        return value


class Twice:
    def __get__(self, instance, kind=None):
        return instance.x * 2


class Base:
    def __init__(self):
        super().__init__()
        self.offset = 1


class Point(Base):
    twice = Twice()

    def __init__(self, x):
        super().__init__()
        self.x = x

    @Lazy
    def lazy(self):
        return self.x * 2 + self.offset

    @cached_property
    def cached(self):
        return self.x * 3 if self.x > 2 else self.x * 5


def kept_by_a_descriptor(x):
    point = Point(x if x > 0 else -x)
    first = point.lazy
    point.x = point.x + 1
    if x > 0:
        point.x = point.x * 2
    return first + point.lazy * 10 + point.twice


def kept_by_cached_property(x):
    point = Point(x if x > 0 else -x)
    other = point
    total = point.cached if x > 1 else x
    point.x = point.x + 1
    n = 0
    while n < 3:
        total = total + other.cached * 10 + point.twice
        other.x = other.x + 1
        n += 1
    return total


def asks(point, x):
    return point.cached + x


def kept_for_the_caller(x):
    point = Point(x)
    first = asks(point, x)
    point.x = point.x * 5
    return first + asks(point, x)


def forgotten(x):
    point = Point(x)
    first = point.cached
    point.x = point.x + 10
    del point.cached
    return first + point.cached


@pytest.mark.sampled(3)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    "program", [kept_by_a_descriptor, kept_by_cached_property, kept_for_the_caller, forgotten]
)
def test_as_the_loop(program: Callable[..., Any], options: Any) -> None:
    wanted = torch.stack([program(x) for x in XS])
    batched = autobatch.vmap(program, **options)
    for _ in range(3):
        assert torch.equal(batched(XS), wanted)


NAMES = {"one": Point(torch.ones(())), "two": Point(torch.ones(()) * 2)}


def of_a_table(x):
    for name, point in NAMES.items():
        if len(name) > 2:
            x = x * point.x + len(NAMES.keys())
    return x


def test_views_of_a_shared_dict_ask_its_objects_nothing() -> None:
    with autobatch.counts() as counts:
        found = autobatch.vmap(of_a_table)(XS)
    assert torch.equal(found, torch.stack([of_a_table(x) for x in XS]))
    assert counts.by_thread == 0


def test_the_init_of_object_does_nothing() -> None:
    with autobatch.counts() as counts:
        autobatch.vmap(lambda x: Point(x).x * 2)(XS)
    assert counts.by_thread == 0


class Answering:
    """Any attribute that it does not have is looked up in a table, dunders too."""

    def __init__(self, **values):
        self.__dict__["values"] = values

    def __getattr__(self, name):
        return self.__dict__["values"][name]

    def __call__(self, x):
        return x * self.scale


class Always:
    def __getattr__(self, name):
        return 3

    def __call__(self, x):
        return x + 1


CONFIG, ALWAYS = Answering(scale=2.0, act=torch.tanh), Always()


def configured(x):
    y = CONFIG.act(x) * CONFIG.scale
    if x > 0:
        y = CONFIG(y)
    return y


def answered(x):
    return ALWAYS(x) + ALWAYS.k if x > 0 else x


def handed(x):
    return scaled_by(x, CONFIG)


def scaled_by(x, how):
    return how(x) * how.scale if x > 0 else x


@pytest.mark.parametrize("func", [configured, answered, handed])
def test_the_engine_asks_no_getattr_for_what_it_looks_for(func):
    assert_matches_loop(func, (torch.tensor([1.0, -1.0, 0.5]),), batch_sizes=(1, 2, 3))


def of_cards():
    """Of classes that plain Python does not know, so that it runs some of their functions alone."""

    class Card:
        def __init__(self, rank, suit):
            self.rank, self.suit = rank, suit

        def __eq__(self, other):
            return self.rank == other.rank

        def __lt__(self, other):
            return self.rank < other.rank

        def __hash__(self):
            return hash((self.rank, self.suit))

    class Hand:
        def __init__(self, cards):
            self.cards = sorted(cards, reverse=True)

        @cached_property
        def counts(self):
            return collections.Counter(card.rank for card in self.cards)

        def most(self):
            return max(self.counts.values())

    def most_of_a_rank(cards):
        hand = Hand(Card(card // 4 + 2, card % 4) for card in cards.tolist())
        return hand.most()

    def added_to_what_is_kept(cards):
        hand = Hand(Card(card // 4 + 2, card % 4) for card in cards.tolist())
        found = hand.counts
        found[0] += 7
        return hand.most() + len(hand.counts)

    return most_of_a_rank, added_to_what_is_kept


@pytest.mark.parametrize("way", [{}, {"plain": "never"}, {"engine": "program_counter"}])
def test_what_computes_it_may_run_on_the_host(way):
    cards = torch.tensor([[3, 1, 50, 9, 51], [8, 20, 30, 4, 0], [5, 6, 7, 51, 4]])
    for function in of_cards():
        expected = [function(row) for row in cards]
        assert autobatch.vmap(function, **way)(cards).tolist() == expected


class Describing:
    """What its class gives is no function: it is made anew for whoever asks."""

    def __init__(self, scale: Any) -> None:
        self.scale = scale

    @singledispatchmethod
    def named(self, x: Any) -> str:
        return f"any {self.scale}"

    @named.register
    def _(self, x: int) -> str:
        return f"int {x * self.scale}"

    @named.register
    def _(self, x: str) -> str:
        return f"text {x} {self.scale}"

    def scaled(self, by: Any, more: Any = 0) -> Any:
        return self.scale * by + more

    twice = partialmethod(scaled, 2)
    twice_and_one = partialmethod(twice, 1)


def described(x: Any) -> tuple[str, Any]:
    describing = Describing(x)
    if x > 0:
        describing.scale = x + 1
    named = [describing.named(int(x)), describing.named("a"), describing.named(1.5)]
    return str(named), describing.twice_and_one()


@pytest.mark.parametrize("way", OPTIONS, ids=str)
def test_a_method_that_is_made_anew_for_whoever_asks(way: Any) -> None:
    assert_matches_loop(described, [XS], configurations=[way, {**way, "plain": "never"}])
