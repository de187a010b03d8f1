"""What goes through a generator expression, ``map`` or ``filter`` where it stands: as a loop."""

from __future__ import annotations

import pytest
import torch

import autobatch
from tests.oracle import CONFIGURATIONS, assert_matches_loop

N = torch.tensor([0, 1, 2, 3, 4, 5, 1])


def squared(v):
    return v * v + 1


def found(n):  # what follows the first that is equal is not made
    return n.item() in (6 // (6 - k) * 0 + k for k in range(9))


def lacks(n):
    return 1 if n not in (i * j for i in range(3) for j in range(3) if i != j) else 2


def made_up_to(n):
    log = []
    there = n in (log.append(k) or n * 0 + k for k in range(4))
    return n + len(log) + there


def extended(n):
    out = [n]
    out.extend(squared(out[-1]) + len(out) for _ in range(3))
    return sum(out)


def extended_until(n):
    out = []
    try:
        out.extend(6 // (3 - k - n.item()) for k in range(5))
    except ZeroDivisionError:
        out.append(100)
    return sum(out)


def updated(n):
    d = {}
    d.update((k, len(d) + squared(n)) for k in range(4))
    return sum(d.values())


class Last:
    def extend(self, items):
        self.items = [*items]


def extends_another(n):
    out = Last()
    out.extend(n + k for k in range(2))
    return sum(out.items)


def mapped(n):
    return sum(map(squared, [n, n + 1])) + max(map(lambda v: -v, [n, n * 2]))  # noqa: C417


def mapped_until(n):
    log = []
    for v in map(lambda v: log.append(v) or v, range(4)):  # noqa: C417
        if v == n:
            break
    return len(log)


def zipped(n):
    kept = filter(lambda k: k > 1, range(9))
    return sum(a * b for a, b in zip(map(squared, [n, n + 1]), kept, strict=False))


def filtered(n):
    return sum(filter(lambda k: k % 2, [n, n + 1, n + 2])) + len(list(filter(None, [n, n + 1])))


def of_functions(n):
    return sum(f() for f in [*map(lambda v: lambda: v, range(3))]) + n


def ended_by_next(n):
    it = iter([1, 2, 3])
    return len(list(map(lambda k: next(it) + k, range(n.item()))))  # noqa: C417


def pairs_of(v):
    yield v
    yield v + 1


def by_a_generator(n):  # which no program may hold
    return sum(sum(pair) for pair in map(pairs_of, [n, n * 2]))


def of_its_own_name(n):
    def map(f, items):
        return [f(n), *items]

    return sum(map(lambda v: v + 1, [n]))


PROGRAMS = [
    *(found, lacks, made_up_to, extended, extended_until, updated, extends_another, mapped),
    *(mapped_until, zipped, filtered, of_functions, ended_by_next, of_its_own_name),
    by_a_generator,
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("func", PROGRAMS)
def test_as_the_loop(func):
    assert_matches_loop(func, (N,), batch_sizes=(2, 7), configurations=CONFIGURATIONS[:3])


@pytest.mark.parametrize("func", [lacks, extended, updated, mapped, filtered])
def test_nothing_runs_thread_by_thread(func):
    batched = autobatch.vmap(func)
    batched(N)
    with autobatch.counts() as counts:
        batched(N)
    assert counts.by_thread == counts.plain == 0
