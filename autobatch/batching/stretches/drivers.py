"""Drivers: a planned stretch as one Python function, with all written down that can be.

Most steps of a run repeat a plan on values of the same kinds. A driver is that plan printed as
straight Python: it reads the variables, checks what the plan's key holds, runs the host
operations and the replay, and writes the results; about a third of what the general way costs.
It answers False, with nothing changed, where a check fails, and the general way decides.

Only plain plans have one: no two inputs are one cell, and what is written in place is a column,
which it checks that no view among the inputs shows.

In a loop, what only reads variables that the loop leaves alone comes out the same each time: a
product of tensors that all threads share, say. So the driver of a block in a loop is two functions,
``begin``, which does that, and what it gives, which does the rest, time after time; see
``vm.spinning``. A third one does the same without asking what kind of column each variable is, for
when they are those that were asked last time, or results of the same replays (``vm.gliding``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any, Protocol

import numpy as np

from autobatch.batching.context import Context
from autobatch.batching.contributions import Contributions
from autobatch.batching.fused import Hot
from autobatch.batching.operations import Env, Scope
from autobatch.batching.selects import are_lone
from autobatch.batching.stretches.checking import note_checks, note_loose
from autobatch.batching.stretches.executors import Run
from autobatch.batching.stretches.host_lines import printed_key
from autobatch.batching.stretches.keeping import Kept, Parts, parts_of
from autobatch.batching.stretches.looping import Feed, fed
from autobatch.batching.stretches.operator_lines import refuse_shown
from autobatch.batching.stretches.outputs import Node, OfInput, view_of
from autobatch.batching.stretches.plans import Plan, Skeleton, are_in_range, outlooks
from autobatch.batching.stretches.printer import (
    OF_KIND,
    Printer,
    Undrivable,
    named,
    told_apart,
    unmoved,
)
from autobatch.batching.stretches.printing import printed_plan
from autobatch.batching.stretches.rounds import (
    LOCAL,
    NONE,
    Printed,
    Round,
    Spending,
    printed_rounds,
)
from autobatch.batching.stretches.shared_reads import SharedReads, shared_reads
from autobatch.batching.trace import Trace
from autobatch.compat import storage_id
from autobatch.values.cells import Container

Drive = Callable[[Env, Scope, int, Any], bool]
Again = Callable[[Env, int], bool]


class Told(Protocol):
    """What is told of rounds that threads leave; see ``vm.speculating.Ride``."""

    known: bool

    def __call__(self, seen: np.ndarray, now: bytes, done: int, made: Env) -> float: ...


Rounds = Callable[[Env, int, float, bytes, bool, int, Told | None], tuple[int, np.ndarray | None]]
Begun = tuple[Again, Again, Rounds | None]
Begin = Callable[[Env, Scope], Begun | None]

WHOLE = """
def drive(env, scope, k, context):
{lines}
    return True
"""
PARTED = """
def begin(env, scope):
{steady}
    def again(env, k):
{moving}
        return True
    def glide(env, k):
{gliding}
        return True{rounds}
    return again, glide, rounds

def drive(env, scope, k, context):
    begun = begin(env, scope)
    return begun is not None and begun[0](env, k)
