"""Own generators that do something at their end: gone through, or refused where they are left."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch import UnsupportedError

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


def numbered(kind: type[Letters], text: str, x: Tensor) -> Tensor:
    letters = kind(text + "-")
    for at, _ in enumerate(letters):
        if at == 1:
            break
    for _, _ in zip(letters, range(1), strict=False):
        x = x + 1
    return x + 100 * len(letters.told)


def sliced(kind: type[Letters], text: str, x: Tensor) -> Tensor:
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


ENDED, LEFT = (whole, collected), (broken, named, first_of_each, numbered, sliced, raised)


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
@pytest.mark.parametrize("kind", [Letters, Opened, Within, Simple])
@pytest.mark.parametrize("func", ENDED)
def test_what_is_gone_through(
    func: Callable[..., Tensor], kind: type[Letters], way: dict[str, Any]
) -> None:
    wanted = [func(kind, text, torch.zeros(())).item() for text in TEXTS]
    assert run(func, kind, way) == wanted


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("kind", [Letters, Opened, Within])
@pytest.mark.parametrize("func", LEFT)
def test_what_is_left(
    func: Callable[..., Tensor], kind: type[Letters], way: dict[str, Any]
) -> None:
    with pytest.raises(UnsupportedError, match="is left before its end") as caught:
        run(func, kind, way)
    assert "list(...)" in str(caught.value) and "^" in str(caught.value)


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
