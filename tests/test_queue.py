"""The queue of waiting blocks, held to a model, and where numbers join tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import autobatch
from autobatch.batching.context import Context
from autobatch.batching.foreign import Foreign
from autobatch.batching.host.rower import Rower
from autobatch.values.cells import Cell, Column, Container, Objects, Uniform, uniform
from autobatch.values.heap import likeness
from autobatch.vm.groups import CARRIED, Group
from autobatch.vm.library import Library
from autobatch.vm.queue import UNLIKE, Waiting, are_plain_pair, key_of
from autobatch.vm.reconciling import joined_value
from autobatch.vm.stackless import Machine
from autobatch.vm.state import RunState, Settings

CPU = torch.device("cpu")
LIVE = (("x",), ("x", "y"), ("x", "y"), ("x",), ("y",), ("x", "y", CARRIED))
MACHINE = Machine(RunState(Library(), Settings(CPU, 4096)))
MACHINE.lend(Foreign())


def objectify(group: Group, names: Sequence[str]) -> None:
    rower = Rower(Context(MACHINE.state.services, group.rows), keep=True)
    for name in names:
        group.env[name] = Cell(Objects(rower.rows(group.env[name])))


def queue() -> Waiting:
    return Waiting(LIVE, CPU, objectify)


def group(rows: Any, **env: Cell) -> Group:
    return Group(np.array(rows, dtype=np.int64), env)


def of_kind(rows: list[int], kind: int) -> Group:
    """A group that is alike those of the same kind: a tensor's event shape says which."""
    x = torch.tensor(rows, dtype=torch.float64)
    shaped = x.reshape(-1, *[1] * (kind + 1)).expand(-1, *[kind + 1] * (kind + 1))
    return group(rows, x=Cell(Column(shaped)), y=Cell(Column(torch.tensor(rows), "int")))


@dataclass
class Lot:
    """What the model keeps of alike groups that wait at one block."""

    kind: int
    rows: list[int]


class Model:
    """Blocks with lots in the order in which they began to wait."""

    def __init__(self) -> None:
        self.places: dict[int, list[Lot]] = {}

    def add(self, pc: int, rows: list[int], kind: int) -> None:
        if not rows:
            return
        place = self.places.setdefault(pc, [])
        for lot in place:
            if lot.kind == kind:
                lot.rows += rows
                return
        place.append(Lot(kind, list(rows)))

    def pop(self) -> tuple[int, list[int]]:
        pc = min(self.places)
        lot = self.places[pc].pop(0)
        if not self.places[pc]:
            del self.places[pc]
        return pc, lot.rows


PCS, KINDS, SIZES = st.integers(0, 3), st.integers(0, 4), st.integers(0, 3)
ADD = st.tuples(st.just("add"), PCS, KINDS, SIZES)
STEP = st.tuples(st.just("step"), st.lists(st.tuples(PCS, KINDS, SIZES), max_size=2))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(script=st.lists(st.one_of(ADD, STEP, st.just(("pop",))), max_size=30))
def test_the_queue_does_what_its_model_does(script: list[Any]) -> None:
    waiting, model, fresh = queue(), Model(), iter(range(10_000))

    def taken(size: int) -> list[int]:
        return [next(fresh) for _ in range(size)]

    for kind, *operands in script:
        if kind == "add":
            pc, likeness, size = operands
            rows = taken(size)
            waiting.add(pc, of_kind(rows, likeness))
            model.add(pc, rows, likeness)
        elif kind == "pop" and model.places:
            same(waiting.pop(), model.pop())
        elif kind == "step":
            parts = [(pc, taken(size), likeness) for pc, likeness, size in operands[0]]
            got = waiting.next([(pc, of_kind(rows, like)) for pc, rows, like in parts])
            step_like(model, got, parts)
        assert bool(waiting) == bool(model.places)
        if waiting:
            assert waiting.counters[0] == min(model.places)
    while model.places:
        same(waiting.pop(), model.pop())
    assert not waiting and not waiting.counters and not waiting.places


