"""Writes that Python makes unseen: by a property that a text names, a copy, a pickle, a cause, a
note, a ``__del__``. Each is refused, or as in the plain loop.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import math
import operator
import os
import pickle

import pytest

import autobatch

# ruff: noqa: UP030, UP032
WORDS = ["ab", "c", "abc"]
LOG: list[object] = []
OLD = ValueError("old")


class P:
    @property
    def p(self):
        LOG.append("p")
        return 1

    def method(self):
        LOG.append("m")
        return 1

    def __getitem__(self, key):
        LOG.append(key)
        return key


@dataclasses.dataclass
class Outer:
    inner: object = 0


@dataclasses.dataclass
class Told:
    a: int = 0

    def __post_init__(self):
        LOG.append(self.a)


SHARED = Outer(Outer())


class Copied:
    def __copy__(self):
        LOG.append("copy")
        return self


class Deep:
    def __deepcopy__(self, memo):
        LOG.append("deep")
        return self


class Reduced:
    def __reduce__(self):
        LOG.append("reduce")
        return (int, ())


class State:
    def __setstate__(self, state):
        LOG.append("set")

    def __init__(self):
        self.a = 1


@functools.total_ordering
class Ordered:
    def __eq__(self, other):
        return True

    def __lt__(self, other):
        LOG.append("lt")
        return False


class Hooks:
    def __floor__(self):
        LOG.append("floor")
        return 1

    def __fspath__(self):
        LOG.append("path")
        return "a"

    def __bytes__(self):
        LOG.append("bytes")
        return b"a"

    def __length_hint__(self):
        LOG.append("hint")
        return 0

    def __iter__(self):
        return iter([])


class Kind(enum.Enum):
    A = 1

    @classmethod
    def _missing_(cls, value):
        LOG.append(value)
        return cls.A


def caught(word):
    try:
        raise OLD
    except ValueError as error:
        error.add_note(word)
        return len(error.__notes__)


def from_each(word):
    try:
        raise OLD from KeyError(word)
    except ValueError as error:
        return str(error.__cause__)


def within_each(word):
    try:
        try:
            raise KeyError(word)
        except KeyError:
            raise OLD  # noqa: B904
    except ValueError as error:
        return str(error.__context__)


def notes_of_all(word):
    error = KeyError(word)
    error.__notes__ = LOG
    error.add_note(word)
    return len(LOG)


REFUSED = {
    "format": lambda w: "{0.p}".format(P()),
    "format, nested": lambda w: "{0:{1.p}}".format(1, P()),
    "format, by name": lambda w: "{x.inner.p}".format(x=Outer(P())),
    "format, item": lambda w: "{0[a]}".format(P()),
    "format, of a list": lambda w: "{0[0].p}".format([P()]),
    "format_map": lambda w: "{x.p}".format_map({"x": P()}),
    "format, own text": lambda w: ("{0.p}" + w).format(P()),
    "attrgetter": lambda w: operator.attrgetter("p")(P()),
    "attrgetter, within": lambda w: operator.attrgetter("inner.p")(Outer(P())),
    "map of an attrgetter": lambda w: list(map(operator.attrgetter("p"), [P()])),
    "key": lambda w: len(sorted([P(), P()], key=operator.attrgetter("p"))),
    "methodcaller": lambda w: operator.methodcaller("method")(P()),
    "hasattr": lambda w: hasattr(P(), "p"),
    "getattr": lambda w: getattr(P(), "p" + w[:0]),
    "copy": lambda w: len(str(copy.copy(Copied()))) * 0,
    "deepcopy": lambda w: len(str(copy.deepcopy([Deep()]))) * 0,
    "deepcopy, within": lambda w: len(str(copy.deepcopy(Outer(Outer(Deep()))))) * 0,
    "reduce": lambda w: copy.copy(Reduced()),
    "pickle": lambda w: len(pickle.dumps([Outer(Reduced())])),
    "setstate": lambda w: len(str(copy.copy(State()))) * 0,
    "asdict": lambda w: len(dataclasses.asdict(Outer(Deep()))),
    "replace": lambda w: dataclasses.replace(SHARED.inner and Told.__new__(Told), a=2).a,
    "total_ordering": lambda w: Ordered() >= Ordered(),
    "floor": lambda w: math.floor(Hooks()),
    "fspath": lambda w: os.fspath(Hooks()),
    "bytes": lambda w: bytes(Hooks()),
    "length hint": lambda w: list(Hooks()),
    "missing": lambda w: Kind(w).name,
    "a note": caught,
    "a cause": from_each,
    "a context": within_each,
    "a list of notes": notes_of_all,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "options", [{}, {"trace_after": 0, "plain": "never"}, {"engine": "program_counter"}]
)
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_written_unseen_is_refused(name, options):
    LOG.clear()
    with pytest.raises(autobatch.SharedWriteError, match="existed before the call"):
        autobatch.vmap(REFUSED[name], **options)(autobatch.objects(WORDS))
    assert LOG == []
    assert OLD.__cause__ is None
    assert OLD.__context__ is None
    assert not hasattr(OLD, "__notes__")


@pytest.mark.parametrize("name", REFUSED)
def test_alone_they_are_refused_or_in_order(name):
    mapped = autobatch.vmap(REFUSED[name], engine="sequential")
    with pytest.raises(autobatch.SharedWriteError, match="existed before the call"):
        mapped(autobatch.objects(WORDS))
    assert not hasattr(OLD, "__notes__")


def test_what_writes_nothing_goes_on():
    class Quiet:
        def __init__(self, word):
            self.word = word

        @property
        def p(self):
            return self.word * 2

        def __copy__(self):
            return Quiet(self.word + "!")

    def program(word):
        found = Quiet(word)
        text = "{0.p} {0.word}".format(found) + operator.attrgetter("p")(copy.copy(found))
        return text + max([found], key=operator.attrgetter("p")).word

    mapped = autobatch.vmap(program, plain="never")
    assert mapped(autobatch.objects(WORDS)) == [program(word) for word in WORDS]


def raised_before(word):
    try:
        if word != "c":
            raise OLD
        return "none"
    except ValueError as error:
        return str(error) + word


def test_an_exception_that_existed_before_may_be_raised_as_it_is():
    assert autobatch.vmap(raised_before)(autobatch.objects(WORDS)) == ["oldab", "none", "oldabc"]


class Counted:
    def __init__(self, found):
        self.found = found

    def __del__(self):
        self.found.append(1)


class Failure(Exception):
    def __del__(self):
        LOG.append("failed")


class Unharmful:
    def __del__(self):
        pass


def left(word):
    found: list[int] = []
    counted = Counted(found)
    del counted
    return len(found)


def mapped_over(word):
    found: list[int] = []
    list(map(Counted, [found]))
    return len(found)


def failed(word):
    error = Failure(word)
    del error
    return len(LOG)


@pytest.mark.parametrize("options", [{}, {"executor": "compiled"}, {"engine": "program_counter"}])
@pytest.mark.parametrize("program", [left, mapped_over, failed])
def test_instances_with_a_finalizer_are_refused(program, options):
    with pytest.raises(autobatch.UnsupportedError, match="has a __del__"):
        autobatch.vmap(program, **options)(autobatch.objects(WORDS))


@pytest.mark.parametrize("options", [{"engine": "sequential"}, {"stateful": "sequential"}])
def test_one_by_one_a_finalizer_runs_when_it_does_in_the_loop(options):
    assert autobatch.vmap(left, **options)(autobatch.objects(WORDS)).tolist() == [1, 1, 1]


def test_a_finalizer_that_does_nothing_is_no_matter():
    def program(word):
        return Unharmful() is not None and word

    assert autobatch.vmap(program)(autobatch.objects(WORDS)) == WORDS
