"""The heap, held to a model: every thread has a real Python object graph of its own.

A machine of hypothesis makes values, aliases and views of them, puts them into containers, writes
through any name, parts groups, lets them meet, and calls. After each step every thread must see
in the heap what its model sees: values, types, and which names are one thing.
"""

from __future__ import annotations

import operator
import types
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from torch import Tensor

from autobatch.batching import views, vmapped, writes
from autobatch.batching.context import Context
from autobatch.batching.levels import Batched
from autobatch.batching.rows import Rower
from autobatch.vm import heap
from autobatch.vm.calling import KEPT, Returned, carry, settled
from autobatch.vm.groups import CARRIED, Group, coalesced, restricted
from autobatch.vm.invariants import check_cells
from autobatch.vm.library import Library
from autobatch.vm.queue import key_of
from autobatch.vm.stackless import Machine, Settings
from autobatch.vm.values import (
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


MACHINE = Machine(Library(), Settings(CPU, 8))


class Place:
    """A group, the thread of each of its rows, and what the thread's names are in plain Python."""

    def __init__(self, group: Group, threads: np.ndarray, models: list[Model]) -> None:
        self.group, self.threads, self.models = group, threads, models

    @property
    def env(self) -> dict[str, Cell]:
        return self.group.env

    def context(self) -> Context:
        return MACHINE.context(self.threads, None)

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


class HeapMachine(RuleBasedStateMachine):
    """Groups of one frame; each thread is in one of them."""

    @initialize(k=st.integers(1, 4), ops=st.lists(OP, min_size=3, max_size=10))
    def begin(self, k: int, ops: list[Any]) -> None:
        start = [("tensor", "a", "a", 1), ("view", "b", "a", 0), ("list", "c", "c", 3)]
        self.places = [built(np.arange(k), start + ops)]

    def place(self, number: int) -> Place:
        return self.places[number % len(self.places)]

    @rule(number=st.integers(0, 7), op=OP)
    def operate(self, number: int, op: tuple[str, str, str, int]) -> None:
        place = self.place(number)
        if cyclic(place, op):
            return
        place.do(op)

    @rule(op=OP)
    def operate_everywhere(self, op: tuple[str, str, str, int]) -> None:
        for place in self.places:
            if not cyclic(place, op):
                place.do(op)

    @rule(number=st.integers(0, 7), mask=st.integers(1, 14), dead=st.sets(NAME, max_size=2))
    def part(self, number: int, mask: int, dead: set[str]) -> None:
        """A branch: each side keeps what lives there, and only one side lacks ``dead``."""
        place = self.place(number)
        taken = np.array([bool(mask >> thread & 1) for thread in place.threads.tolist()])
        if taken.all() or not taken.any():
            return
        live = tuple(name for name in NAMES if name not in dead)
        parts = [
            place.part(np.flatnonzero(taken), live),
            place.part(np.flatnonzero(~taken), NAMES),
        ]
        self.places = [other for other in self.places if other is not place] + parts

    @rule(one=st.integers(0, 7), two=st.integers(0, 7))
    def meet(self, one: int, two: int) -> None:
        mine, theirs = self.place(one), self.place(two)
        if mine is theirs or key_of(mine.group, NAMES) != key_of(theirs.group, NAMES):
            return
        group = coalesced([mine.group, theirs.group], NAMES, CPU)
        threads = np.concatenate([mine.threads, theirs.threads])
        merged = Place(group, threads, mine.models + theirs.models)
        others = [other for other in self.places if other not in (mine, theirs)]
        self.places = [*others, merged]

    @rule(number=st.integers(0, 7))
    def settle(self, number: int) -> None:
        heap.settle(list(self.place(number).env.values()))

    @rule(
        number=st.integers(0, 7),
        args=st.tuples(NAME, NAME),
        mask=st.integers(0, 15),
        bodies=st.tuples(st.lists(OP, max_size=4), st.lists(OP, max_size=4)),
        result=NAME,
        out=NAME,
        again=st.booleans(),
    )
    def call(
        self,
        number: int,
        args: tuple[str, str],
        mask: int,
        bodies: tuple[list[Any], list[Any]],
        result: str,
        out: str,
        again: bool,
    ) -> None:
        """A call whose threads part, do different things, and return as one group or as two."""
        place = self.place(number)
        if not all(arg in place.env for arg in args):
            return
        params = dict(zip(("a", "b"), args, strict=True))
        env = {param: place.env[arg] for param, arg in params.items()}
        kept = [cell for name, cell in place.env.items() if name != out]
        carried = carry(env.values(), kept)
        env[CARRIED] = Cell(Container(tuple, carried))
        models = [{p: model[arg] for p, arg in params.items()} for model in place.models]
        callee = Place(Group(np.arange(place.group.k), env), place.threads, models)
        pieces, returned = self.body(callee, mask, bodies, result, again)
        pieces = settled(pieces, carried, place.group.k)
        values = dict(returned)
        rows = [(piece.rows, resumed(place, piece, len(pieces))) for piece in pieces]
        parts = []
        for numbers, group in rows:
            own = [place.models[row] for row in numbers.tolist()]
            for model, row in zip(own, numbers.tolist(), strict=True):
                model[out] = values[row]
            group.env[out] = group.env.pop("%out")
            parts.append(Place(group, place.threads[numbers], own))
        self.places = [other for other in self.places if other is not place] + parts

    def body(
        self, callee: Place, mask: int, bodies: Any, result: str, again: bool
    ) -> tuple[list[Returned], list[tuple[int, Any]]]:
        taken = np.array([bool(mask >> thread & 1) for thread in callee.threads.tolist()])
        sides = [callee]
        if taken.any() and not taken.all():
            names = (*NAMES, CARRIED)
            sides = [callee.part(np.flatnonzero(side), names) for side in (taken, ~taken)]
        for side, ops in zip(sides, bodies, strict=False):
            for op in ops:
                if not cyclic(side, op):
                    side.do(op)
        if again and len(sides) == 2:
            sides = met(sides)
        pieces, values = [], []
        for side in sides:
            name = result if result in side.env else "a" if "a" in side.env else None
            cell = side.env[name] if name else uniform(None)
            pieces.append(Returned(side.group.rows, cell, list(side.env[CARRIED].value.children())))
            rows = side.group.rows.tolist()
            values += [
                (row, m[name] if name else None) for row, m in zip(rows, side.models, strict=True)
            ]
        return pieces, values

    @invariant()
    def threads_see_their_own(self) -> None:
        for place in getattr(self, "places", []):
            assert acyclic(place)
            place.check()


def met(sides: list[Place]) -> list[Place]:
    """Sides of a branch that meet again before they return, second side first."""
    names = (*NAMES, CARRIED)
    if key_of(sides[0].group, names) != key_of(sides[1].group, names):
        return sides
    sides = sides[::-1]
    group = coalesced([side.group for side in sides], names, CPU)
    threads = np.concatenate([side.threads for side in sides])
    return [Place(group, threads, sides[0].models + sides[1].models)]


def resumed(place: Place, piece: Returned, count: int) -> Group:
    """The caller's threads after the call, as the engine lets them go on."""
    group = place.group
    if count > 1 or len(piece.rows) < group.k:
        group.env[KEPT] = Cell(Container(tuple, list(piece.originals)))
        group = restricted(group, piece.rows, [*NAMES, KEPT])
        piece.settle(list(group.env.pop(KEPT).value.children()))  # type: ignore[union-attr]
    group.env["%out"] = piece.value
    return group


TestHeapMachine = pytest.mark.filterwarnings("ignore")(HeapMachine.TestCase)
TestHeapMachine.settings = settings(
    max_examples=300,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def built(threads: np.ndarray, ops: list[Any]) -> Place:
    place = Place(Group(threads, {}), threads, [{} for _ in threads])
    for op in ops:
        if not cyclic(place, op):
            place.do(op)
    return place


@settings(max_examples=150, deadline=None, derandomize=True)
@given(ops=st.lists(OP, max_size=12), sizes=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_the_same_history_gives_alike_groups(ops: list[Any], sizes: tuple[int, int]) -> None:
    """``alike`` is useful: what two groups did alike lets them meet."""
    first, total = sizes[0], sum(sizes)
    mine, theirs = built(np.arange(first), ops), built(np.arange(first, total), ops)
    assert key_of(mine.group, NAMES) == key_of(theirs.group, NAMES)
    group = coalesced([mine.group, theirs.group], NAMES, CPU)
    Place(group, np.arange(total), mine.models + theirs.models).check()


def key_after(*ops: tuple[str, str, str, int]) -> Any:
    return heap.alike(built(np.arange(2), list(ops)).env.values())


UNLIKE_HISTORIES = {
    "two shapes": ([("tensor", "a", "a", 1)], [("tensor", "a", "a", 2)]),
    "a number and a tensor": ([("number", "a", "a", 2)], [("tensor", "a", "a", 1)]),
    "one list or two": (
        [("list", "a", "a", 0), ("alias", "b", "a", 0)],
        [("list", "a", "a", 0), ("list", "b", "a", 0)],
    ),
    "one tensor or two": (
        [("tensor", "a", "a", 1), ("alias", "b", "a", 0)],
        [("tensor", "a", "a", 1), ("tensor", "b", "a", 1)],
    ),
    "another view": (
        [("tensor", "a", "a", 2), ("view", "b", "a", 0)],
        [("tensor", "a", "a", 2), ("view", "b", "a", 1)],
    ),
    "a view of another": (
        [("tensor", "a", "a", 2), ("tensor", "b", "b", 2), ("view", "c", "a", 0)],
        [("tensor", "a", "a", 2), ("tensor", "b", "b", 2), ("view", "c", "b", 0)],
    ),
    "another key": (
        [("number", "b", "b", 1), ("dict", "a", "b", 1)],
        [("number", "b", "b", 1), ("dict", "a", "b", 2)],
    ),
}


@pytest.mark.parametrize("case", UNLIKE_HISTORIES)
def test_unlike_heaps_have_different_keys(case: str) -> None:
    one, two = UNLIKE_HISTORIES[case]
    assert key_after(*one) != key_after(*two)


def test_uniforms_are_alike_by_type_and_bits() -> None:
    def key(obj: Any) -> Any:
        return heap.alike([uniform(obj)])

    assert key(0.0) == key(-0.0) == heap.alike([Cell(Column(torch.zeros(2).double(), "float"))])
    assert key(1) != key(True) != key(1.0)
    assert key("x") == key("x") != key("y")
    assert key(2**70) == key(2**70) != key(2**71)
    assert key((1, "a")) == key((1, "a")) != key((True, "a"))
    assert key(None) != key(0)
    dicts = [Cell(Container(dict, {key: uniform(0)})) for key in (1, True, 1.0)]
    assert len({heap.alike([cell]) for cell in dicts}) == 3


def test_uniforms_stay_uniform_where_they_are_the_same() -> None:
    weight = torch.ones(2)

    def merged(*objs: Any) -> Value:
        return heap.merge([[uniform(obj)] for obj in objs], [1] * len(objs), CPU)[0].value

    kept = merged(weight, weight)
    assert type(kept) is Uniform and kept.obj is weight
    parted = merged(weight, weight.clone())
    assert type(parted) is Column and parted.data.shape == (2, 2)
    zeros = merged(0.0, -0.0)
    assert type(zeros) is Column and zeros.data.signbit().tolist() == [False, True]
    counts = merged(3, 5)
    assert type(counts) is Column and counts.bounds == (3, 5)


def test_a_split_leaves_the_other_side_as_it_was() -> None:
    """A side on which the base of a view is dead does not part view and base on the other."""
    place = built(np.arange(2), [("tensor", "a", "a", 1), ("view", "b", "a", 0)])
    one, other = place.part(np.array([0]), ("b",)), place.part(np.array([1]), NAMES)
    assert type(one.env["b"].value) is Column
    for side in (one, other):
        side.do(("add", "b", "b", 1))
        side.check()


@pytest.mark.parametrize("dead", NAMES[:3])
def test_a_chain_of_views_stays_one(dead: str) -> None:
    """What lies between a view and its base may die; the view still writes the base."""
    history = [("tensor", "a", "a", 2), ("view", "b", "a", 0), ("view", "c", "b", 1)]
    place = built(np.arange(3), history)
    part = place.part(np.array([0, 2]), tuple(name for name in NAMES if name != dead))
    for name in ("a", "b", "c"):
        part.do(("add_own", name, name, 1))
        part.check()
