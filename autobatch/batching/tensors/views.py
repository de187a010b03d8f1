"""Views: tensors that share memory with another cell's tensor.

``y = x[:2]; y += 1`` changes ``x``. A view's cell keeps the operation that made it, as a
``TorchRecipe``: read again when the base has changed, written back into the base when the view
is written. Columns are never changed in place, so a write makes a new base.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from autobatch import compat
from autobatch.batching.applying import lying, vmapped
from autobatch.batching.applying.lying import Steps
from autobatch.batching.levels import Batched, NoRule, event_dim
from autobatch.batching.tensors.folding import folded
from autobatch.batching.trees import tree_of
from autobatch.presence.guards import guarded_rows
from autobatch.values import grouping, packs, strides
from autobatch.values.cells import (
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    Value,
    View,
    read,
    shown_memory,
)
from autobatch.values.heap import walks
from autobatch.values.heap.likeness import identity
from autobatch.values.stacks import Stacks


@dataclass(frozen=True, slots=True)
class Hole:
    """Stands in a template for the operand that cell number ``index`` gives."""

    index: int


@dataclass(frozen=True, slots=True)
class TorchRecipe:
    """``function(*args, **kwargs)``, whose operand 0 is the base, then ``path`` into the result.

    ``unbound``: iteration over the base has made it, whose parts autograd lets nobody write.
    ``steps``: where it picks by integers what slices pick for one example, how that lies.
    """

    key: Any
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    path: tuple[Any, ...]
    unbound: bool = False
    steps: Steps | None = None

    def read(self, base: Value, args: list[Value]) -> Value:
        if self.function is operator.getitem and not any(type(arg) is Objects for arg in args):
            packed = self.read_packed(base, args)
            if packed is None and type(base) is Column and base.rows is not None:
                packed = self.read_folded(base, base.rows, args)
            if packed is not None:
                return packed
        stacks = stacks_of(base)
        if stacks is not None:
            try:
                return self.read_stacks(stacks, args)
            except NoRule:
                pass
        values = list(map(packs.opened, (base, *args)))
        if not any(type(value) is Objects for value in values):
            try:
                return self.read_batched(values)
            except NoRule:
                pass
        made = Objects([self.row(*own) for own in own_operands(values)])
        return made if type(values[0]) is Objects else stacked(made)

    def read_packed(self, base: Value, args: list[Value]) -> Value | None:
        """A part of packed rows, or the rows between a thread's own bounds; else None."""
        if packs.is_packed(base):
            index = self.index(args)
            return packs.part(base, index) if packs.picks(index) else None
        if type(base) is not Column or not args:
            return None
        index = self.index(args)
        has_own = type(index) is slice and has_tensor(index)
        return packs.cut(packs.rows_of(base), index) if has_own else None

    def read_folded(self, base: Column, rows: Tensor, args: list[Value]) -> Value | None:
        """A part of large rows, which are not copied for that."""
        index = filled(self.args[1], [None, *map(operand, args)])
        found = folded(base.table, rows, index)
        if found is None:
            return None
        return Column(self.laid(Batched(found[0]), (Batched(base.table), index), {}).data)

    def read_batched(self, values: list[Value]) -> Value:
        operands = list(map(operand, values))
        k = next((o.data.shape[0] for o in operands if type(o) is Batched), None)
        made = filled((self.args, self.kwargs), operands)
        if k is None:
            return Uniform(self.pick(self.function(*made[0], **made[1])))
        out = self.laid(vmapped.apply(self.function, made[0], made[1], k), *made)
        return Column(out.data) if type(out) is Batched else Uniform(out)

    def read_stacks(self, stacks: Stacks, args: list[Value]) -> Value:
        """The same of tensors of unlike shapes, once for the threads of each."""
        own = [None if type(arg) is Uniform else own_rows(arg) for arg in args]
        groups: dict[Any, list[int]] = {}
        for row, (part, _) in enumerate(stacks.at):
            keys = [None if items is None else items[row] for items in own]
            if any(isinstance(key, Tensor) for key in keys):
                raise NoRule("a tensor of each thread's own")
            groups.setdefault((part, *keys), []).append(row)
        parts = []
        if not grouping.repays(groups, stacks.k):
            raise NoRule("hardly two are of one shape")
        for (_, *keys), rows in groups.items():
            operands = [Batched(stacks.taken(rows))]
            for key, arg in zip(keys, args, strict=True):
                operands.append(operand(arg) if type(arg) is Uniform else key)
            made = filled((self.args, self.kwargs), operands)
            out = self.laid(vmapped.apply(self.function, made[0], made[1], len(rows)), *made)
            parts.append((rows, out.data))
        return grouping.together(parts)

    def index(self, args: list[Value]) -> Any:
        """The index of ``x[index]``, with the threads' own ints as tensors ``[k]``."""
        return own_data(filled(self.args[1], [None, *map(operand, args)]))

    def write(self, base: Value, args: list[Value], content: Value) -> Value:
        values = list(map(packs.opened, (base, *args, content)))
        if not any(type(value) is Objects for value in values):
            try:
                return self.write_batched(values)
            except NoRule:
                pass
        rows: list[Tensor] = []
        for target, parts, new in own_operands(values, last=True):
            self.row(target, parts).copy_(new)
            rows.append(target)
        made = Objects(rows)
        return made if type(values[0]) is Objects else stacked(made)

    def write_batched(self, values: list[Value]) -> Value:
        operands = list(map(operand, values))
        k = next((o.data.shape[0] for o in operands if type(o) is Batched), None)
        if self.function is operator.getitem:
            index = filled(self.args[1], operands)
            target, new = operands[0], operands[-1]
            if k is None:
                target = target.clone()
                target[index] = new
                return Uniform(target)
            write: tuple[Any, tuple[Any, ...]] = operator.setitem, (target, index, new)
        elif k is not None and (index := self.selected(operands)) is not None:
            write = operator.setitem, (operands[0], index, operands[-1])
        elif k is None:
            whole = operands[0].clone()
            self.assign(whole, *operands[1:])
            return Uniform(whole)
        else:
            write = self.assign, tuple(operands)
        return Column(vmapped.apply_inplace(*write, None, k)[0].data)

    def selected(self, operands: list[Any]) -> tuple[Any, ...] | None:
        """The index for ``x.select(dim, i)`` by a thread's own ``i``; None of another view."""
        if self.function not in SELECTS or self.path:
            return None
        args, kwargs = filled((self.args, self.kwargs), operands)
        given = {**dict(zip(("input", "dim", "index"), args, strict=False)), **kwargs}
        dim, place = given.get("dim"), given.get("index")
        if type(place) is not Batched or type(dim) is not int:
            return None
        return (*(slice(None),) * (dim % event_dim(operands[0])), place)

    def assign(self, base: Tensor, *rest: Any) -> None:
        """Write the last operand into the view of ``base``."""
        args, kwargs = filled((self.args, self.kwargs), [base, *rest[:-1]])
        self.pick(self.function(*args, **kwargs)).copy_(rest[-1])

    def row(self, base: Tensor, args: list[Any]) -> Any:
        made, named = filled((self.args, self.kwargs), [base, *args])
        if self.steps is not None and self.function is operator.getitem:
            return self.pick(base[sliced(made[1], self.steps, base.shape)])
        return self.pick(self.function(*made, **named))

    def laid(self, out: Any, args: Any, kwargs: Any) -> Any:
        """What is picked of a result, lying as it does for one example if the program sees that."""
        if self.steps is None:
            return self.pick(lying.as_one_example(self.function, args, kwargs, out))
        return lying.as_part(self.pick(out), args[0], self.steps)

    def pick(self, out: Any) -> Any:
        for step in self.path:
            out = out[step]
        return out


