"""What calls are known to return: types through the calls of a program, to a fixpoint.

In: a ``Program``. Out: for each function what its operations and calls are known to give
(``CallTypes.noted``). A call is of a function of the program where its callee is a global name, or
a method of the object that the program's callable is bound to, which ``links_of`` is sure of. What
it gives depends on what is passed, so a function has a
``Summary`` for each kinds of arguments that it is called with; recursion begins with the assumption
that it never returns (Kildall 1973). Of what is passed nothing is noted in the callee, which others
may call.

Names are taken to mean what they mean now: types are for whoever reads the text, and nothing that
runs goes by those of calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType, MethodType
from typing import Any

from autobatch.ir.definitions import definitions_of
from autobatch.ir.inference import (
    NOTHING,
    AfterCall,
    Noted,
    Types,
    called_by,
    forgotten,
    is_quiet,
    noted,
    solved,
    stepped,
    unshaped,
    without,
)
from autobatch.ir.operands import operands_of
from autobatch.ir.program import Call, Function, Join, Op, Program, Return, Var
from autobatch.ir.types import Type, declared

MOST = 64
"""Summaries of a program, and rounds until they agree."""


@dataclass(frozen=True, slots=True)
class Link:
    """A function of the program that a variable names; ``receiver`` is the variable whose method
    it is.
    """

    function: str
    receiver: Var | None = None

    @property
    def first(self) -> tuple[Var, ...]:
        """The operand that comes before those of a call."""
        return () if self.receiver is None else (self.receiver,)


Links = Mapping[str, Mapping[Var, Link]]
"""By function, the variables that are called and sure to name another function of the program."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a call comes to: whether it ``returns``, and what; whether it is ``quiet``: it runs no
    code of others, and changes no tensor's shape.
    """

    returns: bool = False
    type: Type | None = None
    quiet: bool = True


UNKNOWN = Summary(True, None, False)


def links_of(program: Program) -> Links:
    """What calls of names are sure to be of, as the program's callable and its object have them.

    Methods are sure where all calls are, so that none is of another object's.
    """
    code, owner = entry_of(program)
    links = linked(program, code, owner)
    if owner is not None and (links is None or not is_closed(program, links)):
        links = linked(program, code, None)
    return links or {}


def linked(program: Program, code: FunctionType | None, owner: object) -> Links | None:
    """The same, where the entry is a method of ``owner``; None if others are called by name."""
    links: dict[str, Mapping[Var, Link]] = {}
    owners: dict[str, object] = {}
    waiting = [(program.entry, code, owner)]
    while waiting:
        name, code, owner = waiting.pop()
        if owners.setdefault(name, owner) is not owner:
            return None
        if name in links or name not in program.functions:
            continue
        found: dict[Var, Link] = {}
        for var, callee, link in looked_up(program.functions[name], code, owner):
            meant = program.functions.get(link.function)
            if meant is not None and is_of(meant, callee):
                found[var] = link
                waiting.append((link.function, callee, owner if link.receiver else None))
        links[name] = found
    return links


def is_closed(program: Program, links: Links) -> bool:
    """Whether all that its functions call is known."""
    for name, function in program.functions.items():
        for each in function.walk():
            known = links.get(name, {}) if each is function else {}
            for block in each.blocks:
                end = block.terminator
                if isinstance(end, Join) or (isinstance(end, Call) and end.callee not in known):
                    return False
    return True


def entry_of(program: Program) -> tuple[FunctionType | None, object]:
    """The Python function that a program was made of, and the object that it is a method of."""
    value = program.callable
    if isinstance(value, MethodType):
        return python_function(value), value.__self__
    code = python_function(value)
    if code is None and program.entry in program.functions:
        method = method_of(value, program.entry.rpartition(".")[2])
        return method, None if method is None else value
    return code, None


def looked_up(
    function: Function, code: FunctionType | None, owner: object
) -> Iterator[tuple[Var, FunctionType, Link]]:
    """Variables that name a Python function: a global, or a method of the first parameter's."""
    definitions = definitions_of(function)
    first = function.params[0].name if function.params else None
    for var, op in definitions.items():
        if op is None or code is None:
            continue
        if op.name == "global":
            callee = python_function(code.__globals__.get(op.attr))
            if callee is not None:
                yield var, callee, Link(op.attr)
        elif op.name == "getattr" and op.args == (first,) and first not in definitions:
            callee = None if owner is None else method_of(owner, op.attr)
            if callee is not None:
                yield var, callee, Link(callee.__qualname__, first)


def method_of(owner: object, name: str) -> FunctionType | None:
    """A method of an object's class, where to look it up runs no code and finds nothing else."""
    kind = type(owner)
    if kind.__getattribute__ is not object.__getattribute__:
        return None
    if name in getattr(owner, "__dict__", ()):
        return None
    found = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    return found if isinstance(found, FunctionType) else None


