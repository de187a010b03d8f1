"""Recorded blocks that read shared tensors, once threads have written to some of them.

What is read before it is written may be recorded, and runs so wherever other tensors are written;
after a write of its own it is refused, however the program comes by the tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch
from autobatch.errors import AutobatchError

STEPS = 4
total, other = torch.zeros(3), torch.ones(3)
tables = [torch.zeros(3), torch.ones(3)]
named = {"total": torch.zeros(3)}
outside = ModuleType("outside_of_it")
outside.total = torch.zeros(3)  # type: ignore[attr-defined]


class Holder:
    total = torch.zeros(3)


class Layer(nn.Module):
    of_all = torch.zeros(3)
    pair = (torch.zeros(3), 1)

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.plain = torch.zeros(3)
        self.inner = nn.Linear(3, 3)

    @property
    def computed(self) -> Tensor:
        return total

    def method(self, x: Tensor) -> Tensor:
        return x * 0.5 + self.of_all


class Given(nn.Module):
    def __getattr__(self, name: str) -> Any:
        return total if name == "dynamic" else super().__getattr__(name)


layer, given = Layer(), Given()
layer.inner.weight.grad = torch.zeros(3, 3)
layer.inner.weight.mark = torch.zeros(3)  # type: ignore[assignment]


def read_by_a_helper(x: Tensor) -> Tensor:
    return x * 0.5 + total


READS: dict[str, tuple[Callable[[], Tensor], Callable[[Tensor], Tensor]]] = {
    "global": (lambda: total, lambda x: x * 0.5 + total),
    "element": (lambda: tables[0], lambda x: x * 0.5 + tables[0]),
    "entry": (lambda: named["total"], lambda x: x * 0.5 + named["total"]),
    "buffer": (lambda: layer.seen, lambda x: x * 0.5 + layer.seen),
    "attribute": (lambda: layer.plain, lambda x: x * 0.5 + layer.plain),
    "of a class": (lambda: Holder.total, lambda x: x * 0.5 + Holder.total),
    "of a layer's class": (lambda: layer.of_all, lambda x: x * 0.5 + layer.of_all),
    "in a method": (lambda: layer.of_all, lambda x: layer.method(x)),
    "within a layer's class": (lambda: layer.pair[0], lambda x: x * 0.5 + layer.pair[0]),
    "gradient": (
        lambda: layer.inner.weight.grad[0],  # type: ignore[index]
        lambda x: x * 0.5 + layer.inner.weight.grad[0],  # type: ignore[index]
    ),
    "attribute of a tensor": (
        lambda: layer.inner.weight.mark,  # type: ignore[return-value]
        lambda x: x * 0.5 + layer.inner.weight.mark,  # type: ignore[operator]
    ),
    "property": (lambda: total, lambda x: x * 0.5 + layer.computed),
    "looked up": (lambda: total, lambda x: x * 0.5 + given.dynamic),
    "of a module": (lambda: outside.total, lambda x: x * 0.5 + outside.total),
    "helper": (lambda: total, read_by_a_helper),
    "view": (lambda: total, lambda x: x * 0.5 + total[1:2]),
    "weight": (lambda: layer.inner.bias.detach(), lambda x: layer.inner(x)),
}


def program_of(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    written, read = READS[name]
    target = written()

    def program(x: Tensor, write: Tensor) -> Tensor:
        for _ in range(STEPS):
            x = read(x)
            if write > 0:
                target.add_(x.sum() * 0)
        return x

    return program


def elsewhere(x: Tensor, write: Tensor) -> Tensor:
    for _ in range(STEPS):
        x = x * 0.5 + total + layer.inner(x)
        if write > 0:
            other.add_(x.detach() * 0)
    return x


XS = torch.arange(12.0).reshape(4, 3)
NONE, ALL = torch.zeros(4), torch.ones(4)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("options", [{"trace_after": 0}, {}], ids=str)
def test_a_recording_does_not_read_what_was_written(name: str, options: Any) -> None:
    """The block is recorded by a call that writes nothing; then it comes by after a write."""
    batched = autobatch.vmap(program_of(name), **options)
    for _ in range(3):
        before = batched(XS, NONE)
    wanted = torch.stack([program_of(name)(x, torch.zeros(())) for x in XS])
    torch.testing.assert_close(before, wanted)
    with pytest.raises(AutobatchError, match="after it has written to it"):
        batched(XS, ALL)
    torch.testing.assert_close(batched(XS, NONE), wanted)


@pytest.mark.parametrize("options", [{"trace_after": 0}, {}, {"executor": "vmap"}], ids=str)
def test_other_tensors_are_read_as_ever(options: Any) -> None:
    batched = autobatch.vmap(elsewhere, **options)
    wanted = torch.stack([elsewhere(x, torch.zeros(())) for x in XS])
    for write in (NONE, ALL, NONE, ALL):
        torch.testing.assert_close(batched(XS, write), wanted)


def calls_in(function: Callable[[], Any]) -> int:
    """Calls of functions, Python's and C's: what a run costs, exactly."""
    count = 0

    def count_call(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(count_call)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def gone_round(x: Tensor, n: Tensor, write: Tensor) -> Tensor:
    if write > 0:
        other.add_(x * 0)
    for i in range(int(n)):
        x = torch.tanh(x * 0.5 + total) if i % 2 else x - total
    return x


def test_a_round_after_a_write_costs_what_it_costs_without() -> None:
    batched = autobatch.vmap(gone_round)
    costs: list[int] = []
    for write in (NONE, ALL):
        few, many = torch.full((4,), 20), torch.full((4,), 120)
        for n in (few, many, few, many):
            batched(XS, n, write)
        costs.append(
            calls_in(lambda n=many, write=write: batched(XS, n, write))  # type: ignore[misc]
            - calls_in(lambda n=few, write=write: batched(XS, n, write))  # type: ignore[misc]
        )
    assert costs[1] <= 2 * costs[0]


def test_where_it_was_written_is_told_with_its_file_if_that_is_another() -> None:
    scale = torch.ones(())

    def own(x):
        scale.mul_(x.sum())
        return torch.distributions.Exponential(scale).log_prob(x.sum())

    with pytest.raises(AutobatchError, match=r"in line \d+ of \S*test_shared_reads.py it is mul"):
        autobatch.vmap(own)(XS)
