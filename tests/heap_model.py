"""The model of the heap tests: a group of threads, and each thread's own Python object graph."""

from __future__ import annotations

import operator
import types
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from autobatch.batching import writes
from autobatch.batching.applying import vmapped
from autobatch.batching.context import Context
from autobatch.batching.foreign import Foreign
from autobatch.batching.host.rower import Rower
from autobatch.batching.levels import Batched
from autobatch.batching.tensors import views
from autobatch.values.cells import (
    BOX,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    Value,
    View,
    read,
    uniform,
)
from autobatch.vm.groups import Group, restricted
from autobatch.vm.invariants import check_cells
from autobatch.vm.library import Library
from autobatch.vm.stackless import Machine
from autobatch.vm.state import RunState, Settings

NAMES = ("a", "b", "c", "d", "e")
SHAPES = ((4,), (2, 3))
VIEWS: tuple[tuple[Any, ...], ...] = (
    (operator.getitem, slice(1, 3)),
    (operator.getitem, slice(0, 2)),
    (operator.getitem, 0),
    (Tensor.t,),
    (Tensor.unsqueeze, 0),
)
CPU = torch.device("cpu")
Model = dict[str, Any]

SIMPLE = (
    *("tensor", "tensor", "number", "alias", "view", "view", "view", "view", "list", "dict", "box"),
    *("get", "get", "put", "append", "add", "add", "add_own", "set", "set_item", "touch", "drop"),
)
NAME = st.sampled_from(("a", "a", "b", "b", *NAMES))
OP = st.tuples(st.sampled_from(SIMPLE), NAME, NAME, st.integers(0, 11))


MACHINE = Machine(RunState(Library(), Settings(CPU, 8)))
MACHINE.lend(Foreign())


