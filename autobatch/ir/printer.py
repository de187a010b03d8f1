"""The text of programs, for people and golden tests.

In: the records of ``ir.program``, well formed or not (the verifier prints broken ones).
Out: text that depends on nothing but the records. The printer knows records by their class
name, so that ``ir.program`` can import it for ``__str__``.

    program    = "program" NAME ["of" shape {", " shape}] "->" vars,
                 then each function after an empty line
    shape      = VAR "[" [size {", " size}] "]"                       (size is a NUMBER or "*")
    function   = "function" NAME "(" params ")" ["captures" vars] ":" place
                 {block}, then each nested function after an empty line
    params     = as in Python, "=..." on a parameter that has a default
    block      = LABEL ["under" vars] ["except" VAR "->" LABEL] ":" {operation} terminator
                 [LABEL "converted, to the end of" LABEL ":" {operation} terminator]
    operation  = [vars "="] ("call" | "fork") VAR "(" arguments ")" place
               | [vars "="] OP [literal | NAME] place                 (OP has no operands)
               | [vars "="] OP ["[" literal | NAME "]"] [vars] place
    terminator = "jump" LABEL place
               | "branch" VAR "?" LABEL ":" LABEL place
               | "call" VAR "(" arguments ")" "->" VAR ", then" LABEL place
               | "join, then" LABEL place
               | "return" VAR place
               | "raise" VAR ["from" VAR] place
    arguments  = {VAR | "*" VAR | NAME "=" VAR | "**" VAR}, parted by ", "
    vars       = VAR {", " VAR}
    place      = "# line" NUMBER | "#" FILE ":" NUMBER

A LABEL is ``b`` and the block's index, a VAR any text without blanks or commas (temporaries
are ``%1``, ``%2``, …), a literal Python's own; an object that has none is ``<its.name>``.
Of functions that share a name within one text the second is ``name@2``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autobatch.ir.program import (
        Block,
        CallShape,
        EventShape,
        Function,
        Op,
        Param,
        Program,
        Terminator,
    )

Place = tuple[int, int]
"""Block and index within it; the index of a terminator is the number of ops, of a label -1."""
HEADER: Place = (-1, -1)

_COMMENT_COLUMN = 44
_LITERALS = (bool, int, float, complex, str, bytes, type(None), type(...))


def format_program(program: Program) -> str:
    """The program's text: a header, then its functions, the entry's first."""
    shapes = ", ".join(f"{name} {sizes(shape)}" for name, shape in program.in_shapes.items())
    inputs = f" of {shapes}" if shapes else ""
    texts = [f"program {program.entry}{inputs} -> {', '.join(program.out_vars)}"]
    texts += [format_function(function) for function in program.functions.values()]
    return "\n\n".join(texts)


def sizes(shape: EventShape) -> str:
    """An event shape as text: ``[3, *]``."""
    if not isinstance(shape, tuple):
        return literal(shape)
    return f"[{', '.join('*' if size is None else str(size) for size in shape)}]"


def format_function(function: Function) -> str:
    """The function's text, followed by that of the functions nested in it."""
    labels = function_labels(function)
    texts = (
        "\n".join(text for _, text in function_lines(each, labels)) for each in function.walk()
    )
    return "\n\n".join(texts)


def function_lines(function: Function, labels: Mapping[int, str]) -> Iterator[tuple[Place, str]]:
    """The lines of one function without its nested ones, each with the place that it shows."""
    yield HEADER, _header(function, labels)
    for label, block in enumerate(function.blocks):
        yield (label, -1), f"  b{label}{_modes(block)}{_handler(block)}:"
        for index, op in enumerate(block.ops):
            yield (label, index), _line(_operation(op, labels), op, function)
        text = format_terminator(block.terminator)
        yield (label, len(block.ops)), _line(text, block.terminator, function)
        if block.converted is not None:
            yield from _converted(label, block, function, labels)


def _converted(
    label: int, block: Block, function: Function, labels: Mapping[int, str]
) -> Iterator[tuple[Place, str]]:
    """Its places go on from those of the block."""
    converted, start = block.converted, len(block.ops) + 1
    assert converted is not None
    yield (label, start), f"  b{label} converted, to the end of b{converted.ends}:"
    for index, op in enumerate(converted.ops, start + 1):
        yield (label, index), _line(_operation(op, labels), op, function)
    end = start + 1 + len(converted.ops)
    text = format_terminator(converted.terminator)
    yield (label, end), _line(text, converted.terminator, function)


def function_labels(function: Function) -> dict[int, str]:
    """A distinct name for the function and each that is nested in it, by identity."""
    seen: dict[str, int] = {}
    labels = {}
    for each in function.walk():
        count = seen[each.name] = seen.get(each.name, 0) + 1
        labels[id(each)] = each.name if count == 1 else f"{each.name}@{count}"
    return labels


def format_op(op: Op) -> str:
    """One operation, without its place."""
    return _operation(op, {})


def format_terminator(terminator: Terminator) -> str:
    """One terminator, without its place; something else than a terminator as an object."""
    write = _TERMINATORS.get(type(terminator).__name__, _object)
    return write(terminator)


