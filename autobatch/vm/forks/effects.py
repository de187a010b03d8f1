"""Forked calls are pure; what shows only as they run is found here, before its first effect.

While forked calls run, a visible effect, or a call that may write what it was not known to, raises
``NotPure``; the calls then run again, one by one, or the whole run where what they write is not
what they were noted with. Before an operation that may have an effect, a group's forked calls run
(they are *due*), so that effects keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from autobatch import errors
from autobatch.batching.calling import resolving
from autobatch.batching.context import Context
from autobatch.batching.effects import effect_of
from autobatch.batching.operations import CAPTURED
from autobatch.ir.ops import INPLACE
from autobatch.ir.program import Branch, Call, Op
from autobatch.source import Span
from autobatch.values.cells import FORK, Cell, Container, Objects, Uniform
from autobatch.vm.calling import reach
from autobatch.vm.code import Code
from autobatch.vm.entering import Entry
from autobatch.vm.failing import Failures
from autobatch.vm.forks.disturbing import Disturbing
from autobatch.vm.forks.pending import entries
from autobatch.vm.forks.targets import is_value, may_wait
from autobatch.vm.groups import FORKED, Group
from autobatch.vm.own_code import OwnCode
from autobatch.vm.purity import may_change
from autobatch.vm.state import Frame, RunState
from autobatch.vm.within import Within


class BeginAgain(BaseException):
    """A run ends, to begin again without the forks that it should not have had; no exception of
    the program's. Nobody has seen what it did.
    """


class NotPure(BaseException):
    """A forked call is about to have an effect that others can see; ``writes``: on arguments.

    ``objects``: on threads' own objects, which are no copies, so that it comes late to what was
    done since the call was noted.
    """

    def __init__(self, writes: bool, objects: bool = False) -> None:
        super().__init__()
        self.writes = writes
        self.objects = objects


@dataclass(slots=True, eq=False, repr=False)
class Guard:
    """What forked calls of a run must not do."""

    state: RunState
    failures: Failures
    within: Within
    own_code: OwnCode = field(init=False)
    disturbing: Disturbing = field(init=False)

    def __post_init__(self) -> None:
        self.disturbing = Disturbing(self.state)
        seeded = self.state.settings.seed is not None
        self.own_code = OwnCode(self.state.library.purity_of, self.within.is_pure, seeded)

    def watch(self, context: Context, entry: Entry) -> None:
        """A call within forked ones: it may write what it gets only where that was looked at.

        What it captures it may not write at all: forked calls have copies of that.
        """
        if CAPTURED in entry.env and not entry.purity.is_pure:
            not_pure(writes=True)
        frame = self.failures.frames[-1]
        purity = entry.purity
        if context.span in frame.code.known or not purity.writes:
            return
        if purity.sure or reach(entry.env[name] for name in purity.writes):
            not_pure(writes=True)

    def watch_opaque(self, frame: Frame, call: Call, target: resolving.Target) -> None:
        """The same of what is no program function: nothing was known of it when it was judged."""
        if call.span not in frame.code.known and may_change(target.callee):
            not_pure(writes=True)

    def is_due(self, frame: Frame, op: Op | Branch, group: Group, active: bool, asks: bool) -> bool:
        """Whether a group's forked calls come first, since what comes next may have effects.

        ``active``: the group is in a forked call itself, which may change objects of its operands'
        if it ``asks``.
        """
        pending = FORKED in group.env
        if asks and isinstance(op, Op) and changes_objects(op, group.env):
            raise NotPure(writes=True, objects=True)
        if pending and isinstance(op, Op) and op.name == "defer":
            pc = self.state.tally.block[1]
            if not may_wait(frame.code, pc, op, group.env, self.state.services.foreign):
                return True
        if isinstance(op, Branch):
            shown = self.own_code.may_ask_truth(group.env[op.condition])
        else:  # a property and a method are entered, and so seen, where no call is pending
            shown = (pending or op.name != "getattr") and self.own_code.may_show(op, group.env)
            shown = shown or (pending and writes_shared(op, group.env))
            if pending and not shown and self.is_disturbing(op, group):
                return True
        if shown and active:
            raise NotPure(writes=False)
        return shown

    def is_disturbing(self, op: Op, group: Group) -> bool:
        """Whether an operation may write what a group's forked calls are to read."""
        if self.disturbing.is_op(op, group):
            return True
        if not self.own_code.may_write(op, group.env):
            return False
        return self.disturbing.meets(group, [group.env[each] for each in op.args])

    def give_up(self, groups: Sequence[Group], found: NotPure) -> None:
        """Calls turned out to have effects: their functions are not forked again.

        Where they may write what they have copies of, the run begins again: these, or others of
        those that would run one by one now.
        """
        lost: Span | None = None
        for group in groups:
            for _, known in entries(group):
                if known.type is not FORK:
                    continue
                code: Code = known.static[0]
                self.state.library.turns_out_impure(code)
                if lost is None and (found.objects or reach(known.children())):
                    lost = known.static[2]
        if lost is not None and not self.state.tally.shown:
            raise BeginAgain
        if lost is not None and found.writes:
            raise impure(lost)


def changes_objects(op: Op, env: dict[str, Cell]) -> bool:
    """Whether an operator such as ``+=`` changes objects of the threads', not only a name."""
    if op.does not in INPLACE:
        return False
    value = env[op.args[0]].value
    return type(value) is Objects and value.lists is None and not is_value(value)


def writes_shared(op: Op, env: dict[str, Cell]) -> bool:
    """Whether an operation is a write to what all threads share, which would be noted."""
    cells = [env[name] for name in op.args]
    if op.name == "call":
        callee, *args = cells
        method = callee.value
        if type(method) is Container:
            args = [*method.children(), *args]
        called = getattr(method, "obj", getattr(method, "static", None))
        if "out" not in op.attr.keywords and effect_of(called) != "write":
            return False
        cells = args
    elif op.name in ("setattr", "setitem", *INPLACE):
        cells = cells[:1]
    else:
        return False
    return any(type(cell.value) is Uniform and cell.value.shared for cell in cells)


def not_pure(writes: bool) -> None:
    """The guard of forked calls."""
    raise NotPure(writes)


def impure(span: Span) -> errors.UnsupportedError:
    return errors.UnsupportedError(
        errors.Diagnostic(
            "This call may change its arguments, which became clear only while it ran.",
            span,
            "it ran together with other calls",
            ("what had been done before it can be seen, so the run cannot begin again.",),
            hints=('call with fork="off", so that calls run one after the other.',),
            code="fork-impure",
        )
    )
