"""Other systems, where they are installed: found by import, never required.

``pip install 'autobatch[neighbours]'`` brings those that the registry has for this Python.

Each module has ``RUNS``: by workload, from a problem to its ``Other``. What compiles does so at the
first run, which is not timed. numpyro, whose results are others, has a ``sampler`` instead.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable

import numpy as np

from benchmarks.workload import Other, Problem

MODULES = {"numba": "numba", "jax": "jax", "tfp": "tensorflow_probability", "dynet": "dynet"}
ON_CUDA = ("jax",)
INSTALLED = tuple(name for name, module in MODULES.items() if importlib.util.find_spec(module))


def runs(workload: str, problem: Problem) -> dict[str, Other]:
    """By name, the systems that are installed and have the workload, where the problem lies."""
    found = {}
    for name in INSTALLED if problem.device.type == "cpu" else ON_CUDA:
        module = importlib.import_module(f"benchmarks.extras.with_{name}")
        if workload in module.RUNS:
            found[name] = module.RUNS[workload](problem)
    return found


NUMPYRO = "numpyro"


def numpyro_sampler(problem: Problem) -> Callable[[], np.ndarray] | None:
    """For a problem of ``nuts``, a run that gives the leapfrog steps ``[transitions, chains]``."""
    if not importlib.util.find_spec(NUMPYRO):
        return None
    found: Callable[[Problem], Callable[[], np.ndarray]]
    found = importlib.import_module(f"benchmarks.extras.with_{NUMPYRO}").sampler
    return found(problem)
