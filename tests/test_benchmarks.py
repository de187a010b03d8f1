"""The benchmarks: hand-written loops give what the plain loop gives; the report is complete."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks import handwritten, harness, report
from benchmarks.handwritten import Loop
from benchmarks.workload import Workload
from benchmarks.workloads import WORKLOADS

WAYS = (handwritten.masked, handwritten.compacting, handwritten.compacting_at_half)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
@pytest.mark.parametrize("batch", [1, 9])
@torch.no_grad()
def test_a_loop_by_hand_matches_the_plain_loop(
    workload: Workload, way: Callable[[Loop], Tensor], batch: int
) -> None:
    problem = workload.make(batch)
    expected = harness.plain_loop(problem, range(batch))
    actual = way(problem.loop())
    torch.testing.assert_close(actual, expected, rtol=workload.tolerance, atol=workload.tolerance)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_rows_that_never_run_keep_their_start(way: Callable[[Loop], Tensor]) -> None:
    start = torch.tensor([3, 0, 5, 0])
    loop = Loop((start,), 1, lambda s, t: s[0] > 0, lambda s, t, rows: (s[0] - 1,), counts=True)
    assert way(loop).tolist() == [3, 0, 5, 0]


def test_systems_take_turns() -> None:
    order: list[str] = []
    runs = {name: lambda name=name: order.append(name) for name in "abc"}
    times = harness.interleave(runs, 0.0)
    assert "".join(order) == "abcbcacab"
    assert all(len(own) == 3 for own in times.values())


def test_a_failing_system_is_reported_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrong = {"wrong": lambda p: lambda: torch.zeros(4, dtype=torch.int64)}
    monkeypatch.setattr(harness, "SYSTEMS", {**harness.SYSTEMS, **wrong})
    found = harness.measure_cell(WORKLOADS[0], 4, ("loop", "wrong", "compacting"), 0.0)
    assert [bool(m.failure) for m in found] == [False, True, False]
    assert found[0].to_loop == 1.0 and found[2].to_compacting == 1.0
    report.write_json(tmp_path / "found.json", found)
    read = json.loads((tmp_path / "found.json").read_text())["measurements"]
    assert [m["system"] for m in read] == ["loop", "wrong", "compacting"]
    assert read[1]["median"] is None
    assert all("collatz" in report.row(m) for m in found)
