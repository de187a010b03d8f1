"""Traces of torch's operator database: replay equals vmap, in values, dtypes and gradients.

By default a small fixed part of the database; all of it with ``-m slow``.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

from autobatch.batching.trace import Input, Untraceable, record
from autobatch.compat import FALLBACK_OFF

ROWS = 3
NAMES = sorted({op.name for op in op_db if torch.float32 in op.dtypes})
# What they make is not defined.
UNDEFINED = ("empty", "new_empty", "empty_like", "new_empty_strided", "empty_permuted")


@dataclass(frozen=True, slots=True)
class Case:
    """An operator mapped over some of its tensors; the others are uniform."""

    fn: Callable[..., tuple[Tensor, ...]]
    columns: Sequence[Tensor]
    uniform: Sequence[Tensor]

    @property
    def values(self) -> list[Tensor]:
        return [*self.columns, *self.uniform]


def rows_like(tensor: Tensor) -> Tensor:
    """Rows that are this tensor, scaled a little if that means something."""
    scale = torch.tensor([1 - 0.01 * row for row in range(ROWS)])
    stacked = torch.stack([tensor.detach()] * ROWS)
    if tensor.dtype.is_floating_point:
        stacked = stacked * scale.to(tensor.dtype).view(-1, *[1] * tensor.dim())
    return stacked.requires_grad_(tensor.requires_grad)


def cases(name: str, most: int = 12) -> Iterator[Case]:
    for op in (op for op in op_db if op.name == name):
        differentiable = op.supports_autograd
        samples = op.sample_inputs("cpu", torch.float32, requires_grad=differentiable)
        for sample in itertools.islice(samples, 0, most, 4):
            leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
            places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
            if places and all(leaves[i].layout is torch.strided for i in places):
                yield case_of(op, leaves, spec, places)


def case_of(op: Any, leaves: list[Any], spec: Any, places: list[int]) -> Case:
    columns = [i for n, i in enumerate(places) if n % 3 != 1]
    uniform = [i for i in places if i not in columns]

    def fn(k: int, *values: Tensor) -> tuple[Tensor, ...]:
        def one(*rows: Tensor) -> tuple[Tensor, ...]:
            given = list(leaves)
            for place, value in zip(
                (*columns, *uniform), (*rows, *values[len(rows) :]), strict=True
            ):
                given[place] = value
            first, args, kwargs = tree_unflatten(given, spec)
            out = op.op(first, *args, **kwargs)
            return tuple(leaf for leaf in tree_flatten(out)[0] if isinstance(leaf, Tensor))

        out: tuple[Tensor, ...] = torch.vmap(one)(*values[: len(columns)])
        return out

    return Case(fn, [rows_like(leaves[i]) for i in columns], [leaves[i] for i in uniform])


def gradients(outputs: Sequence[Tensor], values: Sequence[Tensor]) -> list[Tensor]:
    wanted = [value for value in values if value.requires_grad]
    parts = [out.sin().sum() for out in outputs if out.requires_grad and not out.is_complex()]
    if not wanted or not parts:
        return []
    total = torch.stack([part.double() for part in parts]).sum()
    found = torch.autograd.grad(total, wanted, allow_unused=True)
    return [torch.zeros_like(w) if g is None else g for g, w in zip(found, wanted, strict=True)]


def check(case: Case) -> None:
    """Hold a replay to vmap; what vmap refuses, and what says why it has no trace, passes."""
    try:
        with FALLBACK_OFF:
            want = case.fn(ROWS, *case.values)
    except Exception:  # vmap's own refusals have no common type
        return
    inputs = [Input("column", c) for c in case.columns] + [Input("tensor", u) for u in case.uniform]
    try:
        trace = record(case.fn, inputs)
    except Untraceable:
        return
    got = trace(ROWS, *case.values)
    torch.testing.assert_close(got, want, equal_nan=True)
    assert [out.requires_grad for out in got] == [out.requires_grad for out in want]
    try:
        slopes = gradients(want, case.values)
    except RuntimeError:  # torch has no derivative
        return
    found = gradients(got, case.values)
    torch.testing.assert_close(found, slopes, equal_nan=True, rtol=1e-4, atol=1e-4)


def sweep(names: Sequence[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            for case in cases(name):
                try:
                    check(case)
                except Exception as failure:
                    failure.add_note(f"operator {name}")
                    raise


def test_a_part_of_the_operator_database() -> None:
    sweep([name for name in NAMES[::40] if name not in UNDEFINED])


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, len(NAMES), 50))
def test_the_operator_database(start: int) -> None:
    sweep([name for name in NAMES[start : start + 50] if name not in UNDEFINED])