"""


@dataclass(frozen=True, slots=True)
class Driver:
    """``drive(env, scope, k, context)`` runs the operations before ``end``, or answers False.

    It replays ``plan``. Unless it ``asks_context``, that may be None; where it ``leaves_open``
    whether its results fit or rows fail, the block goes on with that context.
    ``begin(env, scope)`` gives ``again(env, k)``, which does what ``drive`` does for as long as no
    variable changes but those that the block's loop assigns, and ``glide(env, k)``, which does not
    check the kinds of ``columns``. In a loop it has to do with the variables that it ``names``. It
    ``assigns`` some, and ``makes`` some: columns of one kind, always. To others it ``hands`` the
    column of one of ``columns`` as it is. ``shared`` are the
    tensors that all threads share which it may read: it does not run once these are written.
    ``feeds`` are those of the replay's inputs that may change from lap to lap; None where that is
    not all that may. ``replay`` is what the replay, ``run``, is called in ``begin``, ``parts`` are
    its halves, where the first of them need not run in each lap. ``turn`` is its block, of which
    rounds may run as one function, as ``printed``.
    """

    drive: Drive
    end: int
    plan: Plan
    asks_context: bool
    leaves_open: bool
    begin: Begin | None = None
    shared: SharedReads | None = None
    feeds: tuple[Feed, ...] | None = None
    replay: str = ""
    run: Run | None = None
    parts: Parts | None = None
    names: frozenset[str] = frozenset()
    columns: frozenset[str] = frozenset()
    assigns: frozenset[str] = frozenset()
    makes: frozenset[str] = frozenset()
    hands: Mapping[str, str] = field(default_factory=dict)
    turn: Round | None = None
    rounds: Printed = NONE
    carried: Mapping[int, int] | None = None

    @property
    def kernels(self) -> int:
        """How many kernels it launches, which may be fewer from some replay on."""
        return getattr(self.run, "kernels", 1)

    def reads_written(self, env: Env, scope: Scope, given: Contributions | None) -> bool:
        """Whether it may read a tensor that threads of the run have written."""
        if self.shared is None or given is None or not given.written:
            return False
        return self.shared.are_written(env, scope, given)

    @property
    def looks(self) -> bool:
        """Whether its rounds look at what each thread decides."""
        return self.rounds.looks

    @property
    def hot(self) -> Hot | None:
        """What is told of replays of its recording, where it may be compiled one day."""
        run = self.run
        return run if type(run) is Hot else None

    def starts(self, env: Env, scope: Scope, run: Run | None = None) -> Begun | None:
        """What runs it again and again, with ``run`` as the replay where that is given.

        None if it may not or cannot be.
        """
        begin = self.begin
        if begin is None:
            return None
        if run is not None:
            assert isinstance(begin, FunctionType)
            space = {**begin.__globals__, self.replay: run}
            if (name := self.rounds.spending) is not None and isinstance(run, Kept):
                space[name] = run.by(space[name])
            begin = FunctionType(begin.__code__, space)
        try:
            return begin(env, scope)
        except Exception:  # the general way finds out what is wrong
            return None

    def fits(self, env: Env, scope: Scope, k: int, context: Context | None) -> bool:
        """Run it if it may and can be; else nothing has changed."""
        if self.asks_context and (context is None or context.checkpoint is not None):
            return False
        try:
            return self.drive(env, scope, k, context)
        except Exception:  # the general way finds out what is wrong
            return False


def driver_of(
    skeleton: Skeleton,
    plan: Plan,
    env: Env,
    before: Env,
    scope: Scope,
    turn: Round | None = None,
    sure: bool = False,
) -> Driver | None:
    """The driver of a plan, whose variables hold what ``env`` holds; None if it is not plain.

    ``before`` are the variables at its beginning, ``turn`` is its block, if it is in a loop. It is
    for when bounds make its checks ``sure``, or for when they do not.
    """
    if any(op.name in ("is", "is_not") for op in skeleton.batched):
        return None  # a driver does not ask which variables are one cell
    printer = Printer(env)
    printer.refer(plan.held)  # their identities are in what is checked
    try:
        printed_plan(printer, skeleton, scope, before)
        if len(printer.inputs) != plan.inputs:
            return None
        if plan.lone:
            printer.check(f"not {printer.refer(are_lone)}(env, {plan.lone!r})")
        if plan.assumed:
            printer.check(f"{printer.refer(plan)}.is_stale")
        refuse_shown(printer, plan)
        targets = [printed_target(printer, leaf) for leaf, _ in plan.written]
        run = replayed(plan, sure)
        replay = printed_results(printer, skeleton, plan, run, targets, sure)
    except Undrivable:
        return None
    leaves_open = plan.loose is not None or (plan.checks > 0 and not sure)
    asks = printer.asks_context or leaves_open
    printer.spare()
    again = None if asks or plan.written else turn
    whole = recording_of(plan.run)
    parts = None if again is None else parts_of(whole, steady_inputs(printer, again))
    spending = partial(printed_spending, printer, run if parts is None else parts.rest)
    text, feeds, rounds = source_of(printer, skeleton, again, spending)
    space = dict(printer.names)
    exec(text, space)
    drive, begin = space["drive"], space.get("begin")
    shared = shared_reads(skeleton, env)
    host = {*skeleton.constants, *(out for op in skeleton.host for out in op.outs)}
    assigns = {name for name, _ in plan.names} | (host & skeleton.wanted)
    nodes = plan.template.nodes
    makes = {name for name, number in plan.names if nodes[number].kind == "column"}
    cells = {printer.cell(name): name for name in printer.columns_of}
    given = [(name, nodes[number]) for name, number in plan.names]
    taken = [(name, printer.inputs[node.slot][1]) for name, node in given if node.kind == "input"]
    hands = {name: cells[cell] for name, cell in taken if cell in cells}
    return Driver(
        drive,
        skeleton.end,
        plan,
        asks,
        leaves_open,
        begin,
        shared,
        feeds,
        replay,
        run,
        parts,
        frozenset() if again is None else named(printer.lines),
        frozenset(printer.columns_of),
        frozenset(assigns),
        frozenset(makes),
        hands,
        again,
        rounds,
        carried_places(printer, rounds),
    )


def carried_places(printer: Printer, rounds: Printed) -> Mapping[int, int] | None:
    """The places of the replay's operands that are results of the last round, with theirs; None
    where an operand is made of such a one.
    """
    carried = rounds.carried
    if carried is None:
        return None
    operands = [operand for operand, _ in printer.inputs]
    others = [operand for operand in operands if operand not in carried]
    if not set(LOCAL.findall(" ".join(others))).isdisjoint(carried):
        return None
    return {at: carried[operand] for at, operand in enumerate(operands) if operand in carried}


def steady_inputs(printer: Printer, turn: Round) -> Set[int]:
    """The places of the replay's inputs that are of variables which a loop leaves alone."""
    growing = {name for name, cell in printer.env.items() if type(cell.value) is Container}
    changing = told_apart(printer.lines, turn.varying | growing if turn.grows else turn.varying)[2]
    operands = enumerate(operand.partition("[")[0] for operand, _ in printer.inputs)
    return {place for place, operand in operands if operand not in changing}


