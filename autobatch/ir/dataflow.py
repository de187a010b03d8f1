"""A worklist solver for dataflow problems over blocks, and liveness on top of it.

In: the blocks of one function and an ``Analysis``. Out: the fact at the start and at the end of
each block. Facts must form a lattice of finite height under ``join``. What has once been lost at
a block is not found again, so that an end is always reached; if ``transfer`` is monotone, the
solution is the least one (Kildall 1973), else one that holds, perhaps of less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from autobatch.ir.program import Block, Branch, Call, Label, Op, Raise, Return, Terminator, Var
from autobatch.source import Span

Fact = TypeVar("Fact")


def reaching(blocks: Sequence[Block]) -> list[set[Label]]:
    """For each block, those that can follow it, sooner or later."""
    found: list[set[Label]] = []
    for block in blocks:
        seen: set[Label] = set()
        pending = list(block.successors())
        while pending:
            label = pending.pop()
            if label not in seen:
                seen.add(label)
                pending += blocks[label].successors()
        found.append(seen)
    return found


def connected(region: set[Label], edges: Sequence[tuple[Label, ...]]) -> list[set[Label]]:
    """The strongly connected parts of a region: blocks that reach each other within it."""
    reach = {label: led_to(label, region, edges) for label in sorted(region)}
    parts: list[set[Label]] = []
    done: set[Label] = set()
    for label, reached in reach.items():
        if label not in done:
            part = {label} | {other for other in reached if label in reach[other]}
            parts.append(part)
            done |= part
    return parts


def led_to(start: Label, region: set[Label], edges: Sequence[tuple[Label, ...]]) -> set[Label]:
    """The blocks of a region that edges lead to from one, sooner or later."""
    found: set[Label] = set()
    pending = [start]
    while pending:
        more = {target for target in edges[pending.pop()] if target in region} - found
        found |= more
        pending += more
    return found


@dataclass(frozen=True, slots=True)
class Analysis(Generic[Fact]):
    """``start`` holds at the entry (at every exit, going backward), ``unknown`` everywhere else.

    ``join`` combines the facts of two ways that meet; ``transfer`` takes a fact through a block.
    ``raised`` takes it on the way to the block's handler: forward, the fact at the block's start
    to that at the handler's; backward, the fact at the handler's start to what it adds to that at
    the block's.
    """

    forward: bool
    start: Fact
    unknown: Fact
    join: Callable[[Fact, Fact], Fact]
    transfer: Callable[[Block, Fact], Fact]
    raised: Callable[[Block, Fact], Fact]


@dataclass(frozen=True, slots=True)
class Solution(Generic[Fact]):
    """Facts at the start and at the end of each block, in the order of the text."""

    before: tuple[Fact, ...]
    after: tuple[Fact, ...]


def predecessors(blocks: Sequence[Block]) -> list[list[Label]]:
    """For each block, the blocks that go to it, once per edge."""
    found: list[list[Label]] = [[] for _ in blocks]
    for label, block in enumerate(blocks):
        for target in block.successors():
            found[target].append(label)
    return found


def solve(blocks: Sequence[Block], analysis: Analysis[Fact]) -> Solution[Fact]:
    """The least solution of ``analysis``."""
    facts = Facts(blocks, analysis)
    if analysis.forward:
        order, advance = range(len(blocks)), facts.forward
        depends: Sequence[Collection[Label]] = [block.successors() for block in blocks]
    else:
        order, advance = range(len(blocks) - 1, -1, -1), facts.backward
        depends = [[*each, *by] for each, by in zip(facts.sources, facts.handled, strict=True)]
    work, waiting, done = deque(order), [True] * len(blocks), [False] * len(blocks)
    while work:
        label = work.popleft()
        waiting[label] = False
        if advance(label) or not done[label]:
            done[label] = True
            for target in depends[label]:
                if not waiting[target]:
                    waiting[target] = True
                    work.append(target)
    return Solution(tuple(facts.before), tuple(facts.after))


@dataclass(eq=False, repr=False)
class Facts(Generic[Fact]):
    """Facts on their way to the solution; ``raised[label]`` is that on the way to its handler."""

    blocks: Sequence[Block]
    analysis: Analysis[Fact]
    targets: list[tuple[Label, ...]] = field(init=False)
    sources: list[list[Label]] = field(init=False)
    handled: list[list[Label]] = field(init=False)
    """For each block, those whose terminators go to it, and those whose handler it is."""
    before: list[Fact] = field(init=False)
    after: list[Fact] = field(init=False)
    raised: list[Fact] = field(init=False)

    def __post_init__(self) -> None:
        self.targets = [block.targets() for block in self.blocks]
        self.sources = [[] for _ in self.blocks]
        self.handled = [[] for _ in self.blocks]
        for label, block in enumerate(self.blocks):
            for target in dict.fromkeys(self.targets[label]):
                self.sources[target].append(label)
            if block.handler is not None:
                self.handled[block.handler.target].append(label)
        self.before, self.after, self.raised = (
            [self.analysis.unknown] * len(self.blocks) for _ in range(3)
        )
        if self.analysis.forward:
            self.before[0] = self.analysis.start
            return
        for label, targets in enumerate(self.targets):
            if not targets:
                self.after[label] = self.analysis.start

    def forward(self, label: Label) -> bool:
        """Take the facts through a block; whether what follows it changes."""
        analysis, block = self.analysis, self.blocks[label]
        fact = self.before[label]
        for source in self.sources[label]:
            fact = analysis.join(fact, self.after[source])
        for source in self.handled[label]:
            fact = analysis.join(fact, self.raised[source])
        old = self.after[label], self.raised[label]
        self.before[label], self.after[label] = fact, analysis.transfer(block, fact)
        if block.handler is not None:
            self.raised[label] = analysis.raised(block, fact)
        return old != (self.after[label], self.raised[label])

    def backward(self, label: Label) -> bool:
        """The same against the flow; whether what leads to the block changes."""
        analysis, block = self.analysis, self.blocks[label]
        fact = self.after[label]
        for target in self.targets[label]:
            fact = analysis.join(fact, self.before[target])
        old, new = self.before[label], analysis.transfer(block, fact)
        if block.handler is not None:
            new = analysis.join(new, analysis.raised(block, self.before[block.handler.target]))
        self.before[label], self.after[label] = new, fact
        return old != new


def postdominators(blocks: Sequence[Block]) -> list[frozenset[Label]]:
    """For each block, those that every way from it to an end comes to, itself among them.

    Of blocks from which no way ends, all blocks.
    """
    every = frozenset(range(len(blocks)))
    found = [every] * len(blocks)
    changed = True
    while changed:
        changed = False
        for label in range(len(blocks) - 1, -1, -1):
            after = [found[target] for target in blocks[label].successors()]
            new = frozenset.intersection(*after) | {label} if after else frozenset({label})
            changed = changed or new != found[label]
            found[label] = new
    return found


def handled_at(blocks: Sequence[Block], label: Label) -> Var | None:
    """The variable that holds the exception which is being handled in a block, if it is lexically.

    An exception that leaves a handler gets the one that was handled as its context, so the way out
    says which that is.
    """
    handler = blocks[label].handler
    while handler is not None:
        target = blocks[handler.target]
        if target.ops and target.ops[0].name == "context" and len(target.ops[0].args) > 1:
            return target.ops[0].args[1]
        handler = target.handler
    return None


def op_reads(op: Op) -> tuple[Var, ...]:
    """Variables that an operation reads; ``del x`` reads x, since it must be bound."""
    return (*op.args, op.attr) if op.name == "delete" else op.args


def op_writes(op: Op) -> tuple[Var, ...]:
    """Variables that an operation binds or unbinds."""
    return (op.attr,) if op.name == "delete" else op.outs


def terminator_reads(terminator: Terminator) -> tuple[Var, ...]:
    match terminator:
        case Branch(condition=condition):
            return (condition,)
        case Call(callee=callee, args=args):
            return (callee, *args)
        case Return(value=value):
            return (value,)
        case Raise(exception=exception, cause=cause):
            return (exception,) if cause is None else (exception, cause)
        case _:
            return ()


def with_reads(terminator: Terminator, called: Callable[[Var], Var]) -> Terminator:
    """The same terminator of variables that are called otherwise; what it writes stays."""
    match terminator:
        case Branch(condition=condition):
            return replace(terminator, condition=called(condition))
        case Call(callee=callee, args=args):
            return replace(terminator, callee=called(callee), args=tuple(map(called, args)))
        case Return(value=value):
            return replace(terminator, value=called(value))
        case Raise(exception=exception, cause=cause):
            cause = None if cause is None else called(cause)
            return replace(terminator, exception=called(exception), cause=cause)
    return terminator


def terminator_writes(terminator: Terminator) -> tuple[Var, ...]:
    return (terminator.out,) if isinstance(terminator, Call) else ()


def assigned_at(blocks: Sequence[Block], label: Label, name: Var) -> tuple[Span, ...]:
    """Where ``name`` got the value that it has at the end of a block, as control flow tells.

    One span for each way there, the nearest first; none if no way assigns it.
    """
    comes_from = predecessors(blocks)
    found: dict[Span, None] = {}
    pending, seen = deque([label]), {label}
    while pending:
        block = blocks[pending[0]]
        sources = comes_from[pending.popleft()]
        spans = [record.span for record in (*block.ops, block.terminator) if name in outs(record)]
        if spans:
            found[spans[-1]] = None
            continue
        pending.extend(source for source in dict.fromkeys(sources) if source not in seen)
        seen.update(sources)
    return tuple(found)


def outs(record: Op | Terminator) -> tuple[Var, ...]:
    return record.outs if isinstance(record, Op) else terminator_writes(record)


def maybe_unbound(blocks: Sequence[Block], params: Collection[Var]) -> frozenset[Var]:
    """Variables that some path reads where they have no value, as far as control flow tells."""
    found: set[Var] = set()
    for block, unbound in zip(blocks, unbound_before(blocks, params), strict=True):
        for op in block.ops:
            found.update(unbound.intersection(op_reads(op)))
            unbound = _unbound_after_op(op, unbound)
        found.update(unbound.intersection(terminator_reads(block.terminator)))
    return frozenset(found)


def unbound_before(blocks: Sequence[Block], params: Collection[Var]) -> tuple[frozenset[Var], ...]:
    """For each block, the variables without a value at its start on some path from the entry."""
    names = {name for block in blocks for op in block.ops for name in op_reads(op)}
    for block in blocks:
        names.update(block.modes, terminator_reads(block.terminator))
    nothing: frozenset[Var] = frozenset()
    start = frozenset(names.difference(params))
    through = _gained_and_lost(blocks, _unbound_after)
    analysis = Analysis(True, start, nothing, frozenset.union, through, unbound_within)
    return solve(blocks, analysis).before


def _gained_and_lost(
    blocks: Sequence[Block], transfer: Callable[[Block, frozenset[Var]], frozenset[Var]]
) -> Callable[[Block, frozenset[Var]], frozenset[Var]]:
    """``transfer`` by what it adds to any fact and what it takes from it, found once per block.

    So it may be where what it does with one variable depends on no other ("gen" and "kill" sets).
    """
    nothing: frozenset[Var] = frozenset()
    sets = {id(block): (transfer(block, nothing), _written(block)) for block in blocks}

    def through(block: Block, fact: frozenset[Var]) -> frozenset[Var]:
        gained, lost = sets[id(block)]
        return fact.difference(lost).union(gained)

    return through


def _written(block: Block) -> frozenset[Var]:
    """The variables that a block binds or unbinds."""
    written = {name for op in block.ops for name in op_writes(op)}
    return frozenset(written.union(terminator_writes(block.terminator)))


def _unbound_after_op(op: Op, unbound: frozenset[Var]) -> frozenset[Var]:
    return unbound | {op.attr} if op.name == "delete" else unbound.difference(op.outs)


def _unbound_after(block: Block, unbound: frozenset[Var]) -> frozenset[Var]:
    for op in block.ops:
        unbound = _unbound_after_op(op, unbound)
    return unbound.difference(terminator_writes(block.terminator))


def unbound_within(block: Block, unbound: frozenset[Var]) -> frozenset[Var]:
    """The variables that may have no value at the handler of a block, wherever that fails."""
    assert block.handler is not None
    names = {op.attr for op in block.ops if op.name == "delete"}
    return unbound.union(names).difference((block.handler.out,))


def _live_within(block: Block, live: frozenset[Var]) -> frozenset[Var]:
    """What the handler needs must be there all the time, since any operation may fail."""
    assert block.handler is not None
    return live.difference((block.handler.out,))


def _live_before(block: Block, live_after: frozenset[Var]) -> frozenset[Var]:
    live = set(live_after)
    live.difference_update(terminator_writes(block.terminator))
    live.update(terminator_reads(block.terminator))
    for op in reversed(block.ops):
        live.difference_update(op_writes(op))
        live.update(op_reads(op))
    return frozenset(live.union(block.modes))


def live_after_each(block: Block, later: frozenset[Var]) -> Iterator[frozenset[Var]]:
    """The variables that are read after each operation of a block."""
    live = set(later)
    live.difference_update(terminator_writes(block.terminator))
    live.update(terminator_reads(block.terminator), block.modes)
    found = []
    for op in reversed(block.ops):
        found.append(frozenset(live))
        live.difference_update(op_writes(op))
        live.update(op_reads(op))
    return reversed(found)


def liveness(blocks: Sequence[Block]) -> tuple[frozenset[Var], ...]:
    """For each block, the variables whose value at its start may still be read."""
    nothing: frozenset[Var] = frozenset()
    through = _gained_and_lost(blocks, _live_before)
    analysis = Analysis(False, nothing, nothing, frozenset.union, through, _live_within)
    return solve(blocks, analysis).before
