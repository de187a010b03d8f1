"""``python -m benchmarks [--workload …] [--system …] [--batch …] [--pass …] [--output DIR]``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks import report
from benchmarks.harness import LONG, PASSES, Measurement, measure
from benchmarks.workloads import WORKLOADS

BATCHES = (1, 16, 64, 256, 1024, 8192)


def parser() -> argparse.ArgumentParser:
    names = [workload.name for workload in WORKLOADS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--workload", nargs="+", choices=names, default=names)
    parser.add_argument("--system", nargs="+", default=(), help="those of the table's names")
    parser.add_argument("--batch", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--pass", dest="passes", nargs="+", choices=PASSES, default=PASSES)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="time for each workload, batch size and pass"
    )
    parser.add_argument(
        "--longest", type=float, default=LONG, help="seconds that a system may take for a run"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    torch.set_num_threads(1)
    chosen = [workload for workload in WORKLOADS if workload.name in options.workload]
    found: list[Measurement] = []
    print(report.HEAD, flush=True)
    what = chosen, options.batch, options.passes, options.system
    options.output.mkdir(parents=True, exist_ok=True)
    where = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    for cell in measure(*what, options.seconds, options.device, options.longest):
        found += cell
        print("\n".join(report.row(m) for m in cell), flush=True)
        report.write_json(options.output / "benchmarks.json", found, where)
    if report.can_plot():
        for path in report.write_plots(options.output, found):
            print(f"Drew {path}")
    else:
        print("No plots: matplotlib is not installed (pip install 'autobatch[bench]').")
    print(f"Written to {options.output}")


if __name__ == "__main__":
    main()
