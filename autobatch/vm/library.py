"""The lowered functions that runs share: each Python code object is lowered once."""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor

from autobatch.batching.calls import resolve_object
from autobatch.batching.effects import effect_of
from autobatch.frontend import MISSING, Resolver, lower, lower_program
from autobatch.ir.program import Block, Function, Program
from autobatch.passes import run_passes
from autobatch.vm.groups import CARRIED

_BUILTIN_TYPES = (str, bytes, int, float, complex, list, tuple, dict, set, frozenset)
OPAQUE_METHODS = frozenset(
    name for kind in (Tensor, *_BUILTIN_TYPES) for name in dir(kind) if not name.startswith("__")
)


def classify(value: object) -> str:
    """Whether a call runs a program function, as the frontend asks."""
    wrapped = getattr(value, "__autobatch_function__", value)
    return "program" if effect_of(wrapped) == "program" else "opaque"


def function_of(value: object) -> tuple[FunctionType, object] | None:
    """The Python function behind a program callable, and its receiver where that is known."""
    target = resolve_object(value, [], {})
    if target.effect == "construct":
        made = target.callee.__init__
        return (made, MISSING) if isinstance(made, types.FunctionType) else None
    if target.effect != "program" or not isinstance(target.callee, FunctionType):
        return None
    first = target.args[0].value if target.args else None
    return target.callee, getattr(first, "obj", MISSING)


RESOLVER = Resolver(classify, OPAQUE_METHODS, function_of)


@dataclass(slots=True, eq=False)
class Code:
    """A lowered function, ready to run: the variables that live at each block, sorted."""

    function: Function
    blocks: tuple[Block, ...]
    live: Sequence[tuple[str, ...]]
    plans: list[dict[Any, Any]]

    @classmethod
    def of(cls, function: Function) -> Code:
        live = [tuple(sorted({*names, CARRIED})) for names in function.live_in]
        return cls(function, function.blocks, live, [{} for _ in function.blocks])


@dataclass(slots=True, eq=False)
class Library:
    """Lowers Python functions on demand and keeps what it has made; safe for host threads."""

    codes: WeakKeyDictionary[CodeType, Code] = field(default_factory=WeakKeyDictionary)
    nested: dict[int, Code] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def code_of(self, function: FunctionType, receiver: object = MISSING) -> Code:
        """The lowering of a Python function; ``receiver`` is its first argument, if known."""
        code = self.codes.get(function.__code__)
        if code is None:
            with self.lock:
                code = self.codes.get(function.__code__)
                if code is None:
                    lowered = lower(function, RESOLVER, receiver=receiver).function
                    code = self.codes[function.__code__] = Code.of(run_passes(lowered))
        return code

    def code_for(self, function: Function) -> Code:
        """The code of a function that a program defines."""
        code = self.nested.get(id(function))
        if code is None or code.function is not function:
            code = self.nested[id(function)] = Code.of(function)
        return code

    def program(self, callable_: Callable[..., Any]) -> Program:
        """The whole program of a callable: its function and all that it can be seen to call."""
        found = function_of(callable_)
        function, receiver = found if found is not None else (callable_, MISSING)
        program = lower_program(function, RESOLVER, receiver=receiver, transform=run_passes)
        return Program(program.functions, program.entry, callable_, program.out_vars)


