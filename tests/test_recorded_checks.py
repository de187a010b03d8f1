"""Recordings keep the checks that give nothing: a matrix that has no factors, no inverse."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

GOOD = torch.rand(64, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1
MIXED = torch.randn(64, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
SINGULAR = MIXED.clamp(min=0)


def cholesky(x):
    return torch.linalg.cholesky(torch.diag(x)).sum(0)


def inverse(x):
    return torch.linalg.inv(torch.diag(x)).sum(0)


def solution(x):
    return torch.linalg.solve(torch.diag(x), torch.ones_like(x))


def unread(x):
    torch.linalg.cholesky(torch.diag(x))
    return x * 2


def newton_direction(x):
    for _ in range(3):
        try:
            step = torch.linalg.cholesky(torch.diag(x)).sum(0)
        except torch.linalg.LinAlgError:
            step = x * 1e-3
        x = x - step
    return x


PROGRAMS = [cholesky, inverse, solution, unread, newton_direction]


def recorded(program, size, **options):
    """The program after it has been recorded, on rows that pass."""
    batched = autobatch.vmap(program, **options)
    for _ in range(4):
        batched(GOOD[:size])
    return batched


@pytest.mark.sampled(8)
@pytest.mark.parametrize("executor", ["traced", "vmap", "compiled", "auto"])
@pytest.mark.parametrize("size", [1, 2, 7, 64])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_recorded_check_refuses_is_refused_as_in_the_loop(program, size, executor):
    batched = recorded(program, size, executor=executor)
    rows = SINGULAR if program in (inverse, solution) else MIXED
    if program is newton_direction:
        torch.testing.assert_close(batched(rows), torch.stack([program(row) for row in rows]))
        return
    with pytest.raises(torch.linalg.LinAlgError) as want:
        [program(row) for row in rows]
    with pytest.raises(torch.linalg.LinAlgError) as got:
        batched(rows)
    assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]


def test_recorded_checks_let_good_rows_pass_recorded():
    batched = recorded(cholesky, 7)
    with autobatch.counts() as counts:
        batched(GOOD[:7])
    assert counts.by_thread == 0
    assert counts.traces == 0
    assert_matches_loop(cholesky, [GOOD], batch_sizes=(0, 1, 2, 7, 64))


def test_examples_that_fail_in_a_recorded_check_leave_alone():
    results = recorded(cholesky, 64, on_error="isolate")(MIXED)
    failed = [i for i, result in enumerate(results) if result.exception is not None]
    assert failed == [i for i, row in enumerate(MIXED) if row.min() <= 0]


@dataclass
class Word:
    label: int


TABLE = torch.arange(24.0).reshape(8, 3)


def embedded(word):
    return TABLE[word.label] * 2


@pytest.mark.parametrize("labels", [[1, 8, 3], [-8, 7, 0], [0, -9, 9], [5, 5, 5]])
def test_indices_that_bounds_kept_in_range_are_looked_at_once_they_leave_it(labels):
    batched = autobatch.vmap(embedded, plain="never", trace_after=0)
    for _ in range(4):
        known = batched(autobatch.objects([Word(label) for label in (0, 3, -2)]))
    assert torch.equal(known, TABLE[[0, 3, -2]] * 2)
    words = [Word(label) for label in labels]
    try:
        expected = torch.stack([embedded(word) for word in words])
    except IndexError as error:
        with pytest.raises(IndexError, match=re.escape(str(error))):
            batched(autobatch.objects(words))
    else:
        assert torch.equal(batched(autobatch.objects(words)), expected)
