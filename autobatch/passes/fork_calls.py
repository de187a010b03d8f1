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
then ``total += f(c)`` does not end the loop's first round, and nor does a branch on one that can be
made an operation (``forked_branches``). So is a store of one (``d[i] = f(c)``) anywhere. What is
written so may have other names, which the threads see when they come there: then the calls run
first (``vm.forks.targets``).

A fork that would come to its join alone, outside of a loop, stays a call. Nothing is forked in a
block with a handler, nor pending at its start: the handler is for what fails there. In: a function
after the pipeline, and what is known of its calls. Out: the function; the pipeline is to run
again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from autobatch.ir.dataflow import op_writes, terminator_reads, terminator_writes
from autobatch.ir.ops import COMPUTED, INPLACE, MOVES, SUMS, info
from autobatch.ir.program import Block, Branch, Call, Function, Jump, Label, Op, Raise, Return, Var
from autobatch.passes.forked_branches import taken_in, takes_branch, with_branches_taken
from autobatch.passes.forked_results import HOLDING, NOTHING, STORING, Fact, Knowledge, Results
from autobatch.passes.joins import with_joins
from autobatch.passes.origins import OUTER, Made, Origins


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
    found = best(function, knowledge, candidates)
    for label in sorted(candidates):
        if found is not None and found.runs_after_loop(label):
            continue
        taken = with_branches_taken(function, label, knowledge)
        forking = None if taken is None else best(taken, knowledge, candidates)
        if taken is not None and forking is not None and is_better(forking, found, label):
            function, found = taken, forking
    return function if found is None else with_joins(found.function, found.places, found.deferred)


def is_better(forking: Forking, found: Forking | None, label: Label) -> bool:
    """Whether a fork meets more with branches taken out, and none less than as found before."""
    if found is None or label not in found.useful:
        return label in forking.useful and (found is None or found.useful <= forking.useful)
    return forking.runs_after_loop(label) and found.useful <= forking.useful


def best(function: Function, knowledge: Knowledge, candidates: set[Label]) -> Forking | None:
    """The forks of a function, those of what others give among them where none is lost by that."""
    plain = settled(function, knowledge, candidates, nested=False)
    deep = None
    if len(candidates) > 1 and not knowledge.seeded:  # draws are counted where calls are forked
        deep = settled(function, knowledge, candidates, nested=True)
    if deep is not None and (plain is None or plain.useful <= deep.useful):
        return deep
    return plain


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


