"""``out=`` takes the size of what is written to it, which may be each example's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import autobatch
from tests.oracle import assert_matches_loop

XS = torch.arange(20.0).view(4, 5)
WAYS = ({}, {"executor": "vmap"}, {"plain": "never", "trace_after": 0}, {"engine": "sequential"})


def selected(x: Tensor, n: Tensor) -> tuple[Tensor, int]:
    buffer = torch.zeros(3)
    torch.index_select(x, 0, torch.arange(int(n)), out=buffer)
    return buffer.sum(), buffer.size(0)


def of_another_name(x: Tensor, n: Tensor) -> tuple[Tensor, int]:
    buffer = torch.zeros(3)
    same = buffer
    torch.index_select(x, 0, torch.arange(int(n)), out=buffer)
    return same.sum(), same.size(0)


def written_again(x: Tensor, n: Tensor) -> tuple[Tensor, int]:
    buffer = torch.zeros(3)
    torch.mul(x[: int(n)], 2.0, out=buffer)
    torch.add(buffer, 1, out=buffer)
    return buffer.sum(), buffer.size(0)


def in_a_loop(x: Tensor, n: Tensor) -> tuple[Tensor, int]:
    kept, buffer = torch.arange(5), x.new()
    total, steps = torch.zeros(()), 0
    while kept.size(0) > int(n):
        kept = kept[x[kept] != x[kept].max()]
        torch.index_select(x, 0, kept, out=buffer)
        total, steps = total + torch.clamp(buffer, max=3).sum(), steps * 10 + buffer.size(0)
    return total, steps


@pytest.mark.sampled(6)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("sizes", [(1, 3, 1, 3), (1, 1, 1, 1), (2, 3, 4, 5), (0, 1, 3, 3)], ids=str)
@pytest.mark.parametrize("program", [selected, of_another_name, written_again, in_a_loop])
def test_each_example_has_its_own_size(program, sizes, way):
    ns = torch.tensor(sizes)
    expected = [program(x.clone(), n) for x, n in zip(XS, ns, strict=True)]
    values, counts = autobatch.vmap(program, **way)(XS, ns)
    assert values.tolist() == [value.item() for value, _ in expected]
    assert counts.tolist() == [count for _, count in expected]


def read_too(x: Tensor, n: Tensor) -> tuple[str, Tensor]:
    total = x.sum()
    try:
        torch.add(total, x, out=total)
    except RuntimeError as error:
        return str(error), total
    return "", total


def a_number(x: Tensor, n: Tensor) -> int:
    number = n.item()
    torch.add(x, 1, out=number)  # which torch takes, and leaves as it is
    return number


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("program", [read_too, a_number])
def test_what_torch_makes_of_other_outs(program):
    assert_matches_loop(program, [XS, torch.arange(4)])
