"""Writes to tensors that the program made or was given: in-place functions, ``x[i] = v``, ``+=``.

A column is never changed in place: the write makes a new value for the cell, which all names
for it see; a view writes it into its base. (A recording may write to the memory of one that nobody
else holds, and make the new value of that: see ``trace.over``.)
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.applying import inplace, vmapped
from autobatch.batching.applying.direct import POINTWISE
from autobatch.batching.applying.overlaps import overlaps, reads
from autobatch.batching.applying.own_overlaps import CLASH, Unknown, own_overlap
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.effects import is_draw
from autobatch.batching.host.rower import Rower
from autobatch.batching.host.rows import RowDraws, call_row, note_fallback, run_rows
from autobatch.batching.levels import Batched, DrawError, ExampleError, NoRule
from autobatch.batching.refused_draws import draw_message
from autobatch.batching.shared import merging, refusals, updates
from autobatch.batching.tensors import index_lists, torch_ops, unheld
from autobatch.batching.tensors.joining import is_rounded_once
from autobatch.batching.tensors.number_operands import refused_numbers
from autobatch.batching.tensors.views import is_unbound, viewed
from autobatch.batching.trace import Untraceable
from autobatch.batching.trace.recorder import is_recording
from autobatch.batching.trees import NotATree, tensor_dtype, tree_of
from autobatch.errors import Diagnostic, SharedWriteError, UnsupportedError
from autobatch.presence import moves
from autobatch.random.drawing import serving
from autobatch.source import Span
from autobatch.structure import own_attribute
from autobatch.values.cells import (
    NO_TIES,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    Value,
    View,
    read,
    seen,
)
from autobatch.values.heap import walks
from autobatch.values.layouts import are_seen, repeats, seen_layout
from autobatch.values.packs import is_packed
from autobatch.values.strides import copy_of, relaid, stacked

OVERLAP = "it reads a part of what it writes"


def set_content(cell: Cell, content: Value) -> None:
    """Give a cell a new content, seen through every name and every view."""
    view = cell.value
    if type(view) is not View:
        if type(view) is Column and np.any(view.outside):
            raise OutsideWrite
        if getattr(view, "ties", NO_TIES):
            raise OutsideWrite
        cell.value = content
        return
    before, whole = read(cell), read(view.base)
    base = view.recipe.write(whole, [read(arg) for arg in view.args], content)
    set_content(view.base, base if type(view.base.value) is View else lying_as(base, whole))
    origin = read(view.base)
    # a part of objects is written itself, unseen by what they are a view of
    is_written_itself = any(type(v) is Objects and v.stacks is None for v in (origin, content))
    view.cache = None if is_written_itself or not lies_so(content, before) else content
    view.seen = seen(origin)


def lying_as(content: Value, before: Value) -> Value:
    """A new content of a tensor, which lies in memory as it did."""
    if type(content) is not Column or type(before) is not Column:
        return content
    data = relaid(content.data, before.data)
    return content if data is content.data else Column(data)


def lies_so(content: Value, before: Value) -> bool:
    """Whether what has been written to a view lies in memory where and as the view does."""
    if type(content) is not Column or type(before) is not Column:
        return True
    new, old = content.data, before.data
    if seen_layout(new) != seen_layout(old):
        return False
    return not old.storage_offset() or not are_seen()


class OutsideWrite(Exception):
    """A replayed stretch would write rows that stand for tensors which existed before the call.

    Or rows that may be another name's too (``Ties``). The operations run one by one then, and the
    one that writes is refused with its place.
    """


def is_outside(cell: Cell) -> bool:
    """Whether a write to a tensor would change one that existed before the call."""
    while type(cell.value) is View:
        cell = cell.value.base
    value = cell.value
    if type(value) is Column:
        return bool(np.any(value.outside))
    return type(value) is Uniform and value.shared


class Place(Protocol):
    """Where something is refused."""

    span: Span | None


def shared_write(context: Place, what: str, hint: str = refusals.RETURN_IT) -> SharedWriteError:
    return refusals.written(context.span, what, hint)


def refuse_tied(context: Context, cell: Cell) -> None:
    """Refuse a write to a tensor that another live name stands for too, by thread."""
    while type(cell.value) is View:
        cell = cell.value.base
    value: Any = cell.value
    lent, ties = context.services.lent, getattr(value, "ties", NO_TIES)
    if not ties and not lent.of(cell):
        return
    live = context.live()
    if live is None or any(c is not cell for c in lent.tied([cell], walks.reached(live))):
        raise UnsupportedError(
            Diagnostic(
                "A program writes to what another of its names may stand for, too.",
                context.span,
                "written here",
                (
                    "`min` and `max` give an operand itself, which one differs by thread; "
                    "`torch.from_numpy` and the like give a tensor of an array's memory.",
                ),
                ("make a new tensor (`m = m + 1`), or take a `.clone()` before.",),
                "tied-write",
            )
        )
    if ties:
        value.ties = NO_TIES


def refuse_other_memory(context: Context, function: Callable[..., Any]) -> None:
    """Refuse ``y.set_(t)``: a write to either is one to both from there on; and an exchange."""
    name = own_attribute(function, "__name__", "")
    if name == "set_" or function is torch.utils.swap_tensors:
        raise UnsupportedError(
            Diagnostic(
                f"A program gives a tensor the memory of another (`{name}`).",
                context.span,
                "given here",
                ("a write to one of them would be a write to the other.",),
                ("write `y = t` for another name, or `y = t.clone()` for its values.",),
                "other-memory",
            )
        )


def refuse_reshaped(context: Context, function: Callable[..., Any], cell: Cell) -> None:
    """Refuse another shape in place for a tensor of which a part has another name."""
    live = context.live()
    if live is None and is_recording():
        raise Untraceable("it gives a tensor another shape in place")
    views = (c.value for c in walks.reached(live or ()) if type(c.value) is View)
    known = type(cell.value) is not View or (live is not None and inplace.twin(function))
    if known and all(view.base is not cell for view in views):
        return
    name = function.__name__
    raise UnsupportedError(
        Diagnostic(
            "A program gives another shape in place to a tensor of which another name has a part.",
            context.span,
            "given another shape here",
            ("the part is kept as what it is of the tensor, in the shape that this has.",),
            (f"write `y = y.{name.rstrip('_')}(...)`: it shares memory with the part, too.",),
            "reshaped-view",
        )
    )


def refuse_foreign(context: Context, cell: Cell, what: str) -> None:
    """Refuse a write to a thread's object that existed before the call, or is another name's."""
    refuse_tied(context, cell)
    value = read(cell)
    if is_packed(value) and is_outside(cell):
        raise shared_write(context, "a tensor")
    if type(value) is Objects and value.lists is None:
        for item in value.items:
            if context.foreign.holds(item):
                what = what.format(described(item))
                raise refusals.written(context.span, what, refusals.COPY_IT, refusals.OWN)


def described(item: Any) -> str:
    if isinstance(item, Tensor):
        return "a tensor"
    if isinstance(item, types.ModuleType):
        return f"the module {item.__name__!r}"
    if isinstance(item, type):
        return f"the class {item.__name__!r}"
    return f"a {type(item).__name__}"


READ_FIRST = (Tensor.fill_, Tensor.masked_fill_, Tensor.index_fill_, torch.fill_)
"""Writes of one number, which torch reads before it writes."""


def write(
    context: Context,
    function: Callable[..., Any],
    args: list[Cell],
    kwargs: dict[str, Cell],
    window: Cell | None = None,
) -> Cell:
    """``function`` writes its first operand, a tensor; the result is that operand's cell.

    ``window``: slices of each thread's own that its index stands for.
    """
    target = args[0]
    context.services.tensor_written(context.span)
    if not may_be_tensor(read(target)):
        return write_several(context, function, args, kwargs)
    refuse_foreign(context, target, "{}")
    refuse_other_memory(context, function)
    if inplace.reshapes(function) and reshaped(context, function, args, kwargs):
        return target
    if merging.shared_tensor(target) is not None:
        updates.write(context, function, args, kwargs)
        return target
    if is_outside(target):
        raise shared_write(context, "a tensor")
    args = [merging.resolved(context, arg) for arg in args]
    if is_unbound(target) and torch.is_grad_enabled() and any(map(is_differentiated, args)):
        raise RowsFail(context.lowest(), refused_by_autograd())
    is_window = window is not None
    try:
        if is_read_too(function, args, kwargs, is_window):
            raise NoRule(OVERLAP)
        is_item = function in (operator.setitem, Tensor.__setitem__)
        given = args[2:] if is_item else [*args[1:], *kwargs.values()]
        if function not in READ_FIRST:
            index = args[1] if is_item else None
            numbers = partial(refused_numbers, function, args, kwargs)
            check_own_overlap(context, target, given, numbers, index, is_item, is_window)
        write_own(context, function, args, kwargs)
        return target
    except NoRule as refusal:
        why = str(refusal)
    if window is not None:
        args[1] = window
    write_rows(context, function, args, kwargs, why)  # not in the handler: errors have no context
    return target


def check_own_overlap(
    context: Context,
    target: Cell,
    operands: list[Cell],
    numbers: Callable[[], Exception | None],
    index: Cell | None = None,
    copies: bool = False,
    is_window: bool = False,
) -> None:
    """Note the threads that write to what overlaps an operand, where that differs by thread.

    ``numbers``: what torch says, before it looks at memory, of numbers where it wants tensors.
    """
    try:
        refused = own_overlap(target, operands, index, context.k, copies, is_window)
    except (Unknown, NoRule, NotATree, ExampleError, IndexError):  # the write tells of an index
        raise NoRule(OVERLAP) from None
    if refused is None:
        return
    if (wrong := numbers()) is not None:
        raise RowsFail(context.lowest(), wrong) from wrong

    def evaluate(row: int) -> None:
        raise RuntimeError(CLASH)

    context.check(refused, evaluate)


def is_read_too(
    function: Callable[..., Any], args: list[Cell], kwargs: dict[str, Cell], is_window: bool
) -> bool:
    """Whether an operand is of the memory that is written, and is not read before."""
    if function in (operator.setitem, Tensor.__setitem__):
        return not is_window and overlaps(args[0], args[2:], args[1])
    others = [*args[1:], *kwargs.values()]
    reads_first = inplace.twin(function) in POINTWISE or function is Tensor.copy_
    return overlaps(args[0], others) or (not reads_first and reads(others, args[0]))


def reshaped(
    context: Context, function: Callable[..., Any], args: list[Cell], kwargs: dict[str, Cell]
) -> bool:
    """Whether a view has got another shape in place, as a view of what it was."""
    target = args[0]
    refuse_reshaped(context, function, target)
    twin = inplace.twin(function)
    if type(target.value) is not View or twin is None:
        return False
    inner = Cell(target.value)
    target.value = viewed(twin, [inner, *args[1:]], kwargs, inner, ())
    return True


def write_own(
    context: Context, function: Callable[..., Any], args: list[Cell], kwargs: dict[str, Cell]
) -> None:
    """A write to the threads' own tensor, for all at once; ``NoRule`` where there is no such."""
    target, value = args[0], read(args[0])
    if type(value) is Objects:
        raise NoRule("objects")
    if repeats_elements(target):
        raise NoRule("its elements are more than one place in memory each")
    if inplace.resizes(function):
        raise NoRule("it gives a tensor's memory another size")
    indexed = function in (operator.setitem, Tensor.__setitem__)
    if indexed and len(args) == 3:
        args[1] = index_lists.as_tensors(context, args[1])
    try:
        like = tensor_dtype([target])
        made = tuple(
            tree_of(arg, None if indexed and place == 1 else unheld.met_by(function, arg, like))
            for place, arg in enumerate(args)
        )
        named = {name: tree_of(arg, like) for name, arg in kwargs.items()}
    except NotATree:
        raise NoRule("an operand is no tensor or number") from None
    with_numbers = context.k > 0 and torch_ops.has_numbers([*args[1:], *kwargs.values()])
    if with_numbers and (refused := refused_numbers(function, args, kwargs)) is not None:
        raise RowsFail(context.lowest(), refused) from refused
    if is_rounded_once(function, [*args, *kwargs.values()], kwargs):
        twin = inplace.twin(function)
        assert twin is not None
        rounded = torch_ops.apply(context, twin, args, kwargs, False)
        write_own(context, Tensor.copy_, [target, rounded], {})
        return
    draws = is_draw(function) and context.randomness != "same"
    alike = context.services.alike if is_draw(function) else None
    if alike is not None and not alike.are_together(context.threads):
        raise NoRule(torch_ops.DRAWN_APART)
    together = nullcontext() if alike is None else alike.drawing(context.threads)
    if type(value) is Uniform and not has_column((*made, *named.values())) and not draws:
        with moves.keeping():
            whole = copy_of(value.obj)
        with together:
            function(whole, *made[1:], **named)
        set_content(target, Uniform(whole))
        return
    if draws and context.randomness == "error":
        raise DrawError(draw_message(function))
    try:
        with serving(context.source()), together:
            new, _ = vmapped.apply_inplace(
                function, made, named, context.k, randomness=context.randomness
            )
    except ExampleError as failure:
        if with_numbers:
            raise NoRule(torch_ops.OWN_NUMBER) from None
        raise RowsFail(context.lowest(), failure.original) from failure.original
    context.counter.launch()
    if function in unheld.CONVERTING:
        unheld.note(context, function, args, kwargs)
    content: Value = Column(new.data)
    if type(target.value) is not View and not inplace.reshapes(function):
        content = lying_as(content, value)
    set_content(target, content)


