"""A function of one element of each operand, for all elements of a shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from autobatch.compiled.arrays import views
from autobatch.compiled.arrays.memory import (
    Operand,
    Strided,
    contiguous_strides,
    element,
    nest,
    room,
    store,
)
from autobatch.compiled.types import Value
from autobatch.compiled.writer import Writer


def mapped(
    w: Writer,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    operands: Sequence[Operand],
    at: Callable[[Sequence[Value]], Value],
) -> Operand:
    """A function of one element of each operand, for all elements."""
    if not shape:
        return at([scalar(w, x) for x in operands])
    made = room(w, dtype, shape)
    wide = {
        n: views.expanded(w, x, shape) for n, x in enumerate(operands) if isinstance(x, Strided)
    }
    spread: list[Strided] = [x for x in wide.values() if isinstance(x, Strided)]

    def body(places: list[str]) -> None:
        elements = iter(zip(spread, places[1:], strict=True))
        values = [element(w, *next(elements)) if n in wide else x for n, x in enumerate(operands)]
        store(w, made, places[0], at(values).leaf)  # type: ignore[arg-type]

    nest(w, shape, [contiguous_strides(shape), *(x.strides for x in spread)], body)
    return made


def scalar(w: Writer, x: Operand) -> Value:
    return element(w, x, "0") if isinstance(x, Strided) else x
