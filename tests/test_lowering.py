"""Lowering held to its definition: the lowered function, run for one example, is plain Python.

Result or exception, effects, and what became of the arguments are compared, with the program as
it was lowered and as the passes leave it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autobatch.frontend import lower_function
from autobatch.ir.program import Function
from autobatch.ir.verifier import check
from autobatch.passes import run_passes
from autobatch.vm.steps import Steps
from tests.language import assignments, cases, common, comprehensions, control, expressions
from tests.language import functions as with_calls
from tests.one_thread import run_thread

STEPS = 100_000
CASES = [pytest.param(f, args, id=f"{f.__name__}-{i}") for i, (f, args) in enumerate(cases())]


def every(step: int, first: int = 0) -> list[Any]:
    """All cases; but for every ``step``-th from the ``first`` they are of the slow run.

    Each pass has a part of its own; the pipeline, with all of them, runs on the whole corpus.
    """
    return [
        case
        if i % step == first
        else pytest.param(*case.values, id=case.id, marks=pytest.mark.slow)
        for i, case in enumerate(CASES)
    ]


def as_lowered(function: Function) -> Function:
    check(function, "lowering")
    return function


@cache
def lowered(func: FunctionType, finish: Callable[[Function], Function]) -> Function:
    return finish(lower_function(func))


def is_ours(func: FunctionType) -> bool:
    """Written in the corpus, and not made by a decorator of the standard library."""
    own = inspect.getsourcefile(func) or ""
    return func.__module__.startswith("tests.language") and own.endswith(
        f"{func.__module__.rpartition('.')[2]}.py"
    )


def run(func: FunctionType, args: tuple[Any, ...], finish: Callable[[Function], Function]) -> Any:
    """Functions of the corpus run lowered, at any depth; all else runs as plain Python."""

    def lookup(callee: FunctionType) -> Function | None:
        return lowered(callee, finish) if is_ours(callee) and callee is not common.seen else None

    return run_thread(
        lowered(func, finish), func, args, lookup=lookup, steps=Steps(max_steps=STEPS)
    )


def outcome(call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Result or exception, effects and final arguments, as plain comparable values."""
    common.log.clear()
    own = copy.deepcopy(args)
    try:
        result: Any = ("gives", call(*own))
    except Exception as error:
        cause = error.__cause__
        result = ("raises", type(error), str(error), type(cause), str(cause))
    return plain((result, own, common.log))


def plain(value: Any) -> Any:
    """The same structure with tensors as text with their dtype; functions as their names."""
    if isinstance(value, torch.Tensor):
        return ("tensor", value.dtype, value.tolist())
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, [plain(each) for each in value])
    if isinstance(value, dict):
        return ("dict", [(plain(key), plain(item)) for key, item in value.items()])
    if callable(value) and not isinstance(value, type):
        return ("callable", value.__qualname__)
    return (type(value).__name__, repr(value))


def compare(func: FunctionType, args: tuple[Any, ...], finish: Any = as_lowered) -> None:
    expected = outcome(func, args)
    actual = outcome(lambda *own: run(func, own, finish), args)
    assert actual == expected, f"\n{lowered(func, finish)}"


@pytest.mark.sampled(48)
@pytest.mark.parametrize("finish", [as_lowered, run_passes])
@pytest.mark.parametrize("func, args", CASES)
def test_corpus(func, args, finish):
    compare(func, args, finish)


NUMBERS = [control.collatz, control.loops, with_calls.recursion, expressions.ternaries]


@pytest.mark.parametrize("func", NUMBERS)
@given(n=st.integers(1, 12))
def test_one_number(func, n):
    compare(func, (n,), run_passes)


TWO = [control.nested_loops, control.while_else, assignments.augmented, expressions.short_circuit]


@pytest.mark.parametrize("func", TWO)
@given(a=st.integers(-4, 9), b=st.integers(-4, 9))
def test_two_numbers(func, a, b):
    compare(func, (a, b), run_passes)


LISTS = [comprehensions.comprehensions, comprehensions.reductions]
LISTS += [assignments.starred, assignments.subscripts]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("func", LISTS)
@given(xs=st.lists(st.integers(-3, 5), max_size=6))
def test_lists(func, xs):
    compare(func, (xs,), run_passes)


def test_recursion_is_not_bounded_by_pythons_stack():
    assert run(with_calls.is_even, (5_000,), run_passes) is True
