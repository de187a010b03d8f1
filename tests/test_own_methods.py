"""Methods that Python calls by itself, of the user's classes: operators, subscripts, properties."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

NUMBERS = torch.tensor([3, 1, 4])


class Counting:
    """Reading it changes it."""

    def __init__(self):
        self.reads = 0

    def __getitem__(self, index):
        self.reads += 1
        return self.reads


def reads_in_order(n):
    counting = Counting()
    first = counting[0]
    second = counting[0]
    return first * 10 + second + n, counting.reads


def test_a_method_with_an_effect_runs_once():
    assert_matches_loop(reads_in_order, [NUMBERS], scalars="python")


@dataclass
class Scale:
    """Compares by value, so it has no hash."""

    factor: int

    def __call__(self, x):
        return x * self.factor

    def __len__(self):
        return self.factor


SCALE = Scale(3)


def calls_unhashable(n):
    return SCALE(n) + len(SCALE) + len(str(SCALE))


def calls_its_argument(scale, n):
    return scale(n) + len(scale)


def test_objects_without_a_hash_are_called():
    assert_matches_loop(calls_unhashable, [NUMBERS])
    scales = autobatch.objects([Scale(1), Scale(2), Scale(3)])
    assert_matches_loop(calls_its_argument, [scales, NUMBERS])


class Vector:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)


ONE, TWO = Vector(1, 2), Vector(3, 4)


def sum_of_shared(n):
    """What an operator of shared objects gives is the program's own: it may be written."""
    total = ONE + TWO
    total.x = n
    return total.x + (ONE + TWO).x + total.y


def test_operators_of_shared_objects():
    assert_matches_loop(sum_of_shared, [NUMBERS], scalars="python")


@pytest.mark.parametrize("options", [{"executor": "vmap"}, {"trace_after": 0}])
def test_an_operator_does_not_write_the_callers_object(options):
    given = [Counting(), Counting(), Counting()]

    def program(counting):
        return counting[0]

    with pytest.raises(autobatch.AutobatchError, match="existed before the call"):
        autobatch.vmap(program, **options)(autobatch.objects(given))
    assert [counting.reads for counting in given] == [0, 0, 0]


class Doubled:
    """A descriptor that takes and gives an attribute."""

    def __get__(self, instance, owner):
        return instance.__dict__.get("kept", 5)

    def __set__(self, instance, value):
        instance.kept = value * 2


class Holder:
    size = Doubled()


def through_a_descriptor(n):
    holder = Holder()
    before = holder.size
    holder.size = n
    return before, holder.size, holder.kept


def test_descriptors():
    assert_matches_loop(through_a_descriptor, [NUMBERS], scalars="python")


# Effects between forked calls.


class Loud:
    def __init__(self, n):
        self.n = n

    def count(self, n):
        print("count", n)
        return n

    @property
    def value(self):
        print("value", self.n)
        return self.n

    def __add__(self, other):
        print("add", self.n)
        return self.n + other

    def __bool__(self):
        print("bool", self.n)
        return True


def counts_between(loud, n):
    if n < 2:
        return n
    a = counts_between(loud, n - 1)
    b = loud[n].count(n)
    return a + b + counts_between(loud, n - 2)


def reads_between(loud, n):
    if n < 2:
        return n
    a = reads_between(loud, n - 1)
    b = loud[n].value
    return a + b + reads_between(loud, n - 2)


def adds_between(loud, n):
    if n < 2:
        return n
    a = adds_between(loud, n - 1)
    b = loud[n] + 1
    return a + b + adds_between(loud, n - 2)


def asks_between(loud, n):
    if n < 2:
        return n
    a = asks_between(loud, n - 1)
    b = 1 if loud[n] else 2
    return a + b + asks_between(loud, n - 2)


@pytest.mark.parametrize(
    "func", [counts_between, reads_between, adds_between, asks_between], ids=lambda f: f.__name__
)
def test_effects_between_forked_calls_keep_their_order(func, capsys):
    loud = [Loud(n) for n in range(5)]
    expected = func(loud, 4)
    printed = capsys.readouterr().out
    for _ in range(2):
        result = autobatch.vmap(func, scalars="python")(
            autobatch.objects([loud]), torch.tensor([4])
        )
        assert result.tolist() == [expected]
        assert capsys.readouterr().out == printed


class Total:
    """Adding to it writes down that something was added."""

    def __init__(self, log):
        self.total, self.log = 0, log

    def __add__(self, other):
        self.log.append(1)
        self.total += other
        return self


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def added_in_a_loop(n):
    log = []
    total = Total(log)
    seen = 0
    for i in range(n):
        total = total + fibonacci(i)
        seen += len(log)
    return total.total, seen


def test_an_operator_with_an_effect_is_not_deferred():
    assert_matches_loop(added_in_a_loop, [NUMBERS], scalars="python")


class Filter:
    """Its methods are called as those of dicts, sets, lists and tensors are, and branch."""

    def __init__(self, start):
        self.mean = start
        self.weights = torch.ones(2)
        self.missed = 0

    def update(self, z):
        if z[0] < 0:
            self.missed += 1
            return False
        self.weights[0] += 1
        self.mean = self.mean + z
        return True

    def pop(self):
        if self.missed > 1:
            return self.mean.sum()
        return self.mean[0]


def filtered(zs):
    filter = Filter(zs[0] * 0)
    used = 0
    for z in zs:
        if filter.update(z):
            used += 1
    last = filter.pop()
    return filter.mean, filter.weights, filter.missed, used, last


def filtered_in_sight(kind):
    def run(zs):
        filter = kind(zs[0] * 0)
        return [filter.update(z) for z in zs], filter.mean

    return run


@pytest.mark.sampled(6)
@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_own_methods_with_names_that_others_have_match_the_loop(engine, size):
    torch.manual_seed(0)
    zs = torch.randn(size, 4, 2)
    assert_matches_loop(filtered, [zs], engine=engine)
    assert_matches_loop(filtered_in_sight(Filter), [zs], engine=engine)


@pytest.mark.parametrize("program", [filtered, filtered_in_sight(Filter)])
def test_objects_whose_methods_part_threads_stay_together(program):
    """A call of ``update`` may be one of a program's: it ends its block."""
    zs = torch.randn(64, 4, 2, generator=torch.Generator().manual_seed(0))
    with autobatch.counts() as counts:
        autobatch.vmap(program)(zs)
    assert counts.by_thread == 0


class Added:
    """Notes that it is asked; large ones fail."""

    def __init__(self, value):
        self.value = value
        self.asked = 0

    def __radd__(self, other):
        self.asked += 1
        if self.value > 2:
            raise ValueError(f"{self.value} is too large")
        return other + self.value


def sums_up_to_one_that_fails(n):
    one, other = Added(1), Added(n)
    try:
        total = sum([one, other, one])
    except ValueError:
        total = -1
    return total, one.asked, other.asked


def test_what_a_sum_has_asked_before_one_that_fails_stays_done():
    assert_matches_loop(sums_up_to_one_that_fails, [NUMBERS], scalars="python")
    assert_matches_loop(sums_up_to_one_that_fails, [NUMBERS + 2], scalars="python")
