"""Functions that call one of several, by the class of what they get: ``functools.singledispatch``.

In: a function that a program calls. Out: those that are registered with it, which may all be
called; which one is asked of classes alone, and what is kept of that nobody sees.
"""

from __future__ import annotations

import functools
from abc import ABCMeta
from collections.abc import Callable, Mapping
from functools import partial
from types import FunctionType, MappingProxyType
from typing import Any

from torch import Tensor

from autobatch.alone.kinds import NotAlone, own_bases
from autobatch.structure import own_attribute, own_attributes

CODE = own_attribute(functools.singledispatch(len), "__code__")
HOOK = "__subclasshook__"


def is_dispatching(value: object) -> bool:
    return isinstance(value, FunctionType) and value.__code__ is CODE and bool(registry(value))


def registry(value: object) -> Mapping[type, Any]:
    """Functions by classes; those that all other classes have stand under ``object``."""
    found = (own_attributes(value) or {}).get("registry")
    return found if type(found) is MappingProxyType else {}


def registered(value: object) -> list[Any]:
    """The functions; classes with code of their own to be asked whether they are above another."""
    found = registry(value)
    for kind in found:
        own = any(HOOK in vars(base) for base in own_bases(kind))
        if own or (type(kind) not in (type, ABCMeta) and kind is not Tensor):
            raise NotAlone(f"{kind.__qualname__} may see which classes are below it")
    return list(found.values())


def held(value: object) -> list[Callable[[], Any]]:
    """All that is registered, to be looked up."""
    found = registry(value)
    return [lambda: len(registry(value)), *(partial(found.get, kind) for kind in found)]
