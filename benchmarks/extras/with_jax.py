"""JAX: ``jit(vmap(f))`` with ``lax.while_loop``, on one CPU thread as far as XLA allows, or CUDA.

A batched ``while_loop`` runs every row until the last one stops, masking those that did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

from benchmarks.workload import Other, Problem
from benchmarks.workloads.fib import LARGEST_N
from benchmarks.workloads.ode import END, TOLERANCE

jax.config.update("jax_enable_x64", True)  # as torch's integers are
jax.config.update("jax_default_matmul_precision", "highest")  # as torch's products are


def collatz(n: Any) -> Any:
    def step(state: Any) -> Any:
        n, steps = state
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

    return lax.while_loop(lambda state: state[0] != 1, step, (n, jnp.int64(0)))[1]


def mandelbrot(re: Any, im: Any) -> Any:
    def going(state: Any) -> Any:
        x, y, steps = state
        return (steps < 100) & (x * x + y * y <= 4.0)

    def step(state: Any) -> Any:
        x, y, steps = state
        return x * x - y * y + re, 2.0 * x * y + im, steps + 1

    return lax.while_loop(going, step, (re, im, jnp.int64(0)))[2]


def fibonacci(n: Any) -> Any:
    """By an explicit stack of the calls that are still to be made: JAX has no recursion.

    A call of n leaves at most n calls on the stack.
    """

    def step(state: Any) -> Any:
        stack, height, total = state
        called = stack[height - 1]
        splits = called > 2
        stack = stack.at[height - 1].set(jnp.where(splits, called - 2, 0))
        stack = stack.at[height].set(jnp.where(splits, called - 1, 0))
        return stack, height + jnp.where(splits, 1, -1), total + jnp.where(splits, 0, 1)

    start = jnp.zeros(LARGEST_N + 1, n.dtype).at[0].set(n), jnp.int64(1), jnp.int64(0)
    return lax.while_loop(lambda state: state[1] > 0, step, start)[2]


def fixed_point(problem: Problem) -> Callable[[Any], Any]:
    model: Any = problem.function
    W, U, b = (jnp.from_dlpack(p.detach()) for p in (model.W, model.U, model.b))

    def solve(x: Any) -> Any:
        drive = U @ x + b
        start = jnp.tanh(drive), jnp.linalg.norm(jnp.tanh(drive))

        def step(state: Any) -> Any:
            h = jnp.tanh(W @ state[0] + drive)
            return h, jnp.linalg.norm(h - state[0])

        return lax.while_loop(lambda state: state[1] >= model.tolerance, step, start)[0]

    return solve


def value_loop(problem: Problem) -> Callable[[Any], Any]:
    model: Any = problem.function
    weight, probe = (jnp.from_dlpack(p.detach()) for p in (model.weight, model.probe))

    def solve(x: Any) -> Any:
        def going(state: Any) -> Any:
            return (state[1] < model.most) & ((state[1] == 0) | (probe @ state[0] <= model.limit))

        def step(state: Any) -> Any:
            return jnp.tanh(weight @ state[0] + jnp.float32(0.1) * x), state[1] + 1

        return lax.while_loop(going, step, (x, jnp.int64(0)))[0]

    return solve


def ode(problem: Problem) -> Callable[[Any, Any], Any]:
    def slope_at(y: Any, mu: Any) -> Any:
        return jnp.stack((y[1], mu * (1.0 - y[0] * y[0]) * y[1] - y[0]))

    def solve(y: Any, mu: Any) -> Any:
        def step(state: Any) -> Any:
            y, slope, size, left = state
            size = jnp.minimum(size, left)
            second = slope_at(y + size * slope / 2, mu)
            third = slope_at(y + size * second * 3 / 4, mu)
            proposal = y + size * (2 * slope + 3 * second + 4 * third) / 9
            fourth = slope_at(proposal, mu)
            difference = size * (-5 * slope + 6 * second + 8 * third - 9 * fourth) / 72
            error = jnp.abs(difference).max()
            accepted = error <= TOLERANCE
            left = jnp.where(accepted, left - size, left)
            y, slope = jnp.where(accepted, proposal, y), jnp.where(accepted, fourth, slope)
            grow = 0.9 * (TOLERANCE / (error + 1e-12)) ** jnp.float32(1 / 3)
            return y, slope, size * jnp.clip(grow, 0.2, 5.0), left

        start = y, slope_at(y, mu), jnp.full_like(mu, 0.1), jnp.full_like(mu, END)
        return lax.while_loop(lambda state: state[3] > 0.0, step, start)[0]

    return solve


def _run(function_of: Callable[[Problem], Callable[..., Any]]) -> Callable[[Problem], Other]:
    def run(problem: Problem) -> Other:
        batched = jax.jit(jax.vmap(function_of(problem)))

        def call() -> torch.Tensor:
            inputs = [jnp.from_dlpack(x) for x in problem.inputs]
            return torch.from_dlpack(batched(*inputs).block_until_ready())

        return Other(call)

    return run


RUNS: dict[str, Callable[[Problem], Other]] = {
    "collatz": _run(lambda problem: collatz),
    "fib": _run(lambda problem: fibonacci),
    "mandelbrot": _run(lambda problem: mandelbrot),
    "fixed_point": _run(fixed_point),
    "value_loop": _run(value_loop),
    "ode": _run(ode),
}
