"""The benchmarks: every system gives what the plain loop gives; counts are exact; reports whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from autobatch.passes import PIPELINE
from benchmarks import __main__ as command
from benchmarks import (
    agents,
    chains,
    compare,
    derivatives,
    draws,
    extras,
    handwritten,
    harness,
    memory,
    passes,
    report,
)
from benchmarks.counting import Counting
from benchmarks.dynamic_batching import NATIVE_ANALYSIS
from benchmarks.handwritten import Loop
from benchmarks.harness import Cell, Check, Measurement
from benchmarks.systems import COMPILED, DYNAMIC, LOOP, NATIVE, System, plain_loop, systems_of
from benchmarks.workload import Workload
from benchmarks.workloads import WORKLOADS, treelstm
from programs.gcd import example as gcd_example
from programs.stdlib_trees import library_files

pytest.importorskip("greenlet")
WAYS = (handwritten.masked, handwritten.compacting, handwritten.compacting_at_half)
# The other TreeLSTMs are this one with other sizes.
DIFFERENT = [w for w in WORKLOADS if w.name not in ("treelstm_256", "syntax_trees")]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("workload", DIFFERENT, ids=lambda workload: workload.name)
def test_every_system_matches_the_plain_loop(workload: Workload) -> None:
    """In training, where there is any: results and gradients."""
    problem = workload.make(2)
    kind = "training" if problem.parameters else "inference"
    check = Check(Cell(workload.name, 2, kind), problem, workload.tolerance)
    with torch.set_grad_enabled(kind == "training"):
        systems = systems_of(workload.name, problem, ())
        dynamic = set(DYNAMIC) if problem.delayable else set()
        assert set(DYNAMIC) & set(systems) == dynamic
        assert set(problem.by_hand) | {"autobatch", LOOP} <= set(systems)
        found = {name: check.failure(name, system) for name, system in systems.items()}
    assert not {name for name, failure in found.items() if failure}, found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("workload", DIFFERENT, ids=lambda workload: workload.name)
@torch.no_grad()
def test_by_hand_matches_the_plain_loop_for_one_example_and_several(workload: Workload) -> None:
    for batch in (1, 9):
        problem = workload.make(batch)
        expected = plain_loop(problem, range(batch))
        for run in problem.by_hand.values():
            tolerance = workload.tolerance
            torch.testing.assert_close(run(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["numba", "jax"])
@torch.no_grad()
def test_what_else_is_installed_matches_the_plain_loop(name: str) -> None:
    if name not in extras.INSTALLED:
        pytest.skip(f"{name} is not installed")
    for workload in WORKLOADS:
        problem = workload.make(9)
        if name in extras.runs(workload.name, problem):
            check = Check(Cell(workload.name, 9, "inference"), problem, workload.tolerance)
            assert not check.failure(name, systems_of(workload.name, problem, [name])[name])


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_rows_that_never_run_keep_their_start(way: Callable[[Loop], Tensor]) -> None:
    start = torch.tensor([3, 0, 5, 0])
    loop = Loop((start,), 1, lambda s, t: s[0] > 0, lambda s, t, rows: (s[0] - 1,), counts=True)
    assert way(loop).tolist() == [3, 0, 5, 0]


@pytest.mark.slow
def test_chains_count_their_gradients(capsys: pytest.CaptureFixture[str]) -> None:
    """Both take as many as the longest of each transition; fullness follows from the counts."""
    chains.main(["--chains", "3", "--seconds", "0"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    names = ["system", "autobatch", COMPILED, "synchronised", LOOP, chains.GRADIENTS_LAST]
    assert [line[1] for line in lines][: len(names)] == names
    _, together, alone, by_hand, loop, last = lines[: len(names)]
    assert together[3] == by_hand[3] and int(last[3]) < int(together[3])
    single, batches = int(loop[3]), int(together[3])
    assert batches < single <= 3 * batches and int(alone[3]) == single
    assert together[4] == by_hand[4] == f"{single / batches / 3:.0%}"


def test_trees_have_the_leaves_that_were_asked_for() -> None:
    problem = treelstm.random_trees(8)(20)

    def leaves(tree: treelstm.Tree) -> int:
        return leaves(tree.left) + leaves(tree.right) if tree.left and tree.right else 1

    counts = [leaves(tree) for tree in problem.inputs[0]]
    assert min(counts) >= 10 and max(counts) <= 40 and len(set(counts)) > 5


@torch.no_grad()
def test_syntax_trees_are_functions_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(treelstm, "library_files", lambda: library_files()[:1])
    monkeypatch.setattr(treelstm, "library_trees", treelstm.library_trees.__wrapped__)
    problem = treelstm.syntax_trees(2)
    expected = plain_loop(problem, range(2))
    torch.testing.assert_close(problem.by_hand["level-by-level"](), expected)


# Measuring.


def test_systems_take_turns() -> None:
    order: list[str] = []
    runs = {name: lambda name=name: order.append(name) for name in "abc"}
    times = harness.interleave(runs, 0.0)
    assert "".join(order) == "abcbcacab"
    assert all(len(own) == 3 for own in times.values())


def test_launches_reads_and_the_peak_are_counted() -> None:
    held = torch.ones(100)
    with Counting() as found:
        x = held + 1  # 400 bytes
        y = x[:50] * 2  # 200 more; the slice is no launch
        del x
        z = held.view(10, 10).t() @ held.view(10, 10)  # 400 more, 400 less
        assert y.sum().item() == 200
    assert (found.launches, found.host_reads, found.peak_bytes) == (4, 1, 604)
    assert z.shape == (10, 10)


def test_launches_of_backward_are_counted() -> None:
    x = torch.ones(3, requires_grad=True)
    with Counting() as found:
        x.tanh().sum().backward()
    assert found.launches == 4  # tanh, sum, ones to start with, tanh's gradient


def test_machine_code_is_counted_as_it_runs() -> None:
    """The mode that counts kernels would have it run block by block."""
    problem = next(w for w in WORKLOADS if w.name == "collatz").make(64)
    run = systems_of("collatz", problem, (COMPILED,))[COMPILED].run
    run()
    found = harness.counted(run, compiles=True)
    assert found == harness.Counts(launches=1, peak_bytes=None)


def test_native_prices_replace_building_and_analysis() -> None:
    problem = WORKLOADS[0].make(4)
    system = systems_of("collatz", problem, DYNAMIC[:1])[DYNAMIC[0]]
    system.run()
    assert system.dynamic is not None
    phases = system.dynamic.phases
    own = phases.building + phases.analysis
    # 1, 2, 3 and 4 take 0, 1, 7 and 2 steps. A step is whether to go on, the remainder and what
    # it is, and the new number: halved, or tripled and then one more, which is one node more.
    steps, tripled = 0 + 1 + 7 + 2, 2
    assert phases.nodes == 4 * steps + tripled + 4
    assert system.native(own + 1.0) == pytest.approx(1.0 + phases.nodes * NATIVE_ANALYSIS)


def test_a_failing_system_is_reported_and_the_others_run(tmp_path: Path) -> None:
    problem = WORKLOADS[0].make(4)
    wrong = {"wrong": System(lambda: torch.zeros(4, dtype=torch.int64))}
    systems = systems_of("collatz", problem, (LOOP, "compacting", *DYNAMIC[:1])) | wrong
    cell = Cell("collatz", 4, "inference")
    found = {m.system: m for m in harness.measure_cell(cell, problem, 0.0, systems, 0.0)}
    assert [name for name, m in found.items() if m.failure] == ["wrong"]
    assert found[LOOP].to_loop == found[LOOP].width == 1.0
    assert found["compacting"].to_hand == 1.0
    assert found[DYNAMIC[0] + NATIVE].launches == found[DYNAMIC[0]].launches
    report.write_json(tmp_path / "found.json", list(found.values()))
    read = json.loads((tmp_path / "found.json").read_text())["measurements"]
    assert [m["system"] for m in read] == list(found)
    assert read[-1]["median"] is None
    assert all("collatz" in report.row(m) for m in found.values())


def test_a_system_that_would_take_too_long_is_left_out() -> None:
    last = [
        Measurement("fib", 64, "inference", "slow", median=2.0),
        Measurement("fib", 64, "inference", "quick", median=0.1),
        Measurement("fib", 64, "inference", LOOP, median=9.0),
        Measurement("fib", 16, "training", "slow", median=9.0),
    ]
    known = {(each.kind, each.system): each for each in last}
    found = harness.too_long(known, Cell("fib", 256, "inference"), 5.0)
    assert {name: each.failure for name, each in found.items()} == {
        "slow": "about 8 s a run, by the 2.0 at 64"
    }
    assert not harness.too_long(known, Cell("fib", 256, "inference"), 10.0)


def test_launches_of_the_loop_are_scaled_from_its_sample() -> None:
    (linear,) = (workload for workload in WORKLOADS if workload.name == "linear")
    problem = linear.make(64)
    systems = systems_of("linear", problem, (LOOP, "one-matmul"))
    cell = Cell("linear", 64, "inference")
    found = {m.system: m for m in harness.measure_cell(cell, problem, 1e-4, systems, 0.0)}
    # A product an example, and one stack for the sample of 32.
    assert (found[LOOP].launches, found["one-matmul"].launches) == (66, 1)
    assert found["one-matmul"].width == 66


def test_the_command_writes_a_plot_for_each_workload(tmp_path: Path) -> None:
    arguments = "--workload linear --batch 1 2 --pass inference --system loop one-matmul"
    command.main([*arguments.split(), "--seconds", "0", "--output", str(tmp_path)])
    found = json.loads((tmp_path / "benchmarks.json").read_text())["measurements"]
    assert [(m["batch"], m["system"]) for m in found] == [
        (batch, system) for batch in (1, 2) for system in ("loop", "one-matmul")
    ]
    assert (tmp_path / "linear.png").is_file() == report.can_plot()


@pytest.mark.parametrize("kinds", [("inference",), ("inference", "training")], ids=len)
def test_a_figure_has_room_for_its_legend(kinds: tuple[str, ...]) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    found = [
        harness.Measurement("treelstm", 1, kind, f"{n} a system with a name like so", 1.0)
        for kind in kinds
        for n in range(9)
    ]
    figure = report.drawn("treelstm", found)
    figure.canvas.draw()
    (legend,) = figure.legends
    box, room = legend.get_window_extent(), figure.bbox
    assert len(legend.get_texts()) == 9
    assert room.x0 <= box.x0 and box.x1 <= room.x1 and room.y0 <= box.y0


# python -m benchmarks.compare.

PROGRAM = """
import torch

