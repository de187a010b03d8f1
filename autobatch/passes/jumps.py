"""Jump threading: a jump to a test whose outcome is known goes on to where the test leads.

Before:                              After:

    b0: …                                b0: …
        jump b1                              jump b1
    b1: %1 = not done                    b1: %1 = not done
        branch %1 ? b2 : b3                  branch %1 ? b2 : b3
    b2: done = const True                b2: done = const True
        jump b1                              %1 = const False
    b3: …                                    jump b3
                                         b3: …

The test must consist of what is computed beforehand (``facts``). A loop that is sure not to run, or
to run once, is no loop any more. Where a loop is sure to begin, its first test stays: rotation
(``rotation``) puts one before the loop, which folding decides, and needs the other where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autobatch.ir.dataflow import reaching
from autobatch.ir.program import Block, Branch, Function, Jump, Label, Op
from autobatch.passes.facts import Facts, Literal, after, facts_after, facts_before, result
from autobatch.passes.folding import folded

MOST = 8
"""Operations of a test that are worth having twice."""


def thread_jumps(function: Function) -> Function:
    """The function with jumps past the tests that they decide."""
    asking = {
        label: test
        for label in range(len(function.blocks))
        if (test := test_after(label, function.blocks)) is not None
    }
    if not asking:
        return function
    blocks = list(function.blocks)
    known = facts_before(blocks)
    for label, test in asking.items():
        facts = facts_after(function.blocks[label], known[label])
        blocks[label] = threaded(label, test, facts, function.blocks)
    return replace(function, blocks=tuple(blocks))


def test_after(label: Label, blocks: Sequence[Block]) -> Label | None:
    """The short test that a block jumps to, if it does."""
    block = blocks[label]
    if not isinstance(block.terminator, Jump) or block.handler is not None:
        return None
    target = block.terminator.target
    test = blocks[target]
    alike = test.modes == block.modes and test.handler is None and target != label
    is_test = isinstance(test.terminator, Branch) and len(test.ops) <= MOST
    return target if alike and is_test else None


def threaded(label: Label, target: Label, facts: Facts, blocks: Sequence[Block]) -> Block:
    """The block, perhaps with the test that it jumps to taken in, all of it literals."""
    block, test = blocks[label], blocks[target]
    assert isinstance(test.terminator, Branch)
    ops: list[Op] = []
    for op in test.ops:
        if not isinstance(result(op, facts), Literal):
            return block
        ops.append(folded(op, facts))
        facts = after(op, facts)
    end = decided(test.terminator, facts)
    if end is None or begins_loop(label, target, end.target, blocks):
        return block
    return replace(block, ops=(*block.ops, *ops), terminator=end, converted=None)


def decided(branch: Branch, facts: Facts) -> Jump | None:
    """Where a branch leads, if that is known."""
    known = facts.get(branch.condition)
    if not isinstance(known, Literal):
        return None
    return Jump(branch.then if known.value else branch.otherwise, branch.span)


def begins_loop(label: Label, test: Label, target: Label, blocks: Sequence[Block]) -> bool:
    """Whether going past a test would enter the loop that it is of, from outside."""
    reached = reaching(blocks)
    return label not in reached[test] and test in (*reached[target], target)
