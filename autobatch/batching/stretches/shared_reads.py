"""Which tensors that all threads share a driver may read, and whether these have been written.

In: a skeleton, and the variables that a driver of it was made with. Out: ``SharedReads``, where
they come from: variables at its beginning, globals and captured variables. A driver sees no write
that waits to be applied, so it does not run where one of these is written. What cannot be followed,
the attributes of objects other than ``torch.nn`` modules say, or what a property gives, counts as
written.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from autobatch.batching.contributions import Contributions
from autobatch.batching.effects import LIBRARIES, effect_of
from autobatch.batching.late_reads import NAMING, outside_of
from autobatch.batching.objects.attributes import TENSOR_PARTS
from autobatch.batching.operations import Env, Scope
from autobatch.batching.stretches.operator_lines import is_shared_operator
from autobatch.batching.stretches.plans import Skeleton
from autobatch.ir.program import Op
from autobatch.values.cells import Cell, Uniform
from autobatch.values.heap.walks import reached

PLAIN = (bool, int, float, str, torch.dtype, torch.device)
MOST_PARTS = 100
"""Modules, or parts of containers, that are looked into."""


class Unfollowed(Exception):
    """An object may hold tensors that are not found."""


@dataclass(frozen=True, slots=True)
class SharedReads:
    """Where a driver's shared tensors come from; ``followed`` is False where that is not known.

    ``attributes`` are those that are read of objects, of modules among them.
    """

    names: tuple[str, ...]
    outer: tuple[str, ...]
    free: tuple[str, ...]
    attributes: tuple[str, ...]
    followed: bool

    def are_written(self, env: Env, scope: Scope, given: Contributions) -> bool:
        if not given.written:
            return False
        if not self.followed:
            return True
        cells = [env[name] for name in self.names if name in env]
        cells += [cell for name in self.free if type(cell := scope.free.get(name)) is Cell]
        values = [cell.value for cell in reached(cells)]
        if any(given.may_show(outside_of(value, given.written)) for value in values):
            return True
        objs = [value.obj for value in values if type(value) is Uniform]
        objs += [scope.namespace[name] for name in self.outer if name in scope.namespace]
        objs += [
            cell.cell_contents
            for name in self.free
            if type(cell := scope.free.get(name)) is CellType
        ]
        try:
            tensors = (tensor for obj in objs for tensor in held(obj, self.attributes))
            return any(given.of(tensor) is not None for tensor in tensors)
        except (Unfollowed, ValueError):  # a captured variable that has no value yet
            return True


def shared_reads(skeleton: Skeleton, env: Env) -> SharedReads:
    """Those of a driver whose variables hold what ``env`` holds."""
    host = [arg for op in skeleton.host if op.name not in NAMING for arg in op.args]
    if not any(map(may_hold, objects([*skeleton.reads, *host], env))):
        return SharedReads(tuple(sorted({*skeleton.reads, *host})), (), (), (), True)
    made = {out for op in skeleton.host for out in op.outs}
    entered = {*skeleton.reads, *(arg for op in skeleton.host for arg in op.args)} - made
    return SharedReads(
        tuple(sorted(entered)),
        tuple(op.attr for op in skeleton.host if op.name == "global"),
        tuple(op.attr for op in skeleton.host if op.name == "load_free"),
        tuple(op.attr for op in skeleton.host if op.name == "getattr"),
        all(is_followed(op, env) for op in skeleton.host)
        and not any(may_hold(obj) for obj in objects(skeleton.constants, skeleton.constants)),
    )


def objects(names: Iterable[str], env: Env) -> list[Any]:
    """What all threads share of some variables and of all that these lead to."""
    cells = reached([env[name] for name in names if name in env])
    return [cell.value.obj for cell in cells if type(cell.value) is Uniform]


def is_followed(op: Op, env: Env) -> bool:
    """Whether what an operation gives is found in what it is given."""
    if is_shared_operator(op, env):
        return True  # it has memory of its own
    if op.name in ("global", "load_free", "const"):
        return type(op.attr) is str or op.name == "const"
    if not all(name in env for name in (*op.args, *op.outs)):
        return False
    if not any(map(may_hold, objects(op.outs, env))):
        return True
    return op.name == "getattr" and all(
        op.attr in TENSOR_PARTS
        if isinstance(obj, Tensor)
        else isinstance(obj, nn.Module) or not may_hold_attributes(obj)
        for obj in objects(op.args, env)
    )


def may_hold_attributes(obj: Any) -> bool:
    """Whether an attribute of an object may be or hold a tensor of the user's."""
    if isinstance(obj, ModuleType):
        return obj.__name__.split(".")[0] not in LIBRARIES
    return not isinstance(obj, PLAIN)


def may_hold(obj: Any) -> bool:
    """Whether an object may be or hold a tensor."""
    if obj is None or isinstance(obj, (*PLAIN, BuiltinFunctionType, ModuleType, type)):
        return False
    return not (isinstance(obj, FunctionType) and effect_of(obj) == "torch")


def held(obj: Any, attributes: Iterable[str] = ()) -> Iterator[Tensor]:
    """The tensors that an object is or holds; ``attributes`` of modules may be their class's."""
    waiting, seen = [obj], 0
    while waiting:
        part = waiting.pop()
        seen += 1
        if seen > MOST_PARTS:
            raise Unfollowed
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, nn.Module):
            parts = dict(vars(part))
            waiting += [each for name, each in parts.items() if name not in MACHINERY]
            waiting += [each for name in KEPT for each in parts.get(name, {}).values()]
            waiting += of_class(type(part), attributes)
        elif type(part) in (list, tuple):
            waiting += part
        elif type(part) is dict:
            waiting += part.values()
        elif may_hold(part):
            raise Unfollowed


def of_class(kind: type, names: Iterable[str]) -> Iterator[Any]:
    """What a module's class has by some names, but for methods; what code gives is not followed."""
    if any(getattr(kind, name, None) is not getattr(nn.Module, name, None) for name in LOOKUPS):
        raise Unfollowed
    for name in names:
        static = inspect.getattr_static(kind, name, None)
        if isinstance(static, FunctionType | staticmethod | classmethod):
            continue
        if hasattr(type(static), "__get__"):
            raise Unfollowed
        yield static


LOOKUPS = ("__getattr__", "__getattribute__")
KEPT = ("_parameters", "_buffers", "_modules")
MACHINERY = frozenset(vars(nn.Module()))
"""Attributes that every module has."""
