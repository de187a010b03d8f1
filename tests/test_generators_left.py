"""Own generators that do something at their end: gone through, or refused where they are left."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch import UnsupportedError
from autobatch.batching import generators

TEXTS = ["ab", "da", "cdd", "d"] * 2
WAYS: list[dict[str, Any]] = [
    {"plain": "never"},
    {"plain": "never", "trace_after": 0},
    {"plain": "never", "executor": "vmap"},
    {"plain": "never", "engine": "program_counter"},
    {"engine": "sequential"},
    {"stateful": "sequential"},
]


class Letters:
    def __init__(self, text: str) -> None:
        self.text, self.told = text, list[str]()

    def __iter__(self) -> Iterator[str]:
        try:
            yield from self.text
        finally:
            self.told.append(".")


class Opened(Letters):
    def __iter__(self) -> Iterator[str]:
        with self.open():
            for letter in self.text:
                yield letter.strip()

    @contextmanager
    def open(self) -> Iterator[None]:
        yield
        self.told.append("closed")


class Within(Letters):
    """What it goes through does something."""

    def letters(self) -> Iterator[str]:
        try:
            yield from self.text
        finally:
            self.told.append("!")

    def __iter__(self) -> Iterator[str]:
        for letter in self.letters():
            yield letter.strip()


class Simple(Letters):
    def __iter__(self) -> Iterator[str]:
        for letter in self.text:
            yield letter.strip()
        self.told.append("end")


class Given(Letters):
    """What it goes through is another's, which does something."""

    def __init__(self, text: str) -> None:
        self.letters = Letters(text)
        self.told = self.letters.told

    def __iter__(self) -> Iterator[str]:
        for letter in self.letters:
            yield letter.strip()


class Handed(Given):
    def __iter__(self) -> Iterator[str]:
        return map(str.strip, self.letters)


class Keyed(Mapping[str, str]):
    """A class of the library's goes through it."""

    def __init__(self, text: str) -> None:
        self.text, self.told = text, list[str]()

    def __getitem__(self, key: str) -> str:
        return key * 2

    def __len__(self) -> int:
        return len(self.text)

    def __iter__(self) -> Iterator[str]:
        try:
            yield from dict.fromkeys(self.text)
        finally:
            self.told.append(".")


def whole(kind: type[Letters], text: str, x: Tensor) -> Tensor:
    letters = kind(text)
    for letter in letters:
        if letter == "d":
            x = x + 10
        x = x + 1
    for _, letter in zip(itertools.count(), [*letters], strict=False):
        x = x + len(letter)
    return x + 100 * len(letters.told)


def collected(kind: type[Letters], text: str, x: Tensor) -> Tensor:
    letters = kind(text)
    x = x + sum(letter == "d" for letter in letters) + len(list(letters))
    x = x + ("d" in letters) + 10 * any(map(str.isupper, letters))
    first, *_ = letters
    return x + len(first) + 100 * len(letters.told)


def broken(kind: type[Letters], text: str, x: Tensor) -> Tensor:
    letters = kind(text)
    for letter in letters:
        if letter == "d":
            break
        x = x + 1
    return x + 100 * len(letters.told)


def named(kind: type[Letters], text: str, x: Tensor) -> Tensor:
    letters = kind(text + "-")
    given = iter(letters)
    x = x + len(next(given))
    if text == "d":
        x = x + 1
    return x + 100 * len(letters.told)


def first_of_each(kind: type[Letters], text: str, x: Tensor) -> Tensor:
    letters = kind(text + "-")
    return x + len(next(iter(letters))) + 100 * len(letters.told)


def entries(kind: type[Letters], text: str, x: Tensor) -> Tensor:
    letters = Keyed(text)
    for letter, twice in letters.items():
        if letter == "d":
            break
        x = x + len(twice)
    return x + 100 * len(letters.told)


def chained(kind: type[Letters], text: str, x: Tensor) -> Tensor:
    letters = Keyed("-" + text)
    for letter in itertools.chain.from_iterable([letters, letters]):
        if letter == "d":
            break
        x = x + 1
    return x + 100 * len(letters.told)


def numbered(kind: type[Letters], text: str, x: Tensor) -> Tensor:
    letters = kind(text + "-")
    for at, _ in enumerate(letters):
        if at == 1:
            break
    for _, _ in zip(letters, range(1), strict=False):
        x = x + 1
    return x + 100 * len(letters.told)


def sliced(kind: type[Letters], text: str, x: Tensor) -> Tensor:
    """``islice`` itself leaves it."""
    letters = kind(text + "-")
    for _ in itertools.islice(letters, 1):
        x = x + 1
    return x + 100 * len(letters.told)


def raised(kind: type[Letters], text: str, x: Tensor) -> Tensor:
    letters = kind(text)
    try:
        for letter in letters:
            if letter == "d":
                raise ValueError(letter)
    except ValueError:
        x = x + 10 * len(letters.told)
    return x + 100 * len(letters.told)


def all_unpacked(kind: type[Letters], text: str, x: Tensor) -> Tensor:
    """Python leaves what has too many itself, before a handler runs."""
    letters = kind(text)
    try:
        first, second = letters
        x = x + len(first) + len(second)
    except ValueError:
        x = x + 10 * len(letters.told)
    return x + 100 * len(letters.told)


ENDED, LEFT = (
    (whole, collected, all_unpacked),
    (broken, named, first_of_each, numbered, raised),
)


