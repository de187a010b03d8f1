"""Common subexpressions: what is computed twice is computed once, and nobody can tell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch
from autobatch.ir.program import CallShape, Function, Handler, Op
from autobatch.ir.types import Type
from autobatch.ir.verifier import verify
from autobatch.passes import PIPELINE, apply_pass, run_passes, share_expressions
from tests.building import Lines, block, function
from tests.generator import FAMILIES
from tests.goldens import assert_golden
from tests.oracle import assert_matches_loop
from tests.test_lowering import compare, every
from tests.test_properties import QUICK, hold_drawn

TENSORS = {"x": Type("tensor"), "y": Type("tensor")}


def ops(made: Function) -> list[str]:
    return [op.name for each in made.blocks for op in each.ops]


def straight(*texts: str | tuple[str, Any], give: str = "z", parameters: str = "x, y") -> Function:
    at = Lines()
    made = [at.op(text) if isinstance(text, str) else at.op(*text) for text in texts]
    return function("f", parameters, block(*made, at.give(give)))


def shared(made: Function, known: Any = TENSORS) -> list[str]:
    """The operations after the pass, with parameters that are known to be tensors."""
    assert verify(made) == []
    found = share_expressions(made, known)
    assert verify(found) == []
    assert share_expressions(found, known) == found
    return ops(found)


def test_the_example_of_the_docstring():
    at = Lines()
    made = function(
        "f",
        "n",
        block(at.op("i = const", 3), at.op("k = const", 2), at.op("%1 = mul i, k"), at.jump(1)),
        block(at.op("%2 = lt %1, n"), at.branch("%2", 2, 3)),
        block(at.op("%3 = mul k, i"), at.op("n = sub n, %3"), at.jump(1)),
        block(at.op("%4 = add i, %1"), at.give("%4")),
    )
    assert verify(made) == []
    found = share_expressions(made)
    assert verify(found) == []
    assert_golden("expressions", f"{made}\n\n== shared\n\n{found}\n")


def test_what_is_not_at_hand_is_computed_again():
    """Threads would move it along for nothing."""
    at = Lines()
    made = function(
        "f",
        "n",
        block(at.op("i = const", 3), at.jump(1)),
        block(at.op("%1 = mul i, i"), at.op("%2 = lt %1, n"), at.branch("%2", 2, 3)),
        block(at.op("%3 = mul i, i"), at.op("i = iadd i, %3"), at.jump(1)),
        block(at.give("i")),
    )
    assert verify(made) == [] and share_expressions(made) == made


def test_what_is_computed_twice():
    texts = ("%1 = mul x, y", "%2 = mul y, x", "%3 = add %1, %2", "z = sub %3, x")
    assert shared(straight(*texts)) == ["mul", "copy", "add", "sub"]
    assert shared(straight(*texts), {}) == ["mul", "mul", "add", "sub"]
    twice = ("%1 = sub x, y", "%2 = sub y, x", "%3 = mul %1, %2", "z = add %3, %3")
    assert shared(straight(*twice)) == ["sub", "sub", "mul", "add"]


def test_literals_are_operands():
    texts = (("%1 = const", 2), "%3 = mul x, %1", ("%2 = const", 2), "%4 = mul x, %2")
    end = ("%5 = add %3, %4", "z = neg %5")
    assert shared(straight(*texts, *end)).count("mul") == 1
    other = (("%1 = const", 2), "%3 = mul x, %1", ("%2 = const", 2.0), "%4 = mul x, %2")
    assert shared(straight(*other, *end)).count("mul") == 2


@pytest.mark.parametrize(
    "between",
    [
        "x = neg x",
        "x = iadd x, y",
        "y = iadd y, y",
        ("setitem x, %9, y", None),
        "%8 = call unknown",
        ("%8 = getattr unknown", "property"),
        "%8 = add unknown, x",
        ("setattr y, x", "data"),
        "%8 = next unknown",
    ],
    ids=str,
)
def test_what_may_have_changed_in_between(between: Any):
    head = (("%9 = const", 0), ("unknown = global", "unknown"), "%1 = mul x, y")
    tail = ("%2 = mul x, y", "%3 = add %1, %2", "z = neg %3")
    if between == "%8 = next unknown":
        between = "%8, %7 = next unknown"
    if isinstance(between, tuple) and between[1] is None:
        between = " = " + between[0]
    made = straight(*head, ("%6 = const", 1), *tail)
    assert shared(made).count("mul") == 1
    at = Lines()
    middle = at.op(between) if isinstance(between, str) else at.op(*between)
    if middle.name == "setitem" or middle.name == "call":
        attr = CallShape(()) if middle.name == "call" else None
        middle = Op(middle.name, middle.outs, middle.args, attr, middle.span)
    (only,) = made.blocks
    changed = function("f", "x, y", block(*only.ops[:3], middle, *only.ops[4:], only.terminator))
    assert shared(changed).count("mul") == 2


@pytest.mark.parametrize(
    "use",
    [
        "%4 = tuple %1, %2",
        "%4 = is %1, %2",
        "%2 = iadd %2, x",
        "%4 = add %2, unknown",
        "%4 = getitem unknown, %2",
        ("%4 = getattr %2", "T"),
        "%4 = copy %2",
    ],
    ids=str,
)
def test_what_somebody_may_tell_apart(use: Any):
    head = (("unknown = global", "unknown"), "%1 = mul x, y", "%2 = mul x, y")
    made = straight(*head, use, "z = add %1, %2")
    assert shared(made).count("mul") == 2
    assert shared(straight(*head, "z = add %1, %2")).count("mul") == 1


def test_a_result_is_its_own():
    assert shared(straight("%1 = mul x, y", "z = mul x, y", "%2 = neg %1")).count("mul") == 2


def test_other_modes_are_another_expression():
    at = Lines()

    def made(modes: tuple[str, ...]) -> Function:
        return function(
            "f",
            "x, m",
            block(at.op("%1 = mul x, x"), at.op("%3 = neg %1"), at.jump(1)),
            block(at.op("%2 = mul x, x"), at.op("%4 = add %2, %1"), at.jump(2), modes=modes),
            block(at.op("z = neg %4"), at.give("z")),
        )

    assert shared(made(("m",)), {"x": Type("tensor")}).count("mul") == 2
    assert shared(made(()), {"x": Type("tensor")}).count("mul") == 1


def test_what_a_handler_may_rely_on():
    """A block may have failed before it computed anything."""
    at = Lines()
    made = function(
        "f",
        "x",
        block(at.op("%0 = const", 1), at.op("%1 = neg %0"), at.jump(1)),
        block(at.op("%1 = sub x, x"), at.op("%5 = mul x, x"), at.jump(3), handler=Handler(2, "%e")),
        block(at.op("%5 = mul x, x"), at.op("%6 = neg %0"), at.jump(3)),
        block(at.op("%7 = mul x, x"), at.op("z = add %7, %5"), at.give("z")),
    )
    assert shared(made, {"x": Type("tensor")}) == [
        *("const", "neg", "sub", "mul", "mul", "neg", "copy", "add")
    ]


# On programs.


def doubles(x, xs):
    i = 0
    while i * 2 < 6:
        x = x + xs[i * 2] - xs[i * 2 + 1] * (i * 2)
        i += 1
    return x, i * 2


def test_a_program_that_computes_twice():
    made = run_passes(autobatch.lower(doubles, passes=[]).main)
    counts = [sum(op.name == "mul" for op in each.ops) for each in made.blocks]
    assert max(counts) == 3  # i * 2, times it, and the test of the next round
    xs = (torch.tensor([1.0, 2.0]), torch.arange(12.0).reshape(2, 6))
    assert_matches_loop(doubles, xs)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("func, args", every(6, 1))
def test_the_corpus_keeps_its_results(func, args):
    def passed(made: Function) -> Function:
        made = apply_pass(share_expressions, made)
        assert verify(made) == []
        return made

    compare(func, args, passed)


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
    hold_drawn(data, family, passes=("clean_up", share_expressions, *PIPELINE))
