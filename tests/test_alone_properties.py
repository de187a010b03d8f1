"""What a property gives comes out where its name is asked for, and nowhere else."""

from __future__ import annotations

import functools
from enum import Enum
from operator import attrgetter

import pytest
import torch
from torch import nn

import autobatch
from tests.oracle import assert_matches_loop
from tests.test_alone_beginning import by_the_clock, ways  # noqa: F401

XS = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
KEPT: list[float] = [1.0]


class Layer(nn.Module):
    """A module beside the numbers that say how it is used."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.blank_number = 1

    @property
    def blank(self):
        return self.blank_number


LAYER = Layer()


def decoded(x):
    """A table of its own, beside a number that a module's property gives."""
    found = {}
    for place, value in enumerate(LAYER.inner(x).tolist()):
        if place != LAYER.blank:
            found[place % 2] = found.get(place % 2, 0.0) + value
    return found[0]


class Stack:
    def __init__(self, names):
        self.names, self.items = names, []

    @property
    def top(self):
        return self.items[-1]

    @top.setter
    def top(self, value):
        self.items[-1] = value


NAMES = [["add"], ["mul"]]


def stacked(x):
    """A property of what is on top, which is assigned, beside a table that existed."""
    stack = Stack(NAMES)
    stack.items.append(x[0])
    for names, value in zip(stack.names, x, strict=False):
        stack.top = stack.top + value if names[0] == "add" else stack.top * value
    return stack.top


class Node:
    """Of a tree search: all instances are the program's own."""

    def __init__(self, parent=None, prior=1.0):
        self.parent, self.prior, self.children, self.visits, self.total = parent, prior, {}, 0, 0.0

    @property
    def mean(self):
        return self.total / self.visits if self.visits else 0.0

    def best(self):
        return max(self.children.items(), key=lambda each: each[1].mean + each[1].prior)[1]


def searched(x):
    """Objects that the program makes are told apart from the module, which existed before."""
    root = Node()
    for _ in range(4):
        node = root
        while node.children:
            node = node.best()
        values = LAYER.inner(x).softmax(-1)
        for place in range(3):
            node.children[place] = Node(node, values[place].item())
        value = values.max().item()
        while node is not None:
            node.visits += 1
            node.total += value
            node = node.parent
    return root.mean, root.best().visits


class Interval:
    """Its width is computed once, and is kept in what the program makes."""

    def __init__(self, low, high):
        self.low, self.high = low, high

    @functools.cached_property
    def width(self):
        return self.high - self.low


def halved(x):
    """The widest of some intervals is halved: each is the program's own, beside a tensor."""
    intervals = [Interval(LAYER.inner(x)[0], 2.0 + x[1].abs())]
    while max(each.width.item() for each in intervals) > 0.5 and len(intervals) < 9:
        intervals.sort(key=lambda each: each.width.item())
        widest = intervals.pop()
        middle = (widest.low + widest.high) / 2
        intervals += [Interval(widest.low, middle), Interval(middle, widest.high)]
    return intervals[-1].width, len(intervals)


@pytest.mark.parametrize("program", [decoded, stacked, searched, halved])
def test_a_program_beside_a_property_runs_plainly(ways, program):  # noqa: F811
    with torch.no_grad():
        assert_matches_loop(program, (XS,), batch_sizes=(1, 7), configurations=[{}])
    assert all(ways)


class Holder:
    """Its properties give what existed before, and write to what is assigned."""

    def __init__(self):
        self.number = 0

    @property
    def kept(self):
        return KEPT

    @property
    def keeps(self):
        return KEPT.append

    @property
    def gives(self):
        return lambda: KEPT

    @property
    def added(self):
        return self.number

    @added.setter
    def added(self, values):
        values.append(2.0)
        self.number += 1


class Named(Holder):
    by_function = property(lambda self: self.found())

    def found(self):
        return KEPT


def by_name(x):
    Holder().kept.append(x)


def by_text(x):
    getattr(Holder(), "kept").append(x)  # noqa: B009


def by_some_text(x):
    getattr(Holder(), "ke" + "_pt"[x[0].numel() :]).append(x)


def by_getter(x):
    attrgetter("kept")(Holder()).append(x)


def by_map(x):
    [*map(attrgetter("kept"), [Holder()])][0].append(x)  # noqa: RUF015


def by_pattern(x):
    match Holder():
        case Holder(kept=found):
            found.append(x)


def by_function(x):
    Named().by_function.append(x)


def by_call(x):
    Holder().gives().append(x)


def by_method(x):
    Holder().keeps(x)


def by_function_of_property(x):
    Holder.kept.fget(Holder()).append(x)


def by_assignment(x):
    Holder().added = KEPT


def by_setattr(x):
    setattr(Holder(), "added", KEPT)  # noqa: B010


def by_loop(x):
    for Holder().added in [KEPT]:
        pass


WRITING = [
    *(by_name, by_text, by_some_text, by_getter, by_map, by_pattern, by_function),
    *(by_call, by_method, by_function_of_property, by_assignment, by_setattr, by_loop),
]


@pytest.mark.parametrize("writes", WRITING)
def test_what_a_property_leads_to_is_not_written(ways, writes):  # noqa: F811
    try:
        with pytest.raises(autobatch.AutobatchError):
            autobatch.vmap(writes)(XS)
        left = KEPT.copy()
    finally:
        KEPT[:] = [1.0]
    assert left == [1.0]
    assert not any(ways)


class Narrow(Interval):
    pass


class Kind(Enum):
    """Its members existed before, all of them."""

    ONE = 1

    @functools.cached_property
    def width(self):
        return self.value * 2


class Cached(nn.Module):
    @functools.cached_property
    def width(self):
        return 3


EXISTED = Narrow(1.0, 3.0)
CACHED = Cached()
remembered = functools.cache(Interval)


def of_one_that_existed(x):
    return Interval(x[0], x[1]).width + EXISTED.width


def of_a_member(x):
    return x[0] * (Kind.ONE if x[0] > 0 else Kind(1)).width


def of_a_module(x):
    return x[0] * CACHED.width


def of_one_that_is_remembered(x):
    return x[0] * remembered(1.0, 2.0).width


@pytest.mark.parametrize(
    ("program", "holder"),
    [
        (of_one_that_existed, EXISTED),
        (of_a_member, Kind.ONE),
        (of_a_module, CACHED),
        (of_one_that_is_remembered, remembered(1.0, 2.0)),
    ],
)
def test_what_is_cached_in_one_that_existed_is_not_written_plainly(ways, program, holder):  # noqa: F811
    """As they run together: it is refused, or what comes is the loop's."""
    try:
        expected = torch.stack([torch.as_tensor(program(x)) for x in XS])
        vars(holder).pop("width")
        try:
            found = autobatch.vmap(program)(XS)
        except autobatch.AutobatchError:
            found = expected
    finally:
        vars(holder).pop("width", None)
    assert not any(ways)
    torch.testing.assert_close(found, expected)
