"""The signature of a stretch: what its recording depends on, and which cells its inputs are.

``Gathered`` walks the cells that a stretch reads. Leaves are columns, uniform tensors and uniform
numbers, which become inputs of the trace, and other uniform objects, whose identity or value
becomes part of the key. Modules of ``torch.nn`` contribute their parameters and buffers, read at
each run, and their plain attributes as part of the key.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from autobatch.batching.stretches.callables import Opened, Twins, opened
from autobatch.batching.stretches.contents import (
    content_key,
    holds_others,
    is_large,
    is_plain_module,
    module_key,
    module_tensors,
    twin_module,
)
from autobatch.batching.submodules import parts_of
from autobatch.batching.trace import Input, Untraceable
from autobatch.values.cells import (
    CLOSURE,
    INT_MAX,
    INT_MIN,
    Bounds,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    View,
    is_mutable,
    read,
)
from autobatch.values.heap.likeness import identity
from autobatch.values.heap.walks import reached
from autobatch.values.layouts import CONJUGATE
from autobatch.values.repeated import is_shared
from autobatch.values.strides import dense

TIERS = ((-(2**15), 2**15), (-(2**31), 2**31), (-(2**53), 2**53), (INT_MIN, INT_MAX))
"""Bounds that recordings are made with: each is right for all columns within its own."""
BIT = -1
"""The tier of what picks one of two, told apart only where it is an index, which then needs no
look at whether it is in range.
"""
Signature = tuple[Hashable, ...]


def tier_of(column: Column, picks: bool = False) -> int:
    """``picks``: it is an index."""
    if column.bounds is None:
        return 3
    low, high = column.bounds
    if picks and low >= 0 and high <= 1:
        return BIT
    for tier, (least, most) in enumerate(TIERS):
        if least <= low and high <= most:
            return tier
    return 3


def widest(tier: int) -> Bounds:
    return (0, 1) if tier == BIT else TIERS[tier]


class Gathered:
    """The inputs of a stretch and their signature.

    The numbers of the roots in ``baked`` are part of the key, and those that a function captures;
    the roots in ``picks`` are indices.
    ``leaves[i]`` is the cell that ``values[i]`` comes from; None for a module's parameter.
    ``cells`` are the containers and functions, in the order in which they are met; ``held`` are
    the objects whose identity is in the key, which a plan keeps alive, so that it stays theirs;
    ``viewed`` are the cells, by id, that views among the inputs go by.
    """

    __slots__ = (
        *("baked", "cells", "held", "key", "kinds", "leaves", "numbers", "picks", "values"),
        "viewed",
    )

    def __init__(self, roots: Sequence[Cell], baked: frozenset[int], picks: frozenset[int]) -> None:
        self.baked = self.picks = False
        self.numbers: dict[int, int] = {}
        self.leaves: list[Cell | None] = []
        self.values: list[Any] = []
        self.kinds: list[str] = []
        self.cells: list[Cell] = []
        self.held: list[Any] = []
        self.viewed: set[int] = set()
        parts: list[Hashable] = []
        for place, root in enumerate(roots):
            self.baked, self.picks = place in baked, place in picks
            self.visit(root, parts)
        self.key: Signature = tuple(parts)

    def visit(self, cell: Cell, parts: list[Hashable]) -> None:
        value = cell.value
        if is_mutable(value):
            number = self.numbers.get(id(cell))
            if number is not None:
                parts.append(("same", number))
                return
            self.numbers[id(cell)] = len(self.numbers)
        if type(value) is View:
            self.note_view(value)
            parts.append("view")
            value = read(cell)
        if type(value) is Column:
            self.column(cell, value, parts)
        elif type(value) is Uniform:
            self.uniform(cell, value, parts)
        elif type(value) is Objects:
            parts.append("objects")
        elif type(value) is Container:
            cells = value.cells
            self.cells.append(cell)
            keys = tuple(cells) if isinstance(cells, dict) else len(cells)
            self.held.append(value.static)
            parts.append((value.type, keys, identity(value.static)))
            baked, self.baked = self.baked, self.baked or value.type is CLOSURE
            for child in value.children():
                self.visit(child, parts)
            self.baked = baked

    def note_view(self, view: View) -> None:
        """A view is as its base is: what it goes by may not be written beside it."""
        for cell in reached((view.base, *view.args)):
            self.viewed.add(id(cell))

    def column(self, cell: Cell, value: Column, parts: list[Hashable]) -> None:
        table = value.table
        if value.rows is not None and not is_shared(table):
            parts.append(
                ("table", table.dtype, table.shape[1:], table.stride(), table.requires_grad)
            )
            self.add(cell, "table", table)
            self.add(cell, "column", value.rows)
            return
        data, order = dense(table if value.rows is None else value.data)
        parts.append((data.dtype, data.shape[1:], order, data.requires_grad, data.device))
        if data.is_conj():
            parts.append(CONJUGATE)
        if value.tag != "tensor":
            parts.append(tier_of(value, self.picks) if value.tag == "int" else value.tag)
        self.add(cell, "column", data)

    def uniform(self, cell: Cell, value: Uniform, parts: list[Hashable]) -> None:
        obj = value.obj
        kind: Any = type(obj)
        if isinstance(obj, Tensor):
            parts.append(
                (obj.dtype, obj.shape, obj.stride(), obj.requires_grad, obj.device, value.shared)
            )
            self.add(cell, "tensor", obj)
        elif (kind is int or kind is float) and not self.baked:
            parts.append(kind)
            self.add(cell, kind.__name__, obj)
        elif (function := opened(obj)) is not None:
            self.function(cell, function, parts)
        elif isinstance(obj, nn.Module):
            if not all(map(is_plain_module, parts_of(obj))) or holds_others(obj):
                raise Untraceable("a module with hooks or a forward of its own runs Python code")
            parts.append(module_key(obj))
            for tensor in module_tensors(obj):
                parts.append(tensor_key(tensor))
                self.add(None, "tensor", tensor)
        elif is_large(obj):
            raise Untraceable(f"a {kind.__name__} of {len(obj):,} entries may change between runs")
        else:
            self.held.append(obj)
            parts.append(content_key(obj))

    def function(self, cell: Cell, opened: Opened, parts: list[Hashable]) -> None:
        """A function is its code and what it holds; where it is given back, it is itself."""
        self.cells.append(cell)
        self.held += opened.held
        parts.append(("function", tuple(opened.key)))
        for tensor in opened.tensors:
            parts.append(tensor_key(tensor))
            self.add(None, "tensor", tensor)

    def add(self, cell: Cell | None, kind: str, value: Any) -> None:
        self.leaves.append(cell)
        self.kinds.append(kind)
        self.values.append(value)

    def inputs(self) -> list[Input]:
        return [
            Input(kind, value)  # type: ignore[arg-type]
            for kind, value in zip(self.kinds, self.values, strict=True)
        ]


def tensor_key(tensor: Tensor) -> Hashable:
    """What the key holds of a tensor that all threads share."""
    return (tensor.dtype, tensor.shape, tensor.stride(), tensor.requires_grad, tensor.device)


def shapeless(parts: Signature) -> Hashable:
    """Equal for signatures that differ in event shapes and the lengths of lists only."""
    kept: set[Hashable] = set()
    for part in parts:
        if type(part) is not tuple:
            kept.add(part)
        elif isinstance(part[0], torch.dtype) or part[0] == "table":
            kept.add(tuple([entry for entry in part if not isinstance(entry, tuple)]))
        elif part[0] in (list, tuple) and type(part[1]) is int:
            kept.add(part[0])
        elif part[0] != "same":
            kept.add(part)
    return frozenset(kept)


class Rebuilt:
    """The cells of ``Gathered`` again, over other values: fakes, or some of the rows.

    ``shared`` are the cells (by id) of the numbers that are inputs, with their root's place;
    ``twins`` are the functions that stand for others, and their cells, by id.
    """

    def __init__(
        self,
        roots: Sequence[Cell],
        baked: frozenset[int],
        picks: frozenset[int],
        values: Sequence[Any],
    ) -> None:
        self.baked = self.picks = False
        self.shared: dict[int, int] = {}
        self.values = iter(values)
        self.twins: dict[int, Any] = {}
        self.memo: dict[int, Cell] = {}
        self.leaves: list[Cell | None] = []
        self.cells: list[Cell] = []
        self.roots: list[Cell] = []
        for place, root in enumerate(roots):
            self.place, self.baked, self.picks = place, place in baked, place in picks
            self.roots.append(self.visit(root))

    def visit(self, cell: Cell) -> Cell:
        known = self.memo.get(id(cell))
        value = cell.value
        if known is not None and (
            (type(value) is Column and value.tag == "tensor") or is_mutable(value)
        ):
            return known
        if type(value) is View:
            value = read(cell)
        new = self.memo[id(cell)] = Cell(value)
        if type(value) is Column:
            bounds = widest(tier_of(value, self.picks)) if value.tag == "int" else None
            data = next(self.values)
            rows = None if value.rows is None else next(self.values)
            new.value = Column(data, value.tag, bounds, rows)
            self.leaves += [new] if rows is None else [new, new]
        elif type(value) is Uniform:
            new.value = Uniform(self.uniform(value.obj, new), value.shared)
        elif type(value) is Container:
            self.cells.append(new)
            baked, self.baked = self.baked, self.baked or value.type is CLOSURE
            new.value = value.rebuilt(self.visit(child) for child in value.children())
            self.baked = baked
        return new

    def uniform(self, obj: Any, new: Cell) -> Any:
        kind = type(obj)
        if isinstance(obj, Tensor) or ((kind is int or kind is float) and not self.baked):
            self.leaves.append(new)
            if not isinstance(obj, Tensor):
                self.shared[id(new)] = self.place
            return next(self.values)
        function = opened(obj)
        if function is not None:
            self.cells.append(new)
            self.leaves += [None] * len(function.tensors)
            twins = Twins(self.values)
            twin = twins.of(obj)
            self.twins |= twins.made
            return twin
        if isinstance(obj, nn.Module):
            self.leaves += [None for _ in module_tensors(obj)]
            return twin_module(obj, self.values)
        return obj
