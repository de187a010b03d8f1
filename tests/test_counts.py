"""Counts that do not depend on the machine: block executions, host reads, traces, schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.api import LIBRARY
from autobatch.batching import replaced
from autobatch.ir.program import Branch
from autobatch.listeners import Counts, Step
from autobatch.vm.invariants import checking
from autobatch.vm.purity import Names
from programs.collatz import collatz
from programs.fibonacci import fibonacci
from programs.gcd import gcd
from tests.goldens import assert_golden

MODES: list[dict[str, Any]] = [
    {"executor": "vmap"},
    {"executor": "traced"},
    {"executor": "traced", "trace_after": 0},
]
modes = pytest.mark.parametrize("mode", MODES, ids=["vmap", "traced", "traced-at-once"])


def counted(func: Callable[..., Any], *args: Tensor, **options: Any) -> Counts:
    with autobatch.counts() as counts:
        autobatch.vmap(func, **options)(*args)
    return counts


def steps_of(func: Callable[..., Any], *args: Tensor, **options: Any) -> list[Step]:
    steps: list[Step] = []
    autobatch.vmap(func, listeners=[steps.append], **options)(*args)
    return steps


def countdown(n: Tensor) -> int:
    count = 0
    while n > 0:
        n = n - 1
        count = count + 1
    return count


def two_loops(n: Tensor, m: Tensor) -> Tensor:
    total = n * 0
    while n > 0:
        total = total + n
        n = n - 1
    while m > 0:
        total = total - m
        m = m - 1
    return total


def skipping(xs: Tensor) -> Tensor:
    total = xs[0] * 0.0
    for x in xs:
        if x < 0:
            continue
        if x > 10:
            break
        total = total + x
    return total


def parting(n: Tensor) -> int:
    """Collatz's steps by branches that are no selects: lists are made."""
    steps = 0
    while n != 1:
        n = [n // 2][0] if n % 2 == 0 else [3 * n + 1][0]
        steps += 1
    return steps


def uniform_loop(x: Tensor) -> Tensor:
    for step in range(5):
        if step % 2 == 1:  # noqa: SIM108 a branch of statements is meant
            x = x + 1.0
        else:
            x = x * 2.0
    return x


STRAIGHT: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "countdown": (countdown, (torch.tensor([3, 0, 7, 5, 7]),)),
    "two_loops": (two_loops, (torch.tensor([3, 0, 7]), torch.tensor([1, 9, 2]))),
}
BRANCHING: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    **STRAIGHT,
    "skipping": (skipping, (torch.arange(-3.0, 13.0).reshape(4, 4),)),
    "collatz": (collatz, (torch.arange(1, 12),)),
    "gcd": (gcd, (torch.tensor([12, 7, 9]), torch.tensor([18, 21, 6]))),
    "fibonacci": (fibonacci, (torch.tensor([6, 1, 4]),)),
    "uniform_loop": (uniform_loop, (torch.arange(3.0),)),
}


@modes
@pytest.mark.parametrize("case", STRAIGHT)
def test_a_loop_takes_as_long_as_its_longest_thread(case: str, mode: dict[str, Any]) -> None:
    """Each block of a straight loop runs as often as for the thread that runs it most often."""
    func, args = STRAIGHT[case]
    longest: Counter[tuple[str, int]] = Counter()
    for row in range(len(args[0])):
        longest |= counted(func, *(arg[row : row + 1] for arg in args), **mode).by_block
    assert counted(func, *args, **mode).by_block == longest


@modes
@pytest.mark.parametrize("case", BRANCHING)
def test_one_host_read_per_branch_of_threads(case: str, mode: dict[str, Any]) -> None:
    """At most one in a block that ends in a branch, none in any other."""
    func, args = BRANCHING[case]
    counts = counted(func, *args, **mode)
    blocks = LIBRARY.code_of(func).blocks  # type: ignore[arg-type]
    for (_, pc), reads in counts.reads_by_block.items():
        assert isinstance(blocks[pc].terminator, Branch)
        assert reads <= counts.by_block[(func.__name__, pc)]
    assert not counts.other_reads
    assert counts.host_reads == sum(counts.reads_by_block.values())
    assert counts.row_copies == sum(counts.copies_by_block.values())
    assert counts.copies_by_block.keys() <= counts.by_block.keys()


@modes
def test_a_branch_on_what_all_threads_share_reads_nothing(mode: dict[str, Any]) -> None:
    assert counted(uniform_loop, torch.arange(3.0), **mode).host_reads == 0


