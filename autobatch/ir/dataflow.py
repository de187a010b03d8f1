"""A worklist solver for dataflow problems over blocks, and liveness on top of it.

In: the blocks of one function and an ``Analysis``. Out: the fact at the start and at the end of
each block. Facts must form a lattice of finite height under ``join``, and ``transfer`` must be
monotone; then the solution is the least one (Kildall 1973).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Analysis(Generic[Fact]):
    """``start`` holds at the entry (at every exit, going backward), ``unknown`` everywhere else.

    ``join`` combines the facts of two ways that meet; ``transfer`` takes a fact through a block.
    """

    forward: bool
    start: Fact
    unknown: Fact
    join: Callable[[Fact, Fact], Fact]
    transfer: Callable[[Block, Fact], Fact]


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
    comes_from = predecessors(blocks)
    goes_to = [list(block.successors()) for block in blocks]
    sources, targets = (comes_from, goes_to) if analysis.forward else (goes_to, comes_from)
    inward = [analysis.unknown] * len(blocks)
    outward = [analysis.unknown] * len(blocks)
    order = range(len(blocks)) if analysis.forward else range(len(blocks) - 1, -1, -1)
    work = deque(order)
    done = [False] * len(blocks)
    while work:
        label = work.popleft()
        boundary = label == 0 if analysis.forward else not sources[label]
        fact = analysis.start if boundary else analysis.unknown
        for source in sources[label]:
            fact = analysis.join(fact, outward[source])
        result = analysis.transfer(blocks[label], fact)
        inward[label] = fact
        if not done[label] or result != outward[label]:
            done[label], outward[label] = True, result
            work.extend(target for target in targets[label] if target not in work)
    before, after = (inward, outward) if analysis.forward else (outward, inward)
    return Solution(tuple(before), tuple(after))


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
    names = {name for block in blocks for op in block.ops for name in op_reads(op)}
    names.update(name for block in blocks for name in terminator_reads(block.terminator))
    nothing: frozenset[Var] = frozenset()
    start = frozenset(names.difference(params))
    analysis = Analysis(True, start, nothing, frozenset.union, _unbound_after)
    found: set[Var] = set()
    for block, unbound in zip(blocks, solve(blocks, analysis).before, strict=True):
        for op in block.ops:
            found.update(unbound.intersection(op_reads(op)))
            unbound = _unbound_after_op(op, unbound)
        found.update(unbound.intersection(terminator_reads(block.terminator)))
    return frozenset(found)


def _unbound_after_op(op: Op, unbound: frozenset[Var]) -> frozenset[Var]:
    return unbound | {op.attr} if op.name == "delete" else unbound.difference(op.outs)


def _unbound_after(block: Block, unbound: frozenset[Var]) -> frozenset[Var]:
    for op in block.ops:
        unbound = _unbound_after_op(op, unbound)
    return unbound.difference(terminator_writes(block.terminator))


def _live_before(block: Block, live_after: frozenset[Var]) -> frozenset[Var]:
    live = set(live_after)
    live.difference_update(terminator_writes(block.terminator))
    live.update(terminator_reads(block.terminator))
    for op in reversed(block.ops):
        live.difference_update(op_writes(op))
        live.update(op_reads(op))
    return frozenset(live.union(block.modes))


def liveness(blocks: Sequence[Block]) -> tuple[frozenset[Var], ...]:
    """For each block, the variables whose value at its start may still be read."""
    nothing: frozenset[Var] = frozenset()
    analysis = Analysis(False, nothing, nothing, frozenset.union, _live_before)
    return solve(blocks, analysis).before
