"""Calls that draw under a seed: Python's ``random``, and what a seed does not reach.

The functions of ``random`` draw from each thread's own words: ``random.random()`` for all threads
at once, the others thread by thread. A generator of the program's own has its own state, which
no seed of the call's can be for: a draw that names one is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from autobatch import structure
from autobatch.batching.context import Context
from autobatch.batching.effects import effect_of
from autobatch.batching.host.rows import run_rows
from autobatch.compat import shown_name
from autobatch.random import python
from autobatch.random.drawing import SOURCE, refuse_generator
from autobatch.random.sources import Thread
from autobatch.random.transforms import double
from autobatch.results.mismatch import Part
from autobatch.results.out_dims import moved, same_object
from autobatch.results.stacking import plain, stacked_rows
from autobatch.source import Span
from autobatch.structure import own_attribute
from autobatch.transforms.records import TORCH, Made
from autobatch.transforms.rounds import run
from autobatch.values.cells import Cell, Column, Uniform, read

DRAWING = ("draw", "write")
HOST_DRAW = "it draws thread by thread"


def python_draw(context: Context, callee: Any, args: list[Cell], kwargs: Any) -> Cell | None:
    """What a function of ``random`` gives under a seed; None for any other, or without a seed."""
    source = context.source()
    name = name_of(callee) if source is not None else None
    if source is None or name is None:
        return None
    if name == "random" and not args and not kwargs:
        context.settle()
        (high, low) = source.columns(1, 2, context.device)
        return Cell(Column(double(high, low).flatten(), "float"))
    keep = name == "shuffle"
    return run_rows(context, twin(name), args, kwargs, HOST_DRAW, keep=keep, fresh=not keep)


def name_of(callee: Any) -> str | None:
    """The name of a function of ``random`` that draws; None for anything else."""
    return python.FUNCTIONS[callee] if python.is_python_draw(callee) else None


def twin(name: str) -> Callable[..., Any]:
    """A function of ``random`` that draws where the thread at work is."""

    def drawn(*args: Any, **kwargs: Any) -> Any:
        source = SOURCE.get()
        assert type(source) is Thread
        return python.drawn_by(name, source)(*args, **kwargs)

    drawn.__name__ = drawn.__qualname__ = f"random.{name}"
    return drawn


def check_generator(context: Context, effect: str, kwargs: dict[str, Cell]) -> None:
    """Refuse a draw that names a generator."""
    cell = kwargs.get("generator")
    if cell is not None and effect in DRAWING:
        value = read(cell)
        refuse_generator(value.obj if type(value) is Uniform else value, context.span)


def for_one(called: Any, kwargs: dict[str, Any], span: Span) -> Any:
    """What the call of a callable runs for one thread that draws from its own words."""
    if python.is_python_draw(called):
        return twin(python.FUNCTIONS[called])
    owner = own_attribute(called, "__self__")
    if "generator" in kwargs and (isinstance(owner, Tensor) or effect_of(called) in DRAWING):
        refuse_generator(kwargs["generator"], span)
    return called


def row_by_row(made: Made, alike: bool, *args: Any, **kwargs: Any) -> Any:
    """What a ``vmap`` gives one thread: each of its inner rows draws from words of its own, if any.

    ``alike``: all draw what the first one does.

    torch's maps its arguments themselves, ours copies. What does not fit is told by ``torch.vmap``.
    """
    options = made.transform.options()
    leaves, spec = structure.flattened(args)
    dims = structure.spread(options["in_dims"], spec) or []
    n = size_of(leaves, dims)
    if not n:
        return made.result(*args, **kwargs)
    shares = made.transform.make in TORCH

    def row_of(leaf: Any, dim: int | None, row: int) -> Any:
        if dim is None:
            return leaf
        return leaf.select(dim, row) if shares else leaf.select(dim, row).clone()

    def arguments(row: int) -> Any:
        own = [row_of(leaf, dim, row) for leaf, dim in zip(leaves, dims, strict=True)]
        return structure.unflattened(own, spec)

    rows = run(lambda given: made.function(*given, **kwargs), map(arguments, range(n)), alike)
    device = next(leaf.device for leaf, dim in zip(leaves, dims, strict=True) if dim is not None)
    whole = stacked_rows(rows, device, Part())
    name = shown_name(made.function)
    return plain(moved(whole, options["out_dims"], name, lambda: list(map(same_object, rows))))


def size_of(leaves: list[Any], dims: list[Any]) -> int | None:
    """How many inner rows there are; None where some leaf cannot be mapped, or sizes differ."""
    mapped = [(leaf, dim) for leaf, dim in zip(leaves, dims, strict=False) if dim is not None]
    if not all(
        isinstance(leaf, Tensor) and type(dim) is int and -leaf.dim() <= dim < leaf.dim()
        for leaf, dim in mapped
    ):
        return None
    sizes = {leaf.shape[dim] for leaf, dim in mapped}
    return sizes.pop() if len(sizes) == 1 else None
