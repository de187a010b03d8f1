"""``int(x)``, ``x.item()``, ``math.exp(x)``, ``torch.tensor(xs)``: between numbers and tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from autobatch.batching import arithmetic, lists
from autobatch.batching.context import Context, Handler
from autobatch.batching.kinds import is_tensor
from autobatch.batching.tensors import unheld
from autobatch.batching.tensors.unheld import is_whole
from autobatch.batching.truths import truth
from autobatch.compat import factory_device
from autobatch.values.cells import Cell, Column, Container, Objects, Uniform, read, uniform
from autobatch.values.heap import walks
from autobatch.values.lists import Lists

_BOUNDS = {
    torch.uint8: (0, 255),
    torch.int8: (-128, 127),
    torch.int16: (-(2**15), 2**15 - 1),
    torch.int32: (-(2**31), 2**31 - 1),
}

OF_FLOATS = (
    *(math.acos, math.acosh, math.asin, math.asinh, math.atan, math.atan2, math.atanh, math.cbrt),
    *(math.ceil, math.copysign, math.cos, math.cosh, math.degrees, math.erf, math.exp, math.exp2),
    *(math.expm1, math.fabs, math.floor, math.fmod, math.hypot, math.isfinite, math.isinf),
    *(math.isnan, math.log, math.log10, math.log1p, math.log2, math.modf, math.pow, math.radians),
    *(math.remainder, math.sin, math.sinh, math.sqrt, math.tan, math.tanh),
)
"""Functions of ``math`` that take ``float(x)`` of a tensor."""


def number_of(context: Context, cell: Cell) -> Cell | None:
    """The number column that ``.item()`` of a one-element tensor column is: without gradients."""
    value = read(cell)
    if type(value) is not Column or value.tag != "tensor":
        return None
    data = value.data
    if data.shape[1:].numel() != 1 or data.is_complex() or data.dtype is torch.uint64:
        return None  # the last may be ints that no column holds
    flat = data.reshape(context.k)
    if data.dtype is torch.bool:
        return Cell(Column(flat, "bool"))
    if data.dtype.is_floating_point:
        return Cell(Column(flat.detach().to(torch.float64), "float"))
    return Cell(Column(flat.to(torch.int64), "int", _BOUNDS.get(data.dtype)))


def _item(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    return number_of(context, args[0])


def _tolist(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``x.tolist()``: a list of number columns, nested as the event shape is."""
    value = read(args[0])
    if type(value) is not Column or value.tag != "tensor":
        return None
    if value.data.dim() == 1:
        return number_of(context, args[0])
    rows = [
        _tolist(context, [Cell(Column(part))], {}) for part in value.data.movedim(1, 0).unbind(0)
    ]
    return None if None in rows else Cell(Container(list, rows))  # type: ignore[arg-type]