SELECTS = (Tensor.select, torch.select)


def sliced(index: Any, steps: Steps, shape: torch.Size) -> Any:
    """The index with slices again where integers stand for them, so that it picks a part."""
    given = index if type(index) is tuple else (index,)
    if not any(isinstance(part, Tensor) and part.dim() for part in given):
        return index
    parts = [as_slice(part) for part in given if part is not None]
    parts += [slice(None)] * (len(shape) - len(parts))
    whole: list[Any] = []
    place = 0
    for step in steps:
        end = place if step is None else step[0] + 1
        whole += parts[place:end] if step is not None else [None]
        place = end
    return (*whole, *parts[place:])


def as_slice(part: Any) -> Any:
    if not isinstance(part, Tensor) or not part.dim():
        return part
    places = part.flatten().tolist()
    if not places:
        return slice(0, 0)
    step = places[1] - places[0] if len(places) > 1 else 1
    return slice(places[0], places[-1] + 1, step)


def stacks_of(base: Value) -> Stacks | None:
    """Tensors of unlike shapes by shape; None where they are not kept so."""
    if packs.is_packed(base):
        return grouping.apart(base) if len(packs.parts_of(base)[1]) else None
    return base.stacks if type(base) is Objects else None


def own_operands(values: list[Value], last: bool = False) -> Iterator[tuple[Any, ...]]:
    """Each thread's base and other operands; with ``last``, the last of them by itself.

    Tensors in columns are copied; those that are objects are the threads' own.
    """
    columns = list(map(own_rows, values))
    k = max((len(column) for column in columns if column is not None), default=1)
    for row in range(k):
        own = [
            value.obj if column is None else column[row]  # type: ignore[union-attr]
            for value, column in zip(values, columns, strict=True)
        ]
        if columns[0] is None:
            own[0] = own[0].clone()
        yield (own[0], own[1:-1], own[-1]) if last else (own[0], own[1:])


