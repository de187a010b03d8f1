# ruff: noqa: PLC0415
"""Imports within functions: they only look up what has been imported before, or are no proof."""

import builtins
import sys
import types
from contextlib import suppress

import pytest

import autobatch
from tests.test_alone import outcome, same

WORDS = ["b", "aBc", "", "ccc", "a b"]


def of_a_module(text):
    import math

    return math.hypot(float(len(text)), 4.0)


def of_names(text):
    from collections import Counter, deque

    return len(deque(Counter(text))) + len(text)


def kept(text):
    from functools import lru_cache

    @lru_cache(maxsize=None)  # noqa: UP033
    def go(at):
        return 0 if at == len(text) else 1 + go(at + 1)

    return go(0)


def captured(text):
    import math
    from operator import add

    def outer(n):
        def inner(m):
            return math.sqrt(add(n, m))

        return inner(len(text))

    return outer(math.floor(3.5))


def of_two(text):
    import collections.abc
    import itertools as tools

    return len(list(tools.chain(text, text))) + isinstance(text, collections.abc.Sized)


def relative(text):
    from .test_alone_imports import WORDS as words

    return words.index(text)


def in_a_loop(text):
    found = 0
    for letter in text:
        from bisect import bisect_left

        found += bisect_left("abc", letter)
    return found


@pytest.mark.parametrize("function", [of_a_module, of_names, kept, captured, relative, in_a_loop])
def test_what_has_been_imported_before(function):
    found = same(function, WORDS)
    assert found[0] == [function(text) for text in WORDS]


def test_submodules_by_their_packages():
    assert outcome(of_two, WORDS)[0][0] == list(map(of_two, WORDS))


def plain(function):
    with autobatch.counts() as counts, suppress(autobatch.AutobatchError, ImportError):
        autobatch.vmap(function)(autobatch.objects(WORDS))
    return counts.plain


SEEN = []


def size(text):
    return len(text)


@pytest.fixture
def helper():
    """A module of the user's, which is imported before."""
    found = types.ModuleType("autobatch_helper")
    found.TABLE, found.size = [], size
    sys.modules["autobatch_helper"] = found
    yield found
    sys.modules.pop("autobatch_helper", None)


def uses(text):
    from autobatch_helper import size

    return size(text)


def uses_another(text):
    from autobatch_helper import size

    return size(text)


def uses_none(text):
    from autobatch_helper import size

    return size(text)


def uses_by_another_import(text):
    from autobatch_helper import size

    return size(text)


def uses_module(text):
    import autobatch_helper

    return autobatch_helper.size(text)


def writes(text):
    import autobatch_helper

    autobatch_helper.TABLE.append(text)
    return 0


def writes_name(text):
    from autobatch_helper import TABLE

    TABLE.append(text)
    return 0


def writes_captured(text):
    from autobatch_helper import TABLE

    def note():
        TABLE.append(text)
        return 0

    return note()


def prints(text):
    from builtins import print as say

    say(text)
    return 0


def hands_on(text):
    import math

    return str(math)[:3] + text


def replaces(text):
    import math

    if text == "ccc":
        math = 1
    return len(text) + (math == 1)


@pytest.mark.filterwarnings("ignore::autobatch.FallbackWarning")
def test_what_an_import_leads_to_is_looked_at(helper):
    for function in (writes, writes_name, writes_captured, hands_on, prints, replaces):
        assert plain(function) == 0
    assert helper.TABLE == []


def logged(text):
    SEEN.append(text)
    return 7


@pytest.mark.parametrize("function", [uses, uses_module])
def test_a_name_of_a_module_that_is_bound_anew(function, helper):
    def length(text):
        return 2 * len(text)

    assert plain(function) == len(WORDS)
    helper.size = length
    found = autobatch.vmap(function)(autobatch.objects(WORDS))
    assert found.tolist() == [2 * len(text) for text in WORDS]
    helper.size = logged
    assert plain(function) == 0
    SEEN.clear()


def test_a_module_that_takes_the_place_of_another(helper):
    assert plain(uses_another) == len(WORDS)
    other = types.ModuleType("autobatch_helper")
    other.size = logged
    sys.modules["autobatch_helper"] = other
    assert plain(uses_another) == 0
    SEEN.clear()


def test_a_module_that_is_gone_is_imported_or_not_found(helper):
    assert plain(uses_none) == len(WORDS)
    del sys.modules["autobatch_helper"]
    with pytest.raises(ImportError):
        autobatch.vmap(uses_none)(autobatch.objects(WORDS))


def test_modules_that_answer_themselves(helper):
    class Loud(types.ModuleType):
        def __getattr__(self, name):
            SEEN.append(name)
            return len

    sys.modules["autobatch_helper"] = Loud("autobatch_helper")
    assert plain(uses) == plain(uses_module) == 0
    SEEN.clear()


def test_names_that_a_module_makes_when_asked(helper):
    del helper.size
    helper.__getattr__ = lambda name: SEEN.append(name) or len
    assert plain(uses) == 0
    SEEN.clear()


def test_another_import_of_pythons(helper, monkeypatch):
    before = builtins.__import__

    def importing(name, *rest):
        if name == "autobatch_helper":
            SEEN.append(name)
        return before(name, *rest)

    assert plain(uses_by_another_import) == len(WORDS)
    monkeypatch.setattr(builtins, "__import__", importing)
    assert plain(uses_by_another_import) == 0
    SEEN.clear()


def missing(text):
    if len(text) > 100:
        import autobatch_not_there

        return autobatch_not_there.size
    return len(text)


def test_a_module_that_has_not_been_imported_is_named():
    assert plain(missing) == 0
    report = autobatch.explain(missing, autobatch.objects(WORDS))
    assert "import autobatch_not_there" in str(report) and "at the top" in str(report)
