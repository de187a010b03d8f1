"""What a machine lends to its sites: the executor, the plans of a call, the stretch at work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from autobatch.batching.operations import Env
from autobatch.batching.stretches.budget import Budget
from autobatch.batching.stretches.executors import Executor
from autobatch.batching.stretches.plans import Plan, Skeleton
from autobatch.batching.trace.loading import may_wait
from autobatch.values.cells import Cell, Value

NUMBERS = count(1)


@dataclass(slots=True, eq=False, repr=False)
class Work:
    """What a machine lends to its sites.

    ``cache`` keeps the plans of a call by stretch and signature; ``env`` is the environment
    before the stretch, ``last`` the plan that has run, ``settled`` what its host operations made,
    ``written`` the cells that it has written, with what they held before, ``granted`` whether the
    place at work may record, ``sure`` whether bounds have said that no row fails. ``patient``: the
    first recording in a process may wait until torch's tracing is worth loading.
    """

    executor: Executor
    trace_after: int
    cache: dict[Any, Plan] = field(default_factory=dict)
    patient: bool = False
    number: int = field(default_factory=NUMBERS.__next__)
    env: Env = field(default_factory=dict)
    last: Plan | None = None
    granted: bool = False
    sure: bool = False
    settled: Env = field(default_factory=dict)
    written: list[tuple[Cell, Value]] = field(default_factory=list)

    def is_cold(self, budget: Budget, operations: int) -> bool:
        """Whether these are to run unrecorded, as their place has not come again often enough."""
        if budget.is_cold(self.trace_after):
            return True
        return self.patient and budget.is_unpaid(operations, self.number)

    def waits(self, operations: int) -> bool:
        """Whether these are to run unrecorded for now (see ``batching.trace.loading``)."""
        return self.patient and may_wait(operations)

    def forget(self) -> None:
        """Let go of what the last stretch was about: a run's records outlive it for a while."""
        self.env, self.settled, self.last, self.written = {}, {}, None, []

    @contextmanager
    def unwritten(self) -> Iterator[None]:
        """Within, the cells that the last stretch has written hold what they did before."""
        now = [cell.value for cell, _ in self.written]
        for cell, before in self.written:
            cell.value = before
        try:
            yield
        finally:
            for (cell, _), value in zip(self.written, now, strict=True):
                cell.value = value

    def settle(self, skeleton: Skeleton, env: Env) -> None:
        """Keep what the host operations have assigned, for a driver to be printed."""
        made = {name: env[name] for op in skeleton.host for name in op.outs}
        self.settled = {**skeleton.constants, **made}
