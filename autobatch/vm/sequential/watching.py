"""What a thread that runs by itself must not write: the objects that existed before the call.

In: the operations of the definitional interpreter, each before it runs, with its real operands.
Out: the error by which the batched engines refuse it too, where it writes one of those objects
itself, or by way of a method that Python calls by itself and that lowering would refuse.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn

from autobatch.batching import guards, semantics
from autobatch.batching.containers.callees import in_place_option, is_hashable
from autobatch.batching.containers.subscripts import MAKES_ENTRY, makes_entry
from autobatch.batching.context import Handing
from autobatch.batching.effects import WRITING_OPERATORS, effect_of, is_generated_init
from autobatch.batching.foreign import Foreign, instances
from autobatch.batching.generators import ATOMS, Given, defaults, is_data, known_callee
from autobatch.batching.handed import Handed
from autobatch.batching.host.asking import (
    handed,
    is_handed,
    refuse_asked,
    refuse_called,
    refuse_subclass,
)
from autobatch.batching.host.catching import refuse_change
from autobatch.batching.host.getters import note_named, note_reached
from autobatch.batching.host.making import bare, static_of
from autobatch.batching.host.named import asks_by_name, refuse_named
from autobatch.batching.host.own_methods import getter, looks_within
from autobatch.batching.host.own_methods import instances as instances_of
from autobatch.batching.host.rows import is_keeping
from autobatch.batching.kinds import is_plain_code, is_users
from autobatch.batching.known_callees import uncalled
from autobatch.batching.managers import enter_host, enter_mode, leave_host, leave_mode
from autobatch.batching.marking import Spared, is_marking
from autobatch.batching.objects.introspection import own_check
from autobatch.batching.operators import backward
from autobatch.batching.raising import raised
from autobatch.batching.switching import MANAGERS, behind, refuse_switch, switching_refused
from autobatch.batching.updates import updated
from autobatch.batching.writes import described, shared_write
from autobatch.errors import SharedWriteError, UnsupportedError
from autobatch.frontend import MISSING
from autobatch.ir.ops import BINARY, COMPARE, INPLACE, UNARY
from autobatch.random.drawing import direct
from autobatch.source import Span
from autobatch.structure import own_attribute
from autobatch.values.cells import Cell, Objects, Uniform, uniform
from autobatch.vm.nested import Nested
from autobatch.vm.purity import content

WRITES = frozenset({"setattr", "delattr", "setitem", "delitem"})

TAKING = frozenset({"iter", "next", "getitem", "unpack", "extend", "update", "to_tuple"})
"""Operations that take something out of an operand."""
MAY_SWITCH: tuple[Any, ...] = (*MANAGERS, enter_host, leave_host, enter_mode, leave_mode)
"""What a ``with`` statement calls, which puts back what it has switched."""
ASKING: dict[Any, tuple[str, ...]] = {len: ("__len__",), abs: ("__abs__",)}
ASKING[bool] = TRUTH = ("__bool__", "__len__")


class Unwatched:
    """A thread that may write anything."""

    def seen(self, name: str, obj: Any) -> Any:
        """What an operation finds in the frame; a global existed before."""
        return obj

    def truth(self, obj: Any, span: Span) -> Any:
        """Before a branch on an object, which it gives."""
        return obj

    def operation(self, name: str, attr: Any, operands: tuple[Any, ...], span: Span) -> None:
        """Before an operation that is no call."""

    def arises(self, new: Any, before: Any, span: Span) -> None:
        """Before an exception gets what was being handled as its context."""

    def raised(self, error: Any, *cause: Any) -> BaseException:
        """What ``raise`` raises, from a cause if there is one."""
        return raised(error, *cause)

    def plain(
        self,
        callee: Any,
        args: list[Any],
        kwargs: dict[str, Any],
        span: Span | None,
        entered: bool = False,
    ) -> Any:
        """A call of what is no program function; ``entered``: a ``with`` enters what it gives."""
        return callee(*args, **kwargs)

    def given(self, args: tuple[Any, ...]) -> None:
        """Arguments: their builtin containers and tensors are copies."""

    def gone_through(self, objs: Iterable[Any]) -> None:
        """Before something is taken out of one of these."""

    def closure(self, boxes: Iterable[CellType]) -> None:
        """What a function closes over existed before."""

    def refuse_generator(
        self, function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Refuse a function that yields where it, or what it is given, may do what others see."""

    def lookup(self, receiver: tuple[Any, ...]) -> Callable[[FunctionType], Any] | None:
        """Gives the lowering of a function that is called on ``receiver``, if on anything."""
        return None


