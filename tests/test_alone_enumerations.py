"""Enumerations beside objects of one's own: the members existed before, the objects did not."""

import heapq
from collections import deque
from dataclasses import dataclass, field
from enum import Enum, IntEnum

import pytest
import torch

import autobatch
from autobatch.errors import AutobatchError

pytestmark = pytest.mark.usefixtures("plain_is_better")

GAPS = torch.rand(5, 6, generator=torch.Generator().manual_seed(0))


class Kind(IntEnum):
    ARRIVE = 0
    DEPART = 1

    @property
    def title(self):
        return self.name.lower()


@dataclass(order=True)
class Event:
    time: float
    kind: Kind
    who: int = field(compare=False)


class Bank:
    def __init__(self, tellers):
        self.free, self.queue, self.events, self.waits = tellers, deque(), [], []

    def schedule(self, time, kind, who):
        heapq.heappush(self.events, Event(time, kind, who))

    def handle(self, event, service):
        getattr(self, "on_" + event.kind.title)(event, service)

    def on_arrive(self, event, service):
        if not self.free:
            self.queue.append(event)
            return
        self.free -= 1
        self.waits.append(0.0)
        self.schedule(event.time + service[event.who], Kind.DEPART, event.who)

    def on_depart(self, event, service):
        if not self.queue:
            self.free += 1
            return
        after = self.queue.popleft()
        self.waits.append(event.time - after.time)
        self.schedule(event.time + service[after.who], Kind.DEPART, after.who)


def waits(gaps):
    bank, time = Bank(2), 0.0
    for who, gap in enumerate(gaps.tolist()):
        time += gap
        bank.schedule(time, Kind.ARRIVE, who)
    while bank.events:
        bank.handle(heapq.heappop(bank.events), [1.5] * len(gaps))
    return sum(bank.waits), len(bank.waits)


def test_a_queue_of_events():
    batched = autobatch.vmap(waits)
    for rows in (GAPS, GAPS.flip(0), GAPS * 2, GAPS):
        with autobatch.counts() as counts:
            found = batched(rows)
        expected = [waits(row.clone()) for row in rows]
        assert [tuple(each) for each in zip(*map(torch.Tensor.tolist, found), strict=True)] == (
            expected
        )
    assert counts.plain == 5


class Counted:
    """What an enumeration's members have by another class."""

    def seen(self):
        self.hits = getattr(self, "hits", 0) + 1
        return self.hits

    @property
    def noted(self):
        self.hits = -1
        return 1


class Colour(Counted, Enum):
    RED = 1
    BLUE = 2

    def mark(self):
        self.marked = True
        return 2

    @property
    def marking(self):
        self.marked = True
        return 3


def by_method(x):
    return Colour.RED.mark() + int(x[0])


def by_property(x):
    return [Colour(1 + int(x[0] > 2)).marking, int(x[0])][0]


def by_inheritance(x):
    members = list(Colour)
    return members[int(x[0]) % 2].seen()


def by_inherited_property(x):
    return Colour["RED"].noted + int(x[0])


def by_name(x):
    return getattr(Colour.BLUE, "ma" + "rk")() + int(x[0])


@pytest.mark.parametrize(
    "function", [by_method, by_property, by_inheritance, by_inherited_property, by_name]
)
def test_members_are_not_written(function):
    batched = autobatch.vmap(function)
    for _ in range(3):
        with autobatch.counts() as counts, pytest.raises(AutobatchError):
            batched(GAPS)
        assert counts.plain == 0
        assert not any({"hits", "marked"} & vars(colour).keys() for colour in Colour)


class Holder:
    def __init__(self):
        self.count = 0

    def bump(self):
        self.count += 1
        return self.count


class Held(Enum):
    ONE = Holder()


def by_value(x):
    return Held.ONE.value.bump() + int(x[0])


def by_any_value(x):
    return next(each.value for each in Held).bump() + int(x[0])


@pytest.mark.parametrize("function", [by_value, by_any_value])
def test_what_members_hold_is_not_written(function):
    batched = autobatch.vmap(function)
    for _ in range(3):
        with autobatch.counts() as counts, pytest.raises(AutobatchError):
            batched(GAPS)
        assert counts.plain == 0 and Held.ONE.value.count == 0
