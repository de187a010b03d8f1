"""Options of a ``vmap`` inside a program that say what its function gets, draws and gives."""

from __future__ import annotations

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


@ways
def test_limits(way):
    for function, limit, error in [
        (grown, "max_steps", autobatch.StepLimitError),
        (nested, "max_depth", autobatch.DepthLimitError),
    ]:
        for most, fails in [(2, True), (500, False)]:

            def inner(row, function=function, given={limit: most}):  # noqa: B006
                return autobatch.vmap(function, **given)(row)

            if fails:
                with pytest.raises(error):
                    autobatch.vmap(inner, **way)(X)
            else:
                found = autobatch.vmap(inner, **way)(X)
                torch.testing.assert_close(found, torch.stack([inner(row) for row in X]))


@ways
def test_draws(way):
    def inner(row):
        return autobatch.vmap(lambda n: n * 0 + torch.rand(()), randomness="same")(row)

    found = autobatch.vmap(inner, randomness="different", **way)(X)
    torch.testing.assert_close(found, found[:, :1].expand_as(found))
    assert found[0, 0] != found[1, 0]
