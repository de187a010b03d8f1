"""Packed values: tensors of different lengths, one for each thread, in one table.

A packed value is a ``Container`` of the mark ``PACKED``. ``static`` is the table ``[N, *E]``, which
all threads share; the cells are number columns: where each thread's rows begin, how many it has,
and how far one lies from the next (a uniform 1, but for ``x[::2]`` and ``reversed(x)``). A split
or a meeting moves the numbers; no row of the table is copied until it is read, and rows that are
no thread's (padding) are never read.

    row(x, i)  ->  table[begin + i * step]     [k, *E]

Packed values whose rows lie one after the other, thread after thread, and which have the same
lengths share an ``Order``: what the host knows of these, so that it reads them once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, TypeGuard, final

import torch
from torch import Tensor

from autobatch.presence import kinds, moves
from autobatch.presence.guards import guarded_rows
from autobatch.values.cells import PACKED, Cell, Column, Container, Objects, Value, read, uniform


@final
class Order:
    """So many rows for each thread, one thread's after another's.

    ``begins`` and ``lengths`` are ``[k]``, beside the tables; ``sizes`` are these on the host.
    """

    __slots__ = ("_owners", "begins", "lengths", "longest", "sizes", "total")

    def __init__(self, sizes: Sequence[int], lengths: Tensor, begins: Tensor | None = None) -> None:
        self.sizes = sizes
        self.total = sum(sizes)
        self.longest = max(sizes, default=0)
        self.lengths = lengths
        self.begins = lengths.cumsum(0) - lengths if begins is None else begins
        self._owners: Tensor | None = None

    @property
    def owners(self) -> Tensor:
        """Whose each row is, ``[total]``."""
        if self._owners is None:
            self._owners = torch.repeat_interleave(self.lengths, output_size=self.total)
        return self._owners

    @property
    def places(self) -> Tensor:
        """The how manieth of its thread's each row is, ``[total]``."""
        return torch.arange(self.total, device=self.begins.device) - self.begins[self.owners]

    @property
    def inside(self) -> Tensor:
        """Which places, of as many as the longest has, are a row of each thread's, ``[k, T]``."""
        return torch.arange(self.longest, device=self.lengths.device) < self.lengths[:, None]

    def any_of(self, rows: Tensor) -> Tensor:
        """Which threads have a row for which it is true, ``[k]``."""
        none = torch.zeros(len(self.sizes), dtype=torch.int64, device=rows.device)
        return none.index_add(0, self.owners, rows.long()) > 0

    def change(self, changed: Callable[[Tensor], Tensor]) -> None:
        """Put other tensors of the same numbers in the place of its own."""
        self.lengths, self.begins = changed(self.lengths), changed(self.begins)
        if self._owners is not None:
            self._owners = changed(self._owners)

    def pack(self, table: Tensor) -> Container:
        """Rows in this order, in a table that is made for them."""
        begins, lengths = Column(self.begins, "int"), Column(self.lengths, "int", (0, self.longest))
        lengths.order = self
        moves.owned(table, self.sizes)
        return Container(PACKED, [Cell(begins), Cell(lengths), uniform(1)], table)


def order_of(pack: Container) -> Order | None:
    """What is known of the lengths of a packed value, wherever its rows lie."""
    return order_beside(read(length(pack)))


def order_beside(lengths: Value) -> Order | None:
    """What is known beside a column of lengths."""
    return getattr(lengths, "order", None)


def is_in_order(pack: Container, order: Order) -> bool:
    """Whether a table holds the rows of a packed value in their order, and nothing else."""
    begins, _, step = parts_of(pack)
    is_next = type(step) is int and step == 1
    return is_next and begins is order.begins and pack.static.shape[0] == order.total


def note(pack: Container, firsts: list[int], sizes: list[int]) -> None:
    """Keep what the host knows of where the rows lie with the lengths, which do not change."""
    begins, lengths, step = parts_of(pack)
    wanted = list(accumulate(sizes, initial=0))
    lies_so = firsts == wanted[:-1] and pack.static.shape[0] == wanted[-1]
    column = read(length(pack))
    assert type(column) is Column
    is_next = type(step) is int and step == 1
    column.order = Order(sizes, lengths, begins if lies_so and is_next else None)


def known_order(pack: Container) -> Order:
    """What is known of the lengths, which are read on the host if nobody has yet."""
    if order_of(pack) is None:
        begins, lengths, _ = parts_of(pack)
        note(pack, *torch.stack([begins, lengths]).tolist())
    order = order_of(pack)
    assert order is not None
    return order


