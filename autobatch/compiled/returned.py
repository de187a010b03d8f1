"""What threads return, as cells: from the columns that machine code writes, and from its memory.

A list is returned by its address, so the memory of a launch is read before it is given back. Where
it is as long in all threads of the launch, with items of the same types, it is a container of
columns, like that of an engine; else each thread has a list of Python's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.compiled.listing import ITEMS, LENGTH, WORD, width_of_kinds
from autobatch.compiled.types import (
    Array,
    Listed,
    Number,
    Scalar,
    Static,
    Structure,
    Type,
    flat_types,
    refuse,
)
from autobatch.values.cells import NUMBER_DTYPES, Cell, Column, Container, Objects, uniform

Piece = tuple[np.ndarray, Cell]
"""Threads, and what they have returned, with a row for each of them."""


def has_lists(type_: Type) -> bool:
    return any(isinstance(leaf, Listed) for leaf in flat_types(type_))


def outputs_of(type_: Type, size: int) -> list[Tensor]:
    """Room for the leaves of a result, a row for each thread."""
    return [allocated(leaf, size) for leaf in flat_types(type_)]


def allocated(leaf: Type, size: int) -> Tensor:
    shape = (size, *leaf.shape) if isinstance(leaf, Array) else (size,)
    made = torch.empty(shape, dtype=dtype_of(leaf), device="cpu")
    return made if type(made) is Tensor else refuse("a mode is on under which tensors are none")


def dtype_of(leaf: Type) -> torch.dtype:
    if isinstance(leaf, Number):
        return NUMBER_DTYPES[leaf.tag]
    return leaf.dtype if isinstance(leaf, Scalar | Array) else torch.int64  # an address


class Unlike(Exception):
    """Lists of several lengths, or with items of several types at a place."""


@dataclass(slots=True, eq=False, repr=False)
class Memory:
    """The memory of a launch: ``bytes`` lie at ``base``.

    ``seen`` are the addresses of the lists that are made columns; ``opened`` has those that are
    Python's, for each row by its address. ``apart``: all are to be.
    """

    bytes: np.ndarray
    apart: bool = False
    seen: list[np.ndarray] = field(default_factory=list)
    opened: dict[int, dict[int, list[Any]]] = field(default_factory=dict)

    def words(self, addresses: np.ndarray, leaf: Type) -> np.ndarray:
        """What lies at some places, of the type of a leaf."""
        dtype = torch.empty(0, dtype=dtype_of(leaf), device="cpu").numpy().dtype
        if dtype == np.bool_:
            truths: np.ndarray = self.bytes[addresses - self.bytes.ctypes.data] != 0
            return truths
        places = (addresses - self.bytes.ctypes.data) // dtype.itemsize
        found: np.ndarray = self.bytes.view(dtype)[places]
        return found


ADDRESS = Static(None)
"""The type of a leaf of a list's header."""


def returned(type_: Type, outputs: Sequence[Tensor], rows: np.ndarray, heap: np.ndarray) -> Cell:
    """What some threads have returned."""
    index = torch.from_numpy(rows)
    picked = [data[index] for data in outputs]
    memory = Memory(heap)
    cell = cell_of(type_, iter(picked), memory)
    if len(memory.seen) > 1 and is_shared(np.stack(memory.seen)):
        memory = Memory(heap, apart=True)  # two names of one list are two of one
        cell = cell_of(type_, iter(picked), memory)
    return cell


def is_shared(addresses: np.ndarray) -> bool:
    """Whether any thread has an address twice; ``[addresses, threads]``."""
    ordered = np.sort(addresses, axis=0)
    return bool((ordered[1:] == ordered[:-1]).any())


def cell_of(type_: Type, leaves: Iterator[Tensor], memory: Memory | None) -> Cell:
    """The cell of a result whose leaves these are; without lists it needs no memory."""
    match type_:
        case Number(tag):
            return Cell(Column(next(leaves), tag))
        case Scalar() | Array():
            return Cell(Column(next(leaves)))
        case Structure(kind, parts, keys):
            cells = [cell_of(part, leaves, memory) for part in parts]
            named = dict(zip(keys, cells, strict=True)) if kind is dict else cells
            return Cell(Container(kind, named))
        case Static(obj):
            return uniform(obj, shared=True)
        case Listed():
            assert memory is not None
            addresses = next(leaves).numpy()
            many = len(memory.seen)
            try:
                return Cell(Container(list, columns_of(type_, addresses, memory)))
            except Unlike:
                del memory.seen[many:]
                each = enumerate(addresses.tolist())
                return Cell(Objects([opened(type_, at, memory, row) for row, at in each]))
        case _:
            raise AssertionError(f"a plan returns {type_}")


def columns_of(type_: Listed, addresses: np.ndarray, memory: Memory) -> list[Cell]:
    """The cells of the items of lists that are all alike."""
    lengths = memory.words(addresses + LENGTH * WORD, ADDRESS)
    kinds = type_.contents.kinds
    if memory.apart or (lengths != lengths[0]).any():
        raise Unlike
    memory.seen.append(addresses)
    items = memory.words(addresses + ITEMS * WORD, ADDRESS)
    cells: list[Cell] = []
    for _ in range(int(lengths[0])):
        kind = kinds[0]
        place = items
        if len(kinds) > 1:
            tags = memory.words(items, ADDRESS)
            if (tags != tags[0]).any():
                raise Unlike
            kind, place = kinds[int(tags[0])], items + WORD
        leaves = (
            torch.from_numpy(memory.words(place + far * WORD, leaf))
            for far, leaf in enumerate(flat_types(kind))
        )
        cells.append(cell_of(kind, leaves, memory))
        items = items + width_of_kinds(kinds)
    return cells


def opened(type_: Listed, address: int, memory: Memory, row: int) -> list[Any]:
    """The list of a thread, as Python has it."""
    known = memory.opened.setdefault(row, {})
    if address in known:
        return known[address]
    made = known[address] = []
    at = np.array([address])
    length = int(memory.words(at + LENGTH * WORD, ADDRESS)[0])
    first = int(memory.words(at + ITEMS * WORD, ADDRESS)[0])
    kinds = type_.contents.kinds
    width, tagged = width_of_kinds(kinds), len(kinds) > 1
    places = first + width * np.arange(length)
    if not tagged and kinds and isinstance(kinds[0], Number):
        made += memory.words(places, kinds[0]).tolist()
        return made
    tags = memory.words(places, ADDRESS).tolist() if tagged else [0] * length
    for place, tag in zip(places.tolist(), tags, strict=True):
        leaves = iter(
            (memory.words(np.array([place + WORD * (far + tagged)]), leaf), leaf)
            for far, leaf in enumerate(flat_types(kinds[tag]))
        )
        made.append(item_of(kinds[tag], leaves, memory, row))
    return made


def item_of(
    type_: Type, leaves: Iterator[tuple[np.ndarray, Type]], memory: Memory, row: int
) -> Any:
    """An item of a list, as Python has it."""
    match type_:
        case Static(obj):
            return obj
        case Structure(kind, parts, keys):
            made = [item_of(part, leaves, memory, row) for part in parts]
            if kind is dict:
                return dict(zip(keys, made, strict=True))
            return kind(made) if kind in (list, tuple) else kind(*made)
    data, leaf = next(leaves)
    if isinstance(leaf, Number):
        return data[0].item()
    if isinstance(leaf, Scalar):
        return torch.from_numpy(data)[0].clone()
    assert isinstance(leaf, Listed)
    return opened(leaf, int(data[0]), memory, row)
