"""Joins put into a function: blocks are cut where one is due.

In: a function with forks, the positions before which a join is due, and those of the operations
that wait for one. Out: the function; the block that returns is the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from itertools import pairwise

from autobatch.ir.program import Block, Function, Join, Label, Op, Return

Places = Mapping[Label, Set[int]]


def with_joins(function: Function, joins: Places, deferrals: Places) -> Function:
    """The function with a join before each of these positions, deferred operations marked."""
    blocks = list(function.blocks)
    for label, block in enumerate(function.blocks):
        places = early(block, joins.get(label, frozenset()))
        deferred = deferrals.get(label, frozenset())
        deferred = {at for at in deferred if not follows_join(block.ops, at, places)}
        ops = [
            deferral(op) if position in deferred else op for position, op in enumerate(block.ops)
        ]
        first = places[0] if places else len(ops)
        blocks[label] = replace(block, ops=tuple(ops[:first]))
        at = label
        for position, end in pairwise([*places, len(ops)]):
            span = ops[position].span if position < len(ops) else block.terminator.span
            rest = replace(block, ops=tuple(ops[position:end]))
            blocks[at] = replace(blocks[at], terminator=Join(len(blocks), span))
            at = len(blocks)
            blocks.append(rest)
    return replace(function, blocks=tuple(with_exit_last(blocks)), live_in=())


def early(block: Block, due: Set[int]) -> list[int]:
    """Where a block's joins stand: as soon as its last fork, or its start, has been passed.

    What comes after a join runs for more threads at once.
    """
    places: list[int] = []
    for place in sorted(due):
        forks = [at + 1 for at, op in enumerate(block.ops[:place]) if op.name == "fork"]
        places.append(max([0, *forks]))
    return list(dict.fromkeys(places))


def follows_join(ops: Sequence[Op], position: int, places: Sequence[int]) -> bool:
    """Whether nothing is forked at a position, since a join has passed."""
    joins = [place for place in places if place <= position]
    return bool(joins) and all(op.name != "fork" for op in ops[joins[-1] : position])


def deferral(op: Op) -> Op:
    return Op("defer", op.outs, op.args, (op.name, op.attr), op.span)


def with_exit_last(blocks: Sequence[Block]) -> list[Block]:
    """The blocks with the one that returns at the end."""
    exit_ = next(i for i, block in enumerate(blocks) if isinstance(block.terminator, Return))
    order = [label for label in range(len(blocks)) if label != exit_] + [exit_]
    place = {label: index for index, label in enumerate(order)}
    return [blocks[label].retargeted(place) for label in order]
