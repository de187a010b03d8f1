"""Functions of whole per-thread arrays: ``torch.stack``, ``torch.tensor``, ``sum``, ``max`` …

Where all threads have equally many elements a tensor is a column, else packed rows (``packs``): one
copy of the elements that there are, in the order of the threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.arithmetic import apply
from autobatch.batching.arrays import array_of, least, size_of
from autobatch.batching.context import Context, Handler
from autobatch.vm import arrays, packs, stores
from autobatch.vm.arrays import Number, Stored, buffers_of
from autobatch.vm.values import INT_MAX, Cell, Column, Container, Uniform, join_bounds, read


def laid_out(context: Context, array: Container) -> tuple[Column, Tensor | None]:
    """The numbers of the elements that there are, ``[k, n]`` where all threads have ``n``.

    Else ``[N]``, one thread's after another, and where each thread's begin.
    """
    buffers = buffers_of(array)
    place, _ = arrays.parts_of(array)
    data, bounds, size = buffers.data[0], buffers.bounds[0], size_of(array)
    if type(size) is int:
        return Column(data.index_select(0, place)[:, :size], "int", bounds), None
    total = context.host(size.sum(), "length")
    rows = torch.arange(context.k, device=place.device)
    threads = torch.repeat_interleave(rows, size, output_size=total)
    begins = size.cumsum(0) - size
    steps = torch.arange(total, device=place.device) - begins[threads]
    return Column(data[place[threads], steps], "int", bounds), begins


def sequence(context: Context, array: Container, rows: Tensor, begins: Any, each: int = 1) -> Cell:
    """A tensor of each thread's own; an element makes ``each`` rows of it."""
    context.counter.launch()
    if begins is None:
        return Cell(Column(rows if each == 1 else rows.flatten(1, 2)))
    top = min(arrays.longest(array), buffers_of(array).capacity)
    if each == 1:
        return Cell(packs.pack(rows, begins, size_of(array), top))
    table = rows.flatten(0, 1)
    return Cell(packs.pack(table, begins * each, size_of(array) * each, top * each))


def along_first(args: list[Cell], kwargs: dict[str, Cell]) -> bool:
    """Whether a call joins tensors along their first dimension."""
    if set(kwargs) - {"dim"} or len(args) + len(kwargs) > 2:
        return False
    rest = [read(cell) for cell in (*args[1:], *kwargs.values())]
    return all(type(value) is Uniform and value.obj == 0 for value in rest)


def _joined(meaning: Callable[..., Any]) -> Handler:
    """``torch.stack`` and ``torch.cat``."""

    def handler(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
        array = array_of(args[0]) if args else None
        layout = None if array is None else buffers_of(array).layout
        if array is None or type(layout) is not Stored or not along_first(args, kwargs):
            return None
        size, shape = size_of(array), layout.kind[1]
        if size is None or (type(size) is int and not size):
            return None
        each = 1
        if meaning is torch.cat:
            if not shape or not shape[0]:
                return None
            each = shape[0]
        if type(size) is not int and least(array) < 1:
            context.check(size < 1, lambda row: meaning([]))
        numbers, begins = laid_out(context, array)
        rows = stores.tensors(arrays.stores_of(array)[0], numbers)
        if meaning is torch.cat and each == 1:
            rows = rows.flatten(*((1, 2) if begins is None else (0, 1)))
        return sequence(context, array, rows, begins, each)

    return handler


def tensor(context: Context, array: Container, options: dict[str, Any]) -> Cell | None:
    """``torch.tensor(xs)`` of numbers."""
    layout = buffers_of(array).layout
    if type(layout) is not Number or set(options) - {"dtype", "device"}:
        return None
    dtype = options.get("dtype")
    if least(array) < 1 and dtype is None and layout.tag != "float":
        return None  # an empty one is of floats
    numbers, begins = laid_out(context, array)
    known = torch.get_default_dtype() if layout.tag == "float" else numbers.data.dtype
    rows = numbers.data.to(dtype=dtype or known, device=options.get("device"))
    return sequence(context, array, rows, begins)


def rows_and_mask(context: Context, array: Container) -> tuple[Tensor, Tensor]:
    """The numbers of each thread ``[k, n]``, and which of them are elements."""
    top = min(arrays.longest(array), buffers_of(array).capacity)
    rows = arrays.rows_of(array, 0, top).data
    size = torch.as_tensor(size_of(array), device=rows.device)
    steps = torch.arange(top, device=rows.device)
    return rows, (steps < size.reshape(-1, 1)).expand(context.k, top)


def total(context: Context, array: Container, start: Cell) -> Cell | None:
    """``sum(xs)`` of numbers."""
    buffers = buffers_of(array)
    layout, bounds = buffers.layout, buffers.bounds[0] if buffers.bounds else None
    if type(layout) is not Number:
        return None
    if layout.tag == "bool":
        bounds = (0, 1)
    ends: tuple[int, int] | None = None
    rows, mask = rows_and_mask(context, array)
    if layout.tag != "float":
        most = min(arrays.longest(array), buffers.capacity)
        if bounds is None and rows.numel():
            bounds = tuple(context.host(torch.stack(torch.aminmax(rows)), "sum"))
        if bounds is None or most * max(abs(bounds[0]), abs(bounds[1]), 1) > INT_MAX:
            return None
        ends = (min(bounds[0], 0) * most, max(bounds[1], 0) * most)
    context.counter.launch()
    tag = "float" if layout.tag == "float" else "int"
    found = Column(torch.where(mask, rows, 0).sum(1), tag, ends)
    return apply(context, "add", lambda x, y: x + y, [start, Cell(found)])


def extreme(
    context: Context, array: Container, meaning: Callable[..., Any], kwargs: dict[str, Cell]
) -> Cell | None:
    """``min(xs)`` and ``max(xs)`` of ints, with or without a ``default``."""
    buffers = buffers_of(array)
    default = kwargs.get("default")
    number: Any = Uniform(0) if default is None else read(default)
    if buffers.layout != Number("int") or not arrays.longest(array) or set(kwargs) - {"default"}:
        return None
    if default is not None and arrays.layout_of(default) != Number("int"):
        return None
    if default is None and least(array) < 1:
        size = torch.as_tensor(size_of(array), device=context.device)
        context.check((size < 1).expand(context.k), lambda row: meaning([]))
    rows, mask = rows_and_mask(context, array)
    context.counter.launch()
    info = torch.iinfo(torch.int64)
    if meaning is max:
        data = torch.where(mask, rows, info.min).amax(1)
    else:
        data = torch.where(mask, rows, info.max).amin(1)
    other = arrays.expanded(number, context.k, context.device)
    data = torch.where(mask.any(1), data, other.data)
    return Cell(Column(data, "int", join_bounds([buffers.bounds[0], other.bounds])))


def contains(context: Context, array: Container, item: Cell) -> Cell | None:
    """``v in xs`` of ints or bools."""
    layout, value = buffers_of(array).layout, read(item)
    if type(layout) is not Number or layout.tag == "float" or arrays.layout_of(item) != layout:
        return None
    rows, mask = rows_and_mask(context, array)
    context.counter.launch()
    own = value.data[:, None] if type(value) is Column else value.obj  # type: ignore[union-attr]
    found = ((rows == own) & mask).any(1)
    return Cell(Column(found, "bool"))


HANDLERS: dict[Any, Handler] = {
    torch.stack: _joined(torch.stack),
    torch.cat: _joined(torch.cat),
    torch.concat: _joined(torch.cat),
    torch.concatenate: _joined(torch.cat),
}
