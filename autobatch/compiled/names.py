"""What the names of a compiled program meant when it was compiled, and whether they still do.

A global, a captured variable, a module's attribute or a default is part of the machine code. So
each is written down, and looked at again before every launch; a number that has been set anew, or
another function of the name, is compiled for itself.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from autobatch.batching.binding import defaults_of
from autobatch.compiled.types import MACHINE, Refused, refuse
from autobatch.errors import AutobatchError
from autobatch.frontend import MISSING
from autobatch.ir.program import Param
from autobatch.vm.code import Code
from autobatch.vm.library import Library


@dataclass(slots=True, eq=False, repr=False)
class Names:
    """``own`` are captured by the function that is mapped, by name: another one may have others."""

    library: Library
    globals: dict[tuple[int, str], tuple[dict[str, Any], Any]] = field(default_factory=dict)
    captured: list[tuple[CellType, Any]] = field(default_factory=list)
    own: dict[str, Any] = field(default_factory=dict)
    defaults: dict[FunctionType, tuple[Any, Any]] = field(default_factory=dict)
    codes: dict[FunctionType, Code] = field(default_factory=dict)
    tensors: dict[int, tuple[Tensor, Any]] = field(default_factory=dict)
    classes: dict[tuple[type, str], Any] = field(default_factory=dict)
    watched: dict[Hashable, tuple[Callable[[], Any], Any]] = field(default_factory=dict)

    def global_(self, namespace: dict[str, Any], name: str) -> Any:
        """A global or builtin name of a module's, or an attribute of a module."""
        found = looked_up(namespace, name)
        if found is MISSING:
            refuse(f"the name {name} is not defined")
        self.globals[id(namespace), name] = namespace, found
        return found

    def imported(self, name: str, level: int, names: tuple[str, ...]) -> ModuleType:
        """What ``import`` gives, of a module that has been imported before: then it only looks."""
        importing = self.global_(vars(builtins), "__import__")
        if level or type(importing) is not BuiltinFunctionType:
            refuse(f"`import {name}` does more than to look the module up")
        top = name if names else name.partition(".")[0]
        for each in {name, top}:
            self.watch(in_modules, each)
            if type(in_modules(each)) is not ModuleType:
                refuse(f"the module {each} has not been imported before")
        found: ModuleType = in_modules(top)
        return found

    def of_class(self, kind: type, name: str) -> Any:
        """What a class or its bases have under a name; ``MISSING`` if they have nothing."""
        found = self.classes[kind, name] = in_class(kind, name)
        return found

    def watch(self, look: Callable[..., Any], *args: Any) -> None:
        """Hold on to what ``look`` sees of some objects, which is compared as a whole."""
        key = look, *(arg if type(arg) is str else id(arg) for arg in args)
        if key not in self.watched:
            self.watched[key] = partial(look, *args), look(*args)

    def free(self, function: FunctionType, name: str, is_main: bool) -> Any:
        """What a function has captured under a name."""
        cell = captured_by(function).get(name)
        found = content(cell)
        if cell is None or found is MISSING:
            refuse(f"the captured variable {name} has no value")
        if is_main:
            self.own[name] = found
        else:
            self.captured.append((cell, found))
        return found

    def tensor(self, tensor: Tensor, name: str) -> Tensor:
        """A tensor that a name means, whose memory the program reads."""
        place = place_of(tensor)
        if place is None:
            refuse(f"{name} is no plain tensor on the CPU without gradients")
        self.tensors[id(tensor)] = tensor, place
        return tensor

    def defaults_of(self, function: FunctionType, params: tuple[Param, ...]) -> dict[str, Any]:
        self.defaults[function] = given_by(function)
        return defaults_of(function, params)

    def code_of(self, function: FunctionType) -> Code:
        """The lowering of a function that the program calls."""
        try:
            code = self.library.code_of(function)
        except AutobatchError as error:
            raise Refused(f"{function.__qualname__} cannot be lowered") from error
        self.codes[function] = code
        return code

    def hold(self, function: FunctionType) -> bool:
        """Whether all names mean what they meant, in a call of ``function``."""
        if self.own:
            cells = captured_by(function)
            if any(content(cells.get(name)) is not obj for name, obj in self.own.items()):
                return False
        return (
            all(looked_up(space, name) is obj for (_, name), (space, obj) in self.globals.items())
            and all(content(cell) is obj for cell, obj in self.captured)
            and all(place_of(tensor) == place for tensor, place in self.tensors.values())
            and all(in_class(*place) is obj for place, obj in self.classes.items())
            and all(look() == seen for look, seen in self.watched.values())
            and all(alike(given_by(callee), obj) for callee, obj in self.defaults.items())
            and all(self.library.code_of(callee) is code for callee, code in self.codes.items())
        )


def in_modules(name: str) -> Any:
    return sys.modules.get(name)


def in_class(kind: type, name: str) -> Any:
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), MISSING)


def place_of(tensor: Tensor) -> Any:
    """Where a tensor's elements lie, and of what kind; None if machine code cannot read them."""
    usable = type(tensor) in (Tensor, nn.Parameter) and tensor.device.type == "cpu"
    if tensor.requires_grad and torch.is_grad_enabled():
        return None
    if not usable or tensor.layout is not torch.strided or tensor.dtype not in MACHINE:
        return None
    if tensor.is_neg() or not tensor.numel():
        return None
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def looked_up(namespace: dict[str, Any], name: str) -> Any:
    found = namespace.get(name, MISSING)
    return getattr(builtins, name, MISSING) if found is MISSING else found


def captured_by(function: FunctionType) -> Mapping[str, CellType]:
    return dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def content(cell: CellType | None) -> Any:
    """What a captured variable holds, if it has a value."""
    try:
        return MISSING if cell is None else cell.cell_contents
    except ValueError:
        return MISSING


def given_by(function: FunctionType) -> tuple[Any, Any]:
    named = function.__kwdefaults__
    return function.__defaults__, None if named is None else tuple(named.items())


def alike(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Whether two functions' defaults are the same objects."""
    return all(
        (a is None and b is None)
        or (
            a is not None
            and b is not None
            and len(a) == len(b)
            and all(_same(x, y) for x, y in zip(a, b, strict=True))
        )
        for a, b in zip(one, other, strict=True)
    )


def _same(x: Any, y: Any) -> bool:
    if type(x) is tuple and type(y) is tuple and len(x) == len(y):
        return all(_same(a, b) for a, b in zip(x, y, strict=True))
    return x is y
