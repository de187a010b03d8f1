"""Threads that go round a loop on their own: the same results, counts and failures as by the queue.

What a listener hears goes by the queue, block by block, so it says what a run without one must
count. ``asked`` tells how often the queue has been asked: hardly, where threads spin.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.values.cells import uniform
from autobatch.vm import gliding, spinning
from autobatch.vm.groups import Group
from autobatch.vm.hops import Counting
from autobatch.vm.leaving import gathered
from autobatch.vm.queue import Waiting
from autobatch.vm.speculating import Riders
from programs.collatz import collatz
from programs.fixed_point import FixedPoint
from programs.mandelbrot import mandelbrot
from tests.heard import counted_as_heard
from tests.of_its_own import of_its_own
from tests.oracle import assert_matches_loop

SIZES = (0, 1, 2, 7, 64)
STARTS = torch.arange(1, 65)
POINTS = torch.linspace(-2.0, 0.5, 64), torch.linspace(-1.1, 1.2, 64)


def until_large(x: Tensor) -> Tensor:
    for i in range(20):
        x = torch.tanh(x) * 1.5 + 0.1 * i
        if x.sum() > 4.0:
            break
    return x


def nested(n: Tensor) -> tuple[Tensor, int]:
    total, rounds = torch.zeros(()), 0
    while n > 0:
        m = n
        while m > 1:
            m = m // 2
            total = total + m
            rounds += 1
        n = n - 3
    return total, rounds


def swapped(n: Tensor) -> tuple[Tensor, Tensor]:
    """Names change places, and two of them mean one tensor when the loop is left."""
    a, b = torch.zeros((), dtype=torch.int64), torch.ones((), dtype=torch.int64)
    c = b
    while b < n:
        a, b = b, a + b
        c = a
    a += 1
    return a, c


def growing(n: int) -> int:
    """An int that leaves int64 while its loop goes on."""
    total = 1
    while n > 0:
        total = total * 3 + n
        n = n - 1
    return total


def rooted(x: Tensor) -> Tensor:
    """What a thread computes once it has left is nan, and so is its gradient."""
    total = x * 0.0
    while x > 1.0:
        total = total + torch.sqrt(x - 1.0) * x
        x = x - 1.0
    return total


def looked_up(n: Tensor, table: Tensor) -> Tensor:
    """It fails for whoever comes to the end of the table."""
    found, i = torch.zeros(()), 0
    while n > 0:
        found = found + table[i]
        n, i = n - 1, i + 1
    return found


def kept_aside(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor, int]:
    """A variable that the loop leaves alone moves with the threads that leave."""
    steps, before = 0, x
    while x < limit:
        x = x * 1.25 + 0.5
        steps += 1
    return x, before * 2, steps


def ranged(x: Tensor, n: Tensor) -> tuple[Tensor, int]:
    """Ranges that stop where each thread says, upwards and downwards."""
    last = -1
    for last in range(1, n, 3):
        x = x * 0.5 + last
    for down in range(9, 9 - n % 7, -2):
        if x > 40:
            break
        x = x + down
    else:
        last += 1
    return x, last


def registers(x: Tensor) -> Tensor:
    """Each lap finds other kinds of tensors by the same names, until all have come by."""
    a, b, c = x.double(), x.int(), x
    for i in range(12):
        a, b, c = b, c, c * 0.5 + 1.0
        if c > 2.0 - 0.5**i:
            break
    return a.double() + b.double() * 10 + c.double() * 100


def widened(x: Tensor) -> Tensor:
    """A tensor becomes wider after some laps, in a block of its own."""
    for i in range(20):
        x = x * 0.9 + 0.2
        if i == 9:
            x = x.double()
        if x > 1.8:
            break
    return x.double()


@pytest.fixture
def asked(monkeypatch):
    """How often a queue has given what runs next."""
    times = Counter()
    given = Waiting.next

    def counted(self, parts):
        times["queue"] += 1
        return given(self, parts)

    monkeypatch.setattr(Waiting, "next", counted)
    return times


CASES = {
    "collatz": (collatz, (STARTS,)),
    "mandelbrot": (mandelbrot, POINTS),
    "until_large": (until_large, (torch.linspace(-3, 3, 64)[:, None].expand(64, 4),)),
    "nested": (nested, (STARTS % 11,)),
    "swapped": (swapped, (STARTS * 5,)),
    "rooted": (rooted, (torch.linspace(0.0, 30.0, 64),)),
    "ranged": (ranged, (torch.linspace(1.0, 2.0, 64), STARTS * 7 % 31)),
    "registers": (registers, (torch.linspace(-5.0, 2.5, 64),)),
    "widened": (widened, (torch.linspace(-1.0, 1.9, 64),)),
    "kept_aside": (kept_aside, (torch.linspace(1.0, 2.0, 64), torch.linspace(0.0, 50.0, 64))),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", CASES)
def test_the_loops_results(name):
    func, args = CASES[name]
    assert_matches_loop(func, args, batch_sizes=SIZES[:-1], chunk_sizes=(None, 5))
    assert_matches_loop(func, args, batch_sizes=SIZES[-1:], chunk_sizes=(None, 25))


@pytest.mark.parametrize("func", [collatz, growing])
def test_the_loops_results_of_numbers(func):
    assert_matches_loop(func, (STARTS,), batch_sizes=SIZES, scalars="python")


@pytest.mark.sampled(16)
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_counts_are_what_listeners_hear(name, engine, size, asked):
    func, args = CASES[name]
    func, some = of_its_own(func), [arg[:size] for arg in args]
    _, _, steps = counted_as_heard(func, some, engine=engine)
    asked.clear()
    with torch.no_grad():
        autobatch.vmap(func, engine=engine, trace_after=0)(*some)
    if name != "swapped":  # where two names mean one tensor, no driver runs
        assert asked["queue"] < len(steps) or len(steps) < 8


def test_a_loop_asks_the_queue_once(asked):
    batched = autobatch.vmap(of_its_own(collatz), trace_after=0)
    for _ in range(4):
        batched(torch.tensor([27]))
    asked.clear()
    with autobatch.counts() as counted:
        assert batched(torch.tensor([27])).tolist() == [111]
    assert counted.by_block["collatz", 1] == 111
    assert counted.host_reads == 112
    assert asked["queue"] <= 4


@pytest.fixture
def gliding_laps(monkeypatch):
    """How many laps each glide has taken."""
    laps = []
    whole = gliding.glided

    def counted(spin, ring):
        before = spin.state.steps.taken
        found = whole(spin, ring)
        laps.append(spin.state.steps.taken - before)
        return found

    monkeypatch.setattr(spinning, "glided", counted)
    return laps


def test_laps_glide(gliding_laps):
    """Once they have come twice alike, for as long as no thread leaves."""
    batched = autobatch.vmap(of_its_own(until_large), trace_after=0)
    xs = torch.full((4, 4), -1.0)
    with torch.no_grad():
        for _ in range(4):
            gliding_laps.clear()
            batched(xs)
    assert sum(gliding_laps) >= 10


def past(x: Tensor, limit: Tensor) -> Tensor:
    for _ in range(40):
        x = torch.tanh(x) + 0.2
        limit = limit - 1
        if (x * x).sum() > limit:
            break
    return x


@pytest.mark.parametrize("rides", [True, False])
def test_rings_glide_on_when_some_leave(gliding_laps, monkeypatch, rides):
    """Whether they ride along or part at once."""
    if not rides:
        monkeypatch.setattr(Riders, "of", lambda group: None)
    batched = autobatch.vmap(of_its_own(past), trace_after=0)
    xs, limits = torch.linspace(0.0, 1.0, 16).reshape(4, 4), torch.tensor([12.0, 22.0, 32.0, 60.0])
    with torch.no_grad():
        for _ in range(4):
            gliding_laps.clear()
            with autobatch.counts() as counted:
                found = batched(xs, limits)
    for row, x, limit in zip(found, xs, limits, strict=True):
        torch.testing.assert_close(row, past(x, limit))
    assert len([laps for laps in gliding_laps if laps]) == 1
    assert sum(gliding_laps) >= 80 - 5
    assert counted.block_executions == counted.by_block.total() >= 80


def which(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    """The loop's variable is read where it is left."""
    for i in range(3, 99, 2):  # noqa: B007
        x = torch.tanh(x) + 0.2
        limit = limit - 1
        if (x * x).sum() > limit:
            break
    return x, i


