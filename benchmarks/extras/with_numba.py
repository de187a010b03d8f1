"""numba: the per-example program compiled, in a compiled loop over the examples.

For programs on numbers only; there it is what Python code can become without batching.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch

from benchmarks.workload import Other, Problem


@numba.njit
def collatz(n: Any) -> Any:
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@numba.njit
def fibonacci(n: Any) -> Any:
    if n <= 2:
        return 1
    return fibonacci(n - 1) + fibonacci(n - 2)


@numba.njit
def mandelbrot(re: Any, im: Any) -> Any:
    x, y = re, im
    steps = 0
    while steps < 100 and x * x + y * y <= np.float32(4.0):
        x, y = x * x - y * y + re, np.float32(2.0) * x * y + im
        steps += 1
    return steps


@numba.njit
def all_collatz(n: Any) -> Any:
    out = np.empty(len(n), np.int64)
    for i in range(len(n)):
        out[i] = collatz(n[i])
    return out


@numba.njit
def all_fibonacci(n: Any) -> Any:
    out = np.empty(len(n), np.int64)
    for i in range(len(n)):
        out[i] = fibonacci(n[i])
    return out


@numba.njit
def all_mandelbrot(re: Any, im: Any) -> Any:
    out = np.empty(len(re), np.int64)
    for i in range(len(re)):
        out[i] = mandelbrot(re[i], im[i])
    return out


def _run(function: Callable[..., Any]) -> Callable[[Problem], Other]:
    def run(problem: Problem) -> Other:
        inputs = [x.numpy() for x in problem.inputs]
        return Other(lambda: torch.from_numpy(function(*inputs)))

    return run


RUNS: dict[str, Callable[[Problem], Other]] = {
    "collatz": _run(all_collatz),
    "fib": _run(all_fibonacci),
    "mandelbrot": _run(all_mandelbrot),
}
