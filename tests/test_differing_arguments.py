"""Calls whose ``*x`` and ``**y`` hand on other arguments in some threads than in others."""

from __future__ import annotations

import dataclasses
import typing

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

XS = torch.tensor([1.0, -2.0, 3.0, 0.5])


def weighed(a=1, b=2, **more):
    total = a * 10 + b
    for value in more.values():
        total = total + value
    return total, len(more)


def named(name, x):
    return weighed(**{name: x})


def optioned(options, x):
    total, n = weighed(**options)
    return total * x, n


class Scale:
    def __init__(self, by):
        self.by = by

    def applied(self, x=0.0, **more):
        self.by = self.by + len(more)
        return x * self.by


def of_methods(name, x):
    scale = Scale(2)
    y = scale.applied(**{name: x})
    return y, scale.by, dict(**{name: x})[name]


def longest(*parts):
    best = parts[0]
    for part in parts[1:]:
        if part > best:
            best = part
    return best, len(parts)


def spread(counts, x):
    return longest(x, *[x * i for i in counts])


def appended(log, *items, **named):
    for item in items:
        log.append(item)
    log.append(len(named))
    return len(items)


def written(items, name, x):
    log = [x]
    kept = log
    n = appended(log, *items, **{name: x})
    return n, len(kept), kept[-1], str(kept[1:])


def consumed(items, name, x):
    """What an iterator hands on before names are seen to differ is not lost."""
    rest = iter(items)
    first = next(rest)
    return longest(first, *rest), weighed(*[1, 2], **{name + name: x})


def used_once(items, name, x):
    rest = iter(items)
    return appended([], *rest, **{name: x}), list(rest)


def total(*nodes):
    found = 0
    for node in nodes:
        found = found + node[0] + total(*node[1])
    return found


def of_trees(tree):
    return total(tree)


def both(tree, x):
    """Calls that may run as one."""
    left, right = tree
    return deep(*left, by=x) + deep(*right, by=x)


def deep(*parts, by):
    if not parts:
        return by * 1
    return parts[0] * deep(*parts[1:], by=by)


def fails(name, x):
    return limited(**{name: x})


def limited(a=0, b=0):
    if a < 0:
        raise ValueError(f"{float(a)} is below 0")
    return a + b


@dataclasses.dataclass
class Parts:
    first: object = 1
    second: object = 2
    third: object = 3

    @staticmethod
    def added(*values):
        return sum(values)


class Pair(typing.NamedTuple):
    first: object = 1
    second: object = 2


class Found:
    def __init__(self, *found):
        self.found = found


def short(*values, by=2):
    return sum(values) * by


def of_short_ones(counts, x):
    """What would stay in its block, were the arguments as many in each thread."""
    held, pair = Parts(*counts), Pair(*counts[:1])
    found = Found(*[x * i for i in counts], x)
    total = short(*counts) + short(*counts, by=3) + Parts.added(*counts)
    return held.second * x + held.third, pair.second, len(found.found), found.found[-1], total


NAMES = autobatch.objects(["a", "b", "c", "a"])
ITEMS = autobatch.objects([[1, 2], [3], [1], [4, 5]])
TREES = [(1, []), (2, [(3, []), (4, [(5, [])])]), (1, [(1, []), (1, []), (1, [])]), (7, [])]
PAIRS = [((1, 2), ()), ((), (3,)), ((1, 2, 3), (4, 5)), ((2,), (2,))]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("program", "args"),
    [
        (named, (NAMES, XS)),
        (optioned, (autobatch.objects([{"a": 1.0}, {"b": XS[1]}, {"z": 1}, {}]), XS)),
        (of_methods, (autobatch.objects(["x", "y", "z", "x"]), XS)),
        (spread, (autobatch.objects([[1], [2, 3], [], [1]]), XS)),
        (written, (ITEMS, NAMES, XS)),
        (consumed, (ITEMS, NAMES, XS)),
        (used_once, (ITEMS, NAMES, XS)),
        (of_short_ones, (autobatch.objects([[1], [2, 3], [], [1, 5, 7]]), XS)),
        (of_trees, (autobatch.objects(TREES),)),
        (both, (autobatch.objects(PAIRS), XS)),
        (fails, (autobatch.objects(["a", "b", "a", "q"]), XS.abs())),
        (fails, (autobatch.objects(["a", "a", "b", "q"]), XS)),
    ],
)
def test_each_kind_is_called_for_its_threads(program, args):
    assert_matches_loop(program, args)


def test_threads_with_like_arguments_run_together():
    with autobatch.counts() as counts:
        autobatch.vmap(named, executor="vmap")(autobatch.objects(["a", "b"] * 8), torch.ones(16))
    assert counts.block_executions == 6
