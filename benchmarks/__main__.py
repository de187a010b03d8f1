"""``python -m benchmarks [--workload …] [--system …] [--batch …] [--seconds S] [--output DIR]``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks import report
from benchmarks.harness import DEFAULT_SYSTEMS, SYSTEMS, Measurement, measure
from benchmarks.workloads import WORKLOADS

BATCHES = (1, 32, 1024, 32_768)


def parser() -> argparse.ArgumentParser:
    names = [workload.name for workload in WORKLOADS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--workload", nargs="+", choices=names, default=names)
    parser.add_argument("--system", nargs="+", choices=list(SYSTEMS), default=DEFAULT_SYSTEMS)
    parser.add_argument("--batch", nargs="+", type=int, default=BATCHES)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="time for each workload and batch size"
    )
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    torch.set_num_threads(1)
    chosen = [workload for workload in WORKLOADS if workload.name in options.workload]
    found: list[Measurement] = []
    print(report.HEAD, flush=True)
    for cell in measure(chosen, options.batch, options.system, options.seconds):
        found += cell
        print("\n".join(report.row(m) for m in cell), flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    report.write_json(options.output / "benchmarks.json", found)
    if report.can_plot():
        report.write_plot(options.output / "benchmarks.png", found)
    else:
        print("No plot: matplotlib is not installed (pip install 'autobatch[bench]').")
    print(f"Written to {options.output}")


if __name__ == "__main__":
    main()
