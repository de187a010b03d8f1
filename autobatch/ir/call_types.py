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

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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
from autobatch.ir.links import Links, is_closed, links_of
from autobatch.ir.operands import operands_of
from autobatch.ir.program import Call, Function, Op, Program, Return, Var
from autobatch.ir.types import Type, declared

MOST = 64
"""Summaries of a program, and rounds until they agree."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a call comes to: whether it ``returns``, and what; whether it is ``quiet``: it runs no
    code of others, and changes no tensor's shape.
    """

    returns: bool = False
    type: Type | None = None
    quiet: bool = True


UNKNOWN = Summary(True, None, False)


@dataclass(eq=False, repr=False)
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
