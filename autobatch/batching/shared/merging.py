"""What the threads give to a tensor that existed before the call, noted as contributions.

In: the tensor, the operation that merges a value into it, and the value's cell. Out: a contribution
of the group's threads, or what torch says to one example's shapes and dtypes, found on tensors
without data.

``UPDATE`` is a cell's value that stands for ``max(x, v)`` within ``x = max(x, v)``: nothing is read
(``passes.updates`` says which these are).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.context import Context, RowsFail
from autobatch.batching.contributions import Contribution, Rule, Target
from autobatch.batching.host.from_rows import from_rows
from autobatch.batching.shared import refusals
from autobatch.batching.shared.compacting import compact
from autobatch.batching.tensors import torch_ops
from autobatch.batching.trace import Untraceable
from autobatch.batching.trees import weak
from autobatch.compat import within_level
from autobatch.errors import AutobatchError
from autobatch.structure import own_attribute
from autobatch.values.cells import UPDATE, Cell, Column, Container, Objects, Uniform, read, uniform
from autobatch.values.heap import selecting

Function = Callable[..., Any]
RULES: dict[str, Rule] = {
    "add": "sum",
    "sub": "sum",
    "subtract": "sum",
    "mul": "prod",
    "multiply": "prod",
    "maximum": "amax",
    "minimum": "amin",
    "max": "amax",
    "min": "amin",
}
"""How what the threads give is reduced, by the name of the operation."""
NEGATIVE = ("sub", "subtract")
IN_PLACE = ("add", "sub", "subtract", "mul", "multiply")
REDUCE: dict[str, Rule] = {
    "sum": "sum",
    "prod": "prod",
    "amax": "amax",
    "amin": "amin",
}
"""The reductions of ``scatter_reduce_``."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Merge:
    """``function`` of a shared ``tensor`` and of a value, in this order unless ``swapped``."""

    function: Function
    tensor: Tensor
    swapped: bool = False

    @property
    def name(self) -> str:
        return bare(self.function)

    def operands(self, value: Any) -> tuple[Any, Any]:
        return (value, self.tensor) if self.swapped else (self.tensor, value)


def bare(function: Function) -> str:
    """``add`` for ``add_``, ``__add__``, ``iadd``, ``__iadd__``."""
    name: str = own_attribute(function, "__name__", "").strip("_")
    return name[1:] if name[:1] == "i" and name[1:] in IN_PLACE else name


def shared_tensor(cell: Cell) -> Tensor | None:
    """The tensor from before the call that all threads have in a cell, if they do."""
    value = read(cell)
    if type(value) is Uniform and value.shared and isinstance(value.obj, Tensor):
        return value.obj
    return None


def is_marked(cell: Cell, mark: Any) -> bool:
    return type(cell.value) is Container and cell.value.type is mark


def resolved(context: Context, cell: Cell) -> Cell:
    """What an update gives, where it is not written back to what it was made of."""
    value = cell.value
    if type(value) is not Container or value.type is not UPDATE:
        return cell
    merge: Merge = value.static
    operands = list(merge.operands(value.cells[0]))
    cells = [part if isinstance(part, Cell) else uniform(part, shared=True) for part in operands]
    return torch_ops.apply(context, merge.function, cells, {}, False)


def scaled(context: Context, args: list[Cell], kwargs: dict[str, Cell], at: str = "other") -> Cell:
    """The operand of ``add_`` and the like, multiplied with ``alpha``, if any."""
    alpha = kwargs.pop("alpha", None)
    given = [*args, *(kwargs.pop(name) for name in (at,) if name in kwargs)]
    if len(given) != 1 or kwargs:
        raise refusals.written(context.span, "a tensor", refusals.OF_TENSORS)
    if alpha is None:
        return given[0]
    return torch_ops.apply(context, operator.mul, [given[0], alpha], {}, False)


def merge(context: Context, target: Target, function: Function, operand: Cell) -> None:
    """Note ``function`` of a tensor and of what each thread has."""
    name = bare(function)

    def note(context: Context, operand: Cell) -> None:
        rows = rows_of(context, operand, target.tensor)
        if name in NEGATIVE:
            rows = -rows
        add(context, Contribution(target, RULES[name], rows, context.threads))

    begin(context, target, RULES[name])
    row_by_row(context, note, [operand])


def begin(context: Context, target: Target, rule: Rule) -> None:
    """What comes before a contribution: no thread has failed, no other way is at work."""
    if context.forecasts is not None:
        raise Untraceable("it writes to what all threads share")
    given = context.contributions
    if given is None or given.barred or within_level():
        raise refusals.written(context.span, "a tensor", refusals.OUT_OF_DERIVATIVES)
    context.flush()
    if context.guard is not None:
        context.guard(False)
    compact(given)
    known = given.of(target.tensor)
    if known is not None and (known.rule != rule or known.anew != target.is_anew):
        raise refusals.two_ways(context.span, rule, target.is_anew, known)


