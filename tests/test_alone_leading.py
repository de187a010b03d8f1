"""Numbers and texts that existing instances have by some name are written to by nobody."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import pytest
import torch
from torch import nn

import autobatch
from tests.oracle import assert_matches_loop
from tests.test_alone_beginning import by_the_clock, ways  # noqa: F401

XS = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))


@dataclass
class Settings:
    rate: float = 1.0
    tables: list[dict[str, float]] = field(default_factory=lambda: [{"a": 0.5}, {"a": 0.25}])


class Booster:
    """Trees beside the number that their leaves are added to."""

    def __init__(self):
        self.base = 0.5
        leaves = {"split": 1, "cond": 0.0, "yes": {"leaf": -0.5}, "no": {"leaf": 0.25}}
        self.trees = [{"split": 0, "cond": 0.1, "yes": leaves, "no": {"leaf": 1.0}}] * 2

    def predict(self, x):
        margin, used = self.base, set()
        for tree in self.trees:
            while "leaf" not in tree:
                used.add(tree["split"])
                tree = tree["yes" if x[tree["split"]] < tree["cond"] else "no"]
            margin += tree["leaf"]
        return margin, len(used)


SETTINGS, BOOSTER = Settings(), Booster()


def settled(x):
    rate, seen = SETTINGS.rate, {}
    for table in SETTINGS.tables:
        rate *= table["a"]
        seen[len(seen)] = rate * x.sum()
    return seen[0] + seen[1]


@pytest.mark.parametrize("program", [settled, BOOSTER.predict])
def test_numbers_of_existing_instances_are_no_obstacle(ways, program):  # noqa: F811
    assert_matches_loop(program, (XS,), batch_sizes=(1, 7), configurations=[{}])
    assert all(ways)


class Holder:
    __slots__ = ("_kept", "extra", "number")
    of_class: list[float] = [0.0]  # noqa: RUF012

    def __init__(self, kept):
        self._kept, self.number = kept, 1


Holder.alias = Holder._kept


class Point(NamedTuple):
    noted: list[float]


class Open(tuple):
    """One of these has attributes."""


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.noted = nn.Linear(3, 3), [0.0]


class Failed(Exception):
    pass


KEPT = [0.0]
HOLDER, POINT, LAYER, FAILED = Holder(KEPT), Point(KEPT), Layer(), Failed(KEPT)
OPEN = Open()
OPEN.extra = KEPT
LAYER.noted = Holder.of_class = KEPT
NONES, LISTS = Settings(tables=0), Settings(rate=KEPT)


@lru_cache
def made(number):
    return Settings(KEPT if number else 1.0)


def of_slot(x):
    found = HOLDER._kept
    found += [1.0]
    return x


def of_alias(x):
    found = HOLDER.alias
    found += [1.0]
    return x


def of_class(x):
    found = HOLDER.of_class
    found += [1.0]
    return x


def of_tuple(x):
    found = (POINT, SETTINGS)[int(x.numel() > 3)].noted
    found += [1.0]
    return x


def of_open(x):
    found = OPEN.extra
    found += [1.0]
    return x


def of_module(x):
    found = LAYER.noted
    found += [1.0]
    return LAYER.inner(x)


def of_some(x):
    found = (NONES, LISTS)[int(x.numel() > 2)].rate
    found += [1.0]
    return x


def of_exception(x):
    try:
        raise FAILED
    except Failed as error:
        found = error.args[0]
    found += [1.0]
    return x


def of_cached(x):
    found = made(x.numel()).rate
    found += [1.0]
    return x


WRITING = [
    *(of_slot, of_alias, of_class, of_tuple, of_open, of_module, of_some, of_exception, of_cached)
]


@pytest.mark.parametrize("writes", WRITING)
def test_lists_of_existing_instances_are_not_written_to(ways, writes):  # noqa: F811
    try:
        with pytest.raises(autobatch.AutobatchError):
            autobatch.vmap(writes)(XS)
        left = KEPT.copy()
    finally:
        KEPT[:] = [0.0]
    assert left == [0.0]
    assert not any(ways)


def counted(x, given):
    """What is added to is a number at first, and later a list."""
    count = given.rate
    count += given.tables
    return count, x.sum()


def test_what_is_a_number_no_more_is_looked_at_again(ways):  # noqa: F811
    numbers = autobatch.objects([Settings(1.0, 2.0)] * 7)
    autobatch.vmap(counted)(XS, numbers)
    kept = [1.0]
    with contextlib.suppress(autobatch.AutobatchError):
        autobatch.vmap(counted)(XS, autobatch.objects([Settings(kept, [2.0])] * 7))
    assert kept == [1.0]
    assert ways == [True, False]


def test_an_existing_number_that_becomes_a_list_is_looked_at_again(ways):  # noqa: F811
    shared = Settings(1.0, 2.0)

    def program(x):
        count = shared.rate
        count += shared.tables
        return x.sum()

    batched, kept = autobatch.vmap(program), [1.0]
    batched(XS)
    shared.rate, shared.tables = kept, [2.0]
    with pytest.raises(autobatch.AutobatchError):
        batched(XS)
    assert kept == [1.0]
    assert ways == [True, False]
