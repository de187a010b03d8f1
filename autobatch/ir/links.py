"""Which function of a program a call is sure to be of, as names are now.

In: a ``Program``. Out: ``links_of``: by function, the variables that name another one, by a global
name or as a method of the object that the program's callable is bound to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any

from autobatch.ir.definitions import definitions_of
from autobatch.ir.program import Call, Function, Join, Program, Var
from autobatch.structure import own_attribute, own_attributes

BY_HAND = "<program text>"
"""The file of what has no place but in the text of a program."""


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
        function = program.functions[name]
        sites = looked_up(function, code, owner) if code else by_name(program, function)
        for var, callee, link in sites:
            if callee is None or meant(program.functions, callee) is not None:
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


def by_name(program: Program, function: Function) -> Iterator[tuple[Var, None, Link]]:
    """Variables that name a function of a program that no Python function belongs to."""
    for var, op in definitions_of(function).items():
        if op is not None and op.name == "global":
            named = program.functions.get(op.attr)
            if named is not None and not named.free:
                yield var, None, Link(op.attr)


def looked_up(
    function: Function, code: FunctionType, owner: object
) -> Iterator[tuple[Var, FunctionType, Link]]:
    """Variables that name a Python function: a global, or a method of the first parameter's."""
    definitions = definitions_of(function)
    first = function.params[0].name if function.params else None
    for var, op in definitions.items():
        if op is None:
            continue
        if op.name == "global":
            callee = python_function(code.__globals__.get(op.attr))
            if callee is not None:
                yield var, callee, Link(callee.__qualname__)
        elif op.name == "getattr" and op.args == (first,) and first not in definitions:
            callee = None if owner is None else method_of(owner, op.attr)
            if callee is not None:
                yield var, callee, Link(callee.__qualname__, first)


def method_of(owner: object, name: str) -> FunctionType | None:
    """A method of an object's class, where to look it up runs no code and finds nothing else."""
    kind = type(owner)
    if kind.__getattribute__ is not object.__getattribute__:
        return None
    if name in (own_attributes(owner) or ()):
        return None
    found = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    return found if isinstance(found, FunctionType) else None


def python_function(value: Any) -> FunctionType | None:
    """The Python function behind what is called, where that is plain."""
    if isinstance(value, MethodType):
        value = value.__func__
    value = own_attribute(value, "__autobatch_function__", value)
    return value if isinstance(value, FunctionType) else None


def meant(functions: Mapping[str, Function], callee: FunctionType) -> Function | None:
    """What a program has of a Python function: lowered from it, or written by hand by its name."""
    found = functions.get(callee.__qualname__)
    is_its = found is not None and (found.span.file == BY_HAND or is_of(found, callee))
    return found if is_its else None


def is_of(function: Function, callee: FunctionType) -> bool:
    """Whether a function has been lowered from a Python function."""
    code, span = callee.__code__, function.span
    lines = [line for *_, line in code.co_lines() if line is not None]
    named = function.name == callee.__qualname__ and span.file == code.co_filename
    return named and code.co_firstlineno <= span.line <= max(lines, default=0)
