"""From the cell of a callee to what is called with what.

``resolve`` unwraps bound methods, partials, modules and callable instances. A ``Target`` whose
effect is ``program`` or ``construct`` needs the engine; ``calls.run`` does all others. Where
callees differ by thread, ``partition`` tells the rows by what they call.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import nn

from autobatch.batching import generators
from autobatch.batching.calling import modules, stateless
from autobatch.batching.effects import effect_of, has_program_hooks, is_calling
from autobatch.batching.handed import Handed
from autobatch.batching.host import making
from autobatch.batching.kinds import found_in_class, is_instance
from autobatch.batching.module_classes import (
    bound_call,
    has_own_functions,
    is_chain,
    stage_of,
)
from autobatch.batching.submodules import is_hooked
from autobatch.forms import meant
from autobatch.ir.program import CallShape
from autobatch.structure import own_attribute
from autobatch.transforms.records import is_torchs, made_of
from autobatch.values.cells import (
    CLOSURE,
    METHOD,
    PARTIAL,
    STATELESS,
    Cell,
    Container,
    Objects,
    Uniform,
    read,
    uniform,
)


@dataclass(frozen=True, slots=True)
class Target:
    """A call laid open: ``callee`` is a Python callable, or the container of a closure.

    ``entered``: a ``with`` statement enters what it gives.
    """

    effect: str
    callee: Any
    args: list[Cell]
    kwargs: dict[str, Cell]
    entered: bool = False

    def given(self, args: list[Cell], kwargs: dict[str, Cell]) -> Target:
        """The same call with more arguments."""
        return replace(self, args=[*self.args, *args], kwargs={**self.kwargs, **kwargs})

    def called_by(self, shape: CallShape) -> Target:
        """The same, as an operation or the end of a block calls it."""
        return replace(self, entered=True) if shape.entered else self


def resolve(callee: Cell, args: list[Cell], kwargs: dict[str, Cell]) -> Target:
    """What calling ``callee`` runs."""
    value = read(callee)
    match value:
        case Container(type=kind, cells=cells, static=function) if kind is METHOD:
            return resolve_object(function, [*cells, *args], kwargs)
        case Container(type=kind, static=static) if kind is CLOSURE:
            yields = static[0].yields is not None
            return Target("generator" if yields else "program", value, args, kwargs)
        case Container(type=kind, cells=[function, given, named]) if kind is PARTIAL:
            by_name: dict[str, Cell] = named.value.cells  # type: ignore[union-attr,assignment]
            first = given.value.children()  # type: ignore[union-attr]
            return resolve(function, [*first, *args], {**by_name, **kwargs})
        case Container(type=kind) if kind is STATELESS:
            return stateless_target(callee, value, args, kwargs)
        case Container(type=kind) if is_instance(value) and found_in_class(kind, "__call__"):
            return resolve_object(kind.__call__, [callee, *args], kwargs)
        case Uniform(obj=obj):
            return resolve_object(obj, args, kwargs)
        case Objects():
            return Target("objects", callee, args, kwargs)
    return Target("host", not_callable, [callee, *args], kwargs)


def not_callable(obj: Any, *args: Any, **kwargs: Any) -> Any:
    return obj(*args, **kwargs)


def resolve_object(obj: Any, args: list[Cell], kwargs: dict[str, Cell]) -> Target:
    effect: str
    made = made_of(obj)
    if made is not None:
        function = Cell(Uniform(made.function, shared=True))
        return Target("transform", made.transform, [function, *args], kwargs)
    if isinstance(obj, Handed) and obj.made is not None:
        static, held = obj.made
        boxes = [uniform(item, shared=True) for item in held]
        return Target("program", Container(CLOSURE, boxes, static), args, kwargs)
    yielding = making.made_of(obj) if type(obj) is types.FunctionType else None
    if yielding is not None:
        static, held = yielding
        boxes = [Cell(Uniform(item)) for item in held]
        return Target("generator", Container(CLOSURE, boxes, static), args, kwargs)
    wrapped = meant(obj)
    if wrapped is not obj and not is_torchs(obj):  # which hands attributes on
        return resolve_object(wrapped, args, kwargs)
    if type(obj) is types.FunctionType:
        if is_calling(obj):
            return calling_target(obj, args, kwargs)
        effect = effect_of(obj)
        generates = effect == "program" and generators.is_generator(obj)
        return Target("generator" if generates else effect, obj, args, kwargs)
    if type(obj) is types.MethodWrapperType and is_call_of_function(obj):
        return resolve_object(obj.__self__, args, kwargs)
    if isinstance(obj, partial):
        given = [Cell(Uniform(arg, shared=True)) for arg in obj.args]
        named = {name: Cell(Uniform(arg, shared=True)) for name, arg in obj.keywords.items()}
        return resolve_object(obj.func, [*given, *args], {**named, **kwargs})
    if type(obj) is types.MethodType and is_calling(obj.__func__):
        return resolve_object(obj.__func__, [uniform(obj.__self__, shared=True), *args], kwargs)
    effect = effect_of(obj)
    if isinstance(obj, nn.Module) and effect != "program" and modules.writes_argument(obj):
        effect = "chain" if is_chain(obj) else "write"
    if effect != "program":
        return Target(effect, obj, args, kwargs)
    if isinstance(obj, types.MethodType):
        return resolve_object(obj.__func__, [uniform(obj.__self__, shared=True), *args], kwargs)
    if isinstance(obj, nn.Module):
        return module_target(obj, args, kwargs)
    if isinstance(obj, type):
        return Target("construct", obj, args, kwargs)
    if not isinstance(obj, types.FunctionType):
        return resolve_object(type(obj).__call__, [uniform(obj, shared=True), *args], kwargs)
    return Target("program", obj, args, kwargs)


def is_call_of_function(method: types.MethodWrapperType) -> bool:
    """Whether it is ``f.__call__``, which is ``f``."""
    return method.__name__ == "__call__" and type(method.__self__) is types.FunctionType


def calling_target(
    function: types.FunctionType, args: list[Cell], kwargs: dict[str, Cell]
) -> Target:
    """What one of torch's own functions runs that call the module that they get."""
    stage, value = stage_of(function), read(args[0]) if args else None
    if type(value) is Uniform and isinstance(value.obj, nn.Module):
        if effect_of(value.obj) == "program" or "_call_impl" in value.obj.__dict__:
            return module_target(value.obj, args[1:], kwargs, stage)
        return resolve_object(value.obj, args[1:], kwargs)
    if type(value) is Container and value.type is STATELESS:
        return stateless_target(args[0], value, args[1:], kwargs, stage)
    return Target("unknown", function, args, kwargs)


