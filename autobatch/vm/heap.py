"""Moving a group's cells: are two heaps alike, select rows of one, merge several.

Each function takes *roots* (the cells that the live variables refer to) and moves every cell
that they reach once, so aliases survive: two names for one list or tensor still are one after
threads part and meet. Views move as recipes; only their base moves rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.vm import listing
from autobatch.vm.repeated import is_shared
from autobatch.vm.strides import cut, joined
from autobatch.vm.values import (
    NO_TIES,
    NUMBER_TAGS,
    PACKED,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    Value,
    View,
    expand,
    fits_column,
    is_mutable,
    join_bounds,
    read,
)

Key = tuple[Hashable, ...]
Rows = np.ndarray
"""Row numbers within a group, int64."""

LONG, LARGE = 16, 2**14
"""Elements of a uniform tensor, and of its threads' rows, that keep it from becoming a column."""
NOTHING: frozenset[int] = frozenset()
NUMPY_DTYPES = {"bool": np.bool_, "int": np.int64, "float": np.float64}
REFERRING = (View, Container)
"""Values that refer to other cells."""
NAMED = (View, Container, Objects)
"""Values that a program writes to, so that it matters which names mean one."""
LISTS = "lists"
IMMUTABLE = (str, bytes, int, float, complex, bool, type(None), type(Ellipsis), torch.dtype)


class Heap:
    """Collects the alike key of some roots; see ``alike``."""

    def __init__(self, k: int = 0, blind: bool = False, lists: bool = False) -> None:
        self.k = k
        self.blind = blind
        self.lists = lists
        self.numbers: dict[int, int] = {}
        self.parts: list[Hashable] = []

    def visit(self, cell: Cell) -> None:
        value = cell.value
        kind = type(value)
        if kind is Column and value.tag != "tensor":  # type: ignore[union-attr]
            self.parts.append(value.tag)  # type: ignore[union-attr]
            return
        if (kind in NAMED or not self.blind) and (kind is Column or is_mutable(value)):
            number = self.numbers.get(id(cell))
            if number is not None:
                self.parts.append(number)
                return
            self.numbers[id(cell)] = len(self.numbers)
        if self.lists and (kind is Container or kind is Objects):
            elements = elements_of(value, self.blind)
            if elements is not False:
                self.parts.append((LISTS, elements))
                return
        if type(value) is Container:
            self.parts.append((value.type, slots(value), static_key(value)))
            for child in value.children():
                self.visit(child)
        elif type(value) is View:
            self.parts.append(("view", value.recipe.key))
            self.visit(value.base)
            for arg in value.args:
                self.visit(arg)
        else:
            self.parts.append(leaf_key(value))
            if kind is Uniform and self.k and is_worth_keeping(value.obj, self.k):  # type: ignore[union-attr]
                self.parts.append(Uniform)


def elements_of(value: Value, blind: bool) -> Hashable:
    """The kind of the elements of lists that may differ in length (see ``lists``), else False."""
    if type(value) is Objects:
        return False if value.lists is None else value.lists.kind
    if type(value) is not Container or value.type is not list:
        return False
    kind = listing.kind_of(value.cells, blind)  # type: ignore[arg-type]
    if kind and blind:  # no write is seen through two names, so no view need stay one
        for cell in value.children():
            cell.value = read(cell)
    return kind


def is_worth_keeping(obj: Any, k: int) -> bool:
    """Whether a tensor for all ``k`` threads is better left one than made a row for each."""
    return isinstance(obj, Tensor) and obj.numel() >= LONG and obj.numel() * k >= LARGE


def reached(cells: Iterable[Cell]) -> Iterator[Cell]:
    """All cells that some lead to, themselves among them, each once."""
    seen: set[int] = set()
    waiting = list(cells)
    while waiting:
        cell = waiting.pop()
        if id(cell) in seen:
            continue
        seen.add(id(cell))
        yield cell
        value = cell.value
        if type(value) is Container:
            waiting += value.children()
        elif type(value) is View:
            waiting += (value.base, *value.args)


def slots(value: Container) -> Hashable:
    """What distinguishes the structure of containers of one type."""
    if not isinstance(value.cells, dict):
        return len(value.cells)
    if value.type is dict:
        return tuple(identity(key) for key in value.cells)  # 1 and True are two keys to a reader
    return tuple(value.cells)


