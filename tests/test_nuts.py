"""NUTS: the right moments, all chains in one gradient, and a test of moments that can fail."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from benchmarks.chains import LAST
from programs.nuts import NUTS, CorrelatedGaussian, LogisticRegression, Tape, example, kinetic

LARGEST = 5.0
"""Standard errors that a moment may be off by; by chance, one in 1.7 million is."""


def check_moments(samples: Tensor, mean: Tensor, covariance: Tensor) -> None:
    """Hold independent ``samples`` ``[N, size]`` to a mean and a covariance.

    Whitened, each coordinate has mean 0 and variance 1, and no two are correlated. These, and
    their means over all coordinates, may differ by ``LARGEST`` standard errors, which are those
    of the samples themselves: their deviation over the root of N.
    """
    root = torch.linalg.cholesky(covariance)
    white = torch.linalg.solve_triangular(root, (samples.double() - mean).T, upper=False).T
    squares = white.square() - 1.0
    neighbours = white[:, 1:] * white[:, :-1]
    for found in (white, squares, neighbours):
        for moment in (found, found.mean(1, keepdim=True)):
            errors = moment.mean(0) / (moment.std(0) / math.sqrt(len(samples)))
            assert errors.abs().max() < LARGEST


def sampled(sampler: NUTS, start: Tensor, seed: int = 0) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        result: Tensor = autobatch.vmap(sampler, randomness="different")(start)
        return result


def test_a_correlated_gaussian_of_100_dimensions() -> None:
    law = CorrelatedGaussian(100)
    samples = sampled(NUTS(law, 0.4, 10).float(), torch.full((256, 100), 2.0))
    check_moments(samples, torch.zeros(100), law.covariance)


def test_a_seeded_chain_is_the_same_however_it_runs() -> None:
    sampler = NUTS(CorrelatedGaussian(3), 0.4, 1, max_depth=3)
    start = torch.zeros(6, 3, dtype=torch.float64)
    chains = autobatch.vmap(sampler, seed=3)(start)
    assert len(set(chains[:, 0].tolist())) == 6
    for way in ({"chunk_size": 4}, {"engine": "program_counter"}):
        torch.testing.assert_close(autobatch.vmap(sampler, seed=3, **way)(start), chains)
    alone = autobatch.vmap(sampler, seed=3, thread_offset=4)(start[4:5])
    torch.testing.assert_close(alone, chains[4:5])


def test_the_posterior_of_a_logistic_regression() -> None:
    """Held to sums over a grid."""
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(40, 2, generator=draw, dtype=torch.float64)
    chances = torch.sigmoid(inputs @ torch.tensor([1.5, -1.0], dtype=torch.float64))
    labels = 2.0 * torch.bernoulli(chances, generator=draw) - 1.0
    posterior = LogisticRegression(inputs, labels)
    mean, covariance = moments_on_a_grid(posterior)
    start = torch.zeros(1024, 2, dtype=torch.float64)
    check_moments(sampled(NUTS(posterior, 0.4, 10), start), mean, covariance)


def moments_on_a_grid(law: Any) -> tuple[Tensor, Tensor]:
    axis = torch.linspace(-8.0, 8.0, 321, dtype=torch.float64)
    points = torch.cartesian_prod(axis, axis)
    weights = torch.softmax(torch.func.vmap(law)(points), 0)
    mean = weights @ points
    return mean, (points - mean).T @ ((points - mean) * weights[:, None])


class Euler(NUTS):
    """A leapfrog without its last half step: what a slip in the sampler looks like."""

    def leapfrog(self, point: Tensor, step: float) -> tuple[Tensor, Tensor]:
        position, momentum, gradient = point
        momentum = momentum + step * gradient
        position = position + step * momentum
        gradient, value = torch.func.grad_and_value(self.log_density)(position)
        return torch.stack((position, momentum, gradient)), value - 0.5 * momentum @ momentum


def test_a_sampler_that_is_wrong_is_found() -> None:
    law = CorrelatedGaussian(4)
    start = torch.full((1024, 4), 2.0, dtype=torch.float64)
    mean = torch.zeros(4)
    right = sampled(NUTS(law, 0.5, 6), start)
    check_moments(right, mean, law.covariance)
    for samples in (sampled(Euler(law, 0.5, 6), start), sampled(NUTS(law, 0.5, 1), start)):
        with pytest.raises(AssertionError):
            check_moments(samples, mean, law.covariance)
    for other, covariance in (
        (mean + 0.2, law.covariance),
        (mean, law.covariance * 1.2),
        (mean, CorrelatedGaussian(4, correlation=0.3).covariance),
    ):
        with pytest.raises(AssertionError):
            check_moments(right, other, covariance)


def leapfrogs(batched: Any, *args: Tensor, **options: Any) -> int:
    with autobatch.counts() as counts:
        autobatch.vmap(batched, **options)(*args)
    assert not counts.fallbacks
    return counts.by_block["NUTS.leapfrog", 0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fork", ["auto", "off"])
def test_chains_take_their_gradients_together(fork: str) -> None:
    """In one transition the batch takes as many leapfrog steps as its longest chain."""
    problem = example(16)
    problem.function.transitions = 1
    rows = [[arg[i : i + 1] for arg in problem.args] for i in range(problem.batch)]
    alone = [leapfrogs(problem.function, *row, fork=fork) for row in rows]
    assert len(set(alone)) > 2
    assert leapfrogs(problem.function, *problem.args, fork=fork) == max(alone)


def test_chains_need_not_wait_for_each_others_transitions() -> None:
    """Where gradients come last, the batch takes as many as its longest chain in all."""
    problem = example(8)
    rows = [[arg[i : i + 1] for arg in problem.args] for i in range(problem.batch)]
    alone = [leapfrogs(problem.function, *row) for row in rows]
    found = leapfrogs(problem.function, *problem.args, **LAST)
    together = leapfrogs(problem.function, *problem.args)
    assert found == max(alone) < together


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_a_draw_from_the_tape_needs_no_read(engine: str) -> None:
    """What is read for a leapfrog step are branches; that an index is in range is known."""
    problem = example(64)
    batched = autobatch.vmap(problem.function, engine=engine, trace_after=0)
    for _ in range(3):
        batched(*problem.args)
    with autobatch.counts() as counts:
        batched(*problem.args)
    steps = counts.by_block["NUTS.leapfrog", 0]
    assert counts.host_reads <= 2.3 * steps
    assert counts.block_executions <= 15.5 * steps
    assert not counts.traces and not counts.fallbacks


def test_a_leapfrog_step_is_recorded_once() -> None:
    """Its gradient with what is before it and after it, for any number of chains."""

    class Own(NUTS):
        """Nothing else has recorded its leapfrog step."""

        def leapfrog(self, point, step):
            position, momentum, gradient = point
            momentum = momentum + 0.5 * step * gradient
            position = position + step * momentum
            gradient, value = torch.func.grad_and_value(self.log_density)(position)
            momentum = momentum + 0.5 * step * gradient
            return torch.stack((position, momentum, gradient)), value - kinetic(momentum)

    sampler = Own(CorrelatedGaussian(7), 0.4, 2)
    batched = autobatch.vmap(sampler, trace_after=0)
    tape = [torch.rand(16, shape, dtype=torch.float64) for shape in (7, 200)]
    args = [*tape, torch.randn(16, 2, 7, dtype=torch.float64)]

    def recordings(size: int) -> tuple[int, int]:
        with autobatch.counts() as counts:
            batched(*(arg[:size] for arg in args))
        assert not counts.fallbacks
        leapfrog = [(name, pc) for name, pc in counts.by_block if name.endswith("Own.leapfrog")]
        return len(leapfrog), sum(counts.traces_by_block[place] for place in leapfrog)

    assert recordings(16) == (1, 1)
    for size in (11, 5):
        assert recordings(size) == (1, 0)


def test_without_momentum_the_tape_decides() -> None:
    """By hand: a chain at rest at the mode stays where it is."""
    sampler = NUTS(CorrelatedGaussian(3), 0.4, 2, max_depth=3)
    zero = torch.zeros(3)
    tape = torch.full((40,), 0.3), torch.zeros(2, 3)
    assert torch.equal(sampler.float()(zero, *tape), zero)
    draws = Tape(torch.tensor([0.1, 0.2]), torch.ones(1, 3))
    assert [float(draws.uniform()), float(draws.uniform())] == pytest.approx([0.1, 0.2])
    assert torch.equal(draws.normal(zero), torch.ones(3))