def own_rows(value: Value) -> list[Any] | None:
    if type(value) is Objects:
        return value.items
    if type(value) is Column:
        rows = strides.copies(guarded_rows(value.data))
        return rows if value.tag == "tensor" else [row.item() for row in rows]
    return None


def stacked(rows: Objects) -> Value:
    """Rows of one shape as a column again."""
    kinds = {(row.shape, row.dtype) for row in rows.items}
    data = strides.stacked(rows.items) if len(kinds) == 1 else None
    return rows if data is None else Column(data)


def operand(value: Value) -> Any:
    return tree_of(Cell(value), None)


def has_tensor(part: slice) -> bool:
    return any(isinstance(end, Tensor) for end in (part.start, part.stop))


def own_data(part: Any) -> Any:
    if type(part) is tuple:
        return tuple(map(own_data, part))
    if type(part) is slice:
        return slice(*map(own_data, (part.start, part.stop, part.step)))
    return part.data if type(part) is Batched else part


def filled(template: Any, operands: list[Any]) -> Any:
    """A template with its holes filled."""
    kind = type(template)
    if kind is Hole:
        return operands[template.index]
    if kind is tuple or kind is list:
        return kind(filled(part, operands) for part in template)
    if kind is dict:
        return {key: filled(part, operands) for key, part in template.items()}
    if kind is slice:
        return slice(*(filled(p, operands) for p in (template.start, template.stop, template.step)))
    return template


def template_of(cell: Cell, holes: list[Cell]) -> Any:
    """A cell as a template; the cells of its tensors and numbers are appended to ``holes``.

    Of all but the base they are copies: the program may write to an index, the view stays.
    """
    value = read(cell)
    if type(value) is Container and not packs.is_packed(value):
        parts = [template_of(child, holes) for child in value.children()]
        if value.type is dict:
            return dict(zip(value.cells, parts, strict=True))
        if value.type is slice:
            return slice(*parts)
        return list(parts) if value.type is list else tuple(parts)  # a Size would take no holes
    if type(value) is Uniform and not isinstance(value.obj, Tensor):
        return value.obj
    if cell is holes[0]:
        return Hole(0)
    holes.append(Cell(value))
    return Hole(len(holes) - 1)


def frozen_key(template: Any) -> Any:
    kind = type(template)
    if kind in (tuple, list):
        return (kind, tuple(map(frozen_key, template)))
    if kind is dict:
        return tuple((key, frozen_key(part)) for key, part in template.items())
    if kind is slice:
        return (slice, frozen_key((template.start, template.stop, template.step)))
    return (Hole, template.index) if kind is Hole else identity(template)


def recorded(
    function: Callable[..., Any],
    args: list[Cell],
    kwargs: dict[str, Cell],
    out: Any,
    result: Cell,
) -> Cell:
    """``result`` with the tensors that share memory with an operand turned into views of it.

    Those that share memory with what existed before the call are marked so.
    """
    bases: dict[int, Cell] = {}
    for cell in (*args, *kwargs.values()):
        collect_bases(cell, bases)
    if bases:
        _record(function, args, kwargs, bases, out, result, ())
    return result


