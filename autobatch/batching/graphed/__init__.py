"""Captured launches: the recordings of stretches as CUDA graphs, at padded widths.

In: a ``Trace``. Out: ``Graphed``, a replay that gives the same. What captures is ``capturing``,
the memory that a capture reads and writes ``buffers``, one capture ``captured``, and when a
recording is captured, or why it is not, ``replays``.
"""

from __future__ import annotations

from autobatch.batching.graphed.capturing import Capture, CudaCapture
from autobatch.batching.graphed.replays import Graphed, reason_against

__all__ = ["Capture", "CudaCapture", "Graphed", "reason_against"]