def stateless_target(
    callee: Cell, value: Container, args: list[Cell], kwargs: dict[str, Cell], stage: int = 0
) -> Target:
    """What calling a module with given parameters runs."""
    effect, run_by, first = stateless.target(value, stage)
    if effect == "program":
        return resolve_object(run_by, [callee, *args], kwargs)
    return Target(effect, run_by, [*first, *args], kwargs)


def module_target(
    module: nn.Module, args: list[Cell], kwargs: dict[str, Cell], stage: int = 0
) -> Target:
    """What calling a module with parts of the user's own runs, or one that others have changed.

    ``stage``: how far a function of torch's has come that calls it (see ``module_classes``).
    """
    call = bound_call(module, stage)
    if call is not None:
        return resolve_object(call, args, kwargs)
    if is_hooked(module):
        effect = "hooked" if has_program_hooks(module) else "unknown"
        return Target(effect, module, args, kwargs)
    if is_chain(module):
        return Target("chain", module, args, kwargs)
    if has_own_functions(module):
        return resolve_object(module.forward, args, kwargs)
    return resolve_object(type(module).forward, [uniform(module, shared=True), *args], kwargs)


PYTHON = (types.FunctionType, types.MethodType)


def called_by_partials(callee: Cell) -> Cell:
    """The function behind ``functools.partial`` of the program's own; of others, themselves."""
    value = read(callee)
    while type(value) is Container and value.type is PARTIAL:
        callee = value.cells[0]
        value = read(callee)
    return callee


