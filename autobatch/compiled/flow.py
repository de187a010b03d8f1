"""Program functions as LLVM functions: one for each function and the types of its arguments.

A block becomes one LLVM block for each combination of types that its live variables come with
(basic block versioning: Chevalier-Boisvert and Feeley, *Simple and effective type check removal
through lazy basic block versioning*, 2015), so a name may hold an int on one way and a float on
another. A function may return values of several types: what follows a call of it goes on for each.
A call waits until what its callee returns is known, and is written again when that is more; a
function all of whose ways call itself first is taken to return nothing. Paths that end in a
``raise`` give the thread up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from autobatch.compiled import list_texts
from autobatch.compiled.blocks import BlockWriter
from autobatch.compiled.calling import Waits
from autobatch.compiled.closures import settled
from autobatch.compiled.derivatives import Derived
from autobatch.compiled.listing import Lists, grows, holds
from autobatch.compiled.names import Names
from autobatch.compiled.python_draws import is_text
from autobatch.compiled.types import Layout, Made, Refused, Structure, Type, parts_in, refuse
from autobatch.compiled.versions import (
    Env,
    Key,
    Version,
    assigned_once,
    constants,
    returning,
    without_failing,
    written_in,
)
from autobatch.ir.program import Function
from autobatch.vm.code import Code

MOST_BLOCKS = 200
"""Blocks of a function, one for each combination of types."""
MOST_FUNCTIONS = 50
MOST_RESULTS = 4
"""Types that a function returns."""
MOST_LENGTHS = 6
"""Of the lists that a variable holds, where their parts are known."""


@dataclass(slots=True, eq=False, repr=False)
class Unit:
    """All functions of one compilation, and what is left to write.

    ``grown`` are the places that make lists in memory (``listing``).
    """

    names: Names
    seeded: bool = False
    versions: dict[Any, Version] = field(default_factory=dict)
    layouts: dict[type, Layout] = field(default_factory=dict)
    derived: dict[Any, Derived] = field(default_factory=dict)
    within: dict[tuple[int, FunctionType], Made] = field(default_factory=dict)
    todo: deque[tuple[Version, Key]] = field(default_factory=deque)
    grown: frozenset[int | None] | None = None
    lists: Lists = field(init=False)

    def __post_init__(self) -> None:
        self.lists = Lists(self.write_again, self.grown)

    def version(
        self,
        code: Code,
        function: FunctionType,
        env: dict[str, Type],
        is_main: bool = False,
        within: Made | None = None,
        site: int = 0,
    ) -> Version:
        """The function for arguments of these types; its first block is to be written.

        Or one ``within`` it. What makes lists for Python's functions is written for each ``site``.
        """
        params = tuple(sorted(env.items()))
        site = site if function.__module__ == list_texts.__name__ else 0
        found = self.versions.get((within or function, params, site))
        if found is None:
            every = [each for own, each, _ in self.versions if own is (within or function)]
            self.grow_if_many(params, every)
            if len(self.versions) >= MOST_FUNCTIONS:
                refuse("functions are called with too many combinations of types")
            lowered = code.function
            fixed, ends = constants(lowered), (returning(lowered), without_failing(lowered))
            name = f"f{len(self.versions)}"
            sets = written_in(lowered), assigned_once(lowered), settled(lowered)
            found = Version(name, code, function, params, is_main, fixed, *ends, *sets)
            w = found.writer
            w.seeded, w.lists, w.is_main = self.seeded, self.lists, is_main
            w.of_library = is_text(function)
            found.site = site
            self.versions[within or function, params, site] = found
            self.reach(found, (0, params))
        return found

    def reach(self, version: Version, key: Key) -> str:
        """The label of a block, which is to be written if it is new."""
        label = version.labels.get(key)
        if label is None:
            self.grow_if_many(key[1], [each for pc, each in version.labels if pc == key[0]])
            if len(version.labels) >= MOST_BLOCKS:
                refuse("a function's variables come with too many combinations of types")
            label = version.labels[key] = f"b{len(version.labels)}"
            self.todo.append((version, key))
        return label

    def grow_if_many(self, env: Env, others: Sequence[Env]) -> None:
        """Have a variable's list in memory that comes with ever more parts (``Grows``)."""
        if len(others) < MOST_LENGTHS:
            return
        for name, type_ in env:
            if not isinstance(type_, Structure) or type_.kind is not list or not holds(type_):
                continue
            if type_.site is not None or self.grown is None:
                lengths = {len(parts_in(dict(other).get(name))) for other in others}
                if len(lengths) >= MOST_LENGTHS:
                    raise grows(type_, self.grown)

    def made_of(self, code: Function, home: FunctionType) -> Made:
        """A function that stands in another, told by its identity."""
        found = self.within.get((id(code), home))
        if found is None:
            found = self.within[id(code), home] = Made(code, home)
        return found

    def write_all(self) -> None:
        """Write what is to be written; the first refusal goes after any list that ``Grows``.

        What is refused of a list whose parts are known may be none of one in memory.
        """
        refused: Refused | None = None
        left = MOST_BLOCKS
        while self.todo and left:
            version, key = self.todo.popleft()
            try:
                with suppress(Waits):  # until it is known what its callee returns
                    version.texts[key] = BlockWriter(self, version, key).written()
            except Refused as error:
                refused = refused or error
            left -= refused is not None
        if refused is not None:
            raise refused

    def write_again(self, places: Iterable[tuple[Version, Key]]) -> None:
        self.todo.extend(places)

    def layout(self, kind: type) -> Layout:
        """How objects of a class lie in memory."""
        found = self.layouts.setdefault(kind, Layout(kind))
        return found

    def derivative(self, make: Any, function: Any, options: dict[str, Any]) -> Derived:
        """What a transform makes of a function: one for all that writes it."""
        key = make, id(function), tuple(options.items())
        found = self.derived.get(key)
        if found is None:
            found = self.derived[key] = Derived(make(function, **options), function)
        return found

    def returns(self, version: Version, type_: Type) -> None:
        """What a function returns, by one of its ways: its callers may get that, too."""
        if type_ in version.results:
            return
        if len(version.results) == MOST_RESULTS:
            told = " or ".join(map(str, (*version.results, type_)))
            refuse(f"{version.lowered.name} returns {told}")
        version.results.append(type_)
        self.todo.extend(version.callers)
        version.callers = {}
