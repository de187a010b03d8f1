"""The block executions of one call: counted, held to ``max_steps``, told to listeners.

All engines go by it, so that limits and what listeners hear mean the same in either. The limit
on the depth of calls stands here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from autobatch.errors import DepthLimitError, Diagnostic, StepLimitError
from autobatch.ir.program import Function, Label
from autobatch.listeners import Listener, Step, Tally
from autobatch.source import Span


@dataclass(slots=True, eq=False, repr=False)
class Steps:
    """``taken`` is the number of block executions so far; ``batch`` is B, chunked or not.

    ``rows``, in a stream, has the thread index of each row in flight, -1 for a free one: a mask is
    of these. Where the limit is each thread's own, in a stream and where threads are isolated,
    ``own`` has how many block executions each has taken part in, by row in a stream, else by
    thread. It may be that a stream is to go on to something else after ``pause`` block executions.

    ``ran``, where it is wanted, has the functions whose blocks ran, by name and block.

    As they come by default, they are those of no call: not limited, counted for no one.
    """

    batch: int = 0
    max_steps: int | None = None
    listeners: tuple[Listener, ...] = ()
    tally: Tally = field(default_factory=lambda: Tally(()))
    taken: int = 0
    rows: np.ndarray | None = None
    own: np.ndarray | None = None
    pause: float = inf
    ran: dict[tuple[str, Label], Function] | None = None

    @property
    def spent(self) -> bool:
        """Whether one more block execution is too many, for some thread if each has a limit."""
        if self.max_steps is None or self.taken < self.max_steps:
            return False
        return self.own is None or bool((self.own >= self.max_steps).any())

    def stopped(self, threads: np.ndarray) -> np.ndarray:
        """Those of some threads for which one more block execution is too many, as some is."""
        if self.own is None or self.max_steps is None:
            return threads
        over = np.flatnonzero(self.own >= self.max_steps)
        return threads[np.isin(threads, over if self.rows is None else self.rows[over])]

    def admit(self, rows: np.ndarray | int) -> None:
        """In a stream, threads have got these rows."""
        if self.own is not None:
            self.own[rows] = 0

    def stops(self, threads: Sequence[int]) -> bool:
        """Whether one more block execution is too many for these, which run by themselves."""
        return self.spent and (self.own is None or len(self.stopped(np.array(threads))) > 0)

    def left(self, threads: Sequence[int]) -> int:
        """How many block executions some threads, which run by themselves, may still take."""
        assert self.max_steps is not None
        taken = self.taken if self.own is None else int(self.own[np.array(threads)].max())
        return max(self.max_steps - taken, 0)

    def taken_within(self, threads: Sequence[int], step: Step) -> None:
        """A batch that some threads run within their call has taken a step."""
        self.taken += 1
        self.take_part(threads)

    def take_part(self, threads: np.ndarray | Sequence[int]) -> None:
        """Some threads take part in the block execution that has begun."""
        if self.own is not None:
            places = threads if self.rows is None else np.flatnonzero(np.isin(self.rows, threads))
            self.own[np.asarray(places)] += 1

    @property
    def paused(self) -> bool:
        """Whether a stream is to go on to something else."""
        return self.taken >= self.pause

    def begin(self, function: Function, pc: Label, k: int) -> None:
        """``k`` threads execute a block; there are steps left."""
        self.taken += 1
        self.tally.block = (function.name, pc)
        if self.ran is not None:
            self.ran[function.name, pc] = function
        self.tally.execution(k)

    def too_many(self, span: Span, k: int) -> StepLimitError:
        whose = "The run" if self.own is None else "An example"
        return StepLimitError(
            Diagnostic(
                f"{whose} takes more than max_steps={self.max_steps} block executions.",
                span,
                "1 thread is here" if k == 1 else f"{k} threads are here",
                hints=("raise max_steps, or look for a loop that does not end.",),
                code="step-limit",
            )
        )

    def end(
        self,
        function: Function,
        pc: Label,
        threads: np.ndarray | Sequence[int],
        depth: int,
        seconds: float,
    ) -> None:
        """Tell the listeners of a block execution."""
        if not self.listeners:
            return
        indices = np.asarray(threads, dtype=np.int64)
        if self.rows is not None:
            mask = np.isin(self.rows, indices)
        else:
            mask = np.zeros(self.batch, dtype=bool)
            mask[indices] = True
        step = Step(function.name, f"b{pc}", pc, indices, mask, depth, seconds)
        for listener in self.listeners:
            listener(step)


OTHER_ENGINE = 'end the recursion earlier, raise max_depth, or use engine="program_counter".'


def too_deep(max_depth: int, span: Span | None, hint: str = OTHER_ENGINE) -> DepthLimitError:
    return DepthLimitError(
        Diagnostic(
            f"Calls nest deeper than max_depth={max_depth}.",
            span,
            "called here",
            hints=(hint,),
            code="depth-limit",
        )
    )
