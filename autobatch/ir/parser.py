"""Programs from their text: the way back from ``ir.printer``, whose docstring has the grammar.

In: text, and the objects that it names and that cannot be imported. Out: a ``Program`` that prints
as the same text and is equal to the one that was printed; the verifier has been through it. The
header and the tables are read here, functions in ``function_parser``, their lines in ``op_parser``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from autobatch.ir.call_types import CallTypes
from autobatch.ir.function_parser import drafts
from autobatch.ir.links import BY_HAND
from autobatch.ir.objects import Absent, Unresolved, imported
from autobatch.ir.program import EventShape, Function, Program, Var
from autobatch.ir.scanner import Line, Text
from autobatch.ir.verifier import check


def parse(text: str, objects: Mapping[str, object] | None = None) -> Program:
    """The program that a text is of: ``parse(str(program))`` equals ``program``.

    Args:
        text: what ``str(program)`` gives, or written by hand; the grammar stands in
            ``autobatch.ir.printer``.
        objects: what the text names and importing does not give, by the names in its table of
            objects: ``{"<walk.Point object>": point}``, as in ``program.objects``. Other names
            are imported: reading a text runs the modules that it names.

    Raises:
        ParseError: the text is no program's: line, column, caret, and what was expected; or an
            object that it names is missing.
        VerifierError: the program breaks a rule.
    """
    if not isinstance(text, str):
        raise TypeError(f"autobatch.parse reads the text of a program, a str; it got {text!r}")
    return read(Text(BY_HAND, text), objects or {}, _given)


def inspected(text: str, file: str) -> Program:
    """The program of a file's text, to look at: ``Absent`` stands for what cannot be imported."""
    return read(Text(file, text), {}, Absent)


def read(text: Text, objects: Mapping[str, object], given: Callable[[str], object]) -> Program:
    """The program of a text; ``given`` is asked for what is not among objects and not imported."""
    sections: dict[str, list[list[Line]]] = {}
    for section in text.sections():
        kind = section[0].one_of({word: word for word in _SECTIONS}, _EXPECTED)
        sections.setdefault(kind, []).append(section)
    for section in sections.get("files", ()):
        _files(text, section)
    for section in sections.get("objects", ()):
        _objects(text, section, objects, given)
    read = drafts(sections.get("function", ()))
    program = _program(text, sections, {name: draft.finished() for name, draft in read.items()})
    check(program, "parsing")
    known = CallTypes(program)
    for name, draft in read.items():
        draft.hold_types(program.functions[name], partial(known.noted, name))
    return program


_SECTIONS = ("program", "function", "callable", "files", "objects")
_EXPECTED = "a section: program, function, callable, files or objects"


def _files(text: Text, lines: list[Line]) -> None:
    lines[0].done()
    for line in lines[1:]:
        key = line.word("a file, as walk.py = '/its/path/walk.py'")
        line.expect(" = ")
        text.files[key] = str(line.value())
        line.done()


def _objects(
    text: Text,
    lines: list[Line],
    objects: Mapping[str, object],
    given: Callable[[str], object],
) -> None:
    lines[0].done()
    for line in lines[1:]:
        start = line.at
        name = line.object_name()
        line.expect(": ")
        is_imported = line.one_of({"imported": True, "given": False}, "imported or given")
        line.done()
        try:
            text.objects[name] = _object(name, is_imported, objects, given)
        except Unresolved as error:
            hint = f'pass it: autobatch.parse(text, objects={{"{name}": …}}).'
            what = f"there is no such object: {error}"
            text.fail(what, line.number, start, start + len(name), hint)


def _object(
    name: str,
    is_imported: bool,
    objects: Mapping[str, object],
    given: Callable[[str], object],
) -> object:
    if name in objects:
        return objects[name]
    if not is_imported:
        return given(name)
    try:
        return imported(name)
    except Unresolved:
        if given is _given:
            raise
        return given(name)


def _given(name: str) -> object:
    raise Unresolved("importing does not give it")


def _program(
    text: Text, sections: Mapping[str, Sequence[list[Line]]], functions: dict[str, Function]
) -> Program:
    heads = sections.get("program", ())
    if len(heads) != 1:
        firsts = [first for kind in sections.values() for first, *_ in kind]
        number = heads[1][0].number if heads else firsts[0].number if firsts else 1
        text.fail(f"expected one section `program`, not {len(heads)}", number, 0, 1)
    entry, shapes, out_vars = _program_line(heads[0][0])
    called: Any = None
    for line, *_ in sections.get("callable", ()):
        line.expect(" = ")
        called = line.value()
        line.done()
    return Program(functions, entry, called, out_vars, shapes)


def _program_line(line: Line) -> tuple[str, dict[Var, EventShape], tuple[str, ...]]:
    line.expect(" ")
    entry = line.name("the name of the function to enter")
    shapes: dict[Var, EventShape] = {}
    if line.has(" of "):
        shapes = dict(line.many(lambda: (line.var(), _shape(line))))
    line.expect(" -> ")
    out_vars = line.many(lambda: line.name("the name of a leaf of the result"))
    line.done()
    return entry, shapes, tuple(out_vars)


def _shape(line: Line) -> EventShape:
    line.expect(" [")
    return tuple(line.many(lambda: None if line.has("*") else line.count(), "]"))