def step_like(model: Model, got: Any, parts: list[tuple[int, list[int], int]]) -> None:
    """``next`` is adding the parts and popping; of two at one block either may come first."""
    if len(parts) == 2 and parts[0][0] == parts[1][0] and parts[0][2] != parts[1][2]:
        here = model.places.get(parts[0][0], [])
        if not here and got is not None and set(got[1].rows.tolist()) & set(parts[1][1]):
            parts = parts[::-1]
        elif not any(lot.kind in (parts[0][2], parts[1][2]) for lot in here):
            parts = [parts[1], parts[0]]  # the second is queued while the first is held ready
    for part in parts:
        model.add(*part)
    if not model.places:
        assert got is None
        return
    same(got, model.pop())


def same(got: tuple[int, Group], want: tuple[int, list[int]]) -> None:
    pc, group = got
    assert pc == want[0]
    assert sorted(group.rows.tolist()) == sorted(want[1])
    assert set(group.env) == set(LIVE[pc])
    for cell in group.env.values():
        data = cell.value.data.reshape(group.k, -1)[:, 0]
        assert data.tolist() == group.rows.tolist(), "rows left their threads"


def test_the_smallest_program_counter_runs_first() -> None:
    waiting = queue()
    for pc in (3, 1, 2):
        waiting.add(pc, of_kind([pc], 0))
    assert [waiting.pop()[0] for _ in range(3)] == [1, 2, 3]


def test_a_group_that_goes_on_alone_never_waits() -> None:
    waiting = queue()
    waiting.add(3, of_kind([0], 0))
    going = of_kind([1], 0)
    got = waiting.next([(1, going)])
    assert got is not None and got[1] is going and list(waiting.places) == [3]


def test_empty_groups_never_wait() -> None:
    waiting = queue()
    waiting.add(0, of_kind([], 0))
    assert not waiting and waiting.next([(0, of_kind([], 0))]) is None


def test_alike_groups_coalesce_around_an_unlike_one() -> None:
    waiting = queue()
    for rows, kind in (([0], 0), ([1], 1), ([2], 0)):
        waiting.add(0, of_kind(rows, kind))
    assert [waiting.pop()[1].rows.tolist() for _ in range(2)] == [[0, 2], [1]]


def test_only_live_variables_wait() -> None:
    waiting = queue()
    waiting.add(4, of_kind([0], 0))
    assert set(waiting.pop()[1].env) == {"y"}


def lists_of(length: int, row: int) -> Cell:
    return Cell(Container(list, [uniform(row) for _ in range(length)]))


def words(length: int, row: int) -> Cell:
    """Lists that are unlike unless they are as long, and hold the same."""
    return Cell(Container(list, [uniform(str(row)) for _ in range(length)]))


def test_too_many_unlike_groups_go_on_with_objects() -> None:
    """One more than ``UNLIKE``: what they differ in becomes objects, the rest stays as it is."""
    waiting = queue()
    for row in range(UNLIKE):
        waiting.add(1, group([row], x=words(row, row), y=uniform(row)))
    assert len(waiting.places[1]) == UNLIKE  # type: ignore[arg-type]
    waiting.add(1, group([UNLIKE], x=words(UNLIKE, UNLIKE), y=uniform(UNLIKE)))
    pc, got = waiting.pop()
    assert not waiting and pc == 1 and got.k == UNLIKE + 1
    x, y = got.env["x"].value, got.env["y"].value
    assert type(x) is Objects and type(y) is Column
    assert x.items == [[str(row)] * row for row in got.rows.tolist()]
    assert y.data.tolist() == got.rows.tolist()


def test_what_is_carried_stays_a_cell_of_the_callers() -> None:
    """The caller's cells move on one by one, also where they become objects."""
    waiting = queue()
    for row in range(UNLIKE + 1):
        mine, other = words(row, row), lists_of(2, row)
        carried = Cell(Container(tuple, [mine, other]))
        env = {"x": mine, "y": uniform(row), CARRIED: carried}
        waiting.add(5, Group(np.array([row]), env))
    _, got = waiting.pop()
    assert not waiting
    value = got.env[CARRIED].value
    assert type(value) is Container
    first, second = value.children()
    assert type(first.value) is Objects and type(second.value) is Container
    x = got.env["x"].value
    assert type(x) is Objects
    assert all(a is b for a, b in zip(x.items, first.value.items, strict=True))


