"""Fused kernels: the recordings of hot stretches through torch's Inductor.

In: a ``Trace``. Out: ``Hot``, a replay that gives the same. What of a recording may be compiled is
``operators``, the parts that it falls into ``regions``, a region as a kernel ``inductor``.
"""

from __future__ import annotations

from autobatch.batching.fused.hot import Hot, Tally, reason_against

__all__ = ["Hot", "Tally", "reason_against"]
