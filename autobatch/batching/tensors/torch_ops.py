"""torch's functions on cells: once for uniform operands, one batched operation for columns.

Draws give each thread a row of its own. Functions that write in place give a new value to the
cell of their first operand. Objects that hold tensors run one batched operation per signature
among their rows. What has no batched form runs thread by thread.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from autobatch.batching import converters
from autobatch.batching.applying import example, vmapped
from autobatch.batching.applying.guarding import ended_once, watched_once
from autobatch.batching.applying.lying import as_one_example
from autobatch.batching.applying.predicates import predicate
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.foreign import memories_of, memory_of
from autobatch.batching.host.rower import Rower
from autobatch.batching.kinds import is_tensor
from autobatch.batching.levels import (
    Batched,
    DrawError,
    ExampleError,
    NoRule,
    event_dim,
    leaves_of,
    map_tree,
)
from autobatch.batching.refused_draws import draw_message, looking
from autobatch.batching.tensors import bounded_draws, unheld, unlike
from autobatch.batching.tensors.aliases import by_thread
from autobatch.batching.tensors.joining import is_rounded_once, joined
from autobatch.batching.tensors.number_operands import Answer, answer, subtracts_bools
from autobatch.batching.tensors.views import recorded
from autobatch.batching.trees import NotATree, cell_of, contents, is_plain, tree_of
from autobatch.compat import any_autocast
from autobatch.errors import ConverterError
from autobatch.presence.record import record_at_work
from autobatch.random.drawing import direct, drawing, serving
from autobatch.random.paths import Drew
from autobatch.structure import own_attribute
from autobatch.values.cells import Cell, Column, Objects, Uniform, are_inside, read
from autobatch.values.heap import selecting

Function = Callable[..., Any]
OWN_NUMBER = "a number of its own in each thread"
DRAWN_APART = "its threads have drawn differently before, and are to draw the same"
OF_NUMBERS = "numbers of Python's among its operands"
NO_TENSOR = "an operand is no tensor or number"


def apply(
    context: Context, function: Function, args: list[Cell], kwargs: dict[str, Cell], draws: bool
) -> Cell:
    """A pure torch function, or one that draws, on cells."""
    cells = [*args, *kwargs.values()]
    kinds = kinds_of(cells)
    expected: Answer | None = None
    has_own = Column in kinds and not draws and context.k > 0 and has_numbers(cells)
    if has_own:
        expected = answer(function, args, kwargs)
        if expected is not None and expected.error is not None:
            error = TypeError(*expected.error.args)
            raise RowsFail(context.lowest(), error) from error
        if (refused := subtracts_bools(function, args)) is not None:
            raise RowsFail(context.lowest(), refused) from refused
        if isinstance(function, nn.Module):
            return by_thread(context, function, args, kwargs, OF_NUMBERS)
        if is_rounded_once(function, cells, kwargs):
            return rounded_once(context, function, args)
        if (expected is not None and expected.leaves is None) or is_users(function):
            return unlike.apply(context, function, args, kwargs, apply, OF_NUMBERS)
    if Objects in kinds:
        return unlike.apply(context, function, args, kwargs, apply)
    try:
        numbers_join = Column in kinds and function is not operator.getitem
        like = joined(function, cells, kwargs) if numbers_join else None
        made = tuple(tree_of(arg, like) for arg in args)
        named = {name: tree_of(arg, like) for name, arg in kwargs.items()}
    except NotATree:
        return drawn_apart(context, function, args, kwargs, draws, NO_TENSOR)
    if Column not in kinds and not draws:
        out = same_for_all(context, function, made, named)
        if out is DREW:
            return apply(context, function, args, kwargs, True)
        result = recorded(function, args, kwargs, out, cell_of(out))
        if isinstance(out, np.ndarray):
            return shown(out, result, cells)
        held = [leaf.obj for leaf in leaf_values(cells) if is_outside_object(leaf)]
        return marked_shared(result, held) if held else result
    if draws and context.randomness == "error" and Column not in kinds:
        raise DrawError(draw_message(function))
    if draws and Column not in kinds and context.randomness != "same" and is_recurrent(function):
        return by_thread(context, function, args, kwargs, "it draws, for operands that all share")
    answers = predicate(function, made, named, context.k)
    if answers is not None:
        context.counter.launch()
        return Cell(Column(answers, "bool"))
    alike = context.services.alike if draws else None
    if alike is not None and not alike.are_together(context.threads):
        return by_thread(context, function, args, kwargs, DRAWN_APART)
    together = nullcontext() if alike is None else alike.drawing(context.threads)
    try:
        with serving(context.source()), together:
            out = batched(context, function, made, named, args)
    except ConverterError as error:
        told = replace(error.diagnostic, span=context.span, label="converted here")
        raise ConverterError(told) from error.__cause__
    except NoRule as refusal:
        if not context.k and (none := without_threads(context, function, made, named)):
            return none
        if has_numbers(cells) and not draws:
            return unlike.apply(context, function, args, kwargs, apply, str(refusal))
        return drawn_apart(context, function, args, kwargs, draws, str(refusal))
    except ExampleError as failure:
        if not context.k and (none := without_threads(context, function, made, named)):
            return none
        if has_numbers(cells):
            return unlike.apply(context, function, args, kwargs, apply, OWN_NUMBER)
        raise RowsFail(context.lowest(), failure.original) from failure.original
    context.counter.launch()
    if not draws:
        out = as_one_example(function, made, named, out)
    if expected is not None and not any_autocast() and not expected.fits(out):
        return unlike.apply(context, function, args, kwargs, apply, OF_NUMBERS)
    if has_own and function in unheld.CONVERTING:
        unheld.note(context, function, args, kwargs)
    return recorded(function, args, kwargs, out, cell_of(out))


def is_users(function: Function) -> bool:
    """Whether it is one operation by a mark, without a rule, and may tell numbers from tensors."""
    is_marked = own_attribute(function, "__autobatch__") == "torch"
    return is_marked and converters.find(function) is None


def rounded_once(context: Context, function: Function, args: list[Cell]) -> Cell:
    """Of numbers and float16: in float32, then rounded, as torch's kernels do."""
    wide = [
        apply(context, Tensor.float, [arg], {}, False) if is_tensor(read(arg)) else arg
        for arg in args
    ]
    return apply(context, Tensor.half, [apply(context, function, wide, {}, False)], {}, False)


