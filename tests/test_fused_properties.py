"""Random programs whose every recording is compiled at once give what the plain loop gives.

Kernels take seconds to make, so the quick test is small; ``-m slow`` sweeps further. A kernel is
Inductor's, whose floats may differ from torch's in the last places: values are held to the loop
with the tolerances of ``torch.testing``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autobatch.batching.fused.inductor import missing
from autobatch.batching.stretches.executors import CompiledExecutor
from tests.generator import FAMILIES, programs
from tests.test_properties import LONG, QUICK, hold_to_loop

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def compiled_at_once(data: st.DataObject, family: str) -> None:
    """Five threads, under either engine."""
    program = data.draw(programs(family), label="program")
    engine = data.draw(st.sampled_from(["stackless", "program_counter"]), label="engine")
    way = {"executor": CompiledExecutor(0), "engine": engine, "trace_after": 0, "plain": "never"}
    hold_to_loop(program, 0, 5, configurations=(way,))


@pytest.mark.parametrize("family", FAMILIES)
@settings(QUICK, max_examples=1)
@given(data=st.data())
def test_a_program_matches_the_loop(data: st.DataObject, family: str) -> None:
    compiled_at_once(data, family)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@settings(LONG, max_examples=40)
@given(data=st.data())
def test_many_programs_match_the_loop(data: st.DataObject, family: str) -> None:
    compiled_at_once(data, family)