F32, F64, I64, I32 = torch.float32, torch.float64, torch.int64, torch.int32


def ints(*values: int) -> Column:
    return Column(torch.tensor(values), "int", (min(values), max(values)))


JOINS: list[tuple[Any, torch.dtype, bool]] = [
    (Uniform(0.0), F32, True),
    (Uniform(0.5), F32, True),
    (Uniform(0.1), F32, False),  # float32 does not hold it
    (Uniform(0.1), F64, True),
    (Uniform(float("nan")), F32, True),
    (Uniform(float("inf")), F32, True),
    (Uniform(3), F32, True),
    (Uniform(2**24 + 1), F32, False),
    (Uniform(3), I64, True),
    (Uniform(3), torch.float16, True),
    (Uniform(2.5), torch.float16, False),  # by itself it stacks as float32
    (Uniform(2**40), I32, False),
    (Uniform(2**70), I64, False),
    (Uniform(0.0), I64, False),  # a float divides and prints as no integer does
    (Uniform(1), torch.bool, False),  # True + True is True among tensors
    (Uniform(True), torch.bool, True),
    (Uniform(True), F32, False),
    (Uniform(3), torch.complex64, True),
    (Uniform(None), F32, False),
    (Uniform("s"), F32, False),
    (ints(1, 5), F32, True),
    (ints(1, 2**30), F32, False),
    (ints(1, 5), I32, False),  # its tensors wrap where Python ints do not
    (ints(1, 2**40), I32, False),
    (ints(1, 2**40), I64, True),
    (Column(torch.tensor([1, 2]), "int"), F32, False),  # nothing is known of their size
    (Column(torch.tensor([1, 2]), "int"), I64, True),
    (Column(torch.tensor([0.5]).double(), "float"), F64, True),
    (Column(torch.tensor([0.5]).double(), "float"), F32, False),
    (Column(torch.tensor([True]), "bool"), torch.bool, True),
    (Column(torch.tensor([True]), "bool"), I64, False),
    (Objects([1, 2]), F32, False),
]


@pytest.mark.parametrize("value, dtype, joins", JOINS)
def test_a_number_joins_a_tensor_that_holds_it(value: Any, dtype: torch.dtype, joins: bool) -> None:
    got = joined_value(value, torch.zeros((), dtype=dtype))
    assert (got is not None) == joins
    if got is not None:
        data = got.data if type(got) is Column else got.obj  # type: ignore[union-attr]
        assert isinstance(data, Tensor) and data.dtype == dtype
        want = value.data if type(value) is Column else torch.tensor(value.obj, dtype=dtype)
        assert torch.equal(data, want.to(dtype)) or value.obj != value.obj


def scalar(dtype: torch.dtype = F32) -> Cell:
    return Cell(Column(torch.zeros(1, dtype=dtype)))


@pytest.mark.parametrize("number_first", [True, False])
def test_an_accumulator_meets_its_tensors(number_first: bool) -> None:
    waiting = queue()
    parts = [group([0], x=uniform(0.0)), group([1], x=scalar())]
    for part in parts if number_first else parts[::-1]:
        waiting.add(0, part)
    _, got = waiting.pop()
    value = got.env["x"].value
    assert not waiting and type(value) is Column and value.tag == "tensor"
    assert value.data.dtype == F32


@pytest.mark.parametrize("number_first", [True, False])
def test_a_number_stays_one_where_more_keeps_groups_apart(number_first: bool) -> None:
    """Joining is for groups that meet by it: else a thread's type would change for nothing."""
    waiting = queue()
    number = group([0], x=uniform(0.0), y=uniform(None))
    tensor = group([1], x=scalar(), y=scalar())
    for part in (number, tensor) if number_first else (tensor, number):
        waiting.add(1, part)
    seen = [waiting.pop()[1] for _ in range(2)]
    assert not waiting
    assert number in seen and number.env["x"].value.obj == 0.0  # type: ignore[union-attr]


def test_one_of_several_waiting_numbers_may_not_fit() -> None:
    """Alike numbers wait together; if one does not fit the tensor, none of them joins."""
    waiting = queue()
    for row, number in enumerate((0.0, 0.1)):
        waiting.add(0, group([row], x=uniform(number)))
    waiting.add(0, group([2], x=scalar()))
    numbers, tensor = waiting.pop()[1], waiting.pop()[1]
    assert numbers.rows.tolist() == [0, 1] and tensor.rows.tolist() == [2]
    assert numbers.env["x"].value.tag == "float"  # type: ignore[union-attr]


