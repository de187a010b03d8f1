"""The records of the sequential engine: a callee with what it closes over, and its frame.

A frame holds the variables of one call as real Python values. Consecutive blocks under one
mode share one entry of it, and a call that ends a block runs within the block's modes: for one
thread, a ``with`` statement enters and leaves its manager once, as in Python.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import takewhile
from types import CellType, FunctionType, MethodType
from typing import Any

from torch import Tensor

from autobatch.batching.binding import by_name, defaults_of
from autobatch.batching.handed import Handed
from autobatch.batching.host import making
from autobatch.batching.managers import is_mode, ready
from autobatch.batching.semantics import load_box, load_global, unbound_free, unbound_local
from autobatch.errors import LIMITS, AutobatchError, Diagnostic, UnsupportedError, note_for
from autobatch.explaining.kinds import sized
from autobatch.forms import meant
from autobatch.ir.program import Call, Function, Handler, Label, Op, Var
from autobatch.random.sources import Source
from autobatch.source import Span
from autobatch.structure import own_attribute
from autobatch.vm import described
from autobatch.vm.ways import Way, is_tail

OF_THE_FRAME = frozenset(("delete", "global", "load_free", "load_outer", "free_box", "import"))
OF_A_FUNCTION = frozenset(("__code__", "__defaults__", "__kwdefaults__"))
"""What a function runs, and with which defaults."""
Lookup = Callable[[FunctionType], Function | None]


@dataclass(frozen=True, slots=True)
class Callee:
    """A function with what it closes over: its module's names, captured boxes, defaults."""

    function: Function
    namespace: dict[str, Any] = field(repr=False)
    title: str
    boxes: dict[str, CellType]
    defaults: dict[str, Any]

    @classmethod
    def of(cls, function: Function, code: FunctionType) -> Callee:
        """The Python function ``code``, to run by way of its lowering."""
        boxes = dict(zip(code.__code__.co_freevars, code.__closure__ or (), strict=True))
        defaults = defaults_of(code, function.params)
        return cls(function, code.__globals__, code.__qualname__, boxes, defaults)

    @classmethod
    def find(cls, target: object, lookup: Lookup) -> Callee | None:
        """What a call of ``target`` runs in a frame; None if it runs as plain Python."""
        if isinstance(target, Closure):
            return target.callee
        if not isinstance(target, FunctionType):
            return None
        lowered = lookup(target)
        return cls.of(lowered, target) if lowered is not None else None

    @classmethod
    def made(cls, static: tuple[Function, dict[str, Any], str], held: Sequence[Any]) -> Callee:
        """What a ``function`` operation makes: it is given boxes, then defaults.

        ``static`` is the function, its module's names, and the title of the one that it stands in.
        """
        function, namespace, outer = static
        count = len(function.free)
        boxes = dict(zip(function.free, held[:count], strict=True))
        title = function.title_in(outer)
        return cls(function, namespace, title, boxes, by_name(function.params, held[count:]))

    def load_free(self, name: str) -> Any:
        return load_box(name, self.boxes[name], unbound_free)


class Closure(Handed):
    """A function that a program made; Python may call it too, while its program runs or after.

    What it runs is no entry of its ``__dict__``: ``functools.wraps`` hands all of that on.
    """

    __slots__ = ("__dict__", "__weakref__", "callee", "run")

    def __init__(
        self,
        callee: Callee,
        run: Callable[..., Any],
        made: tuple[Any, tuple[Any, ...]] | None = None,
    ) -> None:
        self.callee, self.run, self.made = callee, run, made
        self.__name__ = callee.title.rpartition(".")[2]
        self.__qualname__ = callee.title
        self.__module__ = callee.namespace.get("__name__", "")
        self.__doc__ = described.docstring(callee.function.span)

    def __repr__(self) -> str:
        return f"<function {self.__qualname__} at {id(self):#x}>"

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OF_A_FUNCTION:
            raise UnsupportedError(
                Diagnostic(
                    f"A program may not give a function that it defines another `{name}`.",
                    self.callee.function.span,
                    "the function is defined here",
                    hints=("define another function, or make it a parameter.",),
                )
            )
        super().__setattr__(name, value)

    def held(self) -> list[Any]:
        callee = self.callee
        return [*callee.boxes.values(), *callee.defaults.values(), *vars(self).values()]

    @property
    def __defaults__(self) -> tuple[Any, ...] | None:
        return described.positional_defaults(self.callee.function, self.callee.defaults)

    @property
    def __kwdefaults__(self) -> dict[str, Any] | None:
        return described.keyword_defaults(self.callee.function, self.callee.defaults)

    @property
    def __signature__(self) -> inspect.Signature:
        found = described.signature(self.callee.function, self.callee.defaults)
        if found is None or "__wrapped__" in self.__dict__:  # then that of what it wraps counts
            raise AttributeError(f"{self!r} has no signature that a batch knows")
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(self.callee, args, kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)


