"""Branches on what forked calls give, as one operation: the loop around them forks all its calls.

Before:                                  After:

    b1: call f(c) -> v, then b2              b1: call f(c) -> v, then b2
    b2: %1 = gt v, best                      b2: %if.2 = function[g.if]
        branch %1 ? b3 : b4                      best = call %if.2(best, v)
    b3: best = copy v                            jump b4
        jump b4                              b4: %2, %3 = next %4
    b4: %2, %3 = next %4                         branch %3 ? b1 : b5
        branch %3 ? b1 : b5
                                             g.if(best, v):
                                             b0: %1 = gt v, best
                                                 branch %1 ? b1 : b2
                                             b1: best = copy v
                                                 jump b2
                                             b2: return best

Such a call waits with the calls that it is of, and runs after them, round after round: what fails
in it, or in a later call, fails in the order of the program (see ``vm.forks``). So the branch must
be pure, and leave by one way: a ``break`` or a ``return`` decides which calls are made at all.

In: a function after the pipeline, and the block of a call in a loop. Out: the function with the
branches on what that gives taken out, where they can be; None if none can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial

from autobatch.ir.dataflow import (
    liveness,
    op_writes,
    predecessors,
    reaching,
    terminator_writes,
    unbound_before,
)
from autobatch.ir.ops import COMPUTED, INPLACE, SUMS
from autobatch.ir.program import (
    Block,
    Branch,
    Call,
    CallShape,
    Function,
    Jump,
    Label,
    Op,
    Param,
    Return,
    UnpackShape,
    Var,
)
from autobatch.passes.forked_results import Knowledge
from autobatch.source import Span

NAME = ".if"
"""What the name of a branch's function ends in: no name of the user's does."""
TAKEN = (COMPUTED - INPLACE) | {
    *SUMS,
    *("const", "copy", "global", "getattr", "getitem", "tuple", "unpack", "truth", "select"),
}
"""Operations that a branch may hold: they write nothing, and what they read is not written here."""


def with_branches_taken(function: Function, fork: Label, knowledge: Knowledge) -> Function | None:
    """The function with the branches on what a call gives, within its loop, as operations."""
    blocks = function.blocks
    reached = reaching(blocks)
    loop = {label for label in reached[fork] if fork in reached[label]}
    if not loop:
        return None
    given, numbers = depending(blocks, fork), numbers_in(blocks)
    may_take = partial(is_taken, knowledge, numbers)
    made = function
    for label in sorted(loop):
        end = made.blocks[label].terminator
        if isinstance(end, Branch) and end.condition in given:
            taken = Region.of(made, label, may_take)
            if taken is not None:
                made = taken.outlined()
                given = depending(made.blocks, fork)
    return None if made is function else made


def depending(blocks: Sequence[Block], fork: Label) -> set[Var]:
    """The variables that may hold what comes of a call."""
    call = blocks[fork].terminator
    assert isinstance(call, Call)
    found, size = {call.out}, 0
    while size != (size := len(found)):
        for block in blocks:
            for op in block.ops:
                if found.intersection(op.args):
                    found.update(op.outs)
    return found


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Region:
    """The branch at the end of a block, with the operations before it from ``start`` on.

    ``labels`` are the blocks that lie between the branch and where its ways meet, ``end``.
    """

    function: Function
    first: Label
    start: int
    labels: tuple[Label, ...]
    end: Label
    live: tuple[frozenset[Var], ...] = field(repr=False)

    @classmethod
    def of(cls, function: Function, first: Label, may_take: Callable[[Op], bool]) -> Region | None:
        """The region that can be taken out as one operation, if one can."""
        blocks = function.blocks
        sources = predecessors(blocks)
        labels = [first]
        while len(ends := leaving(blocks, labels)) > 1:
            more = [
                label
                for label in ends
                if set(sources[label]) <= set(labels) and is_whole(blocks[label], may_take)
            ]
            if not more:
                return None
            labels += more
        (end,) = ends or {first}
        if end in labels or blocks[end].handler is not None or blocks[end].modes:
            return None
        start = start_of(blocks[first], may_take)
        region = cls(function, first, start, tuple(labels[1:]), end, liveness(blocks))
        return region if region.outs and region.is_bound() else None

    def taken(self) -> Iterator[tuple[Label, Block]]:
        """The blocks that are taken out; of the first what is from ``start`` on."""
        blocks = self.function.blocks
        yield self.first, replace(blocks[self.first], ops=blocks[self.first].ops[self.start :])
        for label in self.labels:
            yield label, blocks[label]

    @property
    def outs(self) -> tuple[Var, ...]:
        """What it assigns that is needed after it."""
        assigned = {name for _, block in self.taken() for op in block.ops for name in op.outs}
        return tuple(sorted(assigned & self.live[self.end]))

    def inner(self) -> tuple[Block, ...]:
        """The blocks of its function."""
        exit_ = len(self.labels) + 1
        places = {label: at for at, (label, _) in enumerate(self.taken())} | {self.end: exit_}
        blocks = [replace(block, converted=None).retargeted(places) for _, block in self.taken()]
        return (*blocks, self.exit())

    def exit(self) -> Block:
        span, outs = self.span, self.outs
        if len(outs) == 1:
            return Block((), Return(outs[0], span))
        given = "%given"
        return Block((Op("tuple", (given,), outs, None, span),), Return(given, span))

    @property
    def span(self) -> Span:
        return self.function.blocks[self.first].terminator.span

    @property
    def params(self) -> tuple[Var, ...]:
        return tuple(sorted(liveness(self.inner())[0]))

    def is_bound(self) -> bool:
        """Whether all that it is given has a value."""
        function = self.function
        names = {param.name for param in function.params}
        unbound = unbound_before(function.blocks, names)[self.first]
        before = function.blocks[self.first].ops[: self.start]
        assigned = {name for op in before for name in op_writes(op)}
        return unbound.intersection(self.params) <= assigned

    def outlined(self) -> Function:
        """The function with a call in the region's place; its blocks lead nowhere any more."""
        function, span = self.function, self.span
        params, outs = self.params, self.outs
        names = {name: parameter(name, params) for name in params}
        first, *others = self.inner()
        temporaries = [
            Op("copy", (name,), (named,), None, span)
            for name, named in names.items()
            if name != named
        ]
        inner = Function(
            function.name + NAME,
            tuple(Param(name, "positional", False) for name in names.values()),
            (replace(first, ops=(*temporaries, *first.ops)), *others),
            (),
            span,
        )
        callee, given = f"%if.{self.first}", f"%if.{self.first}.given"
        shape = CallShape((False,) * len(params))
        call_out = outs if len(outs) == 1 else (given,)
        ops = [
            *function.blocks[self.first].ops[: self.start],
            Op("function", (callee,), (), inner, span),
            Op("call", call_out, (callee, *params), shape, span),
        ]
        if len(outs) > 1:
            ops.append(Op("unpack", outs, (given,), UnpackShape(len(outs)), span))
        blocks = list(function.blocks)
        blocks[self.first] = Block(tuple(ops), Jump(self.end, span))
        for label in self.labels:  # nothing comes here
            blocks[label] = Block((), Jump(self.end, span))
        return replace(function, blocks=tuple(blocks), nested=(*function.nested, inner), live_in=())


