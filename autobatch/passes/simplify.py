"""Control-flow clean-up: fewer blocks, and so fewer steps; no operation is added or moved.

Before:                              After:

    b0: jump b1                          b0: %1 = lt i, n
    b1: %1 = lt i, n                         branch %1 ? b1 : b2
        branch %1 ? b2 : b5              b1: i = add i, i
    b2: i = add i, i                         jump b0
        jump b3                          b2: %return = copy i
    b3: jump b1                              return %return
    b4: jump b5
    b5: %return = copy i
        return %return

1. Jumps to an empty block go on to where that block jumps, unless it enters or leaves a mode, or
   several ways of a loop without calls meet there before the next round; so do exceptions that an
   empty block handles.
2. A branch whose two ways are one becomes a jump, after a ``truth`` (which may raise).
3. Blocks that nothing reaches go, except the last, which holds the return.
4. A block joins its only predecessor if that jumps to it under the same modes and the same handler,
   and is in no loop that it is not in: it would run, in pieces, before the loop is done.
5. An entry that only jumps to the next block goes: a function may begin with a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autobatch.ir.dataflow import predecessors
from autobatch.ir.program import Block, Branch, Call, Function, Jump, Label, Op, Var
from autobatch.passes.rotation import natural_loop

Modes = tuple[Var, ...]


def simplify(function: Function) -> Function:
    """The function with its blocks threaded, pruned and joined."""
    blocks = _prune([_thread(block, function.blocks) for block in function.blocks])
    return replace(function, blocks=tuple(_without_entry(_prune(_join(blocks)))))


def _destination(modes: Modes, label: Label, blocks: Sequence[Block]) -> Label:
    """Where a jump to ``label`` from a block under ``modes`` ends up, past empty blocks."""
    seen = {label}
    while not blocks[label].ops and isinstance(jump := blocks[label].terminator, Jump):
        passed = _on_the_way(modes, blocks[label].modes, blocks[jump.target].modes)
        if jump.target in seen or not passed or _is_meeting(label, jump.target, blocks):
            break
        label = jump.target
        seen.add(label)
    return label


def _is_meeting(label: Label, head: Label, blocks: Sequence[Block]) -> bool:
    """Whether several ways of a loop without calls meet at an empty block, and it leads back.

    Threads that wait there stay in step. Where a round calls, one that is ahead is no loss: its
    calls are forked sooner, and run with those of others.
    """
    sources = predecessors(blocks)
    if len(sources[label]) < 2:
        return False
    loop = natural_loop(head, label, sources)
    return bool(loop) and not any(isinstance(blocks[at].terminator, Call) for at in loop)


def _on_the_way(start: Modes, between: Modes, end: Modes) -> bool:
    """Whether going by ``between`` enters and leaves what going straight does."""
    shared = 0
    while shared < min(len(start), len(end)) and start[shared] == end[shared]:
        shared += 1
    kept = between[:shared] == start[:shared]
    return kept and between in (start[: len(between)], end[: len(between)])


def _thread(block: Block, blocks: Sequence[Block]) -> Block:
    targets = block.successors()
    threaded = block.retargeted({t: _destination(block.modes, t, blocks) for t in targets})
    match threaded.terminator:
        case Branch(condition, then, otherwise, span) if then == otherwise:
            asked = Op("truth", (_fresh(threaded),), (condition,), None, span)
            return replace(threaded, ops=(*threaded.ops, asked), terminator=Jump(then, span))
    return threaded


def _fresh(block: Block) -> str:
    """A temporary that no one reads; its name says where it comes from."""
    assert isinstance(block.terminator, Branch)
    return f"%truth.{block.terminator.span.line}.{block.terminator.span.column}"


def _prune(blocks: Sequence[Block]) -> list[Block]:
    """The blocks that the entry reaches, and the last."""
    reached = {len(blocks) - 1}
    pending = [0]
    while pending:
        label = pending.pop()
        if label not in reached or label == len(blocks) - 1:
            reached.add(label)
            pending.extend(s for s in blocks[label].successors() if s not in reached)
    index = {label: place for place, label in enumerate(sorted(reached))}
    return [blocks[label].retargeted(index) for label in sorted(reached)]


def _join(blocks: Sequence[Block]) -> list[Block]:
    """Joins blocks to their predecessors where rule 4 allows; what was joined stays, unreached."""
    sources = predecessors(blocks)
    joined = list(blocks)
    for label in range(len(blocks) - 1, 0, -1):
        is_exit = label == len(joined) - 1
        if len(sources[label]) != 1 or not _may_join(sources[label][0], label, blocks, is_exit):
            continue
        before, after = joined[sources[label][0]], joined[label]
        joined[sources[label][0]] = replace(after, ops=before.ops + after.ops)
        if is_exit:
            joined.pop()
    return joined


def _may_join(source: Label, label: Label, blocks: Sequence[Block], is_exit: bool) -> bool:
    before, after = blocks[source], blocks[label]
    if not isinstance(before.terminator, Jump) or before.terminator.target != label:
        return False
    if before.modes != after.modes or before.handler != after.handler or source >= label:
        return False
    return source == label - 1 if is_exit else not _leaves_loop(source, label, blocks)


def _leaves_loop(source: Label, label: Label, blocks: Sequence[Block]) -> bool:
    """Whether a loop, by its last block's way back, holds ``source`` but not ``label``."""
    return any(
        head <= source <= last
        for last in range(source, label)
        for head in blocks[last].successors()
    )


def _without_entry(blocks: Sequence[Block]) -> Sequence[Block]:
    """An entry that does nothing gives way to the block after it, where it jumps there."""
    entry = blocks[0]
    if entry.ops or entry.modes or entry.terminator != Jump(1, entry.terminator.span):
        return blocks
    index = {label: max(label - 1, 0) for label in range(len(blocks))}
    return [block.retargeted(index) for block in blocks[1:]]
