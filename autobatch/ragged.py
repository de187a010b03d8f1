"""Tensors of different lengths, from the caller and back to the caller.

``ragged(...)`` is what a caller passes: one tensor for each thread, of lengths of their own. For a
call it becomes ``Packed``: one table of rows for all threads, and where each thread's rows lie in
it. ``collected`` makes a result of one tensor for each thread, as ``ragged_out`` wants it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from autobatch import firsthand
from autobatch.errors import OptionError, UnknownOptionError
from autobatch.values import packs
from autobatch.values.cells import Cell

FORMS = ("nested", "list", "pad")
"""What ``ragged_out`` may be, besides None."""


class ragged:
    """One tensor for each thread, of lengths of their own: ``f.batch(autobatch.ragged(xs))``.

    In a program each thread has its own tensor ``[length, *E]``; ``len(x)``, ``x.shape``,
    ``for row in x``, ``x[i]`` and slices run batched, without copying more than the rows they read.
    Gradients flow to the tensors given.

    Args:
        tensors: a sequence of B tensors or arrays ``[length, *E]`` of one dtype, device and ``E``;
            with ``lengths``, one padded tensor ``[B, T, *E]``; or a nested tensor of B parts.
        lengths: how many rows of each part of a padded tensor count, B ints of at most T. What
            lies behind them is never read.

    Raises:
        OptionError: for tensors that are not alike, or lengths that do not fit.
    """

    __slots__ = ("lengths", "tensors")

    def __init__(self, tensors: Any, lengths: Any = None) -> None:
        self.lengths: Tensor | None = None
        self.tensors: Tensor | list[Tensor]
        if lengths is not None:
            self.tensors = as_tensor(tensors)
            self.lengths = lengths_of(self.tensors, lengths)
        elif isinstance(tensors, Tensor) and tensors.is_nested:
            self.tensors = tensors
        elif isinstance(tensors, Tensor | np.ndarray):
            raise OptionError(
                f"ragged(...) is given one tensor of shape {tuple(tensors.shape)} without lengths; "
                "pass the lengths too, or a list of tensors."
            )
        elif not isinstance(tensors, Iterable):
            raise UnknownOptionError(
                "ragged(...) takes a sequence with one tensor for each example; "
                f"it got {tensors!r}, of type {type(tensors).__name__}."
            )
        else:
            self.tensors = alike([as_tensor(tensor) for tensor in tensors])

    def __len__(self) -> int:
        if isinstance(self.tensors, Tensor) and self.tensors.is_nested:
            return self.tensors.size(0)
        return len(self.tensors)

    def __repr__(self) -> str:
        return f"<autobatch.ragged of {len(self)} tensors>"

    def packed(self) -> Packed:
        """The tensors as they are now, as rows of one table."""
        if self.lengths is not None:
            assert isinstance(self.tensors, Tensor)
            size, longest = self.tensors.shape[:2]
            table = self.tensors.reshape(size * longest, *self.tensors.shape[2:])
            return Packed(table, torch.arange(size) * longest, self.lengths)
        if isinstance(self.tensors, Tensor):
            parts = alike(list(self.tensors.unbind())) if len(self) else []
            return replace(joined(parts, self.tensors), offsets=offsets_of(self.tensors))
        return joined(self.tensors, firsthand.empty(0))


def joined(parts: Sequence[Tensor], none: Tensor) -> Packed:
    """Tensors one after the other; ``none`` has the dtype and device where there is no part."""
    lengths = firsthand.tensor([part.shape[0] for part in parts], dtype=torch.int64)
    if parts:
        table = firsthand.cat(list(parts))
    else:
        table = firsthand.empty(0, dtype=none.dtype, device=none.device)
    begins = firsthand.subtract(firsthand.cumsum(lengths, 0), lengths)
    return Packed(table, begins, lengths)


def offsets_of(nested: Any) -> Tensor | None:
    """Those of a jagged tensor, where its rows lie one after the other."""
    jagged = nested.layout is torch.jagged
    return nested.offsets() if jagged and nested.lengths() is None else None


def as_tensor(item: Any) -> Tensor:
    if isinstance(item, np.ndarray):
        return firsthand.as_tensor(item if item.flags.writeable else item.copy())
    if not isinstance(item, Tensor):
        raise OptionError(
            f"ragged(...) holds a {type(item).__name__}; it must hold tensors: "
            "torch.tensor(row) makes one of a list of numbers."
        )
    return item


def alike(parts: list[Tensor]) -> list[Tensor]:
    """The parts, if they differ in their first dimension only."""
    for part in parts:
        if not part.shape:
            raise OptionError("ragged(...) holds a 0-d tensor; its tensors need a first dimension.")
        for what in ("dtype", "device"):
            one, other = getattr(parts[0], what), getattr(part, what)
            if one != other:
                raise OptionError(f"ragged(...) holds tensors of the {what}s {one} and {other}.")
        if part.shape[1:] != parts[0].shape[1:]:
            raise OptionError(
                f"ragged(...) holds tensors of shapes {tuple(parts[0].shape)} and "
                f"{tuple(part.shape)}; only the first dimension may differ."
            )
    return parts


def lengths_of(padded: Tensor, given: Any) -> Tensor:
    """The lengths of a padded tensor's parts, on the host."""
    lengths = torch.as_tensor(given).detach().cpu()
    if padded.is_nested or padded.dim() < 2:
        raise OptionError("ragged(padded, lengths) takes a padded tensor [B, T, ...].")
    size, longest = padded.shape[:2]
    if lengths.shape != (size,) or (size and lengths.dtype.is_floating_point):
        raise OptionError(
            f"ragged(padded, lengths) has lengths of shape {tuple(lengths.shape)} and dtype "
            f"{lengths.dtype} for {size} parts; it takes an int for each."
        )
    lengths = lengths.to(torch.int64)
    wrong = lengths[(lengths < 0) | (lengths > longest)].tolist()
    if wrong:
        raise OptionError(
            f"ragged(padded, lengths) has the length {wrong[0]}; "
            f"it must lie between 0 and {longest}."
        )
    return lengths


