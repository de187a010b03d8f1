"""Whether an operation may run methods of the user's classes that have effects.

In: an operation that is about to run while calls are forked, and the variables. Out: whether it
may do what others can see, or change what a deferred operation is to read; then the forked calls
come first. Which methods Python calls by itself is known by name; what they do, by their purity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

from autobatch.batching.effects import BUILTIN_TYPES, effect_of, is_library
from autobatch.batching.host.own_methods import is_own, is_quiet_code, special
from autobatch.batching.kinds import found_in_class, is_instance, is_plain_code
from autobatch.ir.program import Op
from autobatch.random.python import is_python_draw
from autobatch.structure import own_attribute
from autobatch.values.cells import CLOSURE, METHOD, PARTIAL, Cell, Container, Objects, Uniform
from autobatch.values.heap.walks import parts
from autobatch.vm.purity import Purity

MOVES = frozenset(
    {"const", "copy", "tuple", "list", "append", "slice", "global", "load_free", "free_box"}
    | {"box", "load_box", "store_box", "clear_box", "function", "is", "is_not", "fork", "delete"}
    | {"load_outer", "load_outer_box"}
)
"""Operations that run no method of their operands."""
TRUTH = ("__bool__", "__len__")
UNASKED = frozenset({"__init__", "__new__", "__post_init__", "__init_subclass__"})
"""Special methods that Python calls where an instance is made, and those calls are looked at."""


@dataclass(frozen=True, slots=True)
class OwnCode:
    """``purity_of`` gives the purity of a program callable; None for what is no such thing.

    ``is_pure`` tells of a function that a program made. ``seeded``: draws of a call are its own,
    whenever it runs.
    """

    purity_of: Callable[[object], Purity | None]
    is_pure: Callable[[Any], bool]
    seeded: bool = False

    def may_show(self, op: Op, env: Mapping[str, Cell]) -> bool:
        """Whether an operation may have an effect that others can see."""
        if op.name in MOVES or op.does == "fork":
            return False
        cells = [env[arg] for arg in op.args if arg in env]
        if op.name == "getattr":
            own = set(kinds(cells[0]))
            return any(self.is_attribute_shown(kind, op.attr, cells[0]) for kind in own)
        if op.name == "call" and cells and self.is_call_shown(cells[0]):
            return True
        return any(self.may_ask(cell, op.name == "defer") for cell in cells)

    def may_write(self, op: Op, env: Mapping[str, Cell]) -> bool:
        """Whether an operation may run a method that writes what its operands hold."""
        if op.name in MOVES or op.does == "fork":
            return False
        cells = [env[arg] for arg in op.args if arg in env]
        if op.name == "getattr":
            own = set(kinds(cells[0]))
            return any(self.is_attribute_shown(kind, op.attr, cells[0], True) for kind in own)
        if op.name in ("setattr", "delattr"):
            found = [found_in_class(kind, op.attr) for kind in kinds(cells[0])]
            if any(hasattr(type(each), "__set__") for each in found):
                return True
        return any(self.may_ask(cell, True) for cell in cells)

    def may_ask(self, cell: Cell, writes: bool = False) -> bool:
        """Whether a special method of what is in a cell may have effects."""
        return any(
            self.is_shown(received(function, cell), writes)
            for kind in kinds(cell)
            for function in special(kind, UNASKED)
        )

    def may_ask_truth(self, cell: Cell) -> bool:
        """The same of whether it is true."""
        return any(
            self.is_shown(received(function, cell))
            for kind in kinds(cell)
            for function in (found_in_class(kind, name) for name in TRUTH)
            if isinstance(function, FunctionType) and is_plain_code(function.__code__)
        )

    def is_shown(self, function: object, writes: bool = False) -> bool:
        """Whether a function has effects; ``writes``: those on what it is given count."""
        code = own_attribute(function, "__func__", function)
        if isinstance(code, FunctionType) and not is_plain_code(code.__code__):
            return not is_quiet_code(code)
        purity = self.purity_of(function)
        if purity is None:
            return False
        return not purity.is_silent or (writes and bool(purity.writes))

    def is_attribute_shown(self, kind: type, name: str, cell: Cell, writes: bool = False) -> bool:
        static = found_in_class(kind, name)
        if isinstance(static, property):
            return self.is_shown(received(static.fget, cell), writes)
        if static is None:
            fallback = getattr(kind, "__getattr__", None)
            own = isinstance(fallback, FunctionType) and not is_library(fallback)
            return own and self.is_shown(received(fallback, cell), writes)
        getter = getattr(type(static), "__get__", None)
        own = isinstance(getter, FunctionType) and not is_library(getter)
        return own and self.is_shown(getter, writes)

    def is_call_shown(self, callee: Cell) -> bool:
        value = callee.value
        if type(value) is Container and value.type is PARTIAL:
            return self.is_call_shown(value.cells[0])
        if type(value) is Container and value.type is METHOD:
            if effect_of(value.static) == "transform":  # of the function that it is bound to
                return any(map(self.is_transform_shown, value.cells))
            return self.is_program_shown(value.static)
        if type(value) is Uniform:
            return self.is_callable_shown(value.obj)
        return type(value) is Objects and any(map(self.is_callable_shown, value.items))

    def is_transform_shown(self, function: Cell) -> bool:
        """Whether what a transform runs, which may be one itself, has effects."""
        value = function.value
        if type(value) is Container and value.type is CLOSURE:
            return not self.is_pure(value.static)
        if type(value) is Container and value.type is tuple:  # of a pullback
            return any(map(self.is_transform_shown, value.children()))
        return self.is_call_shown(function)

    def is_callable_shown(self, obj: object) -> bool:
        if isinstance(obj, BuiltinMethodType) and isinstance(obj.__self__, BUILTIN_TYPES):
            return False
        if self.is_program_shown(obj):
            return True
        return effect_of(obj) == "unknown" and not (self.seeded and is_python_draw(obj))

    def is_program_shown(self, obj: object) -> bool:
        """Whether a call of a program function has effects, apart from draws that are its own."""
        purity = self.purity_of(obj)
        return purity is not None and not purity.may_fork(self.seeded)


def received(function: object, cell: Cell) -> object:
    """A method with its receiver, where that is one object for all threads: as it is entered."""
    value = cell.value
    if type(value) is Uniform and isinstance(function, FunctionType):
        return MethodType(function, value.obj)
    return function


def kinds(cell: Cell) -> Iterator[type]:
    """The user's classes that a cell has instances of, those in lists and tuples among them."""
    for value in (part.value for part in parts(cell, is_closed)):
        if is_instance(value):
            yield value.type
        elif type(value) is Uniform:
            yield from filter(is_own, (type(value.obj),))
        elif type(value) is Objects:
            yield from filter(is_own, value.kinds)


def is_closed(value: Container) -> bool:
    return is_instance(value) or not isinstance(value.type, type)
