"""``torch.distributions`` inside programs: built, asked and drawn from by each thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Cauchy,
    Dirichlet,
    Distribution,
    Exponential,
    Gamma,
    Gumbel,
    HalfNormal,
    Independent,
    Laplace,
    LogNormal,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    Poisson,
    StudentT,
    Uniform,
    Wishart,
    kl_divergence,
)

import autobatch
from autobatch.batching.levels import DrawError
from tests.oracle import assert_matches_loop
from tests.sweeps import case

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"executor": "vmap"},
    {"trace_after": 0},
    {"engine": "program_counter"},
)
MAKERS: dict[str, Callable[[Tensor], Distribution]] = {
    "normal": lambda x: Normal(x, x.exp()),
    "normal_of_numbers": lambda x: Normal(x, 2.0),
    "uniform": lambda x: Uniform(x - 1, x + 2),
    "exponential": lambda x: Exponential(x.exp()),
    "laplace": lambda x: Laplace(x, x.abs() + 0.5),
    "gamma": lambda x: Gamma(x.abs() + 1, x.exp()),
    "bernoulli": lambda x: Bernoulli(torch.sigmoid(x)),
    "bernoulli_of_logits": lambda x: Bernoulli(logits=x),
    "categorical": lambda x: Categorical(logits=torch.stack([x, 2 * x, -x])),
    "categorical_of_probs": lambda x: Categorical(torch.stack([x.exp(), x.exp() + 1])),
    "beta": lambda x: Beta(x.exp(), x.exp() + 1),
    "dirichlet": lambda x: Dirichlet(torch.stack([x.exp(), x.exp() + 2])),
    "poisson": lambda x: Poisson(x.exp()),
    "cauchy": lambda x: Cauchy(x, x.exp()),
    "student": lambda x: StudentT(x.exp() + 3, x, x.exp()),
    "log_normal": lambda x: LogNormal(x, 0.5),
    "gumbel": lambda x: Gumbel(x, x.exp()),
    "half_normal": lambda x: HalfNormal(x.exp()),
    "independent": lambda x: Independent(Normal(torch.stack([x, x]), torch.ones(2)), 1),
    "multivariate": lambda x: MultivariateNormal(torch.stack([x, x]), torch.eye(2) * x.exp()),
    "mixture": lambda x: MixtureSameFamily(
        Categorical(logits=torch.stack([x, -x])), Normal(torch.stack([x, 2 * x]), torch.ones(2))
    ),
}
WITHOUT_ENTROPY = ("poisson", "mixture")
"""Those whose entropy torch does not tell."""
COMBINATIONS = [
    case(name, options, name=f"{name}-{options}", default=not options or name == "normal")
    for name in MAKERS
    for options in OPTIONS
]
XS = torch.tensor([0.5, -1.0, 2.0, -0.25, 1.5])


def value_for(distribution: Distribution, x: Tensor) -> Tensor:
    if distribution.event_shape:
        return torch.full((2,), 0.5)
    if isinstance(distribution, Bernoulli | Categorical | Poisson):
        return torch.ones(())
    return x * 1 if isinstance(distribution, Uniform) else torch.sigmoid(x)


def asked(name: str) -> Callable[[Tensor], Any]:
    make, has_entropy = MAKERS[name], name not in WITHOUT_ENTROPY

    def program(x: Tensor) -> Any:
        distribution = make(x) if x > 0 else make(x * 0.5)
        found = distribution.log_prob(value_for(distribution, x))
        if x > 1:
            found = found * 2
        last = distribution.entropy() if has_entropy else x
        return found, distribution.mean, distribution.variance, last

    return program


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("name", "options"), COMBINATIONS)
def test_as_the_loop(name: str, options: Any) -> None:
    program = asked(name)
    for dtype in (torch.float32, torch.float64):
        mine, theirs = (XS.to(dtype).requires_grad_() for _ in range(2))
        found = autobatch.vmap(program, **options)(mine)
        wanted = [torch.stack(parts) for parts in zip(*map(program, theirs), strict=True)]
        for left, right in zip(found, wanted, strict=True):
            assert left.dtype == right.dtype
            torch.testing.assert_close(left, right, equal_nan=True)  # a category has no mean
        total = sum(part.sum() for part in found if part.requires_grad)
        loop = sum(part.sum() for part in wanted if part.requires_grad)
        (slope,), (expected,) = torch.autograd.grad(total, mine), torch.autograd.grad(loop, theirs)
        torch.testing.assert_close(slope, expected)


def likelihood(x: Tensor, make: Callable[[Tensor], Distribution]) -> Tensor:
    distribution = make(x)
    while x.abs() < 1:
        x = x * 2
    return distribution.log_prob(value_for(distribution, x))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", [name for name in MAKERS if "categorical" not in name])
def test_nothing_runs_thread_by_thread(name: str) -> None:
    if name in ("gumbel", "log_normal") and torch.__version__ < "2.13":
        pytest.skip("torch had weak references among its transforms")
    make = MAKERS[name]
    with autobatch.counts() as counts:
        autobatch.vmap(lambda x: likelihood(x, make), fallback="error")(XS)
    assert counts.fallbacks == 0


def wrong_parameter(x: Tensor) -> Tensor:
    return Normal(x, x).log_prob(x)


def wrong_value(x: Tensor) -> Tensor:
    return Uniform(torch.zeros(()), torch.ones(())).log_prob(x)


def wrong_probability(x: Tensor) -> Tensor:
    return Bernoulli(x).mean


@pytest.mark.sampled(3)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("program", [wrong_parameter, wrong_value, wrong_probability])
def test_arguments_are_validated(program: Any, options: Any) -> None:
    with pytest.raises(ValueError) as wanted:
        torch.stack([program(x) for x in XS])
    with pytest.raises(ValueError) as caught:
        autobatch.vmap(program, **options)(XS)
    assert str(caught.value) == str(wanted.value)


def unvalidated(x: Tensor) -> Tensor:
    return Normal(x, x, validate_args=False).log_prob(x)


def test_unless_they_are_not_to_be() -> None:
    wanted = torch.stack([unvalidated(x) for x in XS])
    torch.testing.assert_close(autobatch.vmap(unvalidated)(XS), wanted, equal_nan=True)


def drawn(x: Tensor, make: Callable[[Tensor], Distribution]) -> Tensor:
    distribution = make(x)
    first = distribution.sample()
    if x > 0:
        return first + distribution.sample()
    return first * 1


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("name", "options"), COMBINATIONS)
def test_seeded_draws_are_those_of_one_example(name: str, options: Any) -> None:
    make = MAKERS[name]

    def program(x: Tensor) -> Tensor:
        return drawn(x, make)

    together = autobatch.vmap(program, seed=3, **options)(XS)
    for row in (1, 4):  # one that draws once, one that draws twice
        alone = autobatch.vmap(program, seed=3, thread_offset=row, **options)
        torch.testing.assert_close(alone(XS[row : row + 1])[0], together[row])


def test_draws_are_of_the_distribution() -> None:
    xs = torch.full((4000,), 0.5)
    for name, make in MAKERS.items():
        draws = autobatch.vmap(lambda x, make=make: make(x).sample(), seed=0)(xs).double()
        theirs = make(xs[0]).sample((40000,)).double()
        error = 5 * theirs.std() / len(xs) ** 0.5
        assert (draws.mean() - theirs.mean()).abs() < 2 * error, name


def moved(x: Tensor) -> Tensor:
    draw = Normal(x, x.exp()).rsample()
    return draw if x > 0 else draw * x


def test_gradients_of_draws() -> None:
    xs = XS.clone().requires_grad_()
    found = autobatch.vmap(moved, seed=1)(xs)
    (slopes,) = torch.autograd.grad(found.sum(), xs)
    with torch.no_grad():
        noise = (torch.where(xs > 0, found, found / xs) - xs) / xs.exp()
    draw = xs + noise * xs.exp()
    wanted = torch.autograd.grad(torch.where(xs > 0, draw, draw * xs).sum(), xs)[0]
    torch.testing.assert_close(slopes, wanted)


SHARED = Categorical(torch.tensor([0.2, 0.3, 0.5]))
NOISE = Normal(0.0, 2.0)


def of_shared(x: Tensor) -> Tensor:
    if x > 0:
        return SHARED.log_prob((x > 1).long()) + NOISE.log_prob(x)
    return NOISE.cdf(x) + SHARED.entropy()


def divergence(x: Tensor) -> Tensor:
    if x > 0:
        return kl_divergence(Normal(x, 1.0), Normal(0.0, x))
    return kl_divergence(Normal(-x, 1.0), NOISE)


def of_two(x: Tensor) -> Tensor:
    if x > 0:
        return kl_divergence(Beta(x, x + 1), Beta(x + 2, x))
    one, other = (Normal(torch.stack([x, 2 * x]), scale) for scale in (1.0, 3.0))
    return kl_divergence(Independent(one, 1), Independent(other, 1))


@pytest.mark.parametrize("program", [of_shared, divergence, of_two])
def test_those_from_before_the_call(program: Any) -> None:
    wanted = torch.stack([program(x) for x in XS])
    torch.testing.assert_close(autobatch.vmap(program)(XS), wanted)


def test_divergences_run_for_all_at_once() -> None:
    with autobatch.counts() as counts:
        autobatch.vmap(divergence)(XS)
        autobatch.vmap(of_two)(XS)
    assert counts.fallbacks == 0


def of_masks(x: Tensor) -> Any:
    """What torch computes by ``t[mask] = other[mask]``."""
    counts = torch.tensor(5.0) if x > 0 else torch.tensor(7.0)
    one, other = (Binomial(counts, p) for p in (torch.sigmoid(x), torch.sigmoid(2 * x)))
    fewer = Binomial(counts - 1, torch.sigmoid(x))
    found = kl_divergence(one, other), kl_divergence(one, fewer)
    concentration = torch.stack([x.exp(), x.exp() * 0.5])
    return *found, StudentT(x.exp() * 2).variance, Dirichlet(concentration).mode


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_is_put_through_a_mask(options: Any) -> None:
    found = autobatch.vmap(of_masks, fallback="error", **options)(XS)
    for part, wanted in zip(found, zip(*map(of_masks, XS), strict=True), strict=True):
        torch.testing.assert_close(part, torch.stack(wanted), equal_nan=True)


def wishart(x: Tensor) -> Wishart:
    return Wishart(x.exp() + 2, covariance_matrix=torch.eye(2) * (x.abs() + 1) + x.abs())


def of_wisharts(x: Tensor) -> Tensor:
    """Whose rule runs a backward pass of its own."""
    found = kl_divergence(wishart(x), wishart(x * 0.5))
    if x > 0:
        found = found + kl_divergence(wishart(x + 1), wishart(x))
    return found + wishart(x).entropy()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", OPTIONS)
def test_divergences_of_one_exponential_family(options: Any) -> None:
    wanted = torch.stack([of_wisharts(x) for x in XS])
    found = autobatch.vmap(of_wisharts, fallback="error", **options)(XS)
    torch.testing.assert_close(found, wanted)
    rows = XS.double().requires_grad_()
    (mine,) = torch.autograd.grad(autobatch.vmap(of_wisharts, **options)(rows).sum(), rows)
    (loop,) = torch.autograd.grad(sum(of_wisharts(x) for x in rows), rows)
    torch.testing.assert_close(mine, loop)


def test_a_divergence_without_a_rule_is_torchs_error() -> None:
    with pytest.raises(NotImplementedError) as wanted:
        kl_divergence(Cauchy(0.0, 1.0), Normal(0.0, 1.0))
    with pytest.raises(NotImplementedError) as caught:
        autobatch.vmap(lambda x: kl_divergence(Cauchy(x, 1.0), Normal(x, 1.0)))(XS)
    assert str(caught.value) == str(wanted.value)


def of_nobodys_parameters(name: str) -> Callable[[Tensor], Tensor]:
    parameters = torch.tensor(0.5)
    return lambda x: MAKERS[name](parameters).sample().flatten()[0] + 0 * x


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["gamma", "beta", "dirichlet", "poisson", "student", "normal"])
def test_draws_of_parameters_that_all_share_are_each_examples(name: str) -> None:
    program, xs = of_nobodys_parameters(name), torch.zeros(64)
    with autobatch.counts() as counts:
        found = autobatch.vmap(program, randomness="different")(xs)
    assert len(set(found.tolist())) > 1 and counts.fallbacks == 0
    with pytest.raises(DrawError, match="randomness is 'error'"):
        autobatch.vmap(program)(xs)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", ["gamma", "beta", "dirichlet", "poisson", "student", "normal"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_same_draws_of_parameters_that_all_share_are_one(name: str, options: Any) -> None:
    batched = autobatch.vmap(of_nobodys_parameters(name), randomness="same", **options)
    for _ in range(3):
        draws = batched(torch.zeros(16))
        assert len(torch.unique(draws.reshape(16, -1), dim=0)) == 1


def test_they_are_handed_back() -> None:
    found = autobatch.vmap(lambda x: Normal(x, 1.0) if x > 0 else Normal(-x, 2.0))(XS)
    for x, distribution in zip(XS, found, strict=True):
        assert type(distribution) is Normal
        assert distribution.loc == x.abs() and distribution.scale == (1.0 if x > 0 else 2.0)
        assert distribution.sample().shape == ()


OF_NUMBERS: list[Callable[[float], Tensor]] = [
    lambda x: Normal(0.0, x).log_prob(torch.tensor(1.0)),
    lambda x: Normal(x, 2).expand([3]).mean,
    lambda x: Gamma(abs(x), torch.ones(2)).mean,
    lambda x: Uniform(x - 1, x + 1).entropy(),
    lambda x: Bernoulli(x).mean,
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("place", range(len(OF_NUMBERS)))
def test_parameters_that_are_numbers(place: int, options: Any) -> None:
    assert_matches_loop(
        OF_NUMBERS[place], [XS], scalars="python", configurations=[options], batch_sizes=[1, 5]
    )
