"""The generators that a run goes through, which may do something where they are left.

    def __iter__(self):
        with self.opened() as lines:
            yield from lines

Python ends a generator as soon as nobody holds it: where a loop is left, or a name is given up. A
batch holds what threads have together for as long as one of them needs it, and drops what a thread
does not read again, so what stands behind the ``yield`` would be done later, or sooner. One that
comes to its end does it in its place.

In: what operations on the host give. Out: a refusal, where a generator of the user's has been left
that has more to do, or one that such goes through (``for line in self.lines``, ``map(f, lines)``).
All are held until then, so that none does it meanwhile; those that have ended, or that nobody else
holds and that have nothing to do, are forgotten now and then.
"""

from __future__ import annotations

import ast
import builtins
import gc
import itertools
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import CO_GENERATOR
from sys import getrefcount
from types import CellType, CodeType, FunctionType, GeneratorType
from typing import Any, TypeAlias, TypeVar

from torch.nn import Module

from autobatch.batching.effects import is_library
from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.source import SourceUnavailable, Span, function_node

MOST = 1024
"""Iterators after which some are forgotten: a stream makes ever more."""
LAZY = frozenset(
    {
        *(GeneratorType, zip, map, filter, enumerate),
        *(each for each in vars(itertools).values() if isinstance(each, type)),
    }
)
"""Iterators that go through others, and hold them."""
BODIES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
ENDING = (ast.Try, ast.TryStar, ast.With, ast.AsyncWith)
ENDS: dict[CodeType, bool] = {}

ATOMS = (bool, int, float, complex, str, bytes, type(None))
"""Types of what cannot be written to, and holds nothing that can."""
T = TypeVar("T")
Generator: TypeAlias = "GeneratorType[Any, Any, Any]"


def is_generator(function: object) -> bool:
    """Whether it is a function whose call makes a generator."""
    return type(function) is FunctionType and bool(function.__code__.co_flags & CO_GENERATOR)


def named(function: FunctionType, args: Sequence[T], kwargs: Mapping[str, T]) -> dict[str, T]:
    """What parameters get by their names."""
    code = function.__code__
    return {**dict(zip(code.co_varnames[: code.co_argcount], args, strict=False)), **kwargs}


def defaults(function: FunctionType) -> dict[str, Any]:
    """The defaults of parameters."""
    code, given = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    last = names[len(names) - len(given) :]
    return {**dict(zip(last, given, strict=True)), **(function.__kwdefaults__ or {})}


@dataclass(frozen=True, slots=True)
class Given:
    """What a function that yields is given.

    ``kinds`` are the user's classes that have instances there, ``atoms`` the parameters that get
    what cannot be written to, ``called`` those that get a function or module that is known.
    ``is_data``: it is numbers and texts, in containers of Python's.
    """

    kinds: frozenset[type]
    atoms: frozenset[str]
    called: tuple[tuple[str, Hashable], ...]
    is_data: bool

    @classmethod
    def of(
        cls,
        function: FunctionType,
        kinds: Iterable[type],
        args: Sequence[T],
        kwargs: Mapping[str, T],
        is_atom: Callable[[T], bool],
        is_data: Callable[[T], bool],
        callee: Callable[[T], Hashable],
        held: Mapping[str, T],
        lasting: Container[str],
    ) -> Given:
        """``callee`` gives what all threads call, or None. ``held`` are captured variables, of
        which those that are ``lasting`` stay what they are.
        """
        given, left = named(function, args, kwargs), defaults(function)
        atoms = {name for name, value in left.items() if type(value) in ATOMS} - given.keys()
        atoms |= {name for name, value in {**given, **held}.items() if is_atom(value)}
        called = {k: known_callee(value) for k, value in left.items() if k not in given}
        stay = {name: value for name, value in held.items() if name in lasting}
        called |= {name: callee(value) for name, value in {**given, **stay}.items()}
        functions = ((name, each) for name, each in called.items() if each is not None)
        data = all(map(is_data, (*args, *kwargs.values(), *held.values())))
        return cls(frozenset(kinds), frozenset(atoms), tuple(functions), data)


def known_callee(value: object) -> Hashable:
    """A function or module, which may be looked into; None for all else."""
    return value if type(value) is FunctionType or isinstance(value, Module) else None


def is_data(value: object) -> bool:
    """Whether it is numbers and texts, in containers of Python's; not of more than a few."""
    waiting: list[Any] = [value]
    seen = 0
    while waiting and seen < MOST:
        each, seen = waiting.pop(), seen + 1
        if type(each) in (list, tuple, set, frozenset):
            waiting += each
        elif type(each) is dict:
            waiting += (*each, *each.values())
        elif type(each) not in (*ATOMS, range):
            return False
    return not waiting


