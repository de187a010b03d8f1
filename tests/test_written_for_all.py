"""Writes by ``out=`` and ``inplace=`` to a tensor that all threads share.

Each happens once, and before what comes after it, also in a stretch, some of whose operations run
on the host ahead of the others.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.oracle import assert_matches_loop

RELU = torch.nn.ReLU(inplace=True)


def out(x: Tensor, w: Tensor) -> Any:
    torch.exp(w, out=w)
    return x + w


def by_a_dict(x: Tensor, w: Tensor) -> Any:
    where = {"out": w}
    torch.exp(w, **where)
    return x + w


def part(x: Tensor, w: Tensor) -> Any:
    rest = w[1:]
    torch.mul(rest, 3.0, out=rest)
    return x * w, rest


def given_back(x: Tensor, w: Tensor) -> Any:
    again = torch.neg(w, out=w)
    torch.add(again, 1, out=w)
    return x + again


def several(x: Tensor, w: Tensor) -> Any:
    torch.sort(w, out=(w, torch.zeros(3, dtype=torch.long)))
    return x - w


def of_its_own(x: Tensor, w: Tensor) -> Any:
    made = torch.ones(3)
    for n in range(3):
        torch.add(made, n, out=made)
    return x + made


def in_place(x: Tensor, w: Tensor) -> Any:
    F.hardtanh(w, -0.5, 0.5, inplace=True)
    return x + w


def in_place_by_its_position(x: Tensor, w: Tensor) -> Any:
    F.threshold(w, 0.5, -3.0, True)
    return x + w


def in_place_by_a_module(x: Tensor, w: Tensor) -> Any:
    RELU(w)
    return x + w


def in_branches(x: Tensor, w: Tensor) -> Any:
    if x.sum() > 0:
        torch.exp(w, out=w)
    else:
        torch.neg(w, out=w)
    return x + w


def in_a_loop(x: Tensor, w: Tensor) -> Any:
    n = 0
    while n < x[0]:
        torch.mul(w, 1.5, out=w)
        n += 1
    return x + w


@pytest.mark.parametrize(
    "func",
    [
        out,
        by_a_dict,
        part,
        given_back,
        several,
        of_its_own,
        in_place,
        in_place_by_its_position,
        in_place_by_a_module,
        in_branches,
        in_a_loop,
    ],
)
def test_a_write_to_what_all_threads_share(func: Any) -> None:
    xs = torch.tensor([[2.0, 0.5, 1.0], [-1.0, -2.0, 0.0], [0.5, 3.0, 1.0]])
    assert_matches_loop(func, (xs, torch.tensor([0.75, -1.0, 0.25])), in_dims=(0, None))