def literal(value: object) -> str:
    """Python's literal for ``value`` where it has one, otherwise ``<its.name>``."""
    if type(value) in _LITERALS:
        return ast.unparse(ast.Constant(value))  # type: ignore[arg-type]
    if type(value) is tuple:
        items = ", ".join(map(literal, value))
        return f"({items},)" if len(value) == 1 else f"({items})"
    if type(value) is frozenset:
        return f"frozenset({{{', '.join(sorted(map(literal, value)))}}})"
    return _object(value)


def _object(value: object) -> str:
    """A name without an address, so that two runs print the same."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if isinstance(name, str):
        module = getattr(value, "__module__", None)
        return f"<{module}.{name}>" if isinstance(module, str) else f"<{name}>"
    kind = type(value)
    return f"<{kind.__module__}.{kind.__qualname__} object>"


def _header(function: Function, labels: Mapping[int, str]) -> str:
    captures = f" captures {', '.join(function.free)}" if function.free else ""
    name = labels.get(id(function), function.name)
    file, line = getattr(function.span, "file", "?"), getattr(function.span, "line", "?")
    return f"function {name}({_params(function.params)}){captures}:  # {PurePath(file).name}:{line}"


def _params(params: tuple[Param, ...]) -> str:
    """Parameters as Python writes them, with the bare ``/`` and ``*`` that their kinds need."""
    parts: list[str] = []
    last = None
    for param in params:
        if last == "positional_only" != param.kind:
            parts.append("/")
        if param.kind == "keyword_only" and last not in ("keyword_only", "var_positional"):
            parts.append("*")
        stars = {"var_positional": "*", "var_keyword": "**"}.get(param.kind, "")
        parts.append(f"{stars}{param.name}{'=...' if param.has_default else ''}")
        last = param.kind
    return ", ".join([*parts, "/"] if last == "positional_only" else parts)


def _modes(block: Block) -> str:
    return f" under {', '.join(block.modes)}" if block.modes else ""


def _handler(block: Block) -> str:
    return f" except {block.handler.out} -> b{block.handler.target}" if block.handler else ""


def _line(text: str, record: Op | Terminator, function: Function) -> str:
    span = getattr(record, "span", None)
    if span is None:
        place = "no line"
    elif span.file == getattr(function.span, "file", span.file):
        place = f"line {span.line}"
    else:
        place = f"{PurePath(span.file).name}:{span.line}"
    return f"{'    ' + text:<{_COMMENT_COLUMN}}  # {place}"


def _operation(op: Op, labels: Mapping[int, str]) -> str:
    outs = f"{', '.join(op.outs)} = " if op.outs else ""
    if op.name in ("call", "fork") and op.args and type(op.attr).__name__ == "CallShape":
        return f"{outs}{op.name} {op.args[0]}({_arguments(op.attr, op.args[1:])})"
    attr = _attr(op, labels)
    if op.args:
        bracketed = f"[{attr}]" if attr else ""
        return f"{outs}{op.name}{bracketed} {', '.join(op.args)}"
    return f"{outs}{op.name} {attr}".rstrip()


def _attr(op: Op, labels: Mapping[int, str]) -> str:
    attr = op.attr
    if attr is None and op.name != "const":
        return ""
    if op.name != "const" and isinstance(attr, str):
        return attr  # a name
    if op.name == "defer" and type(attr) is tuple and len(attr) == 2:
        return f"{attr[0]} {_attribute(attr[0], attr[1], labels)}".rstrip()
    return _attribute(op.name, attr, labels)


def _attribute(name: str, attr: Any, labels: Mapping[int, str]) -> str:
    if attr is None and name != "const":
        return ""
    kind = type(attr).__name__
    if kind == "CallShape":
        return f"({_arguments(attr, tuple('_' * (len(attr.positional) + len(attr.keywords))))})"
    if kind == "UnpackShape":
        return f"{attr.before}, *, {attr.after}" if attr.starred else str(attr.before)
    if kind == "Function":
        return labels.get(id(attr), attr.name)
    return literal(attr)


def _arguments(shape: CallShape, args: tuple[str, ...]) -> str:
    stars = ["*" if starred else "" for starred in shape.positional]
    stars += ["**" if name is None else f"{name}=" for name in shape.keywords]
    stars += ["?"] * (len(args) - len(stars))  # operands that a broken shape does not place
    return ", ".join(f"{star}{arg}" for star, arg in zip(stars, args, strict=False))


def _raise(terminator: Any) -> str:
    cause = f" from {terminator.cause}" if terminator.cause is not None else ""
    return f"raise {terminator.exception}{cause}"


def _call(terminator: Any) -> str:
    arguments = _arguments(terminator.shape, terminator.args)
    return f"call {terminator.callee}({arguments}) -> {terminator.out}, then b{terminator.target}"


_TERMINATORS: dict[str, Callable[[Any], str]] = {
    "Jump": lambda t: f"jump b{t.target}",
    "Branch": lambda t: f"branch {t.condition} ? b{t.then} : b{t.otherwise}",
    "Call": _call,
    "Join": lambda t: f"join, then b{t.target}",
    "Return": lambda t: f"return {t.value}",
    "Raise": _raise,
}