def repeats_elements(cell: Cell) -> bool:
    """Whether elements of each thread's tensor share memory, or of one that it is a part of."""
    while type(cell.value) is View:
        if has_repeated(read(cell)):
            return True
        cell = cell.value.base
    return has_repeated(cell.value)


def has_repeated(value: Value) -> bool:
    if type(value) is Column:
        return repeats(value.data)
    is_tensor = type(value) is Uniform and isinstance(value.obj, Tensor)
    return is_tensor and repeats(value.obj[None])  # type: ignore[union-attr]


def is_differentiated(cell: Cell) -> bool:
    value = read(cell)
    if type(value) is Column:
        return value.table.requires_grad
    return type(value) is Uniform and isinstance(value.obj, Tensor) and value.obj.requires_grad


def refused_by_autograd() -> Exception:
    """What torch says where a row that iteration gives is written."""
    if is_recording():
        raise Untraceable("it writes to a row that iteration gives")
    whole = torch.zeros(1, 1, requires_grad=True).clone()
    try:
        whole.unbind()[0].add_(1)
    except RuntimeError as error:
        return error
    raise AssertionError("torch lets the rows of a differentiated tensor be written")


def may_be_tensor(value: Value) -> bool:
    """Whether it is one for each thread, or objects that tell thread by thread."""
    if type(value) is Uniform:
        return isinstance(value.obj, Tensor) or not isinstance(value.obj, Iterable)
    return type(value) is not Container or is_packed(value)