def pack(table: Tensor, begins: Tensor, lengths: Tensor, longest: int) -> Container:
    """Rows ``begins[i]`` to ``begins[i] + lengths[i]`` of the table for each thread ``i``."""
    numbers = [Column(begins, "int"), Column(lengths, "int", (0, longest))]
    return Container(PACKED, [*map(Cell, numbers), uniform(1)], table)


def in_order(table: Tensor, sizes: Sequence[int], lengths: Tensor | None = None) -> Container:
    """The rows of a table one after the other, so many for each thread."""
    if lengths is None:
        lengths = torch.tensor(sizes, dtype=torch.int64, device=table.device)
    return Order(sizes, lengths).pack(table)


def rows_of(column: Column) -> Container:
    """A tensor ``[n, *E]`` of each thread's own as ``n`` rows of one table."""
    table, size = column.table, column.event_shape[0]
    rows = torch.arange(len(table), device=table.device) if column.rows is None else column.rows
    begins = rows * size
    return pack(moves.flattened(table), begins, torch.full_like(begins, size), size)


def is_packed(value: Any) -> TypeGuard[Container]:
    return type(value) is Container and value.type is PACKED


def parts_of(pack: Container) -> tuple[Tensor, Tensor, Any]:
    """Where each thread's rows begin, how many they are, and the step from one to the next."""
    begins, lengths, step = map(read, pack.children())
    assert type(begins) is Column and type(lengths) is Column
    return begins.data, lengths.data, number(step)


def number(value: Any) -> Any:
    return value.data if type(value) is Column else value.obj


def length(pack: Container) -> Cell:
    """``len(x)``: a number of each thread's own."""
    return list(pack.children())[1]


def event_shape(pack: Container) -> torch.Size:
    """The shape of one row."""
    return pack.static.shape[1:]  # type: ignore[no-any-return]


def outside(pack: Container, index: Any) -> Tensor:
    """In which threads an index, or one of the indices of a thread, is out of range: ``[k]``."""
    _, lengths, _ = parts_of(pack)
    size: Tensor = spread(lengths, index)
    failed: Tensor = (index < -size) | (index >= size)
    return failed.flatten(1).any(1) if failed.dim() > 1 else failed


def rows(pack: Container, index: Any) -> Tensor:
    """``x[i]`` for an int or an integer tensor ``[]``, ``[k]`` or ``[k, n, ...]``.

    Where the index is out of range the row is an arbitrary one.
    """
    begins, lengths, step = parts_of(pack)
    begins, lengths, step = (spread(part, index) for part in (begins, lengths, step))
    table: Tensor = pack.static
    if type(index) is not int:
        index = torch.where(index < 0, index + lengths, index)
    elif index < 0:
        index = index + lengths
    places = begins + (index if type(step) is int and step == 1 else index * step)
    if not table.shape[0]:
        return table.new_zeros(*places.shape, *table.shape[1:])
    places = places.clamp(0, table.shape[0] - 1)
    return rows_at(table, places)


def rows_at(table: Tensor, places: Tensor) -> Tensor:
    """``table[places]``."""
    if places.dim() == 1:
        return moves.taken(table, places)
    return moves.noted(table[places], kinds.Taken(places, len(table)))


def spread(part: Any, index: Any) -> Any:
    """A number of each thread beside an index of more dimensions: ``[k, 1, ...]``."""
    if not isinstance(part, Tensor) or not isinstance(index, Tensor) or index.dim() < 2:
        return part
    return part.reshape(-1, *[1] * (index.dim() - 1))


def cut(pack: Container, part: slice) -> Container:
    """``x[a:b:s]`` for bounds that are None, ints or integer tensors ``[k]``; ``s`` is positive."""
    begins, lengths, step = parts_of(pack)
    start, size = extent(lengths, part)
    bounds = read(length(pack)).bounds  # type: ignore[union-attr]
    cells = [Cell(Column(begins + start * step, "int")), Cell(Column(size, "int", bounds))]
    return Container(PACKED, [*cells, stepped(step * (part.step or 1))], pack.static)


def extent(lengths: Tensor, part: slice) -> tuple[Any, Tensor]:
    """Where a slice of sequences of these lengths, ``[k]``, begins, and how long it is."""
    start = 0 if part.start is None else bound(part.start, lengths)
    stop = lengths if part.stop is None else bound(part.stop, lengths)
    size = (stop - start).clamp(min=0)
    ahead = part.step or 1
    return start, size if ahead == 1 else (size + (ahead - 1)) // ahead


