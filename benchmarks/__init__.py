"""``python -m benchmarks``: autobatch against the plain loop and hand-written batched torch.

Every system of a workload runs in one process, on one torch thread, in turn and in an
order that rotates from round to round, so that what slows the machine slows all of them;
read ratios, not seconds. ``workloads`` says what is computed, ``handwritten`` how one
writes it by hand, ``harness`` measures, ``report`` prints, writes JSON and draws.
"""
