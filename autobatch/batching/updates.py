"""Writes to tensors that existed before the call, as contributions of the group's threads.

In: a write in place, ``out=``, or an assignment to an attribute, with the cells of its operands.
What can be reduced over the threads is noted, to be applied when the call is over; anything else
is refused. Errors of torch's own, about shapes and dtypes, are found on tensors without data.

``PLACE`` is a cell's value that stands for ``x[i]`` within ``x[i] += v``, ``UPDATE`` one for
``max(x, v)`` within ``x = max(x, v)``: nothing is read (``passes.updates`` says which these are).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.batching import lookup, refusals, torch_ops
from autobatch.batching.compacting import compact
from autobatch.batching.compat import within_level
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.contributions import Contribution, Rule, Target
from autobatch.batching.rows import from_rows
from autobatch.batching.trace import Untraceable
from autobatch.batching.trees import NotATree, tree_of, weak
from autobatch.errors import AutobatchError
from autobatch.vm import heap
from autobatch.vm.values import (
    PLACE,
    UPDATE,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    read,
    uniform,
)

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
ASSIGN = ("fill_", "zero_", "copy_", "ones_", "zeros_", "constant_")
REDUCE: dict[str, Rule] = {
    "sum": "sum",
    "prod": "prod",
    "amax": "amax",
    "amin": "amin",
}
"""The reductions of ``scatter_reduce_``."""


@dataclass(frozen=True, slots=True, eq=False)
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
    name = getattr(function, "__name__", "").strip("_")
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


# Writes in place.


def write(context: Context, function: Function, args: list[Cell], kwargs: dict[str, Cell]) -> None:
    """``function`` writes its first operand, a tensor that all threads share."""
    tensor = shared_tensor(args[0])
    assert tensor is not None
    name = getattr(function, "__name__", "")
    if name in ASSIGN:
        copied(context, tensor, function, args[1:], kwargs)
    elif function in (operator.setitem, Tensor.__setitem__):
        set_item(context, tensor, args[1], args[2])
    elif bare(function) in IN_PLACE:
        operand = scaled(context, args[1:], dict(kwargs))
        refuse_leaf(tensor)
        check(tensor, tensor.shape, function, operand)
        merge(context, Target(tensor), function, operand)
    elif name in AT:
        AT[name](context, tensor, function, args[1:], kwargs)
    else:
        raise refusals.written(context.span, "a tensor", refusals.OF_TENSORS)


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

    begin(context, target.tensor, RULES[name])
    row_by_row(context, note, [operand])


def begin(context: Context, tensor: Tensor, rule: Rule) -> None:
    """What comes before a contribution: no thread has failed, no other rule is at work."""
    if context.forecasts is not None:
        raise Untraceable("it writes to what all threads share")
    given = context.contributions
    if given is None or given.barred or within_level():
        raise refusals.written(context.span, "a tensor", refusals.OUT_OF_DERIVATIVES)
    context.flush()
    if context.guard is not None:
        context.guard(False)
    compact(given)
    known = given.of(tensor)
    if known is not None and known.rule != rule:
        raise refusals.two_ways(context.span, rule, known)


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
            own = [alone(part, cell) for cell in heap.select(cells, np.array([row]))]
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
    if sample is None:
        return
    try:
        function(torch.empty(shape, dtype=tensor.dtype, device="meta"), sample)
    except Exception:  # in other words than a tensor with data
        given = torch.zeros_like(sample, device="cpu") if isinstance(sample, Tensor) else sample
        function(torch.zeros(shape, dtype=tensor.dtype), given)
        raise


LEAF = "{} that requires grad is being used in an in-place operation."


def refuse_leaf(tensor: Tensor) -> None:
    """What torch says to a write in place to what a gradient is wanted of."""
    if not (torch.is_grad_enabled() and tensor.requires_grad):
        return
    if tensor.is_leaf:
        raise RuntimeError(LEAF.format("a leaf Variable"))
    if tensor._base is not None and tensor._base.is_leaf:
        raise RuntimeError(LEAF.format("a view of a leaf Variable"))


def sample_of(cell: Cell) -> Any:
    """One thread's operand without its data; None where threads have different ones."""
    value = read(cell)
    if type(value) is Column and value.tag != "tensor":
        return {"bool": True, "int": 1, "float": 1.0}[value.tag]
    if type(value) is Column:
        return torch.empty(value.event_shape, dtype=value.table.dtype, device="meta")
    obj = getattr(value, "obj", None)
    if isinstance(obj, Tensor):
        return torch.empty(obj.shape, dtype=obj.dtype, device="meta")
    return obj


