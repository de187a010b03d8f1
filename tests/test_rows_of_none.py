"""Reductions of tensors without a row, which some examples do not use or fail at."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
import torch
from torch import Tensor

import autobatch
from tests.test_gradients_present import WAYS

XS = [[0.5], [], [1.0, -2.0], [], [-3.0]]
Reduce = Callable[[Tensor], Tensor]


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize(
    "reduced",
    [
        Tensor.mean,
        lambda x: x.mean(0),
        lambda x: x.square().mean() + 1,
        lambda x: x.logsumexp(0),
        lambda x: x.std(),
        Tensor.max,
        lambda x: x.amin(0),
    ],
)
def test_what_none_uses_has_no_gradient(reduced: Reduce, options):
    def function(x, w):
        y = w * reduced(x)
        if len(x) < 2:
            return w * 2.0
        return y

    xs = [torch.tensor(x) for x in XS]
    for _ in range(3):
        ws, others = (torch.arange(1.0, 6, requires_grad=True) for _ in range(2))
        total = torch.zeros(())
        for x, w in zip(xs, ws, strict=True):
            with suppress(IndexError, RuntimeError):  # of no element there is no maximum
                total = total + function(x, w)
        total.backward()
        found = autobatch.vmap(function, on_error="isolate", **options)(
            autobatch.ragged(xs), others
        )
        sum(each.value for each in found if each.exception is None).backward()
        torch.testing.assert_close(others.grad, ws.grad)
