"""The functions of a program's text: headers, parameters, blocks; see ``ir.parser``.

In: the lines of each function. Out: a ``Draft`` of each outermost function, which makes it and the
nested ones. What may stand between a block's label and its colon is in the table ``CLAUSES``, each
with what it sets of the block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from autobatch.ir.inference import Noted, noted
from autobatch.ir.names import own_name
from autobatch.ir.op_parser import (
    Nested,
    Said,
    operation,
    said_result,
    said_type,
    terminator,
)
from autobatch.ir.program import Block, Call, Converted, Function, Handler, Op, Param, Terminator
from autobatch.ir.scanner import Line


@dataclass(slots=True, eq=False, repr=False)
class Draft:
    """A function that has been read, but for those nested in it."""

    function: Function
    line: Line
    said: list[list[Said | None]]
    inner: dict[str, Draft] = field(default_factory=dict)

    def finished(self) -> Function:
        """The function, with the nested ones in place of their labels."""
        made = {label: draft.finished() for label, draft in self.inner.items()}
        blocks = tuple(_linked_block(block, made) for block in self.function.blocks)
        types: Noted = ()
        if any(map(any, self.said)):
            types = tuple(tuple(each.type if each else None for each in of) for of in self.said)
        return replace(self.function, blocks=blocks, nested=tuple(made.values()), types=types)

    def hold_types(self, function: Function, known: Callable[[], Noted]) -> None:
        """Hold the types that the text says to what is known; the function must be valid."""
        if function.types:
            for said, of_block in zip(self.said, known(), strict=True):
                for each, found in zip(said, of_block, strict=True):
                    if each is not None:
                        each.hold(found)
        for draft, inner in zip(self.inner.values(), function.nested, strict=True):
            draft.hold_types(inner, partial(noted, inner))


def _linked_block(block: Block, made: Mapping[str, Function]) -> Block:
    converted = block.converted
    if converted is not None:
        converted = replace(converted, ops=_linked(converted.ops, made))
    return replace(block, ops=_linked(block.ops, made), converted=converted)


def _linked(ops: Sequence[Op], made: Mapping[str, Function]) -> tuple[Op, ...]:
    return tuple(
        replace(op, attr=op.attr.among(made)) if isinstance(op.attr, Nested) else op for op in ops
    )


def drafts(sections: Sequence[list[Line]]) -> dict[str, Draft]:
    """The outermost functions by name, each with those that are nested in it."""
    outermost: dict[str, Draft] = {}
    known: dict[str, Draft] = {}
    for lines in sections:
        label, outer, draft = _function(lines)
        if outer is None:
            known, taken = {}, draft.function.name in outermost
            outermost[draft.function.name] = draft
        elif outer not in known:
            draft.line.fail(f"expected to be after the function {outer}, in which this is", 0)
        else:
            taken = label in known
            known[outer].inner[label] = draft
        if taken:
            draft.line.fail(f"there is another function {label}", 0)
        known[label] = draft
    return outermost


def _function(lines: list[Line]) -> tuple[str, str | None, Draft]:
    """The label of a function, that of the one it is nested in, and the function."""
    line = lines[0]
    line.expect(" ")
    label = line.function_label()
    line.expect("(")
    params = _params(line.many(lambda: _param(line), ")"))
    free = line.many(lambda: line.name("a captured variable")) if line.has(" captures ") else []
    outer = line.function_label() if line.has(" in ") else None
    line.expect(":")
    span = line.end(line.text.file)
    reader = Blocks(lines[1:], line, span.file)
    made = Function(own_name(label), params, reader.read(), tuple(free), span)
    return label, outer, Draft(made, line, reader.said)


_STARS = {"**": "var_keyword", "*": "var_positional", "": "positional"}


def _param(line: Line) -> tuple[str, Param | None]:
    """How a parameter begins, and the parameter; None for a bare ``/`` or ``*``."""
    if line.has("/"):
        return "/", None
    stars = "**" if line.has("**") else "*" if line.has("*") else ""
    if stars == "*" and line.rest()[:1] in (",", ")"):
        return "*", None
    return stars, Param(line.var(), _STARS[stars], line.has("=..."))


def _params(parts: Sequence[tuple[str, Param | None]]) -> tuple[Param, ...]:
    """Parameters with their kinds, which bare signs settle."""
    found: list[Param] = []
    keyword_only = False
    for stars, param in parts:
        if stars == "/":
            found = [replace(each, kind="positional_only") for each in found]
        elif param is not None:
            kind = "keyword_only" if keyword_only and not stars else param.kind
            found.append(replace(param, kind=kind))
        keyword_only = keyword_only or stars == "*"
    return tuple(found)


# Blocks.


def handler(line: Line) -> Handler:
    out = line.var()
    line.expect(" -> ")
    return Handler(line.label(), out)


CLAUSES: dict[str, tuple[str, Callable[[Line], Any]]] = {
    " under ": ("modes", lambda line: tuple(line.many(line.var))),
    " except ": ("handler", handler),
}


@dataclass(slots=True, eq=False, repr=False)
class Blocks:
    """The blocks of one function, line after line; ``file`` is that of places that name none.

    ``said`` are the types that operations are said to give, ``result`` what the last line says of
    its call.
    """

    lines: list[Line]
    header: Line
    file: str
    at: int = 0
    said: list[list[Said | None]] = field(default_factory=list)
    result: Said | None = None

    def read(self) -> tuple[Block, ...]:
        blocks: list[Block] = []
        while self.at < len(self.lines):
            line = self.next()
            start = line.at
            if line.label() != len(blocks):
                line.fail(f"expected the block b{len(blocks)}", start)
            blocks.append(self.block(line))
        return tuple(blocks)

    def next(self) -> Line:
        self.at += 1
        return self.lines[self.at - 1]

    def block(self, line: Line) -> Block:
        given = clauses(line)
        self.said.append([])
        ops, end = self.code(line)
        said = self.result
        converted = self.converted()
        if isinstance(end, Call):
            self.said[-1].append(said)
        return Block(ops, end, converted=converted, **given)

    def converted(self) -> Converted | None:
        """What the block before comes to, if that follows."""
        if self.at == len(self.lines) or " converted, " not in self.lines[self.at].content:
            return None
        line = self.next()
        line.label()
        line.expect(" converted, to the end of ")
        ends = line.label()
        line.expect(":")
        line.done()
        code = self.code(line)
        if self.result is not None:
            self.result.line.fail("expected no type here: the block says it", self.result.start)
        return Converted(*code, ends)

    def code(self, header: Line) -> tuple[tuple[Op, ...], Terminator]:
        """Operations, up to the terminator that follows them."""
        ops: list[Op] = []
        while self.at < len(self.lines):
            line = self.next()
            self.result = None if said_type(line) else said_result(line)
            end = terminator(line, self.file)
            if end is not None:
                return tuple(ops), end
            self.said[-1].append(said_type(line))
            ops.append(operation(line, self.file))
        header.fail("this block has no terminator: expected jump, branch, call, …", header.indent)


def clauses(line: Line) -> dict[str, Any]:
    """What stands between a block's label and its colon."""
    given: dict[str, Any] = {}
    while not line.has(":"):
        word = next((word for word in CLAUSES if line.has(word)), None)
        if word is None:
            line.fail("expected ':'")
        name, read = CLAUSES[word]
        given[name] = read(line)
    line.done()
    return given
