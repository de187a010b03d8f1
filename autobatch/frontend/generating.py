"""What a generator expression that is kept gives: its items, each made where it is taken.

A program calls these on the host. ``function`` is the program's own: it has the item of the first
``for``, and gives what the expression makes of it (see ``kept``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def items(function: Callable[[Any], Iterable[Any]], iterator: Iterator[Any]) -> Iterator[Any]:
    """The items of one ``for``; ``function`` gives one, or none that its ``if`` let through."""
    for item in iterator:
        yield from function(item)


def items_of_each(
    function: Callable[[Any], Iterable[Iterable[Any]]], iterator: Iterator[Any]
) -> Iterator[Any]:
    """The items of nested ``for``; ``function`` gives those of the inner ones, or none."""
    for item in iterator:
        for inner in function(item):
            yield from inner
