"""Classes of containers (``class Env(dict)``), in programs that may run as plain Python."""

import operator
from collections import OrderedDict, deque

import pytest
import torch

import autobatch
from autobatch.errors import AutobatchError
from tests.test_alone_fields import proved

TEXTS = ["ab", "c", "", "dda", "bacabdb"]
ROWS = [[[1], [2]], [[], [4]], [[3, 4]], [[]]]


class Env(dict):
    def __init__(self, names=(), values=(), outer=None):
        super().__init__(zip(names, values, strict=True))
        self.outer = outer

    def find(self, name):
        return self if name in self or self.outer is None else self.outer.find(name)


class Lru(OrderedDict):
    def __init__(self, most):
        super().__init__()
        self.most, self.hits = most, 0

    def __getitem__(self, key):
        self.move_to_end(key)
        self.hits += 1
        return super().__getitem__(key)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        if len(self) > self.most:
            self.popitem(last=False)


class Graph(dict):
    def __missing__(self, key):
        value = self[key] = set()
        return value

    def linked(self, one, other):
        self[one].add(other)
        self[other].add(one)
        return self


class Stack(list):
    @property
    def top(self):
        return self[-1] if self else None

    def push(self, value):
        self.append(value)
        return self


class Bag(set):
    pass


class Window(deque):
    def mean(self):
        return sum(self) / len(self)


def evaluates(text):
    outer = Env(["+", "x"], [operator.add, len(text)])
    env = Env(text, range(len(text)), outer) if len({*text}) == len(text) else outer
    env["y"] = env.find("+")["+"](env.find("x")["x"], 2)
    return env.find("y")["y"] + sum(each for each in env.values() if isinstance(each, int))


def caches(text):
    cache, seen = Lru(2), Bag()
    for letter in text:
        seen.add(letter)
        if letter in cache:
            cache[letter].append(letter)
        else:
            cache[letter] = [letter]
    return cache.hits, "".join(cache) + "".join(sorted(seen)), sum(map(len, cache.values()))


def links(text):
    graph, window, stack = Graph(), Window(maxlen=3), Stack("xy")
    for at, letter in enumerate(text):
        graph.linked(letter, text[at - 1])
        window.append(at)
        stack.push(letter).push(at)
    graph.update(z={"a"})
    return len(graph), str(stack.top), window.mean() if window else 0.0, "".join(map(str, stack))


class Weights(dict):
    def scaled(self, factor):
        return Weights({name: value * factor for name, value in self.items()})


def scales(x):
    weights = Weights(a=x, b=x.sum())
    while weights["b"] < 4:
        weights = weights.scaled(1.5)
        weights["c"] = weights["a"] + weights["b"]
    return weights["a"], weights.get("c", x)


def writes_its_own(rows):
    env = Env("ab"[: len(rows)], rows)
    env["a"].append(5)
    return sum(map(len, rows))


def writes_by_its_init(rows):
    stack = Stack(rows)
    stack[0].append(5)
    return sum(map(len, rows))


def writes_by_super(rows):
    cache = Lru(3)
    cache["a"] = rows
    cache["a"][-1].append(7)
    return sum(map(len, rows))


SHARED = [[1], [2]]
ENV = Env("a", [1])


def writes_what_existed(text):
    Env("ab", SHARED)["a"].append(text)
    return len(text)


def writes_an_item(text):
    SHARED.__setitem__(0, text)
    return len(text)


def writes_within_an_item(text):
    SHARED.__getitem__(0).append(text)
    return len(text)


def begins_anew(text):
    SHARED.__init__([text])
    return len(text)


class Itemed:
    def __init__(self):
        self.held = []

    def __getitem__(self, at):
        return self.held[at]

    def __setitem__(self, at, value):
        self.held[at] = value


def writes_by_name(text):
    Itemed()
    return writes_within_an_item(text) + writes_an_item(text) + begins_anew(text)


def writes_env(text):
    kept = [ENV, {}]
    kept[0]["b"] = text
    return len(text)


WRITING = [each for name, each in list(globals().items()) if name.startswith("writes_")]
OWN = [writes_its_own, writes_by_its_init, writes_by_super]


@pytest.mark.parametrize("plain", ["auto", "never"])
def test_the_result_is_the_loops(plain):
    for function in (evaluates, caches, links):
        wanted = list(map(function, TEXTS))
        for _ in range(4):
            found = autobatch.vmap(function, plain=plain)(autobatch.objects(TEXTS))
            if isinstance(found, tuple):
                parts = [p.tolist() if isinstance(p, torch.Tensor) else p for p in found]
                assert list(zip(*parts, strict=True)) == wanted
            else:
                assert found.tolist() == wanted


def test_such_programs_are_plain():
    for function in (evaluates, caches, links):
        with autobatch.counts() as counted:
            autobatch.vmap(function)(autobatch.objects(TEXTS))
        assert counted.plain == len(TEXTS)
    x = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
    assert proved(scales, True, x)
    for _ in range(4):
        a, c = autobatch.vmap(scales)(x)
        for row in range(5):
            torch.testing.assert_close((a[row], c[row]), scales(x[row]))


@pytest.mark.parametrize("function", OWN)
@pytest.mark.parametrize("plain", ["auto", "never"])
def test_what_is_the_examples_own_is_written_to_copies(function, plain):
    wanted = [function([*map(list, rows)]) for rows in ROWS]
    for _ in range(2):
        found = autobatch.vmap(function, plain=plain)(autobatch.objects(ROWS))
        assert found.tolist() == wanted
        assert ROWS == [[[1], [2]], [[], [4]], [[3, 4]], [[]]]


@pytest.mark.parametrize("function", [each for each in WRITING if each not in OWN] + [begins_anew])
def test_what_existed_is_not_written(function):
    assert not proved(function, False, autobatch.objects(TEXTS))
    with pytest.raises(AutobatchError):
        autobatch.vmap(function)(autobatch.objects(TEXTS))
    assert SHARED == [[1], [2]] and ENV == {"a": 1}


def test_those_that_are_given_go_the_general_way():
    envs = [Env("ab", [1, 2]), Env("a", [3])]
    assert not proved(lambda env: env["a"] + len(env), False, autobatch.objects(envs))
    found = autobatch.vmap(lambda env: env["a"] + len(env))(autobatch.objects(envs))
    assert found.tolist() == [3, 4]
