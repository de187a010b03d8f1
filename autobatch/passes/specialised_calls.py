"""Specialisation of calls: a call that passes literals runs a copy of the function made for them.

Before:                                  After:

    b1: %1 = const True                      b1: %1 = const True
        call f(x, %1) -> y, then b2              %f.b1 = const <f, a copy>
    b2: return y                                 call %f.b1(x, %1) -> y, then b2
                                             b2: return y
    f(x, quiet):
    b0: branch quiet ? b2 : b1               f(x, quiet), the copy:
    b1: x = add x, x                         b0: quiet = const True
        jump b2                                  jump b1
    b2: x = neg x                            b1: branch quiet ? b3 : b2
        …                                        …   (which clearing up decides)

A copy is worth making where literals decide branches of the function's; of those that a call
passes it is for the ones that are needed to decide as much, so that calls which agree in these
share one. A forked call is changed where all that are forked of the same function pass the same,
since they run as one. How many copies a function has is bounded by who makes them (``vm.library``),
their size by ``LARGEST``. The call passes what it passed: nothing depends on which of the two runs.

In: a function after ``fork_calls``, which has taken the calls that run better as one, before
``inline_calls``, which may take a copy in where the function has a loop that a literal leaves out;
and what is known of its calls. Out: the function; the pipeline is to run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autobatch.ir.ops import OF_A_FRAME
from autobatch.ir.program import (
    Block,
    Branch,
    Call,
    CallShape,
    Function,
    Jump,
    Label,
    Op,
    Var,
)
from autobatch.passes.facts import NOTHING, Facts, Literal, after, facts_after, facts_before
from autobatch.passes.inlining import Callee, bound, operations_of, reads_of, without_lookup

LARGEST = 400
"""Operations of a function that is worth having twice."""
Constants = tuple[tuple[Var, Literal], ...]
"""Parameters with what they are, by name."""
Way = tuple[Label, Label]
NUMBERS = ("int", "float")


def specialise_calls(
    function: Function,
    callee: Callable[[Call], Callee | None],
    copy: Callable[[Call, Constants], object | None],
) -> Function:
    """The function with copies called where literals decide what a callee does.

    ``callee`` says what a call is sure to run, if that is known; ``copy`` gives the Python object
    of its copy for constants, None where there is to be none.
    """
    found = [site for site in sites(function) if (runs := callee(site.call)) and site.knows(runs)]
    blocks = list(function.blocks)
    reads = reads_of(function)
    for site in found:
        made = copy(site.call, site.constants) if site.is_alike(found) else None
        if made is not None:
            blocks[site.label] = site.calling(made, blocks[site.label], reads)
    same = all(new is old for new, old in zip(blocks, function.blocks, strict=True))
    return function if same else replace(function, blocks=tuple(blocks), live_in=())


@dataclass(eq=False, repr=False)
class Site:
    """A call, or a forked one, with what is known where it stands; ``op`` is the fork.

    ``runs`` is what it calls, ``constants`` the literals that it passes and that decide something.
    """

    label: Label
    call: Call
    facts: Facts
    op: Op | None = None
    runs: Callee | None = None
    constants: Constants = ()

    @property
    def passes_literals(self) -> bool:
        return any(isinstance(self.facts.get(arg), Literal) for arg in self.call.args)

    def knows(self, runs: Callee) -> bool:
        """Note what it calls, which is known."""
        self.runs = runs
        self.constants = passed(runs, self.call, self.facts) if self.passes_literals else ()
        return True

    def is_alike(self, sites: Sequence[Site]) -> bool:
        """Whether there is something to gain; forked calls of one function are to run as one."""
        assert self.runs is not None
        if self.op is None or not self.constants:
            return bool(self.constants)
        function = self.runs.function
        others = (site for site in sites if site.op is not None)
        same = (site for site in others if site.runs and site.runs.function is function)
        return all(site.constants == self.constants for site in same)

    def calling(self, made: object, block: Block, reads: Counter[Var]) -> Block:
        """Its block with another function called; a method's gets its receiver."""
        assert self.runs is not None
        call, receiver = self.call, self.runs.receiver
        name = f"%{getattr(made, '__name__', 'copy')}.{call.out.removeprefix('%')}.b{self.label}"
        look = Op("const", (name,), (), made, call.span)
        args, shape = call.args, call.shape
        if receiver is not None:
            args = (receiver, *args)
            shape = replace(shape, positional=(False, *shape.positional))
        if self.op is None:
            block = without_lookup(block, call, reads)
            ended = replace(call, callee=name, args=args, shape=shape)
            return replace(block, ops=(*block.ops, look), terminator=ended)
        attr = shape if self.op.name == "fork" else ("fork", shape)
        forked = replace(self.op, args=(name, *args), attr=attr)
        at = next(place for place, op in enumerate(block.ops) if op is self.op)
        return replace(block, ops=(*block.ops[:at], look, forked, *block.ops[at + 1 :]))


