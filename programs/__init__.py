"""Programs written for one example, to be read first.

Each module holds one function (or ``nn.Module``) that is plain Python and plain torch:
call it on one example, step through it in a debugger, or hand it a batch with
``autobatch.vmap``. ``PROGRAMS`` names the modules; each has

- ``DTYPES``, the dtypes its batch may have, the usual one first;
- ``example(batch, dtype, seed)``, a small seeded problem as an ``Example``.
"""

from __future__ import annotations

PROGRAMS = (
    "collatz",
    "gcd",
    "fibonacci",
    "ackermann",
    "mandelbrot",
    "fixed_point",
    "lstm",
    "treelstm",
    "child_sum_treelstm",
    "merge_sort",
    "quicksort",
    "negamax",
    "tail_sampler",
    "nuts",
    "runge_kutta",
    "greedy_decoding",
    "adaptive_computation",
    "shift_reduce",
    "halting_transformer",
    "reinforce",
    "dqn",
    "particle_filter",
    "message_passing",
    "early_stopping",
    "mixture_of_experts",
    "bilstm_tagger",
    "ode_layer",
)