def drawn_apart(
    context: Context,
    function: Function,
    args: list[Cell],
    kwargs: dict[str, Cell],
    draws: bool,
    why: str,
) -> Cell:
    """Thread by thread, where a draw is seen though the function need not make one."""
    is_refused = draws and context.randomness == "error"
    with looking(function) if is_refused else nullcontext():
        return by_thread(context, function, args, kwargs, why)


def is_recurrent(function: Function) -> bool:
    """Whether torch's vmap lets it draw once where nothing that it gets is mapped."""
    return isinstance(function, nn.Module) and any(
        isinstance(part, nn.RNNBase) for part in function.modules()
    )


DREW = object()
"""Instead of a result: the function draws, so each thread has one of its own."""


def same_for_all(
    context: Context, function: Function, made: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """What a function gives for operands that all threads share, once."""
    record, given = record_at_work(), made
    if record is not None:
        made = watched_once(record, function, made, named)
    try:
        with nullcontext() if context.paths is None else drawing(None):
            out = function(*made, **named)
    except Drew:
        return DREW
    return out if made is given else ended_once(out)


def batched(
    context: Context,
    function: Function,
    made: tuple[Any, ...],
    named: dict[str, Any],
    args: list[Cell],
) -> Any:
    if function is operator.getitem:
        known = is_inside(args[1], made[0])
        out, failed = vmapped.getitem_checked(made[0], made[1], context.k, known)
        if failed is not None:
            snapshot = [Cell(read(arg)) for arg in args]
            inside = index_into(args[1], size_of(made[0]))
            context.check(failed, lambda row: one_row(context, function, snapshot, row), inside)
        return out
    drawn = direct(function, made, named)
    if drawn is None and function is torch.randint:
        drawn = bounded_draws.randint(context, made, named)
    if drawn is not None:
        return Batched(drawn)
    return vmapped.apply(function, made, named, context.k, randomness=context.randomness)


def is_inside(index: Cell, x: Any) -> bool:
    """Whether an index is one int of which it is known that it is in range of ``x``."""
    found = index_into(index, size_of(x))
    return found is not None and are_inside(found[0].bounds, found[1])


def size_of(x: Any) -> int | None:
    """How many parts of a thread's tensor an int picks one of."""
    if not isinstance(x, Batched | Tensor) or event_dim(x) == 0:
        return None
    return x.data.shape[1 if type(x) is Batched else 0]


def index_into(index: Cell, size: int | None) -> tuple[Column, int] | None:
    """An index that is one int of each thread's, and what it is into."""
    value = read(index)
    if type(value) is not Column or value.tag != "int" or size is None:
        return None
    return value, size


def without_threads(
    context: Context, function: Function, made: tuple[Any, ...], named: dict[str, Any]
) -> Cell | None:
    """The result for no threads where torch's rules fail for them: of the shape of one example's.

    None where that depends on data.
    """
    try:
        one = example.without_data(function, made, named)
    except Exception:
        return None
    leaves = leaves_of(one)
    if not leaves or not all(isinstance(leaf, Tensor) for leaf in leaves):
        return None
    return cell_of(map_tree(lambda leaf: no_rows(context, leaf), one))


def no_rows(context: Context, leaf: Tensor) -> Batched:
    """A leaf that has no data may be on no device either."""
    device = context.device if leaf.is_meta else leaf.device
    return Batched(torch.empty((0, *leaf.shape), dtype=leaf.dtype, device=device))


def one_row(context: Context, function: Function, args: list[Cell], row: int) -> Any:
    """What the plain function gives, or raises, for the thread at ``row``."""
    rower = Rower(context.restricted([row]))
    cells = selecting.select(args, np.array([row]))
    return function(*[rower.rows(cell)[0] for cell in cells])


def kinds_of(cells: list[Cell]) -> set[type]:
    kinds: set[type] = set()
    contents(cells, lambda value: kinds.add(type(value)))
    return kinds


def leaf_values(cells: list[Cell]) -> list[Any]:
    found: list[Any] = []
    contents(cells, found.append)
    return found


def has_numbers(cells: list[Cell]) -> bool:
    return any(type(v) is Column and v.tag != "tensor" for v in leaf_values(cells))


def is_outside_object(leaf: Any) -> bool:
    """Whether it existed before the call and may hold tensors or arrays."""
    if type(leaf) is not Uniform or not leaf.shared or isinstance(leaf.obj, Tensor):
        return False
    return not is_plain(leaf.obj)


def shown(array: np.ndarray, result: Cell, operands: list[Cell]) -> Cell:
    """``t.numpy()``: what shows the memory of what existed before the call is of then, too."""
    outside = [v.obj for v in leaf_values(operands) if type(v) is Uniform and v.shared]
    lent = any(memory_of(array) in memories_of(obj) for obj in outside)
    if lent and type(result.value) is Uniform:
        result.value.shared = True
    return result


def marked_shared(result: Cell, operands: Any) -> Cell:
    """A result that shares memory with what existed before the call may not be written either."""
    if is_part(tree_of(result, None), operands):
        value = result.value
        if type(value) is Uniform:
            value.shared = True
        elif hasattr(value, "children"):
            for child in value.children():
                marked_shared(child, operands)
    return result


def is_part(result: Any, operands: Any) -> bool:
    """Whether a tensor of the result shares memory with an operand: a tensor, or an array."""
    if vmapped.is_view_result(result, operands):
        return True
    if not isinstance(result, Tensor):
        return False
    others = (leaf for leaf in leaves_of(operands) if not isinstance(leaf, Tensor))
    return any(memory_of(result) in memories_of(leaf) for leaf in others)
