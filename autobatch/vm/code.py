"""A lowered function, ready to run: ``Code`` keeps what its blocks need and what is known of them.

In: a ``Function`` after the passes. Out: for each block the variables that live at it, the sites
where stretches begin, the turns of its loops; each is made when it is first asked for. What
``library`` has judged of the function is kept here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from autobatch.batching.operations import CAPTURED, HANDLED
from autobatch.batching.stretches import Executor, Site, WholeSite
from autobatch.batching.stretches.rounds import Round
from autobatch.frontend import Decided
from autobatch.ir.dataflow import handled_at, op_reads, reaching
from autobatch.ir.definitions import Definitions, definitions_of, literals_of
from autobatch.ir.program import Block, Branch, Call, Function, Handler, Op, Raise, Return
from autobatch.passes.late_blocks import late_blocks, quiet_blocks
from autobatch.passes.updates import updates_of
from autobatch.source import Span
from autobatch.values.cells import Cell
from autobatch.vm.diamonds import Diamond, diamond_of
from autobatch.vm.groups import CARRIED, FORKED
from autobatch.vm.purity import IMPURE, Purity, Verdict
from autobatch.vm.tails import Tail, tail_of
from autobatch.vm.turns import Turn, turn_of
from autobatch.vm.ways import is_end

HIDDEN = frozenset({CARRIED, CAPTURED, FORKED, HANDLED})
"""Variables that move along wherever a group has them."""


@dataclass(slots=True)
class Luck:
    """How running a block ahead, or descending from it, has gone (see ``ahead``, ``descending``,
    ``bottom_up``): how long it has last been put off, in executions of the block, and how long it
    is still to ``wait``.
    """

    last: int = 0
    wait: int = 0

    def tries(self, longest: int) -> bool:
        """Whether it is to be tried now; if that does not work, not for twice as long as before."""
        if self.wait:
            self.wait -= 1
            return False
        self.last = self.wait = min(2 * self.last + 1, longest)
        return True

    def worked(self) -> None:
        self.last = self.wait = 0


@dataclass(slots=True, eq=False, repr=False)
class Code:
    """A lowered function, ready to run: the variables that live at each block, sorted; ``exits``
    are the blocks that lead to its last.

    It is of functions to which what has ``decided`` means what it meant when it was lowered.
    """

    function: Function
    blocks: tuple[Block, ...]
    live: Sequence[tuple[str, ...]]
    sites: list[dict[tuple[int, Executor], Site]]
    exits: frozenset[int]
    definitions: Definitions
    decided: Decided = ()
    known: frozenset[Span] = frozenset()
    base: Code | None = None
    purity: Purity = IMPURE
    has_effects: bool = False
    purities: list[Verdict] = field(default_factory=list)
    sights: list[Verdict] = field(default_factory=list)
    questions: list[Verdict] = field(default_factory=list)
    forks: dict[tuple[bool, bool], list[Verdict]] = field(default_factory=dict)
    copies: dict[Any, CodeType] = field(default_factory=dict)
    inlined: list[Verdict] = field(default_factory=list)
    diamonds: dict[int, Diamond | None] = field(default_factory=dict)
    live_after: dict[int, frozenset[str]] = field(default_factory=dict)
    live_across: dict[tuple[int, str, Handler | None], frozenset[str]] = field(default_factory=dict)
    wholes: dict[tuple[int, Executor], WholeSite] = field(default_factory=dict)
    luck: dict[int, Luck] = field(default_factory=dict)
    turns: dict[tuple[int, Executor, bool], Turn | None] = field(default_factory=dict)
    rings: set[Any] = field(default_factory=set)
    loops: list[frozenset[str] | None] | None = None
    plans: Any = None
    alone: Any = None
    parts: Any = None
    updates: frozenset[int] | None = None
    late: frozenset[int] | None = None
    quiet: frozenset[int] | None = None
    descents: dict[Any, Any] = field(default_factory=dict)
    heads: frozenset[int] | None = None
    displays: frozenset[str] | None = None
    growing: bool | None = None

    @property
    def literals(self) -> frozenset[str]:
        """The variables that always hold the same tuple or slice of literals."""
        if self.displays is None:
            self.displays = literals_of(self.definitions)
        return self.displays

    @property
    def late_blocks(self) -> frozenset[int]:
        """Where threads that fork nothing may wait for those that do."""
        if self.late is None:
            self.late = late_blocks(self.blocks)
        return self.late

    @property
    def quiet_blocks(self) -> frozenset[int]:
        """Where threads call nothing any more."""
        if self.quiet is None:
            self.quiet = quiet_blocks(self.blocks)
        return self.quiet

    @property
    def descending(self) -> frozenset[int]:
        """The blocks from which threads may descend to calls that they fork."""
        if self.heads is None:
            forks = any(op.name == "fork" for block in self.blocks for op in block.ops)
            branching = (at for at, b in enumerate(self.blocks) if type(b.terminator) is Branch)
            self.heads = frozenset(branching if forks else ())
        return self.heads

    def begins(self, op: Op) -> bool:
        """Whether an operation begins an update of what is then written."""
        if self.updates is None:
            self.updates = updates_of(self.function)
        return id(op) in self.updates

    def handled_in(self, pc: int, env: dict[str, Cell]) -> Cell | None:
        """What a function that is called in a block finds being handled."""
        name = handled_at(self.blocks, pc)
        return env.get(HANDLED if name is None else name)

    @property
    def is_straight(self) -> bool:
        """One block without modes: a call of it can run within its caller's block."""
        return len(self.blocks) == 1 and not self.blocks[0].modes

    @property
    def is_outright(self) -> bool:
        """One block that returns, whatever happens in it: a driver may run all of a call."""
        (block, *more) = self.blocks
        plain = not more and not block.modes and block.handler is None
        return plain and type(block.terminator) is Return

    @classmethod
    def of(cls, function: Function) -> Code:
        live = [tuple(sorted({*names, *HIDDEN})) for names in function.live_in]
        blocks = function.blocks
        exits = [
            pc
            for pc, block in enumerate(blocks)
            if any(is_end(function, target) for target in block.successors())
        ]
        sites: list[dict[tuple[int, Executor], Site]] = [{} for _ in blocks]
        return cls(function, blocks, live, sites, frozenset(exits), definitions_of(function))

    def site(self, pc: int, position: int, executor: Executor) -> Site:
        """The place in a block where a stretch may begin, for one executor."""
        site = self.sites[pc].get((position, executor))
        if site is None:
            block = self.blocks[pc]
            ops, needed = self.cut(pc, block, position)
            site = Site(ops, position, needed, self.round(pc, block), self.literals)
            self.sites[pc][position, executor] = site
        return site

    def tail(self, block: Block) -> Tail:
        return tail_of(block.ops, self.needed(block))

    @property
    def grows(self) -> bool:
        """Whether a turn may append to a list, or assign an attribute or an item."""
        if self.growing is None:
            ops = [op.name for block in self.blocks for op in block.ops]
            stores = "setattr" in ops or "setitem" in ops
            self.growing = stores or any(self.tail(block).appends for block in self.blocks)
        return self.growing

    def cut(self, pc: int, block: Block, position: int) -> tuple[Sequence[Op], frozenset[str]]:
        """The operations of a block among which a stretch may be, and what is needed of them.

        In a loop a stretch ends before the appends that a turn runs by themselves.
        """
        needed = self.needed(block)
        tail = self.tail(block) if self.varying(pc) is not None else None
        if tail is None or not tail.appends or position >= tail.start:
            return block.ops, needed
        later = {arg for op in block.ops[tail.start :] for arg in op_reads(op)}
        return block.ops[: tail.start], needed | later

    def whole(self, pc: int, executor: Executor) -> WholeSite:
        """The site of what a block comes to, converted."""
        site = self.wholes.get((pc, executor))
        if site is None:
            converted = self.blocks[pc].converted
            assert converted is not None
            block = Block(converted.ops, converted.terminator)
            turn = self.round(pc, block)
            ops, needed = self.cut(pc, block, 0)
            site = WholeSite(ops, 0, needed, turn, self.literals)
            self.wholes[pc, executor] = site
        return site

    def varying(self, pc: int) -> frozenset[str] | None:
        """The variables that the loop assigns which a block is in; None if it is in none."""
        if self.loops is None:
            self.loops = loops_of(self.blocks)
        return self.loops[pc]

    def round(self, pc: int, block: Block) -> Round | None:
        """A block, or what it comes to, in its loop; None if it is in none."""
        varying = self.varying(pc)
        if varying is None:
            return None
        end = block.terminator
        own = self.tail(block).advance
        back = sorted((to for to in block.targets() if to < pc), reverse=True)
        found = (own, *(self.tail(self.blocks[to]).advance for to in back))
        advances = [op for op in found if op is not None]
        item = advances[0].outs[0] if advances else None
        condition = end.condition if isinstance(end, Branch) else None
        if own is not None and condition == own.outs[1]:
            condition = None
        return Round(varying, condition, item, self.grows)

    def turn(self, pc: int, executor: Executor, whole: bool) -> Turn | None:
        """What a block of a loop is to threads that come by again; None if it is nothing plain.

        ``whole``: what it comes to, converted.
        """
        key = (pc, executor, whole)
        if key not in self.turns:
            self.turns[key] = turn_of(self, pc, executor, whole)
        return self.turns[key]

    def diamond(self, pc: int) -> Diamond | None:
        """The diamond that begins at the branch of a block, if one does."""
        if pc not in self.diamonds:
            self.diamonds[pc] = diamond_of(self, pc)
        return self.diamonds[pc]

    def after(self, pc: int, op: Op) -> frozenset[str]:
        """The variables that are read once an operation of a block is done."""
        found = self.live_after.get(id(op))
        if found is None:
            block = self.blocks[pc]
            position = next(at for at, each in enumerate(block.ops) if each is op)
            later = {arg for each in block.ops[position + 1 :] for arg in op_reads(each)}
            found = self.live_after[id(op)] = self.needed(block).union(later)
        return found

    def kept(self, call: Call, handler: Handler | None) -> frozenset[str]:
        """The variables that are needed after a call, wherever its threads go on."""
        key = (call.target, call.out, handler)
        found = self.live_across.get(key)
        if found is None:
            names = frozenset(self.live[call.target]) - {call.out}
            if handler is not None:
                names |= frozenset(self.live[handler.target]) - {handler.out}
            found = self.live_across[key] = names
        return found

    def alive(self, pc: int, op: Op) -> frozenset[str]:
        """The same, with what moves along for others."""
        return self.after(pc, op) | HIDDEN

    def needed(self, block: Block) -> frozenset[str]:
        """The variables that are read when a block's operations are done."""
        wanted: set[str] = set(block.modes)
        for target in block.successors():
            wanted |= self.function.live_in[target]
        match block.terminator:
            case Branch(condition=condition):
                wanted.add(condition)
            case Call(callee=callee, args=args):
                wanted |= {callee, *args}
            case Return(value=value):
                wanted.add(value)
            case Raise(exception=exception, cause=cause):
                wanted |= {exception} | ({cause} if cause is not None else set())
        return frozenset(wanted)


def loops_of(blocks: Sequence[Block]) -> list[frozenset[str] | None]:
    """For each block the variables assigned in its loop, the outermost; None if it is in none."""
    after = reaching(blocks)
    found: list[frozenset[str] | None] = []
    for pc, ways in enumerate(after):
        loop = [blocks[at] for at in ways if pc in after[at]] if pc in ways else []
        parts = [part for block in loop for part in (block, block.converted) if part is not None]
        assigned = {out for part in parts for op in part.ops for out in op.outs}
        assigned |= {block.terminator.out for block in loop if type(block.terminator) is Call}
        found.append(frozenset(assigned) if loop else None)
    return found
