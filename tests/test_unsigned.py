"""Unsigned ints of 16, 32 and 64 bits, whose rows torch's own kernels do not take."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.oracle import assert_matches_loop


def parts(x: Tensor) -> tuple[Tensor, int]:
    found, steps = x.clone(), 0
    while int(found[0]) > steps:
        steps += 1
    if steps % 2:
        found = torch.stack([found[1], found[0]])
    return found, steps


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_threads_part_and_meet(dtype: torch.dtype) -> None:
    xs = torch.tensor([[3, 1], [0, 5], [2, 2], [1, 7], [3, 0], [4, 4], [0, 0]]).to(dtype)
    assert_matches_loop(parts, (xs,), batch_sizes=(1, 2, 7))


LARGE = torch.tensor([-1, 3, -(2**63), 7]).view(torch.uint64)
"""Beside small ones 2**64 - 1 and 2**63, which no column of ints holds."""


def asked(x: Tensor) -> tuple[int, float, str, bool]:
    number = x.item()
    return int(x) // 2 if number > 5 else int(x) + 1, float(x), str(number), number in x.tolist()


def doubled(n: int) -> tuple[int, int, bool]:
    return n, n + 1 if n > 5 else n // 2, n > 2**63


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_numbers_past_int64_are_pythons(dtype: torch.dtype) -> None:
    xs = LARGE if dtype is torch.uint64 else LARGE.view(torch.int64).to(dtype)
    assert_matches_loop(asked, (xs[:, None],))
    assert_matches_loop(doubled, (xs,), scalars="python")