def downwards(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    """The range ends before most threads leave."""
    for _ in range(25, 0, -1):
        x = torch.tanh(x) + 0.2
        limit = limit - 1
        if (x * x).sum() > limit:
            return x, 1
    return x, 2


def what_is_left(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    """The range goes on where the loop is left."""
    steps = iter(range(40))
    for _ in steps:
        x = torch.tanh(x) + 0.2
        limit = limit - 1
        if (x * x).sum() > limit:
            break
    return x, sum(steps)


def weighed(x: Tensor, limit: Tensor) -> Tensor:
    """Each round reads the loop's variable."""
    for i in range(40):
        x = torch.tanh(x) + 0.01 * i
        limit = limit - 1
        if (x * x).sum() > limit:
            break
    return x


@pytest.mark.sampled(6)
@pytest.mark.parametrize("rides", [True, False])
@pytest.mark.parametrize("func", [past, which, downwards, what_is_left, weighed])
def test_rounds_of_a_loop_over_a_range(func, rides, monkeypatch):
    """Many in one go, with the values of the loop and as many block executions as are told of."""
    if not rides:
        monkeypatch.setattr(Riders, "of", lambda group: None)
    goes, skip = [], Counting.skip
    monkeypatch.setattr(Counting, "skip", lambda *args: (goes.append(args[1]), skip(*args)))
    xs = torch.linspace(0.0, 1.0, 16 * 4).reshape(16, 4)
    for limits in (torch.linspace(12.0, 60.0, 16), torch.full((16,), 22.0), torch.full((16,), 1.0)):
        assert_matches_loop(func, (xs, limits), batch_sizes=(1, 2, 7, 16))
        with torch.no_grad():
            counted_as_heard(of_its_own(func), [xs, limits])
    assert (max(goes, default=0) > 5) == (func is not what_is_left)


def in_turns(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    """Tensors change places from round to round."""
    y = x * 0.5
    while x + y < limit:
        x, y = y * 1.01 + 0.1, x * 1.0
    return x, y


def squared(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    """A number that all threads share becomes too large in the eleventh round."""
    scale = 2.0
    while x < limit:
        x = x * 1.01 + 0.1
        scale = scale**2
    return x, x * scale


@pytest.mark.parametrize("func", [in_turns, squared])
def test_rounds_leave_what_a_loop_leaves(func):
    batched = autobatch.vmap(of_its_own(func), trace_after=0, plain="never")
    xs = torch.linspace(0.0, 1.0, 32)
    for limits in (torch.full((32,), 0.9), torch.linspace(0.0, 0.9, 32), torch.full((32,), 3.0)):
        for _ in range(3):
            if func is squared and limits[0] > 2.0:
                with pytest.raises(OverflowError), torch.no_grad():
                    batched(xs, limits)
                continue
            with torch.no_grad():
                found = batched(xs, limits)
            wanted = zip(*map(func, xs, limits), strict=True)
            for column, rows in zip(found, wanted, strict=True):
                torch.testing.assert_close(column, torch.stack(rows))


def test_laps_glide_on_when_some_leave(gliding_laps):
    """Where a lap is all of its loop: once for all who leave a heavy one, one after the other."""
    layer, xs = FixedPoint(), torch.randn(64, 128) * torch.logspace(-2, 1, 64)[:, None]
    batched = autobatch.vmap(layer, trace_after=0)
    with torch.no_grad():
        for _ in range(3):
            gliding_laps.clear()
            with autobatch.counts() as counted:
                found = batched(xs)
        torch.testing.assert_close(found, torch.stack([layer(x) for x in xs]), rtol=2e-3, atol=2e-3)
    assert len(gliding_laps) == 1
    assert sum(gliding_laps) >= counted.block_executions - 8


def told_apart(x: Tensor) -> object:
    if x < 0:
        return x, x
    while x < 100.0:
        x = x * 1.5 + 0.1
    return x


def test_who_leaves_a_glide_keeps_their_return():
    batched = autobatch.vmap(of_its_own(told_apart), trace_after=0)
    for x in (0.25, 4.0, 30.0):
        batched(torch.linspace(0.01, 50.0, 64))
        xs = torch.cat([torch.tensor([-1.0, x]), torch.linspace(0.01, 50.0, 64)])
        with pytest.raises(autobatch.StackingError, match="in thread 1; results"):
            batched(xs)


def counted_up(n, end):
    total = n * 0
    while n < end:
        n = n + 1
        total = total + n
    return total * 100 + n


def over_a_range(n, end):
    total = n * 0
    for i in range(end):
        total = total + i * n
    return total * 100 + n


def by_turns(n, end):
    low, high = n * 0, n * 0
    while n < end:
        if n < 4:
            low = low * 2 + n
        else:
            high = high * 3 + low
        n = n + 1
    return low * 100 + high


def within(n, end):
    total = n * 0
    while n < end:
        m = n * 0
        while m < n:
            m, total = m + 1, total + n
        n = n + 1
    return total * 100 + n


def up_to_nine(n, end):
    n = 9 - end
    while n < 9:
        n = n + 1
    return end * 100 + n


@pytest.mark.sampled(2)
@pytest.mark.parametrize("func", [counted_up, over_a_range, by_turns, within, up_to_nine])
@pytest.mark.parametrize("scalars", ["python", "tensor"])
def test_loops_end_after_any_number_of_laps(func, scalars):
    """All threads at once, or one after the other: after the last lap, nothing runs again."""
    ends = range(9)
    batched = autobatch.vmap(of_its_own(func), trace_after=0, plain="never", scalars=scalars)
    for size in (1, 3):
        for end in ends:
            rows = torch.tensor([end] * size)
            assert batched(rows * 0, rows).tolist() == [func(0, end)] * size
    rows = torch.tensor(ends)
    assert batched(rows * 0, rows).tolist() == [func(0, end) for end in ends]


class Named(NamedTuple):
    x: Tensor
    steps: int = 0


@dataclass
class Held:
    x: Tensor
    steps: int = 0
    seen: list[int] = field(default_factory=list)


class Noted(Named):
    """Its own code runs when it is made."""

    def __new__(cls, x: Tensor, steps: int = 0) -> Noted:
        return super().__new__(cls, x, steps)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
@pytest.mark.parametrize("kind", [Named, Held])
def test_a_loop_over_records_takes_one_execution_a_round(kind, engine):
    def grown(x: Tensor) -> tuple[Tensor, int]:
        state = kind(x)
        while state.x.sum() < 40:
            state = kind(state.x * 1.5 + 1, steps=state.steps + 1)
        return state.x, state.steps

    given = torch.linspace(0.0, 2.0, 8)[:, None].expand(8, 3)
    assert_matches_loop(grown, (given,))
    with autobatch.counts() as counted:
        _, steps = autobatch.vmap(grown, engine=engine)(given)
    rounds = steps.sum() + 16 if engine == "sequential" else steps.max() + 2
    assert counted.block_executions == rounds


def test_records_with_code_of_their_own_run_it():
    def noted(x: Tensor) -> Tensor:
        state = Noted(x)
        while state.x < 40:
            state = Noted(state.x * 2 + 1, state.steps + 1)
        return state.x + state.steps

    assert_matches_loop(noted, (torch.linspace(0.0, 2.0, 8),))


def test_a_loop_over_ranges_of_each_threads_own_asks_the_queue_once(asked):
    def total(x: Tensor, n: Tensor) -> Tensor:
        for i in range(n):
            x = x * 0.5 + i
        return x

    batched = autobatch.vmap(of_its_own(total), trace_after=0)
    for _ in range(4):
        batched(torch.ones(2), torch.tensor([40, 50]))
    asked.clear()
    with autobatch.counts() as counted:
        batched(torch.ones(2), torch.tensor([40, 50]))
    assert counted.by_block["total", 1] == 50
    assert counted.host_reads == 51
    assert asked["queue"] <= 6


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_the_limit_of_steps_holds_within_a_spin(engine):
    for _ in range(4):
        autobatch.vmap(collatz, engine=engine, trace_after=0)(torch.tensor([27, 97]))
    with autobatch.counts() as counted:
        autobatch.vmap(collatz, engine=engine, trace_after=0)(torch.tensor([27, 97]))
    needed = counted.block_executions
    with autobatch.counts() as counted:
        autobatch.vmap(collatz, engine=engine, trace_after=0, max_steps=needed)(
            torch.tensor([27, 97])
        )
    assert counted.block_executions == needed
    few = needed - 5  # 27 takes 111 steps, 97 takes 118
    with autobatch.counts() as counted, pytest.raises(autobatch.StepLimitError, match="1 thread"):
        autobatch.vmap(collatz, engine=engine, trace_after=0, max_steps=few)(torch.tensor([27, 97]))
    assert counted.block_executions == few


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_who_fails_within_a_spin(engine):
    counts, table = torch.tensor([2, 9, 4, 12, 1]), torch.arange(6.0)
    assert_matches_loop(looked_up, (counts, table), in_dims=(0, None))
    batched = autobatch.vmap(
        looked_up, in_dims=(0, None), engine=engine, on_error="isolate", trace_after=0
    )
    for _ in range(4):
        results = batched(counts, table)
        assert [type(result.exception) for result in results] == [
            type(None),
            IndexError,
            type(None),
            IndexError,
            type(None),
        ]
        assert [results[i].value.item() for i in (0, 2, 4)] == [1.0, 6.0, 0.0]


@pytest.mark.parametrize("order", ["input", None])
def test_streams(order):
    options = {} if order is None else {"order": order}
    for _ in range(3):
        found = dict(autobatch.stream(collatz, list(STARTS), 8, **options))
        assert found == {i: collatz(start) for i, start in enumerate(STARTS)}


@pytest.mark.parametrize("func", [rooted, lambda x: kept_aside(x, torch.tensor(20.0))[0]])
def test_gradients_are_those_of_the_loop(func):
    xs = torch.linspace(0.5, 12.5, 64, requires_grad=True)
    wanted = torch.stack([torch.autograd.grad(func(x), x)[0] for x in xs.unbind()])
    batched = autobatch.vmap(func, trace_after=0)
    for _ in range(4):
        (found,) = torch.autograd.grad(batched(xs).sum(), xs)
        torch.testing.assert_close(found, wanted)


def test_threads_that_have_left_ride_along():
    func = of_its_own(collatz)
    batched, starts = autobatch.vmap(func, trace_after=0), torch.arange(1, 1025)
    for _ in range(4):
        batched(starts)
    with autobatch.counts() as counted:
        assert batched(starts).tolist() == [collatz(n) for n in range(1, 1025)]
    apart = autobatch.vmap(func, trace_after=0, listeners=[lambda step: None])
    with autobatch.counts() as parted:
        apart(starts)
    assert counted.threads_by_block == parted.threads_by_block
    assert counted.row_copies * 8 < parted.row_copies


def test_a_module_that_changes_between_calls():
    layer = FixedPoint()
    batched, xs = autobatch.vmap(layer, trace_after=0), torch.randn(8, 128)
    with torch.no_grad():
        for scale in (1.0, 0.5, 0.25):
            layer.W *= scale
            layer.tolerance = 1e-3 * scale
            for _ in range(3):
                wanted = torch.stack([layer(x) for x in xs])
                torch.testing.assert_close(batched(xs), wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("one", "other", "meet"), [(1, 2, 1), (1, 1, 1), (1, True, 2), (1, 2.0, 2)]
)
def test_who_leaves_with_numbers_of_one_type_waits_as_one_group(one, other, meet):
    parts = [(3, Group(np.array([row]), {"n": uniform(n)})) for row, n in enumerate((one, other))]
    found = gathered(parts, {3: ("n",)}, torch.device("cpu"))
    assert len(found) == meet


def counted_down(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    """Each round computes once more what no round changes."""
    rounds = 0
    for _ in range(40):
        if x.sum().item() > float(limit):
            break
        limit = limit - 1
        rounds += 1
    return limit, rounds


@pytest.mark.parametrize("rides", [True, False])
@pytest.mark.parametrize("size", [2, 3, 8])
def test_what_is_kept_is_kept_for_those_who_are_left(size, rides, gliding_laps, monkeypatch):
    """All but one leave a ring in one round, each in turn: its number must be its own."""
    if not rides:
        monkeypatch.setattr(Riders, "of", lambda group: None)
    xs = torch.arange(1.0, size + 1)[:, None].expand(size, 4) / 4
    batched = autobatch.vmap(counted_down, plain="never", trace_after=0)
    for last in range(size):
        limits = torch.where(torch.arange(size) == last, 30.0, xs.sum(1) + 9)
        expected = [counted_down(x, limit) for x, limit in zip(xs, limits, strict=True)]
        for _ in range(3):
            made, rounds = batched(xs, limits)
            assert made.tolist() == [limit.item() for limit, _ in expected]
            assert rounds.tolist() == [count for _, count in expected]
    assert gliding_laps
