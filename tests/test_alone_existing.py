"""What existed before, reached by ways that are easily overlooked: plain Python never writes it."""

import enum
import functools
from collections import namedtuple
from contextlib import suppress
from itertools import starmap
from typing import NamedTuple

import pytest

import autobatch

LOG: list = []


class Kind(enum.Enum):
    A = 1
    B = 2

    def __init__(self, value):
        self.log = LOG


KINDS = {"kind": Kind}


def called(word):
    KINDS["kind"](1).log.append(word)
    return 6 // len(word)


def by_name(word):
    KINDS["kind"]["A"].log.append(word)
    return 6 // len(word)


def gone_through(word):
    next(iter(KINDS["kind"])).log.append(word)
    return 6 // len(word)


def asked_for(word):
    KINDS["kind"].A.log.append(word)
    return 6 // len(word)


def in_a_tuple(word):
    (Kind,)[0](1).log.append(word)
    return 6 // len(word)


def of_a_member(word):
    type(Kind.A)(1).log.append(word)
    return 6 // len(word)


def of_a_member_by_name(word):
    type(Kind.A)["B"].log.append(word)
    return 6 // len(word)


def mapped(word):
    next(map(KINDS["kind"], [1])).log.append(word)
    return 6 // len(word)


class Failed(Exception):
    def __init__(self):
        super().__init__(LOG)


class Stopped(StopIteration):
    def __init__(self):
        super().__init__(LOG)


def of_an_exception(word):
    Failed().args[0].append(word)
    return 6 // len(word)


def of_what_has_stopped(word):
    Stopped().value.append(word)
    return 6 // len(word)


class Holder:
    def __init__(self):
        self.log = LOG

    def give(self):
        return self.log

    def put(self, word):
        self.log.append(word)


TABLE = {"give": Holder().give}
PARTS = {"give": functools.partial(Holder().give)}


def of_a_bound_method(word):
    TABLE["give"]().append(word)
    return 6 // len(word)


def of_a_partial(word):
    PARTS["give"]().append(word)
    return 6 // len(word)


GIVE = Holder().give


def of_a_default(word, give=GIVE):
    give().append(word)
    return 6 // len(word)


def from_a_map(word):
    next(iter(starmap(TABLE["give"], [()]))).append(word)
    return 6 // len(word)


@functools.lru_cache
def kept():
    return Holder()


def of_what_is_kept(word):
    kept().log.append(word)
    return 6 // len(word)


def by_a_method_of_what_is_kept(word):
    kept().put(word)
    return 6 // len(word)


class Defaults(NamedTuple):
    log: object = LOG


Factory = namedtuple("Factory", "log", defaults=[LOG])


def of_a_named_tuple(word):
    Defaults().log.append(word)
    return 6 // len(word)


def of_a_place(word):
    Defaults()[0].append(word)
    return 6 // len(word)


def of_a_factory(word):
    (log,) = Factory()
    log.append(word)
    return 6 // len(word)


WAYS = [
    *(called, by_name, gone_through, asked_for, in_a_tuple, of_a_member, of_a_member_by_name),
    *(mapped, of_an_exception, of_what_has_stopped, of_a_bound_method, of_a_partial, of_a_default),
    *(from_a_map, of_what_is_kept, by_a_method_of_what_is_kept, of_a_named_tuple, of_a_place),
    of_a_factory,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_it_is_not_written(way):
    """A thread that fails makes all begin again: what plain Python had written stands twice."""
    batched = autobatch.vmap(way)
    for _ in range(2):
        LOG.clear()
        with autobatch.counts() as counts, suppress(autobatch.AutobatchError, ZeroDivisionError):
            batched(autobatch.objects(["ab", "c", ""]))
        assert counts.plain == 0
        assert ["ab", "c", ""][: len(LOG)] == LOG


class Plain(enum.Enum):
    A = 1
    B = "b"

    @property
    def text(self):
        return str(self.value)


PLAIN = {"kind": Plain, "give": str.upper}


class Wrong(ValueError):
    def __init__(self, word):
        super().__init__(word)
        self.word = word


class Pair(NamedTuple):
    word: str
    times: int = 2


@functools.lru_cache
def doubled(word):
    return Pair(word).word * Pair(word).times


def as_ever(word):
    try:
        if not word:
            raise Wrong(word)
    except Wrong as error:
        word = error.word + "x"
    return len(PLAIN["give"](doubled(word) + PLAIN["kind"](1).text + Plain.B.text))


def test_what_cannot_be_written_is_plain_as_ever():
    words = ["ab", "", "c"]
    with autobatch.counts() as counts:
        found = autobatch.vmap(as_ever)(autobatch.objects(words))
    assert found.tolist() == [as_ever(word) for word in words]
    assert counts.plain == 3


def given_to_an_exception(word):
    try:
        raise ValueError(LOG)
    except ValueError as error:
        error.args[0].append(word)
    return len(LOG)


def given_to_one_that_is_not_raised(word):
    ValueError(word, LOG).args[1].append(word)
    return len(LOG)


def within_a_group(word):
    ExceptionGroup("all", [ValueError(LOG)]).exceptions[0].args[0].append(word)
    return len(LOG)


def kept_by_init(word):
    Failed().args[0].append(word)
    return len(LOG)


def of_ones_own(word):
    own = [word]
    try:
        raise ValueError(own)
    except ValueError as error:
        error.args[0].append(word)
    return len(own)


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("plain", ["never", "auto"])
def test_what_exceptions_hold(engine, plain):
    words = autobatch.objects(["ab", "c", ""])
    for way in (
        given_to_an_exception,
        given_to_one_that_is_not_raised,
        within_a_group,
        kept_by_init,
    ):
        LOG.clear()
        with pytest.raises(autobatch.AutobatchError, match="existed before"):
            autobatch.vmap(way, engine=engine, plain=plain)(words)
        assert LOG == []
    assert autobatch.vmap(of_ones_own, engine=engine, plain=plain)(words).tolist() == [2, 2, 2]