def static_key(value: Container) -> Hashable:
    """What distinguishes what the threads of containers of one type share."""
    if value.type is PACKED:  # tables can be joined
        table = value.static
        return (table.dtype, table.shape[1:], table.device)
    return identity(value.static)


def alike(
    roots: Iterable[Cell], k: int = 0, blind: bool = False, lists: bool = False
) -> tuple[Hashable, ...]:
    """A key that is equal for heaps that may coalesce.

    With ``k``, their number of threads, that of heaps that should: a large uniform tensor saves
    more, by the operations that it spares each thread, than an execution of a block costs.

    Equal keys mean: the same tag, dtype and event shape cell by cell (a uniform number or
    tensor counts as the column that it would make), the same alias graph among what can
    change, and otherwise the same uniform objects. ``blind``: which names mean one tensor does
    not matter. ``lists``: lists whose elements are of one kind may differ in length; those of no
    elements have None for the kind, and go with any (see ``agreed``).
    """
    heap = Heap(k, blind, lists)
    visit = heap.visit
    for root in roots:
        visit(root)
    return tuple(heap.parts)


def agreed(one: Key, other: Key) -> Key | None:
    """What two keys of ``alike`` are but for lists that are empty; None if they differ."""
    if len(one) != len(other):
        return None
    pairs = zip(one, other, strict=True)
    parts = [left if left == right else filled(left, right) for left, right in pairs]
    return None if None in parts else tuple(parts)


def filled(one: Any, other: Any) -> Hashable:
    """The part of a key for lists that are empty in some threads; None if they are no such."""
    if any(type(part) is not tuple or part[:1] != (LISTS,) for part in (one, other)):
        return None
    return other if one[1] is None else one if other[1] is None else None


def leaf_key(value: Value) -> Hashable:
    if type(value) is Column:
        if value.tag != "tensor":
            return value.tag
        data = value.table
        return (data.dtype, data.shape[1:], data.device)
    if type(value) is Objects:
        return "objects"
    assert type(value) is Uniform
    obj = value.obj
    if isinstance(obj, Tensor):
        return (obj.dtype, obj.shape, obj.device)
    if fits_column(obj):
        return NUMBER_TAGS[type(obj)]
    return identity(obj)


def identity(obj: object) -> Hashable:
    """Equal for the same object, and for the same bits of the same immutable type.

    A bound method is a new object each time that it is looked up; it goes by what it binds.
    """
    if type(obj) is float:
        return (float, struct.pack("d", obj))
    if type(obj) in IMMUTABLE:
        return (type(obj), repr(obj) if type(obj) is complex else obj)
    if type(obj) is tuple:
        return (tuple, tuple(identity(part) for part in obj))
    if type(obj) is MethodType:
        return (MethodType, id(obj.__self__), id(obj.__func__))
    return id(obj)


def duplicated(roots: Sequence[Cell]) -> list[Cell]:
    """New cells for all that the roots reach, which hold what those hold now."""
    made: list[Cell] = []
    memo: dict[int, Cell] = {}
    for cell in roots:
        value = cell.value
        kind = type(value)
        if kind in REFERRING or (kind is Objects and value.lists is not None):  # type: ignore[union-attr]
            return copied(roots, as_it_is)
        if kind is Uniform and (value.shared or not is_mutable(value)):  # type: ignore[union-attr]
            made.append(cell)
            continue
        new = memo.get(id(cell))
        if new is None:
            new = memo[id(cell)] = Cell(value)
        made.append(new)
    return made


def as_it_is(value: Value) -> Value:
    return value


def copied(
    roots: Iterable[Cell],
    transform: Callable[[Value], Value],
    plain: frozenset[int] = frozenset(),
) -> list[Cell]:
    """New cells for all that the roots reach, leaves passed through ``transform`` once each.

    ``plain`` are the ids of views to copy as what they hold now (see ``plain_views``).
    """
    copying = Copying(transform, plain)
    return [copying.visit(root) for root in roots]


