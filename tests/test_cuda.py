"""On a CUDA device: nothing waits for it but the counted reads, and the loop's values are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import autobatch
from autobatch.vm.invariants import checking
from programs.collatz import collatz
from programs.example import seeded
from programs.fibonacci import fibonacci
from programs.fixed_point import FixedPoint
from programs.gcd import gcd
from programs.lstm import VariableLengthLSTM
from programs.treelstm import Tree, TreeLSTM, random_tree
from tests.generator import FAMILIES, programs
from tests.oracle import assert_matches_loop
from tests.test_properties import QUICK, hold_to_loop

pytestmark = pytest.mark.gpu

WAYS: list[dict[str, Any]] = [
    {"executor": "vmap"},
    {"trace_after": 0, "plain": "never"},
    {"engine": "program_counter", "trace_after": 0, "plain": "never"},
]


@pytest.fixture
def reads() -> Iterator[list[str]]:
    """Whatever waits for the device is an error, but for the reads of values, which are noted."""
    noted: list[str] = []

    def watched(method: Any) -> Any:
        def reading(self: Tensor, **kwargs: Any) -> Any:
            if not self.is_cuda:
                return method(self, **kwargs)
            noted.append(method.__name__)
            torch.cuda.set_sync_debug_mode("default")
            try:
                return method(self, **kwargs)
            finally:
                torch.cuda.set_sync_debug_mode("error")

        return reading

    with pytest.MonkeyPatch.context() as patch:
        for name in ("cpu", "item", "tolist"):
            patch.setattr(Tensor, name, watched(getattr(Tensor, name)))
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield noted
        finally:
            torch.cuda.set_sync_debug_mode("default")


def appended(n: Tensor, x: Tensor) -> Tensor:
    kept = []
    while n > 0:
        kept.append(x * n)
        n = n - 1
    return torch.stack(kept).sum(0) if kept else x


def of_both_kinds(x: Tensor) -> Tensor:
    y = x.clone()
    for i in range(3):
        if x[i] > 0:
            y[i] = x.sum()
        elif x[i] < -1:
            y = y * 2
    return y


def cases() -> dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]]:
    with seeded(0):
        ints, more = torch.randint(1, 12, (33,)), torch.randint(1, 30, (33,))
        rows, sequences = torch.randn(33, 128), torch.randn(33, 12, 8)
        layer, model = FixedPoint().cuda(), VariableLengthLSTM(8, 16).cuda()
    return {
        "collatz": (collatz, (ints,)),
        "gcd": (gcd, (ints, more)),
        "fibonacci": (fibonacci, (ints,)),
        "fixed_point": (layer, (rows,)),
        "lstm": (model, (sequences, ints)),
        "appended": (appended, (ints, rows)),
        "of_both_kinds": (of_both_kinds, (rows[:, :3],)),
    }


NAMES = ("collatz", "gcd", "fibonacci", "fixed_point", "lstm", "appended", "of_both_kinds")


@pytest.mark.parametrize("way", WAYS, ids=["vmap", "traced", "program_counter"])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_waits_but_the_counted_reads(
    name: str, way: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    func, args = cases()[name]
    args = tuple(arg.cuda() for arg in args)
    batched = autobatch.vmap(func, **way)
    with torch.no_grad(), checking(False):
        for _ in range(3):  # recording and its check read data
            batched(*args)
        noted = request.getfixturevalue("reads")
        with autobatch.counts() as counts:
            batched(*args)
    assert 0 < len(noted) == counts.host_reads + counts.other_reads.total()


@pytest.mark.parametrize("family", FAMILIES)
@settings(QUICK, max_examples=10)
@given(data=st.data())
def test_a_generated_program_matches_the_loop(data: st.DataObject, family: str) -> None:
    program = data.draw(programs(family), label="program")
    how = {"configurations": (data.draw(st.sampled_from(WAYS)),), "rtol": 1e-6, "atol": 1e-6}
    with torch.device("cuda"):  # where programs make tensors of their own
        hold_to_loop(program, 0, 7, "cuda", **how)


def test_draws_are_the_same_however_threads_run() -> None:
    def walk(x: Tensor) -> Tensor:
        while x < 2.0:
            x = x + torch.rand((), device=x.device) + torch.randn_like(x).abs()
        return x

    x = torch.zeros(17, device="cuda")
    want = autobatch.vmap(walk, seed=3)(x)
    assert len(set(want.tolist())) > 10
    for options in (*WAYS, {"chunk_size": 5}):
        torch.testing.assert_close(autobatch.vmap(walk, seed=3, **options)(x), want)
    torch.testing.assert_close(autobatch.vmap(walk, seed=3)(x.cpu()), want.cpu())


def test_gradients_are_the_loops() -> None:
    with seeded(0):
        cell, x = nn.LSTMCell(6, 6).cuda(), torch.randn(9, 5, 6).cuda()

    def last(x: Tensor, n: Tensor) -> Tensor:
        h = c = x.new_zeros(6)
        for t in range(n):
            h, c = cell(x[t], (h, c))
            if h.sum() > 0.3:
                h = h * 0.5
        return h

    n = torch.arange(9).cuda() % 6
    weights = list(cell.parameters())
    want = torch.stack([last(*row) for row in zip(x, n, strict=True)]).square().sum()
    want = torch.autograd.grad(want, weights)
    for way in WAYS:
        for _ in range(3):
            got = torch.autograd.grad(autobatch.vmap(last, **way)(x, n).square().sum(), weights)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell])
def test_a_loop_of_cells_is_differentiated_without_a_read(
    cell: type[nn.RNNCellBase], request: pytest.FixtureRequest
) -> None:
    with seeded(0):
        model, x = cell(6, 6).cuda(), torch.randn(9, 5, 6).cuda()

    def last(x: Tensor, n: Tensor) -> Tensor:
        h: Any = x.new_zeros(6)
        if cell is nn.LSTMCell:
            h = (h, h)
        for t in range(n):
            h = model(x[t], h)
        return h[0] if cell is nn.LSTMCell else h

    batched = autobatch.vmap(last, trace_after=0, plain="never")
    n = torch.arange(9).cuda() % 6
    for _ in range(3):
        torch.autograd.grad(batched(x, n).square().sum(), list(model.parameters()))
    result = batched(x, n).square().sum()
    noted = request.getfixturevalue("reads")
    torch.autograd.grad(result, list(model.parameters()))
    assert not noted


def test_trees_of_a_model_on_the_device_are_batched() -> None:
    """Numbers of objects are where the model is, so labels pick rows in one operation."""
    with seeded(0):
        model = TreeLSTM(32, 16).cuda()
        trees = [random_tree(nodes, 32) for nodes in range(1, 12)]

    def through_a_closure(tree: Tree) -> Tensor:
        h, _ = model(tree)
        return h

    for func in (model, through_a_closure):
        batched = autobatch.vmap(func)
        want = torch.stack([through_a_closure(tree) for tree in trees])
        for _ in range(3):
            with autobatch.counts() as counts:
                got = batched(autobatch.objects(trees))
            torch.testing.assert_close(got[0] if func is model else got, want)
        assert not counts.other_reads and not counts.fallbacks


def test_indices_from_the_host_pick_from_the_device() -> None:
    table, letters = torch.randn(7, 4, device="cuda"), [[1, 3], [0, -1], [6, 2]]

    def picked(numbers: list[int]) -> Tensor:
        total = table[torch.tensor(numbers[0])]
        for number in numbers:
            total = total + table[torch.tensor(number)] + table[number]
        total[torch.tensor(numbers[0] % 4)] = 1.0
        return total

    args = (autobatch.objects(letters),)
    for way in WAYS:
        assert_matches_loop(picked, args, configurations=(way,), rtol=1e-6, atol=1e-6)
