"""Draws under a seed: the same for every engine, executor, schedule and batch, and one by one."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, distributions, nn
from torch.utils import _pytree as pytree

import autobatch
from autobatch import DepthLimitError, OptionError, UnsupportedError
from tests import drawing_programs
from tests.generator.record import load_module

WAYS: dict[str, dict[str, Any]] = {
    "stackless": {},
    "recorded": {"trace_after": 0},
    "in order": {"fork": "off"},
    "program counter": {"engine": "program_counter"},
    "program counter, recorded": {"engine": "program_counter", "trace_after": 0},
    "untraced": {"executor": "vmap"},
    "chunks": {"chunk_size": 3},
    "most threads": {"schedule": "most_threads"},
    "narrow": {"max_width": 4},
}
XS = torch.rand(7, 3, generator=torch.Generator().manual_seed(0))


def leaves(tree: Any) -> list[Tensor]:
    return [torch.as_tensor(leaf, dtype=dtype_of(leaf)) for leaf in pytree.tree_leaves(tree)]


def dtype_of(leaf: Any) -> torch.dtype:
    return leaf.dtype if isinstance(leaf, Tensor) else {float: torch.float64}.get(type(leaf))


def one_by_one(func: Callable[..., Any], xs: Tensor = XS, seed: int = 5) -> list[Tensor]:
    """The oracle: the sequential engine, for each example by itself."""
    rows = [
        leaves(autobatch.vmap(func, engine="sequential", seed=seed, thread_offset=i)(xs[i : i + 1]))
        for i in range(len(xs))
    ]
    return [torch.cat(parts) for parts in zip(*rows, strict=True)]


def hold(
    func: Callable[..., Any], xs: Tensor = XS, seed: int = 5, exact: bool = True
) -> list[Tensor]:
    """Hold every way to the oracle, bit by bit where that is ``exact``."""
    same = equal if exact else nearly
    expected = one_by_one(func, xs, seed)
    together = leaves(autobatch.vmap(func, engine="sequential", seed=seed)(xs))
    assert same(together, expected), "sequential"
    for name, way in WAYS.items():
        found = leaves(autobatch.vmap(func, seed=seed, **way)(xs))
        assert same(found, expected), (name, found, expected)
    for way in ({}, {"engine": "program_counter"}, {"engine": "sequential"}):
        for i, result in autobatch.stream(func, list(xs), 2, seed=seed, **way):
            assert same(leaves(result), [part[i] for part in expected]), (way, i)
    return expected


def equal(found: list[Tensor], expected: list[Tensor]) -> bool:
    pairs = zip(found, expected, strict=True)
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


def nearly(found: list[Tensor], expected: list[Tensor]) -> bool:
    """The same but for the last places: of products, which round by their shape."""
    pairs = zip(found, expected, strict=True)
    return all(a.dtype == b.dtype and torch.allclose(a, b, 1e-5, 1e-6) for a, b in pairs)


# Every draw


def straight(x: Tensor) -> Tensor:
    return torch.rand(()) * x.sum()


def branching(x: Tensor) -> Tensor:
    if x[0] > 0.5:
        return torch.rand(())
    return torch.randn(()) + straight(x)


def tree(x: Tensor, depth: int) -> Tensor:
    u = torch.rand(())
    if depth == 0 or u < 0.3:
        return u
    return tree(x, depth - 1) + 2 * tree(x, depth - 1) + torch.rand(())


class Node:
    def __init__(self, x: Tensor) -> None:
        self.value = torch.rand(()) + branching(x)


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.4)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x) * self.scale(x) + random.random()

    def scale(self, x: Tensor) -> Tensor:
        return torch.rand(()) if x[1] > 0.5 else branching(x) * random.gauss(0.0, 1.0)


NOISY = Noisy()
DROPPED = nn.Sequential(nn.Identity(), nn.Dropout(0.5))
ATTENTION = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True)


def walk(x: Tensor) -> tuple[Tensor, int]:
    total, steps = torch.zeros(()), 0
    while torch.rand(()) < 0.8:
        total = total + torch.randn(())
        steps += 1
    return total, steps


def shuffled(x: Tensor) -> tuple[int, ...]:
    cards = list(range(6))
    random.shuffle(cards)
    return tuple(cards)


def sampler(x: Tensor) -> Tensor:
    return branching(x) + torch.rand(())


def mapped(x: Tensor) -> Tensor:
    return torch.vmap(lambda y: torch.rand(()) * y, randomness="different")(x)


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "rand": lambda x: (torch.rand(3), torch.rand(()), torch.rand(2, 0)),
    "like": lambda x: (torch.rand_like(x), torch.randn_like(x), torch.randint_like(x, 7)),
    "dtypes": lambda x: (
        *(torch.rand(2, dtype=torch.float16), torch.randn(2, dtype=torch.bfloat16)),
        *(torch.randn(3, dtype=torch.float64), torch.randn(2, dtype=torch.complex64)),
    ),
    "in place": lambda x: (
        *(x.clone().uniform_(1, 2), torch.zeros(2).exponential_(), torch.empty(3).normal_(1, 2)),
        *(torch.zeros(2).bernoulli_(0.5), torch.zeros(2).bernoulli_(x[:2]), x.clone().random_()),
        *(x.clone().geometric_(0.3), x.clone().cauchy_(), x.clone().log_normal_()),
    ),
    "integers": lambda x: (
        *(torch.randint(10, (3,)), torch.randint(0, 2**62, (2,)), torch.randint(-5, 5, ())),
        torch.zeros(2, dtype=torch.int8).random_(3, 9),
    ),
    "own integers": lambda x: torch.randint(0, 1 + int(10 * x[0]), (2,)),
    "own size": lambda x: torch.rand(1 + int(4 * x[0])).sum(),
    "permutation": lambda x: torch.randperm(5),
    "multinomial": lambda x: (torch.multinomial(x, 2), torch.multinomial(x, 5, True)),
    "multinomial, rows": lambda x: torch.multinomial(x.expand(2, 3), 4, replacement=True),
    "bernoulli": lambda x: (torch.bernoulli(x), x.bernoulli(0.3)),
    "normal": lambda x: (torch.normal(x, 2 * x), torch.normal(0.0, x), torch.normal(x, 1.0)),
    "dropout": lambda x: (F.dropout(x, 0.5), F.dropout(torch.ones(9), 0.5), F.dropout1d(x[None])),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.5, True),
    "modules": lambda x: DROPPED(torch.ones(4)) + DROPPED(x.sum()),
    "attention": lambda x: ATTENTION(*[x[:1].expand(2, 4)] * 3)[0],
    "uniform attention": lambda x: ATTENTION(*[torch.ones(2, 4)] * 3)[0] + x[0],
    "rrelu": lambda x: F.rrelu(x - 0.5, training=True),
    "gumbel": lambda x: F.gumbel_softmax(x),
    "poisson": lambda x: torch.poisson(5 * x),
    "normal distribution": lambda x: (
        *(distributions.Normal(x, 1.0).sample(), distributions.Normal(0.0, 1.0).sample()),
        distributions.Normal(0.0, x).rsample((2,)),
    ),
    "distributions": lambda x: (
        *(distributions.Categorical(x).sample(), distributions.Gamma(x + 1, 1.0).sample()),
        *(distributions.Beta(x + 1, 1.0).sample(), distributions.Exponential(x + 1).sample()),
        distributions.Dirichlet(x + 1).sample(),
    ),
    "python": lambda x: (
        *(random.random() * 2, random.gauss(0, 1), random.randint(0, 9), random.choice("ab") < "b"),
        *(random.uniform(0, x[0].item()), random.sample(range(100), 3), random.getrandbits(70) % 9),
    ),
    "shuffle": shuffled,
    "straight": lambda x: straight(x) + torch.rand(()),
    "branching": sampler,
    "tree": lambda x: tree(x, 4),
    "objects": lambda x: Node(x).value + torch.rand(()),
    "module": lambda x: NOISY(x) + torch.rand(()),
    "walk": walk,
    "comprehension": lambda x: sum([branching(x) * i for i in range(3)]),
    "partial": lambda x: functools.partial(tree, depth=2)(x) + torch.rand(()),
    "inner vmap": mapped,
    "no_grad": lambda x: quiet(x),
    "derivative": lambda x: torch.func.grad(parting)(x) + torch.rand(()),
    "derivative of calls": lambda x: torch.func.grad(sums_of_calls)(x) + torch.rand(()),
}  # fmt: skip


def quiet(x: Tensor) -> Tensor:
    with torch.inference_mode():
        y = F.dropout(torch.ones(4), 0.5) * branching(x)
    return y.clone()


def parting(x: Tensor) -> Tensor:
    """Threads that part make calls, under a derivative."""
    if x[0] > 0.5:
        return (x * branching(x)).sum() + torch.rand(()) * x[1]
    return (x**2 * branching(2 * x)).sum()


def sums_of_calls(x: Tensor) -> Tensor:
    if x[0] > 0.5:
        return (x * (branching(x) + branching(2 * x))).sum()
    return (x**3 * (branching(x) + tree(x, 2))).sum()


@pytest.mark.sampled(48)
@pytest.mark.parametrize("name", PROGRAMS)
def test_draws_are_the_same_however_a_program_runs(name: str) -> None:
    state = torch.get_rng_state(), random.getstate()
    found = hold(PROGRAMS[name], exact=name != "uniform attention")
    assert torch.equal(torch.get_rng_state(), state[0]) and random.getstate() == state[1]
    other = autobatch.vmap(PROGRAMS[name], seed=6)(XS)
    assert not equal(leaves(other), found), "it does not depend on the seed"
    if name not in ("own integers", "own size"):
        first = [torch.equal(part[0], row) for part in found for row in part[1:] if row.numel()]
        assert not all(first), "all threads draw the same"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", [0, 1, 2, 5, 7, 8])
def test_random_programs(seed: int) -> None:
    program = load_module(drawing_programs.source(seed, depth=1)).program
    hold(program, XS[:4], seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4, 6, *range(9, 60)])
def test_many_random_programs(seed: int) -> None:
    program = load_module(drawing_programs.source(seed, depth=2)).program
    hold(program, XS, seed)


def test_large_batches_draw_what_small_ones_do() -> None:
    xs = torch.zeros(600, 3)
    whole = autobatch.vmap(walk, seed=1)(xs)
    chunks = autobatch.vmap(walk, seed=1, chunk_size=50)(xs)
    assert torch.equal(whole[0], chunks[0]) and torch.equal(whole[1], chunks[1])
    part = autobatch.vmap(walk, seed=1, thread_offset=234)(xs[:5])
    assert torch.equal(part[0], whole[0][234:239])
    assert torch.equal(part[1], whole[1][234:239])
    mean = whole[1].double().mean()  # of a geometric law: 4, of deviation 4.5
    assert abs(mean - 4) < 4 * 4.5 / 600**0.5


def test_a_decorated_function_and_execute_take_a_seed() -> None:
    decorated = autobatch.function(seed=5)(sampler)
    expected = autobatch.vmap(sampler, seed=5)(XS)
    assert torch.equal(decorated.batch(XS), expected)
    assert torch.equal(autobatch.function(sampler).with_options(seed=5).batch(XS), expected)
    (found,) = autobatch.execute(autobatch.lower(sampler), XS, seed=5)
    assert torch.equal(found, expected)
    (found,) = autobatch.execute(autobatch.lower(sampler), XS[2:], seed=5, thread_offset=2)
    assert torch.equal(found, expected[2:])
    assert dict(decorated.stream(list(XS))).keys() == set(range(7))


def test_the_numbers_of_a_thread_are_those_of_its_draws() -> None:
    """A program without calls of its own: the n-th draw is one of seed, index and n."""

    def one(x: Tensor) -> Tensor:
        return torch.rand(())

    def third(x: Tensor) -> Tensor:
        a, b = torch.randn(100), torch.randint(9, ())
        return torch.rand(()) + 0 * a[0] * b

    def three(x: Tensor) -> Tensor:
        return torch.stack([torch.rand(()), torch.rand(()), torch.rand(())])

    first = autobatch.vmap(one, seed=2)(XS)
    all_three = autobatch.vmap(three, seed=2)(XS)
    assert torch.equal(first, all_three[:, 0])
    assert torch.equal(autobatch.vmap(third, seed=2)(XS), all_three[:, 2])
    assert len(set(all_three.flatten().tolist())) == 21


# Fork-join calls


def test_calls_that_draw_run_as_one() -> None:
    with autobatch.counts() as together:
        autobatch.vmap(lambda x: tree(x, 6), seed=3)(XS)
    with autobatch.counts() as apart:
        autobatch.vmap(lambda x: tree(x, 6), seed=3, fork="off")(XS)
    assert together.block_executions < apart.block_executions / 3


def hidden(x: Tensor, layer: Any) -> Tensor:
    return layer(x).sum() if x[0] > 2 else layer(x)[0]


def around(x: Tensor, layer: Any) -> Tensor:
    a = hidden(x, layer)
    u = layer(torch.ones(3)).sum()
    b = hidden(x, layer)
    return a + 10 * u + 100 * b + torch.rand(())


def test_draws_that_nobody_could_foresee() -> None:
    def program(x: Tensor) -> Tensor:
        return around(x, nn.Dropout(0.5))

    hold(program)


# Failures, and work that is done again


def fails(x: Tensor) -> Tensor:
    before = torch.rand(())
    chosen = torch.multinomial(-x if x[0] > 0.8 else x, 1)[0]
    if torch.rand(()) < 0.2:
        raise ValueError("unlucky")
    return before + chosen + 10 * torch.rand(()) + branching(x)


def picks(x: Tensor) -> float:
    items = [1.0, 2.0] if x[0] < 0.8 else []
    return random.random() + 10 * random.choice(items) + 100 * random.random()


def forked(x: Tensor) -> Tensor:
    return fails(x) + 2 * fails(x)


@dataclass
class Outcome:
    value: Any
    error: str


@pytest.mark.parametrize("func", [fails, picks, forked], ids=lambda func: func.__name__)
def test_failures_change_no_draw(func: Callable[..., Any]) -> None:
    xs = torch.rand(40, 3, generator=torch.Generator().manual_seed(1))

    def outcomes(**way: Any) -> list[tuple[Any, str]]:
        results = autobatch.vmap(func, seed=4, on_error="isolate", **way)(xs)
        return [(r.value, repr(r.exception)) for r in results]

    expected = outcomes(engine="sequential")
    assert 5 < sum(error == "None" for _, error in expected) < 35
    for name, way in WAYS.items():
        assert repr(outcomes(**way)) == repr(expected), name
    with pytest.raises(Exception) as first:
        autobatch.vmap(func, seed=4, engine="sequential")(xs)
    for name, way in WAYS.items():
        with pytest.raises(type(first.value)) as found:
            autobatch.vmap(func, seed=4, **way)(xs)
        assert str(found.value) == str(first.value), name


def test_a_limit_counts_as_ever() -> None:
    with pytest.raises(DepthLimitError):
        autobatch.vmap(lambda x: tree(x, 40), seed=1, max_depth=3)(torch.ones(50, 3))


# Gradients


def noisy_norm(x: Tensor, w: Tensor) -> Tensor:
    y = F.dropout(w * x, 0.5) + torch.randn_like(x) * w
    return (y**2).sum() if torch.rand(()) < 0.5 else branching(x) * y.sum()


def test_gradients_are_those_of_the_same_draws() -> None:
    grads = []
    for way in ({"engine": "sequential"}, {}, {"engine": "program_counter"}):
        w = torch.ones(3, requires_grad=True)
        out = autobatch.vmap(noisy_norm, in_dims=(0, None), seed=9, **way)(XS, w)
        grads.append(torch.autograd.grad(out.sum(), w)[0])
    assert grads[0].abs().sum() > 0
    for grad in grads[1:]:
        torch.testing.assert_close(grad, grads[0])


# Laws of the operations


def test_operations_have_their_laws() -> None:
    xs = torch.tensor([0.1, 0.2, 0.7]).expand(20_000, 3)

    def program(x: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.bernoulli(x),
            F.one_hot(torch.multinomial(x, 1)[0], 3).float(),
            F.one_hot(torch.multinomial(x, 2), 3).sum(0).float(),
            F.one_hot(torch.randperm(3)[0], 3).float(),
            x.clone().exponential_(2.0),
            torch.normal(x, 2.0),
            F.dropout(torch.ones(3), 0.25),
            F.one_hot(torch.randint(3, ()), 3).float(),
            x.clone().geometric_(0.5),
        )

    p = torch.tensor([0.1, 0.2, 0.7])
    third = torch.full((3,), 1 / 3)
    # Without replacement, the chance to be among two: each first, or second after another.
    both = torch.stack(
        [p[i] + sum(p[j] * p[i] / (1 - p[j]) for j in range(3) if j != i) for i in range(3)]
    )
    expected = (
        p,
        p,
        both,
        third,
        torch.full((3,), 0.5),
        p,
        torch.ones(3),
        third,
        torch.full((3,), 2.0),
    )
    deviations = (0.5, 0.5, 0.5, 0.5, 0.5, 2.0, 0.6, 0.5, 1.5)
    found = autobatch.vmap(program, seed=11)(xs)
    for each, mean, deviation in zip(found, expected, deviations, strict=True):
        assert (each.mean(0) - mean).abs().max() < 4.5 * deviation / 20_000**0.5


# Options


def test_options_that_cannot_be() -> None:
    for bad in (1.5, "x", True, 2**64):
        with pytest.raises(OptionError, match="seed is"):
            autobatch.vmap(straight, seed=bad)
    for randomness in ("same", "error"):
        with pytest.raises(OptionError, match=f"randomness is '{randomness}'"):
            autobatch.vmap(straight, randomness=randomness, seed=1)
        with pytest.raises(OptionError, match="with a seed"):
            autobatch.function(straight).with_options(randomness=randomness).with_options(seed=1)
    assert autobatch.vmap(straight, randomness="different", seed=1)(XS).shape == (7,)
    for bad in (-1, 1.0, 2**47):
        with pytest.raises(OptionError, match="thread_offset is"):
            autobatch.vmap(straight, seed=1, thread_offset=bad)
    with pytest.raises(OptionError, match="there is no seed"):
        autobatch.vmap(straight, randomness="different", thread_offset=3)


GENERATOR = torch.Generator().manual_seed(0)


def from_generator(x: Tensor) -> Tensor:
    return x + torch.rand(3, generator=GENERATOR)


def into(x: Tensor) -> Tensor:
    return x.clone().normal_(generator=GENERATOR)


@autobatch.per_thread
def on_the_host(x: Tensor) -> Tensor:
    return torch.rand(3, generator=GENERATOR)


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
@pytest.mark.parametrize("func", [from_generator, into])
def test_a_generator_of_its_own_is_refused(func: Callable[..., Any], engine: str) -> None:
    with pytest.raises(UnsupportedError, match="generator of its own") as caught:
        autobatch.vmap(func, seed=1, engine=engine)(XS)
    text = str(caught.value)
    assert "^^^" in text and "test_random_draws.py" in text and "leave generator= out" in text
    with pytest.raises(UnsupportedError, match="generator of its own"):
        autobatch.vmap(lambda x: on_the_host(x), seed=1, engine=engine)(XS)


@pytest.mark.parametrize(
    "draw",
    [
        torch.bernoulli,
        torch.poisson,
        lambda p: torch.normal(p, 1.0),
        lambda p: torch.multinomial(torch.ones(5) * p, 2),
        lambda p: torch.zeros(3).bernoulli_(p),
        lambda p: (torch.ones(3) * p).bernoulli_(p),
    ],
)
@pytest.mark.parametrize("executor", ["traced", "vmap"])
def test_no_draw_by_what_differs_is_the_same(draw: Any, executor: str) -> None:
    probabilities = torch.tensor([0.2, 0.5, 0.5])
    for vmap in (torch.vmap, functools.partial(autobatch.vmap, executor=executor)):
        with pytest.raises(RuntimeError) as raised:
            vmap(draw, randomness="same")(probabilities)
        assert "_VariableFunctionsClass" not in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"trace_after": 0}, {"engine": "program_counter"}, {"engine": "sequential"}),
        *({"chunk_size": 3}, {"engine": "sequential", "on_error": "isolate"}),
    ],
)
def test_the_same_draws_are_those_of_torch_vmap(options: dict[str, Any]) -> None:
    own, again = torch.Generator(), torch.Generator()

    def program(x: Tensor, generator: torch.Generator = own) -> tuple[Tensor, ...]:
        y = torch.empty(2).normal_() + 0 * x[:2]
        if "chunk_size" in options:  # it knows of torch's own generators
            return y, F.dropout(x)
        return y, F.dropout(x), torch.rand(2, generator=generator) * torch.rand_like(x[:2])

    draws = torch.vmap(functools.partial(program, generator=again), randomness="same")
    for seed in (1, 2):
        found = []
        for run in (draws, autobatch.vmap(program, randomness="same", **options)):
            torch.manual_seed(seed)
            result = run(XS)
            if "on_error" in options and isinstance(result, list):
                parts = zip(*(each.value for each in result), strict=True)
                result = tuple(map(torch.stack, parts))
            found.append((*result, torch.rand(3)))
        torch.testing.assert_close(found[1], found[0])


def test_threads_that_part_draw_the_same_one_by_one() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        first = torch.rand(2)
        if x[0] > 0.5:
            return first, torch.rand(1) + torch.rand(1)
        return first, torch.zeros(1)

    torch.manual_seed(0)
    first, second = autobatch.vmap(program, randomness="same", engine="sequential")(XS)
    after = torch.rand(1)
    torch.manual_seed(0)
    expected, added = torch.rand(2), torch.rand(1) + torch.rand(1)
    assert (first == expected).all()
    assert torch.equal(second, torch.where(XS[:, :1] > 0.5, added, torch.zeros(1)))
    assert torch.equal(after, torch.rand(1)), "it ends where most draws have led"


@autobatch.per_thread
def of_a_length(n: int) -> float:
    return float(torch.rand(n).sum())


def drawn_in_parts(x: Tensor) -> tuple[Tensor, ...]:
    """Threads part, draw, meet and draw; of lengths of their own, in place, in host code."""
    n = int(x[0] * 3)
    first = torch.rand(2) if n > 1 else torch.zeros(2)
    if n == 0:
        first = first + torch.rand(2)
    for _ in range(n):
        first = first + torch.rand(())
    second = torch.zeros(3)
    if x[1] > 0.5:
        second[1:].uniform_()
    return first, second.clone().uniform_(), torch.rand(n + 1).sum() + of_a_length(n), F.dropout(x)


@pytest.mark.parametrize(
    "options",
    [
        *({"executor": "vmap"}, {"trace_after": 0}, {"engine": "program_counter"}),
        *({"chunk_size": 3}, {"schedule": "most_threads"}),
    ],
)
def test_threads_that_part_draw_the_same_together(options: dict[str, Any]) -> None:
    found = []
    for chosen in ({"engine": "sequential"}, options):
        torch.manual_seed(5)
        result = autobatch.vmap(drawn_in_parts, randomness="same", **chosen)(XS)
        after = () if "chunk_size" in chosen else (torch.rand(2),)
        found.append((*result, *after))
    torch.testing.assert_close(found[1], found[0][: len(found[1])])


def test_rows_within_a_program_draw_the_same_after_threads_have_parted() -> None:
    def program(x: Tensor) -> Tensor:
        first = torch.rand(2).sum() if x[0] > 0.5 else x[0] * 0
        return first + autobatch.vmap(lambda row: torch.rand(()) + 0 * row)(x)

    rows = autobatch.vmap(program, randomness="same")(XS)
    assert (rows == rows[:, :1]).all()
    assert len(rows[:, 0].unique()) > 1


def test_randomness_means_what_it_did_without_a_seed() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        return torch.rand(2) + 0 * x[:2], torch.empty(2).normal_(), F.dropout(torch.ones(8))

    for part in autobatch.vmap(program, randomness="same")(XS)[:1]:
        assert (part == part[0]).all()
    different = autobatch.vmap(program, randomness="different")(XS)
    assert not any((part == part[0]).all() for part in different)
    again = autobatch.vmap(program, randomness="different")(XS)
    assert not any(torch.equal(a, b) for a, b in zip(different, again, strict=True))
    with pytest.raises(RuntimeError, match="random"):
        autobatch.vmap(program)(XS)


def test_nothing_is_drawn_where_a_seed_is_not_used() -> None:
    with autobatch.counts() as seeded:
        autobatch.vmap(lambda x: x * 2 + 1, seed=3, trace_after=0)(XS)
    with autobatch.counts() as plain:
        autobatch.vmap(lambda x: x * 2 + 1, trace_after=0)(XS)
    assert seeded == plain


def up_to(n):
    return torch.randint(0, n, (5,))


def about(n):
    return torch.randint(n - 3, n + 1, ()), torch.randint(n, (2, 3))


def by_name(n):
    return torch.randint(low=1, high=n + 2, size=(4,), dtype=torch.int64)


@pytest.mark.parametrize("program", [up_to, about, by_name], ids=lambda f: f.__name__)
@pytest.mark.parametrize("scalars", ["python", "tensor"])
def test_integers_below_a_threads_own_bound(program, scalars):
    """One operation for all threads; the numbers that each draws alone."""
    n = torch.tensor([1, 5, 7, 100, 2**31])
    with autobatch.counts() as counted:
        found = autobatch.vmap(program, scalars=scalars, seed=3)(n)
    alone = autobatch.vmap(program, scalars=scalars, seed=3, engine="sequential")(n)
    for got, want in zip(pytree.tree_leaves(found), pytree.tree_leaves(alone), strict=True):
        assert got.dtype is torch.int64
        assert got.tolist() == want.tolist()
    assert counted.fallbacks == 0


def test_integers_without_a_seed_stay_below_their_bounds():
    n = torch.tensor([1, 2, 3, 50])
    found = autobatch.vmap(
        lambda n: torch.randint(0, n, (200,)), scalars="python", randomness="different"
    )(n)
    assert found.amin(1).tolist() == [0, 0, 0, 0]
    assert (found < n[:, None]).all()
    assert [len(row.unique()) for row in found[:3]] == [1, 2, 3]


def test_bounds_with_nothing_between_are_torchs_error():
    with pytest.raises(RuntimeError, match="expects 'from' to be less than 'to'"):
        autobatch.vmap(up_to, scalars="python", seed=0)(torch.tensor([5, 2, 0, 100]))


def dropped(n, x):
    return torch.nn.functional.dropout(x[:n], 0.5), torch.rand(())


@pytest.mark.parametrize("chunk_size", [1, 2, 3])
def test_a_row_of_no_elements_does_not_tell_what_a_draw_is_a_part_of(chunk_size) -> None:
    """Dropout gives back an empty tensor itself, and makes a new one of any other."""
    ns, xs = torch.tensor([3, 0, 0, 2, 1]), torch.randn(5, 4)
    options = {"scalars": "python", "seed": 3, "ragged_out": ("list", None)}
    wanted = autobatch.vmap(dropped, **options, engine="sequential")(ns, xs)
    found = autobatch.vmap(dropped, **options, chunk_size=chunk_size)(ns, xs)
    assert torch.equal(found[1], wanted[1])
    for one, other in zip(found[0], wanted[0], strict=True):
        assert torch.equal(one, other)


def drops_nothing(x, w):
    y = F.dropout(w, 0.5, training=False) + torch.dropout(w, 0.5, False)
    return x + y + F.alpha_dropout(w, 0.5, training=False) + F.rrelu(w, training=False)


@pytest.mark.parametrize("options", [{}, {"executor": "vmap"}, {"executor": "compiled"}])
def test_what_drops_nothing_draws_nothing(options):
    """Of what all threads share, too: it was refused as a draw."""
    w = torch.ones(3)
    found = autobatch.vmap(drops_nothing, in_dims=(0, None), **options)(torch.ones(2, 3), w)
    assert torch.equal(found, torch.full((2, 3), 5.0))


OF_NUMPY = np.random.RandomState(0)
OF_PYTHON = random.Random(0)
FOREIGN: dict[str, Callable[..., Any]] = {
    "random": lambda x: random.random(),
    "choice": lambda x: random.choice(range(1000)),
    "shuffle": lambda x: x + shuffled(range(1000)),
    "rand": lambda x: x + np.random.rand(),
    "randint": lambda x: np.random.randint(1000) if x > 0 else 7,
    "RandomState": lambda x: OF_NUMPY.normal(),
    "Random": lambda x: OF_PYTHON.random(),
    "Generator": lambda x: torch.from_numpy(NUMPYS.normal(size=2)),
    "rounds": lambda x: autobatch.pfor(lambda i: np.random.rand(), 2, fallback="allow"),
}
"""Draws that are not torch's; each example draws at one place."""


