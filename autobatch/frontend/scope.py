"""Which variable a name means: locals, boxed and captured variables, and globals.

In: the syntax of one function, and the names that its enclosing functions offer.
Out: a ``Scope``. Comprehensions are loops of the function that holds them, but their targets are
names of their own (``comprehension_targets``), as are a nested function's.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from autobatch.ir.program import Param
from autobatch.source import FunctionNode

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BODIES = ("body", "orelse", "finalbody")
CLASS_CELL = "__class__"


@dataclass(frozen=True, slots=True)
class Scope:
    """The variables of one function.

    ``stored`` counts the places that assign a name; ``boxed`` are the locals that nested
    functions capture; ``free`` are captured from enclosing functions, ``shared`` declared
    ``global`` or ``nonlocal``. ``held`` are those of the boxed and free ones that nested functions
    assign, by ``nonlocal``: always lists of one element, so that only the function whose they are
    writes boxes, and what else may be is a write to a list.
    """

    params: tuple[Param, ...]
    stored: Counter[str]
    boxed: frozenset[str]
    free: tuple[str, ...]
    shared: frozenset[str]
    held: frozenset[str] = frozenset()

    def is_local(self, name: str) -> bool:
        if name in self.shared:
            return False
        return name in self.stored or any(param.name == name for param in self.params)

    def locals(self) -> list[str]:
        """Parameters first, then the other locals by name."""
        params = [param.name for param in self.params]
        others = [name for name in sorted(self.stored) if name not in params]
        return [name for name in [*params, *others] if name not in self.shared]


def function_scope(
    node: FunctionNode, offered: Iterable[str], offered_held: Iterable[str] = ()
) -> Scope:
    """The scope of ``node``; ``offered`` are the variables that it could capture, in order.

    ``offered_held`` are those of them that are held where ``node`` stands.
    """
    inner = _inside(node)
    stored = Counter(name for part in inner for name in _stored(part))
    shared = {name for part in inner for name in _declared(part)}
    params = parameters(node.args)
    local = (stored.keys() | {param.name for param in params}) - shared
    captured = {name for part in inner for name in captured_names(part)}
    used = references(node, inside=True) - local
    globals_ = {name for part in inner for name in _declared(part, (ast.Global,))}
    free = tuple(name for name in offered if name in used and name not in globals_)
    written = {name for part in inner for name in _written_inside(part)} & captured & local
    named = {param.name for param in params}
    own = {name for name in written if name in named or _is_set_first(inner, name)}
    return Scope(
        params,
        stored,
        frozenset(captured & local),
        free,
        frozenset(shared),
        frozenset({name for name in own if not _may_be_deleted(inner, name)})
        | (set(free) & set(offered_held)),
    )


def parameters(arguments: ast.arguments) -> tuple[Param, ...]:
    """The parameters as ``inspect`` would order them."""
    positional = [*arguments.posonlyargs, *arguments.args]
    plain = len(positional) - len(arguments.defaults)
    found = [
        Param(
            argument.arg,
            "positional_only" if index < len(arguments.posonlyargs) else "positional",
            index >= plain,
        )
        for index, argument in enumerate(positional)
    ]
    if arguments.vararg:
        found.append(Param(arguments.vararg.arg, "var_positional", False))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append(Param(argument.arg, "keyword_only", default is not None))
    if arguments.kwarg:
        found.append(Param(arguments.kwarg.arg, "var_keyword", False))
    return tuple(found)


def default_nodes(arguments: ast.arguments) -> list[ast.expr]:
    """Expressions of the defaults, in the order of the parameters that have one."""
    return [*arguments.defaults, *(node for node in arguments.kw_defaults if node is not None)]


def walrus_targets(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Names that ``:=`` assigns within these expressions, not counting nested statements."""
    found = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.stmt, ast.Lambda)):
            continue
        if isinstance(node, ast.NamedExpr):
            found.add(node.target.id)
        pending.extend(ast.iter_child_nodes(node))
    return frozenset(found)


def comprehension_targets(node: Comprehension) -> list[str]:
    """The names that the ``for`` parts of a comprehension bind, in order, each once."""
    found: dict[str, None] = {}
    for generator in node.generators:
        for part in ast.walk(generator.target):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                found[part.id] = None
    return list(found)


def _inside(node: FunctionNode) -> list[ast.AST]:
    return [node.body] if isinstance(node, ast.Lambda) else [*node.body]


def _outside(node: FunctionNode) -> list[ast.AST]:
    """The parts of a nested function that run where it is defined."""
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return [*decorators, *default_nodes(node.args)]


def _children(node: ast.AST) -> Iterable[ast.AST]:
    return _outside(node) if isinstance(node, _FUNCTIONS) else ast.iter_child_nodes(node)


