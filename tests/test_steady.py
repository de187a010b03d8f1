"""What a loop leaves alone is computed once for all rounds, and means the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import autobatch
from tests.oracle import assert_matches_loop

W = torch.randn(4, 4, generator=torch.Generator().manual_seed(0)) / 2
B = torch.randn(4, generator=torch.Generator().manual_seed(1))
XS = torch.randn(9, 4, generator=torch.Generator().manual_seed(2))
ROUNDS = torch.tensor([3, 0, 7, 1, 5, 7, 2, 6, 7])
SIZES = (0, 1, 2, 9)


class Operations(TorchDispatchMode):
    """How often each of torch's operations runs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def shared(x: Tensor, n: Tensor) -> Tensor:
    s = x * 0
    while n > 0:
        s = torch.tanh(s + 0.5 * (W @ B)) + x
        n = n - 1
    return s


def of_two_loops(x: Tensor, n: Tensor) -> Tensor:
    """The inner loop leaves ``scale`` alone, the outer one does not."""
    s, scale = x * 0, 1
    while n > 0:
        m = n
        while m > 0:
            s = torch.tanh(s + B * scale)
            m = m - 2
        scale = scale + 1
        n = n - 1
    return s


def written(x: Tensor, n: Tensor) -> Tensor:
    """What is computed anew in each round is written to."""
    s = x * 0
    while n > 0:
        d = W @ B
        d += 1
        d[0] = s[1]
        s = torch.tanh(s + d)
        n = n - 1
    return s


