"""What tests of loops that threads go round on their own ask of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.vm.queue import Waiting
from tests.of_its_own import of_its_own


def times_asked(
    func: Callable[..., Any], args: Sequence[Tensor], monkeypatch: pytest.MonkeyPatch
) -> int:
    """How often a warm run's queue has given what runs next."""
    times: Counter[str] = Counter()
    given = Waiting.next

    def counted(self: Waiting, parts: Any) -> Any:
        times["queue"] += 1
        return given(self, parts)

    monkeypatch.setattr(Waiting, "next", counted)
    func = of_its_own(func) if isinstance(func, FunctionType) else func  # modules are new ones
    batched = autobatch.vmap(func, trace_after=0)
    for _ in range(4):
        times.clear()
        with torch.no_grad():
            batched(*args)
    return times["queue"]


def hold_gradients_to_loop(func: Callable[..., Any], rows: Tensor, *others: Tensor) -> None:
    """Of the first result by ``rows``, in double precision, in the first runs and later ones."""
    rows = rows.double().requires_grad_()
    others = tuple(other.double() for other in others)

    def gradient(result: Any) -> Tensor:
        first = result[0] if isinstance(result, tuple) else result
        return torch.autograd.grad(first.square().sum(), rows)[0]

    loops = [func(*args) for args in zip(rows, *others, strict=True)]
    firsts = [each[0] if isinstance(each, tuple) else each for each in loops]
    expected = gradient(torch.stack(firsts))
    batched = autobatch.vmap(of_its_own(func), trace_after=0)
    for _ in range(4):
        torch.testing.assert_close(gradient(batched(rows, *others)), expected)
