"""Inlining: the blocks of a short function stand in the place of its call.

Before:                                  After:

    b1: call f(x) -> y, then b2              b1: %f.1.a = copy x
    b2: return y                                 %f.1.1 = lt %f.1.a, %0
                                                 branch %f.1.1 ? b2 : b3
    f(a):                                    b2: y = neg %f.1.a
    b0: %1 = lt a, %0                            jump b4
        branch %1 ? b1 : b2                  b3: y = copy %f.1.a
    b1: %return = neg a                          jump b4
        jump b3                              b4: return y
    b2: %return = copy a
        jump b3
    b3: return %return

A call costs a frame, and ends its block; what is inlined joins the blocks around it, and a short
branch in it may be converted (``if_conversion``). Functions with a loop that threads may leave at
different times are not, in a batch: they would go on apart, where a call lets them wait for each
other. Where threads are not to wait, in a stream, so are those with loops that are called at one
place alone, however long: threads that are in calls from several places run together in the callee.

A place in a callee says what it was called from, so that errors tell of the same calls. A result is
assigned under the name that the call gave it, so that it is traced back to its ``return``.

In: a function after ``fork_calls``, which has taken the calls that run better as one, and what is
known of the others: that they call a certain function, and that no name can come to mean something
else while the caller is at work. Out: the function; the pipeline is to run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from autobatch.ir.dataflow import maybe_unbound, op_reads, reaching, terminator_reads, with_reads
from autobatch.ir.definitions import Definitions, definitions_of
from autobatch.ir.operands import operands_of
from autobatch.ir.ops import OF_A_FRAME
from autobatch.ir.program import (
    Block,
    Branch,
    Call,
    Function,
    Join,
    Jump,
    Label,
    Op,
    Return,
    Terminator,
    Var,
)

LONGEST = 60
"""Operations of a function that is worth having at each of its calls."""
RECEIVER = "self"
"""What methods call the first argument, by which those of modules find their parts."""
LARGEST = 400
"""Operations of a function that takes in others."""


@dataclass(frozen=True, slots=True)
class Callee:
    """What a call runs; ``receiver`` names the variable that is its first argument, for methods.

    ``once``: it is called nowhere else, and threads are to leave its loops one by one. What it has
    ``captured`` are variables of it that are none of its parameters, with those of the caller's;
    those that are ``shared`` are as good as sure to be the same for all threads.
    """

    function: Function
    receiver: Var | None = None
    once: bool = False
    captured: Mapping[Var, Var] = field(default_factory=dict)
    shared: frozenset[Var] = frozenset()


def inline_calls(
    function: Function, callee: Callable[[Call], Callee | None], before: int = 0
) -> Function:
    """The function with short functions in the places of their calls.

    ``callee`` says what a call is sure to run, if that is known; ``before`` is how often calls have
    been inlined in the function already.
    """
    taken = chosen(function, callee, before)
    if not taken:
        return function
    place: dict[Label, Label] = {}
    count = 0
    for label in range(len(function.blocks)):
        place[label] = count
        count += len(taken[label].function.blocks) if label in taken else 1
    made: list[Block] = []
    reads = reads_of(function)
    for label, block in enumerate(function.blocks):
        if label in taken:
            caller = without_lookup(block, taken[label].call, reads)
            made += taken[label].blocks(caller, place)
        else:
            made.append(block.retargeted(place))
    return replace(function, blocks=tuple(made), live_in=())


def chosen(
    function: Function, callee: Callable[[Call], Callee | None], before: int = 0
) -> dict[Label, Inlined]:
    """The calls to inline, by the block that each ends, in the order of the text."""
    found: dict[Label, Inlined] = {}
    size = sum(len(block.ops) for block in function.blocks)
    for label, block in enumerate(function.blocks):
        call = block.terminator
        if not isinstance(call, Call) or block.modes or block.handler is not None:
            continue
        runs = callee(call)
        if runs is None or not (is_short(runs) or (runs.once and is_own(runs))):
            continue
        given = bound(runs, call)
        size += operations_of(runs.function)
        if given is not None and size <= LARGEST:
            found[label] = Inlined(runs.function, call, label, given, before)
    return found


def without_lookup(block: Block, call: Call, reads: Counter[Var]) -> Block:
    """The block that ended in a call, without looking up by name what was called."""
    alone = call.callee.startswith("%") and reads[call.callee] == 1
    ops = (
        op for op in block.ops if not (alone and op.name == "global" and op.outs == (call.callee,))
    )
    return replace(block, ops=tuple(ops))


def reads_of(function: Function) -> Counter[Var]:
    """How often the text reads each variable."""
    found: Counter[Var] = Counter()
    for block in function.blocks:
        found.update(block.modes)
        found.update(terminator_reads(block.terminator))
        for op in block.ops:
            found.update(op_reads(op))
    return found


def operations_of(function: Function) -> int:
    return sum(len(block.ops) for block in function.blocks)


def is_short(callee: Callee) -> bool:
    """Whether a function is short, parts no threads in a loop, and means the same in its caller's
    frame.
    """
    if operations_of(callee.function) > LONGEST or not is_own(callee):
        return False
    return leaves_loops_together(callee.function, callee.shared)


def leaves_loops_together(function: Function, shared: frozenset[Var]) -> bool:
    """Whether all threads leave each loop, if there is one, at one time, as far as can be seen.

    So they do where it is left where its iterator ends, which is over what all share: the items of
    ``self.layers``, of a global, of a range or tuple of literals, of what is ``shared``.
    """
    after = reaching(function.blocks)
    loops = [label for label in range(len(function.blocks)) if label in after[label]]
    if not loops:
        return True
    known = definitions_of(function)
    ends = {op.outs[1]: op.args[0] for block in function.blocks for op in block.ops if is_next(op)}
    for label in loops:
        end = function.blocks[label].terminator
        if all(label in after[to] for to in function.blocks[label].successors()):
            continue
        iterator = known.get(ends.get(end.condition, "")) if isinstance(end, Branch) else None
        if iterator is None or iterator.name != "iter":
            return False
        if not is_shared(iterator.args[0], known, shared):
            return False
    return True


def is_next(op: Op) -> bool:
    return op.name == "next" and len(op.outs) == 2


def is_shared(variable: Var, known: Definitions, shared: frozenset[Var] = frozenset()) -> bool:
    """Whether a variable is sure, or as good as sure, to be the same for all threads."""
    op = known.get(variable)
    if op is None:
        return variable in shared
    if op.name in ("const", "global", "load_free"):
        return True
    if op.name == "getattr" and op.args[0] == RECEIVER:
        return True
    if op.name in ("copy", "getattr", "tuple", "call"):
        return all(is_shared(arg, known, shared) for arg in op.args)
    return False


def is_own(callee: Callee) -> bool:
    """Whether a function means the same in its caller's frame."""
    function = callee.function
    if function.free or function.nested:
        return False
    for block in function.blocks:
        if block.modes or block.handler is not None:
            return False
        if isinstance(block.terminator, Join) or any(op.name in OF_A_FRAME for op in block.ops):
            return False
    given = [*(param.name for param in function.params), *callee.captured]
    return not maybe_unbound(function.blocks, given)


