"""Objects that have modules run plainly, and what these write is seen however they are come to."""

import copy
import dataclasses
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter

import pytest
import torch
from torch import nn

import autobatch

pytestmark = pytest.mark.usefixtures("plain_is_better")

LOG: list[int] = []
TAIL = "st"
X = torch.randn(5, 6, 4, generator=torch.Generator().manual_seed(0))


class Predictor(nn.Module):
    """What is told no token begins with zeros; a list is made in it."""

    def __init__(self):
        super().__init__()
        self.embed, self.cell = nn.Embedding(5, 4), nn.GRUCell(4, 4)

    def forward(self, token, state=None):
        row = torch.zeros(1, 4) if token is None else self.embed(torch.tensor([token]))
        return self.cell(row, state)


@dataclass
class Hypothesis:
    score: float
    tokens: list[int] = field(default_factory=list)


class Decoder:
    def __init__(self, predictor, joint):
        self.predictor, self.joint, self.blank = predictor, joint, 4

    def decode(self, frames):
        found, last, state = Hypothesis(0.0), None, None
        for at in range(len(frames)):
            frame = frames[at : at + 1]
            for _ in range(3):
                new = self.predictor(last, state)
                score, token = self.joint(torch.cat([frame, new], dim=1))[0].max(0)
                if token.item() == self.blank:
                    break
                found.tokens.append(token.item())
                found.score += score.item()
                last, state = token.item(), new
        return found.score, found.tokens


def test_a_decoder_whose_modules_make_lists():
    torch.manual_seed(0)
    decoder = Decoder(Predictor(), nn.Linear(8, 5))
    rows = [decoder.decode(x) for x in X]
    assert len({len(tokens) for _, tokens in rows}) > 1
    batched = autobatch.vmap(decoder.decode, ragged_out=(None, "list"))
    for _ in range(3):
        with autobatch.counts() as counts:
            scores, tokens = batched(X)
    assert counts.plain == len(X)
    assert tokens == [tokens for _, tokens in rows]
    assert scores.tolist() == [score for score, _ in rows]


class Logs(nn.Module):
    def forward(self, x, log):
        log.append(1)
        return x


class Fixed:
    __slots__ = ("first",)

    def __init__(self, first):
        self.first = first


@dataclass
class Fields:
    first: nn.Module


class Within(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.list = [module]

    def forward(self, x):
        return x


class Holder:
    def __init__(self, module):
        self.first, self.some, self.pair = module, [module], (module, 1)
        self.named, self.fixed = {"a": module}, Fixed(module)
        self.fields = Fields(module)
        self.layers = nn.ModuleList([module])
        self.inner = Within(module)


def by_a_name(holder, x, log):
    return holder.first(x, log)


def by_a_value(holder, x, log):
    call = holder.first
    return call(x, log)


def by_a_list(holder, x, log):
    for each in holder.some:
        x = each(x, log)
    return x


def by_a_pair(holder, x, log):
    return holder.pair[0](x, log)


def by_a_key(holder, x, log):
    return holder.named["a"](x, log)


def by_a_slot(holder, x, log):
    return holder.fixed.first(x, log)


def by_a_field(holder, x, log):
    return holder.fields.first(x, log)


def by_a_layer(holder, x, log):
    return holder.layers[0](x, log)


def by_a_list_of_a_module(holder, x, log):
    return holder.inner.list[0](x, log)


def by_text(holder, x, log):
    return getattr(holder, "fir" + TAIL)(x, log)


def by_a_getter(holder, x, log):
    return attrgetter("first")(holder)(x, log)


def by_a_pattern(holder, x, log):
    match holder:
        case Holder(first=found):
            return found(x, log)
    return x


def by_all_fields(holder, x, log):
    return dataclasses.astuple(holder.fields)[0](x, log)


def by_a_copy(holder, x, log):
    return copy.copy(holder).first(x, log)


def by_what_holds_it(holder, x, log):
    return [holder][0].first(x, log)


def by_a_method(holder, x, log):
    return holder.first.forward(x, log)


def by_another_name(holder, x, log):
    other = Fields(holder)
    return other.first.first(x, log)


WAYS = [each for name, each in list(globals().items()) if name.startswith("by_")]
HOLDER = Holder(Logs())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("passed", [False, True])
def test_what_a_module_writes_is_seen_however_it_is_come_to(way, passed):
    def own(x):
        if x.sum() > 0:
            x = x + 1
        holder = [HOLDER][0] if passed else HOLDER
        return way(holder, x, LOG)

    for _ in range(3):
        with autobatch.counts() as counts, suppress(autobatch.AutobatchError):
            autobatch.vmap(own)(X[:2])
        assert not counts.plain and not LOG


@pytest.mark.sampled(6)
@pytest.mark.parametrize("way", WAYS)
def test_what_it_writes_of_its_own_is_the_loops(way):
    def own(x):
        log = [0]
        if x.sum() > 0:
            x = way(HOLDER, x + 1, log)
        return way(HOLDER, x, log), len(log)

    for _ in range(3):
        with suppress(autobatch.AutobatchError):
            found, lengths = autobatch.vmap(own)(X)
            rows = [own(x) for x in X]
            torch.testing.assert_close(found, torch.stack([row for row, _ in rows]))
            assert lengths.tolist() == [length for _, length in rows]


def test_where_a_module_is_had_is_looked_at_again():
    """By a name first, then in a list too, which nothing had told of."""
    holder = SimpleHolder()
    holder.first, holder.some = Logs(), []
    own_log: list[int] = []

    def own(x):
        if x.sum() > 0:
            x = x + 1
        x = holder.first(x, [])
        for each in holder.some:
            x = each(x, own_log)
        return x

    for _ in range(3):
        with autobatch.counts() as counts:
            autobatch.vmap(own)(X[:2])
    assert counts.plain == 2
    holder.some.append(holder.first)
    for _ in range(3):
        with autobatch.counts() as counts, suppress(autobatch.AutobatchError):
            autobatch.vmap(own)(X[:2])
        assert not counts.plain and not own_log


class SimpleHolder:
    first: nn.Module
    some: list[nn.Module]
