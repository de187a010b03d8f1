"""Programs by way of their text: a pass that gives a function as it is read from what it prints."""

from __future__ import annotations

from autobatch import Program, parse
from autobatch.ir.program import Function


def same(program: Program) -> Program:
    """The program from its text, held to the one that was printed."""
    text = str(program)
    read = parse(text, program.objects)
    assert str(read) == text
    assert read == program
    return read


def through_text(function: Function) -> Function:
    return same(Program({function.name: function}, function.name, None, ("out",))).main
