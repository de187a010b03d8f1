"""Folding, jump threading, dead code, and asserts left out: fewer operations, the same results."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import autobatch
from autobatch.errors import VerifierError
from autobatch.frontend import lower_function
from autobatch.ir.program import Branch, Function, Handler, Raise
from autobatch.ir.verifier import verify
from autobatch.passes import PIPELINE, apply_pass, run_passes, without_converted
from autobatch.passes.clean_up import ROUND, clean_up
from autobatch.passes.dead_code import drop_dead_code
from autobatch.passes.facts import Literal, computed
from autobatch.passes.folding import fold_constants
from autobatch.passes.jumps import MOST, thread_jumps
from autobatch.passes.strip_debug import strip_debug
from tests.building import Lines, block, function
from tests.goldens import assert_golden
from tests.language import cases
from tests.oracle import assert_matches_loop
from tests.test_lowering import compare, every

FUNCTIONS = list(dict.fromkeys(func for func, _ in cases() if func.__name__ != "matching"))
XS = torch.tensor([-2.0, 0.5, 3.0])


def names(made: Function) -> list[str]:
    return [op.name for each in made.blocks for op in each.ops]


def branches(made: Function) -> int:
    return sum(isinstance(each.terminator, Branch) for each in made.blocks)


def ended(func: Callable[..., Any]) -> Function:
    return run_passes(lower_function(func))


# Literals.

NUMBERS = st.one_of(
    st.booleans(), st.integers(-70, 70), st.integers(), st.floats(allow_nan=False), st.none()
)
PYTHON = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "truediv": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "lshift": lambda a, b: a << b,
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "is": lambda a, b: a is b,
    "is_not": lambda a, b: a is not b,
}


@pytest.mark.parametrize("name", PYTHON)
@given(a=NUMBERS, b=NUMBERS)
def test_what_is_computed_is_pythons(name: str, a: Any, b: Any):
    if name == "lshift" and type(b) is int and b > 1000:
        return
    found = computed(name, [a, b])
    if found is None:
        return
    expected = PYTHON[name](a, b)
    assert type(found.value) is type(expected) and repr(found.value) == repr(expected)


@pytest.mark.parametrize(
    "name, values",
    [
        ("truediv", [1, 0]),
        ("mod", [1.5, 0.0]),
        ("pow", [2, 65]),
        ("pow", [2, -1]),
        ("lshift", [1, 64]),
        ("mul", [2**40, 2**40]),
        ("sub", [math.inf, math.inf]),
        ("lt", [None, 1]),
        ("add", ["a", "b"]),
        ("is", [1000, 1000]),
        ("getattr", [1]),
    ],
)
def test_what_is_left_to_the_program(name: str, values: list[Any]):
    assert computed(name, values) is None


def test_literals_are_told_apart():
    assert len({Literal.of(value) for value in (1, 1.0, True, "1", 0.0, -0.0)}) == 6
    assert Literal.of(2**64) is Literal.of(math.nan) is Literal.of((1,)) is None
    for value in (None, False, -7, -0.0, 1e308, math.inf, "a'b"):
        assert repr(Literal.of(value).value) == repr(value)


# The passes by hand.


def example() -> Function:
    at = Lines()
    return function(
        "f",
        "x",
        block(
            at.op("%1 = const", 2),
            at.op("%2 = const", 3),
            at.op("%3 = mul %1, %2"),
            at.op("%4 = copy x"),
            at.op("y = add %4, %3"),
            at.op("%5 = gt %3, %1"),
            at.branch("%5", 1, 2),
        ),
        block(at.op("%6 = getattr x", "size"), at.op("%return = copy y"), at.jump(3)),
        block(at.op("%return = copy x"), at.jump(3)),
        block(at.give("%return")),
    )


def test_the_examples_of_the_docstrings():
    folded = fold_constants(example())
    cleaned = clean_up(example())
    assert verify(folded) == verify(cleaned) == []
    assert_golden("clean_up", f"{example()}\n\n== folded\n\n{folded}\n\n== clean\n\n{cleaned}\n")


def test_a_loop_that_runs_once_is_none():
    at = Lines()
    once = function(
        "f",
        "x",
        block(at.op("done = const", False), at.jump(1)),
        block(at.op("%1 = not done"), at.branch("%1", 2, 3)),
        block(at.op("done = const", True), at.op("x = add x, x"), at.jump(1)),
        block(at.give("x")),
    )
    threaded = thread_jumps(once)
    assert verify(threaded) == [] and threaded.blocks[2].terminator.target == 3
    assert threaded.blocks[0] == once.blocks[0]
    assert_golden("jumps", f"{once}\n\n== threaded\n\n{threaded}\n")
    [only] = clean_up(once).blocks
    assert [op.name for op in only.ops] == ["const", "const", "add"]


@pytest.mark.parametrize("count, goes_past", [(MOST, True), (MOST + 1, False)])
def test_long_tests_are_not_copied(count: int, goes_past: bool):
    at = Lines()
    test = block(*(at.op("%1 = const", True) for _ in range(count)), at.branch("%1", 2, 2))
    made = function("f", "x", block(at.jump(1)), test, block(at.give("x")))
    assert (thread_jumps(made).blocks[0].terminator.target == 2) is goes_past


def test_a_test_in_another_mode_or_with_a_handler_is_not_gone_past():
    at = Lines()
    test = block(at.op("%1 = const", True), at.branch("%1", 2, 2))
    entry, end = block(at.jump(1)), block(at.give("x"))
    for other in (replace(test, modes=("x",)), replace(test, handler=Handler(2, "%e"))):
        made = function("f", "x", entry, other, end)
        assert thread_jumps(made) == made


def test_what_may_fail_is_not_dead():
    at = Lines()
    ops = (at.op("%1 = add x, x"), at.op("%2 = getitem x, x"), at.op("%3 = copy later"))
    ops += (at.op("named = const", 1),)
    made = function("f", "x", block(*ops, at.op("later = copy x"), at.give("x")))
    assert drop_dead_code(made) == made


def test_what_a_handler_reads_is_not_dead():
    at = Lines()
    ops = (at.op("%1 = const", 1), at.op("%2 = neg x"), at.op("%1 = const", 2))
    made = function(
        "f",
        "x",
        block(*ops, at.jump(2), handler=Handler(1, "%e")),
        block(at.op("x = copy %1"), at.jump(2)),
        block(at.give("x")),
    )
    entered = replace(
        made,
        blocks=(
            block(at.op("%1 = const", 0), at.jump(1)),
            *(each.retargeted({0: 1, 1: 2, 2: 3}) for each in made.blocks),
        ),
    )
    assert verify(entered) == []
    assert names(drop_dead_code(entered)) == names(entered)
    assert names(fold_constants(entered)) == names(entered)


def test_a_variable_that_changes_is_not_its_old_copy():
    at = Lines()
    ops = (at.op("%1 = copy x"), at.op("x = add x, x"), at.op("y = add %1, x"), at.give("y"))
    made = function("f", "x", block(*ops))
    assert fold_constants(made) == made


def test_what_is_written_keeps_its_name():
    at = Lines()
    ops = (at.op("%1 = copy x"), at.op("%1 = iadd %1, x"), at.give("%1"))
    made = function("f", "x", block(*ops))
    assert fold_constants(made) == made


def test_a_fault_names_the_pass_within(monkeypatch: pytest.MonkeyPatch):
    def loses_return(made: Function) -> Function:
        return replace(made, blocks=made.blocks[:-1])

    here = sys.modules[clean_up.__module__]
    monkeypatch.setattr(here, "ROUND", (*ROUND, loses_return))
    with pytest.raises(VerifierError, match="After loses_return the program is not valid"):
        clean_up(example())


# On programs.


@pytest.mark.sampled(12)
@pytest.mark.parametrize("func", FUNCTIONS, ids=lambda func: func.__name__)
def test_the_pipeline_is_at_a_fixed_point(func):
    """A second run finds nothing, nor does any pass of the clean-up by itself."""
    made = ended(func)
    assert run_passes(made) == made
    bare = apply_pass(without_converted, made)
    assert apply_pass(clean_up, bare).blocks == bare.blocks


@pytest.mark.sampled(8)
@pytest.mark.parametrize("each", [fold_constants, thread_jumps, drop_dead_code, clean_up])
@pytest.mark.parametrize("func, args", every(6, 0))
def test_the_corpus_keeps_its_results(func, args, each):
    def passed(made: Function) -> Function:
        made = apply_pass(each, made)
        assert verify(made) == []
        return made

    compare(func, args, passed)


def flags(x):
    found, tries = False, 0
    while not found and tries < 5:
        tries += 1
        if x * tries > 1:
            found = True
    return tries if found else -x


def settings(x, scale=None):
    mode = None
    debug = False
    if mode is None:
        x = x * 2
    if debug and x > 1:
        x = x + 100
    while debug:
        x = x - 1
    return x if not debug else -x


def same_object(x):
    a = b = 1000
    c = 500 * 2
    return (a is b, c == a, x + a)


def zero(x):
    y = 0.0
    return x * -y, x + y * -1.0


@pytest.mark.parametrize("func", [flags, settings, same_object, zero], ids=lambda f: f.__name__)
def test_programs_give_what_the_loop_gives(func):
    assert_matches_loop(func, (XS,))


def test_what_settings_decide_is_decided():
    made = ended(settings)
    assert len(made.blocks) == 1 and not branches(made)


# Asserts and prints.


def checked(x, log):
    assert x.ndim == 0, str(x) + " is no number"
    assert log is not None and (x > -5 or x < -10)
    print("at", x.item())
    while x < 3:
        assert noted(log, x) >= 0
        x = x + 1
    return x


def noted(log, x):
    log.append(x.item())
    return len(log)


def assigning(x):
    assert (y := x + 1) > 0  # noqa: RUF018 it is meant to assign
    return y


def test_asserts_and_prints_go(capsys: pytest.CaptureFixture[str]):
    passes = ["strip_debug", *PIPELINE]
    mapped = autobatch.vmap(checked, in_dims=(0, None), passes=passes)
    assert mapped(XS, None).tolist() == [3.0, 3.5, 3.0]
    assert capsys.readouterr().out == ""
    made = autobatch.lower(checked, passes=passes).main
    assert "assertion" not in names(made) and not any(
        isinstance(each.terminator, Raise) for each in made.blocks
    )
    with pytest.raises(AssertionError):
        autobatch.vmap(checked, in_dims=(0, None))(XS, None)


def test_asserts_that_assign_stay():
    mapped = autobatch.vmap(assigning, passes=["strip_debug", *PIPELINE])
    with pytest.raises(AssertionError):
        mapped(XS)
    assert mapped(XS[1:]).tolist() == [1.5, 4.0]


def test_strip_debug_by_hand():
    made = lower_function(checked)
    assert_golden("strip_debug", f"{made}\n\n== stripped\n\n{run_passes(made, [strip_debug])}\n")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("func", FUNCTIONS, ids=lambda func: func.__name__)
def test_strip_debug_keeps_the_rules(func):
    assert verify(apply_pass(strip_debug, lower_function(func))) == []
    assert verify(apply_pass(strip_debug, ended(func))) == []
