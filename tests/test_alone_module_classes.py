"""Programs that ask a class of modules for what it has, and make none, may run plainly.

So do modules of classes that inherit from each other, and go to the one above by ``super()``.
"""

from abc import ABC, abstractmethod

import pytest
import torch
from torch import nn

import autobatch

pytestmark = pytest.mark.usefixtures("plain_is_better")


class Decoder(nn.Module):
    END = 1
    NAMES = ("a", "b")

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 3)

    def forward(self, x):
        return self.out(x)

    @staticmethod
    def twice(x):
        return 2 * x


class Bare(nn.Module):
    size = 3


torch.manual_seed(0)
DECODER = Decoder().requires_grad_(False)
X = torch.randn(5, 3)


def steps(x):
    found = []
    while len(found) < 4 and (not found or found[-1] != Decoder.END):
        found.append(int(DECODER(x).argmax()))
        x = x + 0.5
    return str(found)


def by_functions(x):
    y = DECODER(x).tolist()
    return Decoder.twice(len(y)), Decoder.NAMES[int(y[0] > 0)]


def by_kind(x):
    kinds = isinstance(DECODER, Decoder), isinstance(DECODER.out, nn.Linear)
    return sum(kinds), str(DECODER(x).argmax().item())


def making(x):
    return str(Bare().size + x.argmax().item())


def handing(x):
    return str([kind.END for kind in [Decoder]] + x.tolist()[:0])


def times(function, plain):
    expected = [function(row.clone()) for row in X]
    batched = autobatch.vmap(function)
    for _ in range(4):
        with autobatch.counts() as counts:
            found = batched(X)
        parts = found if isinstance(found, tuple) else (found,)
        whole = [each if isinstance(each, tuple) else (each,) for each in expected]
        assert [list(part) for part in parts] == [list(part) for part in zip(*whole, strict=True)]
    assert counts.plain == plain


@pytest.mark.parametrize("function", [steps, by_functions, by_kind])
def test_what_a_class_of_modules_has(function):
    times(function, 5)


@pytest.mark.parametrize("function", [making, handing])
def test_a_class_of_modules_that_is_called_or_handed_on(function):
    times(function, 0)


def test_another_constant_is_seen(monkeypatch):
    times(steps, 5)
    for end in (0, 2, 7):
        monkeypatch.setattr(Decoder, "END", end)
        times(steps, 5)
    monkeypatch.setattr(Decoder, "twice", staticmethod(lambda x: 3 * x))
    monkeypatch.setattr(Decoder, "NAMES", ("c", "d"))
    times(by_functions, 5)


class Expert(nn.Module, ABC):
    cost = 1.0

    @abstractmethod
    def transform(self, x): ...

    def forward(self, x):
        return self.transform(x) / self.cost

    def twice(self, x):
        return 2 * x


class Linear(Expert):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3), requires_grad=False)

    def transform(self, x):
        return self.weight @ x


class Gated(Linear):
    cost = 2.0

    def transform(self, x):
        return torch.sigmoid(super().twice(x)) * super().transform(x)

    def forward(self, x):
        return super().forward(x) + 1


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([Linear(), Gated(), Gated()])
        self.gates = nn.ModuleDict({str(place): nn.Linear(3, 1) for place in range(3)})
        self.requires_grad_(False)

    def forward(self, x):
        spent, used = 0.0, []
        for place, expert in enumerate(self.experts):
            if self.gates[str(place)](x) < 0 or spent + expert.cost > 3:
                continue
            x, spent = expert(x), spent + expert.cost
            used.append(type(expert).__name__)
        return x, spent, ",".join(used)


def same_as_loop(function, plain):
    batched = autobatch.vmap(function)
    for rows in (X, X.flip(0), -X, X):
        with autobatch.counts() as counts:
            found, spent, used = batched(rows)
        for place, row in enumerate(rows):
            expected = function(row.clone())
            torch.testing.assert_close(found[place], expected[0])
            assert (spent[place].item(), used[place]) == expected[1:]
    assert counts.plain == plain


def test_modules_that_inherit(monkeypatch):
    mixture = Mixture()
    same_as_loop(mixture, 5)
    monkeypatch.setattr(Linear, "transform", lambda self, x: x - 1)
    same_as_loop(mixture, 5)
    monkeypatch.setattr(Expert, "twice", lambda self, x: x.exp())
    same_as_loop(mixture, 5)


WRITTEN = torch.zeros(3)


def test_what_they_inherit_is_looked_into(monkeypatch):
    mixture = Mixture()

    def writing(self, x):
        return WRITTEN.copy_(x)

    monkeypatch.setattr(Linear, "transform", writing)
    with pytest.raises(autobatch.AutobatchError):
        same_as_loop(mixture, 0)
    assert not WRITTEN.any()
