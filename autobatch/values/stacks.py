"""Tensors of unlike shapes, one for each thread: those of one shape stacked, until looked at.

``q @ k.T`` of threads of different lengths gives matrices of as many shapes. Operations run once
for the threads of each shape, so what they give stays together: nothing is taken apart and stacked
again between one operation and the next. The stacks are never written: whoever wants the threads'
own tensors gets copies, and the stacks are gone (see ``cells.Objects``).

    parts[i] = (rows, data)    data[j], of [len(rows), *E], is the tensor of the thread in rows[j]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.presence import moves
from autobatch.presence.guards import guarded_rows
from autobatch.values.strides import copies

Part = tuple[list[int], Tensor]


class Stacks:
    """Each row is in one part; two parts may be of one shape."""

    __slots__ = ("_at", "_parts")

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = list(parts)
        self._at: list[tuple[int, int]] | None = None

    @property
    def parts(self) -> list[Part]:
        return self._parts

    @property
    def k(self) -> int:
        return sum(len(rows) for rows, _ in self.parts)

    @property
    def at(self) -> list[tuple[int, int]]:
        """The part that has each row, and where."""
        if self._at is None:
            self._at = [(-1, -1)] * self.k
            for number, (rows, _) in enumerate(self.parts):
                for place, row in enumerate(rows):
                    self._at[row] = (number, place)
        return self._at

    def signatures(self) -> list[Any]:
        """What is equal for rows that are alike."""
        kinds = [(data.dtype, data.shape[1:], data.device) for _, data in self.parts]
        return [kinds[number] for number, _ in self.at]

    def taken(self, rows: list[int]) -> Tensor:
        """Some rows, which are alike, stacked."""
        for mine, data in self.parts:
            if mine == rows:
                return data
        at = self.at
        numbers = sorted({at[row][0] for row in rows})
        begins, parts = dict[int, int](), list[Tensor]()
        for number in numbers:
            begins[number] = sum(map(len, parts))
            parts.append(self.parts[number][1])
        data = parts[0] if len(parts) == 1 else moves.joined(parts)
        places = [begins[at[row][0]] + at[row][1] for row in rows]
        return moves.taken(data, torch.tensor(places, device=data.device))

    def select(self, rows: np.ndarray) -> Stacks:
        """The same for some rows, which may be the same ones."""
        at, parts = self.at, dict[int, tuple[list[int], list[int]]]()
        for new, row in enumerate(rows.tolist()):
            number, place = at[row]
            mine, places = parts.setdefault(number, ([], []))
            mine.append(new)
            places.append(place)
        return Stacks([(mine, self.picked(n, places)) for n, (mine, places) in parts.items()])

    def picked(self, number: int, places: list[int]) -> Tensor:
        data = self.parts[number][1]
        if places == [*range(len(data))]:
            return data
        return moves.taken(data, torch.tensor(places, device=data.device))

    def opened(self) -> list[Tensor]:
        """The threads' own tensors: copies."""
        found: list[Any] = [None] * self.k
        for rows, data in self.parts:
            with torch.inference_mode(data.is_inference()), torch.enable_grad():
                own = copies(guarded_rows(data))
            for row, copy in zip(rows, own, strict=True):
                found[row] = copy
        return found


def joined(many: Sequence[Stacks]) -> Stacks:
    """The rows of some one after the other; those of one shape are one part."""
    kinds = dict[Any, tuple[list[int], list[Tensor]]]()
    for rows, data in _numbered(many):
        mine, tables = kinds.setdefault((data.dtype, data.shape[1:], data.device), ([], []))
        mine += rows
        tables.append(data)
    return Stacks(
        [
            (rows, tables[0] if len(tables) == 1 else moves.joined(tables))
            for rows, tables in kinds.values()
        ]
    )


def _numbered(many: Sequence[Stacks]) -> Iterator[Part]:
    begin = 0
    for stacks in many:
        for rows, data in stacks.parts:
            yield [begin + row for row in rows], data
        begin += stacks.k
