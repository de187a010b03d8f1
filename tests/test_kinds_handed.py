"""Classes that host code is given to call (``map(Node, xs)``), whose ``__init__`` is the user's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Any

import pytest

import autobatch
from autobatch.errors import AutobatchError

TEXTS = ["ab", "c", "", "dda"]
SHARED = [[1], [2, 3]]
SEEN: list[Any] = []
WAYS: list[dict[str, Any]] = [
    {},
    {"plain": "never"},
    {"plain": "never", "trace_after": 0},
    {"plain": "never", "engine": "program_counter"},
    {"engine": "sequential"},
]


class Grown:
    def __init__(self, row: list[int]) -> None:
        row.append(8)
        self.row = row


class Heir(Grown):
    pass


class Noting:
    def __init__(self, value: Any = 1) -> None:
        SEEN.append(value)
        self.value = value


class Printing:
    def __init__(self, value: Any) -> None:
        print("made", value)
        self.value = value


class Letter:
    """What it makes and writes is its own."""

    def __init__(self, letter: str, *more: int, size: int = 2) -> None:
        self.letters = [letter]
        self.letters.append(letter * size)
        self.note(*more)

    def note(self, *more: int) -> None:
        self.more = sum(more)

    def __lt__(self, other: Letter) -> bool:
        return self.letters > other.letters


class Late:
    def __init__(self, row: list[int]) -> None:
        self.row = row
        self.row.append(7)


class Later:
    def __init__(self, row: list[int]) -> None:
        self.row = row
        grow(self)


def grow(each: Later) -> None:
    each.row += [6]


@dataclass
class Posted:
    row: list[int]

    def __post_init__(self) -> None:
        self.row.append(8)


@dataclass(frozen=True)
class Noted:
    text: str
    more: InitVar[int] = 3

    def __post_init__(self, more: int) -> None:
        SEEN.append(more)


@dataclass(frozen=True)
class Counted:
    """What it writes is its own."""

    text: str
    more: InitVar[int] = 3
    counts: list[int] = field(default_factory=list)

    def __post_init__(self, more: int) -> None:
        self.counts.append(more + len(self.text))


class Held(dict[str, int]):
    def __init__(self, letter: str) -> None:
        super().__init__({letter: 1})
        self["size"] = 2


def maps_what_existed(text: str) -> int:
    return len(list(map(Grown, SHARED))) + len(text)


def maps_an_heir(text: str) -> int:
    return len(list(map(Heir, [[len(text)], SHARED[0]])))


def maps_noting(text: str) -> int:
    return len(list(map(Noting, text + "x")))


def sorts_by(text: str) -> int:
    return max(text + "a", key=Noting).count("a") + 1  # type: ignore[arg-type]


def applies(text: str) -> int:
    return len(list(map(partial(Noting), text + "x")))


def makes_entries(text: str) -> int:
    entries = defaultdict(Noting)
    return sum(entries[letter].value for letter in text + "x")


def maps_late(text: str) -> int:
    return len(list(map(Late, SHARED))) + len(text)


def maps_later(text: str) -> int:
    return len([*map(Later, [[len(text)], SHARED[0]])])


def maps_posted(text: str) -> int:
    return len(list(map(Posted, SHARED))) + len(text)


def maps_noted(text: str) -> int:
    return len(list(map(Noted, text + "x")))


REFUSED = [
    *(maps_late, maps_later, maps_posted, maps_noted),
    *[maps_what_existed, maps_an_heir, maps_noting, sorts_by, applies, makes_entries],
]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("function", REFUSED)
def test_what_others_would_see_is_refused(function: Callable[..., Any], way: Any) -> None:
    for _ in range(3):
        with pytest.raises(AutobatchError, match="existed before"):
            autobatch.vmap(function, **way)(autobatch.objects(TEXTS))
        assert SHARED == [[1], [2, 3]] and not SEEN


def prints(text: str) -> int:
    return len(list(map(Printing, text)))


def prints_the_same(text: str) -> int:
    return len(text) + len(list(map(Printing, "xy")))


def makes(text: str) -> tuple[int, str]:
    letters = [*map(Letter, text, range(9)), *map(partial(Letter, size=3), text)]
    best = sorted(letters) + sorted(text, key=Letter)  # type: ignore[arg-type,operator]
    held = sum(each["size"] for each in map(Held, text))
    held += sum(each.counts[0] for each in map(Counted, text, range(4)))
    rows = [each.row for each in map(Late, [[len(text)], [2]])]
    held += sum(map(len, rows))
    return sum(each.more for each in letters) + held, "".join(map(str, best[-1:])).lower()[:1]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_result_is_the_loops(way: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for function in (prints, prints_the_same):
        wanted = [function(text) for text in TEXTS]
        said = capsys.readouterr().out
        for _ in range(4):
            found = autobatch.vmap(function, **way)(autobatch.objects(TEXTS))
            assert found.tolist() == wanted
            assert capsys.readouterr().out == said
    for _ in range(4):
        numbers, letters = autobatch.vmap(makes, **way)(autobatch.objects(TEXTS))
        assert list(zip(numbers.tolist(), letters, strict=True)) == [makes(text) for text in TEXTS]