@dataclass(slots=True, eq=False, repr=False)
class Going:
    """An iterator, and where a program has asked for it."""

    iterator: Any
    span: Span | None


@dataclass(slots=True, eq=False, repr=False)
class Generators:
    """Those of a run; ``most`` is how many it holds before it looks which to forget."""

    going: list[Going] = field(default_factory=list)
    most: int = field(default_factory=lambda: MOST)

    def see(self, results: Sequence[Any], span: Span | None) -> None:
        """See to the iterators among what a program has been given."""
        if LAZY.isdisjoint(map(type, results)):
            return
        for each in results:
            if type(each) in LAZY:
                self.add(each, span)

    def add(self, iterator: Any, span: Span | None) -> None:
        if len(self.going) >= self.most:
            self.going = [e for e in self.going if is_held(e) or has_more(e.iterator)]
            self.most = max(MOST, 2 * len(self.going))
        self.going.append(Going(iterator, span))

    def check(self) -> None:
        """Refuse what has been left with more to do; of all that a run has made, once it ended."""
        for each in self.going:
            found = has_more(each.iterator)
            if found is not None:
                raise left(found, each.span)


def is_held(going: Going) -> bool:
    """Whether more than a run's list hold an iterator, which may go on then."""
    return getrefcount(going.iterator) > 2


def has_more(iterator: Any) -> Generator | None:
    """A generator of the user's that does more where an iterator is left as it is."""
    return next((each for each in going_through(iterator) if is_within(each)), None)


def going_through(iterator: Any) -> Iterator[Generator]:
    """The generators that have begun and not ended, of an iterator and of those that it holds."""
    waiting, seen = [iterator], set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if type(each) is GeneratorType:
            if not each.gi_suspended:
                continue
            yield each
        waiting += [held for held in held_by(each) if type(held) in LAZY]


def held_by(iterator: Any) -> list[Any]:
    """What an iterator of Python's holds, itself or in a tuple.

    That of a ``zip_longest`` has no object in the place of an iterator that has ended, which ends
    the process where anything but the garbage collector looks at it.
    """
    found: list[Any] = []
    for held in gc.get_referents(iterator):
        found += gc.get_referents(held) if type(held) is tuple else [held]
    return found


def is_within(generator: Generator) -> bool:
    """Whether one of the user's yields within what is to do more; it may where there is no text."""
    code, frame = generator.gi_code, generator.gi_frame
    if code not in ENDS:
        cells = tuple(CellType() for _ in code.co_freevars)
        function = FunctionType(code, frame.f_globals if frame else {}, closure=cells)
        ENDS[code] = not is_library(function) and yields_within(function)
    return ENDS[code]


def yields_within(function: FunctionType) -> bool:
    if function.__name__ == "<genexpr>":  # has no statements
        return False
    try:
        node = function_node(function).node
    except SourceUnavailable:
        return True
    return any(
        isinstance(each, ENDING) and yields(each) and not lets_go(each, function)
        for each in within(node)
    )


def lets_go(node: ast.AST, function: FunctionType) -> bool:
    """Whether nothing of a statement runs where a generator is left in it: ``except KeyError``."""
    if not isinstance(node, ast.Try) or node.finalbody:
        return False
    names = [name for each in node.handlers for name in handled(each.type)]
    return all(misses(name, function) for name in names)


def handled(node: ast.expr | None) -> list[str]:
    """The names of what a handler is for; an empty one stands for what is no name."""
    if isinstance(node, ast.Tuple):
        return [name for each in node.elts for name in handled(each)]
    return [node.id if isinstance(node, ast.Name) else ""]


def misses(name: str, function: FunctionType) -> bool:
    """Whether a name is a module's, or Python's, of an exception that no ``GeneratorExit`` is."""
    code = function.__code__
    if name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
        return False
    found = function.__globals__.get(name, getattr(builtins, name, None))
    return isinstance(found, type) and not issubclass(GeneratorExit, found)


def yields(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Yield | ast.YieldFrom) for each in within(node))


def within(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in a node, but for functions in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, BODIES):
            yield child
            yield from within(child)


def left(generator: Generator, span: Span | None) -> UnsupportedError:
    return UnsupportedError(
        Diagnostic(
            f"A generator, {generator.__qualname__}, is left before its end.",
            span,
            "made here",
            (
                "it yields within a try or with statement. What that does at its end is to be "
                "done where the generator is left, and a batch goes on with other threads there.",
            ),
            ("take all that it gives: go through list(...) of it.",),
            "generator-left",
        )
    )
