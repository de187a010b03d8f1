"""``pfor`` and ``map_fn`` inside a program: threads x rounds (arXiv 1903.04243).

In: a group of ``k`` threads, and how many rounds each makes: one number for all, or each its own
(``n`` of the thread's own, or ragged elements). Round ``j`` of all threads is one row each of one
call, in the order of the threads; ``rounds.rows`` says whose. Out: ``[k, n, *E]``, or where the
threads' numbers differ packed tensors, the rounds' results as their table.

A round's index is a Python int, as in ``for i in range(n)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.batching import packed
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.rows import Rower
from autobatch.batching.structures import element
from autobatch.random.paths import Ledger, Paths, split
from autobatch.transforms import mapping, parts
from autobatch.transforms.captured import Captured, held
from autobatch.transforms.runs import Call
from autobatch.vm import heap, packs
from autobatch.vm.values import (
    INT_MAX,
    NUMBER_DTYPES,
    NUMBER_TAGS,
    Cell,
    Column,
    Objects,
    Uniform,
    fits_column,
    read,
)


@dataclass(frozen=True, slots=True, eq=False)
class Rounds:
    """``counts[i]`` rounds of thread ``i``; ``common`` is their number where all share it."""

    counts: np.ndarray
    common: int | None
    device: torch.device

    @classmethod
    def of(cls, common: int, context: Context) -> Rounds:
        return cls(np.full(context.k, common), common, context.device)

    @property
    def rows(self) -> np.ndarray:
        """The thread's row of each round."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def numbers(self) -> np.ndarray:
        """The index of each round within its thread."""
        starts = np.cumsum(self.counts) - self.counts
        numbers: np.ndarray = np.arange(self.counts.sum()) - np.repeat(starts, self.counts)
        return numbers

    @property
    def longest(self) -> int:
        return int(self.counts.max(initial=0))

    def taken(self, kept: np.ndarray) -> Rounds:
        return Rounds(self.counts[kept], self.common, self.device)

    def on_device(self, numbers: np.ndarray) -> Tensor:
        return torch.from_numpy(numbers).to(self.device)

    def index(self) -> Cell:
        """Each round's index, an int."""
        bounds = (0, max(self.longest - 1, 0))
        return Cell(Column(self.on_device(self.numbers), "int", bounds))


def counted(call: Call) -> Cell:
    """``pfor(body, n)``."""
    (n,) = call.args
    rounds = rounds_of(call.context, n)
    return run(call, "pfor", rounds, lambda: rounds.index())


def rounds_of(context: Context, cell: Cell) -> Rounds:
    """How many rounds each thread makes."""
    value = read(cell)
    if type(value) is Uniform:
        try:
            return Rounds.of(count(value.obj), context)
        except Exception as error:
            raise RowsFail(context.lowest(), error) from error
    given = Rower(context).rows(cell)
    numbers = np.zeros(context.k, dtype=np.int64)
    for row in context.order():
        try:
            numbers[row] = count(given[row])
        except Exception as error:
            raise RowsFail(row, error) from error
    return Rounds(numbers, None, context.device)


def count(n: Any) -> int:
    """A number of rounds: an int of at least 0, or a 0-d tensor of one."""
    whole = isinstance(n, Tensor) and not n.dim() and not n.is_floating_point() | n.is_complex()
    if not whole and type(n) is not int:
        raise TypeError(f"pfor takes a number of rounds, an int or a 0-d tensor; it got {n!r}")
    if not 0 <= int(n) <= INT_MAX:
        raise ValueError(f"pfor makes at least 0 rounds; it was asked for {int(n)}")
    return int(n)


