"""numpyro: its NUTS on the same law, with the same step, all chains in one compiled call.

It is iterative, draws numbers of its own, and picks a point in proportion to its density, so its
trajectories are others, of as many steps on average. No adaptation; the gradient is JAX's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpyro.infer import NUTS

from benchmarks.workload import Problem
from benchmarks.workloads.nuts import STEP

jax.config.update("jax_enable_x64", True)  # as the chains' positions are


def sampler(problem: Problem) -> Callable[[], np.ndarray]:
    """A call gives each transition's leapfrog steps of each chain, ``[transitions, chains]``."""
    law = problem.function
    precision = jnp.asarray(law.log_density.precision.numpy())
    start = jnp.asarray(problem.inputs[0].numpy())
    kernel = NUTS(
        potential_fn=lambda x: 0.5 * (x @ precision @ x),
        step_size=STEP,
        adapt_step_size=False,
        adapt_mass_matrix=False,
        max_tree_depth=law.max_depth,
    )
    keys = jax.random.split(jax.random.PRNGKey(0), len(start))
    begun = kernel.init(keys, 0, start, model_args=(), model_kwargs={})

    def transition(state: Any, _: None) -> tuple[Any, Any]:
        state = kernel.sample(state, (), {})
        return state, state.num_steps

    @jax.jit
    def transitions(state: Any) -> Any:
        return lax.scan(transition, state, None, length=law.transitions)[1]

    return lambda: np.asarray(transitions(begun))
