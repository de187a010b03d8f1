"""What a program calls that holds a function of the user's: ``lru_cache``, ``partial``.

Both existed before the call. What a cache has got from one thread another one gets again, so it is
like what existed before: it may be read, and written only where nothing can be. Calling it for one
thread after another, in order, is what the loop does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from functools import partial
from types import FunctionType
from typing import Any

from autobatch.alone.kinds import is_generated
from autobatch.structure import own_attributes

KEEPING = type(functools.lru_cache(len))


def is_keeping(value: object) -> bool:
    """Whether it keeps the results of a function."""
    return type(value) is KEEPING


def is_bound(value: object) -> bool:
    """Whether it calls a function with more than it gets."""
    return type(value) is partial


def wrapped(found: Any) -> object:
    """The function whose results are kept."""
    return (own_attributes(found) or {}).get("__wrapped__")


def held(found: partial[Any]) -> list[Callable[[], Any]]:
    """All that a ``partial`` holds, to be looked up."""
    keywords: list[Callable[[], Any]] = [
        partial(found.keywords.get, name) for name in found.keywords
    ]
    return [lambda: found.func, lambda: len(found.keywords), lambda: found.args, *keywords]


def compares_by_itself(members: Mapping[str, Any]) -> bool:
    """Whether a class has a method of the user's that finds what has been kept."""
    found = (members.get(name) for name in ("__eq__", "__hash__"))
    return any(isinstance(each, FunctionType) and not is_generated(each) for each in found)
