"""The heap, held to a model: every thread has a real Python object graph of its own.

A machine of hypothesis makes values, aliases and views of them, puts them into containers, writes
through any name, parts groups, lets them meet, and calls. After each step every thread must see
in the heap what its model sees: values, types, and which names are one thing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from autobatch.batching.lent import Lent
from autobatch.values.cells import Cell, Column, Container, Uniform, Value, uniform
from autobatch.values.heap import likeness, merging, selecting, walks
from autobatch.vm.calling import KEPT, Returned, carry, settled
from autobatch.vm.groups import CARRIED, Group, coalesced, restricted
from autobatch.vm.queue import key_of
from tests.heap_model import CPU, NAME, NAMES, OP, Place, acyclic, built, cyclic


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
        walks.settle(list(self.place(number).env.values()))

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
        carried = carry(env.values(), kept, Lent(), lambda: False)
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
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ops=st.lists(OP, max_size=12), sizes=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_the_same_history_gives_alike_groups(ops: list[Any], sizes: tuple[int, int]) -> None:
    """``alike`` is useful: what two groups did alike lets them meet."""
    first, total = sizes[0], sum(sizes)
    mine, theirs = built(np.arange(first), ops), built(np.arange(first, total), ops)
    assert key_of(mine.group, NAMES) == key_of(theirs.group, NAMES)
    group = coalesced([mine.group, theirs.group], NAMES, CPU)
    Place(group, np.arange(total), mine.models + theirs.models).check()


def key_after(*ops: tuple[str, str, str, int]) -> Any:
    return likeness.alike(built(np.arange(2), list(ops)).env.values())


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
        return likeness.alike([uniform(obj)])

    assert key(0.0) == key(-0.0) == likeness.alike([Cell(Column(torch.zeros(2).double(), "float"))])
    assert key(1) != key(True) != key(1.0)
    assert key("x") == key("x") != key("y")
    assert key(2**70) == key(2**70) != key(2**71)
    assert key((1, "a")) == key((1, "a")) != key((True, "a"))
    assert key(None) != key(0)
    dicts = [Cell(Container(dict, {key: uniform(0)})) for key in (1, True, 1.0)]
    assert len({likeness.alike([cell]) for cell in dicts}) == 3


def test_uniforms_stay_uniform_where_they_are_the_same() -> None:
    weight = torch.ones(2)

    def merged(*objs: Any) -> Value:
        return merging.merge([[uniform(obj)] for obj in objs], [1] * len(objs), CPU)[0].value

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


@pytest.mark.parametrize("leaves", ["tensor", "tuple", "empty tuple", "one tensor twice"])
def test_rows_taken_several_times(leaves: str) -> None:
    """``several`` is ``select`` for each of the parts."""
    one, other = (Cell(Column(torch.randn(5, 2))) for _ in range(2))
    cells = {"tensor": [], "tuple": [one, other], "empty tuple": [], "one tensor twice": [one, one]}
    root = one if leaves == "tensor" else Cell(Container(tuple, cells[leaves]))
    parts = [np.array([4, 0]), np.array([1, 2, 3])]
    for found, rows in zip(selecting.several(root, parts), parts, strict=True):
        (wanted,) = selecting.select([root], rows)
        pairs = [(found, wanted)]
        if leaves != "tensor":
            mine, theirs = found.value.children(), wanted.value.children()  # type: ignore[union-attr]
            pairs = list(zip(mine, theirs, strict=True))
            assert len({id(cell) for cell, _ in pairs}) == len(set(map(id, cells[leaves])))
        for a, b in pairs:
            torch.testing.assert_close(a.value.table, b.value.table, rtol=0, atol=0)  # type: ignore[union-attr]


@pytest.mark.parametrize("dead", NAMES[:3])
def test_a_chain_of_views_stays_one(dead: str) -> None:
    """What lies between a view and its base may die; the view still writes the base."""
    history = [("tensor", "a", "a", 2), ("view", "b", "a", 0), ("view", "c", "b", 1)]
    place = built(np.arange(3), history)
    part = place.part(np.array([0, 2]), tuple(name for name in NAMES if name != dead))
    for name in ("a", "b", "c"):
        part.do(("add_own", name, name, 1))
        part.check()
