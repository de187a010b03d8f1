"""The state of one function's lowering, and the ways in which rules use it.

Rules are functions ``rule(context, node, …)`` in tables by node class; they reach each other only
through ``Context.value``, ``condition`` and ``statement``, so that no module imports in a circle.

Invariant of ``value(node, out)``: the last operation on every path assigns ``out`` (a fresh
temporary when None is given), and no earlier one does; so ``n = n + 1`` needs no copy. Without
``out`` the result may be a variable itself, which later operations may reassign: an operand that
must keep its value while a walrus reassigns its name is copied first.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from autobatch.frontend.builder import Builder
from autobatch.frontend.decided import Path, noting
from autobatch.frontend.items import Drawn
from autobatch.frontend.resolve import MISSING, Resolver, static_attribute
from autobatch.frontend.scope import Scope, walrus_targets
from autobatch.frontend.subset import (
    GLOBAL_WRITE,
    NONLOCAL_UNSET,
    NONLOCAL_WRITE,
    Refusal,
    refuse_node,
    unsupported,
)
from autobatch.ir.program import Branch, Function, Jump, Label, Op, Var
from autobatch.source import FunctionSource, Span

RESULT: Var = "%return"

ExpressionRule = Callable[["Context", Any, Var | None], Var]
ConditionRule = Callable[["Context", Any, Label, Label], None]
StatementRule = Callable[["Context", Any], None]
BodyRule = Callable[["Context"], Function]


@dataclass(frozen=True, slots=True)
class Rules:
    """The tables of the lowering; ``function`` lowers the body of a context's own function."""

    expressions: Mapping[type[ast.expr], ExpressionRule]
    conditions: Mapping[type[ast.expr], ConditionRule]
    statements: Mapping[type[ast.stmt], StatementRule]
    function: BodyRule


@dataclass(slots=True)
class Root:
    """What a function and those nested in it share; ``names`` are its globals and builtins.

    ``outside`` are these and what it has captured; ``decided`` is what it goes by of them.
    ``methods`` says of names, as they are asked for, whether a class in sight has a method of that
    name that is a program.
    """

    resolver: Resolver
    rules: Rules
    names: Mapping[str, object]
    outside: Mapping[str, object]
    decided: dict[Path, object] = field(default_factory=dict)
    callees: list[object] = field(default_factory=list)
    methods: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Loop:
    """Where ``continue`` and ``break`` go; ``depth`` is the number of cleanups around it."""

    head: Label
    done: Label
    depth: int


@dataclass(slots=True)
class Cleanup:
    """A statement that has something to do on the ways out of it (``finally``).

    ``ways`` are those that lead out of what it stands around: where each begins, by where it goes
    and out of how many other such statements.
    """

    ways: dict[tuple[Label, int], Label] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inner:
    """A comprehension at work: its targets' variables, and whether it is a scope of its own.

    ``generates``: it is a generator expression.
    """

    names: Mapping[str, Var]
    is_scope: bool
    generates: bool


