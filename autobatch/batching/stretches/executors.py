"""Executors: what turns a stretch into a fast function of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakSet

from torch import Tensor

from autobatch.batching.fused import Hot, Prices, reason_against
from autobatch.batching.graphed import Capture, CudaCapture, Graphed
from autobatch.batching.graphed import reason_against as reason_against_capture
from autobatch.batching.stretches.guests import Guest
from autobatch.batching.trace import Input, Trace, record
from autobatch.compat import within_duals, within_modes
from autobatch.listeners import Tally
from autobatch.saving.bundles import Ways
from autobatch.saving.savers import saved

Run = Callable[..., Sequence[Tensor]]


class Executor(Protocol):
    """Makes a stretch fast.

    ``compile(stretch, inputs)`` gets the stretch, callable as ``stretch(k, *values)`` on rows
    (columns ``[k, *E]``, uniform tensors, uniform numbers) and returning a tuple of tensors, and
    an example of each value. It returns a callable of the same arguments and results, right for
    every ``k``, or raises ``Untraceable``: the operations then run one by one. That callable writes
    to nothing that it gets or has given: other threads may still have what an earlier call gave,
    so a buffer of its own is copied first. What fails otherwise, or gives other results, is an
    ``ExecutorError``.
    """

    def compile(self, stretch: Run, inputs: Sequence[Input]) -> Run: ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TracedExecutor:
    """Records the stretch on fake tensors and replays it as straight-line torch code.

    ``fast_math``: floats may come out rounded otherwise (see ``batching.trace.arithmetic``).
    """

    fast_math: bool = False

    def compile(self, stretch: Run, inputs: Sequence[Input]) -> Run:
        return record(stretch, inputs, fast_math=self.fast_math)


TRACED = TracedExecutor()
FAST = TracedExecutor(fast_math=True)
"""The ones that runs share, so that they share what is recorded."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A trace whose replays run by way of the saver at work; ``kernels`` are those of one.

    ``differentiated`` says which of their results are, once one has run, and ``found`` the ways in
    which they may run several to a call, by the operands that are results of the last one.
    """

    trace: Trace
    differentiated: list[bool] = field(default_factory=list)
    found: dict[tuple[tuple[int, int], ...], Ways | None] = field(default_factory=dict)

    def ways(self, carried: Mapping[int, int]) -> Ways | None:
        """None where each is to run by itself."""
        key = tuple(sorted(carried.items()))
        if key not in self.found:
            self.found[key] = ways_of(self.trace, carried)
        return self.found[key]

    @property
    def kernels(self) -> int:
        return self.trace.kernels

    def __call__(self, k: int, *values: object) -> Sequence[Tensor]:
        found: Sequence[Tensor] = saved(self.trace.replay, k, *values, is_step=True)
        if not self.differentiated:
            self.differentiated[:] = [each.requires_grad for each in found]
        return found


def ways_of(trace: Trace, carried: Mapping[int, int]) -> Ways | None:
    if not trace.is_bare:
        return None
    quiet = trace.quiet
    over = quiet.spending(carried) or quiet.replay
    return Ways(trace.replay, quiet.replay, over, dict(carried))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SavingExecutor:
    """The same as ``TracedExecutor``, for runs that do not save in torch's own way."""

    fast_math: bool = False

    def compile(self, stretch: Run, inputs: Sequence[Input]) -> Run:
        return Saved(record(stretch, inputs, fast_math=self.fast_math))


SAVING = SavingExecutor()
FAST_SAVING = SavingExecutor(fast_math=True)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CompiledExecutor:
    """Records the stretch, and compiles the recording once its replays have launched ``hot``
    kernels, or, where ``seconds`` are given, once they have taken these and as long as it pays.

    ``made`` are its recordings, for as long as plans have them, ``prices`` what kernels have taken.
    """

    hot: int
    fast_math: bool = False
    seconds: float | None = None
    made: WeakSet[Hot] = field(default_factory=WeakSet)
    prices: Prices = field(default_factory=Prices)

    def compile(self, stretch: Run, inputs: Sequence[Input]) -> Run:
        trace = record(stretch, inputs, fast_math=self.fast_math)
        numbers = {i: each.value for i, each in enumerate(inputs) if each.kind in ("int", "float")}
        left = -(-self.hot // max(trace.kernels, 1))
        span = getattr(stretch, "span", None)
        found = Hot(trace, numbers, left, Tally, span, self.seconds, prices=self.prices)
        found.rest(reason_against(inputs))
        self.made.add(found)
        return found


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GraphExecutor:
    """Records the stretch, and captures the recording at each width (see ``batching.graphed``) that
    has come more than ``after`` times, where that spares ``least`` launches of a replay's.

    ``made`` are its recordings, for as long as plans have them.
    """

    capture: Capture
    after: int
    fast_math: bool = False
    least: int = 1
    made: WeakSet[Graphed] = field(default_factory=WeakSet)

    def compile(self, stretch: Run, inputs: Sequence[Input]) -> Run:
        trace = record(stretch, inputs, fast_math=self.fast_math)
        kinds = [each.kind for each in inputs]
        span = getattr(stretch, "span", None)
        found = Graphed(trace, kinds, self.capture, self.after, self.least, span)
        found.rest(reason_against_capture(inputs, self.capture))
        self.made.add(found)
        return found


HOT = 1000
"""Kernels that a recording launches before it is compiled, which takes seconds."""
SECONDS = 0.1
"""What a recording's replays take before it is asked whether compiling it pays."""
COMPILED = CompiledExecutor(HOT)
FAST_COMPILED = CompiledExecutor(HOT, fast_math=True)
AUTO = CompiledExecutor(HOT, seconds=SECONDS)
FAST_AUTO = CompiledExecutor(HOT, fast_math=True, seconds=SECONDS)
CAPTURE = CudaCapture()
AFTER = 3
"""How often a width comes as recorded before it is captured, which takes some milliseconds."""
GRAPHS = GraphExecutor(CAPTURE, AFTER)
FAST_GRAPHS = GraphExecutor(CAPTURE, AFTER, fast_math=True)
COMPILING: dict[tuple[str, bool], CompiledExecutor | GraphExecutor] = {
    ("compiled", False): COMPILED,
    ("compiled", True): FAST_COMPILED,
    ("auto", False): AUTO,
    ("auto", True): FAST_AUTO,
    ("cudagraph", False): GRAPHS,
    ("cudagraph", True): FAST_GRAPHS,
}
"""The executors that make more of recordings than replays, by option and ``fast_math``."""


def traced(keeps: bool, fast_math: bool) -> Executor:
    """The executor of recordings; ``keeps``: torch saves in its own way for a backward."""
    if keeps:
        return FAST if fast_math else TRACED
    return FAST_SAVING if fast_math else SAVING


def chosen(executor: Any, keeps: bool, fast_math: bool) -> Executor:
    """The executor that an option names, or is; what sees each operation sees torch's own."""
    if not isinstance(executor, str):
        return Guest(executor)
    if executor == "traced" or within_duals() or within_modes():
        return traced(keeps, fast_math)
    return COMPILING[executor, fast_math]
