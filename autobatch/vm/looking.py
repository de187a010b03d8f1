"""What a function that yields may do that others see: all that may run in it is looked at.

In: the function, and what is known of what it is given. Out: the first operation that does more
than compute, and what it does; None where all is known, and nobody sees it.

The world is closed: a method that is not known is one of a builtin's or of torch's, or has that
name in one of the classes that are given or named; special methods and properties of these always
run (Rapid Type Analysis, Bacon and Sweeney 1996).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

from torch import nn

from autobatch.batching.effects import is_library
from autobatch.batching.generators import ATOMS, Given, defaults
from autobatch.batching.host.getters import named_by, reading
from autobatch.batching.host.making import static_of
from autobatch.batching.host.own_methods import UNASKED, instances, is_own, special
from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.frontend import MISSING
from autobatch.ir.program import Call, Function, Op, Param, Var
from autobatch.source import Span
from autobatch.vm.code import Code
from autobatch.vm.known_computing import ADVANCES, NOTHING
from autobatch.vm.library import Library, is_looked_into, looked_at
from autobatch.vm.looking_at import Operations
from autobatch.vm.nested import Nested
from autobatch.vm.purity import Known, Names

WRITERS = UNASKED - {
    f"__{name}__" for name in ("setattr", "delattr", "setitem", "delitem", "set", "del", "call")
}
"""Special methods that nothing in a function calls by itself, not even where it writes."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a function does, and where."""

    what: str
    span: Span


READS = {"load_free": "copy", "free_box": "box"}
"""What reads a captured variable, or hands it on, and what does so with a parameter."""


def given_captured(function: Function, functions: Container[str]) -> Function:
    """The function with what it captures as parameters, but for ``functions`` of the program's."""
    free = [name for name in function.free if name not in functions]

    def read(op: Op) -> Op:
        if op.name not in READS or op.attr not in free:
            return op
        return replace(op, name=READS[op.name], args=(op.attr,), attr=None)

    blocks = (replace(block, ops=tuple(map(read, block.ops))) for block in function.blocks)
    params = (*function.params, *(Param(name, "keyword_only", False) for name in free))
    return replace(function, params=params, blocks=tuple(blocks))


def seen(function: FunctionType, found: Found) -> UnsupportedError:
    return UnsupportedError(
        Diagnostic(
            "`yield` is not supported in a program, but where a function only computes: "
            f"{function.__qualname__}.",
            found.span,
            found.what,
            (
                "Python runs a function that yields an item at a time, between what other threads "
                "do. So it may do nothing that others see: it writes nothing that it is given or "
                "that existed before, prints and draws nothing, and calls what is known.",
            ),
            (
                "collect the values in a list, and return it; or mark the function that makes and "
                "reads the generator with autobatch.per_thread: it runs example by example.",
            ),
            "yield",
        )
    )


@dataclass(eq=False, repr=False)
class Looking:
    """A look at a function that yields, and at all that it may come to run."""

    library: Library
    draws: bool
    given: Given
    kinds: set[type] = field(default_factory=set)
    methods: dict[str, list[FunctionType]] = field(default_factory=lambda: defaultdict(list))
    waiting: list[tuple[Code, Names, frozenset[Var]]] = field(default_factory=list)
    seen: set[tuple[int, frozenset[Var]]] = field(default_factory=set)

    def found(self, function: FunctionType) -> Found | None:
        """What it does more than compute."""
        for kind in self.given.kinds:
            self.meet(kind, existed=True)
        functions = [each for _, each in self.given.called if isinstance(each, FunctionType)]
        for each in (each for root in (function, *functions) for each in named_by(root)):
            if isinstance(each, type):
                self.meet(each, existed=False)
            else:
                for item in instances(each, True, set(), True):
                    self.meet(type(item), existed=True)
        code, names = self.code_of(function)
        if any(hasattr(type(value), "__next__") for value in defaults(function).values()):
            return Found(ADVANCES, code.function.span)
        found = self.look(code, names, self.given.atoms, self.given)
        while found is None and self.waiting:
            found = self.look(*self.waiting.pop())
        return found

    def code_of(self, function: FunctionType) -> tuple[Code, Names]:
        """What it runs, and what its names mean; of one that a program makes, in any thread."""
        made = static_of(function)
        if made is None:
            receiver = self.receiver(function)
            return self.library.looked_into(function, receiver), Names.of(function, receiver)
        names = self.library.names_within(Nested(*made[:2]))
        return Code.of(given_captured(made[0], names.nested)), names

    def receiver(self, function: FunctionType) -> object:
        """What it is a method of, where that is a module."""
        first = next(iter(function.__code__.co_varnames[: function.__code__.co_argcount]), "")
        found = dict(self.given.called).get(first, MISSING)
        return found if isinstance(found, nn.Module) else MISSING

    # What may run.

    def meet(self, kind: type, existed: bool) -> None:
        """There may be instances of a class, which the function makes, or which ``existed``."""
        if not is_own(kind) or kind in self.kinds:
            return
        self.kinds.add(kind)
        for base in filter(is_own, kind.__mro__):
            for name, value in vars(base).items():
                method = getattr(value, "__func__", value)
                if isinstance(method, FunctionType):
                    self.methods[name].append(method)
                elif not isinstance(value, type):
                    self.meet(type(value), existed=True)
        for method in {*reading(kind), *special(kind, WRITERS)}:
            own = method.__code__.co_varnames[: 0 if existed else 1]
            self.enter(method, frozenset(own))

    def enter(self, function: FunctionType, own: frozenset[Var] = frozenset()) -> None:
        """A function runs, which may write those of its parameters that its caller owns."""
        if is_library(function) or function.__code__.co_filename == "<string>":
            return
        if not is_looked_into(function):
            return
        self.add(self.library.looked_into(function, MISSING), Names.of(function), own)

    def runs(self, callee: Any) -> None:
        """What is known is called, and what it writes is looked at where it is called."""
        library = self.library
        if type(callee) is Nested:
            code, names = library.code_for(callee.function), library.names_within(callee)
            kept: list[str] = []
        else:
            if isinstance(callee, type):
                self.meet(callee, existed=False)
            found = looked_at(callee)
            if found is None or is_library(found[0]):
                return
            code, names = library.looked_into(*found), Names.of(*found)
            kept = [k for k, value in defaults(found[0]).items() if type(value) not in ATOMS]
        self.add(code, names, frozenset(p.name for p in code.function.params) - {*kept})

    def add(self, code: Code, names: Names, own: frozenset[Var]) -> None:
        if (id(code), own) not in self.seen:
            self.seen.add((id(code), own))
            self.waiting.append((code, names, own))

    # What it does.

    def look(
        self, code: Code, names: Names, own: frozenset[Var], given: Given = NOTHING
    ) -> Found | None:
        known = Known(code.function, names, code.definitions)
        operations = Operations(self, known, own, given)
        for block in code.function.blocks:
            if block.modes:
                return Found("this runs in a mode of torch's", block.terminator.span)
            steps: list[Op | Call] = list(block.ops)
            if isinstance(block.terminator, Call):
                steps.append(block.terminator)
            for step in steps:
                what = operations.does(step)
                if what is not None:
                    return Found(what, step.span)
        return None