# Single elements.


def places_of(context: Context, tensor: Tensor, find: Callable[[Cell], Cell]) -> Cell:
    """The positions in a flattened tensor that ``find`` finds for each thread."""
    ids = torch.arange(tensor.numel(), device=tensor.device).reshape(tensor.shape)
    found = find(uniform(ids))
    context.flush()
    return found


def picked(context: Context, tensor: Tensor, function: Function, dim: Cell, index: Cell) -> Cell:
    """The positions of what ``function(tensor, dim, index)`` picks."""
    return places_of(
        context,
        tensor,
        lambda ids: torch_ops.apply(context, function, [ids, dim, index], {}, False),
    )


def merge_at(
    context: Context,
    tensor: Tensor,
    function: Function,
    rule: Rule,
    cells: tuple[Cell, Cell],
    distinct: bool,
) -> None:
    """Note ``function`` of elements at some places and of what each thread has for them."""

    refuse_leaf(tensor)

    def note(context: Context, places: Cell, operand: Cell) -> None:
        positions = rows_of(context, places, NUMBERS)
        check(tensor, positions.shape[1:], function, operand)
        rows = rows_of(context, operand, tensor)
        event = rows.shape[1:]
        rows = rows.reshape(context.k, *(1,) * (positions.dim() - 1 - len(event)), *event)
        rows = rows.expand(positions.shape).reshape(context.k, -1)
        if bare(function) in NEGATIVE:
            rows = -rows
        flat = positions.reshape(context.k, -1)
        add(context, Contribution(Target(tensor), rule, rows, context.threads, flat, distinct))

    row_by_row(context, note, list(cells))


NUMBERS = torch.empty((), dtype=torch.int64, device="meta")


def merge_item(context: Context, function: Function, left: Cell, right: Cell) -> Cell:
    """``x[i] += v`` up to the assignment, which is then none."""
    place: Any = left.value
    tensor, index = place.static, place.cells[0]
    rule = RULES[bare(function)]
    begin(context, tensor, rule)
    places = places_of(context, tensor, lambda ids: lookup.getitem(context, ids, index))
    merge_at(context, tensor, function, rule, (places, right), distinct=True)
    return left


def index_add(
    context: Context,
    tensor: Tensor,
    function: Function,
    args: list[Cell],
    kwargs: dict[str, Cell],
) -> None:
    """``x.index_add_(dim, index, source, alpha=1)``."""
    named = dict(kwargs)
    dim, index = taken(context, args, named, "dim", "index")
    source = scaled(context, args[2:], named, "source")
    begin(context, tensor, "sum")
    places = picked(context, tensor, torch.index_select, dim, index)
    merge_at(context, tensor, Tensor.add_, "sum", (places, source), distinct=False)


def index_put(
    context: Context,
    tensor: Tensor,
    function: Function,
    args: list[Cell],
    kwargs: dict[str, Cell],
) -> None:
    """``x.index_put_(indices, values, accumulate=True)``."""
    named = dict(kwargs)
    index, values = taken(context, args, named, "indices", "values")
    accumulate = [*args[2:], *named.values()]
    if [getattr(read(cell), "obj", None) for cell in accumulate] != [True]:
        raise refusals.written(context.span, "a tensor", refusals.OF_TENSORS)
    begin(context, tensor, "sum")
    parts = read(index)
    if type(parts) is Container:
        index = Cell(Container(tuple, list(parts.children())))
    places = places_of(context, tensor, lambda ids: lookup.getitem(context, ids, index))
    merge_at(context, tensor, Tensor.add_, "sum", (places, values), distinct=False)


def scatter(
    context: Context,
    tensor: Tensor,
    function: Function,
    args: list[Cell],
    kwargs: dict[str, Cell],
) -> None:
    """``x.scatter_add_(dim, index, src)`` and ``x.scatter_reduce_(dim, index, src, reduce)``."""
    named = dict(kwargs)
    dim, index, src = taken(context, args, named, "dim", "index", "src")
    rest = [*args[3:], *(named.pop(name) for name in ("reduce",) if name in named)]
    given = [getattr(read(cell), "obj", None) for cell in rest]
    rule = REDUCE.get(str(given[0])) if given else "sum"
    own = named.pop("include_self", None)
    if rule is None or named or len(given) > 1 or (own is not None and own.value.obj is not True):  # type: ignore[union-attr]
        raise refusals.written(context.span, "a tensor", refusals.OF_TENSORS)
    begin(context, tensor, rule)
    places = picked(context, tensor, torch.gather, dim, index)
    shape = read(places)
    if type(shape) in (Column, Uniform) and type(read(src)) in (Column, Uniform):
        wanted = shape.event_shape if type(shape) is Column else shape.obj.shape  # type: ignore[union-attr]
        cut = Cell(Container(tuple, [uniform(slice(0, size)) for size in wanted]))
        src = torch_ops.apply(context, operator.getitem, [src, cut], {}, False)
    merge_at(context, tensor, Tensor.add_, rule, (places, src), distinct=False)