def shuffled(items):
    items = list(items)
    random.shuffle(items)
    return items[0]


def begun() -> None:
    global NUMPYS
    NUMPYS = np.random.default_rng(3)
    for each in (random, np.random, OF_NUMPY, OF_PYTHON):
        each.seed(3)


begun()


@pytest.mark.sampled(24)
@pytest.mark.parametrize("randomness", ["error", "different", "same", "seed"])
@pytest.mark.parametrize("name", FOREIGN)
def test_draws_that_are_not_torchs_are_the_loops(name, randomness):
    """Also under a seed, but for Python's ``random``, which draws from it."""
    xs = torch.tensor([1.0, -2.0, 0.5, 3.0, 2.0])
    drawn: Any = {"seed": 5} if randomness == "seed" else {"randomness": randomness}
    begun()
    expected = torch.stack([torch.as_tensor(FOREIGN[name](x), dtype=None) for x in xs])
    goes_on = random.random(), np.random.rand(), OF_NUMPY.rand(), OF_PYTHON.random()
    for way in ({}, {"plain": "never"}, {"engine": "sequential"}, {"chunk_size": 2}):
        begun()
        found = autobatch.vmap(FOREIGN[name], **drawn, **way)(xs)
        if randomness == "seed" and name in ("random", "choice", "shuffle"):
            assert torch.equal(found, autobatch.vmap(FOREIGN[name], seed=5, plain="never")(xs))
            assert not torch.equal(found.double(), expected.double())
            begun()
            untouched = random.getstate()
            autobatch.vmap(FOREIGN[name], seed=5, **way)(xs)
            assert random.getstate() == untouched
            continue
        torch.testing.assert_close(found, expected, check_dtype=False)
        now = random.random(), np.random.rand(), OF_NUMPY.rand(), OF_PYTHON.random()
        assert now == goes_on, "the generators go on as in the loop"