W = torch.linspace(-1, 1, 9).reshape(3, 3)

def walk(x, bound):
    steps = 0
    while x.norm() < bound and steps < 5:
        x = W @ x + x
        steps += 1
    return {"x": x, "steps": steps}

def write(x, bound):
    x[0] = bound
    return x

def text(x, bound):
    return "large" if x.sum() > bound else "small"

def scaled(x, bound):
    return x * 2 if bound > 2 else torch.ones(3)
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "walks.py").write_text(PROGRAM)
    torch.save({"x": torch.eye(3), "bound": torch.tensor([2.0, 3.0, 0.5])}, tmp_path / "in.pt")
    return tmp_path


def compared(data: Path, name: str, *options: str) -> int:
    target = f"{data / 'walks.py'}:{name}"
    return compare.main([target, "--input", str(data / "in.pt"), "--seconds", "0", *options])


def test_compare_runs_a_program_of_the_users(data: Path, capsys: pytest.CaptureFixture) -> None:
    assert compared(data, "walk", "--output", str(data / "out.json")) == 0
    found = json.loads((data / "out.json").read_text())["measurements"]
    names = [LOOP, *DYNAMIC, "autobatch", *(name + NATIVE for name in DYNAMIC)]
    assert [(m["kind"], m["system"]) for m in found] == [
        (kind, name) for kind in harness.PASSES for name in names
    ]
    assert not any(m["failure"] for m in found)
    width = {m["system"]: m["width"] for m in found if m["kind"] == "inference"}
    assert width[LOOP] == 1 and all(1 < width[name] <= 3 for name in DYNAMIC)
    assert width["autobatch"] > 1, "more than there are threads where it needs fewer operations"
    assert "flushes" in capsys.readouterr().out


