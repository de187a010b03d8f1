"""``match``: patterns become tests that go on to the next case, and then the captures.

Python binds what a pattern captures once all of it matches, and before the guard; so captured
values wait in temporaries. What needs more than a comparison asks ``frontend.matching``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from autobatch.frontend import matching
from autobatch.frontend.calls import invoke, is_opaque_value
from autobatch.frontend.context import Context, StatementRule
from autobatch.ir.program import CallShape, Label, Op, UnpackShape, Var

Captures = dict[str, Var]


def _match(context: Context, node: ast.Match) -> None:
    subject = context.value(node.subject, context.temporary())
    done = context.label()
    for case in node.cases:
        other = context.label()
        captures: Captures = {}
        _pattern(context, case.pattern, subject, other, captures)
        for name, value in captures.items():
            context.store(name, value, case.pattern)
        if case.guard is not None:
            passed = context.label()
            context.condition(case.guard, passed, other)
            context.place(passed, case.guard)
        context.statements(case.body)
        context.jump(done, case.body[-1])
        context.place(other, case.pattern)
    context.place(done, node.cases[-1].pattern)


def _pattern(
    context: Context, node: ast.pattern, subject: Var, other: Label, captures: Captures
) -> None:
    """Tests ``subject``; goes to ``other`` where it does not match."""
    match node:
        case ast.MatchValue(value=value):
            same = context.emit("eq", (subject, context.value(value)), node)
            _require(context, same, other, node)
        case ast.MatchSingleton(value=value):
            same = context.emit("is", (subject, context.constant(value, node)), node)
            _require(context, same, other, node)
        case ast.MatchAs(pattern=inner, name=name):
            if inner is not None:
                _pattern(context, inner, subject, other, captures)
            if name is not None:
                captures[name] = subject
        case ast.MatchOr(patterns=patterns):
            _alternatives(context, patterns, subject, other, captures)
        case ast.MatchSequence():
            _sequence(context, node, subject, other, captures)
        case ast.MatchMapping():
            _mapping(context, node, subject, other, captures)
        case ast.MatchClass():
            _class(context, node, subject, other, captures)


def _require(context: Context, condition: Var, other: Label, node: ast.AST) -> None:
    matched = context.label()
    context.branch(condition, matched, other, node)
    context.place(matched, node)


def _alternatives(
    context: Context,
    patterns: Sequence[ast.pattern],
    subject: Var,
    other: Label,
    captures: Captures,
) -> None:
    """The first that matches; all capture the same names, into the same temporaries."""
    matched, shared = context.label(), Captures()
    for pattern in patterns:
        following = context.label() if pattern is not patterns[-1] else other
        own: Captures = {}
        _pattern(context, pattern, subject, following, own)
        for name, value in own.items():
            out = shared.setdefault(name, context.temporary())
            context.emit("copy", (value,), pattern, None, out)
        context.jump(matched, pattern)
        if pattern is not patterns[-1]:
            context.place(following, pattern)
    context.place(matched, patterns[-1])
    captures.update(shared)


def _sequence(
    context: Context, node: ast.MatchSequence, subject: Var, other: Label, captures: Captures
) -> None:
    items = node.patterns
    stars = [place for place, item in enumerate(items) if isinstance(item, ast.MatchStar)]
    length = _ask(context, node, matching.sequence_length, (subject,))
    wanted = context.constant(len(items) - len(stars), node)
    fits = context.emit("ge" if stars else "eq", (length, wanted), node)
    _require(context, fits, other, node)
    before = stars[0] if stars else len(items)
    shape = UnpackShape(before, bool(stars), len(items) - before - len(stars))
    parts = _unpack(context, node, subject, shape, len(items))
    for item, part in zip(items, parts, strict=True):
        if not isinstance(item, ast.MatchStar):
            _pattern(context, item, part, other, captures)
        elif item.name is not None:
            captures[item.name] = part


def _mapping(
    context: Context, node: ast.MatchMapping, subject: Var, other: Label, captures: Captures
) -> None:
    keys = context.emit("tuple", context.values(node.keys), node)
    values = _ask(context, node, matching.mapping_values, (subject, keys))
    _matched_parts(context, node, values, node.patterns, other, captures)
    if node.rest is not None:
        captures[node.rest] = _ask(context, node, matching.mapping_rest, (subject, keys))


def _class(
    context: Context, node: ast.MatchClass, subject: Var, other: Label, captures: Captures
) -> None:
    kind = context.value(node.cls)
    count = context.constant(len(node.patterns), node)
    names = [context.constant(name, node) for name in node.kwd_attrs]
    operands = (subject, kind, count, context.emit("tuple", names, node))
    values = _ask(context, node, matching.class_attributes, operands)
    patterns = [*node.patterns, *node.kwd_patterns]
    _matched_parts(context, node, values, patterns, other, captures)


def _matched_parts(
    context: Context,
    node: ast.pattern,
    values: Var,
    patterns: Sequence[ast.pattern],
    other: Label,
    captures: Captures,
) -> None:
    """Holds each of ``values``, a tuple or None, to its pattern."""
    nothing = context.constant(None, node)
    _require(context, context.emit("is_not", (values, nothing), node), other, node)
    parts = _unpack(context, node, values, UnpackShape(len(patterns)), len(patterns))
    for pattern, part in zip(patterns, parts, strict=True):
        _pattern(context, pattern, part, other, captures)


def _unpack(
    context: Context, node: ast.AST, value: Var, shape: UnpackShape, count: int
) -> list[Var]:
    parts = [context.temporary() for _ in range(count)]
    context.builder.emit(Op("unpack", tuple(parts), (value,), shape, context.span(node)))
    return parts


def _ask(
    context: Context, node: ast.AST, question: Callable[..., Any], operands: tuple[Var, ...]
) -> Var:
    """Calls a function of ``frontend.matching``."""
    name = question.__name__
    module = context.emit("import", (), node, (matching.__name__, 0, (name,)))
    callee = context.emit("import_from", (module,), node, name)
    shape = CallShape((False,) * len(operands))
    opaque = is_opaque_value(context, question)
    return invoke(context, node, opaque, callee, operands, shape, None)


STATEMENTS: dict[type[ast.stmt], StatementRule] = {ast.Match: _match}
