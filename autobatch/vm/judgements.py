"""Which code a call runs under fork-join, judged once and then taken to hold for a while.

In: a lowered function and the object that is called. Out: its code with calls forked. A judgement
rests on what names mean (``purity``), and to look them all up again costs as much as a small block
execution. Invariant: nothing but code that batched execution does not see into can change what
they mean while a run is at work, so a judgement is kept until such code may have run: a visible
effect, an admission. Where listeners or a policy of the user's run in between, none is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

from autobatch.batching.operations import Scope
from autobatch.ir.program import Var
from autobatch.values.cells import Cell
from autobatch.vm.code import Code
from autobatch.vm.library import Library
from autobatch.vm.purity import Names


@dataclass(frozen=True, slots=True)
class Entrance:
    """What a call of a function begins with that gives each of its ``params`` in their order."""

    code: Code
    scope: Scope
    params: tuple[Var, ...]


@dataclass(slots=True, eq=False, repr=False)
class Judgements:
    """The judgements of a run, which may ``inline`` calls. ``kept`` holds on to what its keys
    identify; ``times`` is how often all of them have been given up. ``reads`` are attributes of
    what all threads share, each with that, by the operation that reads it and the identity;
    ``entrances`` what calls of functions begin with.
    """

    library: Library
    keep: bool = True
    inline: bool = True
    kept: dict[tuple[int, int, int, bool], tuple[Code, object, object, Code]] = field(
        default_factory=dict
    )
    times: int = 0
    reads: dict[tuple[int, int], tuple[object, Cell]] = field(default_factory=dict)
    entrances: dict[FunctionType, Entrance | None] = field(default_factory=dict)

    def entrance(self, function: FunctionType, find: Callable[[], Entrance | None]) -> Any:
        """What is known of entering a function, found out by ``find``; None if nothing is."""
        try:
            return self.entrances[function]
        except KeyError:
            found = find()
            if self.keep:
                self.entrances[function] = found
            return found

    def with_forks(
        self,
        code: Code,
        scope: object,
        receiver: object,
        seeded: bool,
        names: Callable[[], Names],
    ) -> Code:
        """``code`` with its calls forked, if ``seeded`` those that draw, too.

        ``scope`` is the object that gives ``names`` meaning.
        """
        key = (id(code), id(scope), id(receiver), seeded)
        known = self.kept.get(key)
        if known is not None:
            return known[3]
        made = self.library.with_forks(code, names(), seeded, self.inline)
        if self.keep:
            self.kept[key] = (code, scope, receiver, made)
        return made

    def without_inlining(self) -> Judgements:
        """For a frame that is at work while others' code runs: between two admissions."""
        return replace(self, inline=False, kept={}, reads={}, entrances={})

    def forget(self) -> None:
        """Names may mean something else from now on."""
        self.kept.clear()
        self.reads.clear()
        self.entrances.clear()
        self.times += 1