def test_compare_trains_where_any_example_is_differentiable(data: Path) -> None:
    """The first one may give a constant, as a loop of no rounds does."""
    assert compared(data, "scaled", "--output", str(data / "out.json")) == 0
    found = json.loads((data / "out.json").read_text())["measurements"]
    assert {m["kind"] for m in found} == set(harness.PASSES)
    assert not any(m["failure"] for m in found)


def test_compare_says_what_dynamic_batching_cannot(data: Path) -> None:
    assert compared(data, "write", "--output", str(data / "out.json")) == 0
    found = json.loads((data / "out.json").read_text())["measurements"]
    failed = {m["system"]: m["failure"] for m in found if m["failure"]}
    assert set(failed) == set(DYNAMIC)
    assert all("in place" in failure for failure in failed.values())


@pytest.mark.parametrize(("name", "reason"), [("text", "compared"), ("missing", "no missing")])
def test_compare_refuses_in_a_line(
    name: str, reason: str, data: Path, capsys: pytest.CaptureFixture
) -> None:
    assert compared(data, name) == 2
    error = capsys.readouterr().err
    assert reason in error and error.count("\n") == 1


def test_the_table_of_passes():
    """All but the time are the same on any machine; each pass has a row of its own."""
    example = gcd_example(64)
    name, ops, blocks, _, executions, reads = passes.summary("gcd", example)
    assert (name, ops, blocks) == ("gcd", "6 → 8", "5 → 3")
    assert (executions, reads) == ("36 → 18 → 18", "17 → 17 → 17")
    rows = list(passes.by_stage("gcd", example))
    assert [row[1] for row in rows] == ["as lowered", *(each.__name__ for each in PIPELINE)]
    assert rows[0][2:4] == ("6", "5") and rows[-1][2:4] == ("8", "3")


