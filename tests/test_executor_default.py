"""What runs a program that says no executor: plain Python, machine code, recordings, kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.alone import beginning
from autobatch.batching.stretches.executors import AUTO, COMPILED, TRACED
from autobatch.errors import OptionError
from autobatch.listeners import Counts
from autobatch.llvm import is_installed
from autobatch.options import Options
from autobatch.runs import machine_code, trial
from autobatch.runs.machines import work_of
from autobatch.runs.trial import measuring
from autobatch.vm.invariants import checking
from programs.collatz import collatz

pytestmark = [
    pytest.mark.usefixtures("said_by_nobody"),
    pytest.mark.skipif(not is_installed(), reason="needs llvmlite"),
]
N = torch.arange(1, 101)


@pytest.fixture(autouse=True)
def by_the_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """First calls may begin plainly, on any machine, and nothing else goes by the clock."""
    monkeypatch.setattr(beginning, "SECONDS", 60.0)
    monkeypatch.setattr(trial, "WORTH_MEASURING", 60.0)
    with measuring(True), checking(False):
        yield


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads of each call whose compiled form was looked for."""
    found: list[int] = []
    plan_of = machine_code.plan_of

    def looking(target, batch, *args):  # type: ignore[no-untyped-def]
        found.append(batch.size)
        return plan_of(target, batch, *args)

    monkeypatch.setattr(machine_code, "plan_of", looking)
    return found


def steps(n: Tensor) -> int:
    count = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        count += 1
    return count


def counted(run) -> tuple[Tensor, Counts]:  # type: ignore[no-untyped-def]
    with autobatch.counts() as counts:
        result = run()
    return result, counts


def test_many_examples_of_a_number_program_are_machine_code_at_once() -> None:
    batched = autobatch.vmap(steps)
    for compilations in (1, 0):
        result, counts = counted(lambda: batched(N))
        assert result.tolist() == [steps(n) for n in N]
        assert counts.compilations == compilations and counts.iterations
        assert not counts.traces and not counts.host_reads


def test_first_calls_of_few_come_before_machine_code(looked: list[int]) -> None:
    def own(n: Tensor) -> int:
        return steps(n) + 1

    batched, few = autobatch.vmap(own), N[:7]
    for call in range(5):
        assert batched(few).tolist() == [own(n) for n in few]
        assert looked == [7] * max(0, call + 1 - beginning.CALLS)


def test_first_calls_of_objects_alone_count_too(looked: list[int]) -> None:
    """Numbers of Python's: plain Python would run them for good."""

    def own(n: int) -> int:
        total = 0
        while n > 0:
            total, n = total + n, n - 1
        return total

    batched = autobatch.vmap(own, scalars="python")
    for call in range(5):
        assert batched(N[:7]).tolist() == [own(n) for n in N[:7].tolist()]
        assert looked == [7] * max(0, call + 1 - beginning.CALLS)
    assert counted(lambda: batched(N[:7]))[1].iterations


def test_one_block_runs_straight_through(looked: list[int]) -> None:
    batched = autobatch.vmap(lambda x: x * 2 + 1)
    for _ in range(3):
        assert torch.equal(batched(N.double()), N.double() * 2 + 1)
    assert not looked


def test_a_callable_says_which_block_is_next(looked: list[int]) -> None:
    asked = []

    def first(waiting: list[autobatch.WaitingBlock]) -> int:
        asked.append(len(waiting))
        return 0

    assert autobatch.vmap(steps, schedule=first)(N).tolist() == [steps(n) for n in N]
    assert asked and not looked