def source_of(
    printer: Printer, skeleton: Skeleton, turn: Round | None, spending: Spending
) -> tuple[str, tuple[Feed, ...] | None, Printed]:
    """The text of a driver, in two functions where it is in a loop; its feeds, and its rounds."""
    if turn is None:
        return WHOLE.format(lines="\n".join(printer.lines)), None, NONE
    moving = {name for name, cell in printer.env.items() if not unmoved(cell)}
    steady, others, changing = told_apart(printer.lines, moving | turn.varying)
    gliding = [line for line in others if not line.endswith(OF_KIND)]
    # What is stored, rounds would take for something that stays as it is.
    rounds = NONE if skeleton.stores else printed_rounds(gliding, turn, spending)
    text = PARTED.format(
        steady="\n".join(line.replace("return False", "return None") for line in steady),
        moving="\n".join(f"    {line}" for line in others),
        gliding="\n".join(f"    {line}" for line in gliding),
        rounds=rounds.text,
    )
    return text, fed(printer, skeleton, changing), rounds


def printed_spending(printer: Printer, run: Run, results: Mapping[str, int]) -> str | None:
    """What a replay is called that may write over its operands, as results of the last one."""
    run = recording_of(run)
    if type(run) is not Trace:
        return None
    operands = [operand for operand, _ in printer.inputs]
    alone = [operand for operand in operands if "".join(operands).count(operand) == 1]
    places = {operands.index(each): results[each] for each in alone if each in results}
    spending = run.spending(places)
    return None if spending is None else printer.refer(spending)


def printed_target(printer: Printer, leaf: int) -> str:
    """The cell of an input that is written, checked to be one that may be, and nobody else's."""
    data, cell = printer.inputs[leaf]
    if data not in printer.columns:
        raise Undrivable
    column = printer.columns[data]
    printer.check(f"{column}.outside is not False or {column}.ties")
    printer.check(f"not are_apart([{', '.join(printer.own)}])")
    if printer.views:
        printer.check(f"shows({cell}, [{', '.join(printer.views)}])")
    return printer.fresh(cell, "m")  # its variable may be assigned before it is written


def recording_of(run: Run) -> Run:
    """What a loop may replay in its stead: the recording of what may be compiled one day."""
    return run.trace if type(run) is Hot else run


def replayed(plan: Plan, sure: bool) -> Run:
    """What a driver runs: what checks nothing, where its plan's checks are ``sure`` to hold."""
    if not sure or not plan.checks or plan.loose is not None:
        return plan.run
    spared: Callable[[int], Run] | None = getattr(plan.run, "sure", None)
    return plan.run if spared is None else spared(plan.checks)


