"""Every program is what its text says, and runs as the plain function when it is read from there.

The corpus, ``programs/`` and generated programs are printed and read back; then they run with all
their functions read from text, by a pass that goes through it, and are held to the plain loop.
"""

from __future__ import annotations

import importlib
from types import FunctionType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch
from autobatch.ir.form_rules import ops_of, terminators_of
from autobatch.passes import PIPELINE, run_passes
from programs import PROGRAMS
from tests.generator import FAMILIES, programs
from tests.language import cases
from tests.test_language_batched import MODULES
from tests.test_lowering import compare, every
from tests.test_programs import TOLERANCES, check_batch, make_example
from tests.test_properties import QUICK, hold_to_loop
from tests.through_text import same, through_text

PASSES = (*PIPELINE, through_text)
WAYS: tuple[dict[str, Any], ...] = (
    {"executor": "traced", "trace_after": 0},
    {"engine": "program_counter", "executor": "vmap"},
)
CORPUS = {f"{func.__module__}.{func.__name__}": func for func, _ in cases()} | {
    f"{module.__name__}.{name}": func
    for module in MODULES
    for name, func in vars(module).items()
    if isinstance(func, FunctionType) and func.__module__ == module.__name__
}


def spans(program):
    for function in program.functions.values():
        for each in function.walk():
            yield from (record.span for _, record in (*ops_of(each), *terminators_of(each)))


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_the_corpus(every):
    """As lowered and optimised, where all stands where something stood that it was made of."""
    found = 0
    for func in list(CORPUS.values())[::every]:
        try:
            lowered, optimised = autobatch.lower(func, passes=[]), autobatch.lower(func)
        except autobatch.UnsupportedError:
            continue
        same(lowered)
        same(optimised)
        assert set(spans(optimised)) <= set(spans(lowered)), func
        found += 1
    assert found > 200 // every


@pytest.mark.sampled(8)
@pytest.mark.parametrize("func, args", every(3))
def test_the_corpus_runs(func, args):
    compare(func, args, as_read)


def as_read(function):
    return through_text(run_passes(function))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    dtype = importlib.import_module(f"programs.{name}").DTYPES[0]
    same(autobatch.lower(make_example(name, 2, dtype).function))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - TOLERANCES.keys()))
def test_programs_run(name):
    dtype = importlib.import_module(f"programs.{name}").DTYPES[0]
    check_batch(name, dtype, (5,), configurations=[{}], passes=PASSES)


def one_way(data, family):
    program = data.draw(programs(family))
    same(autobatch.lower(program.function()))
    way = data.draw(st.sampled_from(WAYS))
    hold_to_loop(program, 0, 7, configurations=(way,), passes=PASSES)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("family", FAMILIES)
@settings(QUICK, max_examples=2)
@given(data=st.data())
def test_generated_programs(data, family):
    one_way(data, family)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@settings(QUICK, max_examples=60, derandomize=False)
@given(data=st.data())
def test_many_generated_programs(data, family):
    one_way(data, family)


def test_a_program_from_text_runs():
    """Found by its callable, with the names of its module."""
    example = make_example("collatz", 9, torch.int64)
    program = autobatch.lower(example.function)
    inputs = example.mapped(autobatch.objects, autobatch.ragged)
    (expected,) = autobatch.execute(program, *inputs)
    (result,) = autobatch.execute(autobatch.parse(str(program)), *inputs)
    assert torch.equal(result, expected)