@dataclass(slots=True, eq=False, repr=False)
class Frame:
    """``span`` and ``operands`` are those of what runs now, for the note on a failure.

    ``entered`` are the modes in force, outermost first, and their ways out.
    ``before`` is the block that ran last, ``way`` where the result comes from. A frame of an
    ``__init__`` gives the ``instance`` that it fills; ``source`` is what its caller draws from.
    """

    callee: Callee
    variables: dict[Var, Any]
    span: Span
    instance: Any = None
    source: Source | None = None
    label: int = 0
    entered: dict[Var, ExitStack] = field(default_factory=dict)
    operands: tuple[Any, ...] = ()
    result: Any = None
    before: Label | None = None
    way: Way | None = None

    @property
    def handler(self) -> Handler | None:
        """That of the block at work, which may be in a call."""
        return self.callee.function.blocks[self.label].handler

    def read(self, name: Var) -> Any:
        if name not in self.variables:
            raise unbound_local(name)
        return self.variables[name]

    def decide(self, name: Var) -> Any:
        """What a branch goes by, which a note shows."""
        self.operands = (self.read(name),)
        return self.operands[0]

    def outer(self, variable: Var, name: str) -> Any:
        """A variable of this function as a comprehension reads it that is a scope of its own."""
        if variable not in self.variables:
            raise unbound_free(name)
        return self.variables[variable]

    def assign(self, op: Op, result: Any) -> None:
        """Bind an operation's outs; ``unpack`` gives a tuple however many it has."""
        if len(op.outs) == 1 and op.name != "unpack":
            self.variables[op.outs[0]] = result
        elif op.outs:
            self.variables.update(zip(op.outs, result, strict=True))

    def run(self, op: Op) -> Any:
        """An operation of ``OF_THE_FRAME``: its meaning is in names, not in operands."""
        match op.name:
            case "delete":
                return self.delete(op.attr)
            case "global":
                return load_global(self.callee.namespace, op.attr)
            case "load_free":
                return self.callee.load_free(op.attr)
            case "load_outer":
                return self.outer(op.args[0], op.attr)
            case "free_box":
                return self.callee.boxes[op.attr]
            case "import":
                module, level, names = op.attr
                return __import__(module, self.callee.namespace, None, names, level)
        raise AssertionError(op)

    def made(self, op: Op, run: Callable[..., Any]) -> Closure | FunctionType:
        """The function that a ``function`` operation makes, to be run by ``run``."""
        static = (op.attr, self.callee.namespace, self.callee.title)
        making.check(op.attr, op.span)
        if op.attr.yields is not None:
            return making.python_function(static, self.operands)
        return Closure(Callee.made(static, self.operands), run, (static, self.operands))

    def delete(self, name: Var) -> None:
        self.read(name)
        del self.variables[name]

    def reach(self, span: Span) -> None:
        """What stands at ``span`` runs next."""
        self.span, self.operands = span, ()

    def called(self) -> tuple[Any, tuple[Any, ...]]:
        """What a call's operands are: what is called, and its own, which a note shows.

        The tensor whose method is called is shown as one of them.
        """
        target, *operands = self.operands
        owner = own_attribute(target, "__self__")
        self.operands = (owner, *operands) if isinstance(owner, Tensor) else tuple(operands)
        return target, tuple(operands)

    def enter(self, modes: tuple[Var, ...]) -> None:
        """Leave the modes that this block does not share with the one before; enter its own."""
        pairs = zip(self.entered, modes, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        while len(self.entered) > shared:
            self.entered.popitem()[1].close()
        for mode in modes[shared:]:
            self.entered[mode] = stack = ExitStack()
            manager = self.read(mode)
            if is_mode(manager):
                stack.enter_context(ready(manager))

    def entered_beyond(self, modes: tuple[Var, ...]) -> list[ExitStack]:
        """The ways out of the modes in force that a block under ``modes`` does not share."""
        pairs = zip(self.entered, modes, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        left = list(self.entered)[shared:]
        return [self.entered.pop(name) for name in left]

    def give(self, value: Any) -> None:
        """Return ``value``, by way of the block that ran last or of a call in its place."""
        if self.instance is not None:
            if value is not None:
                kind = type(value).__name__
                raise TypeError(f"__init__() should return None, not {kind!r}")
            value = self.instance
        self.result = value
        if self.instance is not None:
            self.way = None  # no return of ``__init__`` gives the instance
        elif self.way is None:
            came_from = self.label if self.before is None else self.before
            self.way = Way(self.callee.function, came_from)
        self.enter(())

    def resume(self, value: Any, way: Way | None) -> None:
        """Go on after the call that the block ends in, whose result comes from ``way``."""
        call = self.callee.function.blocks[self.label].terminator
        assert isinstance(call, Call)
        self.variables[call.out] = value
        if is_tail(self.callee.function, call):
            self.way = way  # for good: what comes between here and the exit gives no result
        self.label = call.target


def receiver_of(target: Any) -> tuple[tuple[Any, ...], Any]:
    """The object that a bound method hands on, as its leading arguments, and the function."""
    target = meant(target)
    if isinstance(target, MethodType):
        return (target.__self__,), meant(target.__func__)
    return (), target


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an exception arose: through which calls, outermost first, and on what operands."""

    error: BaseException
    spans: tuple[Span, ...]
    operands: tuple[Any, ...]


def note(error: BaseException, origin: Origin, threads: tuple[int, ...]) -> None:
    """Add to a failure of the user's code where it arose, through which calls, on what."""
    own = isinstance(error, AutobatchError) and not isinstance(error, LIMITS)
    if isinstance(error, Exception) and not own:
        operands = [_describe(value) for value in origin.operands]
        error.add_note(note_for(error, list(origin.spans), operands, threads))


def _describe(value: Any) -> str:
    """A value as notes show it: dtype and shape of a tensor, else its type, and its length."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        return sized(value)
    return f"{str(dtype).rpartition('.')[2]} {list(shape)}"