class Place:
    """A group, the thread of each of its rows, and what the thread's names are in plain Python."""

    def __init__(self, group: Group, threads: np.ndarray, models: list[Model]) -> None:
        self.group, self.threads, self.models = group, threads, models

    @property
    def env(self) -> dict[str, Cell]:
        return self.group.env

    def context(self) -> Context:
        return Context(MACHINE.state.services, self.threads)

    def do(self, op: tuple[str, str, str, int]) -> bool:
        """One operation, on the heap and on every model; False where it does not apply."""
        kind, *operands = op
        return getattr(self, f"do_{kind}")(*operands) is not False

    def bind(self, name: str, cell: Cell, made: list[Any]) -> None:
        self.env[name] = cell
        for model, value in zip(self.models, made, strict=True):
            model[name] = value

    def models_of(self, name: str) -> list[Any]:
        return [model[name] for model in self.models]

    def do_tensor(self, x: str, _: str, n: int) -> None:
        whole = torch.arange(float(np.prod(SHAPES[n % 2]))).reshape(SHAPES[n % 2]) + n
        if n % 3 == 0:
            self.bind(x, uniform(whole.clone()), [whole.clone() for _ in self.models])
            return
        rows = [whole + 100.0 * thread for thread in self.threads.tolist()]
        self.bind(x, Cell(Column(torch.stack(rows))), rows)

    def do_number(self, x: str, _: str, n: int) -> None:
        if n % 2:
            self.bind(x, uniform(n), [n for _ in self.models])
            return
        rows = [n + thread for thread in self.threads.tolist()]
        self.bind(x, Cell(Column(torch.tensor(rows), "int", (min(rows), max(rows)))), rows)

    def do_alias(self, x: str, y: str, _: int) -> bool | None:
        if y not in self.env:
            return False
        self.bind(x, self.env[y], self.models_of(y))
        return None

    def do_drop(self, x: str, _: str, __: int) -> bool | None:
        if x not in self.env:
            return False
        del self.env[x]
        for model in self.models:
            del model[x]
        return None

    def do_view(self, x: str, y: str, n: int) -> bool | None:
        function, *rest = VIEWS[n % len(VIEWS)]
        tensors = self.tensors(y)
        if tensors is None or (function is Tensor.t and tensors[0].dim() > 2):
            return False
        if function is operator.getitem and not (tensors[0].dim() and len(tensors[0])):
            return False
        if type(read(self.env[y])) is Objects:
            return False
        args = [self.env[y], *map(uniform, rest)]
        base = read(self.env[y])
        if type(base) is Column:
            out = vmapped.apply(function, (Batched(base.data), *rest), {}, self.group.k)
            made = Cell(Column(out.data))
        else:
            out = function(base.obj, *rest)  # type: ignore[union-attr]
            made = uniform(out)
        cell = views.recorded(function, args, {}, out, made)
        assert type(cell.value) is View
        self.bind(x, cell, [function(tensor, *rest) for tensor in tensors])
        return None

    def tensors(self, name: str) -> list[Tensor] | None:
        """What the models hold under a name if that is tensors."""
        if name not in self.env or not isinstance(self.models[0][name], Tensor):
            return None
        return self.models_of(name)

    def do_list(self, x: str, y: str, n: int) -> None:
        names = [name for place, name in enumerate(NAMES) if n >> place & 1 and name in self.env]
        cells = [self.env[name] for name in names]
        rows = [[model[name] for name in names] for model in self.models]
        self.bind(x, Cell(Container(list, cells)), rows)

    def do_dict(self, x: str, y: str, n: int) -> bool | None:
        if y not in self.env:
            return False
        self.bind(
            x, Cell(Container(dict, {n: self.env[y]})), [{n: item} for item in self.models_of(y)]
        )
        return None

    def do_box(self, x: str, y: str, _: int) -> bool | None:
        if y not in self.env:
            return False
        rows = [types.CellType(item) for item in self.models_of(y)]
        self.bind(x, Cell(Container(BOX, [self.env[y]])), rows)
        return None

    def slots(self, name: str) -> Container | None:
        value = self.env[name].value if name in self.env else None
        return value if type(value) is Container and value.cells else None

    def do_get(self, x: str, y: str, n: int) -> bool | None:
        value = self.slots(y)
        if value is None:
            return False
        place = n % len(value.cells)
        cell = list(value.children())[place]
        self.bind(x, cell, [contents(item)[place] for item in self.models_of(y)])
        return None

    def do_put(self, x: str, y: str, n: int) -> bool | None:
        value = self.slots(x)
        if value is None or y not in self.env:
            return False
        place = n % len(value.cells)
        key = list(value.cells)[place] if isinstance(value.cells, dict) else place
        value.cells[key] = self.env[y]  # type: ignore[index]
        for mine, item in zip(self.models_of(x), self.models_of(y), strict=True):
            if isinstance(mine, types.CellType):
                mine.cell_contents = item
            else:
                mine[key] = item
        return None

    def do_append(self, x: str, y: str, _: int) -> bool | None:
        value = self.env[x].value if x in self.env else None
        if type(value) is not Container or value.type is not list or y not in self.env:
            return False
        value.cells.append(self.env[y])  # type: ignore[union-attr]
        for mine, item in zip(self.models_of(x), self.models_of(y), strict=True):
            mine.append(item)
        return None

    def do_add(self, x: str, _: str, n: int) -> bool | None:
        return self.write(Tensor.add_, x, uniform(n + 1), [n + 1 for _ in self.models])

    def do_add_own(self, x: str, _: str, n: int) -> bool | None:
        rows = [n + 7 * thread for thread in self.threads.tolist()]
        column = Cell(Column(torch.tensor(rows), "int", (min(rows), max(rows))))
        return self.write(Tensor.add_, x, column, rows)

    def write(self, function: Any, x: str, operand: Cell, rows: list[Any]) -> bool | None:
        tensors = self.tensors(x)
        if tensors is None:
            return False
        writes.write(self.context(), function, [self.env[x], operand], {})
        for tensor, row in zip(tensors, rows, strict=True):
            function(tensor, row)
        return None

    def do_set_item(self, x: str, _: str, n: int) -> bool | None:
        tensors = self.tensors(x)
        if tensors is None or tensors[0].dim() == 0 or len(tensors[0]) == 0:
            return False
        index = n % len(tensors[0])
        cells = [self.env[x], uniform(index), uniform(-n)]
        writes.write(self.context(), operator.setitem, cells, {})
        for tensor in tensors:
            tensor[index] = -n
        return None

    def do_set(self, x: str, _: str, n: int) -> bool | None:
        tensors = self.tensors(x)
        if tensors is None or type(read(self.env[x])) is Objects:
            return False
        content: Value = Uniform(torch.full_like(tensors[0], n))
        if n % 2:
            content = Column(torch.stack([tensor * 2 + n for tensor in tensors]))
        writes.set_content(self.env[x], content)
        for tensor in tensors:
            tensor.copy_(tensor * 2 + n if n % 2 else torch.full_like(tensor, n))
        return None

    def do_touch(self, x: str, _: str, __: int) -> bool | None:
        """An unknown call may have changed what it got: it goes on as real objects."""
        if x not in self.env or viewed(self.env.values()):
            return False
        Rower(self.context(), keep=True).rows(self.env[x])
        return None

    def part(self, rows: np.ndarray, names: tuple[str, ...]) -> Place:
        models = [
            {name: self.models[row][name] for name in names if name in self.models[row]}
            for row in rows.tolist()
        ]
        return Place(restricted(self.group, rows, names), self.threads[rows], models)

    def check(self) -> None:
        check_cells(self.env.values(), self.group.k, "the heap")
        rower = Rower(self.context())
        columns = {name: rower.rows(cell) for name, cell in self.env.items()}
        for row, model in enumerate(self.models):
            assert set(columns) == set(model)
            Pairing().same(
                [columns[name][row] for name in NAMES if name in columns],
                [model[name] for name in NAMES if name in columns],
            )