def printed_results(
    printer: Printer,
    skeleton: Skeleton,
    plan: Plan,
    run: Run,
    targets: Sequence[str],
    sure: bool,
) -> str:
    """The lines from the replay on; what the replay is called in them."""
    checks = plan.checks > 0 and not sure
    roots = [printer.cell(name) for name in skeleton.reads] if checks else []
    leaves = f"[{', '.join(cell for _, cell in printer.inputs)}]"
    if plan.forecasts:
        printer.line(
            f"looks = {printer.refer(outlooks)}({printer.refer(plan.forecasts)}, {leaves})"
        )
    if plan.inside:
        looks = "looks" if plan.forecasts else "()"
        found = f"{printer.refer(are_in_range)}({printer.refer(plan.inside)}, {leaves}, {looks})"
        printer.check(f"{found} is not {sure}")
    operands = "".join(f", {operand}" for operand, _ in printer.inputs)
    replay = printer.refer(getattr(run, "replay", run))
    if skeleton.batched:
        called = replay if checks else printed_run(printer, plan, replay)
        printer.line(f"outs = {called}(k{operands})")
    made: dict[int, str] = {}
    results = [(name, printed_node(printer, plan, number, made)) for name, number in plan.names]
    for number, outlook in plan.bounded:
        cell = printed_node(printer, plan, number, made)
        printer.line(f"{cell}.value.bounds = looks[{outlook}].bounds")
    for number, bounds in plan.fixed:
        cell = printed_node(printer, plan, number, made)
        printer.line(f"{cell}.value.bounds = {bounds!r}")
    loose = [printed_node(printer, plan, number, made) for number in plan.loose or ()]
    contents = [printed_node(printer, plan, number, made) for _, number in plan.written]
    host = [out for op in skeleton.host for out in op.outs]
    early = [(n, printer.cell(n)) for n in (*skeleton.constants, *host) if n in skeleton.wanted]
    if checks:
        printer.line(f"roots = [{', '.join(roots)}]")  # before they have other values
    # Only from here on is anything changed; what the replay assigns, it assigns last.
    if plan.loose is not None:
        ints = "".join(f"{cell}.value, " for cell in loose)
        note, op = printer.refer(note_loose), printer.refer(skeleton.first)
        printer.line(f"{note}(context, {op}, dict(env), outs[-1], ({ints}))")
    for name, cell in early + results:
        printer.line(f"env[{name!r}] = {cell}")
    if checks:
        printer.asks_context = True
        note, here = printer.refer(note_checks), printer.refer((skeleton, plan))
        printer.line(f"{note}(context, scope, {here}, roots, outs)")
    for target, new in zip(targets, contents, strict=True):
        printer.line(f"{target}.value = {new}.value")
    kept = dict(results)
    for store in skeleton.stores:
        receiver, value, *_ = store.args
        new, key = kept.get(value) or printer.cell(value), printed_key(printer, store)
        printer.line(f"{printer.places[receiver]}.cells[{key}] = {new}")
    return replay


def printed_run(printer: Printer, plan: Plan, replay: str) -> str:
    """The replay, or one that spares the copy of what is written, where nobody else holds it."""
    over = getattr(plan.run, "over", None)
    if over is None or len(plan.written) != 1 or plan.loose is not None:
        return replay
    ((leaf, number),) = plan.written
    node = plan.template.nodes[number]
    spared = over(leaf, node.slot) if node.kind == "column" else None
    if spared is None:
        return replay
    data, _ = printer.inputs[leaf]
    pair = f"({printer.columns[data]}, {data})"
    return f"({printer.refer(spared)} if is_sole({pair}) else {replay})"


def printed_node(printer: Printer, plan: Plan, number: int, made: dict[int, str]) -> str:
    """The name of the cell that a node of the plan's template stands for."""
    if number not in made:
        node = plan.template.nodes[number]
        parts = ", ".join(printed_node(printer, plan, ref, made) for ref in node.refs)
        made[number] = printer.fresh(made_cell(printer, node, parts), "r")
    return made[number]


def made_cell(printer: Printer, node: Node, parts: str) -> str:
    match node.kind:
        case "column":
            outside = ", outside=True" if node.static else ""
            if type(node.static) is OfInput:
                data, _ = printer.inputs[node.static.leaf]
                outside = f", outside={printer.refer(storage_id)}({data})"
            return f"Cell(Column(outs[{node.slot}], {node.tag!r}{outside}))"
        case "tensor":
            return f"Cell(Uniform(outs[{node.slot}], {node.static}))"
        case "input":
            operand, cell = printer.inputs[node.slot]
            if cell == "None" or operand in printer.computed:
                raise Undrivable
            return cell
        case "cell":
            return printer.whole[node.slot]
        case "container":
            return f"Cell({printer.refer(node.static)}.rebuilt(iter([{parts}])))"
        case "view":
            view = f"{printer.refer(view_of)}({printer.refer(node)}"
            return f"{view}, outs[{node.slot}], [{parts}])"
    obj = printer.refer(node.static.obj)
    return f"Cell(Uniform({obj}, {node.static.shared}))"