def bound(given: Any, lengths: Tensor) -> Tensor:
    """A slice's bound as Python means it: from the end if negative, and within the sequence."""
    if type(given) is int:
        return lengths.clamp(max=given) if given >= 0 else (lengths + given).clamp(min=0)
    given = given.long()
    wrapped = torch.where(given < 0, given + lengths, given)
    return wrapped.clamp(min=0).minimum(lengths)


def stepped(step: Any) -> Cell:
    return Cell(Column(step, "int")) if isinstance(step, Tensor) else uniform(step)


def turned(pack: Container) -> Container:
    """``reversed(x)``."""
    begins, lengths, step = parts_of(pack)
    last = Cell(Column(begins + (lengths - 1) * step, "int"))
    return Container(PACKED, [last, length(pack), stepped(-step)], pack.static)


def own_tensor(table: Tensor, begin: int, size: int, step: int) -> Tensor:
    """One thread's tensor, a copy of its own."""
    if step == 1:
        return table[begin : begin + size].clone()
    return table.index_select(0, torch.arange(size, device=table.device) * step + begin)


def own_tensors(pack: Container) -> list[Tensor]:
    """Each thread's tensor, a copy of its own."""
    if not moves.is_differentiated(pack.static):
        return [own_tensor(pack.static, *own) for own in own_places(pack)]
    rows, sizes = own_rows(pack)
    return [part.clone() for part in moves.parted(guarded_rows(rows), sizes)]


def own_places(pack: Container) -> list[tuple[int, int, int]]:
    """Where each thread's rows begin, how many they are, and the step from one to the next."""
    begins, lengths, step = parts_of(pack)
    steps = step.tolist() if isinstance(step, Tensor) else [step] * len(lengths)
    return list(zip(begins.tolist(), lengths.tolist(), steps, strict=True))


def own_rows(pack: Container) -> tuple[Tensor, list[int]]:
    """The threads' rows one after the other, and how many each has."""
    table, numbers = pack.static, own_places(pack)
    index = [begin + step * place for begin, size, step in numbers for place in range(size)]
    places = torch.tensor(index, dtype=torch.int64, device=table.device)
    return moves.taken(table, places), [size for _, size, _ in numbers]


def alone(pack: Container) -> Container:
    """The same in a table that holds no rows but the threads'."""
    order = order_of(pack)
    if order is not None and is_in_order(pack, order):
        return pack
    return in_order(*own_rows(pack))


def stacked(pack: Container) -> Tensor | None:
    """The same as ``[k, n, *E]``; None where the threads' lengths differ.

    The lengths are read if nobody has yet.
    """
    sizes = set(known_order(pack).sizes)
    if len(sizes) != 1:
        return None
    begins = parts_of(pack)[0]
    return rows(pack, torch.arange(sizes.pop(), device=begins.device).expand(len(begins), -1))


def unpacked(pack: Container) -> Objects:
    """The same as objects."""
    return Objects(own_tensors(pack))


def opened(value: Value) -> Value:
    """A packed value as objects; any other as it is."""
    return unpacked(value) if is_packed(value) else value


def picks(index: Any) -> bool:
    """Whether an index is one of those that ``part`` knows."""
    if type(index) is tuple:
        first, *rest = index or (None,)
        return type(first) is slice and picks(first) and not any(map(has_tensor, rest))
    if type(index) is slice:
        return not isinstance(index.step, Tensor)
    return type(index) is int or isinstance(index, Tensor)


def has_tensor(part: Any) -> bool:
    """Whether a part of an index is, or may be, each thread's own."""
    ends = (part.start, part.stop, part.step) if type(part) is slice else (part,)
    return any(isinstance(end, Tensor) for end in ends)


def part(pack: Container, index: Any) -> Column | Container:
    """The part of each thread's tensor that an int, an integer tensor or a slice picks."""
    if type(index) is tuple:
        return columns(pack, *index)
    return cut(pack, index) if type(index) is slice else Column(rows(pack, index))


def columns(pack: Container, first: slice, *rest: Any) -> Container:
    """``x[a:b, ...]``: a part of each of some rows."""
    chosen = pack if first == slice(None) else cut(pack, first)
    return Container(PACKED, list(chosen.children()), chosen.static[(slice(None), *rest)])
