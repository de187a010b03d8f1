"""What functions of torch's write to ``out=``: for all threads at once, as the function's result.

The result becomes the content of ``out`` where torch would write it there as it is: in the dtype of
``out``, without gradients. In another dtype each function has a rule of its own (``add`` converts
floats, ``sum`` adds in the dtype of ``out``, most refuse), and of what requires gradients torch
refuses all: there each thread asks torch itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, update_wrapper
from itertools import starmap
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.applying.direct import POINTWISE
from autobatch.batching.applying.overlaps import overlaps, reads
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.host.rows import run_rows
from autobatch.batching.kinds import is_number
from autobatch.batching.levels import NoRule
from autobatch.batching.shared import updates
from autobatch.batching.tables import packed
from autobatch.batching.tensors import torch_ops
from autobatch.batching.tensors.number_operands import refused_numbers
from autobatch.batching.trace import Untraceable
from autobatch.batching.trace.recorder import is_recording
from autobatch.batching.writes import (
    OVERLAP,
    check_own_overlap,
    is_differentiated,
    is_outside,
    refuse_foreign,
    refuse_tied,
    set_content,
    shared_write,
    write_rows,
)
from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.values.cells import Cell, Column, Container, Objects, Uniform, Value, View, read
from autobatch.values.heap import walks

OWN_RULE = "what it writes by out= is of another dtype, or differentiated"


NUMBER = "what it writes by out= is a number"
"""Which torch takes for an operand, and leaves as it is."""


def write_out(
    context: Context,
    function: Callable[..., Any],
    args: list[Cell],
    kwargs: dict[str, Cell],
    draws: bool,
) -> Cell:
    """``function(..., out=y)``: the result becomes the content of ``y``, in its dtype."""
    if updates.write_out(context, function, args, kwargs):
        return kwargs["out"]
    out = kwargs["out"]
    rest = {name: arg for name, arg in kwargs.items() if name != "out"}
    operands = [*args, *rest.values()]
    has_numbers = context.k > 0 and torch_ops.has_numbers(operands)
    if has_numbers and (refused := refused_numbers(function, args, kwargs)) is not None:
        raise RowsFail(context.lowest(), refused) from refused
    why = ""
    if is_number(read(out)):
        call = update_wrapper(partial(into, function), function)
        return run_rows(context, call, [out, *args], rest, NUMBER, effect=False)
    if overlaps(out, operands) or (function not in POINTWISE and reads(operands, out)):
        why = OVERLAP
    elif torch.is_grad_enabled() and any(map(is_differentiated, walks.reached([*operands, out]))):
        why = OWN_RULE
    else:
        try:
            numbers = partial(refused_numbers, function, args, rest)
            check_own_overlap(context, out, operands, numbers)
        except NoRule:
            why = OVERLAP
    if not why:
        result = torch_ops.apply(context, function, args, rest, draws)
        parts = list(pairs(result, out))
        for pair in parts:
            packed.unpack(context, pair)
            refuse_resized(context, *pair)
        if reads(operands, out) and not all(starmap(keeps_size, parts)):
            why = OVERLAP  # torch refuses some
        elif draws or all(starmap(lands_as_it_is, parts)):
            for pair in parts:
                land(context, *pair)
            return out
        else:
            why = OWN_RULE
    sizes: list[Sizes] = []
    are_parts = [type(own.value) is View for _, own in pairs(out, out)]
    call = update_wrapper(partial(noted, sizes, function), function)
    by_thread(context, call, [out, *args], rest, why)
    for before, after in sizes:
        for is_part, was, size in zip(are_parts, before, after, strict=True):
            if is_part and was != size:
                raise resized(context, size, was)
    return out


def into(function: Callable[..., Any], out: Any, *args: Any, **kwargs: Any) -> Any:
    return function(*args, out=out, **kwargs)


Sizes = tuple[list[tuple[int, ...]], list[tuple[int, ...]]]
"""Of the tensors that a function writes to, before and after."""


def noted(
    sizes: list[Sizes], function: Callable[..., Any], out: Any, *args: Any, **kwargs: Any
) -> Any:
    """Note the sizes where the function gives ``out`` another."""
    written = out if isinstance(out, tuple | list) else (out,)
    before = [tuple(tensor.shape) for tensor in written]
    result = into(function, out, *args, **kwargs)
    after = [tuple(tensor.shape) for tensor in written]
    if before != after:
        sizes.append((before, after))
    return result


def pairs(result: Cell, out: Cell) -> Iterator[tuple[Cell, Cell]]:
    """The tensors of a result, each with the one that it is written to."""
    value, target = read(result), read(out)
    if type(value) is Container and type(target) is Container:
        for part, own in zip(value.children(), target.children(), strict=True):
            yield from pairs(part, own)
    else:
        yield result, out


def by_thread(
    context: Context,
    function: Callable[..., Any],
    args: list[Cell],
    kwargs: dict[str, Cell],
    why: str,
) -> None:
    """``function`` writes its first operand, one tensor or several, for each thread."""
    context.services.tensor_written(context.span)
    out = args[0]
    for part in walks.reached([out]):
        if type(read(part)) is not Container:
            refuse_write(context, part)
    if type(read(out)) is Container:
        run_rows(context, function, args, kwargs, why, True, effect=False)
    else:
        write_rows(context, function, args, kwargs, why)


def refuse_write(context: Context, out: Cell) -> None:
    """Refuse to write what existed before the call, or may be another name's."""
    refuse_tied(context, out)
    value = read(out)
    if (type(value) is Uniform and value.shared) or is_outside(out):
        raise shared_write(context, "a tensor")
    if type(value) is Objects:
        refuse_foreign(context, out, "{}")


