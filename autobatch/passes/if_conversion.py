"""If-conversion: short branches of cheap operations become selects, beside the blocks they are of.

Before:                              After, beside b1:

    b1: %6 = eq %4, %5                   b1 converted, to the end of b4:
        branch %6 ? b2 : b3                  %6 = eq %4, %5
    b2: n = floordiv n, %7                   %if.b1 = truth %6
        jump b4                              n.b2 = floordiv n, %7
    b3: n = mul %8, n                        n.b3 = mul %8, n
        jump b4                              n = select %if.b1, n.b2, n.b3
    b4: %2 = ne n, %1                        %2 = ne n, %1
        branch %2 ? b1 : b5                  branch %2 ? b1 : b5

One block execution and one host read, where the blocks take four and two, and no row is moved. A
``and`` or ``or`` whose second half is cheap, and assigns nothing that is read where the first one
decides, is converted too: both halves are computed.

Both ways are computed for threads that do not take them, so their operations must be ``SAFE``: on
numbers and tensors, they neither fail on any value nor have an effect (``n += 1`` has one on a
tensor; no such recording is made). What else the operands may be is known as the program runs, and
so is whether two names mean one tensor: an engine runs the converted block only where it has a
recording of the whole of it that checks nothing (see ``vm.driven``), and the blocks themselves
anywhere else. Gradients stay those of the blocks: where one is wanted, these run.

In: blocks in their final order. Out: the same, with ``converted`` where it is worth having. What
leads to the exit is left as it is, since a result is traced back to its ``return``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autobatch.ir.costs import LAUNCH, PARTING
from autobatch.ir.dataflow import liveness, postdominators, reaching
from autobatch.ir.ops import FREE, RECORDED, SAFE, SAFE_CALLS, SAFE_GLOBALS, SAFE_INPLACE
from autobatch.ir.program import (
    Block,
    Branch,
    Converted,
    Function,
    Join,
    Jump,
    Label,
    Op,
    Terminator,
    Var,
)
from autobatch.source import Span

MOST = round(PARTING / LAUNCH)
"""Operations on a way that cost less than to part threads and let them meet again."""
LONGEST = 80
"""Operations of a converted block, copied from the blocks that it is made of."""


def convert_ifs(function: Function) -> Function:
    """The function with converted blocks beside those that begin a short branch."""
    blocks = function.blocks
    meets, reached = nearest_postdominators(blocks), reaching(blocks)
    conversion = Conversion(blocks, liveness(blocks), meets, reached)
    made = [conversion.of(label) for label in range(len(blocks))]
    pairs = zip(blocks, made, strict=True)
    return replace(function, blocks=tuple(replace(b, converted=new) for b, new in pairs))


def nearest_postdominators(blocks: Sequence[Block]) -> list[Label | None]:
    """For each block, the first other one that all ways from it come to; None if there is none."""
    after = postdominators(blocks)

    def nearest(label: Label) -> Label | None:
        others = after[label] - {label}
        return next((other for other in others if len(after[other]) == len(others)), None)

    return [nearest(label) for label in range(len(blocks))]


@dataclass(slots=True, eq=False, repr=False)
class Trail:
    """Straight-line code in the making: from which blocks, and how it ends up to now."""

    ops: list[Op]
    at: Label
    terminator: Terminator
    seen: set[Label]
    converted: bool = False


@dataclass(frozen=True, slots=True)
class Conversion:
    """The blocks of a function, what lives at each, where the ways from each meet again, and what
    each leads to.
    """

    blocks: Sequence[Block]
    live: Sequence[frozenset[Var]]
    meets: Sequence[Label | None]
    reached: Sequence[set[Label]]

    def of(self, start: Label) -> Converted | None:
        """What a block that ends in a branch comes to; None if nothing is to be converted."""
        block = self.blocks[start]
        if not isinstance(block.terminator, Branch) or not is_plain(block):
            return None
        trail = Trail(list(block.ops), start, block.terminator, {start})
        while self.grown(trail):
            pass
        if not trail.converted or len(trail.ops) > LONGEST:
            return None
        return Converted(tuple(trail.ops), trail.terminator, trail.at)

    def grown(self, trail: Trail) -> bool:
        """Take in what follows, if that can be."""
        match trail.terminator:
            case Branch() as branch:
                return self.joined(trail, branch) or self.combined(trail, branch)
            case Jump(target=target):
                return self.followed(trail, target)
        return False

    def followed(self, trail: Trail, target: Label) -> bool:
        after = self.blocks[target]
        ends = isinstance(after.terminator, Jump | Branch)
        if target in trail.seen or not ends or not is_plain(after) or self.peels(trail, target):
            return False
        if len(trail.ops) + len(after.ops) > LONGEST:
            return False
        trail.seen.add(target)
        trail.ops += after.ops
        trail.at, trail.terminator = target, after.terminator
        return True

    def joined(self, trail: Trail, branch: Branch) -> bool:
        """Take in both ways of a branch, up to where they meet."""
        meeting = self.meets[trail.at]
        if meeting is None or self.is_exit(meeting):
            return False
        ops = self.both_ways(trail.at, branch, meeting, trail.seen)
        if ops is None:
            return False
        trail.ops += ops
        trail.terminator, trail.converted = Jump(meeting, branch.span), True
        return True

    def both_ways(
        self, at: Label, branch: Branch, meeting: Label, seen: set[Label]
    ) -> list[Op] | None:
        """The operations of both ways of a branch, and selects of what they assign."""
        ways = [self.way(to, meeting, seen) for to in (branch.then, branch.otherwise)]
        if ways[0] is None or ways[1] is None:
            return None
        condition = f"%if.b{at}"
        named = [
            renamed(ops, f".b{to}")
            for to, ops in zip((branch.then, branch.otherwise), ways, strict=True)
            if ops is not None
        ]
        assigned = {name for _, names in named for name in names} & self.live[meeting]
        (then, yes), (otherwise, no) = named
        return [
            Op("truth", (condition,), (branch.condition,), None, branch.span),
            *then,
            *otherwise,
            *(
                selected(name, condition, yes.get(name, name), no.get(name, name), branch.span)
                for name in sorted(assigned)
            ),
        ]

    def way(self, at: Label, meeting: Label, seen: set[Label]) -> list[Op] | None:
        """The operations from a block to where the ways meet, if they are cheap and safe."""
        ops: list[Op] = []
        seen = set(seen)
        while at != meeting:
            block = self.blocks[at]
            if at in seen or not is_plain(block):
                return None
            seen.add(at)
            ops += block.ops
            match block.terminator:
                case Jump(target=target):
                    at = target
                case Branch() as branch if (inner := self.meets[at]) is not None:
                    more = self.both_ways(at, branch, inner, seen)
                    if more is None:
                        return None
                    ops += more
                    at = inner
                case _:
                    return None
        return ops if is_cheap(ops) and are_safe(ops) else None

    def combined(self, trail: Trail, branch: Branch) -> bool:
        """Take in the second half of an ``and`` or an ``or``: a branch that shares a way."""
        for second in (branch.then, branch.otherwise):
            half = self.blocks[second]
            if not isinstance(half.terminator, Branch) or second in trail.seen:
                continue
            if self.peels(trail, second):
                continue
            if not is_plain(half) or not is_cheap(half.ops) or not are_safe(half.ops):
                continue
            shared = branch.otherwise if second == branch.then else branch.then
            assigned = {out for op in half.ops for out in op.outs}
            if shared not in half.successors() or assigned & self.live[shared]:
                continue
            if not self.is_exit(shared):
                self.take(trail, branch, second, shared)
                return True
        return False

    def take(self, trail: Trail, branch: Branch, second: Label, shared: Label) -> None:
        """Compute the second half for all, and go on by both conditions."""
        half = self.blocks[second]
        inner = half.terminator
        assert isinstance(inner, Branch)
        first, condition, known = f"%if.b{trail.at}", f"%if.b{second}", f"%known.b{second}"
        ops, names = renamed(half.ops, f".b{second}")
        asked = names.get(inner.condition, inner.condition)
        is_then = second == branch.then
        trail.ops += [
            Op("truth", (first,), (branch.condition,), None, branch.span),
            *ops,
            Op("truth", (condition,), (asked,), None, inner.span),
            Op("const", (known,), (), inner.then == shared, inner.span),
            selected(condition, first, *ordered(is_then, condition, known), inner.span),
        ]
        further = inner.otherwise if inner.then == shared else inner.then
        for name in sorted(names.keys() & self.live[further]):
            trail.ops.append(Op("copy", (name,), (names[name],), None, inner.span))
        trail.at, trail.converted = second, True
        trail.terminator = replace(inner, condition=condition)
        trail.seen.add(second)

    def peels(self, trail: Trail, label: Label) -> bool:
        """Whether a block is of a loop that the code in the making is not in: its first round."""
        return label in self.reached[label] and trail.at not in self.reached[label]

    def is_exit(self, label: Label) -> bool:
        """Whether it gives the result that it is handed: then it matters where threads are from."""
        block = self.blocks[label]
        while isinstance(block.terminator, Join) and not block.ops:
            label = block.terminator.target
            block = self.blocks[label]
        return label == len(self.blocks) - 1 and not block.ops


def ordered(straight: bool, one: Var, other: Var) -> tuple[Var, Var]:
    return (one, other) if straight else (other, one)


def selected(name: Var, condition: Var, yes: Var, no: Var, span: Span) -> Op:
    return Op("select", (name,), (condition, yes, no), None, span)


def is_plain(block: Block) -> bool:
    """Whether it enters no mode, has no handler, and a recording can hold it."""
    if block.modes or block.handler is not None:
        return False
    return all(op.name in RECORDED for op in block.ops)


def is_cheap(ops: Sequence[Op]) -> bool:
    return sum(op.name not in FREE for op in ops) <= MOST


def are_safe(ops: Sequence[Op]) -> bool:
    """Whether operations on numbers and tensors fail on no value, and have no effect."""
    known: dict[Var, object] = {}
    callees: set[Var] = set()
    for op in ops:
        match op.name:
            case "const":
                known[op.outs[0]] = op.attr
            case "global" if op.attr in SAFE_GLOBALS:
                callees.add(op.outs[0])
            case "getattr" if op.attr in SAFE_CALLS:
                callees.add(op.outs[0])
            case "call" if op.args[0] in callees and op.attr.is_plain:
                pass
            case "floordiv" | "mod":
                if not is_number(divisor := known.get(op.args[1])) or not divisor:
                    return False
            case "pow":
                if not is_number(power := known.get(op.args[1])) or not power >= 0:  # type: ignore[operator]
                    return False
            case name if name not in SAFE and name not in SAFE_INPLACE:
                return False
    return True


def is_number(value: object) -> bool:
    return type(value) in (int, float)


def renamed(ops: Sequence[Op], suffix: str) -> tuple[list[Op], dict[Var, Var]]:
    """The operations with what they assign under names of their own, and these names."""
    names: dict[Var, Var] = {}
    found: list[Op] = []
    for op in ops:
        args = tuple(names.get(arg, arg) for arg in op.args)
        names.update({out: out + suffix for out in op.outs})
        found.append(replace(op, args=args, outs=tuple(names[out] for out in op.outs)))
    return found, names