def put_by(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """And given away: a write to one is none to the next."""
    first = last = W @ B
    s = x * 0
    while n > 0:
        first, last = last, W @ B
        s = torch.tanh(s + last + x)
        n = n - 1
    last += s
    return first + 0, last


def shown(x: Tensor, n: Tensor) -> Tensor:
    """A part of it is kept from round to round."""
    s, part = x * 0, x
    while n > 0:
        d = W @ B
        part = torch.where(s > 0, d, part)
        s = s + part + d.expand(4)
        n = n - 1
    part += 1
    return s + part


def of_columns(x: Tensor, n: Tensor) -> Tensor:
    s = x * 0
    while n > 0:
        s = torch.tanh(s + torch.sin(W @ x) * 2)
        n = n - 1
    return s


def of_a_view(x: Tensor, n: Tensor) -> Tensor:
    """A product takes the shared matrix transposed."""
    s = x * 0
    while n > 0:
        s = torch.tanh(W @ s + 0.1 * x)
        n = n - 1
    return s


def of_columns_twice(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """What is kept in the inner loop changes in the outer one."""
    s, total = x * 0, x
    while n > 0:
        m, y = n, x + n
        while m > 0:
            s = torch.tanh(s + torch.exp(-y * y).cumsum(0) @ W)
            m = m - 2
        total = total + s * torch.cos(x).sum()
        n = n - 1
    return s, total


def written_elsewhere(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """A write to what the kept is made of, by another name."""
    s, y = x * 0, x
    while n > 0:
        s = s + torch.sin(x).cumsum(0) * 0.5
        if n % 3 == 2:
            y += 1
        n = n - 1
    return s, y


def kept_in_a_list(x: Tensor, n: Tensor) -> Tensor:
    """What comes out of the loop is written: it is no other round's."""
    parts = [x]
    while n > 0:
        part = torch.sin(x).cumsum(0)
        part += n
        parts.append(part * 2)
        parts.append(torch.cos(x).flip(0))
        n = n - 1
    parts[-1] += 1
    return parts[-1] + parts[-2 if len(parts) > 1 else 0] + parts[len(parts) // 2]


def compared(x: Tensor, n: Tensor) -> Tensor:
    s = x * 0
    while n > 0:
        s = torch.where(W[0] < -B, s + x, s * 0.5)
        n = n - 1
    return s


FUNCTIONS = (
    *(shared, of_two_loops, written, put_by, shown, compared),
    *(of_columns, of_a_view, of_columns_twice, written_elsewhere, kept_in_a_list),
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("func", FUNCTIONS)
def test_the_loops_results(func):
    assert_matches_loop(func, (XS, ROUNDS), batch_sizes=SIZES, chunk_sizes=(None, 4))


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_operators_on_shared_tensors_run_once(engine):
    batched = autobatch.vmap(shared, engine=engine, trace_after=0)
    for _ in range(3):
        batched(XS, ROUNDS)
    with Operations() as ran:
        batched(XS, ROUNDS)
    assert (ran.seen["mv"], ran.seen["mul"]) == (1, 2)  # one of these is x * 0


def launches(func: Any, rounds: Tensor, xs: Tensor = XS, **options: Any) -> tuple[int, int]:
    """Of a spin, and of the same laps one by one."""
    batched = autobatch.vmap(func, trace_after=0, **options)
    apart = autobatch.vmap(func, trace_after=0, listeners=[lambda step: None], **options)
    for _ in range(4):
        batched(xs, rounds)
        apart(xs, rounds)
    with autobatch.counts() as spun:
        batched(xs, rounds)
    with autobatch.counts() as heard:
        apart(xs, rounds)
    assert spun.by_block == heard.by_block
    return spun.launches, heard.launches


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_kernels_on_what_the_loop_leaves_alone_run_once(engine):
    """Three of seven, but for the first of seven laps."""
    spun, heard = launches(of_columns, torch.full((9,), 7), engine=engine)
    assert heard - spun == 3 * 6


@pytest.mark.parametrize("rounds", [torch.full((9,), 7), torch.tensor([3, 1, 7, 1, 5, 7, 3, 5, 7])])
def test_views_of_what_all_threads_share_are_kept_too(rounds):
    """Also where the rows of what is kept with them are picked anew."""
    batched = autobatch.vmap(of_a_view, trace_after=0)
    for _ in range(4):
        batched(XS, rounds)
    with Operations() as ran:
        found = batched(XS, rounds)
    assert ran.seen["permute"] + ran.seen["t"] == 1
    rows = [of_a_view(x, n) for x, n in zip(XS, rounds, strict=True)]
    torch.testing.assert_close(found, torch.stack(rows))


@pytest.mark.parametrize("differentiated, again", [(False, 1), (True, 3)])
def test_rows_that_leave_are_dropped_from_what_is_kept(differentiated, again):
    """After a split by one kernel; where a gradient is wanted, all three run again."""
    xs = torch.randn(1024, 4, generator=torch.Generator().manual_seed(2))
    rounds = torch.cat([torch.full((128,), 33), torch.ones(896, dtype=torch.int64)])
    spun, heard = launches(of_columns, rounds, xs.requires_grad_(differentiated))
    assert heard - spun == 3 * 32 - again


def test_what_is_kept_is_kept_for_those_who_ride_along():
    rounds = torch.tensor([3, 1, 7, 1, 5, 7, 3, 5, 7])
    spun, heard = launches(of_columns, rounds)
    assert heard - spun == 3 * 6


def test_they_run_anew_in_each_call():
    weight = W.clone()

    def of_weight(x: Tensor, n: Tensor) -> Tensor:
        s = x * 0
        while n > 0:
            s = torch.tanh(s + weight @ B)
            n = n - 1
        return s

    batched = autobatch.vmap(of_weight, trace_after=0)
    for scale in (1.0, 0.5, -1.0, 2.0):
        weight *= scale
        assert_rows(batched(XS, ROUNDS), of_weight)


def assert_rows(found: Tensor, func: Any) -> None:
    torch.testing.assert_close(
        found, torch.stack([func(x, n) for x, n in zip(XS, ROUNDS, strict=True)])
    )


def test_nobody_fails_who_never_enters_the_loop():
    bad = torch.ones(3)

    def failing(x: Tensor, n: Tensor) -> Tensor:
        s = x
        while n > 0:
            s = s + W @ bad
            n = n - 1
        return s

    assert_matches_loop(failing, (XS, ROUNDS), batch_sizes=(1, 2, 9))
    assert_matches_loop(failing, (XS, ROUNDS * 0), batch_sizes=(9,))


def test_gradients_of_rows_flow_through_what_is_kept():
    weight = W.clone().requires_grad_()
    xs = XS.clone().requires_grad_()

    def layer(x: Tensor, n: Tensor) -> Tensor:
        s = x * 0
        while n > 0:
            s = torch.tanh(s + torch.sqrt((weight @ x).abs()).cumsum(0)) + x
            n = n - 1
        return s

    wanted = torch.stack([layer(x, n) for x, n in zip(xs, ROUNDS, strict=True)])
    wanted = torch.autograd.grad(wanted.square().sum(), [weight, xs])
    batched = autobatch.vmap(layer, trace_after=0)
    for _ in range(4):
        found = torch.autograd.grad(batched(xs, ROUNDS).square().sum(), [weight, xs])
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("of_rows", [False, True])
def test_gradients_are_those_of_the_loop(of_rows):
    weight, bias = W.clone().requires_grad_(), B.clone().requires_grad_()
    xs = XS.clone().requires_grad_(of_rows)

    def layer(x: Tensor, n: Tensor) -> Tensor:
        s = x * 0
        while n > 0:
            s = torch.tanh(s + weight @ bias * 2) + x
            n = n - 1
        return s

    inputs = [weight, bias, *([xs] if of_rows else [])]
    wanted = torch.stack([layer(x, n) for x, n in zip(xs, ROUNDS, strict=True)])
    wanted = torch.autograd.grad(wanted.square().sum(), inputs)
    batched = autobatch.vmap(layer, trace_after=0)
    for _ in range(4):
        found = torch.autograd.grad(batched(xs, ROUNDS).square().sum(), inputs)
        torch.testing.assert_close(found, wanted)
