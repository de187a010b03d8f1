"""The lines of a block in a program's text: operations and terminators; see ``ir.parser``.

In: one line, not read yet. Out: the ``Op`` or ``Terminator`` that it is. How a terminator goes on
is in the table ``TERMINATORS``, by its first word; how an attribute is written in ``ATTRIBUTES``,
by the first word of what ``ir.ops`` says of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autobatch.ir.names import NAME
from autobatch.ir.ops import OPS
from autobatch.ir.program import (
    Branch,
    Call,
    CallShape,
    Function,
    Join,
    Jump,
    Op,
    Raise,
    Return,
    Terminator,
    UnpackShape,
    Var,
)
from autobatch.ir.scanner import Line
from autobatch.ir.types import Type, of_text

_OUTS = re.compile(rf"({NAME.pattern}(?:, {NAME.pattern})*)(?:: ([^=\"'#]*))? = ")
_GIVES = re.compile(rf" -> {NAME.pattern}: ([^=\"'#]*), then b[0-9]")
_TYPE = re.compile(r": [^=\"'#]*(?=, then b[0-9])")
_WORD = re.compile(r"\w+")
_MORE = re.compile(r" (?=[^\s#])")
_EXPECTED = "an operation of the table (`autobatch ops`) or a terminator"


@dataclass(frozen=True, slots=True)
class Nested:
    """The label of a nested function, until that has been read."""

    label: str
    line: Line
    start: int

    def among(self, made: Mapping[str, Function]) -> Function:
        if self.label not in made:
            self.line.fail("no function of this name is nested in this one", self.start)
        return made[self.label]


@dataclass(frozen=True, slots=True)
class Said:
    """A type that a line says, and where."""

    type: Type
    line: Line
    start: int

    def hold(self, known: Type | None) -> None:
        """A line may say what is known, and nothing else."""
        if known != self.type:
            what = "nothing is known of what" if known is None else f"it is {known} that"
            text, end = self.line.text, self.start + len(str(self.type))
            text.fail(f"{what} this operation gives", self.line.number, self.start, end)


def said_type(line: Line) -> Said | None:
    """What a line that has not been read says of what its operation gives."""
    found = _OUTS.match(line.content, line.at)
    if found is None or found.group(2) is None:
        return None
    return said_at(line, found, 2)


def said_result(line: Line) -> Said | None:
    """What a line with a terminator says of what its call returns."""
    found = _GIVES.search(line.content, line.at)
    return None if found is None else said_at(line, found, 1)


def said_at(line: Line, found: re.Match[str], group: int) -> Said:
    kind = of_text(found.group(group))
    if kind is None:
        line.fail("expected a type, as int or float32[3, *]", found.start(group))
    return Said(kind, line, found.start(group))


def operation(line: Line, file: str) -> Op:
    """The operation of a line; ``file`` is that of its place, if that names none."""
    found = line.match(_OUTS)
    outs = tuple(found.group(1).split(", ")) if found is not None else ()
    name = line.one_of({name: name for name in OPS}, _EXPECTED, TERMINATORS)
    if name in ("call", "fork"):
        line.expect(" ")
        args, attr = called(line)
    else:
        attr, args = attributed(line, name)
    return Op(name, outs, args, attr, line.end(file))


def called(line: Line) -> tuple[tuple[Var, ...], CallShape]:
    """The operands of a call, the callee first, and how they reach its parameters."""
    callee = line.var()
    line.expect("(")
    args, shape = arguments(line)
    return (callee, *args), shape


def arguments(line: Line) -> tuple[tuple[Var, ...], CallShape]:
    """Arguments after their opening bracket."""
    positional: list[bool] = []
    keywords: list[str | None] = []
    args: list[Var] = []
    for how, var in line.many(lambda: argument(line), ")"):
        args.append(var)
        if how in ("", "*") and not keywords:
            positional.append(how == "*")
        elif how in ("", "*"):
            line.fail("expected no more positional arguments after keywords", line.indent)
        else:
            keywords.append(how.removesuffix("=") if how != "**" else None)
    return tuple(args), CallShape(
        tuple(positional), tuple(keywords), line.has(" entered"), line.has(" unfit")
    )


def argument(line: Line) -> tuple[str, Var]:
    """How an argument is passed (``*``, ``**``, ``name=``, or nothing), and its variable."""
    stars = "**" if line.has("**") else "*" if line.has("*") else ""
    if stars:
        return stars, line.var()
    name = line.name("an argument")
    return (f"{name}=", line.var()) if line.has("=") else ("", name)


def attributed(line: Line, name: str) -> tuple[Any, tuple[Var, ...]]:
    """The attribute of an operation, and its operands."""
    if line.has("["):
        attr = attribute(line, name)
        line.expect("] ")
        return attr, tuple(line.many(line.var))
    if OPS[name].attr and name != "format":
        line.expect(" ")
        return attribute(line, name), ()
    operands = line.many(line.var) if line.match(_MORE) else []
    return "" if name == "format" else None, tuple(operands)


def attribute(line: Line, name: str) -> Any:
    """The attribute of an operation that has one."""
    kind = OPS[name].attr.split()[0]
    return ATTRIBUTES[kind.strip("(,:")](line)


def shape_of_call(line: Line) -> CallShape:
    line.expect("(")
    return arguments(line)[1]


def shape_of_unpacking(line: Line) -> UnpackShape:
    before = line.count()
    return UnpackShape(before, True, line.count()) if line.has(", *, ") else UnpackShape(before)


def label_of_nested(line: Line) -> Nested:
    start = line.at
    return Nested(line.function_label(), line, start)


def deferred(line: Line) -> tuple[str, Any]:
    """An operation's name and its attribute."""
    name = line.one_of({name: name for name in OPS}, _EXPECTED)
    return name, attribute(line, name) if OPS[name].attr and line.has(" ") else None