def test_what_is_faster_block_by_block_is_not_looked_at_each_time(looked: list[int]) -> None:
    weight = torch.randn(16, 16).double()

    def turned(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return weight @ x
        return x

    batched, x = autobatch.vmap(turned), torch.randn(4000, 16).double()
    for _ in range(beginning.CALLS + 8):
        batched(x)
    assert looked == [4000] * 3  # the fourth call, the sixth and the tenth
    looked.clear()
    few = x[:100]
    assert torch.allclose(batched(few), torch.stack([turned(row) for row in few]))
    assert looked == [100]  # fewer are another matter


def test_what_has_no_compiled_form_is_looked_at_ever_more_rarely(looked: list[int]) -> None:
    def ordered(x: Tensor) -> Tensor:
        values = torch.sort(x).values
        return values if values[0] > 0 else -values

    batched, x = autobatch.vmap(ordered), torch.randn(100, 4)
    for _ in range(beginning.CALLS + 8):
        assert torch.equal(batched(x), torch.stack([ordered(row) for row in x]))
    assert looked == [100] * 3


def test_what_is_faster_block_by_block_is_not_compiled() -> None:
    """Only written, which tells so."""

    def wide(x: Tensor) -> Tensor:
        while x.sum() < 100:
            x = torch.tanh(x) + 1
        return x

    mapped = autobatch.vmap(wide, executor="compiled")
    x = torch.rand(4000, 100).double()
    result, counts = counted(lambda: mapped(x))
    assert torch.allclose(result, torch.stack([wide(row) for row in x]))
    assert not counts.compilations
    _, counts = counted(lambda: mapped(x[:3]))
    assert counts.compilations == 1


def test_tensors_do_not_load_torchs_tracing_for_machine_code(tmp_path: Path) -> None:
    program = (
        "import sys, torch, autobatch\n"
        "def halved(x):\n"
        "    while x.sum() > 1:\n"
        "        x = x / 2\n"
        "    return x\n"
        "def made(n):\n"
        "    return halved(torch.ones(3) * n)\n"
        "for function, given in ((halved, torch.rand(70, 3)), (made, torch.rand(70))):\n"
        "    for _ in range(6):\n"
        "        rows = [function(row) for row in given]\n"
        "        assert torch.equal(autobatch.vmap(function)(given), torch.stack(rows))\n"
        "for each in autobatch.stream(halved, torch.rand(300, 3), width=70):\n"
        "    pass\n"
        "print('torch._dynamo' in sys.modules)\n"
        "with autobatch.counts() as counts:\n"
        "    autobatch.vmap(made, executor='compiled')(given)\n"
        "print(counts.compilations)\n"
    )
    assert in_a_process(program, "auto", tmp_path / "program.py").stdout.split() == ["False", "1"]


def test_what_waits_for_torchs_tracing_is_looked_at_once_it_is_loaded(tmp_path: Path) -> None:
    program = (
        "import torch, autobatch\n"
        "def halved(x):\n"
        "    while x.sum() > 1:\n"
        "        x = x / 2\n"
        "    return x\n"
        "batched, given = autobatch.vmap(halved), torch.rand(70, 3)\n"
        "for _ in range(8):\n"
        "    batched(given)\n"
        "import torch._dynamo\n"
        "with autobatch.counts() as counts:\n"
        "    batched(given)\n"
        "print(counts.compilations)\n"
    )
    assert in_a_process(program, "auto", tmp_path / "program.py").stdout.split() == ["1"]


def test_without_llvmlite_nothing_is_looked_at(
    looked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_code, "is_installed", lambda: False)
    assert autobatch.vmap(steps)(N).tolist() == [steps(n) for n in N]
    assert not looked


def executor_of(**options: object) -> object:
    work = work_of(Options().updated(options), None)
    assert work is not None
    return work.executor


def test_what_repeats_has_no_kernels_by_the_clock() -> None:
    assert executor_of() is AUTO
    assert executor_of(seed=0) is TRACED
    torch.use_deterministic_algorithms(True)
    try:
        assert executor_of() is TRACED
    finally:
        torch.use_deterministic_algorithms(False)
    assert executor_of(executor="compiled", seed=0) is COMPILED


@pytest.mark.parametrize("said", [{}, {"executor": "auto"}])
@pytest.mark.parametrize("save", ["recompute", "offload"])
def test_what_is_saved_for_a_backward_is_recorded(said: dict[str, str], save: str) -> None:
    weight = torch.randn(4, 4, requires_grad=True)

    def applied(x: Tensor) -> Tensor:
        while x.sum() < 4:
            x = (weight @ x).abs() + 0.5
        return x.sum()

    x = torch.rand(5, 4)
    (ours,) = torch.autograd.grad(autobatch.vmap(applied, save=save, **said)(x).sum(), weight)
    (loop,) = torch.autograd.grad(sum(applied(row) for row in x), weight)
    assert torch.allclose(ours, loop)
    assert not Options().updated({"save": save, **said}).compiles


def test_explain_says_what_the_default_makes_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    report = autobatch.explain(collatz, N)
    assert report.is_compiled and "machine code" in report.headline()
    assert "slower than a plain loop" not in capsys.readouterr().out

    def ordered(x: Tensor) -> Tensor:
        return torch.sort(x).values

    report = autobatch.explain(autobatch.vmap(ordered), torch.randn(3, 4))
    assert "aten.sort.default has no compiled form" in report.headline()


def test_the_environment_names_another_default() -> None:
    program = (
        "import autobatch\n"
        "from autobatch.options import Options\n"
        "print(Options().executor_at_work, Options(executor='auto').executor_at_work)\n"
    )
    ran = in_a_process(program, "vmap")
    assert ran.stdout.split() == ["vmap", "auto"]
    ran = in_a_process(program, "jit")
    assert "AUTOBATCH_EXECUTOR is 'jit'; it must be one of 'auto', 'traced'" in ran.stderr
    assert OptionError.__name__ in ran.stderr


def in_a_process(
    program: str, executor: str, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """``path``: where it is to stand, if it must have source."""
    environment = {**os.environ, "AUTOBATCH_EXECUTOR": executor}
    command = [sys.executable, "-c", program]
    if path is not None:
        path.write_text(program, encoding="utf-8")
        command[1:] = [str(path)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
