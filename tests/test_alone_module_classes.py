"""Programs that ask a class of modules for what it has, and make none, may run plainly."""

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