class Copying:
    """A walk of ``copied``; no function within a function, whose cycle would keep rows alive."""

    __slots__ = ("memo", "moved", "plain", "transform")

    def __init__(self, transform: Callable[[Value], Value], plain: frozenset[int]) -> None:
        self.transform = transform
        self.plain = plain
        self.memo: dict[int, Cell] = {}
        self.moved: dict[int, Value] = {}

    def visit(self, cell: Cell) -> Cell:
        key = id(cell)
        new = self.memo.get(key)
        if new is not None:
            return new
        value = cell.value
        kind = type(value)
        if kind is Column:
            new = self.memo[key] = Cell(self.transform(value))
            return new
        if kind is Uniform and (value.shared or not is_mutable(value)):  # type: ignore[union-attr]
            self.memo[key] = cell
            return cell
        new = self.memo[key] = Cell(value)
        visit = self.visit
        if type(value) is Container:
            new.value = value.rebuilt(map(visit, value.children()))
        elif type(value) is View and key not in self.plain:
            new.value = View(visit(value.base), value.recipe, tuple(map(visit, value.args)))
        else:
            content = read(cell)
            if type(content) is Container:  # a part of a packed value
                new.value = content.rebuilt(visit(child) for child in content.children())
            elif type(content) is Objects and content.lists is not None:
                new.value = self.lists(content)
            else:
                new.value = self.transform(content)
        return new

    def lists(self, value: Objects) -> Value:
        """Lists are written in place: cells that share them share what they become."""
        known = self.moved.get(id(value))
        if known is None:
            known = self.transform(value)
            if known is value:
                known = Objects([], lists=value.lists.copy())
            self.moved[id(value)] = known
        return known


def plain_views(roots: Sequence[Cell]) -> list[Cell]:
    """The views whose base nothing else reaches, bases first: the base need not move with them."""
    if not any_view(roots):
        return []
    references: dict[int, int] = {}
    views: list[Cell] = []
    for root in roots:
        count(root, references, views)
    plain: dict[int, Cell] = {}
    for cell in reversed(views):
        base = cell.value.base  # type: ignore[union-attr]
        if references[id(base)] == 1 and (type(base.value) is not View or id(base) in plain):
            plain[id(cell)] = cell
    return list(plain.values())


def any_view(roots: Iterable[Cell]) -> bool:
    """Whether the roots reach a view."""
    waiting = [value for root in roots if type(value := root.value) in REFERRING]
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if type(value) is View:
            return True
        assert type(value) is Container
        if id(value) not in seen:
            seen.add(id(value))
            waiting += [
                part for child in value.children() if type(part := child.value) in REFERRING
            ]
    return False


def parts(cell: Cell, closed: Callable[[Container], bool] | None = None) -> Iterator[Cell]:
    """A cell and all that it holds in containers, each once: what it holds may hold it again.

    Containers that are ``closed`` are not looked into.
    """
    waiting, seen = [cell], {id(cell)}
    while waiting:
        each = waiting.pop()
        yield each
        if type(each.value) is Container and not (closed and closed(each.value)):
            held = {id(child): child for child in each.value.children() if id(child) not in seen}
            seen.update(held)
            waiting.extend(held.values())


def count(cell: Cell, references: dict[int, int], views: list[Cell]) -> None:
    """Add up how often cells are referred to, and note the views, the outermost first."""
    references[id(cell)] = references.get(id(cell), 0) + 1
    if references[id(cell)] > 1:
        return
    value = cell.value
    if type(value) is Container:
        for child in value.children():
            count(child, references, views)
    elif type(value) is View:
        views.append(cell)
        count(value.base, references, views)
        for arg in value.args:
            count(arg, references, views)


def settle(roots: Sequence[Cell]) -> None:
    """Turn views whose base nothing else reaches into plain columns.

    The cells must be those of one group that keeps nothing but what the roots reach.
    """
    for cell in plain_views(roots):
        cell.value = read(cell)


def select(roots: Sequence[Cell], rows: Rows) -> list[Cell]:
    """Cells that hold the given rows of what the roots hold; ``rows`` are row numbers.

    Views of what the roots do not reach otherwise come out plain; the roots stay as they are.
    """
    flat = select_flat(roots, rows)
    if flat is not None:
        return flat
    views = plain_views(roots)
    plain = frozenset(map(id, views)) if views else NOTHING
    on_host = torch.from_numpy(rows)
    indices: dict[torch.device, Tensor] = {}
    host: list[int] = []

    def transform(value: Value) -> Value:
        if type(value) is Column:
            table = value.table
            if table.is_cpu:
                chosen = value.select(on_host)
            else:
                index = indices.get(table.device)
                if index is None:
                    index = indices[table.device] = on_host.to(table.device)
                chosen = value.select(index)
            if value.outside is not False:
                outside = value.outside
                chosen.outside = outside if outside is True else outside[rows]
            chosen.ties = value.ties
            return chosen
        if type(value) is Objects:
            if value.lists is not None:
                return Objects([], lists=value.lists.select(rows))
            if not host:
                host.extend(rows.tolist())
            items = value.items
            return Objects([items[row] for row in host], value.ties)
        assert type(value) is Uniform
        return Uniform(value.obj, ties=value.ties)

    return copied(roots, transform, plain)


