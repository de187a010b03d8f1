"""Costs: what an estimate is made of, what is measured, and that decisions go by shapes alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
import torch

import autobatch
from autobatch.batching import calibration
from autobatch.batching.calibration import work_of
from autobatch.explaining import stopwatch
from autobatch.explaining.report import BlockRuns
from autobatch.explaining.stopwatch import Stopwatch
from autobatch.ir.costs import ELEMENT, LAUNCH, PARTING, Machine, Work
from autobatch.ir.program import Op
from autobatch.passes import if_conversion
from autobatch.passes.conversion_reasons import reasons
from autobatch.source import Span
from autobatch.values.cells import Cell, Column, Uniform
from autobatch.vm import speculating

HERE = Span(__file__, 1, 0, 1, 1)


def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def test_a_roofline() -> None:
    machine = Machine(launch=1e-6, bandwidth=1e9, rate=4e9)
    assert machine.seconds(Work()) == 0.0
    assert machine.seconds(Work(2, 1000, 1000)) == pytest.approx(3e-6)
    assert machine.seconds(Work(1, 1000, 40_000)) == pytest.approx(11e-6)
    assert Work(1, 2, 3) + Work(10, 20, 30) == Work(11, 22, 33)


def work(name: str, *given: Cell, made: Cell) -> Work:
    names = [f"x{place}" for place in range(len(given))]
    env = dict(zip(names, given, strict=True)) | {"out": made}
    return work_of(Op(name, ("out",), tuple(names), None, HERE), env)


def column(*shape: int) -> Cell:
    return Cell(Column(torch.zeros(*shape)))


def test_work_goes_by_shapes() -> None:
    one, other, made = column(8, 3), Cell(Uniform(2.0)), column(8, 3)
    assert work("mul", one, other, made=made) == Work(1, 2 * 96, 24)
    weights = Cell(Uniform(torch.zeros(5, 3)))
    product = column(8, 5)
    assert work("matmul", column(8, 3), weights, made=product) == Work(1, 96 + 60 + 160, 40 * 2 * 3)
    assert work("add", other, other, made=Cell(Uniform(4.0))) == Work()
    assert work("copy", one, made=one) == Work()


def test_what_decides_is_the_same_on_any_machine() -> None:
    assert if_conversion.MOST == round(PARTING / LAUNCH) == 12
    assert speculating.SPLIT == round(6 * PARTING / ELEMENT) == 144_000


def test_counts_do_not_depend_on_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    run = autobatch.function(collatz)
    for _ in range(8):  # until all is recorded
        run.batch(torch.arange(1, 30))
    for machine in (Machine(1e-9, 1e15, 1e15), Machine(1.0, 1.0, 1.0)):
        monkeypatch.setattr(stopwatch, "machine", lambda machine=machine: machine)
        report = autobatch.explain(collatz, torch.arange(1, 30))
        with autobatch.counts() as counts:
            run.batch(torch.arange(1, 30))
        found.append((report.counts.block_executions, counts.block_executions))
    assert found[0] == found[1]


def test_this_machine_is_measured_once() -> None:
    machine = calibration.machine()
    assert machine is calibration.machine()
    assert min(machine.launch, machine.bandwidth, machine.rate) > 0


def ticks(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    clock = count()
    monkeypatch.setattr(stopwatch, "perf_counter", lambda: float(next(clock)))
    return clock


def test_looking_on_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ticks(monkeypatch)
    watch = Stopwatch()
    watch.start((1, 0))
    with watch.paused():
        for _ in range(100):
            next(clock)
    watch.stop()
    watch.start((1, 2))
    watch.stop()
    with watch.paused():
        next(clock)
    watch.stop()
    assert watch.seconds == {(1, 0): 2.0, (1, 2): 1.0}


def test_measured_and_estimated_stand_side_by_side() -> None:
    runs = BlockRuns(3, 2, 1, 4, 5, seconds=90e-6, roofline=24e-6)
    assert runs.cost == "a run of block 3 took 45.0 µs untraced, its kernels take 12.0 µs or more"
    report = autobatch.explain(collatz, torch.arange(1, 10))
    told = [block for line in report.functions[0].lines for block in line.blocks]
    assert all(block.seconds > 0 for block in told)
    looping = [block for block in told if block.roofline > 0]
    assert looping and all(block.cost in str(report) for block in told)


# Why a branch is converted, or is not.


def heavy(x):
    y = x * 2
    if x > 1:
        for _ in range(2):
            y = y * 3
        y = y.exp()
    elif x > 0.5:
        y = y + x + x + x + x + x + x + x + x + x + x + x + x + x
    return y * 2


def unsafe(x, n):
    y = x * n
    if n > 1:
        y = x // n
    return y * 2


def quiet(x):
    y = x * 2
    if x > 1:
        with torch.no_grad():
            y = y * 3
    return y * 2


def calling(x):
    y = x * 2
    if x > 1:
        y = collatz(x)
    return y * 2


TOLD = [
    (collatz, "both ways are computed: 5 operations more, about 5 µs, while parting threads"),
    (heavy, "a way takes 13 operations, about 13 µs, and parting threads costs 12 µs"),
    (unsafe, "the operation floordiv may fail, or have an effect, for threads not there"),
    (quiet, "a way is within a try or with statement"),
    (calling, "a way calls a function or raises"),
]


@pytest.mark.parametrize("func, said", TOLD)
def test_reasons(func, said) -> None:
    program = autobatch.lower(func)
    told = reasons(program.functions[program.entry])
    assert any(said in why for why in told.values()), told


def test_ways_out_of_loops_have_no_reasons() -> None:
    def loop(x):
        while x < 1:
            x = x.matmul(x)
        return x * 2

    program = autobatch.lower(loop)
    assert reasons(program.functions[program.entry]) == {}


def test_explain_tells_them_on_the_line_of_the_branch() -> None:
    report = autobatch.explain(collatz, torch.arange(1, 10))
    (line,) = [line for line in report.functions[0].lines if line.branches]
    assert "n // 2 if" in line.text and line.branches[0] in str(report)