def write_several(
    context: Context,
    function: Callable[..., Any],
    args: list[Cell],
    kwargs: dict[str, Cell],
    written: list[Cell] | None = None,
) -> Cell:
    """``function`` writes the tensors of a list (``torch._foreach_add_``), thread by thread."""
    for cell in walks.reached(args[:1] if written is None else written):
        value = read(cell)
        if type(value) is Uniform and isinstance(value.obj, Iterator):
            raise shared_write(context, "tensors")  # what ``module.parameters()`` goes through
        if is_outside(cell) and (type(value) is Column or not is_constant(value)):
            raise shared_write(context, "tensors")
        refuse_foreign(context, cell, "{}")
    why = "it writes to several tensors"
    return run_rows(context, function, args, kwargs, why, keep=True, fresh=False, effect=True)


def is_constant(value: Value) -> bool:
    """Whether what all threads share cannot be written."""
    kinds = (type(None), int, float, str)
    return type(value) is Uniform and isinstance(value.obj, kinds)


def has_column(tree: Any) -> bool:
    if isinstance(tree, tuple | list):
        return any(map(has_column, tree))
    if isinstance(tree, dict):
        return any(map(has_column, tree.values()))
    if isinstance(tree, slice):
        return has_column((tree.start, tree.stop, tree.step))
    return type(tree) is Batched