@dataclass(eq=False, repr=False)
class Forking:
    """A function with forks, and where it needs joins.

    ``useful`` are the blocks of forks that meet others; ``places[label]`` are the positions in a
    block before which a join is due, that of the terminator being the number of operations.
    With ``nested``, a fork of what others give waits for them, and a join runs them level by level.
    Before the branches of the blocks ``joining`` there is a join, too. ``ending[label]`` are the
    forks pending at the end of a block, ``met[label]`` those that its joins run. ``written`` is
    what may be written while calls are forked, but for what waits with them, ``filled`` what their
    results are put into at once: what is deferred reads neither. ``due`` are the places of joins
    found so far.
    """

    function: Function
    knowledge: Knowledge
    nested: bool = False
    joining: frozenset[Label] = frozenset()
    useful: set[Label] = field(default_factory=set)
    places: dict[Label, set[int]] = field(default_factory=dict)
    deferred: dict[Label, set[int]] = field(default_factory=dict)
    ending: dict[Label, frozenset[Label]] = field(default_factory=dict)
    met: dict[Label, frozenset[Label]] = field(default_factory=dict)
    written: Origins = frozenset()
    filled: Origins = frozenset()
    due: set[tuple[Label, int]] = field(default_factory=set)
    results: Results = field(init=False)
    taken: frozenset[Var] = field(init=False)

    def __post_init__(self) -> None:
        self.results = Results(self.function, self.knowledge)
        self.taken = taken_in(self.function.blocks)
        known: object = None
        while known != (known := (self.written, self.filled, len(self.due))):
            self.go_through()
            self.due |= {(label, at) for label, found in self.places.items() for at in found}

    def go_through(self) -> None:
        """Follow the forks through the function until nothing changes.

        Where a join was found to be due it is from the first: what would be pending without it is
        not there.
        """
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
        for found in (self.useful, self.places, self.deferred, self.ending, self.met):
            found.clear()  # of facts on the way here
        for label, fact in enumerate(before):
            self.through(label, fact)

    def through(self, label: Label, fact: Fact) -> Fact:
        """The fact at the end of a block; notes where joins are due, and what is deferred."""
        block = self.function.blocks[label]
        for position, op in enumerate(block.ops):
            if fact.pending and (label, position) in self.due:
                fact = self.join_at(label, position, fact)
            deferring = self.is_deferred(label, op, fact)
            if not deferring and self.needs_join(label, op, fact):
                fact = self.join_at(label, position, fact)
            if deferring:
                self.deferred.setdefault(label, set()).add(position)
            fact = self.after(label, op, fact, deferring)
        due = fact.pending and (label, len(block.ops)) in self.due
        if due or self.ends_pending(label, block, fact):
            fact = self.join_at(label, len(block.ops), fact)
        if fact.pending and isinstance(block.terminator, Call):
            self.write(self.knowledge.written_by(block.terminator))
        self.ending[label] = fact.pending
        return fact.without(terminator_writes(block.terminator))

    def join_at(self, label: Label, position: int, fact: Fact) -> Fact:
        self.places.setdefault(label, set()).add(position)
        self.met[label] = self.met.get(label, frozenset()) | fact.pending
        if self.nested:
            self.useful |= self.meeting(fact.pending)
        elif len(fact.pending) > 1:
            self.useful |= fact.pending
        return NOTHING

    def runs_after_loop(self, label: Label) -> bool:
        """Whether a fork meets others, in no join within its loop."""
        if label not in self.useful:
            return False
        return not any(self.results.in_one_loop(label, other) for other in self.places)

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
        kinds = {
            label: (self.results.level(label), self.results.callee(label)) for label in pending
        }
        found = Counter(kinds.values())
        return {label for label, kind in kinds.items() if found[kind] > 1}

    def needs_join(self, label: Label, op: Op, fact: Fact) -> bool:
        """Whether an operation looks at a forked result, or does what others can see."""
        if not fact.pending:
            return False
        if fact.tainted.intersection(op.args):
            if op.name == "getattr" and op.attr in STORING:
                return op.args[0] in fact.results  # nothing is there yet that has a method
            if op.name == "call":
                return not self.results.is_own_append(op, label)
            return op.name not in MOVES
        if op.name == "call":
            return not self.knowledge.is_quiet(op)
        return info(op.name).effect == "unknown"

    def is_deferred(self, label: Label, op: Op, fact: Fact) -> bool:
        """Whether an operation on a forked result waits for the join: within the fork's loop.

        An unpacking does anywhere, and so does a store, since they only move what they get.
        """
        if not fact.tainted.intersection(op.args):
            return False
        if op.name == "unpack":
            return True
        if op.name == "fork":
            return self.is_nested(label, op, fact)
        if self.results.stores_to(op) is not None:
            return not self.results.is_own_append(op, label) and self.are_kept(op.args[1:], fact)
        if not any(self.results.in_one_loop(label, fork) for fork in fact.pending):
            return False
        if op.name in INPLACE:
            return self.are_kept(op.args[1:], fact)
        pure = op.name in (*COMPUTED, *SUMS, "getitem") or takes_branch(op, self.taken)
        pure = pure or (op.name == "call" and self.knowledge.gives_value(op))
        return pure and self.are_kept(op.args, fact)

    def are_kept(self, names: Sequence[Var], fact: Fact) -> bool:
        """Whether what the variables name now is still the same at the join."""
        origins = self.results.sources.origins
        return not (
            self.written & origins(set(names) - fact.tainted) or self.filled & origins(names)
        )

    def write(self, names: Sequence[Var]) -> None:
        """Note what may be written while calls are forked."""
        self.written |= self.results.sources.origins(names) - {OUTER}

    def is_nested(self, label: Label, op: Op, fact: Fact) -> bool:
        """Whether a fork of what others give waits for them; not for itself, time after time.

        One that may write more than that does not wait: what comes after it would not see it.
        """
        callee, *args = op.args
        if not self.nested or callee in fact.tainted or not self.are_kept(args, fact):
            return False
        if not fact.tainted.issuperset(self.results.written_by(op)):
            return False
        return label not in self.results.given[label]

    def after(self, label: Label, op: Op, fact: Fact, deferring: bool) -> Fact:
        pending = fact.pending
        touched = bool(fact.tainted.intersection(op.args))
        left = fact.without(op_writes(op))
        if op.name == "fork":
            if label in pending:
                self.useful.add(label)
            return left.join(Fact(frozenset(op.outs), pending | {label}, frozenset(op.outs)))
        if not touched:
            if pending:
                self.write(self.results.written_by(op))
            return left
        holding = self.results.holding(op)
        if not deferring and pending:
            origins = self.results.sources.origins(holding)
            self.filled |= frozenset(origin for origin in origins if type(origin) is Made)
        is_one = deferring or (op.name not in HOLDING and fact.results.intersection(op.args))
        results = frozenset(op.outs) if is_one else frozenset()
        return left.join(Fact(frozenset((*op.outs, *holding)), pending, results))

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