def calling(callee: Cell, function: Cell) -> Cell:
    """A ``functools.partial`` with another function in the place of its own."""
    value = read(callee)
    if type(value) is not Container or value.type is not PARTIAL:
        return function
    inner, given, named = value.cells
    return Cell(Container(PARTIAL, [calling(inner, function), given, named]))


def partition(callee: Cell) -> list[tuple[list[int], Cell]]:
    """Rows by what they call, for callees that differ by thread: the rows and their callee."""
    value = read(callee)
    assert type(value) is Objects
    groups: dict[tuple[Any, int], list[int]] = {}
    for row, item in enumerate(value.items):
        given, function = taken_apart(item)
        same = id(function) if given or not is_made(function) else code_of(function)
        groups.setdefault((same, len(given)), []).append(row)
    parts: list[tuple[list[int], Cell]] = []
    for rows in groups.values():
        receivers, functions = zip(*(taken_apart(value.items[row]) for row in rows), strict=True)
        if not receivers[0] and is_made(functions[0]):
            parts.append((rows, joined(functions)))
        elif functions[0] is value.items[rows[0]]:
            parts.append((rows, uniform(functions[0], shared=True)))
        else:
            own = [Cell(Objects(list(column))) for column in zip(*receivers, strict=True)]
            parts.append((rows, Cell(Container(METHOD, own, functions[0]))))
    return parts


def is_made(item: Any) -> bool:
    return made_by_program(item) is not None


def made_by_program(item: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """Of what a function is that the program has made, and what it holds; None of others."""
    if isinstance(item, Handed):
        return item.made
    return making.made_of(item) if type(item) is types.FunctionType else None


def code_of(function: Any) -> Any:
    """What functions of one definition have in common."""
    made = made_by_program(function)
    assert made is not None
    (lowered, namespace, title), held = made
    return id(lowered), id(namespace), title, len(held)


def joined(functions: Sequence[Any]) -> Cell:
    """Functions of one definition as one, for the threads that they are of."""
    made = [found for found in map(made_by_program, functions) if found is not None]
    held = zip(*(parts for _, parts in made), strict=True)
    return Cell(Container(CLOSURE, [Cell(Objects(list(items))) for items in held], made[0][0]))


def taken_apart(item: Any) -> tuple[tuple[Any, ...], Any]:
    """The function of a method, of an instance that can be called or of a partial call.

    With what it is given first: the receiver, the arguments.
    """
    if isinstance(item, Handed):
        return (), item
    if isinstance(item, partial) and not item.keywords:
        given, function = taken_apart(item.func)
        return (*given, *item.args), function
    if isinstance(item, types.MethodType):
        return (item.__self__,), item.__func__
    owner = own_attribute(item, "__self__")
    if isinstance(item, types.BuiltinMethodType) and not isinstance(
        owner, types.ModuleType | type | None
    ):
        method = method_in_c(owner, item)
        return ((), item) if method is None else ((owner,), method)
    if not isinstance(item, (*PYTHON, type, nn.Module, partial)) and effect_of(item) == "program":
        return (item,), type(item).__call__
    return (), item


def method_in_c(owner: Any, method: types.BuiltinMethodType) -> types.MethodDescriptorType | None:
    """What a class has of which a method is bound: not the class's own one of that name where
    ``super()`` has given a base's.
    """
    for base in type(owner).__mro__:
        found = vars(base).get(method.__name__)
        if isinstance(found, types.MethodDescriptorType) and found.__get__(owner) == method:
            return found
    return None