def add(context: Context, contribution: Contribution) -> None:
    assert context.contributions is not None
    grad = torch.is_grad_enabled()
    rows = contribution.rows
    if isinstance(rows, Tensor) and not grad:
        rows = rows.detach()
    context.contributions.note(
        Contribution(
            contribution.target,
            contribution.rule,
            rows,
            contribution.threads,
            contribution.positions,
            contribution.distinct,
            grad,
            context.span,
        )
    )


def row_by_row(context: Context, note: Callable[..., None], cells: list[Cell]) -> None:
    """Note something; row by row where threads have objects that do not stack."""
    if not any(type(read(cell)) is Objects for cell in cells):
        note(context, *cells)
        return
    given = context.contributions
    assert given is not None
    before = len(given.noted)
    given.held += 1
    try:
        for row in context.order():
            part = context.restricted([row])
            own = [alone(part, cell) for cell in selecting.select(cells, np.array([row]))]
            note(part, *own)
    except AutobatchError:
        raise
    except Exception as error:
        given.take_back(before)
        found = error.error if isinstance(error, RowsFail) else error
        raise RowsFail(row, found) from error
    finally:
        given.held -= 1


def alone(context: Context, cell: Cell) -> Cell:
    value = read(cell)
    return from_rows(context, value.items) if type(value) is Objects else cell


def rows_of(context: Context, cell: Cell, tensor: Tensor) -> Tensor:
    """What each thread has, ``[k, *E]``; numbers in the dtype that they take beside a tensor."""
    value = read(cell)
    if type(value) is Column:
        return value.data if value.tag == "tensor" else weak(value, tensor.dtype)
    if type(value) is Uniform and isinstance(value.obj, Tensor):
        return value.obj.expand(context.k, *value.obj.shape)
    if type(value) is Uniform and type(value.obj) in (bool, int, float):
        like = torch.empty((1,), dtype=tensor.dtype, device="meta")
        dtype = torch.result_type(like, value.obj)
        return torch.tensor(value.obj, dtype=dtype, device=tensor.device).expand(context.k)
    raise refusals.written(context.span, "a tensor", refusals.OF_TENSORS)


# What torch would say.


def check(tensor: Tensor, shape: torch.Size, function: Function, operand: Cell) -> None:
    """Raise what torch raises for one example's shapes and dtypes, found without data."""
    sample = sample_of(operand)
    if isinstance(sample, Sample):
        accept_tensor(function, tensor.dtype, shape, sample)
    elif type(sample) in (bool, int, float):
        accept_number(function, tensor.dtype, shape, sample)
    elif sample is not None:
        tried(function, tensor.dtype, shape, sample, sample)


@lru_cache(256)
def accept_tensor(
    function: Function, dtype: torch.dtype, shape: torch.Size, sample: Sample
) -> None:
    """The same for a tensor: once for each signature, as the next round of a loop has it again."""
    tried(
        function, dtype, shape, sample.without_data(), torch.zeros(sample.shape, dtype=sample.dtype)
    )


@lru_cache(256, typed=True)
def accept_number(function: Function, dtype: torch.dtype, shape: torch.Size, number: float) -> None:
    tried(function, dtype, shape, number, number)


def tried(
    function: Function, dtype: torch.dtype, shape: torch.Size, sample: Any, zeros: Any
) -> None:
    try:
        function(torch.empty(shape, dtype=dtype, device="meta"), sample)
        return
    except Exception as error:
        failed = error
    function(torch.zeros(shape, dtype=dtype), zeros)  # in other words, where a tensor has data
    raise failed


LEAF = "{} that requires grad is being used in an in-place operation."


def refuse_leaf(tensor: Tensor) -> None:
    """What torch says to a write in place to what a gradient is wanted of."""
    if not (torch.is_grad_enabled() and tensor.requires_grad):
        return
    if tensor.is_leaf:
        raise RuntimeError(LEAF.format("a leaf Variable"))
    if tensor._base is not None and tensor._base.is_leaf:
        raise RuntimeError(LEAF.format("a view of a leaf Variable"))


@dataclass(frozen=True, slots=True)
class Sample:
    """One example's tensor, but for its data."""

    dtype: torch.dtype
    shape: torch.Size

    def without_data(self) -> Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device="meta")


def sample_of(cell: Cell) -> Any:
    """One thread's operand without its data; None where threads have different ones."""
    value = read(cell)
    if type(value) is Column and value.tag != "tensor":
        return {"bool": True, "int": 1, "float": 1.0}[value.tag]
    if type(value) is Column:
        return Sample(value.table.dtype, value.event_shape)
    obj = getattr(value, "obj", None)
    if isinstance(obj, Tensor):
        return Sample(obj.dtype, obj.shape)
    return obj
