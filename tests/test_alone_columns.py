"""Loops over ``zip`` and ``enumerate``: what comes of one argument is not in the others."""

import itertools

import pytest
import torch
from torch import nn

import autobatch

WORDS = ["aba", "b", "", "abba"]
GLOBAL = [[1], [2], [3]]
TABLE = {"a": ["x"], "b": ["y"]}
TRACE = []


class Counted:
    """It may be seen that somebody goes through it."""

    def __iter__(self):
        TRACE.append("gone through")
        return iter([1, 2])


class Stepping:
    """So it may be of what it gives next."""

    def __init__(self, word):
        self.left = list(word)

    def __iter__(self):
        return self

    def __next__(self):
        TRACE.append(len(self.left))
        if not self.left:
            raise StopIteration
        return self.left.pop()


COUNTED = Counted()
ITERATOR = iter([1, 2, 3])


def writes_own(word):
    rows = [[letter] for letter in word]
    for (a, row), b in zip(zip(GLOBAL, rows), word):  # noqa: B905
        row.append(b * a[0])
    return "".join(itertools.chain(*rows))


def writes_own_by_number(word):
    rows, found = [[letter] for letter in word], 0
    for place, (row, before) in enumerate(zip(rows, GLOBAL, strict=False), start=1):
        row[0] = place
        found += row[0] * before[0]
    return found


def writes_own_in_comprehension(word):
    rows = [[letter] for letter in word]
    return len([row.append(a) for a, row in zip(TABLE, rows, strict=False)]) + len(rows)


OWN = (writes_own, writes_own_by_number, writes_own_in_comprehension)


def writes_first(word):
    for row, letter in zip(GLOBAL, word, strict=False):
        row.append(letter)
    return len(word)


def writes_numbered(word):
    for place, row in enumerate(GLOBAL):
        row[0] += place * len(word)
    return len(word)


def writes_through_own(word):
    rows = []
    for row, _ in zip(GLOBAL, word, strict=False):
        rows.append(row)
    for _, row in enumerate(rows):
        row.append(word)
    return len(word)


def writes_nested(word):
    for _, (letter, row) in enumerate(zip(word, GLOBAL, strict=False)):
        row.append(letter)
    return len(word)


def writes_whole(word):
    for pair in zip(GLOBAL, word, strict=False):
        pair[0].append(1)
    return len(word)


def writes_kept(word):
    pairs = zip(GLOBAL, word, strict=False)
    kept = [pairs]
    for row, _ in pairs:
        kept.append(row)
    kept[-1].append(word) if len(kept) > 1 else None
    return len(kept)


def writes_table(word):
    for _, row in zip(word, TABLE.values(), strict=False):
        row.append(1)
    return len(word)


def goes_through(word):
    return len(word) + sum(a for a, _ in zip(COUNTED, (word, word), strict=False))


def goes_through_numbered(word):
    found = 0
    for place, a in enumerate(COUNTED):
        found += place * a
    return found + len(word)


def makes_what_tells(word):
    return len(word) + sum(a for a, _ in zip(Counted(), (word, word), strict=False))


def makes_what_tells_each(word):
    return sum(place for place, _ in enumerate(Stepping(word)))


def goes_on(word):
    return [a for a, _ in zip(ITERATOR, word, strict=False)]


def goes_on_numbered(word):
    return [a for _, a in enumerate(ITERATOR)]


SEEN = (
    *(makes_what_tells, makes_what_tells_each, goes_on, goes_on_numbered),
    *(writes_first, writes_numbered, writes_through_own, writes_nested, writes_whole),
    *(writes_kept, writes_table, goes_through, goes_through_numbered),
)


def outcome(function, words, **options):
    with autobatch.counts() as counts:
        try:
            found = autobatch.vmap(function, **options)(autobatch.objects(words))
        except Exception as error:
            found = (type(error), str(error).splitlines()[0])
    return found, counts.plain


@pytest.mark.parametrize("function", OWN)
def test_what_is_not_written_runs_plainly(function):
    want = [function(word) for word in WORDS]
    for _ in range(3):
        found, plain = outcome(function, WORDS)
        assert (found if isinstance(found, list) else found.tolist()) == want
        assert plain == len(WORDS)


@pytest.mark.parametrize("function", SEEN)
def test_what_existed_before_is_not_written(function):
    """Whatever runs so gives what threads together give; the caller's lists are as they were."""
    before = str((GLOBAL, TABLE))
    found, plain = outcome(function, WORDS)
    want, _ = outcome(function, WORDS, plain="never")
    assert str(found) == str(want)
    assert not plain
    assert str((GLOBAL, TABLE)) == before


class Stacked(nn.Module):
    """A beam of dicts, whose states go through a stack of cells."""

    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(4, 4) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(4) for _ in range(2))

    def forward(self, x):
        beam = [{"score": x.sum(), "states": [(x, torch.zeros(4)) for _ in self.cells]}]
        for _ in range(3):
            found = []
            for entry in beam:
                states, row = [], x
                pairs = enumerate(zip(self.cells, self.norms, entry["states"], strict=True))
                for place, (cell, norm, (h, c)) in pairs:
                    h, c = cell(row, (h, c))
                    row = row + norm(h) if place else h
                    states.append((h, c))
                found += [{"score": entry["score"] + s, "states": states} for s in row[:2]]
            found.sort(key=lambda entry: entry["score"].item())
            for entry in found:
                if entry["score"] > 0:
                    entry["score"] = entry["score"] / 2
            beam = found[-2:]
        return beam[-1]["score"]


def test_modules_side_by_side_with_states():
    torch.manual_seed(0)
    model, xs = Stacked(), torch.randn(7, 4)
    batched = autobatch.vmap(model)
    for _ in range(2):
        with autobatch.counts() as counts:
            found = batched(xs)
        torch.testing.assert_close(found, torch.stack([model(x) for x in xs]))
        assert counts.plain == len(xs)
        with torch.no_grad():
            model.cells[1].bias_hh.add_(0.5)
