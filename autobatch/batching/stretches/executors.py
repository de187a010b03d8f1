"""Executors: what turns a stretch into a fast function of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from autobatch.batching.trace import Input, Trace, record
from autobatch.saving.savers import saved

Run = Callable[..., Sequence[Tensor]]


class Executor(Protocol):
    """Makes a stretch fast.

    ``compile(stretch, inputs)`` gets the stretch, callable as ``stretch(k, *values)`` on rows
    (columns ``[k, *E]``, uniform tensors, uniform numbers) and returning a tuple of tensors, and
    an example of each value. It returns a callable of the same arguments and results, right for
    every ``k``, or raises ``Untraceable``.
    """

    def compile(self, stretch: Run, inputs: Sequence[Input]) -> Run: ...


@dataclass(frozen=True, slots=True, eq=False)
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
    """A trace whose replays run by way of the saver at work; ``kernels`` are those of one."""

    trace: Trace

    @property
    def kernels(self) -> int:
        return self.trace.kernels

    def __call__(self, k: int, *values: object) -> Sequence[Tensor]:
        found: Sequence[Tensor] = saved(self.trace.replay, k, *values, is_step=True)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class SavingExecutor:
    """The same as ``TracedExecutor``, for runs that do not save in torch's own way."""

    fast_math: bool = False

    def compile(self, stretch: Run, inputs: Sequence[Input]) -> Run:
        return Saved(record(stretch, inputs, fast_math=self.fast_math))


SAVING = SavingExecutor()
FAST_SAVING = SavingExecutor(fast_math=True)


def traced(keeps: bool, fast_math: bool) -> Executor:
    """The executor of recordings; ``keeps``: torch saves in its own way for a backward."""
    if keeps:
        return FAST if fast_math else TRACED
    return FAST_SAVING if fast_math else SAVING
