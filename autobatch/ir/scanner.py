"""Reading program text: lines and the place in a line, and what was expected where it is wrong.

In: the text of a program, its grammar being that of ``ir.printer``. Out: sections, each a line
that is not indented and the indented ones after it; and of a line its words, names, literals and
spans, one after the other. Whatever does not fit raises ``ParseError`` with line, column and caret.
Empty lines, and those that begin with ``#``, say nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from autobatch.arguments.spelling import nearest
from autobatch.errors import Diagnostic, ParseError
from autobatch.ir.names import GENERATED, NAME
from autobatch.source import Span

T = TypeVar("T")
_STRING = re.compile(r"b?'(?:[^'\\]|\\.)*'|b?\"(?:[^\"\\]|\\.)*\"")
_NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|nan|[0-9.]+(?:e[-+]?[0-9]+)?j?)")
_OBJECT = re.compile(r"<(?:[^<>]|<[^<>]*>)+>(?:@[0-9]+)?")
_SPAN = re.compile(r"(?:(\S+):)?([0-9]+):([0-9]+)-(?:([0-9]+):)?([0-9]+)(?= from | generated|$)")
_WORDS: dict[str, object] = {"None": None, "True": True, "False": False, "...": ...}


@dataclass(frozen=True, slots=True)
class Text:
    """A whole text: the name of its file, and the objects and files that its tables name."""

    file: str
    content: str
    objects: dict[str, object] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def sections(self) -> Iterator[list[Line]]:
        """The lines of each section, its first one not indented."""
        found: list[Line] = []
        for number, content in enumerate(self.content.splitlines(), 1):
            line = Line(self, number, content.rstrip())
            if not line.rest() or line.rest().startswith("#"):
                continue
            if line.at == 0 and found:
                yield found
                found = []
            found.append(line)
        if found:
            yield found

    def fail(self, message: str, number: int, start: int, end: int, *hints: str) -> NoReturn:
        span = Span(self.file, number, start, number, end)
        headline = f"The program's text cannot be read: line {number}, column {start + 1}."
        raise ParseError(
            Diagnostic(headline, span, message, hints=hints, code="parse", text=self.content)
        )


@dataclass(slots=True, eq=False, repr=False)
class Line:
    """One line, and how far it has been read."""

    text: Text
    number: int
    content: str
    at: int = 0

    def __post_init__(self) -> None:
        self.at = self.indent

    @property
    def indent(self) -> int:
        return len(self.content) - len(self.content.lstrip())

    def rest(self) -> str:
        return self.content[self.at :]

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read what the pattern matches here, if it does."""
        found = pattern.match(self.content, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def has(self, words: str) -> bool:
        """Read these words, if they stand here."""
        found = self.content.startswith(words, self.at)
        if found:
            self.at += len(words)
        return found

    def expect(self, words: str) -> None:
        if not self.has(words):
            self.fail(f"expected {words.strip()!r}")

    def fail(self, message: str, start: int | None = None, *hints: str) -> NoReturn:
        """Raise what is wrong with the word that stands here, or with what was read since."""
        begin = self.at if start is None else start
        if start is None:
            begin += len(self.rest()) - len(self.rest().lstrip())
        word = re.compile(r"[^\s,()\[\]:]*").match(self.content, begin)
        end = max(begin + 1, self.at if start is not None else word.end() if word else 0)
        self.text.fail(message, self.number, begin, end, *hints)

    # What a line is made of.

    def name(self, what: str = "a name") -> str:
        """A name, bare or between quotes."""
        found = self.match(NAME) or self.match(_STRING)
        if found is None:
            self.fail(f"expected {what}")
        quoted = found.group()[0] in "'\""
        return str(ast.literal_eval(found.group())) if quoted else found.group()

    def var(self) -> str:
        found = self.match(NAME)
        if found is None:
            self.fail("expected the name of a variable")
        return found.group()

    def function_label(self) -> str:
        """The name of a function, with its number among those of that name."""
        start = self.at
        self.name("the name of a function")
        self.match(re.compile(r"@[0-9]+"))
        return self.content[start : self.at]

    def label(self) -> int:
        found = self.match(re.compile(r"b([0-9]+)\b"))
        if found is None:
            self.fail("expected the label of a block, as b0")
        return int(found.group(1))

    def count(self) -> int:
        found = self.match(re.compile(r"[0-9]+"))
        if found is None:
            self.fail("expected a number")
        return int(found.group())

    def many(self, one: Callable[[], T], end: str = "") -> list[T]:
        """Any number of things, parted by commas, and what ends them."""
        found: list[T] = []
        if end and self.has(end):
            return found
        found.append(one())
        while self.has(", "):
            found.append(one())
        self.expect(end)
        return found

    def one_of(self, table: Mapping[str, T], what: str, also: Iterable[str] = ()) -> T:
        """The entry of the word that stands here; ``also`` are others that may have been meant."""
        start = self.at
        found = self.match(re.compile(r"\w+"))
        if found is None:
            self.fail(f"expected {what}")
        if found.group() not in table:
            near = nearest(found.group(), [*table, *also])
            hints = [f"did you mean {near}?"] if near else []
            self.fail(f"expected {what}", start, *hints)
        return table[found.group()]

    def value(self) -> Any:
        """A literal, or an object by its name."""
        for word, value in _WORDS.items():
            if self.has(word):
                return value
        if self.has("("):
            return self._tuple()
        if self.has("frozenset({"):
            return frozenset(self.many(self.value, "})"))
        if self.has("complex("):
            return complex(*self.many(self.value, ")"))
        if (found := self.match(_STRING)) is not None:
            return ast.literal_eval(found.group())
        if (found := self.match(_NUMBER)) is not None:
            return self._number(found.group())
        return self._object()

    def _tuple(self) -> tuple[Any, ...]:
        items: list[Any] = []
        while not self.has(")"):
            items.append(self.value())
            if not self.has(", ") and not self.has(","):
                self.expect(")")
                break
        return tuple(items)

    def _number(self, text: str) -> Any:
        try:
            if text.endswith("j"):
                return complex(text)
            if "x" in text:
                return int(text, 16)
            return float(text) if set(text) & set(".en") else int(text)
        except ValueError:
            self.fail("expected a number", self.at - len(text))

    def _object(self) -> object:
        start = self.at
        name = self.object_name("a literal, or an object as <its.name>")
        if name not in self.text.objects:
            hint = f"end the text with a line `objects`, then `  {name}: imported`."
            self.fail("this object is not in the table of objects", start, hint)
        return self.text.objects[name]

    def object_name(self, what: str = "an object as <its.name>") -> str:
        found = self.match(_OBJECT)
        if found is None:
            self.fail(f"expected {what}")
        return found.group()

    def word(self, what: str) -> str:
        """Anything without blanks."""
        found = self.match(re.compile(r"\S+"))
        if found is None:
            self.fail(f"expected {what}")
        return found.group()

    def end(self, file: str) -> Span:
        """The span that ends the line; without one, the line itself is the source."""
        start = self.indent
        read, self.at = self.at, self.at + len(self.rest()) - len(self.rest().lstrip())
        if not self.rest():
            return Span(self.text.file, self.number, start, self.number, read)
        span = self.spot(file, "# ")
        while self.has(" from "):
            span = span.called_from(self.spot(file))
        return span

    def spot(self, file: str, before: str = "") -> Span:
        """A stretch of source text, without what it was called from."""
        start = self.at
        found = self.match(_SPAN) if self.has(before) else None
        if found is None:
            self.at = start
            self.fail("expected the end of the line, or a place as `# 12:4-12`")
        key, line, column, end_line, end_column = found.groups()
        path = self.text.files.get(key, key) if key else file
        end = int(end_line or line), int(end_column)
        return Span(path, int(line), int(column), *end, generated=self.has(GENERATED))

    def done(self) -> None:
        if self.rest().strip():
            self.fail("expected the end of the line")