@pytest.mark.slow
@pytest.mark.parametrize(("loop", "less"), [("residual", 4), ("lstm", 2)])
def test_memory_of_a_loop(loop: str, less: int, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--steps", "256", "--rows", "4", "--width", "8", "--seconds", "0"]
    memory.main(["--loop", loop, *sizes])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [line[0] for line in lines] == ["256"] * 3
    hand, kept, again = (float(line[-4]) for line in lines)
    assert again < kept / less and kept < 1.5 * hand


def test_loops_for_memory_are_those_by_hand() -> None:
    for make in memory.LOOPS.values():
        hand, *others = (run() for run in make(5, 3, 4, "cpu").values())
        for found in others:
            for left, right in zip(found, hand, strict=True):
                torch.testing.assert_close(left, right)


def test_agents_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    agents.main(["--agents", "3", "--episodes", "1", "--seconds", "0"])
    header, line = capsys.readouterr().out.splitlines()
    assert header.split()[0] == "agents" and line.split()[0] == "3"
    assert all(float(each.replace(",", "")) > 0 for each in line.split())
    ages = {name: run() for name, run in agents.systems(3, 2).items()}
    assert all(len(age) == 3 and (age >= 2).all() for age in ages.values())


def test_draws_are_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draws.host_code, "CODE", draws.host_code.CODE)
    draws.main(["--threads", "3", "--seconds", "0", "--numpy"])
    _, line = capsys.readouterr().out.splitlines()
    assert line.split()[0] == "3" and all(float(each) > 0 for each in line.split())


def test_derivatives_agree(capsys: pytest.CaptureFixture[str]) -> None:
    derivatives.main(["--batch", "2", "--outputs", "3", "--pixels", "32", "--seconds", "0"])
    lines = capsys.readouterr().out.splitlines()
    names = [line[:10].strip() for line in lines[1:]]
    assert names == ["convnet", "lstm", "J of lstm", "J of vgg16"]
