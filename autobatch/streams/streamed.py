"""What of a stream's examples runs as machine code, as they are admitted.

Each thread goes its own way there, so an admission is one launch and all its results are there at
once; threads that give up are admitted to the engine, as those of any other stream. In: the cells
of an admission's arguments. Out: which threads are done, and their results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from autobatch.batching.trace.loading import is_loaded
from autobatch.compiled import (
    NotLoaded,
    Refused,
    launched,
    loading,
    plan_for,
    refuse,
    seeds_of,
)
from autobatch.listeners import Tally
from autobatch.options import Options
from autobatch.runs.entry import started
from autobatch.values.cells import Cell
from autobatch.vm.library import Library

MOST_ROUNDS = 2**30
"""Rounds that a thread may take, some seconds: one that never ends must not hold up the others."""


@dataclass(frozen=True, slots=True)
class Done:
    """``pieces`` are the places of threads, and their results; those at ``rest`` have given up."""

    pieces: list[tuple[np.ndarray, Cell]]
    rest: np.ndarray


@dataclass(slots=True, eq=False, repr=False)
class MachineCode:
    """Launches admissions until one is refused; ``why`` says why.

    "auto" does not load torch's tracing for them: one that ``waits`` looks again once that is.
    """

    function: Callable[..., Any]
    options: Options
    library: Library
    tally: Tally
    why: str = ""
    waits: bool = False

    def launch(
        self, cells: Callable[[], tuple[list[Cell], dict[str, Cell]]], threads: np.ndarray
    ) -> Done | None:
        """Run threads of these indices; None where the engine is to run all of them."""
        if self.why or (self.waits and not is_loaded()):
            return None
        size, auto = len(threads), self.options.executor_at_work == "auto"
        try:
            with loading(not auto):
                plan, inputs = plan_for(
                    started(self.function), cells, size, self.options, self.library, self.tally
                )
            if len(plan.results) > 1:
                refuse("it returns " + " or ".join(map(str, plan.results)))
            seeds = seeds_of(self.options, threads)
            run = launched(plan, inputs, size, self.options.depth_limit, seeds, MOST_ROUNDS)
        except NotLoaded:
            self.waits = True
            return None
        except Refused as refused:
            self.why = refused.why
            return None
        self.tally.by_itself(plan.code.function.name, size, run.rounds, len(run.rest))
        return Done(run.parts() if not len(run.rest) else run.pieces(), run.rest)
