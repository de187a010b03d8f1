"""What a call of an object runs, as far as its class says that, which anybody may change.

In: an object that a program names. Out: what to hold on to beside the object, and to compare with
what is found when that is asked for again: a judgement, or machine code, rests on both.
"""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from torch import Tensor, nn

from autobatch.batching.effects import effect_of
from autobatch.batching.module_classes import functions_of
from autobatch.batching.submodules import is_hooked
from autobatch.structure import own_attribute

_SAID_ALL = (BuiltinFunctionType, Tensor, str, int, float, type(None))
"""What a call of these runs goes with the object."""
_BUILT_BY = ("__new__", "__init__", "__post_init__")
_OWN = ("forward", "_call_impl")


def called_as(obj: Any) -> tuple[Any, ...] | None:
    """What decides what a call of an object runs beside its identity; None for what is enough."""
    if type(obj) is FunctionType:
        return (obj.__code__,)
    if type(obj) is MethodType:
        return (code_of(obj),)
    if isinstance(obj, _SAID_ALL):
        return None
    if isinstance(obj, nn.Module):
        own = (obj.__dict__.get(name) for name in _OWN)
        functions = functions_of(type(obj))
        kinds = effect_of(obj), type(obj), is_hooked(obj)
        return *kinds, *functions, *own, *map(code_of, functions)
    if isinstance(obj, type):
        makers = [own_attribute(obj, name) for name in _BUILT_BY]
        return *makers, *map(code_of, makers)
    call = getattr(type(obj), "__call__", None)  # noqa: B004
    return (type(obj), call, code_of(call)) if isinstance(call, FunctionType) else None


def code_of(function: Any) -> object:
    """What a function runs: a notebook's autoreload gives one another code."""
    return own_attribute(own_attribute(function, "__func__", function), "__code__")


def are_same(found: tuple[Any, ...] | None, before: tuple[Any, ...] | None) -> bool:
    """Whether two of these are of the same functions; no method of theirs is asked."""
    if found is None or before is None:
        return found is before
    return len(found) == len(before) and all(a is b for a, b in zip(found, before, strict=True))
