"""What ``explain`` tells: records of lines, functions and runs, and their text.

Each record's ``str`` is its part of the text; a line is followed by its notes, one a line.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autobatch.batching.fallbacks import (
    BESIDE_TENSORS,
    HINTS,
    ON_OBJECTS,
    WORTH_IT,
    is_often,
    reason,
)
from autobatch.listeners import Counts
from autobatch.source import is_of_library

MOST = 4
"""Kinds of one value that a line tells of."""
PLAINLY = (
    "A call of {0} runs as plain Python, one example after the other, which takes less time; "
    "explain keeps the threads together to look at them."
)
COMPILED = (
    "compiled: each thread runs by itself, in machine code; explain keeps them together to look at "
    "them"
)
LIBRARIES = "Functions of libraries (report.unfolded() has their lines):"
SLOWEST = "Most of its time, untraced:"
BY_THREAD = "Thread by thread, where it might not be meant:"
TOLD = 3
"""Lines of each kind that the summary has."""
SHAPE = " ["
"""What the kind of a tensor has, ``float32 [4]``, and no other."""


@dataclass(frozen=True, slots=True)
class BlockRuns:
    """How often a block ran, and for how many threads at least, at most and in all.

    ``seconds`` is what all its runs took, operation by operation as ``explain`` runs them;
    ``roofline`` what their kernels alone take at least, by an estimate from shapes.
    """

    pc: int
    runs: int
    fewest: int
    most: int
    threads: int
    seconds: float = 0.0
    roofline: float = 0.0

    def __str__(self) -> str:
        width = f"{self.fewest}" if self.fewest == self.most else f"{self.fewest} to {self.most}"
        word = "thread" if width == "1" else "threads"
        return f"block {self.pc} ran {times(self.runs)}, {width} {word}"

    @property
    def cost(self) -> str:
        """What a run of it cost on average, and what it would at least."""
        measured, least = (micros(total / self.runs) for total in (self.seconds, self.roofline))
        return (
            f"a run of block {self.pc} took {measured} untraced, its kernels take {least} or more"
        )


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the source: the blocks that begin there, the values that its results held
    (``("n", ("column int",))``), what ran thread by thread there and why, and which variables kept
    groups apart that waited for a block that begins there; of ``stretches`` that begin there,
    whether earlier runs have compiled or captured them, and if not why; what becomes of
    ``branches``, and why.
    """

    number: int
    text: str
    blocks: tuple[BlockRuns, ...] = ()
    values: tuple[tuple[str, tuple[str, ...]], ...] = ()
    fallbacks: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    stretches: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()

    def __str__(self) -> str:
        notes = [note for block in self.blocks for note in (str(block), block.cost)]
        notes += self.branches
        notes += [f"{name}: {listed(kinds, ' or ')}" for name, kinds in self.values]
        notes += [f"thread by thread {fallback}" for fallback in self.fallbacks]
        notes += [f"groups kept apart {apart}" for apart in self.apart]
        notes += [f"from here on {told}" for told in self.stretches]
        source = f"{self.number:5} | {self.text}".rstrip()
        return "\n".join([source, *(f"      |     # {note}" for note in notes)])


