"""``python -m benchmarks``: autobatch against the loop, dynamic batching and torch by hand.

``python -m benchmarks.compare FILE.py:function --input DATA``: the same on a program of yours.

Every system of a workload runs in one process, on one torch thread, in turn and in an
order that rotates from round to round, so that what slows the machine slows all of them;
read ratios, not seconds. ``workloads`` says what is computed and how one writes it by hand,
``systems`` what runs it, ``dynamic_batching`` is DyNet's way, ``harness`` measures,
``counting`` counts, ``report`` prints, writes JSON and draws.
"""

import torch._dynamo  # noqa: F401  first runs are warm then: see autobatch.batching.trace.loading