def python_function(value: Any) -> FunctionType | None:
    """The Python function behind what is called, where that is plain."""
    if isinstance(value, MethodType):
        value = value.__func__
    value = getattr(value, "__autobatch_function__", value)
    return value if isinstance(value, FunctionType) else None


def is_of(function: Function, callee: FunctionType) -> bool:
    """Whether a function has been lowered from a Python function."""
    code, span = callee.__code__, function.span
    lines = [line for *_, line in code.co_lines() if line is not None]
    named = function.name == callee.__qualname__ and span.file == code.co_filename
    return named and code.co_firstlineno <= span.line <= max(lines, default=0)


@dataclass(eq=False)
class CallTypes:
    """The types of a program; ``summaries`` by function and what its parameters hold."""

    program: Program
    links: Links = field(init=False)
    summaries: dict[tuple[str, frozenset[tuple[Var, Type]]], Summary] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.links = links_of(self.program)

    def noted(self, name: str) -> Noted:
        """What the operations and calls of a function are known to give."""
        function, given = self.program.functions[name], self.inputs(name)
        found = noted(function, given, self.after_call(name))
        for _ in range(MOST):
            if not self.improved():
                return found
            found = noted(function, given, self.after_call(name))
        self.links = {}
        return noted(function, given)

    def inputs(self, name: str) -> Types:
        """What event shapes declare of parameters; nothing if something might call it besides."""
        links = (link for found in self.links.values() for link in found.values())
        again = any(link.function == self.program.entry for link in links)
        if name != self.program.entry or again or not is_closed(self.program, self.links):
            return NOTHING
        params = self.program.functions[name].params
        plain = {param.name for param in params if param.kind != "var_positional"}
        shapes = self.program.in_shapes.items()
        found = {each: declared(shape) for each, shape in shapes if each in plain}
        return {each: kind for each, kind in found.items() if kind is not None}

    def improved(self) -> bool:
        """Work all summaries out once more; whether one is another than it was."""
        before = dict(self.summaries)
        for name, given in before:
            self.summaries[name, given] = self.worked_out(name, dict(given))
        return self.summaries != before

    def summary(self, name: str, given: Types) -> Summary:
        key = (name, frozenset(given.items()))
        if key not in self.summaries and len(self.summaries) >= MOST:
            return UNKNOWN
        return self.summaries.setdefault(key, Summary())

    def worked_out(self, name: str, given: Types) -> Summary:
        """What a function comes to, by what the summaries say now."""
        blocks, after_call = self.program.functions[name].blocks, self.after_call(name)
        quiet = True
        end: Types | None = None
        for block, types in zip(blocks, solved(blocks, given, after_call), strict=True):
            if types is None:
                continue
            for op in block.ops:
                quiet = quiet and self.is_quiet(name, op, types)
                types = stepped(op, types, after_call)
            if isinstance(block.terminator, Call):
                found = self.called(name, block.terminator, types)
                quiet = quiet and found is not None and found.quiet
            elif isinstance(block.terminator, Return):
                end = types
        last = blocks[-1].terminator
        kind = end.get(last.value) if end is not None and isinstance(last, Return) else None
        return Summary(end is not None, kind, quiet)

    def is_quiet(self, name: str, op: Op, types: Types) -> bool:
        """Whether an operation in a function runs no code of others, and changes no shape."""
        if op.name != "call":
            return is_quiet(op, types)
        found = self.called(name, called_by(op), types)
        return found is not None and found.quiet

    def called(self, name: str, call: Call, types: Types) -> Summary | None:
        """What a call in a function comes to; None if that is not known."""
        link = self.links.get(name, {}).get(call.callee)
        if link is None:
            return None
        given = passed(self.program.functions[link.function], call, types, link.first)
        return self.summary(link.function, given)

    def after_call(self, name: str) -> AfterCall:
        """What is known in a function after its calls; None after one that does not return."""

        def after(call: Call, types: Types) -> Types | None:
            found = self.called(name, call, types)
            if found is None:
                return forgotten(call, types)
            if not found.returns:
                return None
            kept = without(types if found.quiet else unshaped(types), (call.out,))
            return kept if found.type is None else {**kept, call.out: found.type}

        return after


def passed(callee: Function, call: Call, types: Types, first: Sequence[Var] = ()) -> Types:
    """What the parameters of a function hold in a call; nothing where that is not plain."""
    given = operands_of(callee.params, call.args, call.shape, first)
    return {name: types[arg] for name, arg in (given or {}).items() if arg in types}


def with_types(program: Program) -> Program:
    """The program with what is known of its calls noted, where anything is noted."""
    known = CallTypes(program)
    functions = {
        name: replace(function, types=known.noted(name)) if function.types else function
        for name, function in program.functions.items()
    }
    return replace(program, functions=functions)
