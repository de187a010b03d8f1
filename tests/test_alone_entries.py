"""``defaultdict(Trie)``: a class of the user's makes the entries of a dict, and is no value."""

from __future__ import annotations

import collections
from collections import defaultdict
from typing import Any

import pytest

import autobatch
from tests.test_alone import outcome, same

WORDS = [["ab", "ac", "b"], ["b"], ["cab", "ca", "c"]]
LOG: list[int] = []


class Count:
    total = 0

    def __init__(self) -> None:
        self.number = 0


class Trie:
    def __init__(self) -> None:
        self.below: defaultdict[str, Trie] = defaultdict(Trie)
        self.ends = False

    def add(self, word: str) -> None:
        node = self
        for letter in word:
            node = node.below[letter]
        node.ends = True

    def words(self, before: str = "") -> list[str]:
        own = [before] if self.ends else []
        return own + [w for c, k in sorted(self.below.items()) for w in k.words(before + c)]


class Logging:
    def __init__(self) -> None:
        LOG.append(1)


class Kept:
    def __init__(self, rows: list[int] = LOG) -> None:
        self.rows = rows


def counted(words: list[str]) -> int:
    found = collections.defaultdict(Count)
    for word in words:
        found[word[0]].number += len(word)
    return max(each.number for each in found.values())


def within(words: list[str]) -> int:
    found: Any = defaultdict(lambda: defaultdict(Count))
    for word in words:
        found[word[0]][word].number += 1
    return sum(each.number for row in found.values() for each in row.values())


def trie(words: list[str]) -> str:
    root = Trie()
    for word in words:
        root.add(word)
    return ",".join(root.words())


@pytest.mark.parametrize("function", [counted, within])
def test_its_instances_may_be_written(function: Any) -> None:
    assert same(function, WORDS)[0] == [function(words) for words in WORDS]


def test_a_trie() -> None:
    assert same(trie, WORDS) == [trie(words) for words in WORDS]


def asked_for(words: list[str]) -> int:
    found = defaultdict(Count)
    found.default_factory.total = len(words)  # type: ignore[union-attr]
    return len(found)


def asked_by_name(words: list[str]) -> int:
    factory: Any = getattr(defaultdict(Count), "default_factory")  # noqa: B009
    factory.total = len(words)
    return len(words)


def asked_by_pattern(words: list[str]) -> int:
    match defaultdict(Count):
        case defaultdict(default_factory=factory):
            factory.total = len(words)
    return len(words)


def asked_of_an_entry(words: list[str]) -> int:
    type(defaultdict(Count)["x"]).total = len(words)
    return len(words)


@pytest.mark.parametrize(
    "function", [asked_for, asked_by_name, asked_by_pattern, asked_of_an_entry]
)
def test_the_class_is_not_written(function: Any) -> None:
    with pytest.raises(autobatch.AutobatchError):
        autobatch.vmap(function)(autobatch.objects(WORDS))
    assert Count.total == 0


def logged(words: list[str]) -> int:
    found = defaultdict(Logging)
    return len([found[word] for word in words])


def written(words: list[str]) -> int:
    found = defaultdict(Kept)
    found["x"].rows.append(len(words))
    return len(words)


@pytest.mark.parametrize("function", [logged, written])
def test_what_making_one_does_is_looked_at(function: Any) -> None:
    assert outcome(function, WORDS)[1] == 0
    LOG.clear()