def _stored(node: ast.AST) -> Iterator[str]:
    """Names that ``node`` assigns in its own function, once per place."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Import() | ast.ImportFrom():
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)) | ast.ExceptHandler(name=str(name)):
            yield name
    if isinstance(node, ast.ClassDef):
        return
    for child in _children(node):
        if isinstance(child, ast.comprehension):
            parts: list[ast.AST] = [child.iter, *child.ifs]
            yield from (name for part in parts for name in _stored(part))
        else:
            yield from _stored(child)


def _declared(
    node: ast.AST, kinds: tuple[type[ast.AST], ...] = (ast.Global, ast.Nonlocal)
) -> Iterator[str]:
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        yield from node.names if isinstance(node, kinds) else ()
    elif not isinstance(node, ast.ClassDef):
        for child in _children(node):
            yield from _declared(child, kinds)


def _written_inside(node: ast.AST) -> Iterator[str]:
    """Names of the scope around ``node`` that functions nested in it declare ``nonlocal``."""
    if isinstance(node, _FUNCTIONS):
        for part in _outside(node):
            yield from _written_inside(part)
        outer = {name for part in _inside(node) for name in _declared(part, (ast.Nonlocal,))}
        inner = {name for part in _inside(node) for name in _written_inside(part)}
        yield from outer | (inner - _own_names(node))
    else:
        for child in ast.iter_child_nodes(node):
            yield from _written_inside(child)


def _is_set_first(body: Sequence[ast.AST], name: str) -> bool:
    """Whether ``body`` sets ``name`` before it may call a nested function that assigns it.

    A ``def`` may stand before, if nothing until then names a function that has been defined.
    """
    defined: set[str] = set()
    is_written = False
    for node in body:
        if isinstance(node, ast.FunctionDef) and not _outside(node):
            if node.name == name:
                return True
            defined.add(node.name)
            is_written |= name in _written_inside(node)
        elif is_written and references(node) & defined:
            return False
        elif name in _surely_set(node):
            return True
        elif name in _written_inside(node) and not _is_set_first_within(node, name):
            return False
    return not is_written


def _surely_set(node: ast.AST) -> Iterator[str]:
    """Names that a statement sets, whatever happens, unless it raises."""
    match node:
        case ast.Name(id=name):
            yield name
        case ast.Assign(targets=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _surely_set(part)
        case ast.AnnAssign(target=part, value=ast.expr()) | ast.Starred(value=part):
            yield from _surely_set(part)
        case ast.Import() | ast.ImportFrom():
            yield from _stored(node)


def _is_set_first_within(node: ast.AST, name: str) -> bool:
    """The same of each of the bodies of a compound statement, and of nothing else in it."""
    if not isinstance(node, ast.If | ast.For | ast.While | ast.With | ast.Try):
        return False
    bodies = [part for part in (getattr(node, each, []) for each in _BODIES) if part]
    return all(_is_set_first(body, name) for body in bodies) and not any(
        name in _written_inside(child)
        for child in ast.iter_child_nodes(node)
        if not any(child is part for body in bodies for part in body)
    )


def _may_be_deleted(body: Sequence[ast.AST], name: str) -> bool:
    """Whether ``del`` or the end of an ``except`` takes a function's variable away."""
    for node in body:
        match node:
            case ast.Name(id=deleted, ctx=ast.Del()) if deleted == name:
                return True
            case ast.ExceptHandler(name=caught) if caught == name:
                return True
        inner = [] if isinstance(node, (*_FUNCTIONS, ast.ClassDef)) else ast.iter_child_nodes(node)
        if _may_be_deleted([*inner], name):
            return True
    return False


def references(node: ast.AST, *, inside: bool = False) -> set[str]:
    """Names that ``node`` takes from the scope that it stands in.

    With ``inside``, those that the body of the function ``node`` mentions, its own included.
    """
    if isinstance(node, ast.Name):
        implicit = {CLASS_CELL} if node.id == "super" else set()
        return {node.id} | implicit
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return set(node.names)
    if isinstance(node, _COMPREHENSIONS):
        return _comprehension_references(node)
    if not isinstance(node, _FUNCTIONS):
        return _union(map(references, ast.iter_child_nodes(node)))
    body = _union(map(references, _inside(node)))
    if inside:
        return body
    return _union(map(references, _outside(node))) | (body - _own_names(node))


def _own_names(node: FunctionNode) -> set[str]:
    """Names that never reach out of a nested function to an enclosing one."""
    stored = {name for part in _inside(node) for name in _stored(part)}
    outer = {name for part in _inside(node) for name in _declared(part, (ast.Nonlocal,))}
    module = {name for part in _inside(node) for name in _declared(part, (ast.Global,))}
    return ((stored | {param.name for param in parameters(node.args)}) - outer) | module


def _comprehension_references(node: Comprehension) -> set[str]:
    first = references(node.generators[0].iter)
    rest = [part for part in ast.iter_child_nodes(node) if part is not node.generators[0]]
    rest += [node.generators[0].target, *node.generators[0].ifs]
    return first | (_union(map(references, rest)) - set(comprehension_targets(node)))


def captured_names(node: ast.AST) -> set[str]:
    """Names of the scope around ``node`` that functions nested in it capture."""
    if isinstance(node, _FUNCTIONS):
        outside = _union(map(captured_names, _outside(node)))
        return outside | (_union(map(references, _inside(node))) - _own_names(node))
    inner = _union(map(captured_names, ast.iter_child_nodes(node)))
    if isinstance(node, _COMPREHENSIONS):
        first = captured_names(node.generators[0].iter)
        return first | (inner - set(comprehension_targets(node)))
    return inner


def _union(sets: Iterable[set[str]]) -> set[str]:
    return set().union(*sets)
