"""Random programs in streams: each example gives, or raises, what the plain function does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st

import autobatch
from autobatch import Result
from tests.expected import check, joined
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
    values = [each.value for each in expected]
    for index, result in found.items():
        others = values[:index] + values[index + 1 :]
        value = joined(result.value, values[index], others)
        expected[index] = Result(value, expected[index].exception)
    assert_apart(
        [found.get(index, NOTHING) for index in range(size)],
        [each if index in found else NOTHING for index, each in enumerate(expected)],
    )


def some_compared(n, t):
    """A bool in some examples, a 0-d tensor in the others, which have met since."""
    flag = True
    if n % 2:
        flag = t > 0.5
    for _ in range(3):
        n += 1
    return flag, n


def test_a_number_that_joins_tensors_is_what_the_loop_has_otherwise():
    rows = [(n, torch.tensor(float(n))) for n in range(6)]
    expected = [some_compared(*row) for row in rows]
    found = dict(autobatch.stream(some_compared, rows, 6))
    for index, value in found.items():
        others = expected[:index] + expected[index + 1 :]
        check(value, joined(value, expected[index], others))


@pytest.mark.parametrize(
    ("mine", "theirs", "other"),
    [
        (torch.tensor(True), True, False),
        (torch.tensor(True), False, torch.tensor(True)),
        (torch.tensor(1), True, torch.tensor(1)),
        (torch.tensor(1.0), 1, torch.tensor(1)),
        (torch.tensor(1), 1.0, torch.tensor(1)),
        (torch.tensor(1, dtype=torch.int32), 1, torch.tensor(1, dtype=torch.int32)),
        (torch.tensor(1.0, dtype=torch.float16), 1.0, torch.tensor(1.0, dtype=torch.float16)),
        (torch.tensor([1.0]), 1.0, torch.tensor([1.0])),
        (True, torch.tensor(True), torch.tensor(True)),
    ],
)
def test_nothing_else_is_taken_for_what_has_joined(mine, theirs, other):
    with pytest.raises(AssertionError):
        check((mine, 0), joined((mine, 0), (theirs, 0), [(other, 0)]))


@pytest.mark.sampled(3)
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
