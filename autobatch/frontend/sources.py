"""What a loop takes its items from, one by one, each made where the loop takes it.

In: the iterable of a ``for``. Out: a ``Source``. An iterator gives its items by ``next``. Generator
expressions that a loop goes through, by themselves or within ``zip`` and ``enumerate``, are no
generators then, but part of the loop: ``for a, b in zip((f(x) for x in xs), ys)`` takes an ``x``,
computes ``f(x)``, and takes one of ``ys``, if there still is one, as Python does.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from autobatch.frontend.context import Context, Inner
from autobatch.frontend.scope import Comprehension, captured_names, comprehension_targets
from autobatch.frontend.targets import assign
from autobatch.ir.program import CallShape, Label, Op, Raise, Var

Static = Callable[[ast.expr], object]


class Pairs(ast.DictComp):
    """``dict((key, value) for …)``."""


GENERATORS = (ast.GeneratorExp, Pairs)
SCOPES: tuple[type[ast.expr], ...] = (
    GENERATORS
    if sys.version_info >= (3, 12)
    else (ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)
)
"""Which are scopes of their own in the Python that runs (PEP 709), as an unbound name tells."""


class Source(Protocol):
    """``begin`` makes the iterator; what ``zip`` and ``enumerate`` take from has begun with them.

    ``take`` lowers the next item, at ``node``, and goes to ``done`` where there is none.
    """

    def begin(self, context: Context) -> None: ...

    def take(self, context: Context, node: ast.AST, done: Label) -> Var: ...


def begun(context: Context, node: ast.expr) -> Source:
    """The source of a loop over ``node``, which begins here."""
    source = source_of(context, node)
    source.begin(context)
    return source


def source_of(context: Context, node: ast.expr) -> Source:
    if isinstance(node, ast.GeneratorExp) and is_simple(node):
        return Generated.of(context, node)
    parts = taken_together(node, context.static)
    if parts is None or not is_taken_apart(node, context.static):
        return Iterated(node, context.value(node))
    assert isinstance(node, ast.Call)
    sources = tuple([source_of(context, part) for part in parts])
    numbers = context.static(node.func) is enumerate
    number = context.constant(first_number(node), node) if numbers else None
    for source in sources:
        source.begin(context)
    return Together(node, sources, number, strict=number is None and bool(is_strict(node)))


def taken_together(node: ast.expr, static: Static) -> list[ast.expr] | None:
    """What a call of ``zip``, or of ``enumerate`` from a known number, goes through."""
    match node:
        case ast.Call(func, [_, *_] as args) if static(func) is zip:
            starred = any(isinstance(arg, ast.Starred) for arg in args)
            return None if starred or is_strict(node) is None else args
        case ast.Call(func, [items, *_]) if static(func) is enumerate:
            return None if first_number(node) is None else [items]
    return None


def first_number(node: ast.expr) -> int | None:
    """What a call of ``enumerate`` begins to count at; None if that is not written there."""
    match node:
        case ast.Call(args=[items], keywords=[]):
            return None if isinstance(items, ast.Starred) else 0
        case ast.Call(args=[_, ast.Constant(value=start)], keywords=[]):
            pass
        case ast.Call(args=[_], keywords=[ast.keyword("start", ast.Constant(value=start))]):
            pass
        case _:
            return None
    return start if type(start) is int else None


def is_strict(node: ast.Call) -> bool | None:
    """Whether a call of ``zip`` says ``strict=True``; None if that is not written there."""
    match node.keywords:
        case []:
            return False
        case [ast.keyword("strict", ast.Constant(value=bool(strict)))]:
            return strict
    return None


def within(node: ast.expr, static: Static) -> Iterator[ast.expr]:
    """``node``, and those in it whose items are taken where its own are, if a loop takes these."""
    yield node
    for part in taken_together(node, static) or ():
        yield from within(part, static)


def is_simple(node: ast.expr) -> bool:
    """Whether it is a generator expression of one ``for``: its items can be made anywhere."""
    return isinstance(node, ast.GeneratorExp) and len(node.generators) == 1


def is_taken_apart(node: ast.expr, static: Static) -> bool:
    """Whether a loop over ``node`` makes the items of generator expressions that are in it."""
    return any(map(is_simple, within(node, static)))


@dataclass(slots=True, eq=False, repr=False)
class Iterated:
    """Any iterable."""

    node: ast.expr
    variable: Var

    def begin(self, context: Context) -> None:
        self.variable = context.emit("iter", (self.variable,), self.node)

    def take(self, context: Context, node: ast.AST, done: Label) -> Var:
        item, more, body = context.temporary(), context.temporary(), context.label()
        context.builder.emit(Op("next", (item, more), (self.variable,), None, context.span(node)))
        context.branch(more, body, done, node)
        context.place(body, node)
        return item


@dataclass(frozen=True, slots=True)
class Together:
    """``zip`` of sources, or ``enumerate`` of one, with the variable of its ``number``."""

    node: ast.expr
    sources: tuple[Source, ...]
    number: Var | None
    strict: bool

    def begin(self, context: Context) -> None:
        pass

    def take(self, context: Context, node: ast.AST, done: Label) -> Var:
        ends = [context.label() if self.strict else done for _ in self.sources]
        items = [
            source.take(context, node, end) for source, end in zip(self.sources, ends, strict=True)
        ]
        if self.strict:
            going_on = context.label()
            context.jump(going_on, node)
            self.ended(context, node, ends, done)
            context.place(going_on, node)
        if self.number is None:
            return context.emit("tuple", items, self.node)
        item = context.emit("tuple", (self.number, *items), self.node)
        one = context.constant(1, self.node)
        context.emit("add", (self.number, one), self.node, None, self.number)
        return item

    def ended(self, context: Context, node: ast.AST, ends: Sequence[Label], done: Label) -> None:
        """Where one of several has no more items: all must have ended with the first."""
        first, *others = ends
        for place, end in enumerate(others, 1):
            context.place(end, node)
            self.uneven(context, place, "shorter")
        context.place(first, node)
        for place, source in enumerate(self.sources[1:], 1):
            also = context.label()
            source.take(context, node, also)
            self.uneven(context, place, "longer")
            context.place(also, node)
        context.jump(done, node)

    def uneven(self, context: Context, place: int, how: str) -> None:
        """Raises what ``zip(strict=True)`` does of the argument at ``place``."""
        before = "argument 1" if place == 1 else f"arguments 1-{place}"
        message = context.constant(f"zip() argument {place + 1} is {how} than {before}", self.node)
        kind = context.emit("global", (), self.node, ValueError.__name__)
        error = context.emit("call", (kind, message), self.node, CallShape((False,)))
        context.builder.end(Raise(error, None, context.span(self.node)))


@dataclass(frozen=True, slots=True)
class Generated:
    """A generator expression of one ``for``; ``around`` are the names where it stands."""

    node: ast.GeneratorExp
    first: Source
    around: tuple[Inner, ...]
    own: Inner

    @classmethod
    def of(cls, context: Context, node: ast.GeneratorExp) -> Generated:
        first = begun(context, node.generators[0].iter)
        return cls(node, first, tuple(context.within), own_names(context, node))

    def begin(self, context: Context) -> None:
        pass

    def take(self, context: Context, node: ast.AST, done: Label) -> Var:
        generator = self.node.generators[0]
        outside, context.within = context.within, [*self.around, self.own]
        again = context.label()
        if generator.ifs:
            context.place(again, generator.target)
        assign(context, generator.target, self.first.take(context, generator.target, done))
        for test in generator.ifs:
            passed = context.label()
            context.condition(test, passed, again)
            context.place(passed, test)
        item = context.value(self.node.elt)
        context.within = outside
        return item


def own_names(context: Context, node: Comprehension) -> Inner:
    """Names for the targets of ``node``, and boxes to those that are captured."""
    inside: list[ast.AST] = [
        part for part in ast.iter_child_nodes(node) if part is not node.generators[0]
    ]
    inside += node.generators[0].ifs
    captured = {name for part in inside for name in captured_names(part)}
    names = {}
    for name in comprehension_targets(node):
        context.counter += 1
        names[name] = f"{name}.{context.counter}"
        if name in captured:
            context.emit("box", (), node, None, names[name])
            context.boxes.add(names[name])
    return Inner(names, isinstance(node, SCOPES), isinstance(node, GENERATORS))
