"""The text of programs, for people and golden tests; ``ir.parser`` reads it back.

In: the records of ``ir.program``, well formed or not (the verifier prints broken ones).
Out: text that depends on nothing but the records and the names that objects have. The printer
knows records by their class name, so that ``ir.program`` can import it for ``__str__``.

    program    = "program" NAME ["of" shape {", " shape}] "->" names,
                 then each function, and the tables that are not empty, after an empty line
    shape      = VAR "[" [size {", " size}] "]"                       (size is a NUMBER or "*")
    function   = "function" NAME "(" params ")" ["captures" names] ["in" NAME] ":" place
                 {block}, then each nested function ("in" its outer one) after an empty line
    params     = as in Python, "=..." on a parameter that has a default
    block      = LABEL {clause} ":" {operation} terminator
                 [LABEL "converted, to the end of" LABEL ":" {operation} terminator]
    clause     = "under" vars | "except" VAR "->" LABEL
    operation  = [outs "="] ("call" | "fork") VAR "(" arguments ")" {how} place
               | [outs "="] OP [attribute] place                      (OP has no operands)
               | [outs "="] OP ["[" attribute "]"] [vars] place
    outs       = VAR ":" type | vars                                  (type is that of ir.types)
    attribute  = NAME | literal                                       (as the table of OPs says)
               | NUMBER [", *, " NUMBER]                              (of unpack)
               | OP [attribute]                                       (of defer)
               | "(" arguments ")"                     (of a deferred call, "_" for each operand)
    terminator = "jump" LABEL place
               | "branch" VAR "?" LABEL ":" LABEL place
               | "call" VAR "(" arguments ")" {how} "->" VAR [":" type] ", then" LABEL place
               | "join, then" LABEL place
               | "return" VAR place
               | "raise" VAR ["from" VAR] place
    how        = "entered" | "unfit"
    arguments  = {VAR | "*" VAR | NAME "=" VAR | "**" VAR}, parted by ", "
    vars       = VAR {", " VAR}
    names      = NAME {", " NAME}
    place      = "#" spot {" from " spot}
    spot       = [FILE ":"] LINE ":" COLUMN "-" [LINE ":"] COLUMN ["generated"]
    tables     = ["callable =" literal]
                 ["files" {FILE "=" literal}]
                 ["objects" {OBJECT ":" ("imported" | "given")}]

A LABEL is ``b`` and the block's index. A VAR is any text without blanks, commas, brackets, quotes
and ``=*?:#`` (temporaries are ``%1``, ``%2``, …), a NAME the same or a quoted string. Of functions
that share a name within one outermost function the second is ``name@2``.

A place is where a record stands in the user's source, its columns counted from 0; its end is on
the same line if that is not said. FILE, a file's last name, is left out where it is that of the
function; the table says the whole path. What was inlined says ``from`` where it was called, the
innermost call first. What is ``generated`` is code of a generator expression, which raises no
``StopIteration``. A line without a place is a source of its own: its records stand there, in the
text. A call is ``entered`` where a ``with`` statement enters what it gives, and ``unfit`` where it
fits no parameters of the function that it is sure to run: threads that come to it raise
``TypeError``.

A type says what an operation gives, or a call, where that is known and the operation does not say
it: it is what literals and declared shapes come to (``ir.inference``), through the calls of global
names, too (``ir.call_types``). What a block is converted to says none of its call.

A literal is Python's own. An OBJECT is what has none: ``<its.name>``, ``<its.type object>``, with
``@2`` for the second of that name. One that is ``imported`` is found by importing its module, one
that is ``given`` has to be handed to whoever reads the text. ``callable`` is the Python function
that the program was made of.

What begins in the first column is a section, all else is indented. Lines that begin with ``#`` and
empty ones say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from autobatch.ir.literals import literal
from autobatch.ir.names import (
    GENERATED,
    NO_NAMES,
    Names,
    files_of,
    function_names,
    name_text,
    objects_of,
)
from autobatch.ir.objects import is_importable, object_name
from autobatch.source import Span

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
    from autobatch.ir.types import Type

Place = tuple[int, int]
"""Block and index within it; the index of a terminator is the number of ops, of a label -1."""
HEADER: Place = (-1, -1)

_COMMENT_COLUMN = 44


def format_program(program: Program) -> str:
    """The program's text: a header, its functions, the entry's first, and the tables."""
    objects, files = objects_of(program), files_of(program)
    things = {id(value): name for name, value in objects.items()}
    names = Names(things, {path: key for key, path in files.items()})
    texts = [_program_header(program)]
    texts += [_function(function, names) for function in program.functions.values()]
    texts += _tables(program, files, objects, names)
    return "\n\n".join(texts)


def _program_header(program: Program) -> str:
    shapes = ", ".join(f"{name} {sizes(shape)}" for name, shape in program.in_shapes.items())
    inputs = f" of {shapes}" if shapes else ""
    outs = ", ".join(map(name_text, program.out_vars))
    return f"program {name_text(program.entry)}{inputs} -> {outs}"


def _tables(
    program: Program, files: Mapping[str, str], objects: Mapping[str, object], names: Names
) -> Iterator[str]:
    if program.callable is not None:
        yield f"callable = {literal(program.callable, names.of)}"
    if files:
        yield "\n".join(["files", *(f"  {key} = {path!r}" for key, path in files.items())])
    if objects:
        how = {name: is_importable(name, value) for name, value in objects.items()}
        lines = (f"  {name}: {'imported' if known else 'given'}" for name, known in how.items())
        yield "\n".join(["objects", *lines])


def sizes(shape: EventShape) -> str:
    """An event shape as text: ``[3, *]``."""
    if not isinstance(shape, tuple):
        return literal(shape)
    return f"[{', '.join('*' if size is None else str(size) for size in shape)}]"


def format_function(function: Function) -> str:
    """The function's text, followed by that of the functions nested in it."""
    return _function(function, NO_NAMES)


