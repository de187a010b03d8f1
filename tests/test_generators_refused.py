"""Functions that yield and do what others see: refused, with the place and what they do there."""

from __future__ import annotations

import copy
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import autobatch
from autobatch import SharedWriteError, UnsupportedError
from tests.test_generators_called import COUNTS, WAYS, drawn, extended, items, stepped

SEEN: list[list[int]] = [[1], [2]]
WEIGHTS = torch.zeros(2)


class Watched:
    noted = SEEN[0]

    def __init__(self, n: int) -> None:
        self.n = n

    @property
    def value(self) -> int:
        self.noted.append(self.n)
        return self.n

    def __add__(self, other: int) -> int:
        self.noted.append(other)
        return self.n


def appends(n: int) -> Iterator[int]:
    for i in range(n):
        SEEN[0].append(i)
        yield i


def appends_by_expression(n: int) -> Iterator[Any]:
    yield from (SEEN[0].append(i) for i in range(n))


def appends_by_inner(n: int) -> Iterator[Any]:
    yield from (i + j for i in range(n) for j in range(2) if SEEN[0].append(i))


def appends_to_given(found: list[Any], n: int) -> Iterator[Any]:
    yield from (found.append(i) for i in range(n))


def adds(n: int) -> Iterator[int]:
    for i in range(n):
        WEIGHTS[0] += 1
        yield i


def adds_to(x: Tensor) -> Iterator[Tensor]:
    x += 1
    yield x


def prints(n: int) -> Iterator[int]:
    for i in range(n):
        print(i)
        yield i


def values(each: Watched) -> Iterator[int]:
    yield each.value


def sums(each: Watched) -> Iterator[int]:
    yield each + 1


class Held:
    table = SEEN[0]

    def tables(self) -> Iterator[list[int]]:
        yield self.table

    def __bool__(self) -> bool:
        self.table.append(0)
        return True

    def __setitem__(self, key: int, value: int) -> None:
        SEEN[0].append(value)


class Kept:
    table = SEEN[0]

    def tables(self) -> Iterator[list[int]]:
        yield self.table


KEPT = Kept()
WATCHED = Watched(1)
NUMBERS = np.zeros(2)
NORM = nn.BatchNorm1d(2)
GOING = iter(range(1000))
ENTRIES: defaultdict[int, list[int]] = defaultdict(list)


def makes_and_asks(n: int) -> Iterator[int]:
    yield 1 if Held() else n


def makes_and_writes(n: int) -> Iterator[int]:
    held = Held()
    held[n] = n
    yield n


def reads_property(n: int) -> Iterator[int]:
    yield WATCHED.value + n


def maps(n: int) -> Iterator[Any]:
    yield from map(SEEN[0].append, range(n))


def norms(n: int) -> Iterator[float]:
    yield NORM(torch.ones(3, 2) * n).sum().item()


def copies(n: int) -> Iterator[int]:
    np.copyto(NUMBERS, n + 1.0)
    yield n


def adds_positional(n: int) -> Iterator[int]:
    np.add(NUMBERS, 1, NUMBERS)
    yield n


def goes_on(n: int) -> Iterator[int]:
    for value in GOING:
        yield value
        if value > n:
            return


def enters(n: int) -> Iterator[int]:
    yield len(ENTRIES[n])


def into_what_is_sent() -> Iterator[None]:
    given = yield
    given.append(1)
    yield


def deep(value: Any) -> Any:
    return value.poke()


def calls_deep(value: Any) -> Iterator[Any]:
    yield deep(value)


class Poked:
    def poke(self) -> int:
        SEEN[0].append(1)
        return 1


def sends(n: int) -> int:
    made = into_what_is_sent()
    next(made)
    made.send(SEEN[0])
    return n


def of_default_iterator(given: Iterator[int] = GOING) -> Iterator[int]:
    yield next(given)


def pops(n: int) -> Iterator[int]:
    [*[SEEN[0]]].pop().append(n)
    yield n


def substitutes(n: int) -> Iterator[str]:
    yield re.compile("a").sub(noting, "aa" * n)


def noting(match: Any) -> str:
    SEEN[0].append(1)
    return ""


def writes_table(n: int) -> int:
    for table in KEPT.tables():
        table.append(n)
    return n


def of_all() -> Iterator[list[int]]:
    yield from SEEN


def of_default(given: list[list[int]] = SEEN) -> Iterator[list[int]]:
    yield given[0]


def weights() -> Iterator[Tensor]:
    yield WEIGHTS


def fills_around(n: int) -> int:
    found: list[int] = []

    def inner() -> Iterator[int]:
        for i in range(n):
            found.append(i)
            yield i

    return sum(inner()) + len(found)


def counts_around(n: int) -> int:
    count = 0

    def inner() -> Iterator[int]:
        nonlocal count
        count += 1
        yield n

    return sum(inner()) + count


def reads_what_is_counted(n: int) -> int:
    count = 0

    def counts() -> None:
        nonlocal count
        count += 1

    def inner() -> Iterator[int]:
        counts()
        yield count

    return sum(inner())


def hands_on(n: int) -> int:
    def inner(k: int) -> Iterator[int]:
        yield k * n

    return sum(map(sum, map(inner, range(n))))


def appends_within(n: int) -> int:
    def inner() -> Iterator[int]:
        SEEN[0].append(n)
        yield n

    return sum(inner())


def prints_within(n: int) -> int:
    def inner() -> Iterator[int]:
        print(n)
        yield n

    return sum(inner())


def calls_writing_lambda(n: int) -> int:
    return sum(stepped(lambda i: SEEN[0].append(i) or i, n + 1))  # type: ignore[func-returns-value]


