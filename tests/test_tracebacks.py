"""What tools that print the variables of a traceback's frames meet: pytest, debuggers, loggers."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

import pytest
import torch

import autobatch

LONGEST = 5_000
"""Characters that one of the engine's own objects may print as; a machine once had 50 million."""

CONFIGURATIONS = [
    {"engine": "sequential"},
    *(
        {"engine": engine, "executor": executor}
        for engine in ("stackless", "program_counter")
        for executor in ("traced", "vmap", "compiled")
    ),
]


def spread(x, n):
    """Loops, calls that fork, and raises in the end."""
    while n < 4:
        x = x * 2 + n
        n = n + 1
    if n > 8:
        raise ValueError("too much")
    return spread(x + 1, n + 1) + spread(x, n + 2)


def longest(frames: list[FrameType]) -> dict[str, int]:
    """The engine's objects that frames name, by their class: how long they print."""
    return {
        type(value).__qualname__: len(repr(value))
        for frame in frames
        for value in list(frame.f_locals.values())
        if type(value).__module__.split(".")[0] == "autobatch"
    }


@pytest.mark.sampled(4)
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda c: "-".join(c.values()))
def test_the_engine_prints_itself_briefly(configuration):
    seen: dict[str, int] = {}

    def look(step: autobatch.Step) -> None:
        frame = sys._getframe()
        above = []
        while frame is not None:
            above.append(frame)
            frame = frame.f_back
        seen.update(longest(above))

    batched = autobatch.vmap(spread, listeners=[look], **configuration)
    with pytest.raises(ValueError, match="too much") as raised:
        batched(torch.rand(16, 3), torch.arange(16) % 9)
    below = []
    traceback = raised.value.__traceback__
    while traceback is not None:
        below.append(traceback.tb_frame)
        traceback = traceback.tb_next
    seen.update(longest(below))
    assert "Batch" in seen and len(seen) > 5
    assert {name: size for name, size in seen.items() if size > LONGEST} == {}


def test_what_is_told_by_identity_prints_as_that():
    """Else it prints all that hangs on it, which is a whole engine."""
    sources = Path(autobatch.__file__).parent.rglob("*.py")
    marks = [line for path in sources for line in re.findall("@dataclass.*", path.read_text())]
    assert [line for line in marks if "eq=False" in line and "repr=False" not in line] == []