def taken(
    context: Context, args: list[Cell], kwargs: dict[str, Cell], *names: str
) -> tuple[Cell, ...]:
    """Arguments by position or by name."""
    found = [*args[: len(names)], *(kwargs.pop(n) for n in names[len(args) :] if n in kwargs)]
    if len(found) < len(names):
        raise refusals.written(context.span, "a tensor", refusals.OF_TENSORS)
    return tuple(found)


AT: dict[str, Callable[..., None]] = {
    "index_add_": index_add,
    "index_put_": index_put,
    "scatter_add_": scatter,
    "scatter_reduce_": scatter,
}
"""Methods that write single elements."""


# Assignments.


def copied(
    context: Context,
    tensor: Tensor,
    function: Function,
    args: list[Cell],
    kwargs: dict[str, Cell],
) -> None:
    """``x.copy_(v)`` and the like: an update of ``x``, or what all threads assign."""
    if len(args) == 1 and is_marked(args[0], UPDATE):
        held: Any = args[0].value
        found: Merge = held.static
        if Target(found.tensor).key == Target(tensor).key and lasts(found, held.cells[0]):
            refuse_leaf(tensor)
            check(tensor, tensor.shape, found.function, held.cells[0])
            merge(context, Target(tensor), found.function, held.cells[0])
            return
        args = [resolved(context, args[0])]
    begin(context, tensor, "assign")
    made, named = same_for_all(context, args, kwargs)
    if getattr(function, "__module__", None) == torch.nn.init.__name__:
        with torch.no_grad():
            assign(context, tensor, lambda staged: function(staged, *made, **named))
    else:
        assign(context, tensor, lambda staged: function(staged, *made, **named))