def over_elements(call: Call) -> Cell:
    """``map_fn(f, elems)``: a round for each element."""
    context, tree = call.context, parts.opened(call.args[0])
    leaves = parts.leaves(tree)
    ragged = [value for value in map(read, leaves) if packs.is_packed(value)]
    if not ragged:
        n = mapping.inner_size(leaves, [0] * len(leaves))
        if n is None:
            return call.by_thread("its elements have no common number")
        rounds = Rounds.of(n, context)
        new = [mapping.inner_rows(leaf, 0, context.k) for leaf in leaves]
        return run(call, "map_fn", rounds, lambda: parts.rebuilt(tree, iter(new)))
    lengths = [packs.parts_of(value)[1] for value in ragged]
    same = all(one is lengths[0] or torch.equal(one, lengths[0]) for one in lengths)
    if len(ragged) < len(leaves) or not same:
        return call.by_thread("its elements have no common number")
    counts = np.array(context.host(lengths[0], "rounds"), dtype=np.int64)
    rounds = Rounds(counts, None, context.device)
    moved = heap.select([tree], rounds.rows)[0]
    part = context.restricted(rounds.rows.tolist())
    return run(call, "map_fn", rounds, lambda: elements(part, moved, rounds))


def elements(part: Context, tree: Cell, rounds: Rounds) -> Cell:
    found = element(part, [tree, rounds.index()], {})
    assert found is not None
    return found


def run(call: Call, by: str, rounds: Rounds, argument: Callable[[], Cell]) -> Cell:
    """The function for every round of every thread."""
    context, rows = call.context, rounds.rows
    (function,) = heap.select([call.function], rows)
    part = context.restricted(rows.tolist())
    if context.paths is not None:
        part.paths = inner_paths(context.paths, rounds)
    captured = Captured(part, [function])
    try:
        with held(context, [function]):
            result = context.invoke(part, function, [argument()], {})
        part.flush()
    except RowsFail as failure:
        raise outer(context, failure, rounds) from failure.error
    mapping.refuse_writes(captured, context, by)
    return regrouped(part, result, rounds)


def inner_paths(paths: Paths, rounds: Rounds) -> Paths:
    """Where rounds draw under a seed: by keys of their own (see ``mapping.inner_paths``)."""
    keys = split(*paths.counted())
    return Paths.over(Ledger.of(split(keys[rounds.rows], rounds.numbers))).flattened()


def outer(context: Context, failure: RowsFail, rounds: Rounds) -> RowsFail:
    """A failure of a round as one of its thread."""
    rows = rounds.rows
    row = int(rows[failure.row])
    if failure.partial is None or failure.kept is None:
        return RowsFail(row, failure.error, span=failure.span)
    kept = np.unique(rows[failure.kept])
    less = rounds.taken(kept)
    part = context.restricted(kept[less.rows].tolist())
    partial = regrouped(part, failure.partial, less)
    return RowsFail(row, failure.error, partial, failure.span, kept)


def regrouped(part: Context, result: Cell, rounds: Rounds) -> Cell:
    """The rounds' results by thread, leaf by leaf."""
    tree = parts.opened(result)
    new = [grouped(part, leaf, rounds) for leaf in parts.leaves(tree)]
    return parts.rebuilt(tree, iter(new))


def grouped(part: Context, leaf: Cell, rounds: Rounds) -> Cell:
    """One leaf of all rounds: ``[k, n, *E]``, packed, or a list for each thread."""
    if rounds.common is not None:
        return mapping.grouped(part, leaf, len(rounds.counts), rounds.common, 0)
    table = table_of(part, leaf)
    if table is not None:
        lengths = rounds.on_device(rounds.counts)
        return Cell(packs.pack(table, lengths.cumsum(0) - lengths, lengths, rounds.longest))
    items, ends = Rower(part).rows(leaf), np.cumsum(rounds.counts)
    own = [items[end - n : end] for end, n in zip(ends, rounds.counts, strict=True)]
    return packed.repacked(Cell(Objects(list(map(stacked, own)))))


def stacked(rows: list[Any]) -> Any:
    """What the rounds of one thread give: a tensor where they stack, else a list."""
    if rows and all(isinstance(row, Tensor) for row in rows):
        return torch.stack(rows)
    return rows


def table_of(part: Context, leaf: Cell) -> Tensor | None:
    """A leaf's rows, one for each round; None if they do not stack."""
    value = read(leaf)
    match value:
        case Column(data=data):
            return data
        case Uniform(obj=Tensor() as obj):
            return obj.expand(part.k, *obj.shape)
        case Uniform(obj=obj) if fits_column(obj):
            dtype = NUMBER_DTYPES[NUMBER_TAGS[type(obj)]]
            return torch.full((part.k,), obj, dtype=dtype, device=part.device)
    return None
