"""Enumerations beside objects of one's own: the members existed before, the objects did not."""

import heapq
from collections import deque
from dataclasses import dataclass, field
from enum import Enum, IntEnum

import pytest
import torch

import autobatch
from autobatch.alone import contents
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


@dataclass(frozen=True)
class Step:
    kind: Kind
    by: float


class Machine:
    """Its method has the name of a list's, and there were instances of another class before."""

    def __init__(self, steps, start):
        self.steps, self.stack, self.at = steps, [start], 0

    def pop(self):
        return self.stack.pop()

    def run(self):
        while self.at < len(self.steps):
            step = self.steps[self.at]
            self.at += 1
            match step:
                case Step(Kind.ARRIVE, by):
                    self.stack.append(self.stack[-1] + by)
                case Step(Kind.DEPART):
                    if len(self.stack) > 1:
                        self.pop()
        return self.pop(), len(self.stack)


def ran(steps, start):
    return Machine(steps, start).run()


def of_members(kinds, start):
    return start + sum(1 for kind in kinds if kind is Kind.DEPART), kinds[-1].title


def steps_of(letters):
    return [Step(Kind[{"a": "ARRIVE", "d": "DEPART"}[each]], 0.5) for each in letters]


LETTERS = ["aad", "ddaa", "a", "", "dadada"]


@pytest.mark.parametrize("scalars", ["python", "tensor"])
def test_members_in_the_arguments(scalars):
    starts = torch.arange(5.0)
    of_one = torch.Tensor.item if scalars == "python" else torch.Tensor.clone
    for change in range(3):
        given = [steps_of(each + "ad" * change) for each in LETTERS]
        kinds = [[*(step.kind for step in steps), Kind.DEPART] for steps in given]
        for function, items in ((ran, given), (of_members, kinds)):
            batched = autobatch.vmap(function, scalars=scalars)
            for _ in range(3):
                with autobatch.counts() as counts:
                    first, second = batched(autobatch.objects(items), starts)
                wanted = [function(*each) for each in zip(items, map(of_one, starts), strict=True)]
                assert first.tolist() == [float(each) for each, _ in wanted]
                assert list(second) == [each for _, each in wanted]
            assert counts.plain == 5 or (function is ran and scalars == "tensor")


def marks_it(member, x):
    return member.mark() + int(x[0])


def sees_it(member, x):
    return member.seen() + int(x[0])


def sees_one_in_a_list(member, x):
    return [member][0].seen() + int(x[0])


def notes_it(member, x):
    return member.noted + int(x[0])


def leads_to_another(member, x):
    return type(member)["RED"].mark() + int(x[0])


@pytest.mark.parametrize(
    "function", [marks_it, sees_it, sees_one_in_a_list, notes_it, leads_to_another]
)
def test_members_in_the_arguments_are_not_written(function):
    batched = autobatch.vmap(function)
    given = autobatch.objects([Colour.RED, Colour.BLUE, Colour.RED, Colour.RED, Colour.BLUE])
    for _ in range(3):
        with autobatch.counts() as counts, pytest.raises(AutobatchError):
            batched(given, GAPS)
        assert counts.plain == 0
        assert not any({"hits", "marked"} & vars(colour).keys() for colour in Colour)


def bumps_it(member, x):
    return member.value.bump() + int(x[0])


def test_what_members_in_the_arguments_hold_is_not_written():
    with autobatch.counts() as counts, pytest.raises(AutobatchError):
        autobatch.vmap(bumps_it)(autobatch.objects([Held.ONE] * 5), GAPS)
    assert counts.plain == 0 and Held.ONE.value.count == 0


class Taken:
    """Instances existed, and have a method with the name of a list's, which writes."""

    def __init__(self):
        self.left = 3

    def pop(self):
        self.left -= 1
        return self.left


class Taking(Taken):
    pass


def takes(each, x):
    own = Machine([], x[0].item())
    own.stack.append(each)
    return own.stack[-1].pop() + own.pop().pop()


@pytest.mark.parametrize("kind", [Taken, Taking])
def test_a_method_of_what_existed_is_told_from_a_lists(kind):
    given = [kind() for _ in range(5)]
    for _ in range(3):
        with autobatch.counts() as counts, pytest.raises(AutobatchError):
            autobatch.vmap(takes)(autobatch.objects(given), GAPS)
        assert counts.plain == 0 and all(each.left == 3 for each in given)


class Code(Enum):
    PUSH = 0
    ADD = 1


class Holding(Enum):
    ROWS = ([1],)

    def __init__(self, rows):
        self.rows = rows


def interprets(program):
    stack = []
    for code, number in program:
        if code is Code.PUSH:
            stack.append(number)
        else:
            stack.append(stack.pop() + stack.pop())
    return stack[-1]


def writes_what_a_member_holds(pair):
    pair[0].rows.append(1)
    return len(pair)


def test_members_are_looked_through_once(monkeypatch):
    programs = [[(Code.PUSH, n), (Code.PUSH, 2), (Code.ADD, None)] * 3 for n in range(20)]
    looked, slots_of = [], contents.slots_of
    monkeypatch.setattr(contents, "slots_of", lambda kind: looked.append(kind) or slots_of(kind))
    batched = autobatch.vmap(interprets)
    for _ in range(4):
        looked.clear()
        with autobatch.counts() as counted:
            found = batched(autobatch.objects(programs))
        assert counted.plain == len(programs)
        assert found.tolist() == list(map(interprets, programs))
    assert len(looked) <= 2 * len(Code)


def test_what_members_of_arguments_hold_is_not_written():
    pairs = [(Holding.ROWS, 1), (Holding.ROWS, 2)]
    with pytest.raises(AutobatchError):
        autobatch.vmap(writes_what_a_member_holds)(autobatch.objects(pairs))
    assert Holding.ROWS.rows == [1]
