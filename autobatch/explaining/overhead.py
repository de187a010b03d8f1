"""Whether a run has likely taken longer than the plain loop, by what it has counted.

Keeping threads together costs something for each block execution, however many threads there are;
it spares all operations of a thread but one in each launch. A loop of many block executions with
few threads each and cheap operations is lost on it. The estimate goes by counts and the constants
here, never by times: it says the same on any machine. Where it cannot tell (runs that were short,
much of Python's own work, tensors so large that an operation is not cheap) it says nothing. Of 84
runs of textbook programs, at 16 and 256 examples, it tells of 7, which have 0.003 to 0.16 times the
loop's speed; 28 others that have less than half of it go untold: short ones, and ones whose block
executions run operation by operation, which costs several times ``EXECUTION``.
"""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from math import log

from torch import Tensor

from autobatch.arguments.batch import Batch
from autobatch.arguments.mapped import Mapped, tree_leaves
from autobatch.ir.program import Block, Function, Label
from autobatch.listeners import Counts
from autobatch.options import Options
from autobatch.source import is_of_library
from autobatch.transforms.records import TORCH

EXECUTION = 75e-6
"""Seconds of a block execution: its queue, its checks, a few small kernels (40 to 500 measured)."""
TENSOR = 2.5e-6
"""Seconds of plain Python's for an operation on a small tensor (1.2 to 6 measured)."""
HEAVY = frozenset(
    {*TORCH.values(), "value_and_grad", "linalg", "fft", "backward", "pfor", "map_fn", "scan"}
)
"""Names by which programs call what takes long for one example."""
NUMBER = 0.05e-6
"""The same on a number of Python's."""
MANY = 32
"""Block executions from which a run is long enough for a judgement."""
SLOWER = 0.5
"""Of the loop's speed: an estimate is good to a factor of two or so."""
SMALL = 1024
"""Elements of an example's tensors up to which operations on them are taken to be cheap."""
ENOUGH = 2**16
"""Examples beyond which no batch is advised."""
Place = tuple[str, int]
"""A file and a line."""
Ran = dict[tuple[str, Label], Function]
"""The functions whose blocks ran, by what ``Counts`` call a block."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """A run in which block executions have likely cost more than they have spared.

    ``speed`` is the estimate, in the loop's; ``place`` the line at which most of it was spent,
    where ``there`` of the block executions were, with ``beside`` threads on average. ``own`` is
    that line of the user's own, if the other is a library's.
    """

    executions: int
    threads: float
    speed: float
    place: Place
    there: int
    beside: float
    own: Place | None = None

    @property
    def shown(self) -> Place:
        """The line that is to be told of first."""
        return self.own or self.place

    @property
    def where(self) -> str:
        """Where most is spent, beside the line that is shown."""
        if self.own is None:
            return "here"
        file, line = self.place
        return f"in a library that is called, most of your own here; there in {file}, line {line}"

    def told(self, name: str, batch: Batch, options: Options) -> str:
        source, ways = linecache.getline(*self.place).strip(), []
        least = enough(batch.size, self.threads, self.speed)
        if least is not None:
            little = ", if they part little" if batch.size == 1 else ""
            ways.append(f"a batch of {least:,} examples or more{little}")
        if is_scalar(batch) and not options.compiles:
            ways.append(
                'executor="compiled", if it compiles (autobatch.explain of '
                f'autobatch.vmap({name}, executor="compiled") says so)'
            )
        ways.append(f"autobatch.per_thread({name}), which is the plain loop")
        if self.threads < batch.size / 4 and options.schedule == "earliest":
            ways.append('schedule="most_threads" or engine="program_counter", which may keep more')
            ways[-1] += " threads together"
        return (
            f"{name} is likely slower than a plain loop: {self.executions:,} block executions, of "
            f"{self.threads:.3g} threads on average, cost more than they spare. Most are spent "
            f"{self.where}{f', at `{source}`' if source else ''}: {self.there:,}, of "
            f"{self.beside:.3g} threads. What may help: {'; '.join(ways)}."
        )


def overhead(
    counts: Counts, ran: Ran, numbers: bool, inner: Set[tuple[str, Label]] = frozenset()
) -> Overhead | None:
    """What a run was lost on; None where it was likely not.

    ``numbers``: what differs by thread are numbers of Python's, not tensors. ``inner`` are blocks
    whose operations will run with those of others (``within_converted``).
    """
    by_block = {block: times for block, times in counts.by_block.items() if block in ran}
    executions = sum(times for block, times in by_block.items() if block not in inner)
    if any(is_heavy(ran[name, pc].blocks[pc]) for name, pc in by_block):
        return None
    if executions < MANY or counts.plain or counts.plain_parts or counts.by_thread > executions:
        return None
    width = {block: counts.threads_by_block[block] / times for block, times in by_block.items()}
    spared = sum(width[block] * counts.launches_by_block[block] for block in by_block)
    speed = spared * (NUMBER if numbers else TENSOR) / (executions * EXECUTION)
    if speed >= SLOWER:
        return None
    lines: Counter[Place] = Counter()
    threads: Counter[Place] = Counter()
    for block, times in by_block.items():
        if block in inner:
            continue
        place = place_of(ran[block], block[1])
        lines[place] += times
        threads[place] += counts.threads_by_block[block]
    most, there = lines.most_common(1)[0]
    beside, own = threads[most] / there, None
    if is_of_library(most[0]):
        own = next((line for line, _ in lines.most_common() if not is_of_library(line[0])), None)
    return Overhead(executions, threads.total() / executions, speed, most, there, beside, own)


def within_converted(ran: Ran) -> Set[tuple[str, Label]]:
    """The blocks that do not run where those that are converted are recorded (``Converted``)."""
    found: set[tuple[str, Label]] = set()
    for (name, pc), function in ran.items():
        converted = function.blocks[pc].converted
        if converted is None:
            continue
        ahead = [] if converted.ends == pc else list(function.blocks[pc].targets())
        while ahead:
            label = ahead.pop()
            if (name, label) not in found:
                found.add((name, label))
                ahead += () if label == converted.ends else function.blocks[label].targets()
    return found


def is_heavy(block: Block) -> bool:
    return any(op.name in ("getattr", "global") and op.attr in HEAVY for op in block.ops)


def place_of(function: Function, pc: Label) -> Place:
    """The first line of a block."""
    block = function.blocks[pc]
    return min((op.span.file, op.span.line) for op in (*block.ops, block.terminator))


def enough(size: int, threads: float, speed: float) -> int | None:
    """A power of two of examples from which batching is likely to pay; None where no size may.

    Of more examples more part: where block executions of ``size`` of them had ``threads`` threads,
    these are taken to grow as a power of ``size``. Of ten programs that two measured to pay from 8
    to 180 examples, it says 16 to 256, but for a recursion of 1,000, and nothing for one in which
    nearly all part; one example tells nothing of that.
    """
    speed = max(speed, 1e-3)
    together = log(threads) / log(size) if size > 1 else 1.0
    if together * log(ENOUGH / size) < log(1 / speed):
        return None
    return 1 << int(size * speed ** (-1 / together)).bit_length()


def is_cheap(batch: Batch) -> bool:
    """Whether tensors are small enough for an operation on an example's to be cheap."""
    for leaf in tree_leaves((batch.args, batch.kwargs)):
        rows = max(batch.size, 1) if isinstance(leaf, Mapped) else 1
        data = leaf.data if isinstance(leaf, Mapped) else leaf
        if isinstance(data, Tensor) and data.numel() > SMALL * rows:
            return False
    return True


def is_scalar(batch: Batch) -> bool:
    """Whether an example gets numbers and 0-d tensors alone."""
    mapped = [leaf for leaf in tree_leaves((batch.args, batch.kwargs)) if isinstance(leaf, Mapped)]
    return all(isinstance(leaf.data, Tensor) and leaf.data.dim() == 1 for leaf in mapped)
