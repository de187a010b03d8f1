"""``explain``: one run of a program, told line by line of the user's source.

In: a function and arguments as ``.batch`` takes them. Out: a ``Report``, printed too: for each
line of each function that ran, how often its blocks ran and for how many threads, which kinds
of values its results held, and what ran thread by thread and why. The run is untraced, so that
each operation can be looked at.
"""

from __future__ import annotations

import linecache
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from autobatch.alone import Asked, asked, better_alone, objection
from autobatch.api import LIBRARY, Function, batch_of
from autobatch.arguments.batch import Batch
from autobatch.arguments.misfits import noted
from autobatch.batching.fallbacks import is_often, quoted, reason
from autobatch.batching.fused import Hot
from autobatch.batching.stretches import CAPTURE, COMPILING
from autobatch.compiled import Refused, plan_of
from autobatch.errors import OptionError
from autobatch.explaining.apart import unlike
from autobatch.explaining.kinds import is_data, kind_of
from autobatch.explaining.overhead import is_cheap, overhead, within_converted
from autobatch.explaining.report import (
    COMPILED,
    BlockRuns,
    FunctionReport,
    Line,
    Report,
    times,
)
from autobatch.explaining.stopwatch import Stopwatch
from autobatch.ir.program import Call, Op
from autobatch.ir.program import Function as Lowered
from autobatch.listeners import Counts, Tally, counts
from autobatch.options import Options
from autobatch.passes.conversion_reasons import reasons
from autobatch.results.stacking import plain
from autobatch.runs.entry import name_of, started
from autobatch.runs.running import run
from autobatch.transforms.records import made_of
from autobatch.values.cells import Cell, read

QUIET = frozenset(
    {
        "catches",
        "const",
        "global",
        "load_free",
        "free_box",
        "box",
        "function",
        "import",
        "import_from",
        "iter",
        "next",
    }
)
"""Operations whose results are told of only where a variable of the program's holds them."""


