"""Random programs with ``try`` statements: each thread gives, or raises, what the loop does."""

from __future__ import annotations

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import autobatch
from tests.generator import FAMILIES, OBJECT_KINDS, programs
from tests.oracle import CONFIGURATIONS
from tests.test_isolation import FAULTS, SIZES, assert_apart, loop, with_faults
from tests.test_properties import QUICK


def one_way(data: st.DataObject, family: str) -> None:
    drawn = data.draw(programs(family, raising=True, catching=True), label="program")
    fault = st.tuples(st.integers(0, 99), st.integers(0, len(FAULTS) - 1))
    program = with_faults(drawn, data.draw(st.lists(fault, max_size=4), label="faults"))
    note(repr(program))
    size = data.draw(st.sampled_from(SIZES), label="batch size")
    columns = program.columns(size, data.draw(st.integers(0, 99), label="seed"))
    expected = loop(program.function(), [program.row(columns, i) for i in range(size)])
    args = tuple(
        autobatch.objects(column) if kind in OBJECT_KINDS else column
        for kind, column in zip(program.params, columns, strict=True)
    )
    chosen = {
        **data.draw(st.sampled_from(CONFIGURATIONS), label="configuration"),
        "chunk_size": data.draw(st.sampled_from((None, 3)), label="chunk size"),
        "scalars": program.scalars,
    }
    assert_apart(autobatch.vmap(program.function(), on_error="isolate", **chosen)(*args), expected)


@pytest.mark.parametrize("family", FAMILIES)
@settings(QUICK, max_examples=20)
@given(data=st.data())
def test_random_programs_that_catch(data: st.DataObject, family: str) -> None:
    one_way(data, family)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@settings(QUICK, max_examples=400, derandomize=False)
@given(data=st.data())
def test_many_random_programs_that_catch(data: st.DataObject, family: str) -> None:
    one_way(data, family)