def _function(function: Function, names: Names) -> str:
    names = function_names(function, names)
    texts = (
        "\n".join(text for _, text in _lines(each, outer, names))
        for each, outer in _nesting(function)
    )
    return "\n\n".join(texts)


def _nesting(
    function: Function, outer: Function | None = None
) -> Iterator[tuple[Function, Function | None]]:
    """The function and the ones nested in it, each with the one that it is nested in."""
    yield function, outer
    for inner in function.nested:
        yield from _nesting(inner, function)


def function_lines(function: Function) -> Iterator[tuple[Place, str]]:
    """The lines of one function without its nested ones, each with the place that it shows."""
    return _lines(function, None, function_names(function, NO_NAMES))


def _lines(function: Function, outer: Function | None, names: Names) -> Iterator[tuple[Place, str]]:
    yield HEADER, _header(function, outer, names)
    for label, block in enumerate(function.blocks):
        yield (label, -1), f"  b{label}{_modes(block)}{_handler(block)}:"
        types = _types_of(label, function)
        for index, op in enumerate(block.ops):
            text = _operation(op, names, types[index])
            yield (label, index), _line(text, op, function, names)
        known = types[-1] if type(block.terminator).__name__ == "Call" else None
        text = format_terminator(block.terminator, known)
        yield (label, len(block.ops)), _line(text, block.terminator, function, names)
        if block.converted is not None:
            yield from _converted(label, block, function, names)


def _converted(
    label: int, block: Block, function: Function, names: Names
) -> Iterator[tuple[Place, str]]:
    """Its places go on from those of the block."""
    converted, start = block.converted, len(block.ops) + 1
    assert converted is not None
    types = _types_of(label, function)[len(block.ops) :]
    yield (label, start), f"  b{label} converted, to the end of b{converted.ends}:"
    for index, op in enumerate(converted.ops, start + 1):
        text = _operation(op, names, types[index - start - 1])
        yield (label, index), _line(text, op, function, names)
    end = start + 1 + len(converted.ops)
    text = format_terminator(converted.terminator)
    yield (label, end), _line(text, converted.terminator, function, names)


def _types_of(label: int, function: Function) -> tuple[Type | None, ...]:
    """What the operations of a block are known to give, and those that it is converted to.

    Then what its call is known to return, if it ends in one. Nothing is where other blocks were
    noted.
    """
    block = function.blocks[label]
    count = len(block.ops) + (0 if block.converted is None else len(block.converted.ops))
    count += type(block.terminator).__name__ == "Call"
    noted = function.types[label] if label < len(function.types) else ()
    return noted if len(noted) == count else (None,) * count


def format_op(op: Op) -> str:
    """One operation, without its place."""
    return _operation(op, NO_NAMES)


def format_terminator(terminator: Terminator, known: Type | None = None) -> str:
    """One terminator, without its place; something else than a terminator as an object.

    ``known`` is what a call returns.
    """
    if known is not None:
        return _call(terminator, f": {known}")
    write = _TERMINATORS.get(type(terminator).__name__, object_name)
    return write(terminator)


