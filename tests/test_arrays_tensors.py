"""Lists of tensors whose lengths differ by thread: which names are of one tensor is Python's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import autobatch
from tests.oracle import assert_matches_loop
from tests.test_counts import counted

XS = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
NS = torch.tensor([3, 0, 5, 1, 0, 7, 2])
SIZES = (0, 1, 2, 7)


def states(x: Tensor, n: Tensor) -> tuple[Tensor, int, Tensor]:
    out = []
    h = x
    for _ in range(int(n)):
        h = torch.tanh(h * 1.5 + x)
        out.append(h)
    out.append(x * 2)
    total = x * 0
    for step in out:
        total = total * 0.5 + step
    return total, len(out), out[int(n) // 2]


def written_after(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    out = []
    h = x.clone()
    for i in range(int(n)):
        out.append(h)
        h += i
        if i % 2:
            h = h * 0.5
    first = x.sum() if not out else out[0].sum()
    return first, h, torch.stack([h, *out]).sum(0)


def written_within(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor, bool]:
    a, b = x.clone(), x + 1
    out = [a]
    for i in range(int(n)):
        out.append(b if i % 3 == 1 else b + i)
    out[-1] += 10
    last = out[-1]
    last *= 2
    out[0][1] = 5.0
    return a, b, out[-1] is b


def same_tensor(x: Tensor, n: Tensor) -> tuple[bool, bool, bool]:
    h = x.clone()
    out = []
    other = []
    for i in range(int(n)):
        out.append(h)
        other.append(out[i // 2])
        if i == 2:
            h = h + 1
    if not out:
        return False, False, False
    return out[0] is out[-1], out[-1] is h, other[-1] is out[0]


def queue(x: Tensor, n: Tensor) -> tuple[Tensor, int]:
    stack = [(x, 0)]
    total, steps = x * 0, 0
    while stack:
        top, depth = stack.pop()
        total = total * 0.9 + top
        steps += 1
        if depth < int(n) % 4:
            stack.append((top * 0.5, depth + 1))
            stack.append((top + depth, depth + 1))
    return total, steps


def two_lists(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    small, large = [], []
    for i in range(int(n) + 2):
        h = x * i
        (small if h.sum() < 0 else large).append(h)
    both = small + large
    small.extend(large)
    if large:
        large[0] += 1
    for h in both:
        h *= 0.5
    return torch.stack(both).sum(0), torch.stack(small).sum(0)


def moved(x: Tensor, n: Tensor) -> tuple[Tensor, int]:
    left = [x * i for i in range(int(n))]
    right = [x + i for i in range(3)]
    out = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i].sum() < right[j].sum():
            out.append(left[i])
            i += 1
        else:
            out.append(right[j])
            j += 1
    out += left[i:]
    out += right[j:]
    right[0] += 100
    return torch.stack(out).sum(0), len(out)


class Point(NamedTuple):
    at: Tensor
    weight: float


def points(x: Tensor, n: Tensor) -> tuple[Tensor, float]:
    out = []
    for i in range(int(n)):
        out.append(Point(x + i, 0.5 * i))
    where, weight = x * 0, 0.0
    for point in out:
        where = where + point.at * point.weight
        weight += point.weight
    return where, weight


def grow(xs: list[Tensor], h: Tensor, n: int) -> Tensor:
    xs.append(h)
    if n <= 0:
        h += 1
        return xs[0]
    return grow(xs, h * 0.5, n - 1) + xs[-1]


def recursive(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    xs = [x]
    h = x + 1
    total = grow(xs, h, int(n))
    total = total + grow(xs, h, int(n) % 2)
    return total, torch.stack(xs).sum(0) + h


def replaced(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    memory = [x * 0 for _ in range(3)]
    kept = memory[1]
    for i in range(int(n) * 2):
        memory[i % 3] = memory[(i + 1) % 3] + x
        if i > 4:
            kept += 1
    return torch.stack(memory).sum(0), kept


def views(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone()
    out = []
    for i in range(int(n)):
        out.append(y[i % 3])
    y += 1
    total = x.sum() * 0
    for value in out:
        total = total + value
    if out:
        out[-1] += 10
    return total, y


def passed_on(x: Tensor, n: Tensor) -> Tensor:
    out = []
    for i in range(int(n)):
        try:
            out.append(x + i)
            if i == 3:
                out[10] = x
        except IndexError:
            out[0] = out.pop() * 2
    return torch.stack(out).sum(0) if out else x


PROGRAMS = [
    states, written_after, written_within, same_tensor, queue, two_lists, moved, points, recursive,
    replaced, views, passed_on,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_lists_of_tensors_are_as_in_the_loop(program: Callable[..., Any]) -> None:
    assert_matches_loop(program, (XS, NS), batch_sizes=SIZES)


def scored(program: Callable[..., Any]) -> Callable[..., Tensor]:
    """The program with the sum of its floating results alone."""

    def score(x: Tensor, n: Tensor) -> Tensor:
        found = program(x, n)
        parts = found if isinstance(found, tuple) else (found,)
        total = x.sum() * 0
        for part in parts:
            if isinstance(part, Tensor):
                total = total + part.sum()
        return total

    return score


DIFFERENTIABLE = [
    states, written_after, written_within, queue, two_lists, moved, points, recursive, replaced,
    passed_on,
]  # fmt: skip


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("program", DIFFERENTIABLE, ids=lambda program: program.__name__)
def test_gradients_flow_as_in_the_loop(program: Callable[..., Any], engine: str) -> None:
    score = scored(program)
    mine, theirs = XS.clone().requires_grad_(), XS.clone().requires_grad_()
    torch.stack([score(x, n) for x, n in zip(theirs, NS, strict=True)]).sum().backward()
    autobatch.vmap(score, engine=engine)(mine, NS).sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("program", [states, queue, points], ids=lambda program: program.__name__)
def test_gradients_of_each_example(program: Callable[..., Any]) -> None:
    score = scored(program)
    leaves = XS.clone().requires_grad_()
    losses = torch.stack([score(x, n) for x, n in zip(leaves, NS, strict=True)])
    (expected,) = torch.autograd.grad(losses.sum(), leaves)
    found = autobatch.vmap(autobatch.grad(score))(XS, NS)
    torch.testing.assert_close(found, expected)
    for i in range(3):
        own = autobatch.grad(score)(XS[i], NS[i])
        torch.testing.assert_close(own, expected[i])


def kept_states(x: Tensor, n: Tensor) -> Tensor:
    out = []
    with torch.no_grad():
        for i in range(int(n)):
            out.append(x * i)
    total = x.sum() * 0
    with torch.inference_mode():
        for h in out:
            total = total + h.sum()
        out.append(x)
    out.append(x * 2)
    return total + len(out)


def test_modes_do_not_matter() -> None:
    assert_matches_loop(kept_states, (XS, NS))


def appends(x: Tensor, n: Tensor) -> Tensor:
    out = []
    i = 0
    while i < n:
        x = x * 0.9
        out.append(x)
        i += 1
    return x if not out else torch.stack(out).sum(0)


def test_appends_cost_the_same_however_long_the_lists() -> None:
    """What each round copies and launches does not grow with the lists."""

    def cost(n: int) -> tuple[int, int]:
        counts = counted(appends, XS, torch.tensor([n, 3, n - 5, 7, 1, n, 2]), executor="vmap")
        assert counts.fallbacks <= 2  # the sum over rows of different lengths
        return counts.row_copies, counts.launches

    costs = [torch.tensor(cost(n)) for n in (100, 150, 200)]
    first, second = costs[1] - costs[0], costs[2] - costs[1]
    assert (second <= first + 2 * 16).all(), (first, second)


def test_a_stream_gives_what_the_loop_gives() -> None:
    examples = [(x, int(n)) for x, n in zip(XS, NS, strict=True)] * 3
    found = dict(autobatch.stream(states, examples, 4))
    for index, (x, n) in enumerate(examples):
        total, length, middle = states(x, torch.tensor(n))
        torch.testing.assert_close(found[index][0], total)
        assert found[index][1] == length
        torch.testing.assert_close(found[index][2], middle)
