"""A stream: examples in, results out, as many threads in flight as its width says.

In: any iterable of examples. Out: ``(index, result)``, one example after the other, as a plain
loop gives them; under ``on_error="isolate"`` each result is a ``Result``. All runs on the host
thread that asks for the next result, when it asks: it draws examples while there is room, and
executes blocks until some threads have returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from autobatch.batching.calling.resolving import resolve_object
from autobatch.batching.context import Context
from autobatch.batching.fallbacks import policy_of
from autobatch.batching.host.rower import Rower
from autobatch.batching.replaced import look
from autobatch.batching.shared.reducing import apart, applied
from autobatch.errors import AutobatchError, OptionError, UnknownOptionError
from autobatch.frontend import MISSING
from autobatch.listeners import Tally
from autobatch.llvm import is_installed
from autobatch.options import Options, check_count
from autobatch.random.drawing import unasked
from autobatch.results.stacking import Result
from autobatch.runs.chunks import refuse_late_result, rows_left
from autobatch.runs.entry import calling, entry
from autobatch.runs.machines import Shared, machine_of
from autobatch.runs.one_by_one import OneByOne
from autobatch.streams.admission import Admission, Example, Source, by_form
from autobatch.streams.streamed import MachineCode
from autobatch.streams.vacancies import Vacancies
from autobatch.values.cells import Cell
from autobatch.vm.call_graph import CallGraph
from autobatch.vm.library import Library, function_of
from autobatch.vm.refill import Refill
from autobatch.vm.room import ROOM
from autobatch.vm.state import NOBODY
from autobatch.vm.steps import Steps

ORDERS = ("completion", "input")
ARGUMENTS = ("width", "order", "shared", "device")
OF_BATCHES = ("in_dims", "out_dims", "chunk_size", "ragged_out")
BESIDE = 64
"""Block executions that the engine has beside an admission that has run as machine code."""
AHEAD = 64
"""Results for each place that may wait for an example before them, so that memory stays bounded."""
Results = Iterator[tuple[int, Any]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a stream is to do; ``enough`` is the tenth of its width for which threads may wait."""

    function: Callable[..., Any]
    examples: Iterable[Any]
    width: int
    order: str
    shared: Mapping[str, Any]
    device: torch.device | None
    options: Options
    engine_given: bool
    library: Library

    @property
    def isolates(self) -> bool:
        return self.options.on_error == "isolate"

    @property
    def enough(self) -> int:
        return max(1, self.width // 10)


def planned(
    function: Callable[..., Any],
    examples: Iterable[Any],
    width: Any,
    order: Any,
    shared: Any,
    device: Any,
    base: Options,
    given: dict[str, Any],
    library: Library,
) -> Plan:
    """A stream's arguments, checked; ``base`` are the options that ``given`` ones replace."""
    if not callable(function):
        raise TypeError(f"autobatch.stream runs functions; it got {function!r}")
    if not hasattr(examples, "__iter__") and not hasattr(examples, "__getitem__"):
        raise OptionError(f"examples is {examples!r}; it must be an iterable of examples.")
    check_count("width", width, 1, optional=False)
    if order not in ORDERS:
        allowed = " or ".join(map(repr, ORDERS))
        raise OptionError(f"order is {order!r}; it must be {allowed}.")
    for name in OF_BATCHES:
        if name in given:
            raise UnknownOptionError(f"stream has no option {name!r}: examples come one by one.")
    shared = {} if shared is None else shared
    if not isinstance(shared, Mapping) or not all(type(name) is str for name in shared):
        raise OptionError(f"shared is {shared!r}; it must be a dict of arguments by name.")
    options = base.updated(given, beside=ARGUMENTS)
    engine_given = "engine" in given or base.engine != "stackless"
    return Plan(
        *(function, examples, width, order, dict(shared), as_device(device)),
        *(options, engine_given, library.under(options.passes, options.writes)),
    )


def as_device(device: Any) -> torch.device | None:
    if device is None:
        return None
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise OptionError(f"device is {device!r}, which is none that torch knows.") from error


def results(plan: Plan) -> Results:
    """The results of a stream; nothing runs before the first is asked for."""
    source = Source(iter(plan.examples), plan.shared)
    if plan.options.is_one_by_one:
        return one_by_one(plan, source)
    return Stream(plan, source).results()


def one_by_one(plan: Plan, source: Source) -> Results:
    rows = np.full(plan.width, NOBODY)
    one = OneByOne(plan.function, plan.options, plan.library, steps_of(plan, rows))
    options = plan.options
    admission = Admission(plan.shared, options.scalars, plan.device, not options.writes)
    while (example := source.draw()) is not None:
        rows[0] = example.index
        one.steps.admit(0)
        one = replace(one, library=plan.library.under(None, options.writes))
        with unasked(options.seed):
            result, _ = one.isolated(example.index, *admission.row(example))
        yield example.index, result if plan.isolates else result.value
    if source.error is not None:
        raise source.error


def steps_of(plan: Plan, rows: np.ndarray) -> Steps:
    limit, listeners = plan.options.max_steps, plan.options.listeners
    own = None if limit is None else np.zeros(plan.width, dtype=np.int64)
    return Steps(plan.width, limit, listeners, Tally(), rows=rows, own=own)


@dataclass(slots=True, eq=False, repr=False)
class Stream:
    """One stream at work. ``held`` are results that wait for those of examples before them.

    ``code`` runs admissions at once, if it can; ``came`` says that it just has.
    """

    plan: Plan
    source: Source
    refill: Refill | None = None
    code: MachineCode | None = None
    came: bool = False
    library: Library = field(init=False)
    admission: Admission = field(init=False)
    vacancies: Vacancies = field(init=False)
    held: dict[int, Any] = field(default_factory=dict)
    sent: int = 0

    def __post_init__(self) -> None:
        plan, copies = self.plan, not self.source.keeps
        self.library = plan.library
        scalars, device = plan.options.scalars, plan.device
        self.admission = Admission(plan.shared, scalars, device, copies, plan.function)
        self.vacancies = Vacancies(plan.width, plan.enough)

    def results(self) -> Results:
        if look().one_by_one:
            yield from one_by_one(self.plan, self.source)
            return
        error: BaseException | None = None
        try:
            while error is None:
                try:
                    self.check_functions()
                    if not self.is_at_work():
                        break
                    self.advance()
                except Exception as failed:  # of no single thread: a limit, say
                    error = failed
                yield from self.ready()
            if error is not None:
                yield from sorted(self.held.items())
                self.forget_writes()
                raise error
            failure = None if self.refill is None else self.refill.failure
            if failure is not None:
                raise failure
            if self.refill is not None:
                self.refill.machine.state.generators.check()
            if self.source.error is not None:
                raise self.source.error
        finally:
            if self.refill is not None:
                self.apply(in_order=False)
                self.refill.close()

    def check_functions(self) -> None:
        """What is at work goes on with what it has begun with."""
        if self.refill is not None and look() is not self.library.replaced:
            raise AutobatchError(
                "Functions of torch's were replaced, or put back, while a stream was at work. "
                "Do so before its first result is asked for, or after its last."
            )

    def is_at_work(self) -> bool:
        """Draw what there is room for; whether anything is in flight then."""
        refill = self.refill
        if refill is None:
            self.draw(self.plan.width)
        elif not refill.is_busy or (self.may_draw and self.vacancies.are_to_fill(refill.room)):
            self.draw(refill.room)
        return self.refill is not None and (self.refill.is_busy or self.came)

    @property
    def may_draw(self) -> bool:
        """Whether the iterable may have more, and there is room for what they give."""
        return self.source.is_open and len(self.held) < AHEAD * self.plan.width

    def advance(self) -> None:
        """Execute blocks until some threads have returned, none are left, or others may enter.

        Where others have returned already, only some: those are to be handed out.
        """
        assert self.refill is not None
        refill, steps = self.refill, self.refill.machine.state.steps
        room, began = refill.room, steps.taken
        due = self.vacancies.due(room) if self.may_draw else None
        with ROOM.raised(), unasked(self.plan.options.seed):
            refill.advance(BESIDE if self.came else due)
        self.vacancies.passed(room, steps.taken - began)

    def draw(self, count: int) -> None:
        """Admit as many examples, unless the iterable keeps the stream waiting."""
        if self.refill is not None and self.refill.failure is not None:
            return
        examples = self.source.some(count)
        self.vacancies.filled(self.source.slow)
        if not examples:
            return
        if self.refill is None:
            self.refill = self.begun(self.admission.home(examples))
        services = self.refill.machine.state.services
        for alike in by_form(examples):
            if self.refill.failure is None:
                alike = self.without_done(alike)
            if alike and self.refill.failure is None:
                threads = np.array([example.index for example in alike])
                cells = self.admission.cells(Context(services, threads), alike)
                self.refill.admit(*cells, threads)

    def without_done(self, examples: list[Example]) -> list[Example]:
        """Those of some examples that the engine is to run; the others are done."""
        if self.code is None:
            return examples
        assert self.refill is not None
        services = self.refill.machine.state.services
        threads = np.array([example.index for example in examples])

        def cells() -> tuple[list[Cell], dict[str, Cell]]:
            return self.admission.cells(Context(services, threads), examples)

        done = self.code.launch(cells, threads)
        if done is None:
            self.code = None if self.code.why else self.code
            return examples
        for rows, value in done.pieces:
            self.hold(threads[rows], value)
        self.came = True
        return [examples[row] for row in done.rest.tolist()]

    def hold(self, threads: np.ndarray, value: Cell) -> None:
        """Keep what threads have returned until it can be handed out."""
        assert self.refill is not None
        rower = Rower(Context(self.refill.machine.state.services, threads))
        items = rows_left(rower, self.refill.record, value)
        if self.plan.isolates:
            items = list(map(Result, items))
        self.held.update(zip(threads.tolist(), items, strict=True))

    def begun(self, device: torch.device) -> Refill:
        """The engine, ready for threads whose numbers live on ``device``."""
        plan = self.plan
        library = self.library = plan.library.under(None, plan.options.writes)
        function = runnable(plan.function)
        options = plan.options
        inlines = options.fork == "auto" and options.seed is None
        called, receiver = function_of(function) or (function, MISSING)
        graph = CallGraph.of(library, called, receiver, inlines)
        if not plan.engine_given and graph.parts_in_calls:
            options = replace(options, engine="program_counter")
        rows = np.full(plan.width, NOBODY)
        shared = Shared(steps_of(plan, rows), None, None, policy_of(options.fallback))
        shared.steps.tally.shown = True  # what examples have given is handed out
        machine = machine_of(options, library, shared, device, plan.width)
        if options.compiles and (options.executor_at_work != "auto" or is_installed()):
            self.code = MachineCode(function, options, library, shared.steps.tally)
        queued = options.engine == "program_counter"
        one_queue, inside = queued and graph.comes_back, queued and not graph.recursive
        return Refill(machine, function, rows, plan.enough, one_queue, inside, inlines)

    def apply(self, in_order: bool = True) -> None:
        """Apply what examples have written to shared tensors that have finished.

        ``in_order``: only of those that all before have, too, so that none counts which the loop
        would not have come to.
        """
        assert self.refill is not None
        contributions = self.refill.machine.state.contributions
        if not contributions.noted:
            return
        at_work = self.refill.threads[self.refill.threads != NOBODY].tolist()
        if self.refill.failure is not None:
            contributions.fail(next(iter(self.refill.machine.failures.errors)))
            at_work = at_work if self.refill.is_busy else []  # those that failed keep their rows
        if at_work and in_order:
            drawn = {thread for each in contributions.noted for thread in each.threads.tolist()}
            at_work = [thread for thread in drawn if thread >= min(at_work)]
        tally = self.refill.machine.state.tally
        tally.applied(applied(apart(contributions, at_work)))

    def forget_writes(self) -> None:
        """An error of no single example's ends the stream: what waits is not applied."""
        if self.refill is not None:
            self.refill.machine.state.contributions.take_back(0)

    def ready(self) -> Results:
        """What can be handed out now."""
        if self.refill is None:
            return
        before = len(self.held)
        for threads, piece in self.refill.take():
            try:
                refuse_late_result(self.refill.machine.state, threads, piece)
            except AutobatchError:
                self.forget_writes()
                raise
            self.hold(threads, piece.value)
        for index, error in self.refill.lost().items():
            self.held[index] = Result(None, error)
        if self.came or len(self.held) > before:
            self.vacancies.left()
        self.came = False
        self.apply()
        if self.plan.order == "completion":
            for index in sorted(self.held):
                yield index, self.held.pop(index)
        while self.sent in self.held:
            yield self.sent, self.held.pop(self.sent)
            self.sent += 1


def runnable(function: Callable[..., Any]) -> Any:
    """``function`` as threads can enter it: a class is called by a program."""
    found = entry(function)
    if resolve_object(found, [], {}).effect == "construct":
        return calling(found)
    return found
