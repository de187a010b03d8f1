"""``randomness="error"``: whatever engine runs a program, what draws raises."""

from __future__ import annotations

import functools
import heapq
import itertools
import re
from contextlib import suppress

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import autobatch

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
ENGINES = ["stackless", "program_counter", "sequential"]
DROPOUT = nn.Dropout(0.5)
CHAIN = nn.Sequential(nn.Identity(), DROPOUT)


def behind_a_branch(x):
    if x.sum() > 0:
        return x + torch.rand(())
    return x + torch.randn(3)


def within_a_call(x):
    def inner(y):
        return y * torch.rand(3)

    return inner(x)


DRAWING = {
    "branch": behind_a_branch,
    "call": within_a_call,
    "function": lambda x: F.dropout(x, 0.5),
    "within torch": lambda x: F.gumbel_softmax(x),
    "module": lambda x: DROPOUT(x),
    "itself": DROPOUT,
    "chain": lambda x: CHAIN(x),
    "write": lambda x: torch.empty(3).normal_() + x,
    "write of its own": lambda x: x.mul(2).uniform_(),
    "init": lambda x: nn.init.normal_(torch.empty(3)) + x,
    "like": lambda x: torch.rand_like(x),
    "of what is shared": lambda x: torch.bernoulli(torch.full((3,), 0.5)) + x,
    "place": lambda x: x[torch.randperm(3)],
    "operator": lambda x: torch.ops.aten.rand([3]) + x,
    "law": lambda x: torch.distributions.Normal(x, 1.0).sample(),
    "gradient": lambda x: torch.func.grad(lambda y: (y * torch.rand(3)).sum())(x),
    "mapped": lambda x: torch.vmap(lambda y: y * torch.rand(()), randomness="different")(x),
    "host": lambda x: sorted([1, 2], key=lambda k: torch.rand(()).item())[0] + x,
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", DRAWING)
def test_what_draws_raises(name, engine):
    before = torch.get_rng_state()
    for options in ({}, {"randomness": "error"}):
        with pytest.raises(RuntimeError, match=r"draws random numbers.*different") as caught:
            autobatch.vmap(DRAWING[name], engine=engine, **options)(X)
        assert type(caught.value).__name__ == "DrawError"
    if engine == "sequential":  # nothing has been drawn
        assert torch.equal(torch.get_rng_state(), before)
    for options in ({"randomness": "different"}, {"seed": 0}):
        assert autobatch.vmap(DRAWING[name], engine=engine, **options)(X).shape[0] == 4


@pytest.mark.parametrize("transform", [autobatch.vmap, torch.vmap])
def test_which_of_two_maps_refuses_a_draw(transform):
    def drawn(y):
        return y + torch.rand(())

    twice = transform(transform(drawn, randomness="different"), randomness="different")
    for function in (transform(drawn, randomness="different"), lambda x: transform(drawn)(x)):
        batched = autobatch.vmap(function)
        for _ in range(4):
            with pytest.raises(RuntimeError, match="of a vmap within another, the outermost one's"):
                batched(X)
        results = autobatch.vmap(function, on_error="isolate")(X)
        assert all("the outermost one's" in str(each.exception) for each in results)
    with pytest.raises(RuntimeError, match=r"the outermost one's randomness says so\n"):
        autobatch.vmap(twice)(X[None])
    with pytest.raises(RuntimeError, match=r"that do not depend on how the batch runs\n"):
        autobatch.vmap(drawn)(X)


def host_draw(x):
    return x + torch.rand(3, generator=torch.Generator().manual_seed(0))


@autobatch.per_thread
def apart(x):
    return x + torch.rand(3)


EVEN = nn.Dropout(0.5).eval()
ALLOWED = {
    "generator": host_draw,
    "thread by thread": lambda x: apart(x),
    "still": lambda x: F.dropout(x, 0.5, training=False),
    "in evaluation": lambda x: EVEN(x) * 2,
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ALLOWED)
def test_what_may_draw_or_does_not(name, engine):
    assert autobatch.vmap(ALLOWED[name], engine=engine)(X).shape == X.shape


def test_it_is_told_where():
    for engine in ENGINES:
        with pytest.raises(RuntimeError) as caught:
            autobatch.vmap(within_a_call, engine=engine)(X)
        assert any("torch.rand(3)" in note for note in caught.value.__notes__)


def in_a_handler(x):
    try:
        return x + torch.randn(3)
    except RuntimeError:
        return x


def suppressed(x):
    with suppress(RuntimeError):
        x = x + torch.rand_like(x)
    return x


def in_a_callee(x):
    try:
        return within_a_call(x)
    except Exception:
        return x
    finally:
        x = x * 2


def drawn(*_):
    return torch.rand(()).item()


def a_key(x):
    try:
        return sorted([1, 2], key=lambda _: drawn())[0] + x
    except RuntimeError:
        return x


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("program", [in_a_handler, suppressed, in_a_callee, a_key])
def test_no_handler_of_the_programs_gets_it(program, engine):
    for _ in range(2):
        with pytest.raises(RuntimeError, match="draws random numbers") as caught:
            autobatch.vmap(program, engine=engine)(X)
        assert any("Example index: 0" in note for note in caught.value.__notes__)


CALLED_BY_THE_HOST = {
    "heapq": lambda x: heapq.nsmallest(1, [1, 2], key=drawn)[0] + x,
    "reduce": lambda x: functools.reduce(lambda a, b: a + drawn(), [1, 2]) + x,
    "re": lambda x: len(re.sub("a", lambda m: str(drawn()), "aa")) + x,
    "groupby": lambda x: len(list(itertools.groupby([1, 2], key=drawn))) + x,
    "partial": lambda x: sorted([1, 2], key=functools.partial(drawn, 1))[0] + x,
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CALLED_BY_THE_HOST)
def test_what_the_host_calls_may_not_draw(name, engine):
    with pytest.raises(RuntimeError, match="draws random numbers"):
        autobatch.vmap(CALLED_BY_THE_HOST[name], engine=engine)(X)
    drawing = autobatch.vmap(CALLED_BY_THE_HOST[name], engine=engine, randomness="different")
    assert drawing(X).shape == X.shape
