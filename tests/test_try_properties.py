"""Random programs with ``try`` statements: each thread gives, or raises, what the loop does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.generator import FAMILIES, programs
from tests.test_isolation import FAULTS, check_faults, with_faults
from tests.test_properties import QUICK


def one_way(data: st.DataObject, family: str) -> None:
    drawn = data.draw(programs(family, raising=True, catching=True), label="program")
    fault = st.tuples(st.integers(0, 99), st.integers(0, len(FAULTS) - 1))
    program = with_faults(drawn, data.draw(st.lists(fault, max_size=4), label="faults"))
    check_faults(data, program)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("family", FAMILIES)
@settings(QUICK, max_examples=5)
@given(data=st.data())
def test_random_programs_that_catch(data: st.DataObject, family: str) -> None:
    one_way(data, family)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@settings(QUICK, max_examples=400, derandomize=False)
@given(data=st.data())
def test_many_random_programs_that_catch(data: st.DataObject, family: str) -> None:
    one_way(data, family)
