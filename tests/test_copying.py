"""``copy.copy``, ``copy.deepcopy`` and ``dataclasses.replace`` of what a program has made."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop


@dataclass
class Particle:
    x: Any
    v: Any = 0.5
    seen: list[Any] = field(default_factory=list)


@dataclass
class Checked:
    x: Any

    def __post_init__(self):
        if self.x > 3:
            raise ValueError("far")


@dataclass
class Derived:
    x: Any
    twice: Any = field(init=False, default=0)


class Counted:
    def __init__(self, x):
        self.x = x

    def __copy__(self):
        return Counted(self.x + 1)


def shallow(x):
    p = Particle(x, x * 2)
    q, items, named = copy.copy(p), copy.copy([x, p]), copy.copy({"a": x})
    q.x = q.x + 1
    q.seen.append(1)
    items[1].v += 1
    items[0], named["b"] = x * 3, x
    if x > 2:
        q = copy.copy(q)
        q.x = q.x * 2
    return p.x, p.v, len(p.seen), q.x, q.v, items[0], len(named), copy.copy((x, 1))[0]


def deeply(x):
    inner = [x + 1, torch.zeros(2)]
    p = Particle(inner, inner, [inner, (inner, 2), {"k": x}])
    q = copy.deepcopy(p)
    q.x[0] += 1
    q.seen[2]["k"] = q.seen[1][0][1] + x
    q.v[1] += x
    if x > 2:
        q.x.append(x)
    return inner[0], inner[1], q.x[0], q.x[1], q.seen[2]["k"], len(q.seen[0]), len(inner)


def replaced(x):
    p = Particle(x, seen=[x])
    while p.x < 6:
        if p.x > 3:
            p = dataclasses.replace(p, x=p.x + 1, v=p.v * 2)
        else:
            p = dataclasses.replace(p, x=p.x + 2)
    p.seen.append(p.v)
    return p.x, p.v, p.seen[0], len(p.seen)


@pytest.mark.parametrize("function", [shallow, deeply, replaced])
def test_copies_of_structures_are_structures(function):
    xs = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 2.5])
    assert_matches_loop(function, [xs])
    with autobatch.counts() as counts:
        autobatch.vmap(function)(xs)
    assert counts.fallbacks == 0


def test_copies_that_are_made_in_a_way_of_their_own():
    xs = torch.arange(7.0)
    assert_matches_loop(lambda x: copy.copy(Counted(x)).x, [xs])
    assert_matches_loop(lambda x: dataclasses.replace(Checked(x * 0), x=x).x, [xs])
    assert_matches_loop(lambda x: dataclasses.replace(Derived(x), twice=x).x, [xs])
    assert_matches_loop(lambda x: dataclasses.replace(Particle(x), speed=x).x, [xs])


def memory_shared(x):
    head = x[:2]
    kept = copy.deepcopy([x, head])
    kept[1] += 1
    also = copy.copy(x)
    also += 2
    return kept[0], kept[1], x, head


def test_tensors_that_share_memory_share_it_in_the_copy():
    assert_matches_loop(memory_shared, [torch.arange(21.0).reshape(7, 3)])


def ring(x):
    t, loop = (1, (2, "a")), []
    pair = (loop, x)
    loop.append(pair)
    c = copy.deepcopy(pair)
    return copy.deepcopy(t) is t, c[0][0] is c, c is pair, c[1]


def test_tuples_are_copied_where_a_part_is():
    assert_matches_loop(ring, [torch.arange(3.0)])


def test_a_tensor_in_the_graph_has_no_deep_copy():
    xs = torch.arange(3.0, requires_grad=True)
    with pytest.raises(RuntimeError, match="deepcopy"):
        autobatch.vmap(lambda x: copy.deepcopy([x * 2])[0])(xs)


def shared(x):
    y = copy.copy(x)
    y += 1
    z = copy.copy(y)
    if x.sum() > 5:
        z *= 2
    return x, y, z, y is x


def test_a_copy_of_a_tensor_shares_its_memory():
    rows = torch.arange(6.0).reshape(3, 2)
    loop = [shared(row.clone()) for row in rows]
    found = autobatch.vmap(shared, fallback="error")(rows)
    for part, wanted in zip(found[:3], zip(*loop, strict=True), strict=False):
        assert torch.equal(part, torch.stack(wanted))
    assert not found[3].any()
