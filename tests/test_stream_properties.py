"""Random programs in streams: each example gives, or raises, what the plain function does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import autobatch
from autobatch import Result
from tests.generator import FAMILIES, programs
from tests.test_isolation import FAULTS, assert_apart, loop, with_faults
from tests.test_properties import LONG, QUICK

WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"trace_after": 0},
    {"executor": "vmap"},
    {"engine": "program_counter", "trace_after": 0},
    {"engine": "program_counter", "executor": "vmap"},
    {"executor": "compiled", "trace_after": 0},
    {"fork": "off"},
    {"schedule": "most_threads"},
    {"engine": "sequential"},
)
NOTHING = Result(None)
FAULT = st.tuples(st.integers(0, 99), st.integers(0, len(FAULTS) - 1))


def one_way(data: st.DataObject, family: str) -> None:
    raising, catching = data.draw(st.sampled_from([(False, False), (True, False), (True, True)]))
    drawn = data.draw(programs(family, raising=raising, catching=catching), label="program")
    program = with_faults(drawn, data.draw(st.lists(FAULT, max_size=3), label="faults"))
    note(repr(program))
    size = data.draw(st.sampled_from((9, 1, 3, 30)), label="examples")
    columns = program.columns(size, data.draw(st.integers(0, 99), label="seed"))
    expected = loop(program.function(), [program.row(columns, i) for i in range(size)])
    on_error = data.draw(st.sampled_from(("isolate", "raise")), label="on_error")
    order = data.draw(st.sampled_from(("completion", "input")), label="order")
    stream = autobatch.stream(
        program.function(),
        (program.row(columns, i) for i in range(size)),
        data.draw(st.sampled_from((2, 1, 5, 64)), label="width"),
        order,
        on_error=on_error,
        scalars=program.scalars,
        **data.draw(st.sampled_from(WAYS), label="way"),
    )
    whole = size
    if on_error == "raise":
        whole = next((i for i, each in enumerate(expected) if each.exception), size)
    found: dict[int, Any] = {}
    error: Exception | None = None
    try:
        for index, result in stream:
            assert index not in found
            found[index] = result if on_error == "isolate" else Result(result, None)
    except Exception as raised:
        error = raised
    if error is not None and whole == size:
        raise error
    assert set(found) >= set(range(whole)) and whole not in found
    if order == "input":
        assert list(found) == list(range(whole))
    if whole < size:
        found[whole] = Result(None, error)
    assert_apart(
        [found.get(index, NOTHING) for index in range(size)],
        [each if index in found else NOTHING for index, each in enumerate(expected)],
    )


@pytest.mark.parametrize("family", FAMILIES)
@settings(QUICK, max_examples=3)
@given(data=st.data())
def test_random_programs(data: st.DataObject, family: str) -> None:
    one_way(data, family)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@settings(LONG, max_examples=300)
@given(data=st.data())
def test_many_random_programs(data: st.DataObject, family: str) -> None:
    one_way(data, family)
