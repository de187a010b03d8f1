"""Matrices of as many rows and columns as each thread likes, padded: what ``q @ k.T`` gives.

They are ``Stacks``: who does not know that they are padded takes them apart by shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from autobatch.compat import on_device
from autobatch.presence import moves
from autobatch.values.packs import Order
from autobatch.values.stacks import Part, Stacks


@final
class Matrices(Stacks):
    """``data[i, :n, :m]`` is the tensor of thread ``i``; ``rows`` and ``columns`` are how many.

    What lies behind these is arbitrary, and so is a gradient there; ``has_zeros`` tells that it is
    zero behind the columns.
    """

    __slots__ = ("columns", "data", "has_zeros", "rows")

    def __init__(self, data: Tensor, rows: Order, columns: Order, has_zeros: bool = False) -> None:
        super().__init__([])
        self.data = data
        self.has_zeros = has_zeros
        self.rows = rows
        self.columns = columns

    @property
    def k(self) -> int:
        return len(self.data)

    @property
    def shapes(self) -> list[torch.Size]:
        sizes = zip(self.rows.sizes, self.columns.sizes, strict=True)
        return [torch.Size(size) for size in sizes]

    def signatures(self) -> list[Any]:
        return [(self.data.dtype, shape, self.data.device) for shape in self.shapes]

    @property
    def parts(self) -> list[Part]:
        """The threads of each shape, made when somebody asks."""
        if not self._parts:
            groups: dict[torch.Size, list[int]] = {}
            for row, shape in enumerate(self.shapes):
                groups.setdefault(shape, []).append(row)
            together = [row for rows in groups.values() for row in rows]
            data = moves.taken(self.data, torch.tensor(together, device=self.data.device))
            tables = moves.cut(data, [len(rows) for rows in groups.values()])
            self._parts = [
                (rows, table[:, :n, :m])
                for ((n, m), rows), table in zip(groups.items(), tables, strict=True)
            ]
        return self._parts

    def select(self, rows: np.ndarray) -> Matrices:
        index = on_device(rows, self.data.device)
        down, across = (chosen(order, rows, index) for order in (self.rows, self.columns))
        data = moves.taken(self.data[:, : down.longest, : across.longest], index)
        return Matrices(data, down, across, self.has_zeros)


def chosen(order: Order, rows: np.ndarray, index: Tensor) -> Order:
    """How many some threads have."""
    sizes = [order.sizes[row] for row in rows.tolist()]
    return Order(sizes, order.lengths[index])


def joined(many: Sequence[Matrices]) -> Matrices:
    """The threads of some one after the other."""
    pairs = [(part.rows, part.columns) for part in many]
    rows, columns = (one_after_another(orders) for orders in zip(*pairs, strict=True))
    wide = [widened(part.data, rows.longest, columns.longest) for part in many]
    return Matrices(moves.joined(wide), rows, columns, all(part.has_zeros for part in many))


def one_after_another(orders: Sequence[Order]) -> Order:
    sizes = [size for order in orders for size in order.sizes]
    return Order(sizes, torch.cat([order.lengths for order in orders]))


def widened(data: Tensor, rows: int, columns: int) -> Tensor:
    missing = (0, columns - data.shape[2], 0, rows - data.shape[1])
    return F.pad(data, missing) if any(missing) else data