def _convert(kind: type) -> Handler:
    def handler(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
        if len(args) != 1 or kwargs:
            return None
        number = number_of(context, args[0])
        source = args[0] if number is None else number
        if type(read(source)) is Uniform:
            return None
        return arithmetic.apply(context, kind, kind, [source])

    return handler


def _of_floats(function: Callable[..., Any]) -> Handler:
    """``math.exp(x)`` of one-element tensors: of the floats that they convert to."""

    def handler(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
        if kwargs or not any(is_tensor(read(arg)) for arg in args):
            return None
        floats = [float_of(context, arg) if is_tensor(read(arg)) else arg for arg in args]
        if None in floats:
            return None
        return arithmetic.apply(context, function, function, floats)  # type: ignore[arg-type]

    return handler


def float_of(context: Context, cell: Cell) -> Cell | None:
    number = number_of(context, cell)
    return None if number is None else arithmetic.apply(context, float, float, [number])


def _bool(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    return truth(context, args[0]) if len(args) == 1 else None


def as_index(context: Context, cell: Cell) -> Cell | None:
    """What ``operator.index`` gives: ints as they are, 0-d integer tensors as numbers."""
    value = read(cell)
    if type(value) is Uniform and type(value.obj) in (int, bool):
        return uniform(int(value.obj))
    if type(value) is Column and value.tag in ("int", "bool"):
        return arithmetic.apply(context, int, int, [cell]) if value.tag == "bool" else cell
    if type(value) is Column and value.tag == "tensor" and not value.data.dtype.is_floating_point:
        return number_of(context, cell) if value.data.dtype is not torch.bool else None
    return None


def _tensor(
    context: Context,
    args: list[Cell],
    kwargs: dict[str, Cell],
    make: Callable[..., Tensor] = torch.tensor,
) -> Cell | None:
    """``torch.tensor(data)`` from numbers of the threads, alone or in nested lists."""
    if len(args) != 1 or type(read(args[0])) is Uniform or is_tensor(read(args[0])):
        return None
    if any(type(read(cell)) is not Uniform for cell in kwargs.values()):
        return None
    options = {name: read(cell).obj for name, cell in kwargs.items()}  # type: ignore[union-attr]
    numbers = numbers_in(context, args[0])
    if numbers is None:
        return of_own_lengths(context, lists.held(read(args[0])), options)
    data, dtype = numbers
    dtype = options.get("dtype") or dtype
    if is_whole(dtype) and data.is_floating_point() and any(map(_is_tensor, walks.parts(args[0]))):
        return None  # torch makes no integer of a tensor of floats
    check_fit(context, data, dtype, make)
    # Where the CPU is the default, numbers stay beside what they meet, as 0-d tensors may.
    data = data.to(dtype=dtype, device=options.get("device") or factory_device())
    if options.get("requires_grad"):
        data = data.requires_grad_()
    return Cell(Column(data))


def of_own_lengths(context: Context, found: Lists | None, options: dict[str, Any]) -> Cell | None:
    """``torch.tensor(xs)`` of numbers, as many as each thread has; none has none."""
    if found is None or found.tag == "tensor" or not found.least or options.keys() - {"dtype"}:
        return None
    data, natural = of_numbers(found.table)
    dtype = options.get("dtype") or natural
    if dtype != data.dtype and is_whole(dtype):
        return None  # which may not hold the numbers
    found.lent = True
    return Cell(lists.ragged_over(context, found, data.to(dtype=dtype, device=factory_device())))


def _is_tensor(cell: Cell) -> bool:
    return is_tensor(read(cell))


def check_fit(
    context: Context, data: Tensor, dtype: torch.dtype, make: Callable[..., Tensor]
) -> None:
    """Numbers that the dtype does not hold are torch's error, for what makes a tensor of them."""
    if dtype in (torch.bool, data.dtype) or data.dtype is torch.bool or dtype.is_complex:
        return
    if make is torch.tensor and not is_whole(dtype) and not data.is_complex():
        return  # which makes infinities of them
    held = unheld.held(data, dtype)

    def evaluate(row: int) -> None:
        own = data[row]  # complex ones are tensors, of which torch says something else
        make(list(own) if own.is_complex() and own.dim() else own.tolist(), dtype=dtype)

    context.check(~held.flatten(1).all(1) if held.dim() > 1 else ~held, evaluate)


def _scalar_tensor(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``torch.scalar_tensor(n)``: of the default dtype, whatever the number is."""
    if len(args) != 1 or type(read(args[0])) is not Column:
        return None
    kwargs = {"dtype": uniform(torch.get_default_dtype()), **kwargs}
    return _tensor(context, args, kwargs, torch.scalar_tensor)


Numbers = tuple[Tensor, torch.dtype]
"""The numbers themselves, ``[k, *E]``, and the dtype of the tensor that torch makes of them."""


def numbers_in(context: Context, cell: Cell) -> Numbers | None:
    """For number columns, 0-d tensors and numbers, alone or in lists of one length."""
    return None if walks.holds_itself(cell) else numbers_of(context, cell)


def numbers_of(context: Context, cell: Cell) -> Numbers | None:
    value = read(cell)
    match value:
        case Objects(lists=Lists() as found):
            same = found.tag != "tensor" and 0 < found.least == found.most
            return of_numbers(found.table[:, : found.most].clone()) if same else None
        case Column(data=data, tag="tensor"):
            return (data.detach(), data.dtype) if data.dim() == 1 else None
        case Column(data=data):
            return of_numbers(data) if data.dim() == 1 else None
        case Uniform(obj=obj):
            return expanded(context, obj)
        case Container(type=type() as kind) if issubclass(kind, list | tuple):
            return stacked([numbers_of(context, part) for part in value.children()])
    return None


def of_numbers(data: Tensor) -> Numbers:
    """Python's floats become tensors of the default dtype, where tensors keep theirs."""
    return data, torch.get_default_dtype() if data.dtype.is_floating_point else data.dtype


def expanded(context: Context, obj: Any) -> Numbers | None:
    """The same for Python numbers that all threads share."""
    if isinstance(obj, bool | int | float):
        dtype = {bool: torch.bool, int: torch.int64, float: torch.float64}[type(obj)]
        return of_numbers(torch.full((context.k,), obj, dtype=dtype, device=context.device))
    if not isinstance(obj, list | tuple):
        return None
    return stacked([expanded(context, part) for part in obj])


def stacked(parts: Sequence[Numbers | None]) -> Numbers | None:
    """``[k, n, *E]`` of parts of one shape; they promote as tensors do."""
    whole = [part for part in parts if part is not None]
    if not whole or len(whole) < len(parts) or len({data.shape for data, _ in whole}) > 1:
        return None
    wide = reduce(torch.promote_types, (data.dtype for data, _ in whole))
    dtype = reduce(torch.promote_types, (made for _, made in whole))
    return torch.stack([data.to(wide) for data, _ in whole], 1), dtype


HANDLERS: dict[Any, Handler] = {
    Tensor.item: _item,
    Tensor.tolist: _tolist,
    Tensor.__int__: _convert(int),
    Tensor.__float__: _convert(float),
    Tensor.__bool__: _bool,
    Tensor.__index__: _convert(int),
    torch.tensor: _tensor,
    torch.as_tensor: _tensor,
    torch.scalar_tensor: _scalar_tensor,
    int: _convert(int),
    float: _convert(float),
    bool: _bool,
    **{function: _of_floats(function) for function in OF_FLOATS},
}
