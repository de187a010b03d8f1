"""Plain functions that use each part of the accepted language, with arguments to try them on.

Each function carries its tuples of arguments (``common.case``); ``functions()`` gives them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

from tests.language import (
    assignments,
    comprehensions,
    control,
    exceptions,
    expressions,
    functions,
    values,
)

MODULES = (assignments, comprehensions, control, exceptions, expressions, functions, values)


def cases() -> Iterator[tuple[FunctionType, tuple[Any, ...]]]:
    """Every function of the corpus with each of its tuples of arguments."""
    for module in MODULES:
        for func in vars(module).values():
            for arguments in getattr(func, "arguments", ()) if _is_own(func, module) else ():
                yield func, arguments


def _is_own(func: object, module: Any) -> bool:
    return isinstance(func, FunctionType) and func.__module__ == module.__name__
