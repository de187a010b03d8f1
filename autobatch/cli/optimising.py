"""A program, or a text of one, after each of some passes: what ``autobatch opt`` prints.

In: a target of the command line, and the names of passes. Out: the program as it was lowered or
read, and after each pass, each with a title; the verifier has been through all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from autobatch.api import lower
from autobatch.cli.target import CommandError, find_target
from autobatch.errors import AutobatchError, OptionError
from autobatch.ir.fitting import fitted
from autobatch.ir.parser import inspected
from autobatch.ir.program import Program
from autobatch.ir.verifier import check
from autobatch.passes import PIPELINE, Pass, chosen_passes, stages
from autobatch.passes.calls_by_name import CALL_PASSES, with_calls


def optimised(target: str, passes: str | None) -> Iterator[tuple[str, Program]]:
    """The stages of a program; ``passes`` are names parted by commas, None for the pipeline.

    A pass of one's own is ``FILE.py:name``.
    """
    try:
        parts = [PIPELINE] if passes is None else parted(names_in(passes))
    except OptionError as error:
        of_calls = ", ".join(CALL_PASSES)
        raise CommandError(f"{error} Here, {of_calls} are passes, too.") from None
    title, program = start(target)
    yield title, program
    for part in parts:
        found = called(program, part) if isinstance(part, str) else stages(program, part)
        for name, after in found:
            program = after
            yield f"after {name}", program


def parted(names: Iterable[str]) -> list[str | Sequence[Pass]]:
    """Names of passes that look at calls, and the others, those in a row together."""
    parts: list[str | Sequence[Pass]] = []
    for of_calls, some in groupby(names, key=CALL_PASSES.__contains__):
        row = list(some)
        parts += row if of_calls else [chosen_passes(map(named, row))]
    return parts


def called(program: Program, name: str) -> Iterator[tuple[str, Program]]:
    """The same as ``stages``, of a pass that looks at calls."""
    made = with_calls(program, name)
    check(made, name, program)
    yield name, fitted(made)


def names_in(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def named(name: str) -> Pass | str:
    return find_target(name) if ":" in name else name


def start(target: str) -> tuple[str, Program]:
    """The program as a function is lowered to it, or as a text has it."""
    if ".py:" in target:
        return "as lowered", lower(find_target(target), passes=[])
    path = Path(target)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{target}: no FILE.py:function, and cannot be read: {error}") from None
    try:
        return "as read", inspected(text, str(path))
    except AutobatchError as error:
        told = error.diagnostic
        why = "; ".join(filter(None, (told.label, *told.notes, *told.hints)))
        raise CommandError(f"{path}: {told.headline} {why}".strip()) from None
