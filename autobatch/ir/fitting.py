"""Whether calls fit the parameters of the functions that they are sure to run.

In: a ``Program``. Out: ``misfits`` finds the calls that can only raise ``TypeError``, and do not
say so; ``fitted`` has them say so (``CallShape.unfit``), since a program may have such calls, as
Python may: they fail when a thread comes to them. What a call runs is sure where its name means a
function of the program (``ir.links``), or one that is made where the call stands, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autobatch.ir.definitions import definitions_of
from autobatch.ir.form_rules import ops_of, terminators_of
from autobatch.ir.links import Link, links_of
from autobatch.ir.printer import Place, params_text
from autobatch.ir.program import (
    Block,
    Call,
    CallShape,
    Function,
    Op,
    Param,
    Program,
    Terminator,
    Var,
)
from autobatch.source import Span

CALLS = ("call", "fork")
BY_PLACE = ("positional_only", "positional")
BY_NAME = ("positional", "keyword_only")


@dataclass(frozen=True, slots=True)
class Callee:
    """What a call is sure to run; ``bound`` of its parameters have their operands already."""

    function: Function
    bound: int = 0

    def misfit(self, shape: CallShape) -> str | None:
        """Why a call of that shape can only raise ``TypeError``; None if it may do more."""
        why = misfit(self.function.params, shape, self.bound)
        if why is None:
            return None
        params = params_text(self.function.params)
        return f"the call does not fit {self.function.name}({params}): {why}"


@dataclass(frozen=True, slots=True)
class Site:
    """A call: where it stands, there and in the source, what it names, and its operands' shape."""

    place: Place
    span: Span
    callee: Var
    shape: CallShape

    @property
    def name(self) -> tuple[Span, Var]:
        """What it keeps through passes that leave what it runs as it is."""
        return self.span, self.callee


def misfit(params: Sequence[Param], shape: CallShape, bound: int = 0) -> str | None:
    """Why operands cannot reach parameters, the first ``bound`` of which have theirs; None if they
    may.
    """
    kinds = [param.kind for param in params]
    places = [param.name for param in params if param.kind in BY_PLACE]
    given = bound + shape.positional.count(False)
    if given > len(places) and "var_positional" not in kinds:
        return f"it takes {len(places)} operands by place, and gets {given}"
    filled = set(places[:given])
    names = {param.name for param in params if param.kind in BY_NAME}
    for name in shape.keywords:
        if name in filled and name in names:
            return f"{name} is given twice"
        if name is not None and name not in names and "var_keyword" not in kinds:
            return f"it has no {name} to be given by name"
    filled.update(name for name in shape.keywords if name in names)
    needed = [p.name for p in params if p.kind in {*BY_PLACE, *BY_NAME} and not p.has_default]
    missing = [name for name in needed if name not in filled]
    return f"{', '.join(missing)} is not given" if missing and shape.is_plain else None


def misfits(program: Program, before: Program | None) -> Iterator[tuple[str, Function, Place]]:
    """Of the calls that fit no parameters and do not say so: why, in which function, and where.

    ``before`` is what a pass has made it of: where it was not sure what a call runs, the call is
    the program's own, and nobody has broken it.
    """
    sure = {(function.name, site.name) for function, site, _ in sites_of(before or program)}
    for function, site, callee in sites_of(program):
        is_asked = not site.shape.unfit and (function.name, site.name) in sure
        why = callee.misfit(site.shape) if is_asked else None
        if why is not None:
            yield f"{why}; a call that is to fail is `unfit`", function, site.place


def sites_of(program: Program) -> Iterator[tuple[Function, Site, Callee]]:
    """The calls that are sure to run something, the functions that they are in, and what it is."""
    links = links_of(program)
    for name, outer in program.functions.items():
        for function in outer.walk():
            own = links.get(name, {}) if function is outer else {}
            yield from ((function, *found) for found in sites_in(program, function, own))


def fitted(program: Program) -> Program:
    """The program whose calls say where they fit no parameters."""
    links = links_of(program)
    made = {
        name: marked(program, function, links.get(name, {}))
        for name, function in program.functions.items()
    }
    if all(made[name] is function for name, function in program.functions.items()):
        return program
    return replace(program, functions=made)


def sites_in(
    program: Program, function: Function, links: Mapping[Var, Link]
) -> Iterator[tuple[Site, Callee]]:
    """The calls in a function that are sure to run something; ``links`` are its names'."""
    sites = list(calls_of(function))
    definitions = definitions_of(function) if sites else {}
    for site in sites:
        link, made = links.get(site.callee), definitions.get(site.callee)
        if link is not None:
            yield site, Callee(program.functions[link.function], len(link.first))
        elif made is not None and isinstance(made.attr, Function):
            yield site, Callee(made.attr)


def calls_of(function: Function) -> Iterator[Site]:
    for place, op in ops_of(function):
        if op.name in CALLS and op.args and isinstance(op.attr, CallShape):
            yield Site(place, op.span, op.args[0], op.attr)
    for place, end in terminators_of(function):
        if isinstance(end, Call):
            yield Site(place, end.span, end.callee, end.shape)


def marked(program: Program, function: Function, links: Mapping[Var, Link]) -> Function:
    """A function whose calls that fit nothing say so."""
    nested = [marked(program, inner, {}) for inner in function.nested]
    if any(new is not inner for new, inner in zip(nested, function.nested, strict=True)):
        function = function.nesting(nested)
    unfit = {
        (site.callee, site.shape)
        for site, callee in sites_in(program, function, links)
        if not site.shape.unfit and callee.misfit(site.shape) is not None
    }
    if not unfit:
        return function
    return replace(function, blocks=tuple(saying(block, unfit) for block in function.blocks))


def saying(block: Block, unfit: set[tuple[Var, CallShape]]) -> Block:
    """A block whose calls are ``unfit`` where they are among those."""
    ops, end = said(block.ops, block.terminator, unfit)
    other = block.converted
    if other is not None:
        more, last = said(other.ops, other.terminator, unfit)
        other = replace(other, ops=more, terminator=last)
    return replace(block, ops=ops, terminator=end, converted=other)


def said(
    ops: Sequence[Op], end: Terminator, unfit: set[tuple[Var, CallShape]]
) -> tuple[tuple[Op, ...], Terminator]:
    def changed(op: Op) -> Op:
        is_unfit = op.name in CALLS and bool(op.args) and (op.args[0], op.attr) in unfit
        return replace(op, attr=replace(op.attr, unfit=True)) if is_unfit else op

    if isinstance(end, Call) and (end.callee, end.shape) in unfit:
        end = replace(end, shape=replace(end.shape, unfit=True))
    return tuple(map(changed, ops)), end
