"""What one operation of a function that yields does more than compute, as ``looking`` asks.

In: an operation. Out: what others may see of it, in words; None for one that only computes. What it
calls, or hands on to be called, is told to the look, which goes through it, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from autobatch.batching import known_arrays as arrays
from autobatch.batching.calling.modules import keeping
from autobatch.batching.containers.callees import is_hashable
from autobatch.batching.effects import MUTATING_METHODS, effect_of, is_library
from autobatch.batching.generators import is_generator
from autobatch.batching.kinds import is_plain_code
from autobatch.batching.known_callees import is_called_at
from autobatch.frontend import MISSING
from autobatch.ir.program import Call, CallShape, Op, Var
from autobatch.structure import own_attribute
from autobatch.vm.library import Library
from autobatch.vm.nested import Nested
from autobatch.vm.purity import Analysis, Known, may_change

NO_COMPUTING = frozenset(
    {"backward", "register_hook", "register_post_accumulate_grad_hook", "retain_grad"}
)
"""Methods of tensors that change others."""
CHANGING: tuple[Any, ...] = (torch.autograd.backward, torch.set_printoptions)

IS_CALLED = "it is not known what this calls"
DRAWS = "this draws, and randomness is 'error'"
WRITES_GIVEN = "this may write what the function is given"
SEEN = "others may see what this does"
ADVANCES = "this existed before, and changes by being read"
"""What is said of a place."""


class Looking(Protocol):
    """Who asks."""

    library: Library
    draws: bool

    @property
    def methods(self) -> Mapping[str, list[FunctionType]]:
        """Those of the classes that are about, by their names."""

    def runs(self, callee: Any) -> None:
        """What is known is called."""

    def enter(self, function: FunctionType) -> None:
        """A method runs, on anything."""


@dataclass(eq=False, repr=False)
class Operations:
    """The operations of one function, one by one."""

    looking: Looking
    known: Known
    own: frozenset[Var]
    """Parameters that it may write to."""

    def __post_init__(self) -> None:
        library = self.looking.library
        self.analysis = Analysis(self.known, library.purity_of, library.methods.__contains__)

    def does(self, step: Op | Call) -> str | None:
        """What an operation does more than compute."""
        analysis = self.analysis
        analysis.writes, analysis.sure, analysis.draws = set(), set(), False
        if isinstance(step, Call):
            return self.calls(step.callee, step.args, step.shape)
        if step.name in ("global", "load_free"):
            value = self.known.value(step.outs[0])
            is_going = hasattr(type(value), "__next__") or isinstance(value, defaultdict)
            return ADVANCES if is_going and not isinstance(value, type) else None
        if step.name == "function":
            self.looking.runs(Nested(step.attr, self.known.names.namespace))
            return None
        if step.does == "call":
            return self.calls(step.args[0], step.args[1:], step.attr)
        if not analysis.is_pure_op(step):
            return SEEN
        return self.written()

    def written(self) -> str | None:
        """Whether what has just been looked at writes what is not the function's own."""
        return WRITES_GIVEN if (self.analysis.writes | self.analysis.sure) - self.own else None

    def calls(self, callee: Var, args: tuple[Var, ...], shape: CallShape) -> str | None:
        found, method = self.known.value(callee), self.known.method(callee)
        if found is iter and len(args) == 1:
            return None
        if found is next and self.is_own_iterator(args[0]):
            return None
        if found is next:
            return self.written() if self.analysis.may_write(args[:1]) else ADVANCES
        if found is MISSING:
            what = IS_CALLED if method is None else self.calls_method(method[1])
        else:
            what = self.calls_known(found, args, shape)
        what = what or self.calls_handed(handing(found, method), args, shape)
        if what is not None:
            return what
        if not self.analysis.is_pure_call(callee, args, shape):
            return SEEN
        if self.looking.draws and self.analysis.draws:
            return DRAWS
        return self.written()

    def is_own_iterator(self, name: Var) -> bool:
        """Whether ``next`` goes on in what a parameter gives, as a ``for`` over it does."""
        definition = self.known.definitions.get(name)
        if definition is None:
            return name in {param.name for param in self.known.function.params}
        is_call = definition.name == "call" and self.known.value(definition.args[0]) is iter
        if is_call and len(definition.args) == 2:
            return self.is_own_iterator(definition.args[1])
        is_iter = definition.name in ("iter", "copy")
        return is_iter and self.is_own_iterator(definition.args[0])

    def calls_method(self, name: str) -> str | None:
        """What a method does, of whatever class that is about."""
        methods = self.looking.methods.get(name, [])
        for method in methods:
            self.looking.enter(method)
            if not is_generator(method) and not is_plain_code(method.__code__):
                return IS_CALLED
        if name in NO_COMPUTING:
            return SEEN
        return None if methods or name in self.looking.library.methods else IS_CALLED

    def calls_known(self, found: Any, args: tuple[Var, ...], shape: CallShape) -> str | None:
        """What a function or module does that writes without a name that says so."""
        if isinstance(found, nn.Module) and keeping(found):
            return "this changes the module that it calls"
        owner = own_attribute(found, "__self__")
        of_others = isinstance(found, MethodType) and not isinstance(owner, type)
        if of_others and is_library(found) and not isinstance(owner, Tensor | nn.Module):
            return SEEN
        if any(found is each for each in CHANGING):
            return SEEN
        if is_hashable(found) and found in arrays.FUNCTIONS:
            places = arrays.places_of(found)
            told = any(
                place < len(args) or name in shape.keywords for name, place in places.items()
            )
            return SEEN if told or found in arrays.CHANGES else None
        if effect_of(found) == "program":
            self.looking.runs(found)
        return None

    def calls_handed(self, found: Any, args: tuple[Var, ...], shape: CallShape) -> str | None:
        """What the functions do that a call hands on to be called (``map``, ``sorted``)."""
        count = len(shape.positional)
        for at, arg in enumerate(args):
            place = at if at < count else shape.keywords[at - count]
            if place is not None and is_called_at(found, place, count):
                what = self.hands(arg)
                if what is not None:
                    return what
        return None

    def hands(self, name: Var) -> str | None:
        definition = self.known.definitions.get(name)
        if definition is not None and definition.name == "const":
            return None
        value: Any = self.known.value(name)
        if definition is not None and definition.name == "function":
            value = Nested(definition.attr, self.known.names.namespace)
        if value is MISSING:
            method = self.known.method(name)
            changes = method is not None and method[1] in MUTATING_METHODS
            return IS_CALLED if method is None or changes else self.calls_method(method[1])
        purity = self.looking.library.purity_of(value)
        if purity is None:
            known = effect_of(value) in ("host", "torch") and not may_change(value)
            return None if known else IS_CALLED
        self.looking.runs(value)
        if not purity.is_pure or purity.writes:
            return SEEN
        return DRAWS if purity.draws and self.looking.draws else None


def handing(found: object, method: tuple[Var, str] | None) -> Any:
    """The function that a call is of, as far as it may call what it gets."""
    if found is not MISSING:
        return found
    return list.sort if method is not None and method[1] == "sort" else None
