"""Fused kernels: the recordings of hot stretches through torch's Inductor.

In: a ``Trace``. Out: ``Hot``, a replay that gives the same. What of a recording may be compiled is
``operators``, the parts that it falls into ``regions``, a region as a kernel ``inductor``, several
laps of a loop as one ``laps``; ``paying`` says when that is worth its while.
"""

from __future__ import annotations

from autobatch.batching.fused.hot import Hot, Tally, reason_against
from autobatch.batching.fused.laps import LAPS, Laps
from autobatch.batching.fused.paying import Prices
from autobatch.batching.fused.unrolling import Loop

__all__ = ["LAPS", "Hot", "Laps", "Loop", "Prices", "Tally", "reason_against"]
