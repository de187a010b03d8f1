"""Random programs give what the plain loop gives: every engine, executor, batch size, chunking.

Each example draws a program, its rows and one way to run them. The quick test reports a
failure as drawn; ``-m slow`` sweeps further and shrinks, which can take minutes.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import autobatch
from tests.generator import FAMILIES, OBJECT_KINDS, WRITING, GeneratedProgram, programs
from tests.oracle import CONFIGURATIONS, assert_matches_loop

BATCH_SIZES = (2, 1, 7, 0, 64)
CHUNK_SIZES = (None, 3)

QUICK = settings(
    max_examples=7,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    database=None,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(
    QUICK,
    max_examples=400,
    derandomize=False,
    # No explain phase: it runs many variants of a failing program only to annotate it.
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
)


def hold_to_loop(
    program: GeneratedProgram, seed: int, size: int, device: str = "cpu", **how: Any
) -> None:
    columns = program.columns(size, seed)
    args = tuple(
        autobatch.objects(column) if kind in OBJECT_KINDS else column.to(device)
        for kind, column in zip(program.params, columns, strict=True)
    )
    note(repr(program))
    assert_matches_loop(program.function(), args, scalars=program.scalars, **how)


def hold_drawn(data: st.DataObject, family: str, **how: Any) -> None:
    """A program of a family with five threads, by either executor."""
    program = data.draw(programs(family))
    way = data.draw(st.sampled_from([{"executor": "vmap"}, {"trace_after": 0}]))
    hold_to_loop(program, 0, 5, configurations=(way,), **how)


def one_way(data: st.DataObject, family: str) -> None:
    program = data.draw(programs(family), label="program")
    configuration = data.draw(st.sampled_from(CONFIGURATIONS), label="configuration")
    size = data.draw(st.sampled_from(BATCH_SIZES), label="batch size")
    chunk_size = data.draw(st.sampled_from(CHUNK_SIZES), label="chunk size")
    hold_to_loop(
        program,
        data.draw(st.integers(0, 99), label="seed"),
        size,
        configurations=(configuration,),
        chunk_sizes=(chunk_size,),
    )


@pytest.mark.sampled(8)
@pytest.mark.parametrize("family", FAMILIES)
@QUICK
@given(data=st.data())
def test_a_program_matches_the_loop(data: st.DataObject, family: str) -> None:
    one_way(data, family)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("family", WRITING)
@settings(QUICK, max_examples=2)
@given(data=st.data())
def test_a_program_that_writes_matches_the_loop(data: st.DataObject, family: str) -> None:
    one_way(data, family)


@pytest.mark.slow
@pytest.mark.parametrize("family", [*FAMILIES, *WRITING])
@LONG
@given(data=st.data())
def test_many_programs_match_the_loop(data: st.DataObject, family: str) -> None:
    one_way(data, family)


@pytest.mark.slow
@pytest.mark.parametrize("family", [*FAMILIES, *WRITING])
@settings(LONG, max_examples=40)
@given(data=st.data())
def test_a_program_matches_the_loop_in_every_way(data: st.DataObject, family: str) -> None:
    program = data.draw(programs(family), label="program")
    for size in BATCH_SIZES:
        hold_to_loop(program, 0, size, chunk_sizes=CHUNK_SIZES)
