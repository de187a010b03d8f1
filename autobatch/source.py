"""Where things stand in the user's source: spans, caret excerpts, and a function's syntax tree.

In: code objects, whose file is read through ``linecache`` (so doctests and IPython cells work).
Out: ``Span`` records and ``FunctionSource``: the node that a code object was compiled from.
Invariant: columns are 0-based and count characters, not the UTF-8 bytes that ``ast`` counts.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
import sysconfig
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FunctionType
from typing import cast

from autobatch.recompiled import is_same, is_within

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_Position = tuple[int, int]


PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
"""Where autobatch's own code stands."""
INSTALLED = tuple(
    sorted({sysconfig.get_path(each) + os.sep for each in ("stdlib", "purelib", "platlib")})
)
"""Where Python's library and what is installed stand."""


def is_of_library(file: str) -> bool:
    """Whether source is none of the user's own."""
    return file.startswith(INSTALLED)


class SourceUnavailable(LookupError):
    """A function's source text cannot be found; the message says why."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of source text: lines count from 1, columns from 0 in characters.

    ``caller`` is the call whose callee's text it is, where that was inlined. ``generated``: it is
    in a generator expression, where that makes its items.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    caller: Span | None = None
    generated: bool = False

    def called_from(self, call: Span) -> Span:
        """The same place, in a function that was inlined at ``call``."""
        outer = call if self.caller is None else self.caller.called_from(call)
        return replace(self, caller=outer)

    def chain(self) -> tuple[Span, ...]:
        """The calls that lead here within one function of the program, then the place itself."""
        before = () if self.caller is None else self.caller.chain()
        return (*before, self)


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A function's syntax node; ``owner`` is the class whose body it stands in, if any.

    ``code`` is what Python has made of it, where that is known.
    """

    node: FunctionNode
    file: str
    lines: tuple[str, ...]
    owner: str | None
    code: CodeType | None = None

    def span(self, node: ast.AST) -> Span:
        return node_span(node, self.file, self.lines)


@dataclass(frozen=True, slots=True)
class _Definition:
    node: FunctionNode
    owner: str | None


def node_span(node: ast.AST, file: str, lines: tuple[str, ...]) -> Span:
    """The span of a node that carries positions."""
    place = cast("ast.expr", node)
    end_line = place.end_lineno if place.end_lineno is not None else place.lineno
    end_column = place.end_col_offset if place.end_col_offset is not None else place.col_offset
    return Span(
        file,
        place.lineno,
        _characters(lines, place.lineno, place.col_offset),
        end_line,
        _characters(lines, end_line, end_column),
    )


def span_at(file: str, positions: Sequence[int | None], lines: Sequence[str]) -> Span | None:
    """The span of an instruction, by its lines and its columns in bytes (``co_positions``)."""
    line, end_line, column, end_column = positions
    if line is None or end_line is None or column is None or end_column is None:
        return None
    start, end = _characters(lines, line, column), _characters(lines, end_line, end_column)
    return Span(file, line, start, end_line, end)


def _characters(lines: Sequence[str], line: int, byte_offset: int) -> int:
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    if text.isascii():
        return byte_offset
    return len(text.encode()[:byte_offset].decode(errors="replace"))


def byte_column(lines: Sequence[str], line: int, column: int) -> int:
    """A column that counts characters, as ``ast`` counts it."""
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    return len(text[:column].encode()) if len(text) >= column else column


ANYONES = "<string>"
"""The file name of whatever ``exec`` compiles; from Python 3.13 on there is the text of ``-c``."""


def function_node(function: FunctionType) -> FunctionSource:
    """The syntax node that ``function`` was compiled from.

    Raises ``SourceUnavailable`` when there is no text, or when it no longer fits the code.
    """
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines or code.co_filename == ANYONES:
        raise SourceUnavailable(
            f"the source of {function.__qualname__}() is not available "
            f"(it was compiled from {code.co_filename!r})"
        )
    text = "".join(lines)
    fits = is_same(text, code)
    if not fits:
        linecache.checkcache(code.co_filename)  # its file may have been loaded again
        if linecache.getlines(code.co_filename, function.__globals__) != lines:
            return function_node(function)
    found = _definition(function, text)
    if not (fits or is_within(text, code)):
        raise SourceUnavailable(_mismatch(function, 0))
    return FunctionSource(found.node, code.co_filename, tuple(lines), found.owner, code)


