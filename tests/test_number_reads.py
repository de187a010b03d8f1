"""What number columns read of the data on the host: exactly counted, beside the plain loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autobatch
from autobatch.listeners import Counts
from programs.collatz import collatz
from tests.oracle import assert_matches_loop

MODES: list[dict[str, Any]] = [
    {"executor": "vmap"},
    {"executor": "traced"},
    {"executor": "traced", "trace_after": 0},
]
modes = pytest.mark.parametrize("mode", MODES, ids=["vmap", "traced", "traced-at-once"])


def counted(func: Any, *args: Any, **options: Any) -> tuple[Any, Counts]:
    with autobatch.counts() as counts:
        got = autobatch.vmap(func, scalars="python", **options)(*args)
    return got, counts


@modes
def test_bounds_are_read_with_a_branch_before_they_matter(mode: dict[str, Any]) -> None:
    """The interval of ``3 * n + 1`` leaves int64 again and again, the numbers never come near."""
    ns = torch.arange(1, 201)
    got, counts = counted(collatz, ns, **mode)
    assert got.tolist() == [collatz(n) for n in ns.tolist()]
    assert not counts.other_reads
    branching = sum(counts.by_block[("collatz", pc)] for pc in (0, 1, 4))
    assert counts.host_reads == branching


def growing(n: int) -> int:
    steps = 0
    while n < 2**70:
        n = 3 * n + 1
        steps += 1
    return n - steps


@modes
def test_numbers_that_leave_int64_go_on_as_objects(mode: dict[str, Any]) -> None:
    ns = torch.tensor([1, 2**40, 2**62, 5, -7 * 2**60])
    with pytest.raises(autobatch.StepLimitError):
        counted(growing, ns, max_steps=2000, **mode)
    got, _ = counted(growing, ns[:4], **mode)
    assert list(got) == [growing(n) for n in ns[:4].tolist()]


def far(x: float) -> int:
    """Any float may have an ``int`` that does not fit: the branch behind it sees that."""
    steps = 0
    while int(x * 2.0) < 1_000_000:
        x = x * 3.0
        steps += 1
    return steps


@modes
def test_what_may_not_fit_is_seen_with_the_branch(mode: dict[str, Any]) -> None:
    xs = torch.tensor([1.5, 20.0, 1e5, 1e30], dtype=torch.float64)
    got, counts = counted(far, xs[:3], **mode)
    assert got.tolist() == [far(x) for x in xs[:3].tolist()]
    assert not counts.other_reads
    assert counts.host_reads == counts.by_block[("far", 0)] + counts.by_block[("far", 1)]
    got, counts = counted(far, xs, **mode)
    assert got.tolist() == [far(x) for x in xs.tolist()]
    assert counts.other_reads["overflow"] == 3, "looked at once, when the branch has seen 1e30"


def both(x: float, y: float) -> int:
    total = 0
    while x < 1e6:
        total = total + int(x) % 7 - int(y) % 5 if total < 3 else total - 2
        x, y = x * 3.0, y * 2.0
    return total


@modes
def test_a_block_that_ends_in_a_jump_leaves_its_check_to_the_next_read(
    mode: dict[str, Any],
) -> None:
    xs = torch.tensor([1.5, 20.0, 1e5, 7.0], dtype=torch.float64)
    got, counts = counted(both, xs, xs + 1.0, **mode)
    assert got.tolist() == [both(x, x + 1.0) for x in xs.tolist()]
    asked = sum(counts.by_block[("both", pc)] for pc in (0, 1, 4))
    assert counts.host_reads == asked - 1, "in the first round total is the same for all"
    assert counts.by_block[("both", 2)] == 12
    assert counts.other_reads == {"overflow": 7}, "where threads wait that came the other way"


NOTED: list[int] = []


@autobatch.per_thread
def per_thread_note(value: int) -> None:
    NOTED.append(value)


@modes
def test_effects_see_what_python_would_show_once(mode: dict[str, Any]) -> None:
    xs = torch.tensor([3.5, 1e19, -2.0], dtype=torch.float64)

    def program(x: float) -> int:
        big = int(x)
        per_thread_note(big)
        return big + 1

    for _ in range(4):
        NOTED.clear()
        got, _ = counted(program, xs, **mode)
        assert NOTED == [3, 10**19, -2]
        assert list(got) == [4, 10**19 + 1, -1]


def mutating(x: float) -> tuple[list[int], float]:
    parts = [0]
    big = int(x)
    parts.append(big)
    parts[0] = len(parts)
    total = torch.zeros(2, dtype=torch.float64)
    total += x
    return (parts, total.sum()) if big > 0 else (parts, total.sum() + 1)


@modes
def test_what_was_written_meanwhile_is_taken_back(mode: dict[str, Any]) -> None:
    xs = torch.tensor([3.5, 1e19, 2.0], dtype=torch.float64)
    for _ in range(4):
        (first, second), sums = counted(mutating, xs, **mode)[0]
        assert list(first) == [2, 2, 2] and list(second) == [3, 10**19, 2]
        assert sums.tolist() == [7.0, 2e19, 4.0]


def squares(n: int, limit: int) -> int:
    """Straight into the branch: the squares leave int64 for some threads, and come back."""
    steps = 0
    while n * n * n < limit:
        n = n * n + 3
        steps += 1
    return n % 1000 + steps


@modes
def test_rows_that_leave_before_a_branch_are_computed_again(mode: dict[str, Any]) -> None:
    ns = torch.tensor([2, 5, 3_000_000_000, 2_200_000, -4])
    limits = torch.tensor([10**6, 10**18, 2**62, 2**63 - 1, 10**12])
    got, _ = counted(squares, ns, limits, **mode)
    want = [squares(n, limit) for n, limit in zip(ns.tolist(), limits.tolist(), strict=True)]
    assert list(got) == want


def truncations(x, k):
    """What may not fit is made in a block that ends in a jump, and seen in the next one."""
    total = 0
    while k > 0:
        if k % 2 == 0 or k > 4:
            total = int(x)
        x = x * 1e6
        k -= 1
    return total


def test_what_does_not_fit_after_all_is_taken_back_over_the_jump():
    xs, ks = torch.arange(1.0, 7.0), torch.tensor([2, 3, 5, 1, 4, 6])
    assert_matches_loop(truncations, [xs, ks], scalars="python")
