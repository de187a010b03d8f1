"""Python objects in the text of programs: their names there, and the way back.

In: the values that operations hold, and a program's callable. Out: for each that is no literal a
name without an address, ``<module.name>``, ``<module.kind object>`` for an instance, with ``@2``
after the second of that name; and the object that a name says, where importing its module gives it.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import BuiltinMethodType, MethodType, ModuleType

from autobatch.structure import own_attribute

LITERALS = (bool, int, float, complex, str, bytes, type(None), type(...))
_PART = r"[^\s<>,()\[\]'\"=]+"
_NAME = re.compile(rf"(?:{_PART}|<{_PART}>)+")
"""A dotted name whose parts may be ``<locals>`` or ``<lambda>``."""


@dataclass(frozen=True, slots=True)
class Absent:
    """What stands for an object that a text names, where the text is not to run."""

    name: str


class Unresolved(LookupError):
    """There is no such object to import; the message says what is missing."""


def objects_in(values: Iterable[object]) -> dict[str, object]:
    """The objects among values and in them, by name, in the order in which they come."""
    names: dict[str, object] = {}
    seen: dict[int, int] = {}
    counts: dict[str, int] = {}
    for value in values:
        for each in _parts(value):
            if id(each) in seen:
                continue
            base = object_name(each)
            count = counts[base] = counts.get(base, 0) + 1
            seen[id(each)] = count
            names[base if count == 1 else f"{base}@{count}"] = each
    return names


def _parts(value: object) -> Iterator[object]:
    if type(value) is tuple:
        for part in value:
            yield from _parts(part)
    elif type(value) is frozenset:
        for part in sorted(value, key=object_name):
            yield from _parts(part)
    elif type(value) not in LITERALS:
        yield value


def object_name(value: object) -> str:
    """A name without an address, so that two runs print the same."""
    if type(value) is Absent:
        return re.sub(r"@[0-9]+$", "", value.name)
    name = own_attribute(value, "__qualname__") or own_attribute(value, "__name__")
    if isinstance(name, str) and _NAME.fullmatch(name):
        module = own_attribute(value, "__module__")
        return f"<{module}.{name}>" if isinstance(module, str) else f"<{name}>"
    kind = type(value)
    return f"<{kind.__module__}.{kind.__qualname__} object>"


def is_importable(name: str, value: object) -> bool:
    """Whether a name, without being imported anew, gives the object that it names."""
    try:
        found = _found(name, load=False)
    except Unresolved:
        return False
    return found is value or (type(found) in (MethodType, BuiltinMethodType) and found == value)


def imported(name: str) -> object:
    """The object of a name; ``Unresolved`` where importing its module does not give it."""
    return _found(name, load=True)


def _found(name: str, load: bool) -> object:
    parts = name[1:-1].split(".")
    if not all(part.isidentifier() for part in parts):
        raise Unresolved("it has no name to import it by")
    for end in range(len(parts), 0, -1):
        module = _module(".".join(parts[:end]), load)
        if module is not None:
            return _attribute(module, parts[end:])
    raise Unresolved(f"there is no module {parts[0]!r}")


def _module(name: str, load: bool) -> ModuleType | None:
    if not load or name in sys.modules:
        return sys.modules.get(name)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name and name.startswith(error.name):
            return None
        raise Unresolved(f"its module cannot be imported: {error}") from error


def _attribute(found: object, parts: list[str]) -> object:
    for part in parts:
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise Unresolved(str(error)) from error
    return found