def select_flat(roots: Sequence[Cell], rows: Rows) -> list[Cell] | None:
    """The same where all roots are flat (see ``is_flat``); else None."""
    for cell in roots:
        if not is_flat(cell.value):
            return None
    picking = Picking(rows)
    return [picking.visit(cell) for cell in roots]


def is_flat(value: Value, outer: bool = True) -> bool:
    """Whether some rows of it need nothing but to be picked, or not even that: columns on the host,
    objects, what no thread can change, and tuples of these.
    """
    kind = type(value)
    if kind is Uniform:
        return value.shared or not is_mutable(value)  # type: ignore[union-attr]
    if kind is Objects:
        return value.lists is None  # type: ignore[union-attr]
    if kind is Column:
        return value.is_whole and value.table.is_cpu  # type: ignore[union-attr]
    if kind is not Container or not outer or value.type is not tuple:  # type: ignore[union-attr]
        return False
    return all(is_flat(cell.value, outer=False) for cell in value.cells)  # type: ignore[union-attr]


class Picking:
    """A walk of ``select_flat``."""

    __slots__ = ("host", "index", "memo", "rows")

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.index: Tensor | None = None
        self.host: list[int] | None = None
        self.memo: dict[int, Cell] = {}

    def visit(self, cell: Cell) -> Cell:
        value = cell.value
        kind = type(value)
        if kind is Uniform:
            return cell
        new = self.memo.get(id(cell))
        if new is not None:
            return new
        if kind is Column:
            if self.index is None:
                self.index = torch.from_numpy(self.rows)
            new = Cell(value.select(self.index))  # type: ignore[union-attr]
        elif kind is Objects:
            if self.host is None:
                self.host = self.rows.tolist()
            items = value.items  # type: ignore[union-attr]
            new = Cell(Objects([items[row] for row in self.host], value.ties))  # type: ignore[union-attr]
        else:
            assert type(value) is Container
            parts = [self.visit(child) for child in value.cells]
            new = Cell(Container(value.type, parts, value.static))
        self.memo[id(cell)] = new
        return new


def are_plain_rows(one: Value, other: Value) -> bool:
    """Whether two values are tensors of each thread's own, or tuples of different ones, which are
    alike; a quick look, not a full one.
    """
    if type(one) is Container and type(other) is Container:
        mine, theirs = one.cells, other.cells
        if one.type is not tuple or other.type is not tuple or len(mine) != len(theirs):
            return False
        if len(set(map(id, mine))) < len(mine) or len(set(map(id, theirs))) < len(theirs):
            return False
        pairs = [(a.value, b.value) for a, b in zip(mine, theirs, strict=True)]
    else:
        pairs = [(one, other)]
    for a, b in pairs:
        if type(a) is not Column or type(b) is not Column or a.tag != b.tag:
            return False
        if not a.is_whole or not b.is_whole:
            return False
        x, y = a.table, b.table
        if x.dtype is not y.dtype or x.shape[1:] != y.shape[1:] or x.device != y.device:
            return False
    return True


def divided(root: Cell, rows: Rows, sizes: Sequence[int]) -> list[Cell] | None:
    """Parts of some rows, which are of these sizes and share memory, so they are to be read only.

    None where the root holds anything but tensors of each thread's own. Each part by itself would
    have a gradient of the size of the whole.
    """
    value = root.value
    if not are_plain_rows(value, value):
        return None
    leaves: list[Any] = [value] if type(value) is Column else [c.value for c in value.children()]  # type: ignore[union-attr]
    turns = runs(rows, sizes) if len(rows) == len(leaves[0].table) else None
    if turns is None:
        turns = list(range(len(sizes)))
        index = torch.from_numpy(rows)
        leaves = [leaf.select(index.to(leaf.table.device)) for leaf in leaves]
    if not all(leaf.is_whole and leaf.table.is_contiguous() for leaf in leaves):
        return None
    places = sorted(turns, key=turns.__getitem__)
    lying = [sizes[turn] for turn in turns]
    tables = [cut(leaf.table, lying) for leaf in leaves]
    columns = [
        [Column(cuts[place], leaf.tag, leaf.bounds) for place in places]
        for leaf, cuts in zip(leaves, tables, strict=True)
    ]
    if type(value) is Column:
        return [Cell(column) for column in columns[0]]
    return [Cell(value.rebuilt(map(Cell, parts))) for parts in zip(*columns, strict=True)]  # type: ignore[union-attr]


