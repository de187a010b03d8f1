"""Blocks of loops as threads come by them again and again: what is known of them beforehand.

In: a block that is in a loop, or what it comes to, converted. Out: its ``Turn``, if it is plain: no
managers and no handler, operations that one driver may run all of, but for the ``next`` of a loop
over a range, and an end that is a jump or a branch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autobatch.batching.stretches import Executor, Site, WholeSite
from autobatch.ir.program import Block, Branch, Function, Jump, Label, Op, Var
from autobatch.passes.if_conversion import are_safe
from autobatch.vm.tails import Tail


@dataclass(frozen=True, slots=True)
class Turn:
    """A driver of ``site`` runs the operations before ``tail``; None where there are none.

    ``ends`` is the block whose terminator it has,
    ``dead`` are the variables that a target's threads have no more use for. ``stay``: where those
    go that stay in its loop, the others leave it for what comes later; ``safe``: its operations
    are safe on any row.
    """

    site: Site | None
    tail: Tail
    terminator: Jump | Branch
    ends: Label
    dead: Mapping[Label, Sequence[Var]]
    stay: Label | None
    safe: bool

    @property
    def end(self) -> int:
        return self.tail.start

    @property
    def advance(self) -> Op | None:
        """The ``next`` that it ends with, if it does."""
        return self.tail.advance


class Coded(Protocol):
    """A lowered function, ready to run; see ``library.Code``."""

    @property
    def function(self) -> Function: ...
    @property
    def blocks(self) -> tuple[Block, ...]: ...
    @property
    def live(self) -> Sequence[tuple[str, ...]]: ...

    def varying(self, pc: int) -> frozenset[str] | None: ...
    def site(self, pc: int, position: int, executor: Executor) -> Site: ...
    def whole(self, pc: int, executor: Executor) -> WholeSite: ...
    def needed(self, block: Block) -> frozenset[str]: ...
    def tail(self, block: Block) -> Tail: ...


def turn_of(code: Coded, pc: Label, executor: Executor, whole: bool) -> Turn | None:
    """The turn of a block, or of what it comes to where ``whole``."""
    block = code.blocks[pc]
    if block.modes or block.handler is not None or code.varying(pc) is None:
        return None
    ends, made = pc, block.converted
    if whole:
        if made is None:
            return None
        block, ends = Block(made.ops, made.terminator), made.ends
    terminator = block.terminator
    if not isinstance(terminator, Jump | Branch):
        return None
    tail = code.tail(block)
    site = None
    if tail.start:
        site = code.whole(pc, executor) if whole else code.site(pc, 0, executor)
    stay, safe = stays_at(code.blocks, pc, terminator), are_safe(block.ops[: tail.start])
    return Turn(site, tail, terminator, ends, dead_of(code, pc, block, tail), stay, safe)


def stays_at(blocks: Sequence[Block], pc: Label, terminator: Jump | Branch) -> Label | None:
    """Where threads stay in the loop of a block that others leave; None if it is left by none.

    They come back to it by blocks that are all before the one where the others wait: so these
    wait for the last to leave.
    """
    if isinstance(terminator, Jump):
        return terminator.target
    first, last = sorted((terminator.then, terminator.otherwise))
    return first if first < last and comes_back(blocks, first, pc, last) else None


def comes_back(blocks: Sequence[Block], start: Label, pc: Label, end: Label) -> bool:
    """Whether a way leads from one block to another by such as are before ``end``."""
    seen, waiting = {start}, [start]
    while waiting:
        at = waiting.pop()
        if at == pc:
            return True
        waiting += (new := {to for to in blocks[at].targets() if to < end} - seen)
        seen |= new
    return False


def dead_of(code: Coded, pc: Label, block: Block, tail: Tail) -> Mapping[Label, Sequence[Var]]:
    """What a driver may leave in the environment, and no thread reads from a target on."""
    there = code.needed(block) | code.function.live_in[pc] | tail.names
    return {to: sorted(there.difference(code.live[to])) for to in block.targets()}
