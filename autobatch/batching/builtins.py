"""Python's builtins and torch's number conversions that have a batched meaning.

``HANDLERS[callable](context, args, kwargs)`` gives the result, or None where this combination
of operands has no batched form and runs once or thread by thread like any other host call.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching import arithmetic, attributes, iterators, torch_ops
from autobatch.batching.attributes import SUPER
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.levels import Batched
from autobatch.batching.operators import binary, unary
from autobatch.batching.kinds import is_instance, is_number, is_tensor, parts_of
from autobatch.batching.rows import Rower, from_rows, run_rows
from autobatch.batching.trees import tree_of
from autobatch.batching.truths import truth
from autobatch.vm.values import (
    CLOSURE,
    ENUMERATE_ITERATOR,
    METHOD,
    ZIP_ITERATOR,
    Cell,
    Column,
    Container,
    Mark,
    Objects,
    Uniform,
    read,
    uniform,
)

MAY_FAIL = "code of the object's class decides"
Handler = Callable[[Context, list[Cell], dict[str, Cell]], Cell | None]
_BOUNDS = {
    torch.uint8: (0, 255),
    torch.int8: (-128, 127),
    torch.int16: (-(2**15), 2**15 - 1),
    torch.int32: (-(2**31), 2**31 - 1),
}


def number_of(context: Context, cell: Cell) -> Cell | None:
    """The number column that ``.item()`` of a one-element tensor column is."""
    value = read(cell)
    if type(value) is not Column or value.tag != "tensor":
        return None
    data = value.data
    if data.shape[1:].numel() != 1 or data.is_complex():
        return None
    flat = data.reshape(context.k)
    if data.dtype is torch.bool:
        return Cell(Column(flat, "bool"))
    if data.dtype.is_floating_point:
        return Cell(Column(flat.to(torch.float64), "float"))
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


def _bool(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    return truth(context, args[0]) if len(args) == 1 else None


def _abs(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    value = read(args[0])
    if is_tensor(value):
        return torch_ops.apply(context, torch.abs, args, {}, False)
    if is_instance(value):
        return context.invoke(context, value.type.__abs__, args, {})  # type: ignore[union-attr]
    return None


def _len(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    value = read(args[0])
    if is_tensor(value) and iterators.event_shape(value):
        return uniform(int(iterators.event_shape(value)[0]))
    if type(value) is Container:
        if is_instance(value):
            return context.invoke(context, value.type.__len__, args, {})
        if isinstance(value.type, type) and value.type is not range:
            return uniform(len(value.cells))
    return None


def _range(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    cells = [as_index(context, arg) for arg in args]
    if kwargs or not 1 <= len(cells) <= 3 or any(cell is None for cell in cells):
        return None
    if all(type(read(cell)) is Uniform for cell in cells):  # type: ignore[arg-type]
        return None
    if len(cells) == 1:
        cells = [uniform(0), *cells]
    if len(cells) == 2:
        cells = [*cells, uniform(1)]
    step = read(cells[2])  # type: ignore[arg-type]
    if type(step) is not Uniform or step.obj == 0:
        zero = truth(context, binary(context, "eq", cells[2], uniform(0)))  # type: ignore[arg-type]
        if any(torch_ops.one_row(context, bool, [zero], row) for row in range(context.k)):
            return None
    return Cell(Container(range, cells))  # type: ignore[arg-type]


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


def type_of(value: Any) -> Any:
    """The Python type that the program sees; None if it differs by thread."""
    match value:
        case Uniform(obj=obj):
            return type(obj)
        case Column(tag="tensor"):
            return Tensor
        case Column(tag=tag):
            return attributes.NUMBER_TYPES[tag]
        case Container(type=kind):
            if isinstance(kind, Mark):
                return {CLOSURE: types.FunctionType, METHOD: types.MethodType}.get(kind)
            return kind
    return None


def _isinstance(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    value, kinds = read(args[0]), classes(args[1]) if len(args) == 2 else None
    if type(value) is Uniform and kinds is not None:
        return uniform(isinstance(value.obj, kinds))
    kind = type_of(value)
    if kind is None or kinds is None:
        return None
    return uniform(issubclass(kind, kinds))


def classes(cell: Cell) -> Any:
    value = read(cell)
    if type(value) is Uniform:
        return value.obj
    if type(value) is Container and value.type is tuple:
        parts = [classes(child) for child in value.children()]
        return None if None in parts else tuple(parts)
    return None


def _type(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    kind = type_of(read(args[0])) if len(args) == 1 else None
    return None if kind is None else uniform(kind, shared=True)


def _enumerate(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    start = args[1] if len(args) > 1 else kwargs.get("start", uniform(0))
    return Cell(Container(ENUMERATE_ITERATOR, [start, iterators.iterate(context, args[0])]))


def _zip(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    if kwargs:
        return None
    return Cell(Container(ZIP_ITERATOR, [iterators.iterate(context, arg) for arg in args]))


def _reversed(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    value = read(args[0])
    if is_tensor(value):
        return iterators.iterate(
            context, torch_ops.apply(context, torch.flip, [*args, uniform((0,))], {}, False)
        )
    if type(value) is Container and value.type is range:
        return reversed_range(context, value)
    parts = parts_of(args[0])
    if parts is None:
        return None
    return iterators.over(Cell(Container(tuple, parts[::-1])))


def reversed_range(context: Context, value: Container) -> Cell | None:
    """``reversed(range(start, stop, step))`` counts down from the last to before the start."""
    start, stop, step = value.children()
    distance = binary(context, "sub", stop, start)
    ahead = unary(context, "neg", binary(context, "floordiv", unary(context, "neg", distance), step))
    zero = uniform(0)
    count = arithmetic.apply(context, max, max, [ahead, zero])
    if count is None:
        return None
    less = binary(context, "sub", count, uniform(1))
    last = binary(context, "add", start, binary(context, "mul", less, step))
    before = binary(context, "sub", start, step)
    down = unary(context, "neg", step)
    return iterators.iterate(context, Cell(Container(range, [last, before, down])))


def _sequence(kind: type) -> Handler:
    def handler(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
        if not args:
            return Cell(Container(kind, []))
        parts = iterators.exhausted(context, args[0])
        return None if parts is None else Cell(Container(kind, list(parts)))

    return handler


def _dict(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    if not args:
        return Cell(Container(dict, dict(kwargs)))
    value = read(args[0])
    if type(value) is Container and value.type is dict:
        return Cell(Container(dict, {**value.cells, **kwargs}))  # type: ignore[dict-item]
    return None


def _sum(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    value = read(args[0])
    if type(value) is Uniform and not isinstance(value.obj, Tensor):
        return None
    parts = iterators.exhausted(context, args[0])
    if parts is None:
        return None
    total = args[1] if len(args) > 1 else kwargs.get("start", uniform(0))
    for part in parts:
        total = binary(context, "add", total, part)
    return total


def _extreme(name: str, meaning: Callable[..., Any]) -> Handler:
    def handler(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
        if kwargs:
            return None
        parts = args if len(args) > 1 else iterators.exhausted(context, args[0])
        if not parts or not all(is_number(read(part)) for part in parts):
            return None
        best = parts[0]
        for part in parts[1:]:
            done = arithmetic.apply(context, meaning, meaning, [best, part])
            if done is None:
                if type(read(best)) is Uniform and type(read(part)) is Uniform:
                    best = uniform(meaning(read(best).obj, read(part).obj))  # type: ignore[union-attr]
                    continue
                return None
            best = done
        return best

    return handler


def _quantifier(stop: bool) -> Handler:
    """``any`` and ``all`` over what has a batched truth, first to last."""

    def handler(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
        value = read(args[0])
        if type(value) is Uniform:
            return None
        parts = iterators.exhausted(context, args[0])
        if parts is None or any(type(read(part)) is Objects for part in parts):
            return None
        flags = [read(truth(context, part)) for part in parts]
        if any(type(flag) is Uniform and bool(flag.obj) is stop for flag in flags):
            return uniform(stop)
        columns = [flag.data for flag in flags if type(flag) is Column]
        if not columns:
            return uniform(not stop)
        stacked = torch.stack(columns)
        return Cell(Column(stacked.any(0) if stop else stacked.all(0), "bool"))

    return handler


def _getattr(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    name = read(args[1])
    if type(name) is not Uniform or not isinstance(name.obj, str):
        return None
    if len(args) == 3 and runs_code(read(args[0]), name.obj):
        return run_rows(context, getattr, args, {}, MAY_FAIL, keep=True, fresh=False)
    if len(args) == 3:
        try:
            return attributes.get(context, args[0], name.obj)
        except RowsFail as failure:
            if isinstance(failure.error, AttributeError) and type(read(args[0])) is not Objects:
                return args[2]
            return None
    return attributes.get(context, args[0], name.obj)


def runs_code(value: Any, name: str) -> bool:
    """Whether reading an attribute runs code of the user's, which may say that there is none."""
    if not is_instance(value) or name in value.cells:
        return False
    static = inspect.getattr_static(value.type, name, None)
    return isinstance(static, property) or (static is None and hasattr(value.type, "__getattr__"))