ATTRIBUTES: dict[str, Callable[[Line], Any]] = {
    "name": Line.name,
    "value": Line.value,
    "CallShape": shape_of_call,
    "UnpackShape": shape_of_unpacking,
    "Function": label_of_nested,
    "conversion": Line.name,
    "module": Line.value,
    "operation": deferred,
}


# Terminators.


def terminator(line: Line, file: str) -> Terminator | None:
    """The terminator of a line, None if the line is an operation."""
    if _OUTS.match(line.content, line.at):
        return None
    word = _WORD.match(line.content, line.at)
    if word is None or word.group() not in TERMINATORS:
        return None
    line.match(_WORD)
    kind, fields = TERMINATORS[word.group()](line)
    made: Terminator = kind(*fields, line.end(file))
    return made


def jump(line: Line) -> tuple[Any, tuple[Any, ...]]:
    line.expect(" ")
    return Jump, (line.label(),)


def branch(line: Line) -> tuple[Any, tuple[Any, ...]]:
    line.expect(" ")
    condition = line.var()
    line.expect(" ? ")
    then = line.label()
    line.expect(" : ")
    return Branch, (condition, then, line.label())


def call(line: Line) -> tuple[Any, tuple[Any, ...]]:
    line.expect(" ")
    (callee, *args), shape = called(line)
    line.expect(" -> ")
    out = line.var()
    line.match(_TYPE)  # read before (``said_result``)
    line.expect(", then ")
    return Call, (out, callee, tuple(args), shape, line.label())


def join(line: Line) -> tuple[Any, tuple[Any, ...]]:
    line.expect(", then ")
    return Join, (line.label(),)


def return_(line: Line) -> tuple[Any, tuple[Any, ...]]:
    line.expect(" ")
    return Return, (line.var(),)


def raise_(line: Line) -> tuple[Any, tuple[Any, ...]]:
    line.expect(" ")
    exception = line.var()
    return Raise, (exception, line.var() if line.has(" from ") else None)


TERMINATORS: dict[str, Callable[[Line], tuple[Any, tuple[Any, ...]]]] = {
    "jump": jump,
    "branch": branch,
    "call": call,
    "join": join,
    "return": return_,
    "raise": raise_,
}