def sites(function: Function) -> Iterator[Site]:
    """The calls of a function, and those that it forks."""
    blocks = function.blocks
    for label, (block, facts) in enumerate(zip(blocks, facts_before(blocks), strict=True)):
        for op in block.ops:
            shape = shape_of(op)
            if shape is not None:
                call = Call(op.outs[0], op.args[0], op.args[1:], shape, label, op.span)
                yield Site(label, call, facts, op)
            facts = after(op, facts)
        if isinstance(block.terminator, Call):
            yield Site(label, block.terminator, facts)


def shape_of(op: Op) -> CallShape | None:
    """How a fork passes what it passes; None of what is no fork."""
    if op.name == "fork":
        shape: CallShape = op.attr
        return shape
    return op.attr[1] if op.name == "defer" and op.attr[0] == "fork" else None


def passed(callee: Callee, call: Call, facts: Facts) -> Constants:
    """The literals that a call passes and that decide what its callee does."""
    given = bound(callee, call)
    if given is None or not may_copy(callee.function):
        return ()
    found = {name: facts.get(arg) for name, arg in given.items()}
    return deciding(
        callee.function,
        {name: value for name, value in found.items() if isinstance(value, Literal)},
    )


def may_copy(function: Function) -> bool:
    """Whether a function means the same under another one's name, and is short enough."""
    ops = (op for block in function.blocks for op in block.ops)
    framed = function.free or function.nested or any(op.name in OF_A_FRAME for op in ops)
    return not framed and 0 < operations_of(function) <= LARGEST


def deciding(function: Function, constants: Mapping[Var, Literal]) -> Constants:
    """Of parameters that are literals those without which threads may go more ways."""
    spared = gain(function, constants)
    if not spared:
        return ()
    kept = dict(constants)
    for name in constants:
        fewer = {other: value for other, value in kept.items() if other != name}
        if spared <= gain(function, fewer):
            kept = fewer
    return tuple(sorted(kept.items()))


def gain(function: Function, constants: Mapping[Var, Literal]) -> set[Way]:
    """The ways that nobody goes whose parameters are these.

    Of numbers, those alone count that leave a block out: that a loop has some rounds is no gain.
    """
    flags = {name: value for name, value in constants.items() if value.kind not in NUMBERS}
    all_ways = ways(function, NOTHING)
    spared = all_ways - ways(function, flags)
    left = ways(function, constants)
    to = {target for _, target in left}
    return spared | {way for way in all_ways - left if way[1] not in to}


def ways(function: Function, facts: Facts) -> set[Way]:
    """From which block to which threads may go whose parameters are what ``facts`` say."""
    before = facts_before(function.blocks, facts)
    found: set[Way] = set()
    seen: set[Label] = set()
    waiting = [0]
    while waiting:
        label = waiting.pop()
        if label in seen:
            continue
        seen.add(label)
        block = function.blocks[label]
        end, targets = block.terminator, block.successors()
        if isinstance(end, Branch):
            known = facts_after(block, before[label]).get(end.condition)
            if isinstance(known, Literal):
                targets = (end.then if known.value else end.otherwise, *targets[2:])
        found.update((label, target) for target in targets)
        waiting += targets
    return found


def copied(function: Function, constants: Constants) -> Function:
    """A function that begins with what some of its parameters are."""
    span = function.blocks[0].terminator.span
    known = (Op("const", (name,), (), literal.value, span) for name, literal in constants)
    moved = {label: label + 1 for label in range(len(function.blocks))}
    blocks = (block.retargeted(moved) for block in function.blocks)
    entry = Block(tuple(known), Jump(1, span))
    return replace(function, blocks=(entry, *blocks), live_in=())
