"""Calls that write to what they are given by an option, or through a function handed on."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import autobatch

WEIGHT = torch.ones(3, 2) * 4


def by_map(x, n):
    y = x * 1
    list(map(torch.Tensor.mul_, [y], [2]))
    return y


def by_operator(x, n):
    y = x * 1
    made = list(map(operator.iadd, [y], [2]))
    return y + made[0]


def by_loop(x, n):
    y = x * 1
    if n > 1:
        y = y + 1
    for _ in map(torch.sin_, [y]):
        pass
    return y


def into_lists(x, n):
    lists = [[1], [2]]
    list(map(list.append, lists, [n, n]))
    return lists[0][1] + lists[1][1] + x


def without_writes(x, n):
    y = x * 1
    made = list(map(torch.sin, [y, x]))
    return made[0] + made[1] + y


def statistics(x, n):
    mean, variance = torch.zeros(2), torch.ones(2)
    rows = torch.stack([torch.stack([x, x + 1]), torch.stack([x * 3, x])])
    out = F.batch_norm(rows, mean, variance, training=True)
    return out, mean, variance


def statistics_at_rest(x, n):
    mean, variance = torch.zeros(2), torch.ones(2)
    rows = torch.stack([x, x + 1])[None]
    return F.batch_norm(rows, mean, variance), mean


def renormalised(x, n):
    weight = torch.ones(3, 2) * (x + 2)
    found = F.embedding(n % 3, weight, max_norm=1.0)
    return found, weight


def looked_up(x, n):
    return F.embedding(n % 3, WEIGHT)


PROGRAMS = (
    *(by_map, by_operator, by_loop, into_lists, without_writes, statistics, statistics_at_rest),
    *(renormalised, looked_up),
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("executor", ["vmap", "traced"])
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_the_loop_gives_the_same(program: Any, engine: str, executor: str) -> None:
    x, n = torch.arange(4.0), torch.arange(4)
    mapped = autobatch.vmap(program, engine=engine, executor=executor, trace_after=0)
    for _ in range(2):
        found = mapped(x, n)
        wanted = [program(a.clone(), b) for a, b in zip(x, n, strict=True)]
        if not isinstance(found, tuple):
            found, wanted = (found,), [(each,) for each in wanted]
        for place, column in enumerate(found):
            torch.testing.assert_close(column, torch.stack([each[place] for each in wanted]))


def test_what_existed_before_is_not_written() -> None:
    def shared(n):
        return F.embedding(n % 3, WEIGHT, max_norm=1.0)

    with pytest.raises(autobatch.AutobatchError, match="existed before"):
        autobatch.vmap(shared)(torch.arange(4))
    assert (WEIGHT == 4).all()