def norms_given(n: int) -> float:
    return sum(stepped(NORM, n)).sum().item()  # type: ignore[arg-type]


def adds_in_loop(n: int) -> int:
    for each in weights():
        each += n
    return 0


def writes_first(n: int) -> int:
    next(of_all()).append(n)
    return 0


def writes_default(n: int) -> int:
    for each in of_default():
        each.append(n)
    return 0


def prints_one(n: int) -> int:
    print(n)
    return n


REFUSED: dict[str, Callable[[int], Any]] = {
    "a list": lambda n: sum(appends(n)),
    "a tensor": lambda n: sum(adds(n)),
    "an operand": lambda n: sum(adds_to(torch.zeros(2) + n)),
    "a print": lambda n: sum(prints(n)),
    "a property": lambda n: sum(values(Watched(n))),
    "an operator": lambda n: sum(sums(Watched(n))),
    "a draw": lambda n: sum(drawn()),
    "a list, within a function": appends_within,
    "a print, within a function": prints_within,
    "a lambda": calls_writing_lambda,
    "a module that is given": norms_given,
    "a yielded list": lambda n: extended(list(of_all()), n),
    "a yielded list in a loop": lambda n: [each.append(n) for each in of_all()],
    "a yielded first": writes_first,
    "a default": writes_default,
    "a yielded tensor": adds_in_loop,
    "a class of its own": lambda n: sum(makes_and_asks(n)),
    "an item of its own": lambda n: sum(makes_and_writes(n)),
    "a property of a global": lambda n: sum(reads_property(n)),
    "a map": lambda n: len(list(maps(n))),
    "a module": lambda n: sum(norms(n)),
    "an array": lambda n: sum(copies(n)),
    "an operand of numpy's": lambda n: sum(adds_positional(n)),
    "an iterator": lambda n: sum(goes_on(n)),
    "an entry": lambda n: sum(enters(n)),
    "what is sent": sends,
    "a method that a helper calls": lambda n: sum(calls_deep(Poked())),
    "what a class holds": writes_table,
    "a default that goes on": lambda n: sum(of_default_iterator()),
    "a popped list": lambda n: sum(pops(n)),
    "a substitution": lambda n: len(list(substitutes(n))),
    "a given function": lambda n: sum(stepped(prints_one, n)),
    "an expression": lambda n: len(list(appends_by_expression(n))),
    "an expression within one": lambda n: len(list(appends_by_inner(n + 1))),
}


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", REFUSED)
def test_what_others_would_see_is_refused(
    name: str, way: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    batched = autobatch.vmap(REFUSED[name], scalars="python", **way)
    for _ in range(4):
        with pytest.raises((SharedWriteError, UnsupportedError)):
            batched(COUNTS)
    assert SEEN == [[1], [2]]
    assert not WEIGHTS.any() and not NUMBERS.any()
    assert not ENTRIES and NORM.running_mean is not None and not NORM.running_mean.any()
    assert next(copy.copy(GOING)) == 0
    assert not capsys.readouterr().out


@pytest.mark.parametrize("way", [way for way in WAYS if "plain" in way or "engine" in way], ids=str)
@pytest.mark.parametrize(
    ("program", "what"),
    [
        (fills_around, r"found.append\(i\)\n +\| +\^+ this may write what the function is given"),
        (counts_around, r"it reads count, which a function assigns by nonlocal"),
        (reads_what_is_counted, r"it reads count, which a function assigns by nonlocal"),
        (hands_on, r"it is handed on here"),
    ],
)
def test_what_is_captured_is_read(
    program: Callable[[int], int], what: str, way: dict[str, Any]
) -> None:
    """As plain Python alone it runs, where nobody sees what it does."""
    assert autobatch.vmap(program, scalars="python")(COUNTS).tolist() == list(
        map(program, COUNTS.tolist())
    )
    batched = autobatch.vmap(program, scalars="python", **{**way, "plain": "never"})
    for _ in range(4):
        with pytest.raises(UnsupportedError, match=what):
            batched(COUNTS)


def items_by_expression(values: Any) -> Iterator[Any]:
    yield from (value for value in values)


@pytest.mark.parametrize("way", [way for way in WAYS if "engine" not in way], ids=str)
@pytest.mark.parametrize("items", [items, items_by_expression])
def test_an_iterator_that_existed_before_is_not_gone_through(
    items: Callable[[Any], Iterator[Any]], way: dict[str, Any]
) -> None:
    """Threads would take each other's items."""
    going = iter(range(100))

    def program(n: int) -> int:
        return next(value for value in items(going) if value > n)

    with pytest.raises(SharedWriteError, match="uses up an iterator that existed before"):
        autobatch.vmap(program, scalars="python", **way)(COUNTS)
    assert next(going) == 0


def test_the_place_and_the_reason_are_told() -> None:
    for program, what in (
        (lambda n: sum(prints(n)), r"print\(i\)\n +\| +\^+ others may see what this does"),
        (lambda n: len(list(into([n]))), r"xs.pop\(\)\n +\| +\^+ this may write what the function"),
        (
            lambda n: len(list(appends_to_given([], n))),
            r"for i in range\(n\)\)\n +\| +\^+ others may",
        ),
        (lambda n: len(list(applied(str, n))), r"\^ it is not known what this calls"),
        (lambda n: sum(drawn()), r"\^ this draws, and randomness is 'error'"),
    ):
        with pytest.raises(UnsupportedError, match=what):
            autobatch.vmap(program, scalars="python", plain="never")(COUNTS)


def into(xs: list[int]) -> Iterator[int]:
    while xs:
        yield xs.pop()


def applied(function: Callable[[int], Any], n: int) -> Iterator[Any]:
    yield function(n)
