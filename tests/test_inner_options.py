"""Options of a ``vmap`` inside a program that say what its function gets, draws and gives."""

from __future__ import annotations

import functools

import pytest
import torch

import autobatch

X = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
WAYS = [
    {"executor": "vmap"},
    {"executor": "traced", "trace_after": 0},
    {"engine": "program_counter", "trace_after": 0},
    {"engine": "sequential"},
]
ways = pytest.mark.parametrize("way", WAYS, ids=str)


def numbers(row):
    by = row.sum()

    def kind(n):
        return n / by if isinstance(n, float) else n * 100

    whole = autobatch.vmap(lambda n: n / 2 if isinstance(n, float) else n, scalars="python")(row)
    return autobatch.vmap(kind, scalars="python")(row), whole


def where_some_come(row):
    if row.sum() > 7:
        return autobatch.vmap(lambda n: 2.0 if isinstance(n, float) else 3.0, scalars="python")(row)
    return row.double()


def positive(n):
    if n < 2:
        raise ValueError("small")
    return n * 2


def isolated(row):
    found = autobatch.vmap(positive, on_error="isolate")(row)
    return torch.stack([row[0] * 0 if each.exception else each.value for each in found])


def padded(row):
    rows, lengths = autobatch.vmap(lambda n: torch.ones(int(n)), ragged_out="pad")(row)
    return rows.sum(), lengths


def listed(row):
    rows = autobatch.vmap(lambda n: torch.ones(int(n)), ragged_out="list")(row)
    return sum(each.sum() for each in rows)


@pytest.mark.sampled(2)
@ways
@pytest.mark.parametrize("function", [numbers, where_some_come, isolated, padded, listed])
def test_what_comes_out(function, way):
    rows = [function(row) for row in X]
    both = type(rows[0]) is tuple
    expected = tuple(map(torch.stack, zip(*rows, strict=True))) if both else torch.stack(rows)
    for _ in range(2):
        torch.testing.assert_close(autobatch.vmap(function, **way)(X), expected)


def grown(n):
    while n < 20:
        n = n * 1.5
    return n


def nested(n):
    return n if n > 20 else nested(n * 1.5) + 1


def mapped(function):
    return lambda row, given: autobatch.vmap(function, **given)(row)


def made_within(row, given):
    def grown(n):
        while n < 20:
            n = n * 1.5 + row.sum() * 0
        return n

    return autobatch.vmap(grown, **given)(row)


def made_and_called(row, given):
    def nested(n):
        return n if n > 20 else nested(n * 1.5) + 1

    return torch.func.grad(lambda x: autobatch.vmap(lambda n: nested(n), **given)(x).sum())(row)


def made_for_one_by_one(row, given):
    def grown(n):
        while n < 20:
            n = n * 1.5 + row.sum() * 0
        return n

    return autobatch.vmap(grown, engine="sequential", **given)(row)


STEPS = ("max_steps", autobatch.StepLimitError)
DEPTH = ("max_depth", autobatch.DepthLimitError)


@pytest.mark.sampled(4)
@ways
@pytest.mark.parametrize(
    ("function", "limit"),
    [
        (mapped(grown), STEPS),
        (mapped(nested), DEPTH),
        (made_within, STEPS),
        (made_for_one_by_one, STEPS),
        (made_and_called, STEPS),
        (made_and_called, DEPTH),
    ],
)
def test_limits(function, limit, way):
    name, error = limit
    with pytest.raises(error):
        autobatch.vmap(lambda row: function(row, {name: 2}), **way)(X)
    found = autobatch.vmap(lambda row: function(row, {name: 500}), **way)(X)
    rows = [function(row, {name: 500}) for row in X]
    torch.testing.assert_close(found, torch.stack(rows))


