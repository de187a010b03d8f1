"""Moves of rows, noted on the nodes of autograd's graph that they make.

A node that has no note keeps threads in their rows. The notes are in the dict that torch keeps for
each node (``Node.metadata``), so they live as long as the graph does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from autobatch import firsthand
from autobatch.compat import set_grad, within_duals, within_level
from autobatch.presence import kinds
from autobatch.presence.layers import differentiated
from autobatch.presence.wide_rows import rows_at

MOVE, PLACE, OWNERS = "autobatch.move", "autobatch.place", "autobatch.owners"
PERMUTES = (
    "IndexSelectBackward0",
    "IndexBackward0",
    "IndexAddBackward0",
    "IndexPutBackward0",
    "IndexPutBackward1",
    "FlipBackward0",
    "RollBackward0",
)
"""Nodes by which threads may come into other rows, where they have no note."""
AS_IT_IS = nullcontext()


class Recorded:
    """``torch.enable_grad`` for where it is not: it need not remember, so one serves all."""

    __slots__ = ()

    def __enter__(self) -> None:
        set_grad(True)

    def __exit__(self, *failure: object) -> None:
        set_grad(False)


RECORDED = Recorded()


def keeping() -> AbstractContextManager[Any]:
    """In here rows that move keep their gradients, whatever ``no_grad`` says, as those of a loop,
    which moves nothing, do; torch's inference mode has none to keep.
    """
    if firsthand.is_grad_enabled() or firsthand.is_inference_mode_enabled():
        return AS_IT_IS
    return RECORDED


def noted(result: Tensor, move: kinds.Move) -> Tensor:
    """The result of a move, which is noted in each graph that it is in."""
    for layer in differentiated(result):
        if (node := layer.tensor.grad_fn) is not None:
            notes_of(node)[MOVE] = move
    return result


def taken(data: Tensor, index: Tensor) -> Tensor:
    """``data[index]``."""
    return noted(rows_at(data, index), kinds.Taken(index, len(data)))


def kept(result: Tensor) -> Tensor:
    """What an index of the thread's own has read of its row, or written there."""
    return noted(result, kinds.KEPT)


def nodes_of(operands: Iterable[Tensor]) -> set[Any]:
    """Where the operands of an operation come from, in each graph that they are in."""
    return {layer.tensor.grad_fn for each in operands for layer in differentiated(each)}


def stayed(results: Iterable[Tensor], before: set[Any]) -> None:
    """Note of one operation of torch's that each thread's result is made of its own operands.

    ``before`` are the nodes of these; torch's batching rules may have put nodes of any kind
    between.
    """
    waiting, seen = list(nodes_of(results)), before | {None}
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.name() in PERMUTES:
            notes_of(node).setdefault(MOVE, kinds.KEPT)
        waiting += [earlier for earlier, _ in node.next_functions]


def added(result: Tensor, index: Tensor, count: int) -> Tensor:
    """What adds rows to those at ``index``, or puts them there: see ``Added``."""
    return noted(result, kinds.Added(index, count))


def flattened(data: Tensor) -> Tensor:
    """``data.flatten(0, 1)``."""
    return noted(data.flatten(0, 1), kinds.Spread(data.shape[1]))


def grouped(rows: Tensor, size: int) -> Tensor:
    """Each so many rows as one, ``[k, size, *E]``; ``size`` is not 0."""
    return noted(rows.reshape(-1, size, *rows.shape[1:]), kinds.Grouped(size))


def owned(table: Tensor, sizes: Sequence[int]) -> Tensor:
    """A table, made for that, of so many rows for each thread: its tensor, and needed as one.

    A loop's gradient of a part of a tensor is one of the whole, zero elsewhere.
    """
    for layer in differentiated(table):
        if (node := layer.tensor.grad_fn) is not None:
            notes_of(node)[OWNERS] = sizes
    return table


def joined(parts: Sequence[Tensor]) -> Tensor:
    """``torch.cat(parts)``."""
    result = torch.cat(list(parts))
    if is_differentiated(result):
        noted(result, kinds.Joined(tuple(part.shape[0] for part in parts)))
    return result


def cut(data: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """``data.split(sizes)``."""
    parts = torch.split(data, list(sizes))
    if parts and is_differentiated(data):
        noted(parts[0], kinds.Cut(tuple(sizes)))
    return parts


def parted(data: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """``data.split(sizes)``, of which each is a tensor of one thread's own."""
    parts = torch.split(data, list(sizes))
    if parts and is_differentiated(data):
        noted(parts[0], kinds.Parted(tuple(sizes)))
    return parts


def stacked(rows: Sequence[Tensor]) -> Tensor:
    """``torch.stack(rows)``, of rows that are threads' own."""
    with keeping():
        return noted(torch.stack(list(rows)), kinds.STACKED)


def unbound(data: Tensor) -> tuple[Tensor, ...]:
    """``data.unbind(0)``."""
    rows = data.unbind(0)
    if rows and is_differentiated(data):
        noted(rows[0], kinds.UNBOUND)
    return rows


def is_differentiated(tensor: Tensor) -> bool:
    """Whether it may be in any graph."""
    return tensor.requires_grad or within_level() or within_duals()


def notes_of(node: Any) -> dict[Any, Any]:
    notes: dict[Any, Any] = node.metadata
    return notes


def move_of(node: Any) -> kinds.Move | None:
    return notes_of(node).get(MOVE)


def owners_of(node: Any) -> Sequence[int] | None:
    """How many rows of a node's result each thread has as its tensor, if that is known."""
    return notes_of(node).get(OWNERS)


def place_of(node: Any) -> Any:
    """The place that a node's gradient comes by; None if it is none."""
    return notes_of(node).get(PLACE)