@dataclass(frozen=True, slots=True)
class Packed:
    """Thread ``i`` has rows ``begins[i]`` to ``begins[i] + lengths[i]`` of ``table`` ``[N, *E]``.

    ``begins`` and ``lengths`` are ``[B]``, on the host. ``offsets`` are those of the jagged tensor
    that was given, if one was.
    """

    table: Tensor
    begins: Tensor
    lengths: Tensor
    offsets: Tensor | None = None

    @property
    def device(self) -> torch.device:
        return self.table.device

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Any) -> Any:
        """One thread's tensor, or some of the threads, by a slice or a tensor of places."""
        if not isinstance(index, int):
            return Packed(self.table, self.begins[index], self.lengths[index])
        begin, length = (
            firsthand.item(firsthand.getitem(each, index)) for each in (self.begins, self.lengths)
        )
        return firsthand.getitem(self.table, slice(begin, begin + length))

    def cell(self) -> Cell:
        """The threads' tensors as a packed value."""
        sizes = self.lengths.tolist()
        numbers = (self.begins.to(self.device), self.lengths.to(self.device))
        pack = packs.pack(self.table, *numbers, max(sizes, default=0))
        packs.note(pack, self.begins.tolist(), sizes)
        return Cell(pack)


Offsets = dict[tuple[int, ...], Tensor]
"""By what they hold: torch takes two jagged tensors together only where they share theirs."""


def collected(rows: Sequence[Tensor], none: Tensor, form: str, offsets: Offsets) -> Any:
    """A tensor for each thread, different in the first dimension only, as ``ragged_out`` says.

    ``none`` ``[0, n, *E]`` is what they would stack to if there were no thread.

    ``"list"``: a list. ``"nested"``: a jagged nested tensor. ``"pad"``: a pair of a tensor
    ``[B, T, *E]``, zeros behind each thread's rows, and the lengths ``[B]``. ``offsets`` are those
    that other jagged tensors have.
    """
    if form == "list":
        return list(rows)
    sizes = [row.shape[0] for row in rows]
    lengths = firsthand.tensor(sizes, dtype=torch.int64, device=none.device)
    if form == "pad":
        return (pad_sequence(list(rows), batch_first=True) if rows else none), lengths
    ends = (0, *accumulate(sizes))
    own = offsets.get(ends)
    if own is None or own.device != none.device:
        own = firsthand.tensor(ends, dtype=torch.int64, device=none.device)
        offsets[ends] = own
    values = firsthand.cat(list(rows)) if rows else firsthand.flatten(none, 0, 1)
    return torch.nested.nested_tensor_from_jagged(values, own)