def view_of(
    function: Callable[..., Any],
    args: list[Cell],
    kwargs: dict[str, Cell],
    result: Cell,
    steps: Steps | None = None,
) -> Cell:
    """``result`` as a view of the first operand, with which it shares memory for one example."""
    made = viewed(function, args, kwargs, args[0], (), steps)
    made.cache, made.seen = result.value, read(args[0])
    return Cell(made)


def viewed(
    function: Callable[..., Any],
    args: list[Cell],
    kwargs: dict[str, Cell],
    base: Cell,
    path: tuple[Any, ...],
    steps: Steps | None = None,
) -> View:
    """The part at ``path`` of ``function(*args, **kwargs)`` as a view of one of its operands."""
    holes = [base]
    templates = tuple(template_of(arg, holes) for arg in args)
    named = {name: template_of(arg, holes) for name, arg in kwargs.items()}
    return View(base, recipe_of(function, templates, named, path, steps), tuple(holes[1:]))


def recipe_of(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    path: tuple[Any, ...],
    steps: Steps | None = None,
) -> TorchRecipe:
    key = (identity(function), frozen_key(args), frozen_key(kwargs), path, steps)
    return TorchRecipe(key, function, args, kwargs, path, steps=steps)


def picked_by(recipe: Any) -> int | None:
    """The number ``n`` of a view ``x[n]``; None of another."""
    if type(recipe) is not TorchRecipe or recipe.function is not operator.getitem:
        return None
    plain = recipe.args[:1] == (Hole(0),) and not (recipe.kwargs or recipe.path or recipe.unbound)
    return recipe.args[1] if plain and type(recipe.args[1]) is int else None


PICKED = recipe_of(operator.getitem, (Hole(0), Hole(1)), {}, ())
"""The view ``x[n]`` by an operand ``n``."""


def as_unbound(cell: Cell) -> Cell:
    """A part of a tensor, as iteration over that gives it."""
    view = cell.value
    if type(view) is View and type(view.recipe) is TorchRecipe:
        recipe = replace(view.recipe, key=("unbound", view.recipe.key), unbound=True)
        made = View(view.base, recipe, view.args)
        made.cache, made.seen = view.cache, view.seen
        cell.value = made
    return cell


def is_unbound(cell: Cell) -> bool:
    """Whether iteration has made a tensor, or what it is a part of."""
    while type(cell.value) is View:
        if getattr(cell.value.recipe, "unbound", False):
            return True
        cell = cell.value.base
    return False


def collect_bases(cell: Cell, bases: dict[int, Cell]) -> None:
    for part in walks.parts(cell, lambda value: value.type not in (list, tuple)):
        match read(part):
            case Column(tag="tensor", table=table):
                bases.setdefault(compat.storage_id(table), part)
            case Uniform(obj=Tensor() as obj):
                bases.setdefault(compat.storage_id(obj), part)


def _record(
    function: Callable[..., Any],
    args: list[Cell],
    kwargs: dict[str, Cell],
    bases: dict[int, Cell],
    out: Any,
    result: Cell,
    path: tuple[Any, ...],
) -> None:
    value = result.value
    if type(value) is Container:
        items = value.cells.items() if isinstance(value.cells, dict) else enumerate(value.cells)
        for step, child in items:
            _record(function, args, kwargs, bases, out, child, (*path, step))
        return
    data = value.data if type(value) is Column else getattr(value, "obj", None)
    if not isinstance(data, Tensor):
        return
    base = bases.get(compat.storage_id(data))
    if base is None:
        return
    origin = read(base)
    if type(origin) is Uniform and origin.shared:
        mark_outside(value, shown_memory(origin))
        return
    made = viewed(function, args, kwargs, base, path)
    made.cache, made.seen = value, origin
    result.value = made


def mark_outside(value: Value, memory: int = True) -> None:
    """A tensor is, for one example, a part of one that existed before the call, of that memory."""
    if type(value) is Column:
        value.outside = memory
    elif type(value) is Uniform:
        value.shared = True
