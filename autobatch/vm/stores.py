"""The memory of tensors that lists of different lengths refer to (``arrays``).

A list holds references: ``xs.append(h); h += 1`` is seen through ``xs[-1]``. So a tensor that goes
into an array gets a row of a *store*, and every name of it becomes a view of that row. A slot of an
array holds the row's number, and so does the view:

    xs.append(h)  ->  h is a view of pool[p], the slot holds p
    y = xs[i]     ->  y is a view of pool[slot]

A store is a ``Container`` of the mark ``STORE``; ``static`` is its ``Pool``, a table of like
tensors that only grows, and which the groups of a split share: each has rows of its own. A write to
a tensor gives its group a new pool. A store whose tensors another one has taken over holds that
one's cell and how far its rows lie (``Linked``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeGuard, final

import torch
from torch import Tensor

from autobatch.batching.compat import within_level
from autobatch.vm.repeated import is_shared
from autobatch.vm.values import STORE, Cell, Column, Container, Objects, Uniform, Value, View, read

FEW = 16
Kind = tuple[torch.dtype, torch.Size, torch.device]


@final
@dataclass(slots=True, eq=False)
class Pool:
    """``used`` rows of one ``kind``, in pieces that begin at ``starts``.

    Where it is ``open`` the last piece is a table with room to spare. Rows with gradients are kept
    as they come, and put together when a read needs several pieces.
    """

    kind: Kind
    pieces: list[Tensor] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    used: int = 0
    open: bool = False

    def append(self, rows: Tensor) -> int:
        """Take in rows ``[n, *E]``; the number of the first."""
        first, count = self.used, len(rows)
        if rows.requires_grad or within_level():
            self.pieces.append(rows)
            self.starts.append(first)
            self.open = False
        else:
            table = self.table(count)
            start = first - self.starts[-1]
            table[start : start + count] = rows
        self.used += count
        return first

    def table(self, more: int) -> Tensor:
        """The last piece, with room for so many more rows."""
        dtype, shape, device = self.kind
        with torch.inference_mode(False), torch.no_grad():
            if not self.open:
                self.pieces.append(
                    torch.empty(max(FEW, 2 * more), *shape, dtype=dtype, device=device)
                )
                self.starts.append(self.used)
                self.open = True
            table, held = self.pieces[-1], self.used - self.starts[-1]
            if held + more > len(table):
                new = torch.empty(2 * (held + more), *shape, dtype=dtype, device=device)
                new[:held] = table[:held]
                self.pieces[-1] = table = new
        return table

    def rows(self, numbers: Column) -> Tensor:
        """The rows of some numbers, ``[n]`` or ``[n, m]``."""
        index = numbers.data
        if not self.used:
            dtype, shape, device = self.kind
            return torch.zeros(*index.shape, *shape, dtype=dtype, device=device)
        low, high = numbers.bounds or (0, self.used - 1)
        first, last = self.piece_of(max(low, 0)), self.piece_of(min(high, self.used - 1))
        if first != last:
            self.put_together(first, last)
        piece, start = self.pieces[first], self.starts[first]
        index = (index - start if start else index).clamp(0, len(piece) - 1)
        if index.dim() == 1:
            return piece.index_select(0, index)
        return piece.index_select(0, index.reshape(-1)).reshape(*index.shape, *self.kind[1])

    def piece_of(self, number: int) -> int:
        place = len(self.starts) - 1
        while place > 0 and self.starts[place] > number:
            place -= 1
        return place

    def put_together(self, first: int, last: int) -> None:
        """Make pieces one."""
        ends = [*self.starts[1:], self.used]
        parts = [
            self.pieces[place][: ends[place] - self.starts[place]]
            for place in range(first, last + 1)
        ]
        self.pieces[first : last + 1] = [torch.cat(parts)]
        del self.starts[first + 1 : last + 1]
        if last == len(ends) - 1:
            self.open = False

    def written(self, numbers: Column, rows: Tensor) -> Pool:
        """The pool with other contents in some rows."""
        whole = Column(torch.arange(self.used, device=self.kind[2]), "int", (0, self.used - 1))
        table = self.rows(whole).index_copy(0, numbers.data, rows)
        return Pool(self.kind, [table], [0], self.used)


@final
@dataclass(frozen=True, slots=True)
class Linked:
    """What a store holds that another one has taken over: where its rows begin there."""

    kind: Kind
    offset: int


def store(kind: Kind) -> Cell:
    """An empty store."""
    return Cell(Container(STORE, [], Pool(kind)))


def is_store(value: Any) -> TypeGuard[Container]:
    return type(value) is Container and value.type is STORE


def kind_of(value: Container) -> Kind:
    kind: Kind = value.static.kind
    return kind


def root_of(cell: Cell) -> tuple[Cell, int]:
    """The store that has a store's tensors, and where they begin there."""
    offset = 0
    while True:
        value = cell.value
        if not is_store(value) or not value.cells:
            return cell, offset
        offset += value.static.offset
        (cell,) = value.children()


