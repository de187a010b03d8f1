"""Invariant operations leave loops; functions have copies for constants; the results stay."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch
from autobatch.errors import OptionError
from autobatch.frontend import lower_function
from autobatch.ir.program import Function
from autobatch.ir.verifier import verify
from autobatch.passes import PIPELINE, apply_pass, hoist_invariants, run_passes, specialised
from tests.building import Lines, block, function
from tests.generator import FAMILIES
from tests.goldens import assert_golden
from tests.oracle import assert_matches_loop
from tests.test_lowering import compare, every
from tests.test_properties import QUICK, hold_drawn

XS = torch.tensor([-2.0, 0.5, 3.0])


def passed(each: Any) -> Any:
    def run(made: Function) -> Function:
        made = apply_pass(each, made)
        assert verify(made) == []
        return made

    return run


# Invariants.


def looping(*ops: str, known: str = "k") -> Function:
    """A loop of these operations, in which ``k`` is 3 or 4."""
    at = Lines()
    return function(
        "f",
        "x, y, c",
        block(at.op("k = const", 3), at.branch("c", 1, 2)),
        block(at.op("k = const", 4), at.jump(2)),
        block(at.op("x = neg x"), at.jump(3)),
        block(*map(at.op, ops), at.op("%2 = gt x, y"), at.branch("%2", 3, 4)),
        block(at.give("x")),
    )


def test_the_example_of_the_docstring():
    made = looping("%1 = mul k, k", "x = sub x, %1")
    found = hoist_invariants(made)
    assert verify(made) == verify(found) == []
    assert hoist_invariants(found) == found
    assert_golden("invariants", f"{made}\n\n== hoisted\n\n{found}\n")
    assert [op.name for op in found.blocks[2].ops] == ["neg", "mul"]


@pytest.mark.parametrize(
    "ops",
    [
        ("%1 = mul x, x", "%3 = add %1, k"),  # of tensors, perhaps
        ("%1 = truediv k, k", "x = sub x, %1"),  # may fail
        ("%1 = mul k, k", "k = add k, k"),  # changes
        ("%1 = mul k, k", "%1 = neg %1"),  # is assigned twice
        ("named = mul k, k", "x = sub x, named"),  # the user's
        ("%1 = lt k, y", "x = sub x, k"),
    ],
)
def test_what_stays(ops: tuple[str, ...]):
    made = looping(*ops)
    assert hoist_invariants(made) == made


def test_chains_move_in_order():
    found = hoist_invariants(looping("%1 = mul k, k", "%3 = add %1, k", "%4 = lt %3, %1"))
    assert [op.name for op in found.blocks[2].ops] == ["neg", "mul", "add", "lt"]
    assert [op.name for op in found.blocks[3].ops] == ["gt"]


def scaled(x, coarse):
    step = 3 if coarse else 2
    rounds = 0
    while x < 40 and rounds < 6:
        x = x * (step * step + 1) + step
        rounds += 1
    return x, rounds


def test_a_program():
    lowered = run_passes(lower_function(scaled))
    made = run_passes(lowered, [hoist_invariants])
    counts = [[op.name for op in each.ops].count("mul") for each in made.blocks]
    assert sum(counts) < sum([op.name for op in b.ops].count("mul") for b in lowered.blocks) + 2
    assert made != lowered
    flags = torch.tensor([True, False, True])
    configurations = ({"executor": "vmap"}, {"trace_after": 0})
    for passes in ((*PIPELINE[:8], hoist_invariants, *PIPELINE[8:]),):
        assert_matches_loop(scaled, (XS, flags), configurations=configurations, passes=passes)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("func, args", every(6, 2))
def test_the_corpus_keeps_its_results(func, args):
    compare(func, args, passed(hoist_invariants))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("family", FAMILIES)
@settings(QUICK, max_examples=2)
@given(data=st.data())
def test_generated_programs(data, family):
    held(data, family)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@settings(QUICK, max_examples=60, derandomize=False)
@given(data=st.data())
def test_more_generated_programs(data, family):
    held(data, family)


def held(data, family):
    hold_drawn(data, family, passes=("clean_up", hoist_invariants, *PIPELINE))


# Specialisation.


def noisy(x, debug=False, scale=None):
    rounds = 0
    while x < 10 and rounds < 6:
        if debug:
            x = x + 100
        if scale is not None:
            x = x * scale
        x = x + 1
        rounds += 1
    return x, rounds


QUIET = specialised(debug=False, scale=None)


def test_a_copy_for_constants():
    made = QUIET(lower_function(noisy))
    assert verify(made) == [] and QUIET(made) == made
    text = str(apply_pass(QUIET, run_passes(lower_function(noisy))))
    assert_golden("specialisation", re.sub(" +# .*", "", text) + "\n")


def test_its_loop_is_one_block():
    """One block execution for each round, as if the branches were not written down."""
    steps = {}
    for passes in ((*PIPELINE,), (QUIET, *PIPELINE)):
        mapped = autobatch.vmap(noisy, in_dims=(0, None, None), passes=passes, executor="vmap")
        mapped(XS, False, None)
        with autobatch.counts() as counts:
            mapped(XS, False, None)
        steps[len(passes) > len(PIPELINE)] = counts.block_executions
    assert steps[True] < steps[False]


@pytest.mark.parametrize("debug", [False, True, 0, 1.5, None, "yes"])
@pytest.mark.parametrize("scale", [None, 2, 1.5])
def test_all_calls_give_what_the_loop_gives(debug: Any, scale: Any):
    def call(x):
        return noisy(x, debug, scale)

    mapped = autobatch.vmap(call, passes=(QUIET, *PIPELINE))
    expected = [call(x) for x in XS]
    got, rounds = mapped(XS)
    torch.testing.assert_close(got, torch.stack([value for value, _ in expected]))
    assert rounds.tolist() == [count for _, count in expected]


def test_flags_that_differ_by_thread():
    mapped = autobatch.vmap(noisy, passes=(QUIET, *PIPELINE), scalars="python")
    flags = torch.tensor([True, False, False])
    got, _ = mapped(XS, flags)
    assert got.tolist() == [noisy(x, flag)[0] for x, flag in zip(XS.tolist(), flags, strict=True)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("func, args", every(6, 2))
def test_the_corpus_keeps_its_results_with_copies(func, args):
    constants = dict.fromkeys(func.__code__.co_varnames[: func.__code__.co_argcount])
    compare(func, args, passed(specialised(**constants)))
    compare(func, args, passed(specialised(**dict.fromkeys(constants, True))))


def test_what_is_no_constant():
    with pytest.raises(OptionError, match="scale is 2; a constant is None, True or False"):
        specialised(scale=2)