@dataclass(slots=True, eq=False, repr=False)
class Watch(Unwatched):
    """``code_of`` lowers a method for a receiver, or raises what is wrong with it."""

    code_of: Callable[[FunctionType, Any], Any]
    foreign: Foreign = field(default_factory=Foreign)
    handing: Handing | None = None
    span: Span | None = None

    def given(self, args: tuple[Any, ...]) -> None:
        """Arguments: their builtin containers and tensors are copies."""
        for arg in args:
            for part in (arg,) if isinstance(arg, nn.Module) else instances(arg):
                self.foreign.note(part)

    def operation(self, name: str, attr: Any, operands: tuple[Any, ...], span: Span) -> None:
        self.span = span
        if name in WRITES or (name in INPLACE and is_changed(name, operands[0])):
            self.refuse(operands[0], "an attribute of {}" if name.endswith("attr") else "{}")
        if name == "getitem" and makes_entry(*operands):
            self.refuse(operands[0], MAKES_ENTRY)
        for obj, methods in asked(name, attr, operands):
            self.method(obj, methods)
        if name == "getattr":
            self.attribute(operands[0], attr)
        elif name in TAKING:
            self.gone_through(operands)
        self.asked(semantics.SEMANTICS.get(name), list(operands), filter(is_handed, operands))

    def gone_through(self, objs: Iterable[Any]) -> None:
        note_reached(self.foreign, None, objs)

    def arises(self, new: Any, before: Any, span: Span) -> None:
        if before is not None:
            refuse_change(self.foreign.holds, span, new, "__context__", before)

    def raised(self, error: Any, *cause: Any) -> BaseException:
        for each in cause:
            refuse_change(self.foreign.holds, self.span, error, "__cause__", each)
        return raised(error, *cause)

    def plain(
        self,
        callee: Any,
        args: list[Any],
        kwargs: dict[str, Any],
        span: Span | None,
        entered: bool = False,
    ) -> Any:
        self.span = span
        self.method(callee, ("__call__",))
        if callee is isinstance and len(args) > 1 and self.handing is not None:
            check = own_check(args[1])
            if check is not None:
                self.handing.refuse(*check)
        if any(callee is each for each in (getattr, hasattr)) and len(args) > 1:
            self.method(args[0], (args[1],) if isinstance(args[1], str) else ())
        if asks_by_name(callee) and self.handing is not None:
            self.handing.span = span
            refuse_named(self.handing, self.foreign.holds, callee, args, kwargs)
        if args and isinstance(callee, type | BuiltinFunctionType) and callee in ASKING:
            self.method(args[0], ASKING[callee])
        if callee is setattr or callee is delattr:
            self.refuse(args[0] if args else None, "an attribute of {}")
        self.written(callee, args, kwargs)
        for arg in args:
            if type(arg) is BuiltinFunctionType:  # ``map(xs.append, …)``
                self.written(arg, [], {})
        hand = partial(handed, self.handing, span, callee, len(args))
        given = [hand(place, [arg])[0] for place, arg in enumerate(args)]
        named = {name: hand(name, [arg])[0] for name, arg in kwargs.items()}
        refuse_called(self.handing, callee)
        receiver = own_attribute(callee, "__self__")
        note_reached(self.foreign, callee, [*args, receiver])
        if isinstance(callee, type) and issubclass(callee, type) and len(args) == 3:
            refuse_subclass(self.handing, args[1])
        asked = uncalled(callee, args, kwargs)
        called = filter(is_handed, (*args, *kwargs.values()))
        self.asked(callee, [*asked, receiver], called)
        refuse_switch(span, callee, entered)
        if (drawn := direct(callee, tuple(given), named)) is not None:  # whatever maps around it
            return drawn[0]
        if is_marking(callee):
            callee = Spared(callee, self.foreign.holds, shared_write(self, "a tensor"))
        if any(behind(callee) is each for each in MAY_SWITCH):
            result = callee(*given, **named)
        else:
            with switching_refused(span):
                result = callee(*given, **named)
        if is_keeping(callee):
            self.foreign.note(result)
        return result

    def attribute(self, obj: Any, name: str) -> None:
        """Refuse to read an attribute by code that is seen to write."""
        self.method(obj, (name,))
        code = getter(obj, name)
        if code is not None and self.handing is not None:
            note_named(self.foreign, type(obj))
            self.handing.refuse(code, obj if self.foreign.holds(obj) else None)

    def asked(self, function: Any, objs: list[Any], called: Iterable[Any]) -> None:
        """Refuse an operation that makes Python call a method which is seen to write.

        ``called`` are the functions in C that it is given.
        """
        called = list(called)
        deep = looks_within(
            function, [*objs, *called]
        )  # else each operation went through whole trees
        for obj in objs:
            found = instances_of(obj, deep, set())
            kept = ((item, item if self.foreign.holds(item) else None) for item in found)
            own = ((type(item), held, item is obj) for item, held in kept)
            refuse_asked(self.handing, function, own, called)

    def written(self, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Refuse a call that writes what existed before."""
        if type(callee) is partial:
            self.written(callee.func, [*callee.args, *args], {**callee.keywords, **kwargs})
            return
        if not is_hashable(callee):
            return
        if args and is_generated_init(callee):
            self.refuse(args[0], "{}")
        cells = [Cell(Objects([arg])) for arg in args]
        named = {name: Cell(Objects([arg])) for name, arg in kwargs.items()}
        owner = own_attribute(callee, "__self__")
        if isinstance(owner, Tensor):
            if effect_of(getattr(type(owner), callee.__name__, None)) == "write":
                self.refuse(owner, "{}")
        elif args and (writes_first(callee) or is_in_place(callee, args, kwargs)):
            several = type(args[0]) in (list, tuple) and effect_of(callee) == "write"
            for part in args[0] if several else args[:1]:
                self.refuse(part, "{}")
        for cell in guards.written(callee, cells, named):
            value = cell.value
            obj = value.obj if type(value) is Uniform else value.items[0]  # type: ignore[union-attr]
            for part in obj if type(obj) is tuple else (obj,):
                self.refuse(part, "{}")
        constants = {name: uniform(arg) for name, arg in kwargs.items()}
        for cell in updated(callee, [uniform(arg) for arg in args], constants):
            obj = cell.value.obj  # type: ignore[union-attr]
            for part in obj if type(obj) in (list, tuple) else (obj,):
                self.refuse(part, "{}")

    def refuse(self, obj: Any, what: str) -> None:
        if self.foreign.holds(obj):
            raise shared_write(self, what.format(described(obj)))

    def seen(self, name: str, obj: Any) -> Any:
        if name == "global":
            self.foreign.note(obj)
        return obj

    def truth(self, obj: Any, span: Span) -> Any:
        self.span = span
        self.method(obj, TRUTH)
        return obj

    def method(self, obj: Any, names: tuple[str, ...]) -> None:
        """Lower the first method that Python is about to call: it refuses a write that it sees."""
        found = [each for each in names if hasattr(type(obj), each)] if is_users(type(obj)) else []  # type: ignore[arg-type]
        static = inspect.getattr_static(type(obj), found[0]) if found else None
        function = static.fget if type(static) is property else static
        if isinstance(function, FunctionType) and is_plain_code(function.__code__):
            try:
                self.lowered(function, obj)
            except SharedWriteError:
                raise
            except UnsupportedError:
                return  # Python runs it

    def lookup(self, receiver: tuple[Any, ...]) -> Callable[[FunctionType], Any]:
        def found(function: FunctionType) -> Any:
            if effect_of(function) != "program":
                return None
            self.entered(function)
            return self.lowered(function, *receiver).function

        return found

    def refuse_generator(
        self, function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        if self.handing is not None:
            held: dict[str, Any] = {}
            lasting: Container[str] = ()
            made = static_of(function)
            if made is not None:
                held, kwargs = captured(function), {**defaults(function), **kwargs}
                function = bare(made)
                lasting = () if made[0].yields is None else made[0].yields.lasting
            every = (*args, *kwargs.values(), *held.values())
            kinds = {type(part) for each in every for part in instances_of(each, True, set(), True)}
            how = (lambda v: type(v) in ATOMS, is_data, callee)
            given = Given.of(function, kinds, args, kwargs, *how, held, lasting)
            self.handing.refuse_generator(function, given)

    def entered(self, function: FunctionType) -> None:
        """A function whose closure and defaults existed before."""
        self.closure(function.__closure__ or ())
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.foreign.note(default)

    def closure(self, boxes: Iterable[CellType]) -> None:
        """What a function closes over existed before."""
        for cell in boxes:
            self.foreign.note(content(cell))

    def lowered(self, function: FunctionType, *receiver: Any) -> Any:
        """The lowering of a function; a receiver that existed before is not to be written.

        ``receiver`` may go on with what a partial hands on.
        """
        known = receiver and not isinstance(receiver[0], Tensor | ModuleType)
        own = known and self.foreign.holds(receiver[0])
        return self.code_of(function, *(receiver[:1] if own else ()))


def writes_first(callee: Any) -> bool:
    if own_attribute(callee, "__module__") == "_operator":
        return callee.__name__ in WRITING_OPERATORS
    return effect_of(callee) == "write"


def is_in_place(callee: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    cells = [uniform(arg) for arg in args]
    return in_place_option(callee, cells, {name: uniform(arg) for name, arg in kwargs.items()})


def captured(function: FunctionType) -> dict[str, Any]:
    """What the captured variables of a function hold, but for functions of the program's."""
    boxes = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found = ((name, content(box)) for name, box in boxes)
    return {name: each for name, each in found if each is not MISSING and not is_made(each)}


def callee(item: Any) -> Hashable:
    if isinstance(item, Handed):
        return None if item.made is None else Nested(*item.made[0][:2])
    return known_callee(item)


def is_made(item: Any) -> bool:
    return isinstance(item, Handed) or (
        isinstance(item, FunctionType) and static_of(item) is not None
    )


def is_changed(name: str, obj: Any) -> bool:
    """Whether ``x += y`` writes ``x``."""
    method = getattr(type(obj), f"__{name}__", None)
    return method is not None and not isinstance(method, FunctionType | MethodType)


def asked(name: str, attr: Any, operands: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """The methods that Python calls for an operation, if the operands have them."""
    if name in ("in", "not_in"):
        yield operands[1], ("__contains__",)
    elif name in BINARY or name in COMPARE:
        yield operands[0], (f"__{name}__",)
        yield operands[1], (backward(name),)
    elif name in ("not", "truth"):
        yield operands[0], TRUTH
    elif name in INPLACE or name in UNARY or name == "getitem":
        yield operands[0], (f"__{name}__",)
