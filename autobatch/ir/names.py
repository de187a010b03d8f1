"""The names in the text of a program: of files, of Python objects, of functions that share one.

In: the records of a program. Out: for each a name that is distinct within the text, and whether it
has to stand between quotes. Like the printer, it knows records by their class name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from autobatch.ir.objects import object_name, objects_in

if TYPE_CHECKING:
    from autobatch.ir.program import Block, Function, Op, Program

GENERATED = " generated"
NAME = re.compile(r"[^\s,()\[\]=*?:'\"#][^\s,()\[\]=*?:'\"#]*(?:#[0-9]+)?")
"""What stands without quotes; a helper of a name that is taken is called ``name#2``."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a text: of nested functions and objects by identity, of files by path."""

    things: Mapping[int, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def of(self, value: object) -> str:
        return self.things.get(id(value)) or object_name(value)

    def file(self, path: str) -> str:
        return self.files.get(path) or base_name(path)


NO_NAMES = Names()


def objects_of(program: Program) -> dict[str, object]:
    """The Python objects of a program by the names that they have in its text."""
    ops = (op for function in _all(program) for block in function.blocks for op in _ops(block))
    attrs = (op.attr for op in ops if type(op.attr).__name__ not in _SHOWN_OTHERWISE)
    return objects_in([program.callable, *attrs])


def files_of(program: Program) -> dict[str, str]:
    """The files that a program comes from by the names that they have in its text."""
    paths = dict.fromkeys(
        span.file
        for function in _all(program)
        for record in (function, *(each for block in function.blocks for each in _records(block)))
        if hasattr(record.span, "file")
        for span in record.span.chain()
    )
    keys: dict[str, str] = {}
    for path in paths:
        base = key = base_name(path)
        count = 1
        while key in keys:
            key, count = f"{base}@{count + 1}", count + 1
        keys[key] = path
    return keys


_SHOWN_OTHERWISE = ("CallShape", "UnpackShape", "Function")


def _all(program: Program) -> Iterator[Function]:
    for function in program.functions.values():
        yield from function.walk()


def _ops(block: Block) -> tuple[Op, ...]:
    return block.ops if block.converted is None else block.ops + block.converted.ops


def _records(block: Block) -> Iterable[Any]:
    ends = [block.terminator, *([block.converted.terminator] if block.converted else [])]
    return (*_ops(block), *ends)


def base_name(path: str) -> str:
    """The last name of a path, with nothing in it that would end it in a text."""
    return re.sub(r"\s", "_", PurePath(path).name) or "_"


def name_text(name: str) -> str:
    """A name, between quotes where it would not be read as one."""
    bare = NAME.fullmatch(name) and not re.search(r"@[0-9]+$", name)
    return name if bare else repr(name)


def function_names(function: Function, names: Names) -> Names:
    """The names, with a distinct one for the function and each that is nested in it."""
    seen: dict[str, int] = {}
    labels = {}
    for each in function.walk():
        count = seen[each.name] = seen.get(each.name, 0) + 1
        text = name_text(each.name)
        labels[id(each)] = text if count == 1 else f"{text}@{count}"
    return Names({**names.things, **labels}, names.files)


def own_name(text: str) -> str:
    """The function's own name in a name that may have a number after it."""
    name = re.sub(r"@[0-9]+$", "", text)
    return str(ast.literal_eval(name)) if name[:1] in "'\"" else name
