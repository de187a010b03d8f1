"""``pfor`` and ``map_fn`` inside a program: threads x rounds (arXiv 1903.04243).

In: a group of ``k`` threads, and how many rounds each makes: one number for all, or each its own
(``n`` of the thread's own, or ragged elements). Round ``j`` of all threads is one row each of one
call, in the order of the threads; ``rounds.owners`` says whose. Out: ``[k, n, *E]``, or where the
threads' numbers differ packed tensors, the rounds' results as their table.

A round's index is a Python int, as in ``for i in range(n)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.containers.structures import element
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.host.rower import Rower
from autobatch.batching.tables import packed
from autobatch.transforms import mapping, parts, regrouping
from autobatch.transforms.captured import Captured, held
from autobatch.transforms.inner_rows import InnerRows
from autobatch.transforms.runs import Call
from autobatch.values import packs
from autobatch.values.cells import INT_MAX, Cell, Objects, Uniform, as_column, read
from autobatch.values.heap import selecting


def counted(call: Call, draws: str | None) -> Cell:
    """``pfor(body, n)``; ``draws`` is its ``randomness``."""
    (n,) = call.args
    rounds = rounds_of(call.context, n)
    return run(call, "pfor", rounds, lambda: rounds.index(), draws)


def rounds_of(context: Context, cell: Cell) -> InnerRows:
    """How many rounds each thread makes."""
    value = read(cell)
    if type(value) is Uniform:
        try:
            return InnerRows.of(count(value.obj), context)
        except Exception as error:
            raise RowsFail(context.lowest(), error) from error
    given = Rower(context).rows(cell)
    numbers = np.zeros(context.k, dtype=np.int64)
    for row in context.order():
        try:
            numbers[row] = count(given[row])
        except Exception as error:
            raise RowsFail(row, error) from error
    return InnerRows(numbers, None, context.device)


def count(n: Any) -> int:
    """A number of rounds: an int of at least 0, or a 0-d tensor of one."""
    if isinstance(n, Tensor):
        whole = not n.dim() and not n.is_floating_point() | n.is_complex()
    else:
        whole = isinstance(n, int | np.integer)
    if not whole:
        raise TypeError(f"pfor takes a number of rounds, an int or a 0-d tensor; it got {n!r}")
    if not 0 <= int(n) <= INT_MAX:
        raise ValueError(f"pfor makes at least 0 rounds; it was asked for {int(n)}")
    return int(n)


def over_elements(call: Call, draws: str | None) -> Cell:
    """``map_fn(f, elems)``: a round for each element."""
    context, tree = call.context, parts.opened(call.args[0])
    leaves = parts.leaves(tree)
    ragged = [value for value in map(read, leaves) if packs.is_packed(value)]
    if not ragged:
        n = mapping.inner_size(leaves, [0] * len(leaves))
        if n is None:
            return call.by_thread("its elements have no common number")
        rounds = InnerRows.of(n, context)
        new = [mapping.inner_rows(leaf, 0, context.k) for leaf in leaves]
        return run(call, "map_fn", rounds, lambda: parts.rebuilt(tree, iter(new)), draws)
    lengths = [packs.parts_of(value)[1] for value in ragged]
    same = all(one is lengths[0] or torch.equal(one, lengths[0]) for one in lengths)
    if len(ragged) < len(leaves) or not same:
        return call.by_thread("its elements have no common number")
    counts = np.array(context.host(lengths[0], "rounds"), dtype=np.int64)
    rounds = InnerRows(counts, None, context.device)
    moved = selecting.select([tree], rounds.owners)[0]
    part = context.restricted(rounds.owners.tolist())
    return run(call, "map_fn", rounds, lambda: elements(part, moved, rounds), draws)


def elements(part: Context, tree: Cell, rounds: InnerRows) -> Cell:
    found = element(part, [tree, rounds.index()], {})
    assert found is not None
    return found


def run(
    call: Call, by: str, rounds: InnerRows, argument: Callable[[], Cell], draws: str | None
) -> Cell:
    """The function for every round of every thread."""
    context, part = call.context, rounds.within(call.context, draws)
    (function,) = selecting.select([call.function], rounds.owners)
    captured = Captured(part, [function])
    given = [argument()]
    try:
        with held(context, [function]):
            result = context.invoke(part, function, given, {}, gone=given)
        part.flush()
    except RowsFail as failure:
        raise rounds.outer(context, failure, regrouped) from failure.error
    mapping.refuse_writes(captured, context, by)
    return regrouped(part, result, rounds)


def regrouped(part: Context, result: Cell, rounds: InnerRows) -> Cell:
    """The rounds' results by thread, leaf by leaf."""
    tree = parts.opened(result)
    new = [grouped(part, leaf, rounds) for leaf in parts.leaves(tree)]
    return parts.rebuilt(tree, iter(new))


def grouped(part: Context, leaf: Cell, rounds: InnerRows) -> Cell:
    """One leaf of all rounds: ``[k, n, *E]``, packed, or a list for each thread."""
    if rounds.common is not None:
        return regrouping.grouped(part, leaf, rounds, 0)
    column = as_column(read(leaf), part.k, part.device)
    if column is not None:
        lengths = rounds.on_device(rounds.counts)
        rows = column.data
        return Cell(packs.in_order(rows.view_as(rows), rounds.counts.tolist(), lengths))
    items, ends = Rower(part).rows(leaf), np.cumsum(rounds.counts)
    own = [items[end - n : end] for end, n in zip(ends, rounds.counts, strict=True)]
    return packed.repacked(Cell(Objects([stacked(rows, items) for rows in own])))


def stacked(rows: list[Any], items: list[Any]) -> Any:
    """What the rounds of one thread give: a tensor where they stack, else a list.

    No rounds give none of what the ``items`` of others are.
    """
    if not rows and items and all(isinstance(item, Tensor) for item in items):
        return items[0].new_empty((0, *items[0].shape))
    if rows and all(isinstance(row, Tensor) for row in rows):
        return torch.stack(rows)
    return rows