def runs(rows: Rows, sizes: Sequence[int]) -> list[int] | None:
    """Which part comes first, and so on, where each is a run of rows and these are all; else
    None.
    """
    ends = np.cumsum(sizes)
    steps = np.diff(rows) != 1
    steps[ends[:-1][(ends[:-1] > 0) & (ends[:-1] < len(rows))] - 1] = False
    if steps.any():
        return None
    begins = [int(rows[end - size]) if size else -1 for end, size in zip(ends, sizes, strict=True)]
    turns = sorted(range(len(sizes)), key=begins.__getitem__)
    end = 0
    for turn in turns:
        if sizes[turn] and begins[turn] != end:
            return None
        end += sizes[turn]
    return turns


def merge(
    pieces: Sequence[Sequence[Cell]], sizes: Sequence[int], device: torch.device
) -> list[Cell]:
    """One heap for the threads of several alike ones, rows in the order of the pieces.

    ``device`` is where number columns live.
    """
    if len(pieces) == 1:
        return list(pieces[0])
    merging = Merging(sizes, device)
    return [merging.visit(cells) for cells in zip(*pieces, strict=True)]


class Merging:
    """A walk of ``merge``, over the cells of all pieces at once."""

    __slots__ = ("device", "joint", "kept", "memo", "moved", "sizes")

    def __init__(self, sizes: Sequence[int], device: torch.device) -> None:
        self.sizes = sizes
        self.device = device
        self.memo: dict[tuple[int, ...], Cell] = {}
        self.joint: dict[tuple[int, ...], Tensor] = {}
        self.moved: dict[tuple[int, ...], Value] = {}
        self.kept: list[Container] = []

    def visit(self, cells: tuple[Cell, ...]) -> Cell:
        key = tuple(map(id, cells))
        new = self.memo.get(key)
        if new is not None:
            return new
        values: list[Any] = [cell.value for cell in cells]  # where one is no leaf, none is
        first = values[0]
        kind = type(first)
        if kind is Uniform and not is_mutable(first) and all(v is first for v in values):
            self.memo[key] = cells[0]
            return cells[0]
        new = self.memo[key] = Cell(first)
        visit = self.visit
        if kind in NAMED and parted_lists(values):
            new.value = self.lists(values)
        elif kind is Container:
            if first.type is PACKED:
                values = aligned(values, self.joint)
                first = values[0]
                self.kept += values  # so that no other cell gets the place of one of theirs
            columns = zip(*(value.children() for value in values), strict=True)
            new.value = first.rebuilt(visit(children) for children in columns)
        elif kind is View:
            base = visit(tuple(view.base for view in values))
            args = zip(*(view.args for view in values), strict=True)
            new.value = View(base, first.recipe, tuple(map(visit, args)))
        else:
            new.value = merged(values, self.sizes, self.device)
            ties = NO_TIES.union(*(value.ties for value in values))
            if ties:
                new.value.ties = ties  # type: ignore[union-attr]
        return new

    def lists(self, values: Sequence[Any]) -> Value:
        """Lists that are written in place; those that groups share they share from now on."""
        key = tuple(map(id, values))
        known = self.moved.get(key)
        if known is None:
            parts = [v.lists if type(v) is Objects else v.cells for v in values]
            known = Objects([], lists=listing.joined(parts, self.sizes, self.device))
            self.moved[key] = known
        return known


def parted_lists(values: Sequence[Value]) -> bool:
    """Whether these are lists of one kind of elements, and some differ in length."""
    lengths: set[int] = set()
    kinds: set[Hashable] = set()
    for value in values:
        if type(value) is Objects and value.lists is not None:
            lengths.add(-1)
            kinds.add(value.lists.kind)
        elif type(value) is Container and value.type is list:
            lengths.add(len(value.cells))
        else:
            return False
    return len(kinds) < 2 and (len(lengths) > 1 or -1 in lengths)