def viewed(roots: Any) -> bool:
    """Whether views are among what the roots reach."""
    seen: dict[int, Cell] = {}
    stack = list(roots)
    while stack:
        cell = stack.pop()
        if id(cell) not in seen:
            seen[id(cell)] = cell
            if type(cell.value) is Container:
                stack += cell.value.children()
    return any(type(cell.value) is View for cell in seen.values())


def contents(item: Any) -> list[Any]:
    if isinstance(item, types.CellType):
        return [item.cell_contents]
    return list(item.values()) if isinstance(item, dict) else list(item)


class Pairing:
    """Walks two object graphs side by side; what is one thing in one must be one in the other."""

    def __init__(self) -> None:
        self.forth: dict[int, int] = {}
        self.back: dict[int, int] = {}

    def same(self, mine: Any, theirs: Any) -> None:
        assert type(mine) is type(theirs), (mine, theirs)
        if mine is None or isinstance(mine, int):
            assert mine == theirs
            return
        known = self.forth.setdefault(id(mine), id(theirs))
        assert known == id(theirs), "one thing in the heap, two in Python"
        known = self.back.setdefault(id(theirs), id(mine))
        assert known == id(mine), "two things in the heap, one in Python"
        if isinstance(mine, Tensor):
            assert mine.dtype == theirs.dtype
            assert torch.equal(mine, theirs), (mine, theirs)
            return
        if isinstance(mine, dict):
            assert list(mine) == list(theirs)
        left, right = contents(mine), contents(theirs)
        assert len(left) == len(right)
        for pair in zip(left, right, strict=True):
            self.same(*pair)


def acyclic(place: Place) -> bool:
    """Structures without an end would be walked for ever by the checks above."""

    def visit(cell: Cell, above: tuple[int, ...]) -> bool:
        if id(cell) in above:
            return False
        value = cell.value
        if type(value) is not Container:
            return True
        return all(visit(child, (*above, id(cell))) for child in value.children())

    return all(visit(cell, ()) for cell in place.env.values())


def reaches(place: Place, start: str, goal: str) -> bool:
    """Whether ``goal`` is found within ``start``: to put ``start`` into it would be a cycle."""
    if start not in place.env or goal not in place.env:
        return False
    stack, seen = [place.env[start]], set()
    while stack:
        cell = stack.pop()
        if cell is place.env[goal]:
            return True
        if id(cell) not in seen and type(cell.value) is Container:
            seen.add(id(cell))
            stack += cell.value.children()
    return False


def cyclic(place: Place, op: tuple[str, str, str, int]) -> bool:
    return op[0] in ("put", "append") and reaches(place, op[2], op[1])


def built(threads: np.ndarray, ops: list[Any]) -> Place:
    place = Place(Group(threads, {}), threads, [{} for _ in threads])
    for op in ops:
        if not cyclic(place, op):
            place.do(op)
    return place