def written_by(cell: Cell) -> Cell:
    """What holds the memory that a write to a tensor goes to."""
    while type(cell.value) is View:
        cell = cell.value.base
    return cell


def write_rows(
    context: Context,
    function: Callable[..., Any],
    args: list[Cell],
    kwargs: dict[str, Cell],
    why: str,
) -> None:
    """The same thread by thread, on each thread's own tensor."""
    context.flush()  # before parts are read that are not there
    if context.span is not None:
        note_fallback(context, function, (*args, *kwargs.values()), why)
    target = written_by(args[0]) if repeats_elements(args[0]) else args[0]
    rower = Rower(context, views=why == OVERLAP or target is not args[0])
    columns = [rower.rows(arg) for arg in args]
    named = {name: rower.rows(arg) for name, arg in kwargs.items()}
    with RowDraws.of(context) as draws:
        call = draws.by_row(partial(call_row, function, columns, named))
        for row in context.order():
            try:
                call(row)
            except Exception as error:
                context.lose(row, error)
    rows: list[Tensor] = rower.rows(target)
    if type(read(target)) is not Objects:
        data = stacked(rows) if len({row.shape for row in rows}) <= 1 else None
        set_content(target, Objects(rows) if data is None else Column(data))
    elif type(target.value) is View:
        set_content(target, Objects(rows))
