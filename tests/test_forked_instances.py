"""Calls that give an instance which holds what their caller keeps: it is that, and no copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tests.oracle import assert_matches_loop


class Holder:
    def __init__(self, xs, v):
        self.xs = xs
        self.v = v


class Nested(Holder):
    def __init__(self, xs, v):
        super().__init__([xs, v], v)


@dataclass
class Record:
    xs: list
    v: object


def held(xs, v):
    found = Holder(xs, v)
    if v > 0:
        found.v = v * 2
    return found


def recorded(xs, v):
    found = Record(xs, v)
    if v > 0:
        found.v = v * 2
    return found


def nested(xs, v):
    found = Nested(xs, v) if v > 0 else Nested(xs, v * 2)
    return Record(found.xs[0], v)


def round_after_round(make):
    def program(x):
        own = [x[0]]
        for k in range(2):
            found = make(own, x[k])
        own.append(x[2])
        return len(found.xs), found.xs is own, found.v

    return program


def written_between(make):
    def program(x):
        own = [x[0]]
        first, second = make(own, x[1]), make(own, x[2])
        first.xs.append(x[2])
        return len(own), len(second.xs), first.xs is second.xs, second.v

    return program


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", [round_after_round, written_between])
@pytest.mark.parametrize("make", [held, recorded, nested])
def test_what_an_instance_holds_is_the_callers(
    make: Callable[..., Any], way: Callable[..., Any]
) -> None:
    xs = torch.tensor([[1.0, 2.0, -3.0], [-1.0, -2.0, 3.0], [4.0, 5.0, 6.0]])
    assert_matches_loop(way(make), [xs])