def _header(function: Function, outer: Function | None, names: Names) -> str:
    captures = f" captures {', '.join(map(name_text, function.free))}" if function.free else ""
    within = f" in {names.of(outer)}" if outer is not None else ""
    text = f"function {names.of(function)}({params_text(function.params)}){captures}{within}:"
    return f"{text}  # {_place(function, '', names)}"


def vars_text(names: tuple[str, ...]) -> str:
    return ", ".join(map(str, names))


def params_text(params: tuple[Param, ...]) -> str:
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
    return f" under {vars_text(block.modes)}" if block.modes else ""


def _handler(block: Block) -> str:
    return f" except {block.handler.out} -> b{block.handler.target}" if block.handler else ""


def _line(text: str, record: Op | Terminator, function: Function, names: Names) -> str:
    place = _place(record, getattr(function.span, "file", ""), names)
    return f"{'    ' + text:<{_COMMENT_COLUMN}}  # {place}"


def _place(record: Any, file: str, names: Names) -> str:
    """Where a record stands; ``file`` need not be named."""
    span = getattr(record, "span", None)
    if span is None:
        return "nowhere"
    return " from ".join(_spot(each, file, names) for each in reversed(span.chain()))


def _spot(span: Span, file: str, names: Names) -> str:
    before = "" if span.file == file else f"{names.file(span.file)}:"
    end = f"{span.end_line}:" if span.end_line != span.line else ""
    inside = GENERATED if span.generated else ""
    return f"{before}{span.line}:{span.column}-{end}{span.end_column}{inside}"


def _operation(op: Op, names: Names, known: Type | None = None) -> str:
    said = "" if known is None else f": {known}"
    outs = f"{vars_text(op.outs)}{said} = " if op.outs else ""
    if op.name in ("call", "fork") and op.args and type(op.attr).__name__ == "CallShape":
        return f"{outs}{op.name} {op.args[0]}{_arguments(op.attr, op.args[1:])}"
    attr = _attribute(op.name, op.attr, names)
    if op.args:
        bracketed = f"[{attr}]" if attr else ""
        return f"{outs}{op.name}{bracketed} {vars_text(op.args)}"
    return f"{outs}{op.name} {attr}".rstrip()


def _attribute(name: str, attr: Any, names: Names) -> str:
    if name == "const":
        return literal(attr, names.of)
    if attr is None or (name == "format" and attr == ""):
        return ""
    if isinstance(attr, str):
        return name_text(attr)
    if name == "defer" and type(attr) is tuple and len(attr) == 2:
        return f"{attr[0]} {_attribute(attr[0], attr[1], names)}".rstrip()
    kind = type(attr).__name__
    if kind == "CallShape":
        return _arguments(attr, tuple("_" * (len(attr.positional) + len(attr.keywords))))
    if kind == "UnpackShape":
        return f"{attr.before}, *, {attr.after}" if attr.starred else str(attr.before)
    if kind == "Function":
        return names.things.get(id(attr)) or name_text(attr.name)
    return literal(attr, names.of)


def _arguments(shape: CallShape, args: tuple[str, ...]) -> str:
    stars = ["*" if starred else "" for starred in shape.positional]
    stars += ["**" if name is None else f"{name_text(name)}=" for name in shape.keywords]
    stars += ["?"] * (len(args) - len(stars))  # operands that a broken shape does not place
    given = ", ".join(f"{star}{arg}" for star, arg in zip(stars, args, strict=False))
    return f"({given}){' entered' if shape.entered else ''}{' unfit' if shape.unfit else ''}"


def _raise(terminator: Any) -> str:
    cause = f" from {terminator.cause}" if terminator.cause is not None else ""
    return f"raise {terminator.exception}{cause}"


def _call(terminator: Any, said: str = "") -> str:
    arguments = _arguments(terminator.shape, terminator.args)
    out = f"{terminator.out}{said}"
    return f"call {terminator.callee}{arguments} -> {out}, then b{terminator.target}"


_TERMINATORS: dict[str, Callable[[Any], str]] = {
    "Jump": lambda t: f"jump b{t.target}",
    "Branch": lambda t: f"branch {t.condition} ? b{t.then} : b{t.otherwise}",
    "Call": _call,
    "Join": lambda t: f"join, then b{t.target}",
    "Return": lambda t: f"return {t.value}",
    "Raise": _raise,
}
