"""Stretches: runs of operations that are recorded once and replayed.

At a place in a block, ``Site.advance`` runs as many operations as it can in one go and says where
it stopped; what it cannot take, the caller runs one by one. A stretch has two parts. *Host*
operations have only uniform operands: they run as plain Python, first. *Batched* operations run
in one replay of a trace, which an executor made by running these very operations on fake
tensors. When a new signature is recorded, ``budget`` says.

Invariants: host operations are pure and write no variable that an earlier batched operation reads
or writes; a stretch that fails, on fakes or on data, leaves the environment as it was.
"""

from __future__ import annotations

from autobatch.batching.stretches.executors import (
    CAPTURE,
    COMPILING,
    Executor,
    Run,
    TracedExecutor,
    chosen,
)
from autobatch.batching.stretches.sites import Site
from autobatch.batching.stretches.whole_site import WholeSite
from autobatch.batching.stretches.work import Work

__all__ = [
    "CAPTURE",
    "COMPILING",
    "Executor",
    "Run",
    "Site",
    "TracedExecutor",
    "WholeSite",
    "Work",
    "chosen",
]
