"""Fork-join calls: pure calls that do not need each other's results run as one, at a join.

Before:                                  After:

    b2: %5 = sub n, %4                       b2: %5 = sub n, %4
        call f(%5) -> %6, then b3                %6 = fork f(%5)
    b3: %9 = sub n, %8                           %9 = sub n, %8
        call f(%9) -> %10, then b4               %10 = fork f(%9)
    b4: %return = add %6, %10                    join, then b3
        jump b5                              b3: %return = add %6, %10
                                                 jump b4

A call becomes a *fork*, an operation that only notes the call, and threads go on until one needs
a result or does what others can see. There stands a *join*: all threads that come to it run
their forked calls as one. So calls in one expression, on the two sides of an ``if``, in a loop
or a comprehension meet; a branch after which nothing more is forked has its join before it, as it
would part those that are to meet. In between, a forked result may be moved (into a tuple or a
list), and within the loop that forks it, an operation on it is *deferred* until after the join:
then ``total += f(c)`` does not end the loop's first round.

A fork that would come to its join alone, outside of a loop, stays a call. Nothing is forked in a
block with a handler, nor pending at its start: the handler is for what fails there. In: a function
after the pipeline, and what is known of its calls. Out: the function; the pipeline is to run
again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Protocol

from autobatch.ir.dataflow import op_writes, reaching, terminator_reads, terminator_writes
from autobatch.ir.ops import COMPUTED, INPLACE, MOVES, STORES, info
from autobatch.ir.program import (
    Block,
    Branch,
    Call,
    Function,
    Join,
    Jump,
    Label,
    Op,
    Raise,
    Return,
    Var,
)
from autobatch.passes.origins import OUTER, Fate, Given, Origins, Outer, Sources


class Knowledge(Protocol):
    """What the pass asks about calls. ``seeded``: those that draw may be forked."""

    @property
    def seeded(self) -> bool: ...

    def may_fork(self, call: Call) -> bool:
        """Whether a call can run out of turn."""

    def is_quiet(self, op: Op | Call) -> bool:
        """Whether a call has no effect that others can see, and is not known to be a fork's."""

    def appends_to(self, op: Op) -> Var | None:
        """The list that ``xs.append(x)`` appends to, if the operation is that."""

    def gives_value(self, op: Op) -> bool:
        """Whether a call is of a builtin or torch function that is known, and pure."""

    def fate(self, call: Op | Call) -> Fate:
        """What becomes of a call's arguments."""


@dataclass(frozen=True, slots=True)
class Fact:
    """At a point: variables that may hold a forked result, and the blocks of forks not joined."""

    tainted: frozenset[Var] = frozenset()
    pending: frozenset[Label] = frozenset()

    def join(self, other: Fact) -> Fact:
        return Fact(self.tainted | other.tainted, self.pending | other.pending)


NOTHING = Fact()


def fork_calls(function: Function, knowledge: Knowledge) -> Function:
    """The function with calls forked wherever several can run as one.

    Calls of what others give are, if that leaves no other call out.
    """
    candidates = {
        label
        for label, block in enumerate(function.blocks)
        if isinstance(block.terminator, Call)
        and not block.modes
        and block.handler is None
        and knowledge.may_fork(block.terminator)
    }
    plain = settled(function, knowledge, candidates, nested=False)
    deep = None
    if len(candidates) > 1 and not knowledge.seeded:  # draws are counted where calls are forked
        deep = settled(function, knowledge, candidates, nested=True)
    if deep is not None and (plain is None or plain.useful <= deep.useful):
        return deep.joined()
    return function if plain is None else plain.joined()


def settled(
    function: Function, knowledge: Knowledge, chosen: set[Label], nested: bool
) -> Forking | None:
    """The forks of a function, all of which meet others; None if there are none.

    ``nested``: a call of what a forked one gives is forked too, when that is there.
    """
    while chosen:
        forked = replace(
            function,
            blocks=tuple(
                with_fork(block) if label in chosen else block
                for label, block in enumerate(function.blocks)
            ),
        )
        forking = Forking(forked, knowledge, nested)
        parting = forking.parting()
        if parting:
            forking = Forking(forked, knowledge, nested, parting)
        if forking.useful == chosen:
            return forking
        chosen = forking.useful & chosen
    return None


