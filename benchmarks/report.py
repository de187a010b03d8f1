"""What comes out of the measurements: a table on the terminal, a JSON file, plots."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import Measurement

WIDTH = 8
"""Of a figure, in inches, at least."""
LETTER, HANDLE = 0.075, 0.6
"""The width of a small letter and of what stands before a label in a legend, in inches."""
HEAD = (
    f"{'workload':<13} {'batch':>5} {'pass':<9} {'system':<31} {'median':>10} {'/by hand':>8} "
    f"{'/loop':>7} {'launches':>8} {'width':>7} {'peak':>9} {'analysis':>8}"
)


def row(m: Measurement) -> str:
    """One line of the table."""
    start = f"{m.workload:<13} {m.batch:>5} {m.kind:<9} {m.system:<31} "
    if m.failure:
        return start + m.failure.strip().split("\n")[0]
    return start + (
        f"{_duration(m.median):>10} {_ratio(m.to_hand):>8} {_ratio(m.to_loop):>7} "
        f"{'' if m.launches is None else m.launches:>8} {_ratio(m.width):>7} "
        f"{_size(m.peak_bytes):>9} {'' if m.analysis is None else f'{m.analysis:.0%}':>8}"
    )


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds < 1 else f"{seconds:.3f} s"


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:.2f}" if 0.1 <= ratio < 100 else f"{ratio:.3g}"


def _size(size: int | None) -> str:
    return "" if size is None else f"{size / 2**20:.1f} MiB"


def write_json(path: Path, measurements: Sequence[Measurement], device: str = "cpu") -> None:
    """The measurements, and the machine and versions that they hold for; NaN is null."""
    found = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "device": device,
        "threads": torch.get_num_threads(),
        "measurements": [_plain(m) for m in measurements],
    }
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _plain(m: Measurement) -> dict[str, Any]:
    values = asdict(m).items()
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in values}


def can_plot() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def write_plots(folder: Path, measurements: Sequence[Measurement]) -> Iterator[Path]:
    """A figure per workload, one panel a pass, one line a system."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    for name in dict.fromkeys(m.workload for m in measurements):
        path = folder / f"{name}.png"
        _plot(path, [m for m in measurements if m.workload == name and not m.failure])
        yield path


def _plot(path: Path, measurements: Sequence[Measurement]) -> None:
    figure = drawn(path.stem, measurements)
    figure.savefig(path, dpi=90)
    importlib.import_module("matplotlib.pyplot").close(figure)


def drawn(title: str, measurements: Sequence[Measurement]) -> Any:
    """The figure, with its legend in as many columns as its width has room for."""
    pyplot = importlib.import_module("matplotlib.pyplot")
    kinds = list(dict.fromkeys(m.kind for m in measurements)) or ["nothing"]
    width, drawn_as = max(WIDTH, 5 * len(kinds)), styles(measurements)
    figure, axes = pyplot.subplots(
        1, len(kinds), figsize=(width, 5), squeeze=False, layout="constrained"
    )
    for axis, kind in zip(axes[0], kinds, strict=True):
        _panel(axis, kind, [m for m in measurements if m.kind == kind], drawn_as)
    handles, labels = axes[0][0].get_legend_handles_labels()
    widest = max((len(label) for label in labels), default=0) * LETTER + HANDLE
    columns = max(1, int(figure.get_figwidth() / widest))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize="small")
    figure.suptitle(title)
    return figure


def styles(measurements: Sequence[Measurement]) -> dict[str, dict[str, Any]]:
    """How each system is drawn: alike in all panels of a figure."""
    found: dict[str, dict[str, Any]] = {}
    others = 0
    for system in dict.fromkeys(m.system for m in measurements):
        if system.startswith("autobatch"):
            dashes = "-" if system == "autobatch" else "--"
            found[system] = {"color": "black", "linewidth": 2.5, "linestyle": dashes, "marker": "o"}
        else:
            found[system] = {"color": f"C{others % 10}", "marker": "os^"[others // 10 % 3]}
            others += 1
    return found


def _panel(
    axis: Any, kind: str, measurements: Sequence[Measurement], drawn_as: Mapping[str, Any]
) -> None:
    for system in dict.fromkeys(m.system for m in measurements):
        own = [m for m in measurements if m.system == system]
        throughput = [m.batch / m.median for m in own]
        axis.plot([m.batch for m in own], throughput, label=system, **drawn_as[system])
    axis.set(title=kind, xlabel="batch", xscale="log", yscale="log")
    axis.set_ylabel("examples a second")
    axis.grid(alpha=0.3)
