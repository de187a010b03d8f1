"""Seeded draws in machine code: the engines' numbers, of a launch in which no thread gives up.

They are the same to the bit, normal ones in float32, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import autobatch
from tests import drawing_programs
from tests.generator.record import load_module

pytest.importorskip("llvmlite")

XS = torch.rand(7, 3, generator=torch.Generator().manual_seed(0))
HEAD = "import random\nimport torch\nimport torch.nn.functional as F\n\n\ndef program(x):\n"


def close(found: Any, expected: Any) -> None:
    a, b = pytree.tree_leaves(found), pytree.tree_leaves(expected)
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)  # of what is computed with them


def held(func: Callable[..., Any], *args: Any, seed: int = 5, given_up: int = 0) -> None:
    """Hold a launch to the sequential engine."""
    args = args or (XS,)
    for offset in (0, 2**33 + 5):
        options: dict[str, Any] = {"seed": seed, "thread_offset": offset}
        expected = autobatch.vmap(func, engine="sequential", **options)(*args)
        with autobatch.counts() as counts:
            found = autobatch.vmap(func, executor="compiled", **options)(*args)
        close(found, expected)
        assert (counts.launches, counts.given_up) == (1, given_up)


# fmt: off
EXACT = [
    "torch.rand(3)", "torch.rand(())", "torch.rand(9)", "torch.rand(2, 3, dtype=torch.float64)",
    "torch.rand_like(x)", "torch.randint(0, 9, ())", "torch.randint(5, (7,))",
    "torch.randint(-3, 2**31, (2, 2))", "torch.randint(0, 3, (4,), dtype=torch.int32)",
    "torch.randint_like(x, 7)", "torch.randint(0, n, ())", "torch.randint(-n, n, (3,))",
    "torch.bernoulli(x)", "torch.bernoulli(x[0])", "x.bernoulli(0.3)", "F.dropout(x, 0.4)",
    "random.random()", "random.randint(1, 6)", "random.randrange(n)", "random.randrange(-2, n)",
    "random.uniform(-1, 2.5)", "random.getrandbits(0) + random.getrandbits(50)",
    "random.gauss(0.5, 2.0)", "random.normalvariate(0.5, 2.0)", "random.expovariate(3)",
]
NORMAL = [
    "torch.randn(())", "torch.randn(1)", "torch.randn(2)", "torch.randn(9)", "torch.randn_like(x)",
    "torch.normal(x, 2.0)", "torch.normal(0.5, x)",
    "torch.normal(x, x + 1)", "torch.normal(1.0, 2.0, (4,))",
]
# fmt: on


@pytest.mark.sampled(2)
@pytest.mark.parametrize("draws", [EXACT, NORMAL])
def test_every_draw(draws: list[str]) -> None:
    """All in one program, each after the others: it begins where they have left the thread."""
    lines = ["n = int(x[0] * 9) + 1", "if x[1] > 1:", "    raise ValueError"]
    source = "\n    ".join([HEAD + "    " + lines[0], *lines[1:], f"return {', '.join(draws)}"])
    program = load_module(source).program
    held(program)
    options = {"seed": 2**63 + 11, "executor": "compiled"}
    found = autobatch.vmap(program, **options)(XS)
    expected = autobatch.vmap(program, seed=2**63 + 11)(XS)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_many_normal_numbers_are_the_same_to_the_bit() -> None:
    def far(x: Tensor) -> Tensor:
        return torch.randn(64) if x[0] < 2 else x.new_zeros(64)

    xs = torch.zeros(1_000, 1)
    held(far, xs)
    found = autobatch.vmap(far, seed=3, executor="compiled")(xs)
    assert torch.equal(found, autobatch.vmap(far, seed=3)(xs))


def test_normal_doubles_go_block_by_block() -> None:
    """The last bits of their logarithms differ from library to library."""

    def far(x: Tensor) -> Tensor:
        return torch.randn(2, dtype=torch.float64) if x[0] < 2 else x[:2].double()

    found = autobatch.vmap(far, seed=3, executor="compiled")(XS)
    assert torch.equal(found, autobatch.vmap(far, seed=3)(XS))


class Node:
    def __init__(self, x: Tensor) -> None:
        self.value = torch.rand(()) + branching(x)


def branching(x: Tensor) -> Tensor:
    return torch.rand(()) if x[0] > 0.5 else torch.randn(()) + straight(x)


def straight(x: Tensor) -> Tensor:
    return torch.rand(()) * x.sum()


def tree(x: Tensor, depth: int) -> Tensor:
    u = torch.rand(())
    if depth == 0 or u < 0.3:
        return u
    return tree(x, depth - 1) + 2 * tree(x, depth - 1) + torch.rand(())


def recursive(x: Tensor) -> Tensor:
    return tree(x, 4) + Node(x).value + torch.rand(())


def metropolis(x: Tensor) -> tuple[Tensor, int]:
    y, accepted = x, 0
    for _ in range(20):
        z = y + 0.5 * torch.randn(3)
        if torch.rand(()) < torch.exp(((y * y - z * z) * 0.5).sum()):
            y, accepted = z, accepted + 1
    return y, accepted


def rejection(x: Tensor) -> tuple[float, int]:
    tries = 1
    while True:
        u, v = random.uniform(-1.0, 1.0), random.random()
        if u * u + v * v < 1.0:
            return u + v, tries
        tries += 1


@pytest.mark.parametrize("program", [recursive, metropolis, rejection])
def test_samplers_are_one_launch(program: Callable[..., Any]) -> None:
    held(program)
    expected = pytree.tree_leaves(autobatch.vmap(program, seed=5)(XS))
    for i, result in autobatch.stream(program, list(XS), 2, seed=5, executor="compiled"):
        leaves = pytree.tree_leaves(result)
        kinds = (
            type(leaf)(x[i]) if type(leaf) in (int, float) else x[i]
            for leaf, x in zip(leaves, expected, strict=True)
        )
        close(leaves, list(kinds))


def test_what_a_draw_refuses_is_the_loops_error() -> None:
    def program(x: Tensor) -> Tensor:
        kept = torch.rand(()) if x[0] < 0.5 else torch.bernoulli(x[0])
        return kept + torch.rand(())

    xs = XS.clone()
    xs[3, 0] = 1.5
    with pytest.raises(RuntimeError) as expected:
        autobatch.vmap(program, seed=5)(xs)
    with pytest.raises(RuntimeError) as found:
        autobatch.vmap(program, seed=5, executor="compiled")(xs)
    assert str(found.value) == str(expected.value)
    isolated = autobatch.vmap(program, seed=5, executor="compiled", on_error="isolate")(xs)
    alone = autobatch.vmap(program, seed=5, on_error="isolate")(xs)
    assert [each.exception is None for each in isolated] == [i != 3 for i in range(7)]
    close(
        [each.value for each in isolated if each.exception is None],
        [each.value for each in alone if each.exception is None],
    )


def test_a_program_that_draws_without_a_seed_is_refused_as_ever() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.rand(()) if x[0] > 0.5 else x[0]

    batched = autobatch.function(executor="compiled", randomness="different")(program)
    said = autobatch.explain(batched, XS).compiled
    assert said.endswith("`rand` has no compiled form")


def test_compiling_draws_nothing_from_torchs_generator() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.normal(x, 3.25).sum() if x[0] > 0.5 else x[0]

    torch.manual_seed(0)
    before = torch.get_rng_state()
    held(program)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(12))
def test_generated_programs(seed: int) -> None:
    program = load_module(drawing_programs.machine_source(seed, 2)).program
    held(program, seed=seed)
