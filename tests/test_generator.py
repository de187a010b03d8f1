"""The program generator, run as plain Python: programs end, threads differ, few raise."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.generator import FAMILIES, GeneratedProgram, programs

THREADS = 8
GENERATE = settings(
    max_examples=60,
    deadline=None,
    database=None,
    derandomize=True,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


def path(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[list[int], bool]:
    """The generated lines that one thread runs, and whether it raises."""
    lines: list[int] = []

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if "generated_" not in frame.f_code.co_filename:
            return None
        if event == "line":
            lines.append(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*args)
    except Exception:
        return lines, True
    finally:
        sys.settrace(before)
    return lines, False


@pytest.mark.sampled(3)
@pytest.mark.parametrize("family", [*FAMILIES, "written_calls"])
def test_programs_end_diverge_and_seldom_raise(family: str) -> None:
    seen: Counter[str] = Counter()

    @GENERATE
    @given(program=programs(family, raising=False))
    def collect(program: GeneratedProgram) -> None:
        function, columns = program.function(), program.columns(THREADS, 0)
        paths = [path(function, program.row(columns, i)) for i in range(THREADS)]
        assert max(len(lines) for lines, _ in paths) < 20_000
        seen["programs"] += 1
        seen["raised"] += sum(raised for _, raised in paths)
        seen["diverging"] += len({tuple(lines) for lines, _ in paths}) > 1

    collect()
    assert seen["raised"] <= 0.05 * THREADS * seen["programs"]
    assert seen["diverging"] >= 0.5 * seen["programs"]


@GENERATE
@given(program=programs("alias"))
def test_a_row_depends_on_seed_and_index_alone(program: GeneratedProgram) -> None:
    few, many = program.columns(2, 5), program.columns(7, 5)
    for i in range(2):
        assert repr(program.row(few, i)) == repr(program.row(many, i))


@GENERATE
@given(program=programs("tensor"))
def test_a_row_is_a_private_copy(program: GeneratedProgram) -> None:
    columns = program.columns(2, 0)
    before = repr(columns)
    with contextlib.suppress(Exception):
        program.function()(*program.row(columns, 1))
    assert repr(columns) == before


@GENERATE
@given(program=programs("scalar", raising=True))
def test_source_is_found_by_line(program: GeneratedProgram) -> None:
    function = program.function()
    with open(function.__code__.co_filename, encoding="utf-8") as file:
        line = file.read().split("\n")[function.__code__.co_firstlineno - 1]
    assert line.startswith("def program(")