def parameter(name: Var, others: Sequence[Var]) -> Var:
    """What a parameter can be called that holds a variable, a temporary perhaps."""
    named = name if name.isidentifier() else "".join(c if c.isalnum() else "_" for c in name)
    while named != name and named in others:
        named += "_"
    return named


def leaving(blocks: Sequence[Block], labels: Sequence[Label]) -> set[Label]:
    """Where the ways lead that leave some blocks."""
    return {target for label in labels for target in blocks[label].successors()} - set(labels)


def is_whole(block: Block, may_take: Callable[[Op], bool]) -> bool:
    """Whether a block behind a branch can be taken out with it."""
    plain = block.handler is None and not block.modes
    ends = isinstance(block.terminator, Jump | Branch)
    return plain and ends and start_of(block, may_take) == 0


def start_of(block: Block, may_take: Callable[[Op], bool]) -> int:
    """From which operation on all of a block's may be taken out."""
    start = len(block.ops)
    while start and may_take(block.ops[start - 1]):
        start -= 1
    return start


def is_taken(knowledge: Knowledge, numbers: Set[Var], op: Op) -> bool:
    """Whether a branch may hold an operation."""
    if op.name in INPLACE:
        return numbers >= set(op.args)
    return op.name in TAKEN or (op.name == "call" and knowledge.gives_value(op))


def numbers_in(blocks: Sequence[Block]) -> Set[Var]:
    """The variables that hold nothing but numbers, made of literals: nobody can write them."""
    ops = [op for block in blocks for op in block.ops]
    found = {out for op in ops for out in op.outs}
    found -= {name for block in blocks for name in terminator_writes(block.terminator)}
    found -= {block.handler.out for block in blocks if block.handler is not None}
    size = -1
    while size != (size := len(found)):
        for op in ops:
            if not is_number(op, found):
                found.difference_update(op.outs)
    return found


def is_number(op: Op, numbers: Set[Var]) -> bool:
    """Whether an operation gives a number, if some variables are such."""
    if op.name == "const":
        return type(op.attr) in (int, float, bool)
    return op.name in (*COMPUTED, "copy") and numbers >= set(op.args)


def takes_branch(op: Op, functions: Set[Var]) -> bool:
    """Whether an operation is the call of a branch that has been taken out."""
    return op.name == "call" and op.args[0] in functions


def taken_in(blocks: Sequence[Block]) -> frozenset[Var]:
    """The variables that hold the functions of branches."""
    return frozenset(
        op.outs[0]
        for block in blocks
        for op in block.ops
        if op.name == "function" and op.attr.name.endswith(NAME)
    )
