"""What is drawn within transforms of a program, one thread after the other: as in a batch."""

from __future__ import annotations

import random

import pytest
import torch
from torch.utils import _pytree as pytree

import autobatch
from autobatch.batching.levels import DrawError

X = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [0.5, 0.25, 0.125]])
TOGETHER = {"executor": "vmap"}
ALONE = {"engine": "sequential"}


def helper(x):
    if x.sum() > 4:
        return x * torch.rand(())
    while x.sum() < 3:
        x = x + torch.rand(())
    return x * random.random()


def drawn(x):
    return (helper(x).sum() + helper(x).sum() * torch.rand(())) ** 2


def of_a_helper(x):
    return helper(x) * helper(x)


def pulled(x):
    out, pull = torch.func.vjp(drawn, x)
    return out, pull(helper(x).sum())


INSIDE = {
    "grad": torch.func.grad(drawn),
    "grad of a function made within": lambda x: torch.func.grad(lambda y: drawn(y) + x.sum())(x),
    "jacrev": torch.func.jacrev(of_a_helper),
    "jacfwd": torch.func.jacfwd(of_a_helper),
    "hessian": torch.func.hessian(drawn),
    "our hessian": autobatch.hessian(drawn),
    "vjp": pulled,
    "jvp": lambda x: torch.func.jvp(drawn, (x,), (helper(x),)),
    "torch's vmap": lambda x: torch.vmap(lambda v: drawn(v.expand(2)), randomness="different")(x),
    "vmap": lambda x: autobatch.vmap(lambda v: drawn(v.expand(2)))(x),
    "vmap of a gradient": lambda x: autobatch.vmap(torch.func.grad(drawn))(x.outer(x)),
    "sort": lambda x: sorted(x.tolist(), key=lambda v: helper(torch.full((2,), v)).sum().item()),
    "pfor": lambda x: autobatch.pfor(lambda i: drawn(x * i), 3),
    "a seed of its own": lambda x: autobatch.vmap(torch.bernoulli, seed=3)(x.sigmoid()),
}
inside = pytest.mark.parametrize("name", INSIDE)


def both(function, **options):
    return [autobatch.vmap(function, **options, **way)(X) for way in (TOGETHER, ALONE)]


@pytest.mark.sampled(4)
@inside
def test_under_a_seed(name):
    """The numbers are those of a batch, and so are those that come after."""
    together, alone = both(lambda x: (INSIDE[name](x), torch.rand(())), seed=7)
    torch.testing.assert_close(alone, together)
    if name not in ("vjp", "jvp", "sort"):
        function = INSIDE[name]
        together, alone = both(function, seed=7)
        torch.testing.assert_close(alone, together)


@pytest.mark.sampled(2)
@inside
def test_without_one(name):
    """Where draws are errors they are so within; where not, they are not."""
    if name != "a seed of its own":
        for way in (TOGETHER, ALONE):
            with pytest.raises(DrawError):
                autobatch.vmap(INSIDE[name], **way)(X)
    if name != "vjp":  # which draws anew as it pulls back, and is refused in a batch
        for found in both(INSIDE[name], randomness="different"):
            assert all(part.isfinite().all() for part in pytree.tree_leaves(found))


@pytest.mark.parametrize("outer", ["error", "same", "different"])
@pytest.mark.parametrize("inner", [None, "error", "same", "different"])
def test_what_draws_mean_in_a_vmap_inside(inner, outer):
    said = {} if inner is None else {"randomness": inner}

    def rows(row):
        return autobatch.vmap(lambda v: v * 0 + torch.rand(()), **said)(row)

    seen = []
    for way in (TOGETHER, ALONE):
        if outer == "error":
            with pytest.raises(DrawError):
                autobatch.vmap(rows, **way)(X)
            continue
        found = autobatch.vmap(rows, randomness=outer, **way)(X)
        seen.append((len(found.unique()), *(len(row.unique()) for row in found)))
    assert len(set(seen)) <= 1


@pytest.mark.parametrize("given", [{"scalars": "python"}, {"max_steps": 99}, {"seed": 3}], ids=str)
def test_options_of_a_vmap_inside(given):
    """One with options of its own is a batch of its own, under a seed, too."""

    def kind(n):
        return n / 2 if isinstance(n, float) else n

    def rows(row):
        return torch.rand(()), autobatch.vmap(kind, **given)(row), torch.rand(())

    together, alone = both(rows, seed=7)
    torch.testing.assert_close(alone, together)
    torch.testing.assert_close(alone[1], autobatch.vmap(autobatch.vmap(kind, **given))(X))


@pytest.mark.parametrize("way", [TOGETHER, ALONE], ids=str)
def test_a_batch_within_a_batch_of_torchs(way):
    """``torch.vmap(autobatch.vmap(f))`` draws by laws that are made of torch's operations, too."""
    inner = autobatch.vmap(lambda x: torch.bernoulli(x.sigmoid()), seed=7, **way)
    found = torch.vmap(inner)(torch.stack([X, X]))
    assert ((found == 0) | (found == 1)).all()


def walk(x):
    n = 0
    while x.sum() < 9 and n < 3:
        x, n = x * 1.5 + torch.randn(3) * x, n + 1
    return (x * x * torch.rand(())).sum()


@pytest.mark.parametrize("name", ["hessian", "jacfwd", "jacrev", "grad", "jvp", "vmap"])
def test_transforms_of_torchs_around_a_seeded_batch(name):
    def of(**way):
        drawn = autobatch.vmap(walk, seed=5, **way)
        if name == "grad":
            return torch.func.grad(lambda x: drawn(x).sum())(X)
        if name == "jvp":
            return torch.func.jvp(drawn, (X,), (torch.ones_like(X),))
        if name == "vmap":
            return torch.vmap(drawn)(torch.stack([X, X * 0.5]))
        return getattr(torch.func, name)(drawn)(X)

    torch.testing.assert_close(of(**ALONE), of(**TOGETHER))
