"""Operators whose methods give NotImplemented for some examples, or for all: who is asked next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.oracle import assert_matches_loop

NUMBERS = torch.tensor([0, 1, 2, 3, 4, 5, 7])
FLOATS = NUMBERS / 4


class Asked:
    """Notes who is asked; odd ones do not know."""

    def __init__(self, value: int) -> None:
        self.value, self.told = value, list[str]()

    def say(self, name: str) -> Any:
        self.told.append(name)
        return NotImplemented if self.value % 2 else self.value

    def __add__(self, other: Any) -> Any:
        return self.say("add")

    def __radd__(self, other: Any) -> Any:
        return self.say("radd")

    def __iadd__(self, other: Any) -> Any:
        self.told.append("iadd")
        return NotImplemented if self.value % 3 else self

    def __isub__(self, other: Any) -> Any:
        return self.say("isub")

    def __ge__(self, other: Any) -> Any:
        return self.say("ge")

    def __le__(self, other: Any) -> Any:
        return self.say("le")

    def __eq__(self, other: Any) -> Any:
        return self.say("eq")

    def __mul__(self, other: Any) -> Any:
        return NotImplemented

    def __rmul__(self, other: Any) -> Any:
        return NotImplemented

    def __index__(self) -> int:
        return 2


class Other(Asked):
    def __radd__(self, other: Any) -> Any:
        return self.say("other radd")


def tried(function: Callable[[], Any]) -> str:
    try:
        found = function()
    except TypeError as error:
        return str(error)
    return str(found if isinstance(found, int | list) else type(found).__name__)


def operators(n, x):
    one, other = Asked(n), Other(n // 2)
    found = [
        tried(lambda: one + one),
        tried(lambda: one + Asked(n)),
        tried(lambda: other + other),
        tried(lambda: one + 3),
        tried(lambda: 3 + one),
        tried(lambda: one + other),
        tried(lambda: other + one),
        tried(lambda: one >= 2),
        tried(lambda: one >= other),
        tried(lambda: other.value >= one),
        tried(lambda: one == 4),
        tried(lambda: one != 4),
        tried(lambda: one == other),
        tried(lambda: one == one),
        tried(lambda: one * 2),
        tried(lambda: [n] * one),
        tried(lambda: [n] + one),  # noqa: RUF005
    ]
    return str(found), str(one.told), str(other.told), x * 2


def in_place(n, x):
    one, held = Asked(n), []
    first = one
    try:
        one += 1
        held.append(one is first or one)
        first -= 1
        held.append(first)
    except TypeError as error:
        held.append(str(error).replace("=", ""))
    return str(held), str(Asked(n).told if isinstance(one, int) else one.told), x * 2


def answers(n, x):
    """None of it is caught: the example's that fails first."""
    return (Asked(n) + 1) * x


class Put:
    def __setitem__(self, key: Any, value: Any) -> None:
        pass


class Taken:
    def __delitem__(self, key: Any) -> None:
        pass


def one_of_two(n, x):
    told = []
    put, taken = Put(), Taken()
    try:
        del put[n]
    except (AttributeError, TypeError) as error:
        told.append(repr(error))
    try:
        taken[n] = x
    except (AttributeError, TypeError) as error:
        told.append(repr(error))
    try:
        del taken[n]
        put[n] = x
        put[n] += x
    except (AttributeError, TypeError) as error:
        told.append(repr(error))
    return str(told), x


class Lowered:
    """Its ``-=`` is not its ``-``, and it has no ``+=``."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __isub__(self, other: Any) -> Any:
        self.value += 1
        return self

    def __sub__(self, other: Any) -> Any:
        return 100

    def __lt__(self, other: Any) -> Any:
        return self.value < other.value


def each_its_own(n, x):
    one, other = Lowered(n), Lowered(3)
    least = min(one, other)
    again = least
    least -= 3
    kept = sorted([one, other])
    kept[0] -= 1
    return one.value, other.value, least is again, x


@pytest.mark.parametrize("func", [each_its_own, operators, in_place, answers, one_of_two])
def test_who_is_asked(func: Callable[..., Any]) -> None:
    def program(n: Any, x: Any) -> Any:
        return func(int(n), x)

    assert_matches_loop(program, [NUMBERS, FLOATS], batch_sizes=[None, 1, 2], fork="off")


def test_where_all_know() -> None:
    assert_matches_loop(answers, [NUMBERS * 2, FLOATS])
