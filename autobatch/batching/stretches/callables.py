"""Functions among the inputs of a stretch: their code is part of the key, their tensors are inputs.

A function made anew for each call or round (a lambda, a nested function, a ``functools.partial``, a
bound method) is another object each time, but the same code. So it is laid open: its code and its
module by identity, what it closes over and its defaults part by part. Tensors and the parameters of
torch's modules among these become inputs of the recording, which runs a *twin* that holds others;
what else it holds goes by its content, or by its identity where that can change.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

from torch import Tensor, nn

from autobatch.batching.effects import effect_of
from autobatch.batching.stretches.contents import (
    content_key,
    is_plain_module,
    module_key,
    module_tensors,
    twin_module,
)
from autobatch.batching.submodules import parts_of

UNSET = object()
"""Stands for what a cell holds that has been given nothing yet."""


def is_open(obj: Any) -> bool:
    """Whether an object is a function that is laid open; one with attributes of its own is not."""
    kind = type(obj)
    if kind is FunctionType:
        return not obj.__dict__ and effect_of(obj) == "program"
    if kind is MethodType:
        return is_open(obj.__func__)
    return kind is partial and not obj.__dict__ and is_open(obj.func)


def parts(obj: Any) -> list[Any]:
    """What an open function holds, in an order of its code's."""
    if type(obj) is FunctionType:
        named = (obj.__kwdefaults__ or {}).values()
        return [*map(content, obj.__closure__ or ()), *(obj.__defaults__ or ()), *named]
    if type(obj) is MethodType:
        return [obj.__func__, obj.__self__]
    return [obj.func, *obj.args, *obj.keywords.values()]


def content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return UNSET


def form(obj: Any) -> tuple[Hashable, ...]:
    """What an open function is, apart from its parts."""
    if type(obj) is FunctionType:
        named = tuple(obj.__kwdefaults__ or ())
        return (id(obj.__code__), id(obj.__globals__), len(obj.__defaults__ or ()), named)
    if type(obj) is MethodType:
        return (MethodType,)
    return (partial, len(obj.args), tuple(obj.keywords))


@dataclass(slots=True, eq=False, repr=False)
class Opened:
    """A function laid open: its key, its tensors in order, and what the key goes by.

    Keys are equal for functions that one recording is right for, but for their tensors.
    """

    key: list[Hashable] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    held: list[Any] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)

    def visit(self, obj: Any) -> None:
        if isinstance(obj, Tensor):
            self.key.append(Tensor)
            self.tensors.append(obj)
        elif is_lifted(obj):
            self.key += ("module", module_key(obj))
            self.tensors += module_tensors(obj)
        elif is_open(obj):
            self.function(obj)
        else:
            self.held.append(obj)
            self.key.append(content_key(obj))

    def function(self, obj: Any) -> None:
        number = self.numbers.get(id(obj))
        if number is not None:
            self.key += ("same", number)
            return
        self.numbers[id(obj)] = len(self.numbers)
        if type(obj) is FunctionType:
            self.held += (obj.__code__, obj.__globals__)
        self.key += form(obj)
        for part in parts(obj):
            self.visit(part)


def is_lifted(obj: Any) -> bool:
    """Whether it is a module whose tensors are inputs: one operation of torch's."""
    return (
        isinstance(obj, nn.Module)
        and effect_of(obj) == "torch"
        and all(map(is_plain_module, parts_of(obj)))
    )


def opened(obj: Any) -> Opened | None:
    """A function laid open; None for what is none."""
    if not is_open(obj):
        return None
    found = Opened()
    found.function(obj)
    return found


def is_bare(obj: Any) -> bool:
    """Whether a function holds nothing: it is its code and its module."""
    bare = type(obj) is FunctionType and not obj.__dict__
    return bare and not (obj.__closure__ or obj.__defaults__ or obj.__kwdefaults__)


@dataclass(slots=True, eq=False, repr=False)
class Twins:
    """Makes functions that hold other tensors, taken in order; ``made`` are these, and their cells.

    One function met twice has one twin.
    """

    values: Iterator[Any]
    known: dict[int, Any] = field(default_factory=dict)
    made: dict[int, Any] = field(default_factory=dict)

    def of(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return next(self.values)
        if is_lifted(obj):
            return twin_module(obj, self.values)
        if not is_open(obj):
            return obj
        known = self.known.get(id(obj))
        if known is None:
            known = self.function(obj) if type(obj) is FunctionType else self.bound(obj)
        return known

    def function(self, obj: FunctionType) -> FunctionType:
        cells = [CellType() for _ in obj.__closure__ or ()]
        new = FunctionType(obj.__code__, obj.__globals__, obj.__name__, None, tuple(cells))
        self.known[id(obj)] = new
        self.made.update((id(each), each) for each in (new, *cells))
        new.__qualname__, new.__module__ = obj.__qualname__, obj.__module__
        for cell, old in zip(cells, obj.__closure__ or (), strict=True):
            held = content(old)
            if held is not UNSET:
                cell.cell_contents = self.of(held)
        if obj.__defaults__:
            new.__defaults__ = tuple(map(self.of, obj.__defaults__))
        if obj.__kwdefaults__:
            new.__kwdefaults__ = {n: self.of(part) for n, part in obj.__kwdefaults__.items()}
        return new

    def bound(self, obj: Any) -> Any:
        if type(obj) is MethodType:
            new: Any = MethodType(self.of(obj.__func__), self.of(obj.__self__))
        else:
            function, args = self.of(obj.func), [self.of(arg) for arg in obj.args]
            new = partial(function, *args, **{n: self.of(arg) for n, arg in obj.keywords.items()})
        self.known[id(obj)] = self.made[id(new)] = new
        return new
