"""Generator expressions that are kept: lazy, as in Python.

Before: ``g = (f(x) for x in xs if p(x))``. After: ``g`` is ``items(function, iter(xs))``, a
generator of the host's, with ``function = lambda x: (f(x),) if p(x) else ()``, which captures what
it reads. Several ``for`` nest: the function gives the generator of the inner ones.

What is taken at once where it stands (``sum(f(x) for x in xs)``, ``list(...)``, a ``for`` over it)
stays as it is: ``comprehensions`` makes loops of it. So does what a loop takes one by one, by
itself or within ``zip`` and ``enumerate``: see ``sources``. ``list(zip((f(x) for x in xs), ys))``
is made ``list(item for item in zip(...))``, and ``dict((k, v) for ...)`` ``{k: v for ...}``, whose
code is a generator's still. And so does what is kept under a name that is only taken so:
``g = (f(x) for x in xs)`` is then ``g = iter(xs)``, and ``sum(g)`` is ``sum(f(x) for x in g)``. The
tree that comes in is left alone, since others share it.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard, TypeVar

from autobatch.frontend import generating, mapping, searching
from autobatch.frontend.calls import plain, takes_all
from autobatch.frontend.comprehensions import numbered_items
from autobatch.frontend.context import Context, ExpressionRule
from autobatch.frontend.decided import Path, noting
from autobatch.frontend.functions import make_function
from autobatch.frontend.resolve import MISSING
from autobatch.frontend.sources import Pairs, Static, is_simple, taken_together, within
from autobatch.frontend.subset import KEPT_WALRUS, unsupported
from autobatch.ir.program import Var
from autobatch.source import FunctionNode

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


Made = TypeVar("Made", bound=ast.AST)


class Kept(ast.expr):
    """A generator over ``first``; of an item of that, ``function`` makes its own.

    ``nested``: or generators of them. ``sets``: a ``:=`` of which others read the name.
    """

    _fields = ("first", "function")
    first: ast.expr
    function: ast.Lambda
    nested: bool
    sets: ast.NamedExpr | None


class Iterated(ast.expr):
    """``iter(iterable)``, whatever that name means."""

    _fields = ("iterable",)
    iterable: ast.expr


def keep_lazy(
    node: FunctionNode, known: Mapping[str, object], decided: dict[Path, object]
) -> FunctionNode:
    """``node`` with each generator expression that is kept as ``Kept`` or ``Iterated``.

    ``known`` are what names from outside mean before anything runs; ``decided`` takes those that
    it goes by.
    """
    if not any(_is_generator(part) or mapping.names(part) for part in ast.walk(node)):
        return node
    bound = {name for part in ast.walk(node) for name in _binds(part)}

    def name_value(name: str) -> object:
        return MISSING if name in bound else known.get(name, MISSING)

    static = noting(name_value, known, decided)
    node = copy.deepcopy(node)
    kinds = searching.kinds_of(node, static, _binds)
    names = _names(node)
    parts = [*ast.walk(node)]
    taken = [each for part in parts for each in _taken_whole(part, static)]
    taken += [each for part in parts for each in searching.looked_through(part, kinds.get)]
    loops = [each.iter for part in parts if _is_generator(part) for each in part.generators]
    taken += [each for loop in loops for each in _one_by_one(loop, static)]
    mapping.Mapper(static, taken, _unused(names)).visit(node)
    for part in [*ast.walk(node)]:
        if isinstance(part, ast.FunctionDef):
            _resume_by_name(part, static)
    lazy: FunctionNode = _Keeper(static, names, kinds).visit(node)
    return lazy


def _unused(names: Counter[str]) -> str:
    """A name that nothing has, nor with one more underline."""
    item = "_item"
    while {item, f"{item}_"} & names.keys():
        item += "_"
    return item


def _binds(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef() | ast.ClassDef():
            yield node.name
        case ast.alias():
            yield node.asname or node.name.partition(".")[0]
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)) | ast.ExceptHandler(name=str(name)):
            yield name


def _taken_whole(node: ast.AST, static: Static) -> Iterator[ast.expr]:
    """The expressions in ``node`` whose items are taken where it stands."""
    match node:
        case ast.For(iter=taken):
            yield numbered_items(taken, static) or taken
            yield from _one_by_one(taken, static)
        case ast.ListComp() | ast.SetComp() | ast.DictComp():
            for each in node.generators:
                yield from _one_by_one(each.iter, static)
        case ast.Starred(value=taken):
            yield taken
        case ast.Assign(targets=[ast.Tuple() | ast.List()], value=taken):
            yield taken
        case ast.Call():
            yield from (each for each in node.args if takes_all(node, each, static(node.func)))


def _one_by_one(taken: ast.expr, static: Static) -> Iterator[ast.expr]:
    """The expressions in ``taken``, itself among them, whose items a loop over it takes."""
    for part in within(taken, static):
        if not isinstance(part, ast.GeneratorExp) or is_simple(part):
            yield part


def _gives_pairs(taken: ast.expr, static: Static) -> bool:
    parts = taken_together(taken, static) or ()
    return len(parts) == 2 or (isinstance(taken, ast.Call) and static(taken.func) is enumerate)


class _Keeper(ast.NodeTransformer):
    def __init__(self, static: Static, names: Counter[str], kinds: Mapping[str, type]) -> None:
        self.static = static
        self.kinds = kinds
        self.names = names
        self.item = _unused(names)
        self.whole: set[ast.AST] = set()

    def visit(self, node: ast.AST) -> Any:
        gone = searching.gone_through(node, self.kinds.get)
        if gone is not None:
            self.whole.update(part for part in ast.iter_child_nodes(gone) if _is_generator(part))
            return super().visit(_placed(gone, node))
        if isinstance(node, ast.Call):
            found = self.static(node.func)
            if found is dict and not node.keywords and (made := self.entries(node)) is not None:
                return self.visit(made)
            node.args = [
                self.in_a_loop(each) if takes_all(node, each, found) else each for each in node.args
            ]
        self.whole.update(_taken_whole(node, self.static))
        return super().visit(node)

    def in_a_loop(self, taken: ast.expr) -> ast.expr:
        """``(item for item in taken)``, if there are generator expressions in a ``zip``."""
        if not self.is_taken_apart(taken):
            return taken
        loop = ast.comprehension(ast.Name(self.item, ast.Store()), taken, [], 0)
        return _placed(ast.GeneratorExp(ast.Name(self.item, ast.Load()), [loop]), taken)

    def is_taken_apart(self, taken: ast.expr) -> bool:
        """Whether it is a ``zip`` or ``enumerate`` with generator expressions."""
        parts = _one_by_one(taken, self.static)
        return any(isinstance(part, ast.GeneratorExp) and part is not taken for part in parts)

    def entries(self, node: ast.Call) -> ast.DictComp | None:
        """``{k: v for ...}`` for ``dict((k, v) for ...)``, and for ``dict(zip(...))`` of two."""
        match node.args:
            case [ast.GeneratorExp(ast.Tuple([key, value]), generators)]:
                if isinstance(key, ast.Starred) or isinstance(value, ast.Starred):
                    return None
                return _placed(Pairs(key, value, generators), node)
            case [taken] if self.is_taken_apart(taken) and _gives_pairs(taken, self.static):
                names = (self.item, f"{self.item}_")
                pair = ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())
                key, value = (ast.Name(name, ast.Load()) for name in names)
                loop = ast.comprehension(pair, taken, [], 0)
                return _placed(ast.DictComp(key, value, [loop]), node)
        return None

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        if node in self.whole:
            for each in node.generators:
                self.whole.update(_one_by_one(each.iter, self.static))
            return self.generic_visit(node)  # type: ignore[return-value]
        inside = _names(node)
        outward = [
            each for each in _walruses(node) if self.names[each.target.id] > inside[each.target.id]
        ]
        self.generic_visit(node)
        kept = _kept(node, node.generators, self.item)
        kept.sets = outward[0] if outward else None
        return kept


def _names(node: ast.AST) -> Counter[str]:
    """How often each name stands in ``node``."""
    found: Counter[str] = Counter()
    for part in ast.walk(node):
        if isinstance(part, ast.Name | ast.arg):
            found[part.id if isinstance(part, ast.Name) else part.arg] += 1
    return found


def _walruses(node: ast.AST) -> Iterator[ast.NamedExpr]:
    """Each ``:=`` that sets a name of the scope around ``node``."""
    if isinstance(node, ast.NamedExpr):
        yield node
    if not isinstance(node, ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _walruses(child)


def _kept(node: ast.GeneratorExp, generators: list[ast.comprehension], item: str) -> Kept:
    """``item`` is a name that nothing else has."""
    generator, *inner = generators
    made: ast.expr = _kept(node, inner, item) if inner else node.elt
    body: ast.expr
    if isinstance(generator.target, ast.Name):
        item = generator.target.id
        body = ast.Tuple([made], ast.Load())
        for test in reversed(generator.ifs):
            body = ast.IfExp(test, body, ast.Tuple([], ast.Load()))
    else:
        one = ast.Tuple([ast.Name(item, ast.Load())], ast.Load())
        body = ast.ListComp(made, [ast.comprehension(generator.target, one, generator.ifs, 0)])
    function = ast.Lambda(_takes(item), body)
    kept = Kept(first=generator.iter, function=function)  # type: ignore[call-arg]
    kept.nested, kept.sets = bool(inner), None
    return _placed(kept, node)


def _is_generator(node: ast.AST) -> TypeGuard[ast.GeneratorExp]:
    return isinstance(node, ast.GeneratorExp)


def _placed(made: Made, node: ast.AST) -> Made:
    return ast.fix_missing_locations(ast.copy_location(made, node))


def _takes(item: str) -> ast.arguments:
    return ast.arguments([], [ast.arg(item)], None, [], [], None, [])


def _resume_by_name(function: ast.FunctionDef, static: Static) -> None:
    """Takes the items of a generator expression that has a name where the name is taken whole.

    The name is that of the iterator then. An item that raises ends a generator, but no iterator:
    nobody may go on after it.
    """
    parts = [*_own_parts(function)]
    if any(isinstance(part, ast.Try | ast.With) for part in parts):
        return
    stored = Counter(name for part in ast.walk(function) for name in _binds(part))
    named = {
        part.targets[0].id: part
        for part in parts
        if isinstance(part, ast.Assign)
        and isinstance(part.targets[0], ast.Name)
        and isinstance(part.value, ast.GeneratorExp)
        and len(part.targets) == len(part.value.generators) == stored[part.targets[0].id] == 1
    }
    reads = Counter(_reads(function))
    whole: dict[str, list[ast.Name]] = {name: [] for name in named}
    for part in parts:
        for taken in _taken_whole(part, static):
            if isinstance(taken, ast.Name) and taken.id in named:
                whole[taken.id].append(taken)
    uses = {
        use: named[name]
        for name, found in whole.items()
        if len(found) == reads[name]
        for use in found
    }
    _Resumer(uses).visit(function)
    for assigned in {id(each): each for each in uses.values()}.values():
        first = assigned.value.generators[0].iter  # type: ignore[attr-defined]
        made = Iterated(iterable=first)  # type: ignore[call-arg]
        assigned.value = _placed(made, first)


def _reads(function: ast.FunctionDef) -> Iterator[str]:
    for part in ast.walk(function):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            yield part.id


def _own_parts(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes within a function that have its names."""
    pending: list[ast.AST] = [*function.body]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (*_SCOPES, *_COMPREHENSIONS)):
            pending.extend(ast.iter_child_nodes(node))


class _Resumer(ast.NodeTransformer):
    """Puts generator expressions over the rest of their iterators in the place of their names."""

    def __init__(self, uses: dict[ast.Name, ast.Assign]) -> None:
        self.uses = uses

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node not in self.uses:
            return node
        made = copy.deepcopy(self.uses[node].value)
        assert isinstance(made, ast.GeneratorExp)
        made.generators[0].iter = node
        return made


def _make(context: Context, node: Kept, out: Var | None) -> Var:
    if node.sets is not None:
        raise unsupported(KEPT_WALRUS, context.span(node.sets))
    iterator = context.emit("iter", (context.value(node.first),), node.first)
    function = make_function(context, node.function, None)
    name = (generating.items_of_each if node.nested else generating.items).__name__
    module = context.emit("import", (), node, (generating.__name__, 0, (name,)))
    callee = context.emit("import_from", (module,), node, name)
    return context.emit("call", (callee, function, iterator), node, plain(2), out)


def _iterate(context: Context, node: Iterated, out: Var | None) -> Var:
    return context.emit("iter", (context.value(node.iterable),), node, None, out)


EXPRESSIONS: dict[type[ast.expr], ExpressionRule] = {Kept: _make, Iterated: _iterate}