def _definition(function: FunctionType, text: str) -> _Definition:
    """The one definition of a text that may be a function's."""
    code = function.__code__
    try:
        definitions = _definitions(text)
    except SyntaxError as error:
        raise SourceUnavailable(f"{code.co_filename} is not readable as Python: {error}") from None
    here = definitions.get(code.co_firstlineno, ())
    found = [d for d in here if _name(d.node) == code.co_name] or _renamed(code, here)
    if len(found) > 1:
        found = _at_code_position(code, found)
    if len(found) != 1:
        raise SourceUnavailable(_mismatch(function, len(found)))
    return found[0]


def definition_at(span: Span) -> FunctionNode | None:
    """The syntax node of the function whose span it is; None where there is no text."""
    lines = tuple(linecache.getlines(span.file))
    try:
        definitions = _definitions("".join(lines))
    except SyntaxError:
        return None
    nodes = (found.node for here in definitions.values() for found in here)
    starts = (
        (node, node_span(node, span.file, lines)) for node in nodes if node.lineno == span.line
    )
    return next((node for node, own in starts if own.column == span.column), None)


def ended_at(span: Span) -> str | None:
    """The name of the function whose last statement it is, if that is no ``return``."""
    lines = tuple(linecache.getlines(span.file))
    try:
        definitions = _definitions("".join(lines))
    except SyntaxError:
        return None
    for node in (found.node for here in definitions.values() for found in here):
        last = None if isinstance(node, ast.Lambda) else node.body[-1]
        if last is None or isinstance(last, ast.Return) or last.lineno != span.line:
            continue
        if node_span(last, span.file, lines).column == span.column:
            return _name(node)
    return None


def _mismatch(function: FunctionType, matches: int) -> str:
    where = f"{function.__code__.co_filename}, line {function.__code__.co_firstlineno}"
    if matches:
        return f"{matches} functions named {function.__name__} begin at {where}, all alike"
    name = function.__qualname__
    return (
        f"{where} does not hold {name}(): has the file changed since it was loaded? Load it again"
    )


def _name(node: FunctionNode) -> str:
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


@lru_cache(maxsize=64)
def _definitions(text: str) -> dict[int, tuple[_Definition, ...]]:
    """Every function of a file by the line that its code object names as its first."""
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = cast("ast.Module", compile(text, "<source>", "exec", flags, dont_inherit=True))
    found: dict[int, list[_Definition]] = {}
    for definition in _walk(tree, None):
        found.setdefault(_first_line(definition.node), []).append(definition)
    return {line: tuple(definitions) for line, definitions in found.items()}


def _walk(tree: ast.AST, owner: str | None) -> Iterator[_Definition]:
    """All definitions below ``tree``; a class's name stays the owner through nested functions."""
    pending = [(tree, owner)]
    while pending:
        node, owner = pending.pop()
        if isinstance(node, _DEFINITIONS):
            yield _Definition(node, owner)
        inner = node.name if isinstance(node, ast.ClassDef) else owner
        pending.extend((child, inner) for child in ast.iter_child_nodes(node))


def _first_line(node: FunctionNode) -> int:
    if isinstance(node, ast.Lambda):
        return node.lineno
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _at_code_position(code: CodeType, found: list[_Definition]) -> list[_Definition]:
    """The innermost definitions whose body holds every position that the code names."""
    starts, ends = [], []
    for line, end_line, column, end_column in code.co_positions():
        if None in (line, end_line, column, end_column) or (line, column) == (end_line, end_column):
            continue
        starts.append((cast(int, line), cast(int, column)))
        ends.append((cast(int, end_line), cast(int, end_column)))
    if not starts:
        return _by_content(code, found)
    start, end = min(starts), max(ends)
    holding = [d for d in found if _body(d.node)[0] <= start and end <= _body(d.node)[1]]
    innermost = max((_body(d.node)[0] for d in holding), default=None)
    return [d for d in holding if _body(d.node)[0] == innermost]


