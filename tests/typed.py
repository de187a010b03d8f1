"""What a type checker makes of decorated functions; ``test_typed`` runs mypy on it."""

from __future__ import annotations

from typing import assert_type

import autobatch


@autobatch.function
def scaled(n: int, *, by: float = 2.0) -> str:
    return str(n * by)


@autobatch.function(scalars="python")
def halved(n: int) -> float:
    return n / 2


class Walk:
    @autobatch.function
    def steps(self, n: int, longest: float = 1.0) -> str:
        return str(n * longest)


walk = Walk()
assert_type(scaled(1, by=3.0), str)
assert_type(halved(1), float)
assert_type(scaled.with_options(scalars="python")(1), str)
assert_type(walk.steps(1), str)
assert_type(walk.steps(1, longest=2.0), str)
assert_type(Walk.steps(walk, 1), str)
assert_type(walk.steps.with_options(chunk_size=2)(1), str)
scaled("1")  # type: ignore[arg-type]
halved(m=1)  # type: ignore[call-arg]
walk.steps("1")  # type: ignore[arg-type]