@pytest.fixture
def tensor_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often Python asks tensors for their data, by method.

    The engine is not to see that their methods are others: it would go round them.
    """
    reads: Counter[str] = Counter()
    monkeypatch.setattr(replaced, "_found", lambda: replaced.NOTHING)

    def watched(name: str) -> None:
        method = getattr(Tensor, name)

        def asked(self: Tensor, *args: Any, **kwargs: Any) -> Any:
            reads[name] += 1
            return method(self, *args, **kwargs)

        monkeypatch.setattr(Tensor, name, asked)

    for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__"):
        watched(name)
    yield reads


@modes
@pytest.mark.parametrize("case", ["countdown", "collatz", "gcd", "fibonacci"])
def test_counted_reads_are_all_reads(
    case: str, mode: dict[str, Any], tensor_reads: Counter[str]
) -> None:
    """What tensors are asked for is what was counted; ``numpy`` follows ``cpu`` and is no read."""
    func, args = BRANCHING[case]
    autobatch.vmap(func, **mode)(*args)  # recording and its check read data once
    tensor_reads.clear()
    with checking(False):
        counts = counted(func, *args, **mode)
    tensor_reads.pop("numpy", None)
    assert sum(tensor_reads.values()) == counts.host_reads


def additions(n: int) -> int:
    return 0 if n <= 2 else 1 + additions(n - 1) + additions(n - 2)


@modes
def test_the_additions_of_fibonacci(mode: dict[str, Any]) -> None:
    """TensorFlow Probability's example: 51 one by one, at most 21 in a batch."""
    ns = [6, 7, 8, 7]
    counts = counted(fibonacci, torch.tensor(ns), **mode)
    blocks = LIBRARY.with_forks(LIBRARY.code_of(fibonacci), Names.of(fibonacci)).blocks
    (adding,) = (pc for pc, block in enumerate(blocks) if any(op.name == "add" for op in block.ops))
    assert counts.by_block[("fibonacci", adding)] <= 21
    assert counts.threads_by_block[("fibonacci", adding)] == sum(map(additions, ns)) == 51


def counting(x: Tensor, bound: Tensor) -> Tensor:
    step = 0
    while x.sum() < bound:
        x = x * 1.5 + step
        step = step + 1
        if step % 3 == 0:
            x = x - 0.5
    return x * step


def test_traces_do_not_grow() -> None:
    """For fixed event shapes, neither with trips, nor threads, nor the value of a counter."""

    def run(batch: int, bound: float) -> Counter[tuple[str, int]]:
        xs = torch.rand(batch, 3) + 0.5
        bounds = bound + torch.rand(batch) * bound
        return counted(counting, xs, bounds, trace_after=0).traces_by_block

    first = run(5, 1e2) + run(3, 1e4)
    assert first, "nothing is traced, so this says nothing"
    for batch, bound in ((2, 1e2), (7, 1e3), (64, 1e6), (13, 1e12), (300, 1e3)):
        assert run(batch, bound) == Counter(), (batch, bound)


def schedule(func: Callable[..., Any], *args: Tensor, **options: Any) -> str:
    lines = []
    for step in steps_of(func, *args, **options):
        assert step.mask.tolist() == [row in step.threads for row in range(len(args[0]))]
        threads = " ".join(map(str, step.threads.tolist()))
        lines.append(f"{'  ' * step.depth}{step.function} {step.block}: {threads}\n")
    return "".join(lines)


SCHEDULES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "fibonacci": (fibonacci, (torch.tensor([6, 7, 8, 7]),)),
    "countdown": (countdown, (torch.tensor([2, 0, 4]),)),
    "parting": (parting, (torch.tensor([1, 3, 8]),)),
}


@modes
@pytest.mark.parametrize("case", SCHEDULES)
def test_schedules(case: str, mode: dict[str, Any]) -> None:
    func, args = SCHEDULES[case]
    assert_golden(f"schedule_{case}", schedule(func, *args, **mode))


@modes
def test_a_listener_sees_every_block_execution(mode: dict[str, Any]) -> None:
    with autobatch.counts() as counts:
        steps = steps_of(fibonacci, torch.tensor([6, 7, 8, 7]), **mode)
    seen = Counter((step.function, step.pc) for step in steps)
    assert seen == counts.by_block and len(steps) == counts.block_executions
    assert all(step.seconds >= 0 and step.block == f"b{step.pc}" for step in steps)


def nearest_of_three(x: Tensor, y: Tensor) -> Tensor:
    return max(min(x, y + 1, y * x), x - 1)


@modes
def test_extremes_of_tensors_run_batched(mode: dict[str, Any]) -> None:
    x, y = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([0.0, 3.0, -1.0])
    counts = counted(nearest_of_three, x, y, **mode)
    assert counts.fallbacks == 0
    assert counts.host_reads == 0


class Stepper:
    def step(self, x):
        return x + 1


def calls_a_method(x, stepper):
    xs = [x, 2 * x] if x > 0 else [x]
    return stepper.step(xs[0] if x > 1 else xs[-1])


def test_threads_meet_at_a_method_that_they_looked_up_apart():
    """Before the call, lists of two lengths keep them apart."""
    xs = torch.tensor([-1.0, 1.0, 2.0])
    with autobatch.counts() as counts:
        result = autobatch.vmap(calls_a_method, in_dims=(0, None))(xs, Stepper())
    assert result.tolist() == [0.0, 3.0, 3.0]
    assert counts.by_block["Stepper.step", 0] == 1


class Doubled(torch.autograd.Function):
    """Its ``apply`` is a method in C from torch 2.14 on, in Python before."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(context: Any, *slopes: Tensor) -> Tensor:
        return slopes[0] * 2


def doubles(x):
    twice, counts = Doubled.apply, dict.fromkeys
    if x > 1:
        twice, counts = Doubled.apply, dict.fromkeys
        x = x + 1
    return twice(x), len(counts("ab"))


def test_threads_meet_with_methods_in_c_that_they_looked_up_apart():
    xs = torch.tensor([-1.0, 1.0, 2.0])
    with autobatch.counts() as counts:
        result, sizes = autobatch.vmap(doubles, plain="never")(xs)
    assert result.tolist() == [-2.0, 2.0, 6.0] and sizes.tolist() == [2, 2, 2]
    assert set(counts.by_block.values()) == {1}
