"""Tracing: a function of batched tensors becomes straight-line torch code for any thread count.

In: ``fn(k, *values)`` and ``Input`` examples of its values. Out: a ``Trace``, which computes the
same for any thread count, any uniform number and any tensors of the same signature, at the cost
of hand-written torch. The function runs twice on fake tensors (``recorder``), the two recordings
become one graph (``unify``), the graph is simplified (``rewrite``) and printed (``codegen``).

What a trace depends on is the caller's key: kind, dtype, device, event shape, ``requires_grad``
and order of strides of each input, which inputs are one tensor, grad mode, autocast, default
dtype and default device.
"""

from __future__ import annotations

from autobatch.batching.trace.graph import Untraceable
from autobatch.batching.trace.tracing import Input, Trace, record

__all__ = ["Input", "Trace", "Untraceable", "record"]
