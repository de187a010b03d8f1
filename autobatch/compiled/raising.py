"""Exceptions within a ``try``, in machine code: each is known by its class alone.

A block with a handler goes on there where an operation raises what is sure to be that exception;
the handler's variable holds what stands for it, of which nothing is known but what catches it.
Where anything else fails, or looks at an exception, the thread gives up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType
from typing import Any, TypeGuard

from autobatch.compiled.types import Static, Structure, Value, number, parts_of, refuse


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Raised:
    """An exception of a class, whatever it says."""

    kind: type[BaseException]


def raised(kind: type[BaseException]) -> Value:
    """The exception of a class: one for all, since values are told by identity."""
    key: Any = kind  # a class is hashable, which its metaclass' type does not say
    return _raised(key)


@lru_cache(maxsize=256)
def _raised(kind: Any) -> Value:
    return Value(Static(Raised(kind)))


def is_raised(x: Value) -> bool:
    return isinstance(x.type, Static) and type(x.type.obj) is Raised


def is_exception(kind: object) -> TypeGuard[type[BaseException]]:
    """Whether a class makes exceptions without code of its own."""
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        return False
    special = ("__new__", "__init__", "__del__", "__instancecheck__", "__subclasscheck__")
    return type(kind) is type and not any(
        type(vars(base).get(name)) is FunctionType for base in kind.__mro__ for name in special
    )


def kind_of(x: Value) -> type[BaseException] | None:
    """The class of what is raised: an exception, or a class of such."""
    if not isinstance(x.type, Static):
        return None
    obj = x.type.obj
    if type(obj) is Raised:
        return obj.kind
    return obj if is_exception(obj) else None


def catches(x: Value, wanted: Value) -> Value:
    """Whether an ``except`` catches an exception."""
    kind = kind_of(x)
    many = isinstance(wanted.type, Structure) and wanted.type.kind is tuple
    kinds = [kind_of(each) for each in (parts_of(wanted) if many else [wanted])]
    if kind is None or None in kinds:
        return refuse("an except clause has a compiled form for classes of exceptions")
    return number(any(issubclass(kind, each) for each in kinds if each is not None))
