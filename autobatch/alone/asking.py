"""What a program asks for by a name that it has as text: ``getattr(x, "word")``, ``"{0.word}"``.

In: a text that is known before the program runs. Out: the attributes that it names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import attrgetter, methodcaller
from string import Formatter
from typing import Any

ASKS: tuple[Callable[..., Any], ...] = (getattr, hasattr, setattr)
MAKES_ASKING: tuple[Callable[..., Any], ...] = (attrgetter, methodcaller)
"""What makes functions that ask what they get for an attribute."""
TITLES = frozenset({"__name__", "__qualname__"})
"""Texts that every class and function has, where no class says otherwise."""
FRAMES = frozenset({"tb_frame", "gi_frame", "gi_yieldfrom"})
"""What leads from an exception, or from what yields, to all that its functions held."""
ATTRIBUTE = re.compile(r"\.([^.\[\]]*)")


def fields(text: str) -> set[str]:
    """The attributes that ``str.format`` asks for, those of a field's own format among them."""
    found: set[str] = set()
    try:
        parts = list(Formatter().parse(text))
    except ValueError:  # it fails as it does in the loop, and asks for none
        return found
    for _, name, spec, _ in parts:
        found.update(ATTRIBUTE.findall(name or ""))
        found |= fields(spec or "")
    return found


def makes_asking(value: object) -> bool:
    return any(value is each for each in MAKES_ASKING)


def is_asking(value: object) -> bool:
    """Whether it is a function that gets the name of an attribute."""
    return makes_asking(value) or any(value is each for each in ASKS)