def with_fork(block: Block) -> Block:
    """The block that forks the call it ends in."""
    call = block.terminator
    assert isinstance(call, Call)
    op = Op("fork", (call.out,), (call.callee, *call.args), call.shape, call.span)
    return replace(block, ops=(*block.ops, op), terminator=Jump(call.target, call.span))


@dataclass(eq=False)
class Forking:
    """A function with forks, and where it needs joins.

    ``useful`` are the blocks of forks that meet others; ``places[label]`` are the positions in a
    block before which a join is due, that of the terminator being the number of operations.
    With ``nested``, a fork of what others give waits for them, and a join runs them level by level.
    Before the branches of the blocks ``joining`` there is a join, too. ``ending[label]`` are the
    forks pending at the end of a block, ``met[label]`` those that its joins run.
    """

    function: Function
    knowledge: Knowledge
    nested: bool = False
    joining: frozenset[Label] = frozenset()
    levels: dict[Label, int] = field(default_factory=dict)
    useful: set[Label] = field(default_factory=set)
    places: dict[Label, set[int]] = field(default_factory=dict)
    deferred: dict[Label, set[int]] = field(default_factory=dict)
    ending: dict[Label, frozenset[Label]] = field(default_factory=dict)
    met: dict[Label, frozenset[Label]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sources = Sources(self.function, fate=self.knowledge.fate)
        blocks = self.function.blocks
        before = [NOTHING] * len(blocks)
        work = list(range(len(blocks)))
        while work:
            label = work.pop(0)
            after = self.through(label, before[label])
            for target in blocks[label].successors():
                joined = before[target].join(after)
                if joined != before[target]:
                    before[target] = joined
                    work.append(target)

    def through(self, label: Label, fact: Fact) -> Fact:
        """The fact at the end of a block; notes where joins are due, and what is deferred."""
        block = self.function.blocks[label]
        for position, op in enumerate(block.ops):
            deferring = self.is_deferred(label, op, fact)
            if not deferring and self.needs_join(label, op, fact):
                fact = self.join_at(label, position, fact)
            if deferring:
                self.deferred.setdefault(label, set()).add(position)
            fact = self.after(label, op, fact, deferring)
        if self.ends_pending(label, block, fact):
            fact = self.join_at(label, len(block.ops), fact)
        self.ending[label] = fact.pending
        return Fact(fact.tainted.difference(terminator_writes(block.terminator)), fact.pending)

    def join_at(self, label: Label, position: int, fact: Fact) -> Fact:
        self.places.setdefault(label, set()).add(position)
        self.met[label] = self.met.get(label, frozenset()) | fact.pending
        if self.nested:
            self.useful |= self.meeting(fact.pending)
        elif len(fact.pending) > 1:
            self.useful |= fact.pending
        return NOTHING

    def parting(self) -> frozenset[Label]:
        """The blocks whose branch parts threads on their way to a join, to no avail.

        Nothing forks more on any way from there, and no calls of other ways come to the same join:
        the threads' calls run as one before the branch, or in parts after it.
        """
        branches = (
            label
            for label, block in enumerate(self.function.blocks)
            if isinstance(block.terminator, Branch) and self.ending[label]
        )
        return frozenset(label for label in branches if self.is_parting(label))

    def is_parting(self, label: Label) -> bool:
        blocks = self.function.blocks
        seen: set[Label] = set()
        waiting = list(blocks[label].successors())
        while waiting:
            other = waiting.pop()
            if other in seen:
                continue
            seen.add(other)
            if any(op.name == "fork" for op in blocks[other].ops):
                return False
            if not self.met.get(other, frozenset()) <= self.ending[label]:
                return False
            if other not in self.met:
                waiting += blocks[other].successors()
        return True

    def meeting(self, pending: frozenset[Label]) -> set[Label]:
        """The forks that run as one with others: of one function, at one level."""
        kinds = {label: (self.level(label), self.callee(label)) for label in pending}
        found = Counter(kinds.values())
        return {label for label, kind in kinds.items() if found[kind] > 1}

    def callee(self, label: Label) -> object:
        """What a fork calls, the same for the same name."""
        name = self.function.blocks[label].ops[-1].args[0]
        ways = self.named.get(name, {name})
        return next(iter(ways)) if len(ways) == 1 else name

    @cached_property
    def named(self) -> dict[Var, set[object]]:
        """By which operations variables come to hold something; a parameter by none."""
        found: dict[Var, set[object]] = {}
        for block in self.function.blocks:
            for op in block.ops:
                for out in op.outs:
                    looked_up = op.name in ("global", "load_free", "load_outer", "getattr")
                    way = (op.name, op.attr, op.args) if looked_up else out
                    found.setdefault(out, set()).add(way)
        return found

    def needs_join(self, label: Label, op: Op, fact: Fact) -> bool:
        """Whether an operation looks at a forked result, or does what others can see."""
        if not fact.pending:
            return False
        if fact.tainted.intersection(op.args):
            if op.name == "getattr" and op.attr == "append":
                return False
            if op.name == "call":
                return not self.is_own_append(op, label)
            return op.name not in MOVES
        if op.name == "call":
            return not self.knowledge.is_quiet(op)
        return info(op.name).effect == "unknown"

    def is_own_append(self, op: Op, label: Label) -> bool:
        """Whether an operation is ``xs.append(x)``, and no other variable may name the list."""
        target = self.knowledge.appends_to(op)
        return target is not None and self.is_unshared(target, label)

    def is_unshared(self, name: Var, label: Label) -> bool:
        """Whether a variable, when a block runs, names something made here, and alone does.

        A name or a container that gets it only later, as in ``return total``, does so with what
        stands for the result.
        """
        sources = self.sources
        own = sources.of.get(name, frozenset())
        if any(type(origin) in (Given, Outer) for origin in own):
            return False
        if own & sources.stored_before(label):
            return False
        return all(
            other == name
            or not origins & own
            or self.is_passing(other, name)
            or not sources.is_assigned_before(other, label)
            for other, origins in sources.of.items()
        )

    def is_passing(self, other: Var, name: Var) -> bool:
        """Whether a variable is a temporary that only hands ``name`` on: its method or its copy."""
        if not other.startswith("%"):
            return False
        for block in self.function.blocks:
            for op in block.ops:
                if other in op.outs:
                    handed = op.name in ("getattr", "list", "call", *INPLACE)
                    if not handed or (op.name == "getattr" and op.args[0] != name):
                        return False
                if other in op.args and op.name not in ("call", "copy"):
                    return False
        return True

    def is_deferred(self, label: Label, op: Op, fact: Fact) -> bool:
        """Whether an operation on a forked result waits for the join: within the fork's loop.

        An unpacking does anywhere, since it only moves what it unpacks.
        """
        if not fact.tainted.intersection(op.args):
            return False
        if op.name == "unpack":
            return True
        if op.name == "fork":
            return self.is_nested(label, op, fact)
        if not any(self.in_one_loop(label, fork) for fork in fact.pending):
            return False
        if op.name in INPLACE:
            return self.is_unshared(op.args[0], label) and self.are_kept(op.args[1:], fact)
        pure = op.name in COMPUTED or (op.name == "call" and self.knowledge.gives_value(op))
        return pure and self.are_kept(op.args, fact)

    def is_nested(self, label: Label, op: Op, fact: Fact) -> bool:
        """Whether a fork of what others give waits for them; not for itself, time after time."""
        callee, *args = op.args
        if not self.nested or callee in fact.tainted or not self.are_kept(args, fact):
            return False
        return label not in self.given[label]

    def level(self, label: Label) -> int:
        """After how many others, one after the other, a fork runs."""
        found = self.levels.get(label)
        if found is None:
            before = [other for other in self.given[label] if other not in self.given[other]]
            found = max((1 + self.level(other) for other in before), default=0)
            self.levels[label] = found
        return found

    @cached_property
    def given(self) -> dict[Label, frozenset[Label]]:
        """For each fork, the forks of which it may get results."""
        held: dict[Var, frozenset[Label]] = {}
        found: dict[Label, frozenset[Label]] = {}
        changed = True
        while changed:
            changed = False
            for label, block in enumerate(self.function.blocks):
                for op in block.ops:
                    got = frozenset().union(*(held.get(arg, frozenset()) for arg in op.args))
                    if op.name == "fork":
                        found[label] = got
                        got |= {label}
                    for name in (*op.outs, *self.holding(op)):
                        if not got <= held.get(name, frozenset()):
                            held[name] = held.get(name, frozenset()) | got
                            changed = True
        return found

    def are_kept(self, names: Sequence[Var], fact: Fact) -> bool:
        """Whether what the variables name now is still the same at the join."""
        return not self.written & self.sources.origins(set(names) - fact.tainted)

    @cached_property
    def written(self) -> Origins:
        """All that the function may write in place, or hand to someone who may."""
        names: set[Var] = set()
        for block in self.function.blocks:
            for op in block.ops:
                if op.name in (*STORES, *INPLACE):
                    names.update(op.args[:1])
                elif op.name == "call" and not self.knowledge.is_quiet(op):
                    names.update(op.args)
            call = block.terminator
            if isinstance(call, Call) and not self.knowledge.is_quiet(call):
                names.update(call.args)
        return self.sources.origins(names) - {OUTER}

    def in_one_loop(self, left: Label, right: Label) -> bool:
        reached = self.sources.reached
        return right in reached[left] and left in reached[right]

    def after(self, label: Label, op: Op, fact: Fact, deferring: bool) -> Fact:
        tainted, pending = fact.tainted, fact.pending
        touched = bool(tainted.intersection(op.args))
        tainted = tainted.difference(op_writes(op))
        if op.name == "fork":
            if label in pending:
                self.useful.add(label)
            return Fact(tainted.union(op.outs), pending | {label})
        if not touched:
            return Fact(tainted, pending)
        if deferring:
            return Fact(tainted.union(op.outs), pending)
        if op.name in ("append", "call"):
            return Fact(tainted.union(self.holding(op)), pending)
        return Fact(tainted.union(op.outs), pending)

    def holding(self, op: Op) -> tuple[Var, ...]:
        """The list that an operation appends to."""
        if op.name == "append":
            return op.args[:1]
        target = self.knowledge.appends_to(op) if op.name == "call" else None
        return () if target is None else (target,)

    def ends_pending(self, label: Label, block: Block, fact: Fact) -> bool:
        """Whether a block's terminator must find no call forked and not joined."""
        if not fact.pending:
            return False
        if any(self.function.blocks[target].handler for target in block.successors()):
            return True  # what fails in a forked call is not for the handler of what comes next
        match block.terminator:
            case Return() | Raise():
                return True
            case Branch(condition=condition):
                return condition in fact.tainted or label in self.joining
            case Call() as call:
                touched = fact.tainted.intersection(terminator_reads(call))
                return bool(touched) or not self.knowledge.is_quiet(call)
        return False

    def joined(self) -> Function:
        """The function with its joins, and its deferred operations marked."""
        blocks = list(self.function.blocks)
        for label, block in enumerate(self.function.blocks):
            places = self.early(block, label)
            deferred = self.deferred.get(label, set())
            deferred = {at for at in deferred if not follows_join(block.ops, at, places)}
            ops = [
                deferral(op) if position in deferred else op
                for position, op in enumerate(block.ops)
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
        return replace(self.function, blocks=tuple(with_exit_last(blocks)), live_in=())

    def early(self, block: Block, label: Label) -> list[int]:
        """Where a block's joins stand: as soon as its last fork, or its start, has been passed.

        What comes after a join runs for more threads at once.
        """
        places: list[int] = []
        for place in sorted(self.places.get(label, ())):
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


def late_blocks(blocks: Sequence[Block]) -> frozenset[int]:
    """The blocks that threads which fork nothing come to, where they have work left, but no call.

    What calls or forks nothing can be put off until all that others fork has run. Where nothing is
    left but to hand over what is there, that gains nothing.
    """
    after = reaching(blocks)
    here = [{label} | later for label, later in enumerate(after)]
    calling = {label for label, block in enumerate(blocks) if calls_or_forks(block)}
    working = {label for label, block in enumerate(blocks) if not all(map(is_handed, block.ops))}
    return frozenset(
        label
        for label in before_joins(blocks)
        if not here[label] & calling and here[label] & working
    )


def calls_or_forks(block: Block) -> bool:
    return type(block.terminator) is Call or any(op.name == "fork" for op in block.ops)


def is_handed(op: Op) -> bool:
    """Whether an operation computes nothing."""
    return op.name == "const" or op.name in MOVES


def before_joins(blocks: Sequence[Block]) -> set[Label]:
    """The blocks that can be come to with nothing joined."""
    found: set[Label] = set()
    waiting = [0]
    while waiting:
        label = waiting.pop()
        if label not in found:
            found.add(label)
            if type(blocks[label].terminator) is not Join:
                waiting += blocks[label].successors()
    return found