@ways
def test_writes(way):
    def counted(row, **given):
        seen, total = [], torch.zeros(())

        def noted(n):
            seen.append(n)
            total.add_(n)
            return n * len(seen) + total

        return autobatch.vmap(noted, **given)(row), len(seen), total

    def one_by_one(row):
        return counted(row, stateful="sequential")

    found = autobatch.vmap(one_by_one, **way)(X)
    first, second = (one_by_one(row) for row in X)
    torch.testing.assert_close(found[0], torch.stack([first[0], second[0]]))
    torch.testing.assert_close(found[1], torch.tensor([3, 3]))
    torch.testing.assert_close(found[2], X.sum(1))
    for given in ({}, {"scalars": "python"}):  # as where a vmap outside maps it
        with pytest.raises(autobatch.SharedWriteError):
            autobatch.vmap(lambda row, given=given: counted(row, **given), **way)(X)


@ways
def test_draws(way):
    def inner(row):
        return autobatch.vmap(lambda n: n * 0 + torch.rand(()), randomness="same")(row)

    found = autobatch.vmap(inner, randomness="different", **way)(X)
    torch.testing.assert_close(found, found[:, :1].expand_as(found))
    assert found[0, 0] != found[1, 0]


@autobatch.function(scalars="python")
def halved(n):
    return n / 2 if isinstance(n, int) else n


@functools.wraps(halved)
def around(n):
    return halved(n)


@pytest.mark.parametrize(
    "way", [{}, {"plain": "never", "trace_after": 0}, {"engine": "sequential"}]
)
@pytest.mark.parametrize("func", [halved, around])
def test_the_options_of_a_decorated_function(func, way):
    """Within a program as outside of it; a wrapper around one has none."""

    def inside(row):
        return autobatch.vmap(func)(row), autobatch.vmap(func, scalars="tensor")(row)

    rows = torch.tensor([[3, 4, 5], [6, 7, 8]])
    own, said = autobatch.vmap(inside, **way)(rows)
    assert torch.equal(own, torch.stack([autobatch.vmap(func)(row) for row in rows]))
    assert torch.equal(own, rows / 2 if func is halved else rows)
    assert torch.equal(said, rows)


@autobatch.function(on_error="isolate")
def small_or_not(n):
    if n < 2:
        raise ValueError("small")
    return n * 2


@autobatch.function(ragged_out="list")
def own_length(n):
    return torch.ones(int(n))


@autobatch.function(max_steps=3)
def counting(n):
    while n < 20:
        n = n + 1
    return n


def kept(found):
    return [type(each.exception).__name__ if each.exception else each.value for each in found]


def looped(row):
    found = kept(autobatch.pfor(small_or_not, 3)), kept(autobatch.map_fn(small_or_not, row))
    lists = autobatch.pfor(own_length, 3), autobatch.map_fn(own_length, row)
    return *found, *([len(each) for each in some] for some in lists)


@ways
def test_those_of_a_decorated_body_of_a_loop(way):
    def inside(row):
        found = looped(row)
        halves = autobatch.map_fn(halved, row.long())
        return str([str(each) for each in found[:2]]), str(found[2:]), halves

    for _ in range(3):
        texts, lengths, halves = autobatch.vmap(inside, **way)(X)
        for place, row in enumerate(X):
            alone = looped(row)
            assert "ValueError" in texts[place]
            assert texts[place] == str([str(each) for each in alone[:2]])
            assert lengths[place] == str((alone[2], alone[3]))
        assert torch.equal(halves, X.long() / 2)


@pytest.mark.parametrize("way", [None, *WAYS], ids=str)
def test_limits_of_a_decorated_body_of_a_loop(way):
    def pfor(row):
        return autobatch.pfor(counting, 3)

    def map_fn(row):
        return autobatch.map_fn(counting, row)

    for function in (pfor, map_fn):
        with pytest.raises(autobatch.StepLimitError):
            function(X[0]) if way is None else autobatch.vmap(function, **way)(X)


def test_what_a_loop_says_itself_counts():
    assert torch.equal(autobatch.map_fn(halved, X.long()[0], scalars="tensor"), X.long()[0])
    assert torch.equal(autobatch.map_fn(halved, X.long()[0]), X.long()[0] / 2)
    assert torch.equal(autobatch.pfor(halved, 3), torch.arange(3) / 2)
    with pytest.raises(ValueError, match="small"):
        autobatch.pfor(small_or_not, 3, on_error="raise")