def test_waiting_keeps_its_turn_when_it_joins() -> None:
    waiting = queue()
    waiting.add(0, group([0], x=uniform(0.0)))
    waiting.add(0, group([1], x=uniform("text")))
    waiting.add(0, group([2], x=scalar()))
    assert [waiting.pop()[1].rows.tolist() for _ in range(2)] == [[0, 2], [1]]


def test_keys_name_the_variables_that_are_bound() -> None:
    one, two = group([0], x=uniform(0)), group([1], y=uniform(0))
    assert key_of(one, ("x", "y")) != key_of(two, ("x", "y"))


def rows_from(start: int, k: int) -> range:
    return range(start, start + k)


def of_state(rows: range, state: Tensor, own: bool) -> Group:
    """A group whose ``x`` is one tensor for all threads, or a row of it for each."""
    value = Column(state.expand(len(rows), -1).clone()) if own else Uniform(state)
    return group(rows, x=Cell(value))


@pytest.mark.parametrize(("k", "apart"), [(1023, False), (1024, True)])
@pytest.mark.parametrize("own_first", [False, True])
def test_a_large_tensor_for_all_threads_stays_one(k: int, apart: bool, own_first: bool) -> None:
    waiting, state = queue(), torch.arange(16.0)
    for number in range(4):  # one for all threads, rows, one for all threads, rows
        own = (number % 2 == 0) is own_first
        waiting.add(0, of_state(rows_from(number * k, k), state, own))
    found = [waiting.pop()[1] for _ in range(2 if apart else 1)]
    assert not waiting
    assert sum(each.k for each in found) == 4 * k
    kinds = {type(each.env["x"].value) for each in found}
    assert kinds == ({Uniform, Column} if apart else {Column})


def test_too_many_groups_make_large_tensors_columns_first() -> None:
    waiting = Waiting((tuple("abcd"),), CPU, objectify)
    for number in range(16):  # each of the four one for all threads, or rows, in every combination
        cells = [
            of_state(rows_from(number * 1024, 1024), torch.arange(16.0), bool(number >> bit & 1))
            for bit in range(4)
        ]
        env = {name: cell.env["x"] for name, cell in zip("abcd", cells, strict=True)}
        waiting.add(0, group(rows_from(number * 1024, 1024), **env))
    found: list[Group] = []
    while waiting:
        found.append(waiting.pop()[1])
    assert sum(each.k for each in found) == 16 * 1024
    assert len(found) <= UNLIKE
    assert not any(type(c.value) is Objects for each in found for c in each.env.values())
    for each in found:
        for cell in each.env.values():
            given = cell.value.data if type(cell.value) is Column else cell.value.obj[None]  # type: ignore[union-attr]
            assert torch.equal(given, torch.arange(16.0).expand(len(given), -1))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_an_int_joins_no_tensor_that_wraps_where_it_does_not(
    dtype: torch.dtype, engine: Literal["stackless", "program_counter"]
) -> None:
    def scaled(x: Tensor) -> tuple[int, int]:
        a: Any = 3
        if x > 5:
            a = x
        return int(a - 5), int(a * 2**12)

    xs = torch.tensor([1, 2, 9], dtype=dtype)
    want = [scaled(x) for x in xs]
    got = autobatch.vmap(scaled, engine=engine)(xs)
    assert [tuple(row) for row in zip(*(part.tolist() for part in got), strict=True)] == want


@pytest.mark.parametrize(
    ("mine", "its", "plain"),
    [(1, 2, True), (1.5, 1.5, True), (1, True, False), (1, 2.0, False), (1, 2**70, False)],
)
def test_numbers_of_one_type_are_plainly_alike(mine: object, its: object, plain: bool) -> None:
    """What threads leave a loop with, round after round: a counter that all share."""
    one, other = Uniform(mine), Uniform(its)
    assert are_plain_pair(one, other) is plain
    assert not plain or likeness.alike([Cell(one)]) == likeness.alike([Cell(other)])
