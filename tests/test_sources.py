"""Generator expressions that a loop takes apart: each item where Python makes it, and batched."""
# ruff: noqa: B905, B023, C402

from __future__ import annotations

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop


def made(log, v):
    """Item ``v``: it is in the log, and there is none for 3."""
    log.append(v + 1)
    return 6 // (3 - v)


def told(log):
    """What is in a log, in its order, as one number."""
    number = 0
    for each in log:
        number = number * 7 + each % 7
    return number


def first_of_two(n, log):
    for a, b in zip((made(log, v) for v in range(n)), range(3)):
        log.append(a + b)
        if a == n:
            break


def second_of_two(n, log):
    for a, b in zip(range(3), (made(log, v) for v in range(n))):
        log.append(a * b)
        if b == n:
            continue
    else:
        log.append(5)


def both(n, log):
    squares = [
        i * j for i, j in zip((made(log, v) for v in range(3)), (made(log, v) for v in range(n)))
    ]
    log.extend(squares)


def numbered(n, log):
    for i, (a, b) in enumerate(zip([4, 5, 6], (made(log, v) for v in range(n) if v != 1)), 2):
        log.append(i + a + b)


def numbered_within(n, log):
    log += [i * a for i, a in enumerate((made(log, v) for v in range(n)), start=1) if a != n]


def within_a_generator(n, log):
    for a in (made(log, b) for b in (log.append(c) or c for c in range(n)) if b != 3):
        log.append(a)
        if a == n:
            return


def within_an_inner_clause(n, log):
    log.extend([a + b for a in range(2) for b in (made(log, v) for v in range(a, n))])


def taken_whole(n, log):
    pairs = list(zip((made(log, v) for v in range(n)), (4, 2, 1)))
    log.extend(a * b for a, b in pairs)
    log.append(max(enumerate(-made(log, v) for v in range(2)))[1])
    log.append(len(tuple(zip(range(2), (made(log, v) for v in range(n))))))


def stopped(n, log):
    found = any(a > b for a, b in zip((made(log, v) for v in range(n)), [3, 1, 0]))
    log.append(next(zip((made(log, v) for v in range(n)), range(9)), [found])[0])
    log.append(all(a > b for b, a in zip((1, 2, 9), (made(log, v) for v in range(n)))))


def in_a_dict(n, log):
    found = dict((made(log, v), log.append(v) or v) for v in range(n))
    counted = dict(zip((made(log, v) for v in range(n)), range(2)))
    log.extend([len(found), *counted.values(), *dict(enumerate(v + n for v in range(2)))])


def under_a_name(n, log):
    items = (made(log, v) for v in range(n))
    for a, b in zip(range(1), items):
        log.append(a + b)
    for a, b in zip(items, range(5)):
        log.append(a + b)


def captured(n, log):
    late = [f() + g() for f, g in zip((lambda: v for v in range(3)), [lambda: n, lambda: 2])]
    kept = [f for f, _ in zip((lambda: v for v in range(n)), range(2))]
    last = []
    for v, _ in zip((y := v for v in range(n + 1)), "ab"):
        last += [y, v]
    log.extend([*late, *[f() for f in kept], *last, y])


def shadowed(n, log):
    v, a = 5, n
    log.extend([v + a for v, a in zip((v + a for v in range(a)), (a * v for a in range(v)))])
    log.extend([v, a])


def strict_lengths(n, log):
    try:
        for a, b, c in zip(range(2), (v + 1 for v in range(n)), (9, n), strict=True):
            log.append(a + b + c)
        for a, b in zip((made(log, v) for v in range(2)), range(n), [4, 4][:n], strict=True):
            log.append(a + b)
        log.append(len(list(zip([1, n], (v for v in range(n)), strict=False))))
    except ValueError as error:
        log.append(sum(map(ord, str(error))))


FORMS = (
    *(first_of_two, second_of_two, both, numbered, numbered_within, within_a_generator),
    *(within_an_inner_clause, taken_whole, stopped, in_a_dict, under_a_name, captured, shadowed),
    strict_lengths,
)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("form", FORMS)
def test_each_item_is_made_where_python_makes_it(form):
    def program(n):
        log = []
        try:
            form(n, log)
        except ZeroDivisionError:
            log.append(6)
        return told(log)

    def failing(n):
        log = []
        form(n, log)
        return told(log)

    ns = torch.tensor([2, 0, 3, 1, 2, 5, 4])
    assert_matches_loop(program, (ns,), batch_sizes=(1, 7), scalars="python")
    assert_matches_loop(failing, (ns,), batch_sizes=(2, 7), scalars="python")


def along(x):
    total = x[0] * 0
    for i, (a, b) in enumerate(zip((v * 2 for v in x), (v + 1 for v in x if v is not None))):
        total = total + a * b * i
    pairs = dict(zip(range(4), (v - 1 for v in (w * w for w in x))))
    return total + sum([a * b for a, b in zip(x, (v * 3 for v in x))]) + pairs[2]


def test_it_is_batched_and_has_a_type_without_examples():
    xs = torch.randn(7, 4, dtype=torch.float64)
    expected = torch.stack([along(x) for x in xs])
    for options in ({}, {"engine": "program_counter"}, {"executor": "vmap"}):
        batched = autobatch.vmap(along, fallback="error", **options)
        torch.testing.assert_close(batched(xs), expected)
        assert (batched(xs[:0]).shape, batched(xs[:0]).dtype) == ((0,), torch.float64)


def test_an_iterator_that_ends_within_an_item_is_a_generators_error():
    def program(n):
        few = iter([n, n])
        return [a + b for a, b in zip((next(few) for _ in range(3)), range(3))]

    assert_matches_loop(program, (torch.tensor([1, 2]),), scalars="python")
