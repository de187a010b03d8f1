"""What a recording depends on in an object that all threads share: its identity, or its content.

Modules of ``torch.nn`` are told apart by their plain attributes too; their parameters and buffers
are inputs, for which a *twin* holds others.
"""

from __future__ import annotations

import copy
from array import array
from collections import deque
from collections.abc import Hashable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from autobatch.batching.module_classes import functions_of, has_own_functions, runs_torchs
from autobatch.batching.submodules import hook_key, is_hooked, parts_of
from autobatch.values.heap.likeness import identity

_ATOMS = frozenset((bool, int, str, type(None), torch.dtype))
_PLAIN = (*_ATOMS, float, tuple, list)
_OPAQUE = frozenset((*_ATOMS, float, FunctionType, BuiltinFunctionType, MethodType, type))
_ARRAYS = (np.ndarray, bytearray, array)
_SIZED = (tuple, list, dict, set, frozenset, deque)
LARGEST = 4096
"""Entries of a container or an array."""
_OWN = frozenset(nn.Module().__dict__)
"""The tables that every module has."""


class Itself:
    """An object in a key: equal for the same one, which the key keeps alive."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def __eq__(self, other: object) -> bool:
        return type(other) is Itself and self.obj is other.obj

    def __hash__(self) -> int:
        return id(self.obj)


def is_plain_module(module: nn.Module) -> bool:
    """Whether calling it runs torch's own code only, if its class is torch's."""
    return not is_hooked(module) and not has_own_functions(module)


def holds_others(module: nn.Module) -> bool:
    """Whether it holds modules that run other code, which torch's may call that gets it."""
    return not all(runs_torchs(type(part)) for part in parts_of(module) if part is not module)


def is_large(obj: Any) -> bool:
    """Whether to look through it takes longer than a recording saves."""
    if isinstance(obj, np.ndarray):
        return obj.size > LARGEST or obj.dtype.hasobject
    return isinstance(obj, (*_SIZED, *_ARRAYS)) and len(obj) > LARGEST


def content_key(obj: Any) -> Hashable:
    """Equal for objects that a recording cannot tell apart: what can change goes by its content."""
    if type(obj) in _OPAQUE:
        return identity(obj)
    if is_large(obj):
        return Itself(object())  # another one each time
    if isinstance(obj, tuple | list | deque):
        return (type(obj), tuple(map(content_key, obj)))
    if isinstance(obj, np.ndarray):
        return (type(obj), obj.dtype, obj.shape, obj.tobytes())
    if isinstance(obj, bytearray | array):
        return (type(obj), getattr(obj, "typecode", None), bytes(obj))
    if isinstance(obj, slice):
        return (slice, content_key((obj.start, obj.stop, obj.step)))
    if isinstance(obj, dict):
        return (type(obj), tuple((key, content_key(part)) for key, part in obj.items()))
    if isinstance(obj, set | frozenset):
        return (type(obj), frozenset(map(content_key, obj)))
    return identity(obj)


def module_key(module: nn.Module) -> Hashable:
    """A module's identity and what its computation depends on besides its tensors."""
    key: list[Any] = []
    for part in parts_of(module):
        table = part.__dict__
        kept = KEPT if isinstance(part, nn.RNNBase) and has_its_weights(part) else ()
        for name, value in table.items():
            if name in kept:
                continue
            kind = type(value)
            if kind in _ATOMS:
                key += [kind, value]
            elif kind in _PLAIN:
                key.append(content_key(value))
            elif name not in _OWN:
                key.append(content_key(value) if kind in (dict, set) else Itself(value))
        kind = type(part)
        key += [id(part), kind, *functions_of(kind), table.get("forward"), *hook_key(part)]
    return tuple(key)


KEPT = ("_flat_weights", "_flat_weight_refs")
"""Where a recurrent module keeps its parameters again, and by which it knows them."""


def has_its_weights(module: nn.RNNBase) -> bool:
    """Whether it computes with its parameters, which a call with others makes it look up again."""
    if module._weights_have_changed():  # type: ignore[no-untyped-call]
        return True
    names = zip(module._flat_weights, module._flat_weights_names, strict=False)
    return all(weight is getattr(module, name, None) for weight, name in names)


def module_tensors(module: nn.Module) -> Iterator[Tensor]:
    for part in parts_of(module):
        for table in (part._parameters, part._buffers):
            for tensor in table.values():
                if tensor is not None:
                    yield tensor


def twin_module(module: nn.Module, values: Iterator[Tensor]) -> nn.Module:
    """A copy of a module that holds other tensors, in the order of ``module_tensors``."""
    made: dict[int, nn.Module] = {}
    for part in parts_of(module):
        new = made[id(part)] = copy.copy(part)
        for name in ("_parameters", "_buffers"):
            table = getattr(part, name)
            tensors = {key: None if old is None else next(values) for key, old in table.items()}
            new.__dict__[name] = tensors
    for part in parts_of(module):
        new = made[id(part)]
        new.__dict__["_modules"] = {
            key: None if child is None else made[id(child)] for key, child in part._modules.items()
        }
        if isinstance(part, nn.RNNBase):
            new.__dict__["_flat_weights"] = [getattr(new, n) for n in part._flat_weights_names]
    return made[id(module)]