def lands_as_it_is(result: Cell, out: Cell) -> bool:
    """Whether a result is of the dtype of what it is written to."""
    value, target = read(result), read(out)
    return Objects not in (type(value), type(target)) and dtype_of(value) is dtype_of(target)


def keeps_size(result: Cell, out: Cell) -> bool:
    given, own = size_of(read(result)), size_of(read(out))
    return given is not None and given == own


def refuse_resized(context: Context, result: Cell, out: Cell) -> None:
    """Refuse a result of another size than the part of a tensor that it is written to."""
    given, own = size_of(read(result)), size_of(read(out))
    if type(out.value) is not View or given is None or own is None or given == own:
        return
    if is_recording():
        raise Untraceable("it gives a part of a tensor another size")
    context.flush()  # torch's own errors come first
    raise resized(context, given, own)


def resized(context: Context, given: tuple[int, ...], own: tuple[int, ...]) -> UnsupportedError:
    return UnsupportedError(
        Diagnostic(
            "A program gives another size to a part of a tensor, by `out=`.",
            context.span,
            f"this is of the size {given}, and so is its `out=` from here on, which was {own}",
            ("torch would write on in the memory of the whole.",),
            ("give it a tensor of the size that it writes.",),
            "reshaped-view",
        )
    )


def dtype_of(value: Value) -> torch.dtype | None:
    if type(value) is Column:
        return value.table.dtype
    obj = value.obj if type(value) is Uniform else None
    return obj.dtype if isinstance(obj, Tensor) else None


def size_of(value: Value) -> tuple[int, ...] | None:
    """One thread's size, where all have the same."""
    if type(value) is Column:
        return tuple(value.event_shape)
    obj = value.obj if type(value) is Uniform else None
    return tuple(obj.shape) if isinstance(obj, Tensor) else None


def land(context: Context, result: Cell, out: Cell) -> None:
    value, target = read(result), read(out)
    context.services.tensor_written(context.span)
    refuse_write(context, out)
    if Objects in (type(value), type(target)):
        write_rows(context, filled, [out, result], {}, "objects")
    elif type(value) is Column:
        set_content(out, Column(value.data.to(dtype_of(target))))
    elif type(value) is Uniform and isinstance(value.obj, Tensor):
        set_content(out, Uniform(value.obj.to(dtype_of(target))))


def filled(out: Tensor, result: Tensor) -> Tensor:
    """One example's ``out``, which takes the size of the result, too."""
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)
