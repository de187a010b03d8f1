"""``ChainMap``, in programs that may run as plain Python: it writes the first of its dicts."""

from collections import ChainMap

import pytest

import autobatch
from autobatch.errors import AutobatchError
from tests.test_alone_fields import proved

TEXTS = ["ab", "c", "", "dda", "bacab"]
DICTS = [{"a": 1}, {"a": 2, "b": 3}, {"b": 5}]
DEFAULTS = {"a": 10, "b": 20}
LISTS = {"a": [1], "b": [2]}
GOING = ChainMap({"a": 1})


def scopes(text):
    scope, found = ChainMap({"n": 0}, DEFAULTS), []
    for letter in text:
        if letter == "a":
            scope = scope.new_child({"a": len(found)})
        elif letter == "b":
            scope["n"] += scope[letter]
        else:
            inner = scope.new_child()
            inner["n"] = inner.get("n", 0) + inner.setdefault("k", 4)
            found.append(inner["n"])
            found.append(len(inner.maps))
        found.append(scope["a"])
    return sum(found), len(scope), " ".join(sorted(scope)), scope["n"]


def counts_up(text):
    scope = ChainMap({}, {"n": 1})
    for _ in text:
        scope = scope.new_child({"n": scope["n"] + 1})
    while len(scope.maps) > 2:
        scope = scope.parents
        scope["m"] = scope.get("m", 0) + 1
    return scope["n"], dict(scope).get("m", 0)


def writes_its_first(own):
    scope = ChainMap(own, {"c": 3})
    scope["a"] = scope["c"]
    return len(own)


def writes_its_second(own):
    scope = ChainMap({}, own)
    scope.parents["z"] = 1
    return len(own)


def writes_its_last(own):
    scope = ChainMap({}).new_child(own)
    scope.maps[0]["z"] = 1
    return len(own)


def writes_its_child(own):
    scope = ChainMap().new_child(own)
    scope.update(z=1, y=2)
    return len(own)


def writes_its_copy(own):
    scope = ChainMap({}, own).copy()
    scope.parents["z"] = 1
    return len(own)


def writes_its_union(own):
    scope = ChainMap({}, own) | {"q": 2}
    scope.parents["z"] = 1
    return len(own)


def writes_all(own):
    dicts = [own, {}]
    scope = ChainMap(*dicts)
    scope["z"] = 1
    return len(own)


OWN = [each for name, each in list(globals().items()) if name.startswith("writes_")]


def writes_what_existed(text):
    ChainMap(DEFAULTS)[text] = 1
    return len(text)


def writes_what_is_behind(text):
    scope = ChainMap({}, DEFAULTS).new_child().parents
    scope.parents[text] = 1
    return len(text)


def writes_what_it_holds(text):
    ChainMap({}, LISTS)["a"].append(1)
    return len(text)


def writes_its_maps(text):
    ChainMap({}, DEFAULTS).maps[-1].clear()
    return len(text)


def writes_a_child(text):
    ChainMap({}).new_child(DEFAULTS).clear()
    return len(text)


def writes_one_that_existed(text):
    chains = [GOING, ChainMap()]
    chains[0]["b"] = text
    return len(text)


EXISTING = [
    each for name, each in list(globals().items()) if name.startswith("writes_") and each not in OWN
]


@pytest.mark.parametrize("plain", ["auto", "never"])
def test_the_result_is_the_loops(plain):
    for function in (scopes, counts_up):
        wanted = list(map(function, TEXTS))
        for _ in range(4):
            with autobatch.counts() as counted:
                found = autobatch.vmap(function, plain=plain)(autobatch.objects(TEXTS))
            assert counted.plain == (len(TEXTS) if plain == "auto" else 0)
            parts = [part if isinstance(part, list) else part.tolist() for part in found]
            assert list(zip(*parts, strict=True)) == wanted
    assert DEFAULTS == {"a": 10, "b": 20}


@pytest.mark.parametrize("function", OWN)
def test_what_is_the_examples_own_is_written_to_copies(function):
    wanted = [function(dict(own)) for own in DICTS]
    for _ in range(2):
        assert autobatch.vmap(function)(autobatch.objects(DICTS)).tolist() == wanted
        assert DICTS == [{"a": 1}, {"a": 2, "b": 3}, {"b": 5}]


@pytest.mark.parametrize("function", EXISTING)
def test_what_existed_is_not_written(function):
    assert not proved(function, False, autobatch.objects(TEXTS))
    with pytest.raises(AutobatchError):
        autobatch.vmap(function)(autobatch.objects(TEXTS))
    assert DEFAULTS == {"a": 10, "b": 20} and LISTS == {"a": [1], "b": [2]}
    assert GOING == {"a": 1}