def bound(callee: Callee, call: Call) -> dict[Var, Var] | None:
    """The operand of each parameter; None where that is not one for one."""
    receiver = () if callee.receiver is None else (callee.receiver,)
    given = operands_of(callee.function.params, call.args, call.shape, receiver)
    if given is None or len(given) != len(callee.function.params):
        return None
    return {**given, **callee.captured}


@dataclass(eq=False, repr=False)
class Inlined:
    """A function in the place of the call that ends the block ``label``; ``given`` its operands.

    ``before`` tells its variables from those of what was inlined before.
    """

    function: Function
    call: Call
    label: Label
    given: Mapping[Var, Var]
    before: int = 0

    @cached_property
    def result(self) -> Var:
        end = self.function.blocks[-1].terminator
        assert isinstance(end, Return)
        return end.value

    def blocks(self, caller: Block, place: Mapping[Label, Label]) -> list[Block]:
        """The block with its call replaced, and those after it; ``place`` has the caller's new
        labels.
        """
        after = Jump(place[self.call.target], self.call.span)
        own = {at: place[self.label] + at for at in range(len(self.function.blocks))}
        entry, *rest = (
            self.changed(block.retargeted(own), after) for block in self.function.blocks
        )
        return [
            replace(
                caller,
                ops=(*caller.ops, *self.entering(), *entry.ops),
                terminator=entry.terminator,
                converted=None,
            ),
            *rest,
        ]

    def changed(self, block: Block, after: Jump) -> Block:
        ops = list(map(self.renamed, block.ops))
        if isinstance(block.terminator, Return) and self.result in self.given:
            ops.append(Op("copy", (self.call.out,), (self.name(self.result),), None, after.span))
        return replace(block, ops=tuple(ops), terminator=self.ended(block.terminator, after))

    def entering(self) -> list[Op]:
        """Parameters under their own names."""
        span = self.call.span
        return [Op("copy", (self.name(p),), (v,), None, span) for p, v in self.given.items()]

    def name(self, variable: Var) -> Var:
        """What the callee's variable is called here: its result as the call says."""
        if variable == self.result and variable not in self.given:
            return self.call.out
        function = self.function.name.rpartition(".")[2]
        place = f"b{self.label}" if not self.before else f"b{self.label}.{self.before}"
        return f"%{function}.{place}.{variable.removeprefix('%')}"

    def renamed(self, op: Op) -> Op:
        outs, args = (tuple(map(self.name, names)) for names in (op.outs, op.args))
        return replace(op, outs=outs, args=args, span=op.span.called_from(self.call.span))

    def ended(self, terminator: Terminator, after: Jump) -> Terminator:
        """A terminator of the callee's, its labels being the caller's already."""
        span = terminator.span.called_from(self.call.span)
        if isinstance(terminator, Return):
            return replace(after, span=span)
        if isinstance(terminator, Call):
            terminator = replace(terminator, out=self.name(terminator.out))
        return replace(with_reads(terminator, self.name), span=span)
