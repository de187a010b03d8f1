"""Structures in and out: every registered pytree, dataclasses, tensordict's ``TensorDict``."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import autobatch
from tests.oracle import CONFIGURATIONS, assert_matches_loop

XS = torch.tensor([1.0, -2.0, 0.5, 3.0])
EVERY = pytest.mark.parametrize("options", CONFIGURATIONS, ids=lambda options: str(options))


@dataclass
class State:
    x: Any
    count: int = 0


@dataclass(frozen=True, slots=True)
class Frozen:
    total: Any
    twice: Any = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", self.total * 2)


@dataclass
class Nested:
    state: State
    parts: dict[str, Any]
    name: str = "none"


@dataclass
class Tree:
    value: Any
    left: Tree | None = None


class Pair(NamedTuple):
    first: Any
    second: Any


def halved(x):
    n = 0
    while x > 1:
        x = x / 2
        n += 1
    return x, n


def to_ordered(x):
    y, n = halved(x)
    return OrderedDict(y=y, n=n)


def to_default(x):
    y, n = halved(x)
    table = defaultdict(list)
    table["y"] = y
    table["n"] += [n, y]
    return table


def to_deque(x):
    made = deque([x], maxlen=3)
    if x > 1:
        made.appendleft(x * 2)
    else:
        made.append(x - 1)
    return made


def to_named(x):
    return Pair(*halved(x))


def to_state(x):
    state = State(x)
    while state.x > 1:
        state.x = state.x / 2
        state.count += 1
    return state


def to_frozen(x):
    return Frozen(halved(x)[0])


def to_nested(x):
    y, n = halved(x)
    if n:
        return Nested(State(y, n), {"y": y, "all": [x, y]}, "halved")
    return Nested(State(y), {"all": [x, x], "y": y})


def to_either(x):
    return {"a": x, "b": [x, 1]} if x > 0 else {"b": [x, 2], "a": x * 2}


PROGRAMS = [
    to_ordered,
    to_default,
    to_deque,
    to_named,
    to_state,
    to_frozen,
    to_nested,
    to_either,
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_one_structure_with_stacked_leaves(program):
    assert_matches_loop(program, (XS,), batch_sizes=(1, 4), chunk_sizes=(None, 3))


def test_a_dataclass_of_the_results_is_made_without_its_own_code():
    made = autobatch.vmap(to_frozen)(XS)
    assert type(made) is Frozen
    assert torch.equal(made.twice, made.total * 2)


def test_gradients_go_through_the_leaves_of_a_dataclass():
    xs = XS.clone().requires_grad_()
    autobatch.vmap(to_state)(xs).x.sum().backward()
    assert xs.grad is not None
    assert torch.equal(xs.grad, torch.tensor([1.0, 1.0, 1.0, 0.25]))


def to_unlike(x):
    if x > 0:
        return State(x)
    return Pair(x, 1)


def to_log(x):
    log = [x, x] if x > 0 else [x]
    return State(x, log)  # type: ignore[arg-type]


@EVERY
def test_dataclasses_and_others_are_told_apart(options):
    with pytest.raises(autobatch.StackingError) as caught:
        autobatch.vmap(to_unlike, **options)(XS)
    text = str(caught.value)
    assert "here a Pair with first, second" in text or "here a State with x, count" in text
    assert "return State(x)" in text or "return Pair(x, 1)" in text


def test_the_place_in_a_dataclass_is_told():
    with pytest.raises(autobatch.StackingError, match=r"a list of 2 at result\.count"):
        autobatch.vmap(to_log)(XS)


def grown(x):
    tree = Tree(x)
    while tree.value > 1:
        tree = Tree(tree.value / 2, tree)
    return tree


@EVERY
def test_nodes_of_trees_are_objects(options):
    trees = autobatch.vmap(grown, **options)(XS)
    assert [tree == grown(x) for tree, x in zip(trees, XS, strict=True)] == [True] * 4


@dataclass
class Registered:
    """A type of the user's that torch's pytrees know."""

    kept: Any
    label: str


pytree.register_pytree_node(
    Registered,
    lambda made: ([made.kept], made.label),
    lambda parts, label: Registered(next(iter(parts)), label),
)


@EVERY
def test_registered_types_stack_where_what_they_share_is_the_same(options):
    made = autobatch.vmap(lambda x: Registered(x * 2, "a"), **options)(XS)
    assert made.label == "a"
    assert torch.equal(made.kept, XS * 2)
    with pytest.raises(autobatch.StackingError, match="different structures"):
        autobatch.vmap(lambda x: Registered(x, "a" if x > 0 else "b"), **options)(XS)


# Arguments.


def shrunk(state, by):
    while state.x > 1:
        state.x = state.x / by
        state.count = state.count + 1
    return state


@EVERY
def test_a_dataclass_is_mapped_by_its_attributes(options):
    counts = torch.arange(4)
    given = State(XS, counts)
    made = autobatch.vmap(shrunk, in_dims=(0, None), **options)(given, 2.0)
    loop = [shrunk(State(x, n), 2.0) for x, n in zip(XS.clone(), counts.clone(), strict=True)]
    assert torch.equal(made.x, torch.stack([one.x for one in loop]))
    assert torch.equal(made.count, torch.stack([torch.as_tensor(one.count) for one in loop]))
    assert given.x is XS
    assert given.count is counts
    batched = autobatch.function(shrunk).with_options(**options).batch(given, 2.0)
    assert torch.equal(batched.x, made.x)


@EVERY
def test_dimensions_of_a_dataclass_are_one_too(options):
    wide = torch.stack([XS, XS + 1])

    def program(state):
        return state.x.sum() * state.count if state.x[0] > 0 else state.x[1] * state.count

    dims = State(x=1, count=None)
    made = autobatch.vmap(program, in_dims=(dims,), **options)(State(wide, 3))
    assert torch.equal(made, torch.stack([program(State(row, 3)) for row in wide.T]))


def test_out_dims_reach_into_dataclasses():
    def program(x):
        return State(torch.stack([x, x]), 7)

    made = autobatch.vmap(program, out_dims=State(1, None))(XS)
    assert made.x.shape == (2, 4)
    assert made.count == 7
    with pytest.raises(autobatch.OptionError, match=r"result\.x"):
        autobatch.vmap(program, out_dims=State(None, 0))(XS)


@EVERY
def test_a_dataclass_that_all_share_is_the_callers_own(options):
    config = State(torch.tensor(2.0))

    def program(x, config):
        return x * config.x if x > 0 else x, config is kept

    kept = config
    assert autobatch.vmap(program, in_dims=(0, None), **options)(XS, config)[1].all()

    def writes(x, config):
        config.count = 3
        return x

    with pytest.raises(autobatch.SharedWriteError):
        autobatch.vmap(writes, in_dims=(0, None), **options)(XS, config)


@dataclass
class Loose:
    up: Any = None


def test_a_dataclass_in_a_circle_may_be_shared():
    one = Loose()
    one.up = Loose(one)

    def program(x, loose):
        return x if loose.up.up is loose else -x

    assert torch.equal(autobatch.vmap(program, in_dims=(0, None))(XS, one), XS)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", [{}, {"executor": "vmap", "plain": "never"}], ids=str)
def test_what_all_share_may_nest_deeper_than_the_stack(options):
    """Nothing goes through what is not mapped, by position or by keyword."""
    tree = {}
    for _ in range(1200):
        tree = {"next": tree}

    def depth(x, tree, other=None):
        n = 0
        while tree:
            tree, n = tree["next"], n + 1
        return x + n, other is not None

    want = XS + 1200, torch.ones(4, dtype=torch.bool)
    for made in (
        autobatch.vmap(depth, in_dims=(0, None, None), **options)(XS, tree, tree),
        autobatch.vmap(depth, **options)(XS, tree=tree, other=tree),
    ):
        assert all(map(torch.equal, made, want))


def test_ragged_results_in_a_dataclass():
    def program(n):
        return State(torch.arange(int(n)), 1)

    made = autobatch.vmap(program, ragged_out=State("list", None))(torch.tensor([1, 3]))
    assert [row.tolist() for row in made.x] == [[0], [0, 1, 2]]
    assert made.count.tolist() == [1, 1]


def test_leaves_of_a_dataclass_have_names():
    program = autobatch.lower(lambda x: State(x, 1))
    (state,) = autobatch.execute(program, XS)
    assert torch.equal(state.x, XS)
    assert dataclasses.is_dataclass(state)


# tensordict


def dictionary(**parts: Tensor) -> Any:
    tensordict = pytest.importorskip("tensordict")
    return tensordict.TensorDict(parts, batch_size=[4])


@EVERY
def test_a_tensordict_is_mapped_and_stacked(options):
    given = dictionary(x=XS, rows=torch.arange(8.0).reshape(4, 2))

    def program(table):
        if table["x"] > 0:
            return table["rows"].sum() * table["x"]
        return table["x"]

    made = autobatch.vmap(program, **options)(given)
    assert torch.equal(made, torch.stack([program(given[i]) for i in range(4)]))
    both = autobatch.vmap(lambda table: table, **options)(given)
    assert both.batch_size == given.batch_size
    assert (both == given).all()


@EVERY
def test_a_tensordict_is_made_and_changed_by_the_program(options):
    given = dictionary(x=XS)

    def program(table):
        table["y"] = table["x"] * 2 if table["x"] > 0 else table["x"] + 1
        return {"table": table, "n": 1}

    made = autobatch.vmap(program, **options)(given)["table"]
    assert torch.equal(made["y"], torch.where(XS > 0, XS * 2, XS + 1))
    assert made.batch_size == (4,)
    assert set(given.keys()) == {"x"}


def test_tensordicts_of_different_keys_are_told():
    given = dictionary(x=XS)

    def program(table):
        if table["x"] > 0:
            return table
        return table.rename_key_("x", "z")

    with pytest.raises(autobatch.StackingError, match="'z' of shape"):
        autobatch.vmap(program)(given)


# Containers of the standard library as arguments; structures of vmap and pfor inside programs.


def counted(table, queue):
    while queue[0] > 1:
        queue.append(queue.popleft() / 2)
        table["n"] = table["n"] + 1
    table["last"] = queue[-1]
    return table, queue


@EVERY
def test_ordered_dicts_and_deques_are_the_threads_own(options):
    given = OrderedDict(n=torch.zeros(4)), deque([XS, XS * 2], maxlen=2)
    kept = OrderedDict(given[0]), deque(given[1])
    table, queue = autobatch.vmap(counted, **options)(*given)
    rows = [counted(OrderedDict(n=torch.zeros(())), deque([x, x * 2])) for x in XS]
    assert type(table) is OrderedDict
    assert torch.equal(table["last"], torch.stack([row[0]["last"] for row in rows]))
    assert torch.equal(queue[1], torch.stack([row[1][1] for row in rows]))
    assert queue.maxlen == 2
    assert given == kept


def inner(y):
    return State(y * 2, 1) if y > 1 else State(y, 0)


def maps_to_records(row):
    made = autobatch.vmap(inner)(row)
    return made.x.sum(), made.count


def maps_records(row):
    return autobatch.vmap(lambda state: state.x * state.count)(State(row, row + 1))


def loops_to_records(row):
    return autobatch.pfor(lambda i: inner(row[i]), 2)


def maps_to_ordered(row):
    return autobatch.vmap(lambda y: OrderedDict(a=y if y > 1 else -y, b=1))(row)["a"]


@pytest.mark.filterwarnings("ignore::autobatch.FallbackWarning")
@pytest.mark.parametrize(
    "program", [maps_to_records, maps_records, loops_to_records, maps_to_ordered]
)
def test_structures_inside_programs(program):
    assert_matches_loop(program, (torch.stack([XS, XS + 1, XS * 3]),))