def pool_of(cell: Cell) -> Pool:
    pool: Pool = root_of(cell)[0].value.static  # type: ignore[union-attr]
    return pool


def link(mine: Cell, other: Cell) -> None:
    """Let one store take over the tensors of another of its kind."""
    into, _ = root_of(mine)
    source, _ = root_of(other)
    if into is source:
        return
    pool, taken = pool_of(into), pool_of(source)
    whole = Column(torch.arange(taken.used, device=taken.kind[2]), "int", (0, taken.used - 1))
    offset = pool.append(taken.rows(whole)) if taken.used else pool.used
    source.value = Container(STORE, [into], Linked(pool.kind, offset))


def tensors(cell: Cell, numbers: Column) -> Tensor:
    """The tensors of a store by their numbers: ``[*numbers, *E]``."""
    root, offset = root_of(cell)
    return pool_of(root).rows(shifted(numbers, offset))


def renumbering(mine: Cell, other: Cell) -> Callable[[Column], Column] | None:
    """What makes the numbers of one store those of another, which takes its tensors over."""
    link(mine, other)
    (_, here), (_, there) = root_of(mine), root_of(other)
    return None if here == there else lambda numbers: shifted(numbers, there - here)


def shifted(numbers: Column, by: int) -> Column:
    if not by:
        return numbers
    bounds = numbers.bounds
    ends = None if bounds is None else (bounds[0] + by, bounds[1] + by)
    return Column(numbers.data + by, "int", ends)


@dataclass(slots=True, eq=False)
class Joint:
    """One store for those of a kind in several heaps that meet.

    ``found`` are, of each pool among theirs, the numbers that the heaps refer to, in order, and
    where these tensors begin in the pool of ``cell``; empty where all have one pool.
    """

    cell: Cell
    found: dict[int, tuple[Tensor, int]] = field(default_factory=dict)

    def renumbering(self, store: Cell) -> Callable[[Column], Column] | None:
        """What makes the numbers of one of the stores those of the joint one."""
        root, offset = root_of(store)
        if not self.found:
            return None if not offset else lambda numbers: shifted(numbers, offset)
        known, start = self.found[id(pool_of(root))]
        bounds = (start, start + max(len(known) - 1, 0))

        def renewed(numbers: Column) -> Column:
            if not len(known):
                return Column(torch.zeros_like(numbers.data), "int", (0, 0))
            data = shifted(numbers, offset).data.contiguous()
            return Column(
                torch.searchsorted(known, data).clamp(max=len(known) - 1) + start, "int", bounds
            )

        return renewed


def joints(heaps: Sequence[Sequence[tuple[Cell, Tensor]]]) -> dict[Kind, Joint]:
    """The joint stores of several heaps, given their stores and the numbers referred to there."""
    pools: dict[Kind, dict[int, tuple[Pool, list[Tensor]]]] = {}
    for cell, numbers in (each for heap in heaps for each in heap):
        root, offset = root_of(cell)
        pool = pool_of(root)
        _, known = pools.setdefault(pool.kind, {}).setdefault(id(pool), (pool, []))
        known.append(numbers + offset if offset else numbers)
    return {kind: joint(list(own.values())) for kind, own in pools.items()}


def joint(pools: Sequence[tuple[Pool, list[Tensor]]]) -> Joint:
    first = pools[0][0]
    if len(pools) == 1:
        return Joint(Cell(Container(STORE, [], first)))
    whole = Pool(first.kind)
    made = Joint(Cell(Container(STORE, [], whole)))
    for pool, numbers in pools:
        known = torch.unique(torch.cat(numbers).clamp(0, max(pool.used - 1, 0)))
        known = known[: pool.used]
        start = whole.used
        if len(known):
            whole.append(pool.rows(Column(known, "int", (0, pool.used - 1))))
        made.found[id(pool)] = (known, start)
    return made


class Shelf:
    """The tensors of a store as real ones by the numbers of their rows, made when asked for.

    Threads have different rows, so one stands for all.
    """

    def __init__(self, pool: Pool, moving: Callable[[], AbstractContextManager[None]]) -> None:
        self.pool = pool
        self.moving = moving
        self.offset = 0
        self.tensors: dict[int, Tensor] = {}

    def shifted(self, by: int) -> Shelf:
        new = Shelf(self.pool, self.moving)
        new.offset, new.tensors = self.offset + by, self.tensors
        return new

    def __getitem__(self, number: int) -> Tensor:
        number += self.offset
        found = self.tensors.get(number)
        if found is None:
            one = Column(torch.tensor([number], device=self.pool.kind[2]), "int", (number, number))
            with self.moving():
                found = self.tensors[number] = self.pool.rows(one)[0].clone()
        return found


