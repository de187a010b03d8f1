"""Operations that fail for a thread which has failed before, where nobody has looked at it yet."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import autobatch
from tests.oracle import CONFIGURATIONS

ROWS = (2, 2, 1, 3, 2)
PLACES = (1, 2, 0, 5, 0)


def one_place(x, n):
    y = x * 1.0
    y[0] = x[int(n)]
    return y.sum()


def every_other(x, n):
    y = x * 1.0
    y[1::2] = x[int(n)]
    return y.sum()


def behind_a_branch(x, n):
    y = x * 1.0
    if len(y) > 1:
        y[0] = x[int(n)]
    return y.sum()


def refused_itself(x, n):
    y = x * 1.0
    part = x[int(n)]
    y[5 if len(x) > 2 else 0] = part
    return y.sum()


def told(run: Callable[[], Tensor]) -> Tensor | tuple[type, str]:
    try:
        return run()
    except IndexError as error:
        return IndexError, str(error)


@pytest.mark.parametrize("options", CONFIGURATIONS, ids=str)
@pytest.mark.parametrize("function", [one_place, every_other, behind_a_branch, refused_itself])
def test_it_fails_as_it_has_failed_before(function, options):
    xs = [torch.arange(1.0, size + 1) for size in ROWS]
    n = torch.tensor(PLACES)
    wanted = [told(lambda i=i: function(xs[i], n[i])) for i in range(len(xs))]
    isolated = autobatch.vmap(function, on_error="isolate", **options)
    for _ in range(3):
        for result, row in zip(isolated(autobatch.ragged(xs), n), wanted, strict=True):
            error = result.exception
            found = result.value if error is None else (type(error), str(error))
            assert torch.equal(found, row) if isinstance(row, Tensor) else found == row
        first = told(lambda: autobatch.vmap(function, **options)(autobatch.ragged(xs), n))
        assert first == next(row for row in wanted if isinstance(row, tuple))