def run(func: Callable[..., Tensor], kind: type[Letters], way: dict[str, Any]) -> list[float]:
    def program(text: str, x: Tensor) -> Tensor:
        return func(kind, text, x)

    batched = autobatch.vmap(program, **way)
    results = [
        batched(autobatch.objects(TEXTS), torch.zeros(len(TEXTS))).tolist() for _ in range(3)
    ]
    assert results[0] == results[1] == results[2]
    return results[0]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("kind", [Letters, Opened, Within, Given, Handed, Simple])
@pytest.mark.parametrize("func", ENDED)
def test_what_is_gone_through(
    func: Callable[..., Tensor], kind: type[Letters], way: dict[str, Any]
) -> None:
    wanted = [func(kind, text, torch.zeros(())).item() for text in TEXTS]
    assert run(func, kind, way) == wanted


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("kind", [Letters, Opened, Within, Given, Handed])
@pytest.mark.parametrize("func", LEFT)
def test_what_is_left(
    func: Callable[..., Tensor], kind: type[Letters], way: dict[str, Any]
) -> None:
    with pytest.raises(UnsupportedError, match="is left before its end") as caught:
        run(func, kind, way)
    assert "list(...)" in str(caught.value) and "^" in str(caught.value)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("func", [entries, chained])
def test_what_others_go_through(func: Callable[..., Tensor], way: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"Keyed.__iter__, is left before its end"):
        run(func, Letters, way)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("func", LEFT)
def test_one_that_does_nothing_then(func: Callable[..., Tensor], way: dict[str, Any]) -> None:
    wanted = [func(Simple, text, torch.zeros(())).item() for text in TEXTS]
    assert run(func, Simple, way) == wanted


def test_plain_python_leaves_them() -> None:
    """Where no thread computes with a tensor, and nobody asks for another way."""

    def program(text: str) -> int:
        letters = Letters(text)
        for letter in letters:
            if letter == "d":
                break
        return len(letters.told)

    assert autobatch.vmap(program)(autobatch.objects(TEXTS)).tolist() == [1] * len(TEXTS)


def test_those_that_are_forgotten() -> None:
    """Of many, those that have been left with nothing to do are dropped; others still refuse."""

    def program(text: str, x: Tensor) -> Tensor:
        letters = Simple(text)
        for _ in range(40):
            for _ in letters:
                break
        return x

    def begins(text: str, x: Tensor) -> Tensor:
        for _ in Letters(text):
            break
        return program(text, x)

    old, generators.MOST = generators.MOST, 16
    try:
        batched = autobatch.vmap(program, plain="never")
        assert batched(autobatch.objects(TEXTS), torch.ones(len(TEXTS))).tolist() == [1] * 8
        for way in WAYS:
            with pytest.raises(UnsupportedError, match="is left before its end"):
                begun = autobatch.vmap(begins, **{"plain": "never", **way})
                begun(autobatch.objects(TEXTS), torch.ones(len(TEXTS)))
    finally:
        generators.MOST = old


def test_a_stream_is_refused_at_its_end() -> None:
    def program(text: str) -> int:
        letters = Letters(text)
        for letter in letters:
            if letter == "d":
                break
        return len(letters.text)

    seen = []
    with pytest.raises(UnsupportedError, match="is left before its end"):
        for at, _ in autobatch.stream(program, TEXTS, width=2, plain="never"):
            seen.append(at)
    assert sorted(seen) == list(range(len(TEXTS)))


COUNTED, NOTED = 0, []


class Counting:
    """What it does beside giving items would come between what it does for others."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[int]:
        global COUNTED
        for i in range(self.n):
            COUNTED += 1
            yield i * COUNTED


class Noting(Counting):
    def __iter__(self) -> Iterator[int]:
        for i in range(self.n):
            NOTED.append(i)
            yield i


@pytest.mark.parametrize("way", [{}, {"plain": "never"}, {"engine": "sequential"}], ids=str)
@pytest.mark.parametrize("kind", [Counting, Noting])
def test_one_that_writes_what_others_see_is_refused(kind: type, way: dict[str, Any]) -> None:
    def function(n: int) -> int:
        total = 0
        for i in kind(n):
            total += i
        return total

    with pytest.raises(autobatch.UnsupportedError, match=r"not supported in a program"):
        autobatch.vmap(function, scalars="python", **way)(torch.tensor([3, 1, 2]))
    assert COUNTED == 0 and not NOTED


class Quiet(Letters):
    """Nothing of it runs where it is left."""

    def __iter__(self) -> Iterator[str]:
        for letter in self.text:
            try:
                yield letter.strip()
            except (KeyError, StopIteration):
                self.told.append("!")


class Catching(Letters):
    def __iter__(self) -> Iterator[str]:
        try:
            yield from self.text
        except Ends:
            self.told.append("!")
            raise


class Ends(KeyError):
    pass


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_one_that_catches_other_exceptions_may_be_left(way: dict[str, Any]) -> None:
    xs = torch.arange(8.0)
    texts = autobatch.objects(TEXTS)

    def program(text: str, x: Tensor) -> Tensor:
        return broken(Quiet, text, x) + first_of_each(Catching, text, x)

    expected = torch.stack([program(text, x) for text, x in zip(TEXTS, xs, strict=True)])
    for _ in range(3):
        torch.testing.assert_close(autobatch.vmap(program, **way)(texts, xs), expected)