@final
@dataclass(frozen=True, slots=True)
class Row:
    """The recipe of a view of a store: the tensor in the row of each thread's number."""

    key: Hashable = "row of a store"

    def read(self, base: Value, args: list[Value]) -> Value:
        (numbers,) = args
        assert type(numbers) is Column
        if type(base) is Objects:
            rows = numbers.data.tolist()
            return Objects([shelf[n] for shelf, n in zip(base.items, rows, strict=True)])
        root, offset = root_of(Cell(base))
        if type(root.value) is Objects:
            return self.read(root.value, [shifted(numbers, offset)])
        return Column(pool_of(root).rows(shifted(numbers, offset)))

    def write(self, base: Value, args: list[Value], content: Value) -> Value:
        (numbers,) = args
        assert type(numbers) is Column
        if type(base) is Objects:
            mine = self.read(base, args)
            assert type(mine) is Objects and type(content) is Objects
            for old, new in zip(mine.items, content.items, strict=True):
                if old is not new:
                    old.copy_(new)
            return base
        root, offset = root_of(Cell(base))
        value = root.value
        if type(value) is Objects:
            self.write(value, [shifted(numbers, offset)], content)
            return base
        data = rows_of(content, len(numbers.data))
        new = pool_of(root).written(shifted(numbers, offset), data)
        root.value = Container(STORE, [], new)
        assert type(base) is Container
        return Container(STORE, list(base.children()), base.static if base.cells else new)

    def row(self, base: Any, args: list[Any]) -> Tensor:
        found: Tensor = base[args[0]]
        return found


ROW = Row()


def rows_of(content: Value, k: int) -> Tensor:
    if type(content) is Column:
        return content.data
    assert type(content) is Uniform
    whole: Tensor = content.obj.expand(k, *content.obj.shape)
    return whole


def is_stored(cell: Cell) -> bool:
    """Whether it is a view of a store."""
    return type(cell.value) is View and cell.value.recipe is ROW


def storable(cell: Cell) -> Kind | None:
    """The kind of store that can hold a tensor; None where none does with all that it is."""
    value = cell.value
    if is_stored(cell):
        base = value.base.value  # type: ignore[union-attr]
        return kind_of(base) if is_store(base) else None
    if type(value) is Column and value.tag == "tensor":
        table = value.table
        if value.outside is not False or value.ties or is_shared(table):
            return None
        return (table.dtype, table.shape[1:], table.device) if is_dense(table) else None
    if type(value) is Uniform and type(value.obj) is Tensor:
        obj = value.obj
        if value.shared or value.ties or obj.layout is not torch.strided or obj.is_nested:
            return None
        return (obj.dtype, obj.shape, obj.device) if obj.is_contiguous() else None
    return None


def is_dense(table: Tensor) -> bool:
    """Whether each row is laid out as a new tensor is."""
    if table.layout is not torch.strided:
        return False
    expected = 1
    for size, stride in zip(reversed(table.shape[1:]), reversed(table.stride()[1:]), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def numbers_of(cell: Cell, into: Cell, k: int) -> Column:
    """The rows of a tensor in a store, which takes it in; a view of it from now on."""
    if is_stored(cell):
        view: Any = cell.value
        link(into, view.base)
        _, mine = root_of(into)
        _, theirs = root_of(view.base)
        column = read(view.args[0])
        assert type(column) is Column
        return shifted(column, theirs - mine)
    value = read(cell)
    root, offset = root_of(into)
    data = rows_of(value, k)
    first = pool_of(root).append(data) - offset
    numbers = Column(
        torch.arange(first, first + k, device=data.device),
        "int",
        (first, max(first, first + k - 1)),
    )
    known = type(value) is Column and into is root
    cell.value = View(into, ROW, (Cell(numbers),), *((value, into.value) if known else ()))
    return numbers


def closed(found: Sequence[Cell], others: Sequence[Cell]) -> list[Cell]:
    """Those of other cells that refer to a store among some, to move with it."""
    stores = {id(cell) for cell in found if is_store(cell.value)}
    if not stores:
        return []
    known = {id(cell) for cell in found}
    more: list[Cell] = []
    while True:
        new = [c for c in others if id(c) not in known and refers(c.value, stores)]
        if not new:
            return more
        more += new
        known.update(map(id, new))
        stores.update(id(cell) for cell in new if is_store(cell.value))


def refers(value: Value, stores: set[int]) -> bool:
    if type(value) is View:
        return id(value.base) in stores
    return type(value) is Container and any(id(child) in stores for child in value.children())
