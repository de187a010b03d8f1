"""What is called is one of several: ``f = g if x else h``. Each of them is looked into, where plain
Python is proved to do as threads together do.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest

import autobatch
from tests.test_alone import outcome, same

LOG: list[Any] = []
OTHER: list[Any] = []
WORDS = ["abc", "d", "", "xy"]


def logs(word: str) -> int:
    LOG.append(word)
    return 1


def counts(word: str) -> int:
    return len(word)


def doubles(word: str) -> int:
    return 2 * len(word)


class Logging:
    def __init__(self, word: str) -> None:
        LOG.append(word)
        self.size = 1


class Counting:
    def __init__(self, word: str) -> None:
        self.size = len(word)

    def once(self) -> int:
        return self.size

    def twice(self) -> int:
        return 2 * self.size


class Doubling(Counting):
    def once(self) -> int:
        return 2 * self.size


def chosen(word: str) -> int:
    found = logs if len(word) > 1 else counts
    return found(word)


def chosen_outright(word: str) -> int:
    return (logs if len(word) > 1 else counts)(word)


def chosen_later(word: str) -> int:
    found = counts
    if len(word) > 1:
        found = logs
    return found(word)


def chosen_by_round(word: str) -> int:
    total = 0
    for each in range(2):
        found = logs if each else counts
        total += found(word)
    return total


def chosen_where_none_was(word: str) -> int:
    found = None
    if len(word) >= 0:
        found = logs
    return found(word) if found else 0


def chosen_in_a_handler(word: str) -> int:
    try:
        found = logs if word[0] else counts
    except IndexError:
        found = counts
    return found(word)


def chosen_class(word: str) -> int:
    kind: Any = Logging if len(word) > 1 else Counting
    return int(kind(word).size)


def chosen_method(word: str) -> int:
    put = LOG.append if len(word) > 1 else OTHER.append
    put(word)
    return 1


WRITING = [
    *(chosen, chosen_outright, chosen_later, chosen_by_round, chosen_where_none_was),
    *(chosen_in_a_handler, chosen_class, chosen_method),
]


@pytest.mark.parametrize("function", WRITING)
def test_one_that_writes_what_existed_before_is_refused(function: Any) -> None:
    LOG.clear()
    OTHER.clear()
    with pytest.raises(autobatch.SharedWriteError):
        autobatch.vmap(function)(autobatch.objects(WORDS))
    assert LOG == OTHER == []


def put(row: list[int]) -> int:
    row.append(1)
    return len(row)


def put_in_some(row: list[int]) -> int:
    found = put if len(row) > 1 else len
    return found(row)


def test_one_that_writes_its_argument_writes_a_copy() -> None:
    rows = [[1, 2], [3], [4, 5, 6]]
    before = copy.deepcopy(rows)
    assert autobatch.vmap(put_in_some)(autobatch.objects(rows)).tolist() == [3, 1, 4]
    assert rows == before


def of_functions(word: str) -> int:
    found = counts if len(word) > 1 else doubles
    return found(word)


def of_classes(word: str) -> int:
    kind = Counting if len(word) > 1 else Doubling
    return kind(word).once()


def of_methods(word: str) -> int:
    made = Counting(word)
    found = made.once if len(word) > 1 else made.twice
    return found()


def of_pythons(word: str) -> int:
    shorten = min if word else max
    return shorten(len(word), 2)


@pytest.mark.parametrize("function", [of_functions, of_classes, of_methods, of_pythons])
def test_those_that_write_nothing_run_as_plain_python(function: Any) -> None:
    assert same(function, WORDS)[0] == [function(word) for word in WORDS]
    assert outcome(function, WORDS)[1] == len(WORDS)


@dataclass(frozen=True)
class Point:
    x: int
    y: int

    @classmethod
    def of(cls, word: str) -> Point:
        return cls(len(word), word.count("a"))

    def __add__(self, other: Point) -> Point:
        return Point(self.x + other.x, self.y + other.y)


@dataclass
class Walk:
    at: Point

    def step(self, by: Point) -> Walk:
        self.at = self.at + by
        return self


def walked(word: str) -> int:
    found = Walk(Point.of(word))
    found.step(Point.of("ab")).step(Point(1, 1))
    return found.at.x * 10 + found.at.y


class Marked:
    mark = 0

    @classmethod
    def of(cls, word: str) -> Marked:
        made = cls()
        cls.mark = len(word)
        return made


def marked(word: str) -> int:
    return int(Marked.of(word).mark)


def test_a_class_method_that_only_makes_its_class() -> None:
    assert same(walked, WORDS)[0] == [walked(word) for word in WORDS]


def test_a_class_method_that_writes_its_class() -> None:
    with pytest.raises(autobatch.AutobatchError):
        autobatch.vmap(marked)(autobatch.objects(WORDS))
    assert Marked.mark == 0
