"""Lists whose elements have gradients: threads run together, elements stay where they were made.

The loop over the rows, in plain Python, is what every program here is held to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from tests.test_lists import WAYS, Written

COUNTS = [3, 0, 5, 1, 2, 5, 4, 9, 7, 6, 8, 10]
ROWS = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def summed(n: int, x: Tensor) -> Tensor:
    out, h = [], x
    for i in range(n):
        if h.sum() > 0.2 * i - 1:
            out.append(h)
        h = torch.tanh(h * 1.5 + 0.1)
    total = x.sum() + len(out)
    for element in out:
        total = total + (element * element).sum()
    return total


def placed(n: int, x: Tensor) -> Tensor:
    out = [x * 0.5, x, x * 2]
    for i in range(n):
        out.append(out[(i * 7 + n) % len(out)] * 0.5 + x[i % 3])
        out[(i * 5 + n) % len(out)] = out[-1] * out[0]
        if n % 3 == 0:
            out[-1] = out[i % 2].sin()
    return torch.stack(out).pow(2).sum()


def stacked(n: int, x: Tensor) -> Tensor:
    out = [x]
    for i in range(n):
        out.append(torch.sin(out[-1]) + i)
    whole = torch.stack(out)
    out.append(x)
    return (whole[n // 2] * whole.sum(0) * len(out)).sum()


def machine(n: int, x: Tensor) -> Tensor:
    stack, seed = [x], n
    for i in range(3 * n):
        seed = (seed * 7 + 3) % 23
        if seed % 3 > 0 or len(stack) < 2:
            stack.append(x * i + stack[-1])
        else:
            last = stack.pop()
            stack.append(last * stack.pop().cos())
    return stack[-1].sum() + stack[0].sum()


def joined(n: int, x: Tensor) -> Tensor:
    one, other = [], []
    for i in range(n):
        (one if i % 3 else other).append(x * i)
    both = one + other + [x]
    kept = both.copy()
    both[0] = x.exp()
    part = kept[n // 3 : n // 2 + 1]
    total = both[0] * len(part)
    for element in part:
        total = total + element.sin()
    return total.sum() + sum(element.sum() for element in reversed(both))


def plain_and_differentiated(n: int, x: Tensor) -> Tensor:
    out = [torch.zeros(3, dtype=torch.float64)] * (n + 1)
    with torch.no_grad():
        out[n // 2] = x * 2
    for i in range(n // 2):
        out[i] = out[i] + x
    return (torch.stack(out).cumsum(0)[-1] * x).sum()


def returned(n: int, x: Tensor) -> Any:
    out = []
    for i in range(n % 4 + 1):
        out.append(x * i)
    while len(out) < 4:
        out.append(out[0] + x.exp())
    return out[1].sum() + out[-1].prod(), out[3]


def parts_of(x: Tensor, depth: int, out: list[Tensor]) -> int:
    out.append(x)
    if depth <= 0 or x.sum() > 3:
        return 1
    return 1 + parts_of(x * 1.3, depth - 1, out) + parts_of(x.sin(), depth - 2, out)


def recursive(n: int, x: Tensor) -> Tensor:
    out: list[Tensor] = []
    parts_of(x, min(n, 4), out)
    return out[len(out) // 2].sum() * out[-1].sum()


PROGRAMS = [
    *(summed, placed, stacked, machine, joined, plain_and_differentiated, returned, recursive),
]


def leaves(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("options", [*WAYS, {"save": "recompute", "trace_after": 0}], ids=str)
def test_values_and_gradients_are_the_loops(program: Callable[..., Any], options: Any) -> None:
    for _ in range(2):
        mine, theirs = (ROWS.clone().requires_grad_() for _ in range(2))
        rows = [leaves(program(n, x)) for n, x in zip(COUNTS, theirs, strict=True)]
        wanted = [torch.stack(part) for part in zip(*rows, strict=True)]
        batched = autobatch.vmap(program, scalars="python", **options)
        found = leaves(batched(torch.tensor(COUNTS), mine))
        for got, want in zip(found, wanted, strict=True):
            torch.testing.assert_close(got, want)
        (slope,) = torch.autograd.grad(sum(part.sum() for part in found), mine)
        (expected,) = torch.autograd.grad(sum(part.sum() for part in wanted), theirs)
        torch.testing.assert_close(slope, expected)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", [summed, placed, stacked, machine])
def test_within_transforms(program: Callable[..., Any]) -> None:
    wanted = [torch.func.hessian(lambda x, n=n: program(n, x))(row) for n, row in NUMBERED]
    slopes = [torch.func.grad(lambda x, n=n: program(n, x))(row) for n, row in NUMBERED]
    counts = torch.tensor(COUNTS)

    def second(n: int, x: Tensor) -> Tensor:
        return autobatch.hessian(program, argnums=1)(n, x)

    def first(n: int, x: Tensor) -> Tensor:
        return autobatch.grad(program, argnums=1)(n, x)

    for derivative, expected in ((first, slopes), (second, wanted)):
        found = autobatch.vmap(derivative, scalars="python")(counts, ROWS)
        torch.testing.assert_close(found, torch.stack(expected))

    def whole(x: Tensor) -> Tensor:
        return autobatch.vmap(program, scalars="python")(counts, x).sum()

    torch.testing.assert_close(torch.func.grad(whole)(ROWS), torch.stack(slopes))


NUMBERED = list(zip(COUNTS, ROWS, strict=True))


def executions(program: Callable[..., Any], x: Tensor) -> int:
    batched = autobatch.vmap(program, scalars="python", executor="vmap")
    with autobatch.counts() as counts:
        batched(torch.tensor(COUNTS), x)
    assert counts.by_thread == 0
    return counts.block_executions


@pytest.mark.parametrize("program", [summed, placed, stacked, machine])
def test_threads_run_together_as_without_gradients(program: Callable[..., Any]) -> None:
    plain, differentiated = ROWS, ROWS.clone().requires_grad_()
    assert executions(program, differentiated) == executions(program, plain)


def appended(n: int, m: int, x: Tensor) -> Tensor:
    out = [x]
    for _ in range(n):
        out.append(x)
    for i in range(m):
        out.append(x * i)
    return out[-1] * len(out)


def written(n: int, m: int, x: Tensor) -> Tensor:
    out = []
    for _ in range(n + 1):
        out.append(x)
    for i in range(m):
        out[(i + n) % len(out)] = x * i
    return out[n // 2]


def stacking(n: int, m: int, x: Tensor) -> Tensor:
    out = []
    for _ in range(n):
        out.append(x)
    for i in range(m):
        out.append(x * i)
    return torch.stack(out).sum()


def moved(program: Callable[..., Any], m: int, counts: list[int]) -> Written:
    """What a run writes, by operator."""
    batched = autobatch.vmap(program, scalars="python", executor="vmap")
    columns = (torch.tensor(counts), torch.full((len(counts),), m))
    with Written() as elements:
        batched(*columns, ROWS.clone().requires_grad_())
    return elements


MOVING = ("index_select", "cat", "stack", "index_copy", "index_copy_", "constant_pad_nd", "clone")


def more_moved(program: Callable[..., Any], m: int, counts: list[int]) -> int:
    """Elements that ``m`` more rounds copy, besides the ``m`` rows that they compute."""
    none, many = (moved(program, rounds, counts).elements for rounds in (0, m))
    return sum(many.get(name, 0) - none.get(name, 0) for name in MOVING)


@pytest.mark.parametrize("program", [appended, written])
def test_a_write_copies_no_element(program: Callable[..., Any]) -> None:
    """300 of them move less than a tenth of what they write: what the last read gathers, and what
    is in use where a new log takes the place of one that mostly is not."""
    assert more_moved(program, 300, COUNTS) <= 300 * ROWS.numel() // 10


def test_a_stack_of_lists_of_one_length_copies_once() -> None:
    assert more_moved(stacking, 50, [2] * len(COUNTS)) == 50 * ROWS.numel()


def test_a_stack_of_lists_of_unlike_lengths_copies_once() -> None:
    """And gives each element its own gradient back."""
    assert more_moved(stacking, 50, [n + 1 for n in COUNTS]) == 50 * ROWS.numel()
    mine, theirs = (ROWS.clone().requires_grad_() for _ in range(2))
    batched = autobatch.vmap(stacking_squares, scalars="python", in_dims=(0, None, 0))
    found = batched(torch.tensor(COUNTS), 5, mine)
    rows = zip(COUNTS, theirs, strict=True)
    wanted = torch.stack([stacking_squares(n, 5, x) for n, x in rows])
    torch.testing.assert_close(found, wanted)
    slopes = [
        torch.autograd.grad(y.sum(), x, create_graph=True)[0]
        for y, x in ((found, mine), (wanted, theirs))
    ]
    torch.testing.assert_close(*slopes)
    pairs = zip(slopes, (mine, theirs), strict=True)
    torch.testing.assert_close(*[torch.autograd.grad(y.pow(2).sum(), x)[0] for y, x in pairs])


def stacking_squares(n: int, m: int, x: Tensor) -> Tensor:
    out = [x]
    for i in range(n):
        out.append(x * x * i)
    for i in range(m):
        out.append(x.exp() * i)
        if i == n:
            out.pop()
    whole = torch.stack(out)
    return (whole * whole.flip(0)).sum()


def unneeded(n: int, x: Tensor) -> Tensor:
    out = []
    for i in range(n):
        out.append((x * i).sqrt())
    return out[-1].sum() if n > 1 else x.sum()


def test_what_a_thread_makes_no_use_of_adds_nothing() -> None:
    """The root of 0, of which the first element is, has an infinite derivative."""
    mine, theirs = (ROWS.abs().requires_grad_() for _ in range(2))
    autobatch.vmap(unneeded, scalars="python")(torch.tensor(COUNTS), mine).sum().backward()
    sum(unneeded(n, x) for n, x in zip(COUNTS, theirs, strict=True)).backward()  # type: ignore[union-attr]
    assert mine.grad is not None and mine.grad.isfinite().all()
    torch.testing.assert_close(mine.grad, theirs.grad)


def pushed_and_popped(n: int, x: Tensor) -> Tensor:
    out = [x]
    for i in range(400):
        out.append(x * i)
        if len(out) > n + 2:
            out.pop()
            out[-1] = out[-1] * 0.9
    return torch.stack(out).sum()


def test_elements_of_the_past_are_let_go() -> None:
    """A log that is mostly no longer used is copied, which stays exact."""
    mine, theirs = (ROWS.clone().requires_grad_() for _ in range(2))
    found = autobatch.vmap(pushed_and_popped, scalars="python")(torch.tensor(COUNTS), mine)
    wanted = torch.stack([pushed_and_popped(n, x) for n, x in zip(COUNTS, theirs, strict=True)])
    torch.testing.assert_close(found, wanted)
    slopes = [torch.autograd.grad(y.sum(), x)[0] for y, x in ((found, mine), (wanted, theirs))]
    torch.testing.assert_close(*slopes)
