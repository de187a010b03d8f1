"""Functions that get another code, as a notebook's autoreload gives it, between two calls and
while a stream is at work: what runs is what the loop runs.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import autobatch

X = torch.tensor([3.0, -1.0, 2.0, 0.0])


def straight(x):
    return x + 1


def branchy(x):
    return x - 1 if x > 0 else x * 5


def rounds(x):
    n = 0
    while n < 2:
        x, n = x + 3, n + 1
    return x


def outer(x):
    return branchy(x) + 1


class Doubled:
    def __init__(self, v):
        self.v = v * 2

    def __call__(self, x):
        return x + self.v

    def method(self, x):
        return x * self.v if x > 1 else x

    @property
    def part(self):
        return self.v


class Net(nn.Module):
    def forward(self, x):
        return x * 2


DOUBLED, NET = Doubled(1), Net()


def of_two(x):
    return straight(x) + outer(straight(x))


def of_an_object(x):
    return DOUBLED.method(x) + DOUBLED.part + DOUBLED(x)


def of_its_own(x):
    own = Doubled(x)
    return own.method(x) + own.part + own(x)


def of_a_module(x):
    return NET(x) + 1


def made(self, v):
    self.v = v * 2 if v > 0 else v - 7


def other_method(self, x):
    return x * 100 if x > 2 else x - self.v


def other_forward(self, x):
    return x * 5 if x > 0 else x


CHANGES = {
    "straight, with branches": (straight, branchy),
    "straight, with a loop": (straight, rounds),
    "inlined": (outer, straight),
    "called within": (branchy, rounds),
    "__init__": (Doubled.__init__, made),
    "__call__": (Doubled.__call__, other_method),
    "a method": (Doubled.method, other_method),
    "a property": (Doubled.part.fget, lambda self: self.v * 3 if self.v > 0 else 1),
    "forward": (Net.forward, other_forward),
}
WAYS = [
    {},
    {"trace_after": 0, "plain": "never"},
    {"executor": "compiled"},
    {"engine": "program_counter", "trace_after": 0},
    {"engine": "sequential"},
]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CHANGES)
def test_the_next_call_runs_it(name, way, monkeypatch):
    function, other = CHANGES[name]
    programs = [of_two, of_an_object, of_its_own, of_a_module]
    mapped = [autobatch.vmap(program, **way) for program in programs]
    before = [torch.stack([program(x) for x in X]) for program in programs]
    for each, want in zip(mapped, before, strict=True):
        for _ in range(2):
            assert torch.equal(each(X), want)
    with monkeypatch.context() as replacing:
        replacing.setattr(function, "__code__", other.__code__)
        for program, each in zip(programs, mapped, strict=True):
            assert torch.equal(each(X), torch.stack([program(x) for x in X]))
    for each, want in zip(mapped, before, strict=True):
        assert torch.equal(each(X), want)


def step(x):
    return x // 2 if x % 2 == 0 else 3 * x + 1


def down(x):
    return x - 1


def collatz(x):
    n = 0
    while x != 1:
        x, n = step(x), n + 1
    return n


@pytest.mark.sampled(4)
@pytest.mark.parametrize("order", ["input", "completion"])
@pytest.mark.parametrize("way", [*WAYS, {"executor": "auto"}])
def test_in_a_stream_each_example_calls_the_one_or_the_other(way, order, monkeypatch):
    own = [collatz(x) for x in range(1, 50)]
    found = {}
    with monkeypatch.context() as replacing:
        for place, result in autobatch.stream(collatz, range(1, 50), 5, order=order, **way):
            found[place] = result
            if len(found) == 15:
                replacing.setattr("tests.test_replaced_code.step", down)
    assert sorted(found) == list(range(49))
    assert all(n in (own[place], place) for place, n in found.items())
    late = sum(n == place for place, n in found.items())
    assert late > 20
