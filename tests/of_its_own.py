"""Functions whose recordings no other test uses up: what is recorded is shared by code objects."""

from __future__ import annotations

from types import FunctionType
from typing import Any


def of_its_own(func: Any) -> FunctionType:
    """The same function with a code object of its own, for tests that count what is recorded.

    A stretch is recorded ever more rarely the more signatures it has met, so what a test counts
    would depend on the tests before. A constant that nothing reads makes the code another one.
    """
    code = func.__code__
    own = code.replace(co_consts=(*code.co_consts, object()))
    return FunctionType(own, func.__globals__, func.__name__, func.__defaults__, func.__closure__)