@dataclass(frozen=True, slots=True)
class FunctionReport:
    """A function of the program that ran, with the lines of its source."""

    name: str
    file: str
    lines: tuple[Line, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.name} ({Path(self.file).name})", *map(str, self.lines)])

    @property
    def blocks(self) -> list[BlockRuns]:
        """All that ran."""
        return [block for line in self.lines for block in line.blocks]

    @property
    def seconds(self) -> float:
        """What its blocks took, untraced."""
        return sum(block.seconds for block in self.blocks)

    @property
    def folded(self) -> str:
        """All of it in one line."""
        runs = sum(block.runs for block in self.blocks)
        most = max([block.most for block in self.blocks] or [0])
        told = f"{runs} block executions, {most} threads or fewer, {micros(self.seconds)} untraced"
        apart = sum(len(line.fallbacks) for line in self.lines)
        if apart:
            told += f", {apart} kinds of operations thread by thread"
        return f"{self.name} ({Path(self.file).name}): {told}"


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What ``explain`` tells; ``str(report)`` is its text, ``unfolded()`` that with all lines of
    the library functions that ran, too.

    ``result`` is what ``.batch`` would have returned, None if the program failed. ``compiled``
    says whether there is a compiled form of the program, or for ``"cudagraph"`` a device to capture
    on, and if not why. ``plainly``: a call that nobody looks at runs all of it
    as plain Python. ``overhead`` is what is to be said of a run that has likely taken longer than
    the plain loop. ``objection`` is what keeps it from being run as plain Python, where that would
    be better.
    """

    title: str
    threads: int
    functions: tuple[FunctionReport, ...]
    counts: Counts
    result: Any = None
    compiled: str = ""
    plainly: bool = False
    overhead: str = ""
    objection: str = ""

    def headline(self) -> str:
        """The run as a whole."""
        total = self.counts
        headline = (
            f"{self.title}: {self.threads} threads, {total.block_executions} block executions, "
            f"{total.host_reads} host reads, {total.by_thread} operations thread by thread"
        )
        if self.is_compiled:
            return f"{headline}\n{COMPILED}"
        if self.plainly:
            headline += f"\n{PLAINLY.format(self.title)}"
        elif self.is_on_objects():
            headline += f"\n{total.by_thread} {ON_OBJECTS.format(self.title)}"
        elif self.is_often():
            headline += f"\n{BESIDE_TENSORS.format(self.title)}"
        if self.objection:
            headline += f"\n{self.objection}"
        if self.overhead:
            headline += f"\n{self.overhead}"
        if self.compiled and not self.plainly:
            headline += f"\n{self.compiled}"
        return headline

    @property
    def is_compiled(self) -> bool:
        """Whether a run that nobody looks at is machine code."""
        return self.compiled == COMPILED

    def __str__(self) -> str:
        own = self.own()
        others = [each for each in self.functions if not any(each is one for one in own)]
        parts = [*self.headlines(), *map(str, own)]
        if others:
            told = f"{LIBRARIES}\n" + "\n".join(f"  {each.folded}" for each in others)
            parts.append(told)
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        """Short: what returns it has printed it."""
        runs = self.counts.block_executions
        return (
            f"<autobatch.Report of {self.title}: {self.threads} threads, {runs} block executions>"
        )

    def unfolded(self) -> str:
        """The text with every line of every function."""
        return "\n\n".join([*self.headlines(), *map(str, self.functions)])

    def own(self) -> list[FunctionReport]:
        """The functions that are told of line by line: the user's, and what was asked about."""
        return [
            each
            for number, each in enumerate(self.functions)
            if not number or not is_of_library(each.file)
        ]

    def headlines(self) -> list[str]:
        """What stands above the lines: the run as a whole, and where most of it is."""
        return list(filter(None, (self.headline(), self.slowest(), self.by_thread())))

    def slowest(self) -> str:
        """The lines whose blocks took most, where that is more than one."""
        found = [
            (sum(block.seconds for block in line.blocks), function, line)
            for function in self.functions
            for line in function.lines
            if line.blocks
        ]
        total = sum(seconds for seconds, _, _ in found)
        if len(found) < 2 or not total:
            return ""
        found.sort(key=lambda each: -each[0])
        told = [
            f"  {seconds / total:.0%} from {place(function, line)} on: {line.text.strip()}"
            for seconds, function, line in found[:TOLD]
        ]
        return "\n".join([SLOWEST, *told])

    def by_thread(self) -> str:
        """The lines on which most ran thread by thread without being meant to, and what to do."""
        found = [
            (runs, f"  {Path(file).name}, line {line}, {times(runs)}: {reason(what, why)}")
            for (file, line, what, why), runs in self.counts.fallbacks_by_place.items()
        ]
        if not found:
            return ""
        found.sort(key=lambda each: -each[0])
        told = [text for _, text in found[:TOLD]]
        if len(found) > TOLD:
            told.append(f"  and {len(found) - TOLD} more, below")
        return "\n".join([BY_THREAD, *told, *(f"  Hint: {hint}" for hint in HINTS)])

    def is_often(self) -> bool:
        """Whether much ran thread by thread."""
        return is_often(self.counts.meant, self.counts.launches)

    def is_on_objects(self) -> bool:
        """Whether much ran thread by thread, and no tensor was ever a value of the program's."""
        objects = any("objects" in kind for kind in self.kinds())
        return self.counts.by_thread >= WORTH_IT and objects and not self.has_tensors()

    def has_tensors(self) -> bool:
        """Whether a tensor was ever a value of the program's."""
        return any(SHAPE in kind for kind in self.kinds())

    def kinds(self) -> list[str]:
        lines = [line for function in self.functions for line in function.lines]
        return [kind for line in lines for _, held in line.values for kind in held]

    def line(self, number: int) -> Line:
        """The line of that number in the first function that has it."""
        for function in self.functions:
            for line in function.lines:
                if line.number == number:
                    return line
        raise KeyError(number)


def place(function: FunctionReport, line: Line) -> str:
    return f"{Path(function.file).name}, line {line.number}"


def listed(kinds: tuple[str, ...], between: str = ", ") -> str:
    return between.join(kinds if len(kinds) <= MOST else (*kinds[:MOST], "…"))


def times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} µs"
