"""``sorted``, ``min`` and ``max`` by a function of the program's: each key once for all threads."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

torch.manual_seed(0)
XS = torch.randint(-3, 4, (64, 5)).float()
SIZES = (1, 2, 7, 64)


def order_of(x):
    return torch.tensor(sorted(range(5), key=lambda i: float(x[i])))


def rows_in_order(x):
    rows = [x * i for i in range(4)]
    return torch.stack(sorted(rows, key=lambda row: (row[0] * row[1]).item()))


def by_tensors(x):
    return torch.stack(sorted([x[i] for i in range(5)], key=lambda each: each * each))


def backwards(x):
    return torch.tensor(sorted(range(5), key=lambda i: x[i].item(), reverse=True))


def least(x):
    return min(range(5), key=lambda i: float(x[i]))


def greatest(x):
    return max(range(5), key=lambda i: float(x[i]))


def greatest_row(x):
    return max([x, x * 2, -x], key=lambda row: float(row.sum()))


def of_pairs(x):
    pairs = [(float(x[i]), i) for i in range(5)]
    return sorted(pairs, key=lambda pair: pair[0])[2][1]


def by_words(x):
    words = ["b", "a", "c"]
    return sorted(words, key=lambda word: word * int(abs(x[0]) + 1))[0]


def by_two_types(x):
    return sorted([3, 1, 2], key=lambda i: i if x[0] > 0 else float(-i))[0]


def with_nan(x):
    keys = [float(v) if v != 0 else float("nan") for v in x]
    return torch.tensor(sorted(range(5), key=lambda i: keys[i]))


def nothing(x):
    return len(sorted([], key=lambda i: x[i]))


def nothing_to_choose(x):
    return min([], key=lambda i: x[i])


def failing(x):
    return sorted([2, 1, 0], key=lambda i: 1 / i if x[0] > 0 else i)


def chosen_and_written(x):
    rows = [x.clone(), x + 1]
    best = max(rows, key=lambda row: float(row[0]))
    best[0] = 9.0
    return torch.stack(rows)


def by_themselves(x):
    low, *_, high = sorted((x[0] * 2, -x[1], x[2]))
    return high - low, torch.stack(sorted([*x], reverse=True))


def by_themselves_with_nan(x):
    return torch.stack(sorted([x[0].sqrt(), x[1], x[2]]))


def by_themselves_of_two_dtypes(x):
    return torch.stack([each.double() for each in sorted([x[0].double(), x[1], x[2]])])


def ordered_and_written(x):
    low, high = sorted([x[0] * 2, x[1] * 2])
    low += 5
    return low, high


def of_an_iterator(x):
    return torch.tensor(sorted((i for i in range(5)), key=lambda i: float(x[i])))


def growing(x):
    xs = [3, 1, 2]
    return min(xs, key=lambda i: (xs.append(0) if len(xs) < 5 else None) or float(x[i]))


def shrinking(x):
    xs = [3, 0, 2, 1]
    return max(xs, key=lambda i: (xs.pop(), float(x[i]))[1]), len(xs)


def replacing(x):
    xs = [3, 0, 2, 1]

    def key(i):
        xs[3] = 2
        return float(x[i])

    return max(xs, key=key)


def failing_and_caught(x):
    log = []
    try:
        found = sorted(range(5), key=lambda i: (log.append(i), 1 // int(x[i]))[1])[0]
    except ZeroDivisionError:
        found = 9
    return found, len(log)


def choosing_and_caught(x):
    log = []
    try:
        found = max(range(5), key=lambda i: (log.append(i), 1 // int(x[i]))[1])
    except ZeroDivisionError:
        found = 9
    return found, len(log)


def parts_of_a_tensor(x):
    """What is put in order are parts of its memory."""
    parts = sorted(x)
    back = sorted(x * 1, key=float, reverse=True)
    x += 10
    parts[0] -= 1
    return parts, x, back


def greatest_part_of_a_tensor(x):
    part = max(x, default=0)
    x += 10
    return part


PROGRAMS = (
    *(order_of, rows_in_order, by_tensors, backwards, least, greatest, greatest_row, of_pairs),
    *(by_words, by_two_types, with_nan, nothing, nothing_to_choose, failing, chosen_and_written),
    *(by_themselves, by_themselves_with_nan, by_themselves_of_two_dtypes, ordered_and_written),
    *(of_an_iterator, growing, shrinking, replacing, failing_and_caught, choosing_and_caught),
    *(parts_of_a_tensor, greatest_part_of_a_tensor),
)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_an_order_by_keys_is_the_loops(function: Any) -> None:
    assert_matches_loop(function, (XS,), batch_sizes=SIZES)


@pytest.mark.parametrize(
    "function",
    [order_of, rows_in_order, backwards, least, greatest_row, by_themselves],
    ids=lambda f: f.__name__,
)
def test_nothing_of_it_runs_thread_by_thread(function: Any) -> None:
    with autobatch.counts() as counts:
        autobatch.vmap(function, plain="never")(XS)
    assert counts.fallbacks == 0


def test_gradients_go_to_what_was_chosen() -> None:
    def chosen(x):
        return (max([x, x * 2, -x], key=lambda row: float(row.sum())) ** 2).sum()

    x = XS.clone().requires_grad_()
    autobatch.vmap(chosen)(x).sum().backward()
    y = XS.clone().requires_grad_()
    sum(chosen(row) for row in y).backward()
    torch.testing.assert_close(x.grad, y.grad)
