"""Programs of textbooks and public code, written with no thought of batching, are the loop."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle import assert_matches_loop
from tests.textbook import numerics, sequences, simulations

PROGRAMS: dict[str, Any] = {**numerics.PROGRAMS, **sequences.PROGRAMS, **simulations.PROGRAMS}
CONFIGURATIONS: tuple[dict[str, Any], ...] = (
    {},
    {"executor": "vmap"},
    {"trace_after": 0, "plain": "never"},
    {"engine": "program_counter", "trace_after": 0},
)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_a_textbook(name: str) -> None:
    function, args, in_dims = PROGRAMS[name]
    for size, ways in ((7, CONFIGURATIONS), (2, CONFIGURATIONS[-1:])):
        assert_matches_loop(
            function,
            args,
            in_dims=in_dims,
            batch_sizes=(size,),
            configurations=ways,
            rtol=1e-3,
            atol=1e-4,
        )