def merged(values: Sequence[Value], sizes: Sequence[int], device: torch.device) -> Value:
    """The leaf that stands for the threads of all the given alike leaves."""
    first = values[0]
    if type(first) is Column:
        tables = [value.table for value in values if type(value) is Column and value.is_whole]
        if len(tables) == len(values):
            known = join_bounds(v.bounds for v in values) if first.tag == "int" else None  # type: ignore[union-attr]
            return Column(joined(tables), first.tag, known)
    if type(first) is Objects:
        return Objects([item for value in values for item in value.items])  # type: ignore[union-attr]
    if all(type(value) is Uniform for value in values) and same_uniforms(values):
        return Uniform(first.obj, any(value.shared for value in values))  # type: ignore[union-attr]
    numbers = repeated_numbers(values, sizes, device)
    if numbers is not None:
        return numbers
    columns = [
        value if type(value) is Column else expand(value.obj, size, device)  # type: ignore[union-attr]
        for value, size in zip(values, sizes, strict=True)
    ]
    tag, table = columns[0].tag, columns[0].table
    outside = outside_rows(values, sizes)
    rows = [indices(c) for c in columns if c.table is table and is_indexed(c)]
    if len(rows) == len(columns):
        return Column(table, tag, None, torch.cat(rows), outside)
    data = joined([column.data for column in columns])
    bounds = join_bounds(column.bounds for column in columns) if tag == "int" else None
    return Column(data, tag, bounds, None, outside)


def repeated_numbers(
    values: Sequence[Value], sizes: Sequence[int], device: torch.device
) -> Column | None:
    """The column of numbers of one kind, each for so many threads; None if they are not that."""
    if any(type(value) is not Uniform for value in values):
        return None
    objs = [value.obj for value in values]  # type: ignore[union-attr]
    kinds = set(map(type, objs))
    tag = NUMBER_TAGS.get(kinds.pop()) if len(kinds) == 1 else None
    if tag is None:
        return None
    data = torch.from_numpy(np.repeat(np.array(objs, NUMPY_DTYPES[tag]), sizes)).to(device)
    return Column(data, tag, (min(objs), max(objs)) if tag == "int" else None)


def is_indexed(column: Column) -> bool:
    """Whether its rows are looked up in a table that other columns look up theirs in."""
    return column.rows is not None or is_shared(column.table)


def indices(column: Column) -> Tensor:
    table, rows = column.table, column.rows
    return torch.arange(table.shape[0], device=table.device) if rows is None else rows


def aligned(packs: Sequence[Container], joint: dict[tuple[int, ...], Tensor]) -> list[Container]:
    """Packed values over one table, which has the rows of all their tables; ``joint`` keeps it."""
    tables: dict[int, Tensor] = {id(pack.static): pack.static for pack in packs}
    if len(tables) == 1:
        return list(packs)
    firsts: dict[int, int] = {}
    size = 0
    for key, table in tables.items():
        firsts[key] = size
        size += table.shape[0]
    whole = joint.get(tuple(tables))
    if whole is None:
        whole = joint[tuple(tables)] = torch.cat(list(tables.values()))
    moved: list[Container] = []
    for pack in packs:
        begins, *rest = pack.children()
        column = begins.value
        assert type(column) is Column
        begins = Cell(Column(column.data + firsts[id(pack.static)], "int"))
        moved.append(Container(PACKED, [begins, *rest], whole))
    return moved


def outside_rows(values: Sequence[Value], sizes: Sequence[int]) -> np.ndarray | bool:
    """Which rows of a merged column stand for tensors that existed before the call."""
    flags: list[Any] = [
        value.outside if type(value) is Column else value.shared and isinstance(value.obj, Tensor)  # type: ignore[union-attr]
        for value in values
    ]
    if all(flag is False for flag in flags):
        return False
    if all(type(flag) is bool for flag in flags):
        return np.repeat(flags, sizes)
    return np.concatenate([np.broadcast_to(f, size) for f, size in zip(flags, sizes, strict=True)])


def same_uniforms(values: Sequence[Value]) -> bool:
    first = values[0].obj  # type: ignore[union-attr]
    if all(value.obj is first for value in values):  # type: ignore[union-attr]
        return True
    if isinstance(first, Tensor):
        return False
    key = identity(first)
    return all(identity(value.obj) == key for value in values)  # type: ignore[union-attr]
