"""TensorFlow Probability's auto-batching, which this project grew out of.

Its stackless engine on the numpy backend, the fastest of its engines on recursive Fibonacci. The
program is written in its own embedded language: its reader of Python source needs an older Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tensorflow_probability.python.experimental.auto_batching import (
    allocation_strategy,
    dsl,
    numpy_backend,
    stackless,
    type_inference,
)

from benchmarks.workload import Other, Problem


def fibonacci() -> Any:
    """The program of ``programs.fibonacci``."""
    make = dsl.ProgramBuilder()
    with make.function(type_inference=lambda args: args[0]) as function:
        make.param("n")
        make.var.is_base = make.primop(lambda n: n <= 2)
        with make.if_(make.var.is_base):
            make.var.result = make.const(1)
        with make.else_():
            make.var.before = make.primop(lambda n: n - 1)
            make.var.first = make.call(function, [make.var.before])
            make.var.before_that = make.primop(lambda n: n - 2)
            make.var.second = make.call(function, [make.var.before_that])
            make.var.result = make.primop(lambda first, second: first + second)
        make.return_(make.var.result)
    return make.program(main=function)


def _run(make: Callable[[], Any]) -> Callable[[Problem], Other]:
    def run(problem: Problem) -> Other:
        backend, inputs = numpy_backend.NumpyBackend(), [np.asarray(x) for x in problem.inputs]
        typed = type_inference.infer_types(make(), inputs, backend)
        ready, cache = allocation_strategy.optimize(typed), {}

        def call() -> torch.Tensor:
            return torch.from_numpy(np.asarray(stackless.execute(ready, backend, cache, *inputs)))

        return Other(call)

    return run


RUNS: dict[str, Callable[[Problem], Other]] = {"fib": _run(fibonacci)}