def assign(
    context: Context,
    tensor: Tensor,
    write: Callable[[Tensor], Any],
    where: Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Note that all threads write the same; ``where`` picks the elements, of all by default."""
    refuse_leaf(tensor)
    staged = tensor.clone() if torch.is_grad_enabled() else tensor.detach().clone()
    write(staged)
    positions = None
    if where is not None:
        ids = torch.arange(tensor.numel(), device=tensor.device).reshape(tensor.shape)
        positions = where(ids).reshape(-1)
        staged = staged.reshape(-1)[positions]
    add(context, Contribution(Target(tensor), "assign", staged, context.threads, positions))


def lasts(found: Merge, operand: Cell) -> bool:
    """Whether ``x.copy_(x + v)`` rounds nothing that ``v`` adds: then its order does not matter."""
    sample = sample_of(operand)
    if RULES[found.name] in ("amin", "amax"):
        return True
    like = torch.empty(found.tensor.shape, dtype=found.tensor.dtype, device="meta")
    return sample is not None and torch.can_cast(torch.result_type(like, sample), like.dtype)


def set_item(context: Context, tensor: Tensor, index: Cell, item: Cell) -> None:
    """``x[i] = v``; nothing where ``v`` is what has just been updated in place."""
    if is_marked(item, PLACE) and item.value.static is tensor:  # type: ignore[union-attr]
        return
    own = shared_tensor(item)
    if own is not None and type(read(index)) is not Column:
        (where,), _ = same_for_all(context, [index], {})
        if Target(tensor[where]).key == Target(own).key:
            return
    begin(context, tensor, "assign")
    (where, value), _ = same_for_all(context, [index, resolved(context, item)], {})
    assign(
        context,
        tensor,
        lambda staged: staged.__setitem__(where, value),
        lambda ids: ids[where],
    )


def same_for_all(
    context: Context, args: list[Cell], kwargs: dict[str, Cell]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Operands that are the same for all threads; refused where one is not."""
    cells = [*args, *kwargs.values()]
    if {Column, Objects} & torch_ops.kinds_of(cells):
        raise refusals.own_value(context.span)
    try:
        made = tuple(tree_of(arg, None) for arg in args)
        return made, {name: tree_of(arg, None) for name, arg in kwargs.items()}
    except NotATree:
        raise refusals.own_value(context.span) from None


def write_out(
    context: Context, function: Function, args: list[Cell], kwargs: dict[str, Cell]
) -> bool:
    """``function(..., out=x)`` of a tensor that all threads share; False where it is none."""
    tensor = shared_tensor(kwargs["out"])
    if tensor is None:
        return False
    rest = {name: cell for name, cell in kwargs.items() if name != "out"}
    operand = other_operand(tensor, function, args)
    if operand is not None and set(rest) <= {"alpha"}:
        operand = scaled(context, [operand], rest)
        refuse_gradients(tensor, operand)
        check(tensor, tensor.shape, into_itself(function), operand)
        merge(context, Target(tensor), function, operand)
        return True
    begin(context, tensor, "assign")
    made, named = same_for_all(context, args, rest)
    assign(context, tensor, lambda staged: function(*made, out=staged, **named))
    return True


def other_operand(tensor: Tensor, function: Function, args: list[Cell]) -> Cell | None:
    """What a tensor is merged with, if a function merges two operands and it is one of them."""
    if bare(function) not in RULES or len(args) != 2:
        return None
    key = Target(tensor).key
    for own, other in (args, args[::-1]):
        found = shared_tensor(own)
        if found is not None and Target(found).key == key:
            return None if own is args[1] and bare(function) in NEGATIVE else other
    return None


def into_itself(function: Function) -> Function:
    def called(like: Tensor, sample: Any) -> Any:
        return function(like, sample, out=like)

    return called


def refuse_gradients(tensor: Tensor, operand: Cell) -> None:
    """What torch says to ``out=`` where a gradient is wanted."""
    value = read(operand)
    own = value.table if type(value) is Column else getattr(value, "obj", None)
    wanted = tensor.requires_grad or (isinstance(own, Tensor) and own.requires_grad)
    if wanted and torch.is_grad_enabled():
        raise RuntimeError(
            "functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad."
        )


# Attributes.


def rebind(context: Context, owner: Any, name: str, item: Cell) -> bool:
    """``x.name = v`` where the attribute is a tensor that all threads share; False if it is none.

    Nothing where ``v`` is that very tensor, which has just been updated in place.
    """
    current = held_tensor(owner, name)
    if current is None:
        return False
    if is_marked(item, UPDATE):
        held: Any = item.value
        found: Merge = held.static
        if found.tensor is current:
            refuse_parameter(owner, name, current.detach())
            check(current, current.shape, found.function, held.cells[0])
            merge(context, Target(current, owner, name), found.function, held.cells[0])
            return True
        item = resolved(context, item)
    value = read(item)
    if type(value) is Uniform and value.obj is current:
        return True
    if isinstance(owner, Tensor):
        own = shared_tensor(item)
        return own is not None and Target(own).key == Target(current).key
    begin(context, current, "assign")
    if type(value) is not Uniform or not isinstance(value.obj, Tensor):
        raise refusals.own_value(context.span)
    refuse_parameter(owner, name, value.obj)
    target = Target(current, owner, name)
    add(context, Contribution(target, "assign", value.obj, context.threads))
    return True


def held_tensor(owner: Any, name: str) -> Tensor | None:
    """The tensor that an attribute of an object plainly holds, or a tensor's data."""
    kind = type(owner)
    if isinstance(owner, Tensor) and name == "data":
        return owner.data
    plain: tuple[Any, ...] = (object.__setattr__, torch.nn.Module.__setattr__)
    if kind.__setattr__ not in plain or hasattr(kind, name) or isinstance(owner, Tensor):
        return None
    tables = [getattr(owner, "__dict__", {})]
    if isinstance(owner, torch.nn.Module):
        tables += [owner._buffers, owner._parameters]
    found = next((table[name] for table in tables if name in table), None)
    return found if isinstance(found, Tensor) else None


def refuse_parameter(owner: Any, name: str, new: Tensor) -> None:
    """What torch says to a parameter that is to become any other tensor."""
    parameters = getattr(owner, "_parameters", {}) if isinstance(owner, torch.nn.Module) else {}
    if name in parameters and not isinstance(new, torch.nn.Parameter):
        raise TypeError(
            f"cannot assign '{torch.typename(new)}' as parameter '{name}' "
            "(torch.nn.Parameter or None expected)"
        )
