"""A function whose variables are told apart where one name is used for several things.

In: ``rows = rows.tolist()``, in which a tensor and a list have one name. Out: the same function
with a name for each *web*, the assignments that come to common reads; what a parameter is called
at the start stays its name. For proofs, which look at variables without regard to order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from autobatch.ir.dataflow import (
    Analysis,
    op_writes,
    solve,
    terminator_reads,
    terminator_writes,
    with_reads,
)
from autobatch.ir.program import Block, Call, Function, Op, Var

Place = tuple[int, int]
"""Of an assignment: its block and operation; ``START`` of a parameter's."""
START: Place = (-1, -1)
Site = tuple[Var, Place]
Reaching = frozenset[Site]


def told_apart(function: Function) -> Function:
    """The function with a name for each web; itself, where each name has one.

    Itself too where it has modes or handlers, in which a block may be left between two operations:
    a proof then takes one name for all that it is used for, which refuses more and proves no more.
    """
    writes = Counter(name for block in function.blocks for name in written(block))
    writes.update(param.name for param in function.params)
    several = {name for name, count in writes.items() if count > 1} - kept_whole(function)
    if not several or any(block.handler or block.modes for block in function.blocks):
        return function
    webs = Webs(function, frozenset(several))
    webs.find()
    return webs.function_apart()


def kept_whole(function: Function) -> set[Var]:
    """Boxes, and what is deleted: they are more than their values."""
    found: set[Var] = set()
    for block in function.blocks:
        for op in block.ops:
            if op.name == "box":
                found.update(op.outs)
            elif op.name == "delete":
                found.add(op.attr)
    return found


def written(block: Block) -> Iterable[Var]:
    for op in block.ops:
        yield from op_writes(op)
    yield from terminator_writes(block.terminator)


@dataclass(slots=True, eq=False, repr=False)
class Webs:
    """``parent`` joins the assignments that come to a common read, and to the first of these."""

    function: Function
    several: frozenset[Var]
    before: tuple[Reaching, ...] = ()
    parent: dict[Site, Site] = field(default_factory=dict)

    def find(self) -> None:
        place = {id(block): label for label, block in enumerate(self.function.blocks)}
        params = {param.name for param in self.function.params}
        start = frozenset((name, START) for name in self.several & params)

        def after(block: Block, fact: Reaching) -> Reaching:
            for at, names in enumerate(self.steps(block)):
                fact = self.past(fact, names, (place[id(block)], at))
            return fact

        nothing: Reaching = frozenset()
        found = solve(
            self.function.blocks,
            Analysis(True, start, nothing, frozenset.union, after, lambda _, fact: fact),
        )
        self.before = found.before
        for label in range(len(self.function.blocks)):
            self.block(label, joins=True)

    def steps(self, block: Block) -> list[tuple[Var, ...]]:
        """What each operation assigns, and the terminator."""
        return [*map(op_writes, block.ops), terminator_writes(block.terminator)]

    def past(self, fact: Reaching, names: tuple[Var, ...], place: Place) -> Reaching:
        own = self.several.intersection(names)
        if not own:
            return fact
        return frozenset(site for site in fact if site[0] not in own) | {(n, place) for n in own}

    def root(self, site: Site) -> Site:
        while site in self.parent:
            site = self.parent[site]
        return site

    def join(self, some: Iterable[Site]) -> None:
        roots = sorted({self.root(site) for site in some})
        for other in roots[1:]:  # a parameter's start is the least
            self.parent[other] = roots[0]

    def names(self, fact: Reaching) -> dict[Var, Var]:
        """What the variables are called that come with these assignments."""
        return {site[0]: self.called(site) for site in fact}

    def called(self, site: Site) -> Var:
        name, place = self.root(site)
        return name if place == START else f"{name}@{place[0]}.{place[1]}"

    def block(self, label: int, joins: bool = False) -> Block:
        """A block with its own names; or, first, its reads noted."""
        block, fact = self.function.blocks[label], self.before[label]
        ops: list[Op] = []
        for at, op in enumerate(block.ops):
            reads, names = op.args, self.names(fact)
            if joins:
                self.note(fact, reads)
            fact = self.past(fact, op_writes(op), (label, at))
            outs = self.outs(op.outs, (label, at))
            ops.append(replace(op, args=renamed(reads, names), outs=outs))
        names = self.names(fact)
        place = (label, len(block.ops))
        if joins:
            self.note(fact, terminator_reads(block.terminator))
        end = with_reads(block.terminator, lambda name: names.get(name, name))
        if isinstance(end, Call):
            end = replace(end, out=self.outs((end.out,), place)[0])
        return replace(block, ops=tuple(ops), terminator=end, converted=None)

    def outs(self, outs: tuple[Var, ...], place: Place) -> tuple[Var, ...]:
        return tuple(self.called((n, place)) if n in self.several else n for n in outs)

    def note(self, fact: Reaching, reads: Iterable[Var]) -> None:
        for name in self.several.intersection(reads):
            self.join(site for site in fact if site[0] == name)

    def function_apart(self) -> Function:
        blocks = tuple(map(self.block, range(len(self.function.blocks))))
        return replace(self.function, blocks=blocks, live_in=(), types=())


def renamed(names: tuple[Var, ...], called: Mapping[Var, Var]) -> tuple[Var, ...]:
    return tuple(called.get(name, name) for name in names)
