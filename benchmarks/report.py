"""What comes out of the measurements: a table on the terminal, a JSON file, a plot."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import Measurement

HEAD = f"{'workload':<12} {'batch':>6} {'system':<19} {'median':>11} {'/compact':>9} {'/loop':>9}"


def row(m: Measurement) -> str:
    """One line of the table."""
    start = f"{m.workload:<12} {m.batch:>6} {m.system:<19} "
    if m.failure:
        return start + m.failure.strip().split("\n")[0]
    return start + f"{_duration(m.median):>11} {_ratio(m.to_compacting):>9} {_ratio(m.to_loop):>9}"


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds < 1 else f"{seconds:.3f} s"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.4f}"


def write_json(path: Path, measurements: Sequence[Measurement]) -> None:
    """The measurements, and the versions that they hold for; a failed one has null times."""
    found = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "measurements": [_plain(m) for m in measurements],
    }
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _plain(m: Measurement) -> dict[str, Any]:
    values = asdict(m).items()
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in values}


def can_plot() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def write_plot(path: Path, measurements: Sequence[Measurement]) -> None:
    """Milliseconds per batch against batch size, one panel a workload, one line a system."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    names = list(dict.fromkeys(m.workload for m in measurements))
    figure, axes = pyplot.subplots(
        1, len(names), figsize=(4 * len(names), 3.6), squeeze=False, layout="constrained"
    )
    for axis, name in zip(axes[0], names, strict=True):
        _panel(axis, name, [m for m in measurements if m.workload == name and not m.failure])
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=max(1, len(labels)))
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _panel(axis: Any, name: str, measurements: Sequence[Measurement]) -> None:
    for system in dict.fromkeys(m.system for m in measurements):
        own = [m for m in measurements if m.system == system]
        axis.plot([m.batch for m in own], [m.median * 1e3 for m in own], marker="o", label=system)
    axis.set(title=name, xlabel="threads", xscale="log", yscale="log")
    axis.set_ylabel("milliseconds a batch")
    axis.grid(alpha=0.3)