@dataclass(slots=True)
class Context:
    """One function's lowering.

    ``known`` are the variables whose value exists already; the names in ``careful`` may have none
    where they are read, so that reading one is an operation, which raises in its turn. ``drawn``
    says which objects the names of loops may stand for.
    ``handling`` are the exceptions that are being handled, ``within`` the comprehensions at work,
    the innermost last, ``managers`` the expressions that give what `with` statements enter.
    """

    root: Root
    source: FunctionSource
    name: str
    scope: Scope
    known: Mapping[str, object]
    careful: frozenset[Var] = frozenset()
    drawn: Drawn = field(default_factory=dict)
    builder: Builder = field(default_factory=Builder)
    nested: list[Function] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    cleanups: list[Cleanup] = field(default_factory=list)
    handling: list[Var] = field(default_factory=list)
    within: list[Inner] = field(default_factory=list)
    managers: set[ast.AST] = field(default_factory=set)
    boxes: set[Var] = field(default_factory=set)
    displays: list[tuple[str, ...]] = field(default_factory=list)
    walrus: frozenset[str] = frozenset()
    exit: Label = -1
    counter: int = 0

    # Dispatch

    def value(self, node: ast.expr, out: Var | None = None) -> Var:
        """Lowers an expression; gives the variable that holds its value."""
        rule = self.root.rules.expressions.get(type(node))
        if rule is None:
            raise refuse_node(node, self.span(node))
        return rule(self, node, out)

    def values(self, nodes: Sequence[ast.expr]) -> tuple[Var, ...]:
        return tuple([self.value(node) for node in nodes])

    def condition(self, node: ast.expr, then: Label, otherwise: Label) -> None:
        """Lowers an expression that is only asked whether it is true; ends the block."""
        rule = self.root.rules.conditions.get(type(node))
        if rule is not None:
            rule(self, node, then, otherwise)
        else:
            self.branch(self.value(node), then, otherwise, node)

    def statements(self, nodes: Sequence[ast.stmt]) -> None:
        for node in nodes:
            rule = self.root.rules.statements.get(type(node))
            if rule is None:
                raise refuse_node(node, self.span(node))
            outer, self.walrus = self.walrus, walrus_targets(ast.iter_child_nodes(node))
            rule(self, node)
            self.walrus = outer

    # Emission

    def span(self, node: ast.AST) -> Span:
        span = self.source.span(node)
        generated = any(inner.generates for inner in self.within)
        return replace(span, generated=True) if generated else span

    def temporary(self) -> Var:
        self.counter += 1
        return f"%{self.counter}"

    def emit(
        self,
        name: str,
        args: Sequence[Var],
        node: ast.AST,
        attr: Any = None,
        out: Var | None = None,
    ) -> Var:
        """Adds an operation with one result, and gives the variable that holds it."""
        result = self.temporary() if out is None else out
        self.builder.emit(Op(name, (result,), tuple(args), attr, self.span(node)))
        return result

    def effect(self, name: str, args: Sequence[Var], node: ast.AST, attr: Any = None) -> None:
        """Adds an operation without a result."""
        self.builder.emit(Op(name, (), tuple(args), attr, self.span(node)))

    def constant(self, value: object, node: ast.AST, out: Var | None = None) -> Var:
        return self.emit("const", (), node, value, out)

    def deliver(self, value: Var, node: ast.AST, out: Var | None) -> Var:
        """``value``, copied to ``out`` if that is asked for."""
        return value if out is None else self.emit("copy", (value,), node, None, out)

    def label(self) -> Label:
        return self.builder.label()

    def place(self, label: Label, node: ast.AST) -> None:
        self.builder.place(label, self.span(node))

    def jump(self, target: Label, node: ast.AST) -> None:
        self.builder.end(Jump(target, self.span(node)))

    def branch(self, condition: Var, then: Label, otherwise: Label, node: ast.AST) -> None:
        self.builder.end(Branch(condition, then, otherwise, self.span(node)))

    @contextmanager
    def loop(self, head: Label, done: Label) -> Iterator[None]:
        self.loops.append(Loop(head, done, len(self.cleanups)))
        yield
        self.loops.pop()

    def leave(self, target: Label, depth: int, node: ast.AST) -> None:
        """On to ``target``, out of all statements but ``depth`` that have something to clean up."""
        if len(self.cleanups) > depth:
            ways = self.cleanups[-1].ways
            self.jump(ways.setdefault((target, depth), self.label()), node)
        else:
            self.jump(target, node)

    # Names

    def local(self, name: str) -> Var | None:
        """The variable of a local name or comprehension target, None for names from outside."""
        for inner in reversed(self.within):
            if name in inner.names:
                return inner.names[name]
        return name if self.scope.is_local(name) else None

    def is_outer(self, name: str) -> bool:
        """Whether a variable belongs to a scope around the comprehension at work."""
        for inner in reversed(self.within):
            if name in inner.names:
                return False
            if inner.is_scope:
                return True
        return False

    def is_held(self, name: str) -> bool:
        """Whether a name is that of a variable that nested functions assign."""
        return name in self.scope.held and self.local(name) in (None, name)

    def load(self, name: str, node: ast.AST, out: Var | None = None) -> Var:
        if self.is_held(name):
            place = (self.load_variable(name, node), self.constant(0, node))
            return self.emit("getitem", place, node, None, out)
        return self.load_variable(name, node, out)

    def load_variable(self, name: str, node: ast.AST, out: Var | None = None) -> Var:
        variable = self.local(name)
        if variable is None:
            return self.emit(
                "load_free" if name in self.scope.free else "global", (), node, name, out
            )
        if variable in self.boxes:
            load = "load_outer_box" if self.is_outer(name) else "load_box"
            return self.emit(load, (variable,), node, name, out)
        if variable in self.careful and self.is_outer(name):
            return self.emit("load_outer", (variable,), node, name, out)
        if out is None and (name in self.walrus or variable in self.careful):
            out = self.temporary()
        return self.deliver(variable, node, out)

    def store(self, name: str, value: Var, node: ast.AST) -> None:
        if self.is_held(name):
            if name in self.scope.shared:
                place = (self.load_variable(name, node), self.constant(0, node))
                self.effect("setitem", (*place, value), node)
                return
            value = self.emit("list", (value,), node)
        variable = self.target(name, node)
        if variable in self.boxes:
            self.effect("store_box", (variable, value), node)
        else:
            self.emit("copy", (value,), node, None, variable)

    def forget(self, name: str, node: ast.AST) -> None:
        """``del name``, whether or not it has a value still."""
        self.store(name, self.constant(None, node), node)
        variable = self.target(name, node)
        if variable in self.boxes:
            self.effect("clear_box", (variable,), node, name)
        else:
            self.effect("delete", (), node, variable)

    def target(self, name: str, node: ast.AST) -> Var:
        """The variable that assigning ``name`` sets; refuses one that others share."""
        variable = self.local(name)
        if variable is None:
            raise unsupported(self.refusal(name), self.span(node))
        return variable

    def refusal(self, name: str) -> Refusal:
        """Why a name that is declared ``global`` or ``nonlocal`` may not be assigned."""
        if name not in self.scope.free:
            return GLOBAL_WRITE
        return NONLOCAL_WRITE if name in self.known else NONLOCAL_UNSET

    def box(self, name: str, node: ast.AST) -> Var:
        """The box of a captured variable, to hand on to a nested function."""
        variable = self.local(name)
        return variable if variable is not None else self.emit("free_box", (), node, name)

    # What is known before anything runs

    def static(self, node: ast.expr) -> object:
        """The object that ``node`` will give, ``MISSING`` if that cannot be told."""
        return noting(self.static_name, self.root.outside, self.root.decided)(node)

    def static_name(self, name: str) -> object:
        if any(name in inner.names for inner in self.within) or name in self.scope.held:
            return MISSING
        if name in self.known:
            return self.known[name]
        if self.scope.is_local(name) or name in self.scope.free:
            return MISSING
        return self.root.names.get(name, MISSING)

    def imported(self, name: str, module: str, attribute: str | None = None) -> None:
        """Notes what an import binds to the local ``name``, if nothing else assigns it."""
        value: object = sys.modules.get(module, MISSING)
        if attribute is not None and value is not MISSING:
            value = static_attribute(value, attribute)
        if self.scope.stored[name] == 1 and value is not MISSING:
            self.known = {**self.known, name: value}
