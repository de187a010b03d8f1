"""Where a run begins: any callable as a function that can be lowered, and what calling it runs."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from autobatch.batching.calling.resolving import Target, resolve_object
from autobatch.batching.effects import effect_of
from autobatch.structure import own_attribute

LOWERED = frozenset({"program", "construct", "generator"})
"""What is Python to be lowered; a function that yields is refused as that is done."""


def name_of(function: Any) -> str:
    """What messages call it."""
    return own_attribute(function, "__name__") or type(function).__name__


def entry(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` if it is Python to be lowered, else a program that calls it.

    C functions, torch's modules and functions, and what ``per_thread`` or ``primitive`` has marked
    are operations; an object with a ``__call__`` in Python stands for that method.
    """
    if resolve_object(function, [], {}).effect in LOWERED:
        return function
    return stand_in(function)


def started(function: Callable[..., Any]) -> Target:
    """What a run of ``entry(function)`` calls, without its arguments."""
    target = resolve_object(function, [], {})
    if target.effect in LOWERED:
        return target
    found = stand_in(function)
    if isinstance(found, types.MethodType):
        return resolve_object(found, [], {})
    return Target("program", found, [], {})


def stand_in(function: Callable[..., Any]) -> Callable[..., Any]:
    """A program for what is no Python to be lowered itself."""
    method = getattr(type(function), "__call__", None)  # noqa: B004
    if isinstance(method, types.FunctionType) and effect_of(method) == "program":
        return types.MethodType(method, function)
    return calling(function)


def is_calling(function: Any) -> bool:
    """Whether it is a program that only calls something."""
    return own_attribute(function, "__autobatch_stands_for__") is not None


def calling(function: Callable[..., Any]) -> Callable[..., Any]:
    """A program of its own that calls ``function``, which has recordings of its own."""
    if is_calling(function):
        return function

    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    called.__autobatch_stands_for__ = function  # type: ignore[attr-defined]
    return called
