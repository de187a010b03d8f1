"""``torch.utils._pytree.tree_map`` in a program: its function is one of the program's."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._pytree import tree_map

import autobatch
from tests.oracle import assert_matches_loop

Pair = namedtuple("Pair", ["first", "second"])


def bent(x):
    return x * 2 if x.sum() > 0 else x - 1


def of_nested(x):
    return tree_map(bent, {"a": x, "b": [x + 1, (x, Pair(x - 1, x))], "c": ()})


def of_one_leaf(x):
    return tree_map(lambda t: t + x, x * 2)


def of_others(x):
    return tree_map(bent, OrderedDict(a=x, b=[x + 1]))


def of_several(x):
    trees = {"a": x, "b": [x + 1]}, {"a": x * 2, "b": [x]}, {"b": [x.sum()], "a": x}
    return tree_map(lambda a, b, c: bent(a) + b * c, *trees)


def until_pairs(x):
    tree = [(x, x + 1), {"k": (x, x * 3)}]
    return tree_map(lambda pair: bent(pair[0]) * pair[1], tree, is_leaf=lambda t: type(t) is tuple)


def written(x):
    y = [x * 1, x + 1]
    pytree.tree_map_(lambda t: t.add_(1), (x, y))
    tree_map(lambda t: t.mul_(2), y)
    return x, y


def of_structures_that_differ(x):
    return tree_map(lambda a, b: a + b, [x, x], [x])


PROGRAMS = [of_nested, of_one_leaf, of_others, of_several, until_pairs, written]


@pytest.mark.parametrize("program", [*PROGRAMS, of_structures_that_differ])
def test_is_the_loop_s(program):
    torch.manual_seed(0)
    assert_matches_loop(program, [torch.randn(7, 3)], batch_sizes=[1, 2, 7])


@pytest.mark.parametrize("program", [of_nested, of_several, until_pairs, written])
def test_nothing_runs_thread_by_thread(program):
    with autobatch.counts() as counts:
        autobatch.vmap(program, plain="never", fallback="error")(torch.randn(7, 3))
    assert counts.fallbacks == 0


def test_effects_are_the_loop_s(capsys):
    def told(x):
        print(x.item())
        return x

    autobatch.vmap(lambda x: tree_map(told, [x, {"a": x}]))(torch.tensor([1.0, -2.0]))
    assert sorted(capsys.readouterr().out.split()) == ["-2.0", "-2.0", "1.0", "1.0"]
