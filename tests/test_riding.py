"""Threads that have left a loop with products are computed along for a while: nobody sees it.

What a listener hears goes by the queue, where all part at once. Loops are of one block, of several
in a ring, with several ways out, and within each other; what has left comes to be infinite, would
fail, or would draw.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.batching.trace import Input, record
from programs.fixed_point import FixedPoint
from tests.heard import counted_as_heard
from tests.of_its_own import of_its_own
from tests.oracle import assert_matches_loop

SIZES = (1, 2, 7, 64)
with torch.random.fork_rng():
    torch.manual_seed(3)
    WEIGHT = torch.linalg.qr(torch.randn(16, 16)).Q
    XS = torch.randn(64, 16) * torch.logspace(-2, 0.5, 64)[:, None]
LIMITS = torch.linspace(0.5, 6.0, 64)
COUNTS = torch.arange(64) * 7 % 23


def one_block(x: Tensor, limit: Tensor) -> Tensor:
    while (x * x).sum() < limit:
        x = WEIGHT @ x * 1.1 + 0.05
    return x


def ring(x: Tensor, limit: Tensor) -> Tensor:
    for _ in range(30):
        x = torch.tanh(WEIGHT @ x) + 0.2
        if (x * x).sum() > limit:
            break
    return x


def ring_of_its_own(x: Tensor, n: Tensor) -> tuple[Tensor, int]:
    """Each range stops where its thread says."""
    last = 0
    for i in range(int(n)):
        last = i
        x = torch.tanh(WEIGHT @ x) + 0.2
        if x.sum() > 9.0:
            break
    return x, last


def two_ways_out(x: Tensor, limit: Tensor) -> tuple[Tensor, str]:
    steps = 0
    while True:
        x = torch.tanh(WEIGHT @ x) + 0.2
        if (x * x).sum() > limit:
            return x, "large"
        steps += 1
        if x.sum() < -0.5:
            return x * steps, "negative"
        if steps > 20:
            return x, "late"


def within_another(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    rounds = 0
    for scale in (0.5, 0.75, 1.0):
        y = x
        while (y * y).sum() < limit * scale:
            y = torch.tanh(WEIGHT @ y) + 0.1
            rounds += 1
            if rounds > 25:
                return y, rounds
        x = x + 0.1 * y
    return x, rounds


def with_a_branch(x: Tensor, limit: Tensor) -> Tensor:
    """Both ways of it stay in the loop."""
    for _ in range(12):
        x = WEIGHT @ x
        x = torch.exp(-x) @ WEIGHT if x[0] > 0 else torch.log_softmax(x, 0) + 2.5
        if (x * x).sum() > limit:
            break
    return x


def skipping(x: Tensor, limit: Tensor) -> Tensor:
    total = torch.zeros(())
    for i in range(20):
        x = torch.tanh(WEIGHT @ x) + 0.05
        if i % 3 == 1:
            continue
        total = total + x.sum()
        if total > limit:
            return total
    return total - 1


def infinite(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    """What a thread has left comes to be infinite, and no number."""
    gone = x
    while (x * x).sum() < limit:
        gone, x = x, (WEIGHT @ x) * 1e12
    return x, gone


def dividing(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """It divides by what is zero once a thread has left."""
    total = torch.zeros((), dtype=torch.int64)
    while n > 1:
        x = torch.tanh(WEIGHT @ x)
        n = n - 1
        total = total + 100 // n
    return x, total


def looking_up(x: Tensor, n: Tensor) -> Tensor:
    """It looks up what is beyond the end once a thread has left."""
    while n < 15:
        x = torch.tanh(WEIGHT @ x) + x[n]
        n = n + 1
    return x


def changing(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    """Two names for one tensor, and tensors that change places."""
    y = last = x
    while (x * x).sum() < limit:
        last = x
        x, y = WEIGHT @ y * 1.1 + 0.05, x
    return last + y, x


BY_LIMIT = (
    *(one_block, ring, two_ways_out, within_another, with_a_branch, skipping, infinite, changing),
)
BY_COUNT = (ring_of_its_own, dividing, looking_up)
CASES = {
    **{func.__name__: (func, (XS, LIMITS)) for func in BY_LIMIT},
    **{func.__name__: (func, (XS, COUNTS)) for func in BY_COUNT},
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CASES)
def test_the_loops_results(name):
    func, args = CASES[name]
    assert_matches_loop(
        func, args, batch_sizes=(0, *SIZES), chunk_sizes=(None, 25), rtol=1e-4, atol=1e-5
    )


@pytest.mark.sampled(32)
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", SIZES)
def test_counts_are_what_listeners_hear(name, engine, size):
    func, args = CASES[name]
    counted_as_heard(of_its_own(func), [arg[:size] for arg in args], engine=engine)


@pytest.mark.parametrize("func", [one_block, ring, ring_of_its_own])
def test_few_who_leave_ride_along(func):
    func, args = of_its_own(func), (XS, COUNTS if func is ring_of_its_own else LIMITS)
    counted, told, _ = counted_as_heard(func, args)
    assert counted.row_copies * 2 < told.row_copies


def test_who_leaves_a_heavy_loop_parts_at_the_next_round():
    """A row costs more than to part threads: all they do is to wait until the round has ended."""
    layer, xs = FixedPoint(hidden=768), torch.randn(8, 128) * torch.logspace(-1, 1, 8)[:, None]
    counted, told, _ = counted_as_heard(layer, [xs])
    assert told.row_copies - 8 <= counted.row_copies <= told.row_copies


def test_nobody_rides_where_gradients_are_wanted():
    xs = XS.clone().requires_grad_()
    batched = autobatch.vmap(of_its_own(infinite), trace_after=0)
    for _ in range(4):
        x, gone = batched(xs, LIMITS)
        (found,) = torch.autograd.grad((x * 1e-12).sum() + gone.sum(), xs)
    rows = [infinite(x, limit) for x, limit in zip(xs, LIMITS, strict=True)]
    (wanted,) = torch.autograd.grad(sum((x * 1e-12).sum() + gone.sum() for x, gone in rows), xs)
    torch.testing.assert_close(found, wanted)


def test_draws_are_those_of_who_is_there():
    def noisy(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
        while (x * x).sum() < limit:
            x = WEIGHT @ x + torch.rand(())
        return x, torch.rand(())

    options = {"seed": 5, "trace_after": 0}
    batched = autobatch.vmap(noisy, **options)
    alone = [
        autobatch.vmap(noisy, thread_offset=i, **options)(XS[i : i + 1], LIMITS[i : i + 1])
        for i in range(64)
    ]
    with torch.no_grad():
        for _ in range(4):
            found = batched(XS, LIMITS)
    for column, rows in zip(found, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(column, torch.cat(rows), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("func", "costs"),
    [
        (lambda k, x, w: (torch.tanh(x @ w),), True),
        (lambda k, x, w: (torch.softmax(x, 1) @ w, x.sum(1), x.amax(1)), True),
        (lambda k, x, w: (x.clone().mul_(2),), True),
        (lambda k, x, w: (x.gather(1, x.long()),), False),
        (lambda k, x, w: (w[x.long()],), False),
        (lambda k, x, w: (x.long() // x.long(),), False),
        (lambda k, x, w: (x.long() % 3,), False),
        (lambda k, x, w: (torch.linalg.inv(x[:, :, None] * w),), False),
        (lambda k, x, w: (x.long() * 3 + (x > 2),), True),
    ],
)
def test_what_may_run_for_rows_that_are_not_there(func, costs):
    trace = record(func, [Input("column", XS), Input("tensor", WEIGHT)])
    assert trace.is_safe is costs


def test_what_a_row_costs_goes_by_shapes():
    """16 times 16 multiplications, a twentieth of an element each, and 16 hyperbolic tangents."""
    trace = record(
        lambda k, x, w: (torch.tanh(x @ w),), [Input("column", XS), Input("tensor", WEIGHT)]
    )
    assert trace.row_cost == pytest.approx(16 * 16 / 20 + 16)