def explain(func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Report:
    """Run a function once for a batch, print what happened line by line, and return it.

    Args:
        func: a per-example function; one made by ``autobatch.function`` or ``autobatch.vmap``
            has its options respected, but for the executor and the sequential engine.
        *args, **kwargs: as for ``.batch``, or for what ``autobatch.vmap`` has returned.

    Raises what ``.batch`` raises, when the report up to there is printed.
    """
    wrapped, options = func, Options()
    if isinstance(func, Function):
        wrapped, options = func.__autobatch_function__, func.options
    elif made_of(func) is not None and hasattr(func, "__autobatch_mapped__"):
        wrapped, options = func.__autobatch_mapped__
    if not callable(wrapped):
        raise OptionError(f"autobatch.explain runs functions; it got {func!r}.")
    if options.writes:
        raise OptionError(
            f"stateful is {options.stateful!r}: {name_of(wrapped)} runs one thread after the "
            "other, so there is nothing to explain."
        )
    engine = "stackless" if options.engine == "sequential" else options.engine
    batch = batch_of(wrapped, args, kwargs, options)
    watch = Watch(machine_code(wrapped, batch, options))
    watch.stretches = stretches(options)
    plainly = asked(started(wrapped), batch, options, LIBRARY.under(options.passes))
    proof = None if plainly is None else better_alone(plainly)
    watch.plainly = not options.is_one_by_one and (
        proof is not None and proof.prints is None  # else it goes by what examples do
    )
    given, options = options, options.updated({"engine": engine, "executor": "vmap"})
    report = None
    try:
        report = watched(wrapped, batch, options, watch)
        report = replace(report, overhead=lost(watch, report, batch, given))
        if plainly is not None and not watch.plainly and is_told(plainly, report):
            report = replace(report, objection=objection(plainly, report.title))
    finally:
        print(report or watch.report(name_of(wrapped), batch.size))
    return report


def is_told(plainly: Asked, report: Report) -> bool:
    """Whether a run might have been better as plain Python."""
    given = plainly.given.values()
    objects = any(each.are_objects for each in given) and not report.has_tensors()
    often = report.is_often() or is_often(report.counts.by_thread, report.counts.launches)
    return objects or bool(report.overhead) or report.is_on_objects() or often


def machine_code(func: Callable[..., Any], batch: Batch, options: Options) -> str:
    """Whether an executor can do what it is for with all of a program, and if not where and why."""
    if options.executor_at_work == "cudagraph":
        why = CAPTURE.reason_against()
        return f"not captured, traced instead: {why}" if why else ""
    if not options.compiles:
        return ""
    library = LIBRARY.under(options.passes)
    try:
        plan_of(started(func), batch, options, library, Tally(()))
    except Refused as refused:
        span = refused.span
        where = f"{Path(span.file).name}, line {span.line}: " if span is not None else ""
        return f"not compiled, traced instead: {where}{refused.why}"
    return COMPILED


def stretches(options: Options) -> dict[tuple[str, int], list[str]]:
    """What has become of the stretches that begin on a line, in runs before this one."""
    found: dict[tuple[str, int], list[str]] = {}
    named = options.executor_of_stretches
    if isinstance(named, str):
        executor = COMPILING.get((named, options.fast_math))
        for made in () if executor is None else executor.made:
            if made.span is not None:
                measured = made.measured if isinstance(made, Hot) else ""
                told = f"{made.told} ({measured})" if measured else made.told
                found.setdefault((made.span.file, made.span.line), []).append(told)
    return {place: sorted(set(told)) for place, told in found.items()}


def watched(func: Callable[..., Any], batch: Batch, options: Options, watch: Watch) -> Report:
    title = name_of(func)
    with counts() as watch.counts:
        try:
            result = run(func, batch, options, LIBRARY.under(options.passes), observer=watch)
        except TypeError as error:
            noted(error, func, batch)
            raise
    watch.stopwatch.stop()
    return watch.report(title, batch.size, plain(result))


def lost(watch: Watch, report: Report, batch: Batch, options: Options) -> str:
    """What is to be said of a run that has likely taken longer than the plain loop.

    Nothing where a call that is not explained goes another way. Where it is recorded its block
    executions are fewer: those are told of that are left.
    """
    ran = {
        (seen.function.name, pc): seen.function
        for seen in watch.functions.values()
        for pc in seen.sizes
    }
    named = options.executor_of_stretches
    inner = within_converted(ran) if named != "vmap" else frozenset()
    if watch.plainly or report.is_compiled or report.is_on_objects() or not is_cheap(batch):
        return ""
    found = overhead(watch.counts, ran, not report.has_tensors(), inner)
    if found is None:
        return ""
    file, line = found.shown
    return f"{Path(file).name}, line {line}: {found.told(report.title, batch, options)}"


# The run, watched.


@dataclass(slots=True, eq=False, repr=False)
class Watch:
    """An observer that keeps what each line held, by function, in the order of their first run.

    ``compiled`` is what the report has to say of the compiled form, ``stretches`` that of those
    that begin on a line; ``plainly``: without an onlooker plain Python runs all of it.
    """

    compiled: str = ""
    plainly: bool = False
    stretches: Mapping[tuple[str, int], Sequence[str]] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    functions: dict[int, Seen] = field(default_factory=dict)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    def seen(self, function: Lowered) -> Seen:
        return self.functions.setdefault(id(function), Seen(function, self.stopwatch))

    def block(self, function: Lowered, pc: int, threads: np.ndarray, env: dict[str, Cell]) -> None:
        self.stopwatch.stop()
        seen = self.seen(function)
        seen.sizes.setdefault(pc, []).append(len(threads))
        if pc == 0:
            for param in function.params:
                if param.name in env:
                    seen.hold(function.span.line, param.name, env[param.name])
        self.stopwatch.start((id(function), pc))

    def operation(self, function: Lowered, op: Op | Call, env: dict[str, Cell]) -> None:
        place = self.stopwatch.running
        with self.stopwatch.paused():
            if isinstance(op, Op):
                self.stopwatch.ran(place, op, env)
            outs = (op.out,) if isinstance(op, Call) else op.outs
            told = not isinstance(op, Op) or op.name not in QUIET
            for out in outs:
                own = not out.startswith("%")
                if out in env and (own or (told and is_data(read(env[out])))):
                    label = out if own else quoted(op.span).strip("`")
                    self.seen(function).hold(op.span.line, label, env[out])

    def apart(
        self, function: Lowered, pc: int, first: dict[str, Cell], other: dict[str, Cell]
    ) -> None:
        why = unlike(first, other)
        if why is not None:
            self.seen(function).apart.setdefault(pc, Counter())[why] += 1

    def report(self, title: str, threads: int, result: Any = None) -> Report:
        by_line: dict[tuple[str, int], Counter[str]] = {}
        places = self.counts.fallbacks_by_place + self.counts.meant_by_place
        for (file, line, what, why), count in places.items():
            by_line.setdefault((file, line), Counter())[reason(what, why)] += count
        functions = [seen.report(by_line, self.stretches) for seen in self.functions.values()]
        return Report(
            title, threads, tuple(functions), self.counts, result, self.compiled, self.plainly
        )


@dataclass(slots=True, eq=False, repr=False)
class Seen:
    """What is known of one function: group sizes by block, kinds by line and value."""

    function: Lowered
    stopwatch: Stopwatch
    sizes: dict[int, list[int]] = field(default_factory=dict)
    values: dict[int, dict[str, Counter[str]]] = field(default_factory=dict)
    apart: dict[int, Counter[str]] = field(default_factory=dict)

    def hold(self, line: int, name: str, cell: Cell) -> None:
        kinds = self.values.setdefault(line, {}).setdefault(name, Counter())
        kinds[kind_of(read(cell))] += 1

    def report(
        self,
        fallbacks: Mapping[tuple[str, int], Counter[str]],
        stretches: Mapping[tuple[str, int], Sequence[str]],
    ) -> FunctionReport:
        span = self.function.span
        blocks, apart = self.blocks_by_line(), self.apart_by_line()
        branches = self.branches_by_line()
        lines = []
        for number, text in source_lines(span.file, span.line, span.end_line):
            values = self.values.get(number, {})
            lines.append(
                Line(
                    number,
                    text,
                    tuple(blocks.get(number, ())),
                    tuple((name, tuple(kinds)) for name, kinds in values.items()),
                    tuple(
                        f"{times(count)}: {why}"
                        for why, count in fallbacks.get((span.file, number), Counter()).items()
                    ),
                    tuple(apart.get(number, ())),
                    tuple(stretches.get((span.file, number), ())),
                    tuple(branches.get(number, ())),
                )
            )
        return FunctionReport(self.function.name, span.file, tuple(lines))

    def blocks_by_line(self) -> dict[int, list[BlockRuns]]:
        """The blocks that ran, by the first line that they hold."""
        found: dict[int, list[BlockRuns]] = {}
        for pc in sorted(self.sizes):
            sizes = self.sizes[pc]
            place = (id(self.function), pc)
            cost = self.stopwatch.seconds[place], self.stopwatch.least[place]
            runs = BlockRuns(pc, len(sizes), min(sizes), max(sizes), sum(sizes), *cost)
            found.setdefault(self.line_of(pc), []).append(runs)
        return found

    def apart_by_line(self) -> dict[int, list[str]]:
        """Why groups were kept apart at blocks, by the first line that those hold."""
        found: dict[int, list[str]] = {}
        for pc in sorted(self.apart):
            told = [f"at block {pc} {times(count)}: {why}" for why, count in self.apart[pc].items()]
            found.setdefault(self.line_of(pc), []).extend(told)
        return found

    def branches_by_line(self) -> dict[int, list[str]]:
        """What becomes of the branches of blocks that ran, and why."""
        found: dict[int, list[str]] = {}
        for pc, why in reasons(self.function).items():
            if pc in self.sizes:
                line = self.function.blocks[pc].terminator.span.line
                found.setdefault(line, []).append(f"block {pc}: {why}")
        return found

    def line_of(self, pc: int) -> int:
        block = self.function.blocks[pc]
        return min(op.span.line for op in (*block.ops, block.terminator))


def source_lines(file: str, first: int, last: int) -> Iterator[tuple[int, str]]:
    """Numbered lines, without the indentation that all have."""
    texts = [linecache.getline(file, number).rstrip() for number in range(first, last + 1)]
    return zip(range(first, last + 1), textwrap.dedent("\n".join(texts)).split("\n"), strict=True)
