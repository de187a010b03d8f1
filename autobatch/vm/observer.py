"""What an onlooker of a run sees: each block execution, and what each operation gave."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from autobatch.ir.program import Call, Function, Op
from autobatch.values.cells import Cell


class Observer(Protocol):
    """Looks at a batched run; it must not change what it is shown."""

    def block(self, function: Function, pc: int, threads: np.ndarray, env: dict[str, Cell]) -> None:
        """A block begins for the threads with these indices."""

    def apart(
        self, function: Function, pc: int, first: dict[str, Cell], other: dict[str, Cell]
    ) -> None:
        """A group waits at a block beside others, of which one has ``first``, and is not alike."""

    def operation(self, function: Function, op: Op | Call, env: dict[str, Cell]) -> None:
        """An operation or a call has run; ``env`` holds what it assigned."""