def _by_content(code: CodeType, found: list[_Definition]) -> list[_Definition]:
    """Definitions with the parameters and constants of the code, which names no positions.

    Python 3.12 gives none to a function that only returns a constant, nor does any Python that
    was started with ``-X no_debug_ranges``. Of definitions that are all alike, any one will do.
    """
    parameters = _parameters(code)
    constants = {repr(constant) for constant in code.co_consts}
    alike = [
        d
        for d in found
        if _argument_names(d.node) == parameters
        and constants.issuperset(map(repr, _constants(d.node)))
    ]
    alike = [d for d in alike if _instructions(d.node) == code.co_code] or alike
    return alike[:1] if len({ast.dump(d.node) for d in alike}) == 1 else alike


def _instructions(node: FunctionNode) -> bytes:
    """The bytecode of a lambda that reads no variable of a function around it; of others, none."""
    if not isinstance(node, ast.Lambda):
        return b""
    made = compile(ast.Expression(node), "<lambda>", "eval").co_consts
    codes = [each for each in made if isinstance(each, CodeType)]
    return codes[-1].co_code  # those before it are of its defaults


def _renamed(code: CodeType, found: Iterable[_Definition]) -> list[_Definition]:
    """Definitions that the code may come from if it was given another name.

    As torch does from 2.15 on, so that a trace names the manager that a decorator enters. Its
    parameters, the names that it uses and its positions are those of the definition.
    """
    parameters = _parameters(code)
    fitting = [
        d
        for d in found
        if _argument_names(d.node) == parameters and _names(d.node).issuperset(code.co_names)
    ]
    return _at_code_position(code, fitting)


def _parameters(code: CodeType) -> tuple[str, ...]:
    """Parameters in the order of ``co_varnames``."""
    extra = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + extra]


def _names(node: FunctionNode) -> set[str]:
    """The names, attributes and modules of a definition, as ``co_names`` has them."""
    inner = list(ast.walk(node))
    names = {each.id for each in inner if isinstance(each, ast.Name)}
    names.update(each.attr for each in inner if isinstance(each, ast.Attribute))
    names.update(each.name for each in inner if isinstance(each, ast.alias))
    names.update(each.module or "" for each in inner if isinstance(each, ast.ImportFrom))
    return names


def _argument_names(node: FunctionNode) -> tuple[str, ...]:
    """Parameters in the same order."""
    given = node.args
    extra = [argument for argument in (given.vararg, given.kwarg) if argument is not None]
    return tuple(a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs, *extra))


def _constants(node: FunctionNode) -> tuple[object, ...]:
    """What a lambda's body has for constants, a definition's being too many to compare."""
    if not isinstance(node, ast.Lambda):
        return ()
    return compile(ast.Expression(node.body), "<lambda>", "eval").co_consts


def _body(node: FunctionNode) -> tuple[_Position, _Position]:
    inner = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
    last = inner[-1]
    return (inner[0].lineno, inner[0].col_offset), (last.end_lineno or 0, last.end_col_offset or 0)


def users_place(span: Span) -> Span:
    """``span``, but for one in autobatch's own code: the user's line that has called it."""
    if not span.file.startswith(PACKAGE):
        return span
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) and not is_torch(frame.f_globals):
            line, end_line, column, end_column = list(code.co_positions())[frame.f_lasti // 2]
            at = line or frame.f_lineno
            return Span(code.co_filename, at, column or 0, end_line or at, end_column or 0)
        frame = frame.f_back  # type: ignore[assignment]
    return span


def is_torch(namespace: dict[str, object]) -> bool:
    return str(namespace.get("__name__", "")).partition(".")[0] == "torch"


def excerpt(span: Span, label: str = "", source: str | None = None) -> str:
    """The place of ``span``: file and line, then the text with a caret under it.

    The text is that of the file, unless ``source`` holds it.
    """
    place = f'  File "{span.file}", line {span.line}'
    lines = linecache.getlines(span.file) if source is None else source.splitlines()
    text = lines[span.line - 1].rstrip() if 0 < span.line <= len(lines) else ""
    if not text:
        return f"{place}: {label}" if label else place
    end = span.end_column if span.end_line == span.line else len(text)
    carets = "^" * max(1, sum(map(_width, text[span.column : end])))
    indent = "".join(c if c == "\t" else " " * _width(c) for c in text[: span.column])
    number = str(span.line)
    pointer = f"    {' ' * len(number)} | {indent}{carets} {label}".rstrip()
    return f"{place}\n    {number} | {text}\n{pointer}"


def _width(character: str) -> int:
    """Terminal columns that a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
