"""Plain Python under ``torch.no_grad()``, and modules that have methods of their own alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import autobatch
from tests.test_alone_computing import SIZE, TEXTS, WEIGHT, X, busy, outcome, texts

FRAMES = torch.randn(SIZE, 4, 3, generator=torch.Generator().manual_seed(1)) * 2
LENGTHS = torch.arange(SIZE) % 4 + 1


class Decoder(nn.Module):
    """Prefix beam search over the frames of a CTC model (arXiv 1408.2873); it has no forward."""

    def __init__(self):
        super().__init__()
        self.output = nn.Linear(3, 4)
        self.scales = nn.ParameterDict({"a": nn.Parameter(torch.ones(4))})
        for parameter in self.parameters():
            parameter.requires_grad_(False)

    @torch.no_grad()
    def searched(self, frames, length, width=3):
        probs = F.softmax(self.output(frames), dim=-1)
        beams = {(): (1.0, 0.0)}
        for t in range(int(length.item())):
            p = probs[t]
            found = {}
            for prefix, (blank, other) in beams.items():
                kept = found.get(prefix, (0.0, 0.0))
                found[prefix] = (kept[0] + (blank + other) * p[0].item(), kept[1])
                for token in range(1, p.size(0)):
                    longer = (*prefix, token)
                    ends, goes_on = found.get(longer, (0.0, 0.0))
                    goes_on += (blank if prefix[-1:] == (token,) else blank + other) * p[
                        token
                    ].item()
                    found[longer] = (ends, goes_on)
            ordered = sorted(found.items(), key=lambda item: sum(item[1]), reverse=True)
            beams = dict(ordered[:width])
        return list(max(beams, key=lambda prefix: sum(beams[prefix])))

    def writes_what_it_holds(self, frames, length):
        table = {"scale": self.scales["a"]}
        scale = table.get("scale")
        scale += 0.0
        return busy(frames[:, 0] * scale, "ach" * 5)


torch.manual_seed(3)
DECODER = Decoder()


def prefixes(frames, length):
    return DECODER.searched(frames, length)


@pytest.mark.parametrize("function", [prefixes, DECODER.searched], ids=["within", "itself"])
def test_a_search_by_a_module_without_a_forward(function):
    wanted = [function(*each) for each in zip(FRAMES, LENGTHS, strict=True)]
    found, count = outcome(function, FRAMES, LENGTHS, ragged_out="list")
    assert found == wanted and count >= SIZE


def test_what_a_module_holds_is_not_written():
    found, count = outcome(DECODER.writes_what_it_holds, FRAMES, LENGTHS)
    assert count == 0 and issubclass(found[0], autobatch.AutobatchError)


class Silent(nn.Module):
    pass


SILENT = Silent()


def calls_what_has_no_forward(x, text):
    return busy(SILENT(x) if text == "" else x, text)


def test_what_has_no_forward_fails_where_it_is_called():
    assert outcome(calls_what_has_no_forward, X, texts())[1] == 2 * SIZE
    given = autobatch.objects([*TEXTS[1:], ""])
    found, _ = outcome(calls_what_has_no_forward, X, given)
    assert found[0] is NotImplementedError


def partly(x, text):
    with torch.no_grad():
        first = busy(x, text)
    return first, busy(x, text) * first


@torch.no_grad
def wholly(x, text):
    return busy(x, text), x


def by_the_mode(x, text):
    with torch.no_grad():
        if torch.is_grad_enabled():
            return busy(x, text)
    return busy(x, text) * 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("function", [partly, wholly, by_the_mode])
@pytest.mark.parametrize("size", [4, SIZE])
def test_gradients_are_taken_where_they_are_in_the_loop(function, size):
    x = X[:size].clone().requires_grad_()
    given = autobatch.objects(TEXTS[:size])
    rows = [function(*each) for each in zip(x, given.items, strict=True)]
    whole = isinstance(rows[0], tuple)
    for _ in range(3):
        found = autobatch.vmap(function)(x, given)
        assert torch.is_grad_enabled()
        for place, part in enumerate(found if whole else [found]):
            wanted = torch.stack([row[place] if whole else row for row in rows])
            torch.testing.assert_close(part, wanted)
            assert part.requires_grad == wanted.requires_grad
            if part.requires_grad:
                ours, theirs = (
                    torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for y in (part, wanted)
                )
                torch.testing.assert_close(ours, theirs)


def test_another_function_in_place_of_what_was_wrapped_is_seen():
    def silent(x, text):
        return busy(x, text)

    def writes(x, text):
        WEIGHT.add_(0.0)
        return busy(x, text)

    function = torch.no_grad()(silent)
    assert outcome(function, X, texts())[1] == 2 * SIZE
    names = function.__code__.co_freevars
    function.__closure__[names.index("func")].cell_contents = writes
    assert outcome(function, X, texts())[1] == 0
