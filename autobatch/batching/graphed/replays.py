"""``Graphed``: a recording that is replayed as it stands, and by captured launches where it can be.

A capture is for a width and for the numbers that the recording reads; the first replays of each go
by the recording, and the first result of a capture is held to the recording's on the same rows, so
the caller gets the recording's until then. Where nothing can be captured, or a capture gives
something else, the recording goes on for good, and ``why`` says why. How many captures there are is
bounded: widths are powers of two, numbers that keep changing are a reason, and of what all threads
share each tensor is found to be another one once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.closeness import are_close
from autobatch.batching.graphed.buffers import Layout, Refused, width_of
from autobatch.batching.graphed.captured import Captured, Form
from autobatch.batching.graphed.capturing import Capture
from autobatch.batching.graphed.results import results_of
from autobatch.batching.trace import Input, Trace
from autobatch.batching.trace.graph import Count, Graph, Symbol
from autobatch.compat import any_autocast, within_duals, within_level
from autobatch.source import Span

LOG = logging.getLogger("autobatch")
MOST_NUMBERS = 8
"""How many numbers, or sets of them, a recording is captured for."""
MOST_KEYS = 256
"""How many widths, numbers and sizes of tables together come before a recording rests."""


@dataclass(slots=True, eq=False, repr=False, weakref_slot=True)
class Graphed:
    """``kinds`` are those of the inputs; a width is captured when it comes the ``after + 1``-th
    time, if that spares ``least`` launches a replay; ``launched`` is how many the last replay took,
    ``span`` where the stretch begins.
    """

    trace: Trace
    kinds: Sequence[str]
    capture: Capture
    after: int
    least: int = 1
    span: Span | None = None
    why: str = ""
    launched: int = 0
    numbers: tuple[int, ...] = ()
    tables: tuple[int, ...] = ()
    moving: set[int] = field(default_factory=set)
    met: Counter[Hashable] = field(default_factory=Counter)
    captured: dict[Hashable, Captured] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbers = tuple(sorted(numbers_read(self.trace.graph)))
        self.tables = tuple(i for i, kind in enumerate(self.kinds) if kind == "table")

    def rest(self, why: str) -> None:
        """Stay with the recording, if there is a reason to."""
        if why:
            self.why = why
            self.captured.clear()
            self.met.clear()
            LOG.info("%s: not captured: %s", self.span, why)

    @property
    def told(self) -> str:
        """What has become of it, for people."""
        if self.why:
            return f"not captured: {self.why}"
        if not self.captured:
            return "not captured: it has not run often enough"
        widths = ", ".join(map(str, self.widths))
        return f"captured: {self.trace.kernels} kernels in 1 launch, for widths {widths}"

    @property
    def widths(self) -> list[int]:
        """The widths that it is captured at."""
        return sorted({each.width for each in self.captured.values()})

    @property
    def kernels(self) -> int:
        """How many launches the last replay took: copies in and out count."""
        return self.launched

    @property
    def price(self) -> int:
        """How many kernels of one operation it costs as much as, where rows are many."""
        return self.trace.kernels

    def __call__(self, k: int, *values: Any) -> Sequence[Tensor]:
        if self.why or not k or within_duals():
            return self.recorded(k, values)
        key = self.key(k, values)
        found = self.captured.get(key)
        if found is None or not found.is_still(values):
            return self.uncaptured(key, k, values)
        with self.capture.turn(found.ramp.device):
            outs = found.run(k, values)
        self.launched = found.launched
        return outs

    def key(self, k: int, values: Sequence[Any]) -> Hashable:
        """What a capture is for, beside where tensors lie."""
        numbers = tuple((type(values[i]), number_key(values[i])) for i in self.numbers)
        return (width_of(k), numbers, tuple(len(values[i]) for i in self.tables))

    def recorded(self, k: int, values: Sequence[Any]) -> Sequence[Tensor]:
        self.launched = self.trace.kernels
        return self.trace.replay(k, *values)

    def uncaptured(self, key: Hashable, k: int, values: Sequence[Any]) -> Sequence[Tensor]:
        """A replay of the recording, and the capture once there have been enough."""
        outs = self.recorded(k, values)
        self.met[key] += 1
        if len(self.met) > MOST_KEYS:
            self.rest("numbers or sizes that all threads share are others each time")
        elif self.met[key] > self.after:
            with self.capture.turn(device_of(values)):
                self.add(key, k, values, outs)
        return outs

    def add(self, key: Any, k: int, values: Sequence[Any], outs: Sequence[Tensor]) -> None:
        """Capture for a key, and hold what comes of it to what the recording has given."""
        old = self.captured.get(key)
        if old is not None:  # what is another tensor once may be again: copy it from now on
            self.moving |= old.moved(values)
            self.captured.clear()
        try:
            if len({numbers for _, numbers, _ in (*self.captured, key)}) > MOST_NUMBERS:
                raise Refused("numbers that all threads share are others each time")
            form = formed(self.trace, self.kinds, self.moving, values)
            made = Captured.of(form, device_of(values), self.capture, k, values)
            if self.trace.kernels - made.cost < self.least:
                raise Refused(f"{self.trace.kernels} kernels are too few to spare any launches")
            if not all(map(alike, outs, made.run(k, values))):
                raise Refused("its launches gave another result than the recording")
            self.captured[key] = made
        except Refused as refused:
            self.rest(str(refused))
        except Exception as error:  # of the device, or of an operator while it is captured
            self.rest(f"{type(error).__name__}: {error}".splitlines()[0])


def number_key(number: int | float) -> Hashable:
    """A number, told apart from those that only equal it."""
    return number.hex() if isinstance(number, float) else number


def device_of(values: Sequence[Any]) -> torch.device:
    return next(value.device for value in values if isinstance(value, Tensor))


def alike(out: Tensor, other: Tensor) -> bool:
    """Whether a capture gave the same, laid out alike."""
    strides = [
        each.stride(dim)
        for each in (out, other)
        for dim in range(each.dim())
        if each.shape[dim] > 1
    ]
    half = len(strides) // 2
    return strides[:half] == strides[half:] and are_close(out, other)


def formed(trace: Trace, kinds: Sequence[str], moving: set[int], values: Sequence[Any]) -> Form:
    """How a recording lies in memory; ``Refused`` where a wider one would give something else."""
    results = results_of(
        trace, {i: values[i] for i, kind in enumerate(kinds) if kind in ("int", "float")}
    )
    graph = results.graph
    reads = frozenset(value for node in graph.nodes for value in node.reads())
    columns = {
        place: Layout.of(graph.metas.get(place), "a column")
        for place, kind in enumerate(kinds)
        if kind == "column" and place in reads
    }
    if any(0 in layout.stride for layout in columns.values()):
        raise Refused("a column repeats one row")
    if mixes_threads(graph, columns):
        raise Refused("an operation takes what all threads have together")
    outs = [Layout.of(graph.metas.get(out), "a result") for out in graph.outputs]
    return Form(columns, reads, frozenset(moving), results, outs)


def mixes_threads(graph: Graph, columns: Any) -> bool:
    """Whether something is made of columns that has no rows: more rows might change it."""
    rowed = set(columns)
    for node in graph.nodes:
        if rowed.isdisjoint(node.reads()):
            continue
        for out in (*node.outs, *node.writes()):
            if out is None:
                continue
            rowed.add(out)
            if not any(type(size) is Count for size in graph.metas[out].shape):
                return True
    return False


def numbers_read(graph: Graph) -> set[int]:
    """The places of the inputs that are numbers and that operations read."""
    waiting: list[Any] = [part for node in graph.nodes for part in (node.args, node.kwargs)]
    found: set[int] = set()
    while waiting:
        part = waiting.pop()
        if isinstance(part, Symbol):
            found.add(part.position)
        elif isinstance(part, (list, tuple)):
            waiting += part
        elif hasattr(part, "values"):
            waiting += part.values()
    return found


def reason_against(inputs: Sequence[Input], capture: Capture) -> str:
    """Why a stretch that is recorded now is not to be captured; empty if it may be."""
    why = capture.reason_against()
    if why:
        return why
    tensors = [each.value for each in inputs if isinstance(each.value, Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return "gradients flow through it"
    if within_level():
        return "a transform is at work"
    if any_autocast():
        return "autocast is on"
    devices = {tensor.device for tensor in tensors}
    if any(device.type != capture.kind for device in devices):
        return f"a tensor among its operands is not on a {capture.kind.upper()} device"
    if len(devices) != 1:
        return "its operands are not on one device"
    return ""