def _hasattr(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    name = read(args[1])
    if type(read(args[0])) is Objects:
        return None
    if type(name) is Uniform and runs_code(read(args[0]), name.obj):
        return run_rows(context, hasattr, args, {}, MAY_FAIL, keep=True)
    try:
        found = _getattr(context, args, kwargs)
    except RowsFail as failure:
        if isinstance(failure.error, AttributeError):
            return uniform(False)
        raise
    return None if found is None else uniform(True)


def _setattr(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    name = read(args[1])
    if type(name) is not Uniform or not isinstance(name.obj, str):
        return None
    attributes.put(context, args[0], name.obj, args[2])
    return uniform(None)


def _iter(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    return iterators.iterate(context, args[0]) if len(args) == 1 else None


def _next(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    value = read(args[0])
    if type(value) is not Container or value.type not in iterators.ITERATORS:
        return None
    item, more = iterators.advance(context, args[0])
    flag = read(more)
    if type(flag) is not Uniform:
        rower = Rower(context)
        rows, has = rower.rows(item), rower.rows(more)
        if len(args) < 2:
            for row in context.order():
                if not has[row]:
                    raise RowsFail(row, StopIteration())
            return item
        other = rower.rows(args[1])
        return from_rows(context, [r if h else o for r, h, o in zip(rows, has, other, strict=True)])
    if flag.obj:
        return item
    if len(args) > 1:
        return args[1]
    raise RowsFail(context.lowest(), StopIteration())


def _super(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    if len(args) != 2:
        return None
    kind, receiver = read(args[0]), read(args[1])
    if type(kind) is Uniform and is_instance(receiver):
        return Cell(Container(SUPER, [args[1]], kind.obj))
    if type(kind) is Uniform and type(receiver) is Uniform:
        return uniform(super(kind.obj, receiver.obj), shared=True)
    return None


def _slice(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    parts = {1: [uniform(None), *args, uniform(None)], 2: [*args, uniform(None)], 3: args}
    return Cell(Container(slice, parts[len(args)]))


def _tensor(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``torch.tensor(data)`` from numbers of the threads, alone or in nested lists."""
    if not args or type(read(args[0])) in (Uniform, Objects):
        return None
    if any(type(read(cell)) is not Uniform for cell in kwargs.values()):
        return None
    value = read(args[0])
    if is_tensor(value):
        return None
    tree = tree_of(args[0], None)
    data = stacked_numbers(context, tree)
    if data is None:
        return None
    options = {name: read(cell).obj for name, cell in kwargs.items()}  # type: ignore[union-attr]
    dtype = options.get("dtype") or (
        torch.get_default_dtype() if data.dtype.is_floating_point else data.dtype
    )
    data = data.to(dtype=dtype, device=options.get("device"))
    if options.get("requires_grad"):
        data = data.requires_grad_()
    return Cell(Column(data))


def stacked_numbers(context: Context, tree: Any) -> Tensor | None:
    """``[k, *E]`` for a tree of number columns and numbers; int, float and bool promote."""
    if type(tree) is Batched:
        return tree.data if tree.data.dim() == 1 else None
    if isinstance(tree, bool | int | float):
        dtype = {bool: torch.bool, int: torch.int64, float: torch.float64}[type(tree)]
        return torch.full((context.k,), tree, dtype=dtype, device=context.device)
    if not isinstance(tree, list | tuple) or not tree:
        return None
    parts = [stacked_numbers(context, part) for part in tree]
    if any(part is None or part.shape != parts[0].shape for part in parts):  # type: ignore[union-attr]
        return None
    dtype = parts[0].dtype  # type: ignore[union-attr]
    for part in parts[1:]:
        dtype = torch.promote_types(dtype, part.dtype)  # type: ignore[union-attr]
    return torch.stack([part.to(dtype) for part in parts], 1)  # type: ignore[union-attr]


HANDLERS: dict[Any, Handler] = {
    Tensor.item: _item,
    Tensor.tolist: _tolist,
    Tensor.__int__: _convert(int),
    Tensor.__float__: _convert(float),
    Tensor.__bool__: _bool,
    Tensor.__index__: _convert(int),
    torch.tensor: _tensor,
    torch.as_tensor: _tensor,
    torch.scalar_tensor: _tensor,
    int: _convert(int),
    float: _convert(float),
    bool: _bool,
    abs: _abs,
    len: _len,
    range: _range,
    isinstance: _isinstance,
    type: _type,
    enumerate: _enumerate,
    zip: _zip,
    reversed: _reversed,
    list: _sequence(list),
    tuple: _sequence(tuple),
    dict: _dict,
    sum: _sum,
    min: _extreme("min", min),
    max: _extreme("max", max),
    any: _quantifier(True),
    all: _quantifier(False),
    getattr: _getattr,
    hasattr: _hasattr,
    setattr: _setattr,
    iter: _iter,
    next: _next,
    super: _super,
    slice: _slice,
}
