"""The user's classes whose instances are plain data: they hold things, and run nothing unseen.

In: a class. Out: nothing, or ``NotAlone`` with a reason.
"""

from __future__ import annotations

import dataclasses
import functools
import reprlib
from abc import ABC, ABCMeta
from collections import OrderedDict, deque
from enum import Enum
from types import FunctionType
from typing import Generic

from torch import nn

from autobatch.batching.effects import is_library
from autobatch.compat import publicly
from autobatch.source import Span
from autobatch.structure import own_attribute

LIBRARY_FILES = (dataclasses.__file__, reprlib.__file__)
"""Of the guard of a ``__repr__`` against recursion, and of what ``dataclasses`` adds by hand."""


class NotAlone(Exception):
    """A program is not known to be one of Python objects alone; says why, and where if known."""

    span: Span | None = None

    def at(self, span: Span | None) -> None:
        """It has been met at a place, or within what is called there."""
        if self.span is None:
            self.span = span


def titled(found: object) -> str:
    """What a function or class is called in a reason; anything else by its class."""
    name = own_attribute(found, "__qualname__")
    return publicly(name) if type(name) is str else f"something of {type(found).__qualname__}"


DRAWS = "it draws from a generator that others see"
MAKES_MODULE = "it makes a module of a class of your own"
ASKED = "is asked of what may be a tensor"
Reasons = dict[tuple[str, Span | None], NotAlone]
"""All that keeps a program from it, each once."""


# fmt: off
REFUSED = frozenset(
    ["__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__del__", "__new__",
     "__set_name__", "__get__", "__set__", "__delete__", "__await__",
     "__instancecheck__", "__subclasscheck__", "__mro_entries__"]
)
# fmt: on
"""Special methods of a class that plain data does without; generated ones are no matter.

Nor is ``__init_subclass__``, which runs as a class is made, where the program makes none.
"""


def is_generated(function: FunctionType) -> bool:
    """Whether ``dataclasses`` or ``namedtuple`` has made it: it does what it is known to do.

    So does what ``functools.total_ordering`` adds to a class, by the comparison that this has.

    Not so all that has no file: what is typed at a prompt, say. Nor what wraps one of them, but for
    the guard of a ``__repr__`` against recursion.
    """
    if function.__code__.co_filename in LIBRARY_FILES:
        inner = own_attribute(function, "__wrapped__")
        return inner is None or is_generated(inner)
    code = function.__code__
    if code.co_filename == functools.__file__ and "_from_" in code.co_name:
        return True
    by_dataclasses = code.co_qualname.startswith("__create_fn__.")
    return code.co_filename == "<string>" and (by_dataclasses or code.co_name == "<lambda>")


def own_bases(kind: type) -> list[type]:
    """A class and those of its bases that the user has written."""
    return [base for base in kind.__mro__ if not is_library(base) and base is not object]


BARE = frozenset({object, Generic, ABC})
"""Bases that give instances nothing."""
CONTAINERS = frozenset({dict, OrderedDict, list, set, deque})
"""Bases that make containers of them: what is in these is with all that containers hold."""


def is_container(kind: type) -> bool:
    return not CONTAINERS.isdisjoint(kind.__mro__)


def is_of_container(kind: type, name: str) -> bool:
    """Whether Python may call a method by itself, since containers have one by that name."""
    return any(name in vars(base) for base in CONTAINERS.intersection(kind.__mro__))


def check_class(kind: type) -> None:
    """Whether instances of a class are data: it, and all of its bases, hold things, and no more."""
    own = own_bases(kind)
    others = [base for base in kind.__mro__ if base not in own]
    is_plain = (BARE | CONTAINERS).issuperset(others)
    is_fine = is_plain or is_special(kind) or issubclass(kind, nn.Module)
    if not own or not is_fine:
        raise NotAlone(f"{kind.__qualname__} is no class of plain data{of_torch(kind)}")
    if not issubclass(kind, Enum) and type(kind) not in (type, ABCMeta):
        raise NotAlone(f"{kind.__qualname__} has a metaclass")
    for base in own:
        for name in REFUSED & vars(base).keys():
            made = vars(base)[name]
            made = own_attribute(made, "__func__", made)
            generated = isinstance(made, FunctionType) and is_generated(made)
            if not generated and not (issubclass(kind, Enum) and name == "__new__"):
                raise NotAlone(f"{kind.__qualname__} has {name}")


def of_torch(kind: type) -> str:
    """What is said of a class of torch's, or one that is made of it."""
    if issubclass(kind, nn.Module):
        return ": modules are made in it, or are values of this class"
    return ": nothing is proved of torch's modes" if kind.__module__[:6] == "torch." else ""


def is_special(kind: type) -> bool:
    """Whether it is a named tuple, an enumeration or an exception."""
    return issubclass(kind, Enum | BaseException) or (
        issubclass(kind, tuple) and hasattr(kind, "_fields")
    )
