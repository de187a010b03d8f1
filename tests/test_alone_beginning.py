"""First calls of few threads run as plain Python; later ones, and those that look, together."""

from __future__ import annotations

import importlib
import linecache
import math
import warnings

import numpy as np
import pytest
import torch

import autobatch
from autobatch.alone import beginning
from autobatch.batching.levels import DrawError
from autobatch.runs import shortcuts, trial
from autobatch.runs.trial import measuring
from autobatch.vm.invariants import checking
from tests.oracle import assert_matches_loop

XS = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def by_the_clock(monkeypatch):
    monkeypatch.setattr(beginning, "SECONDS", 60.0)  # on any machine
    monkeypatch.setattr(trial, "WORTH_MEASURING", 60.0)  # nothing else is plain by the clock
    with measuring(True), checking(False):
        yield


@pytest.fixture
def ways(monkeypatch):
    """What each call was: whether plain Python ran it as one of the first."""
    found = []

    def begun(asked):
        done = beginning.begun(asked)
        found.append(done is not None)
        return done

    monkeypatch.setattr(shortcuts, "begun", begun)
    return found


def program(count=1):
    """A new program, of which nothing is known yet."""
    scope = {"torch": torch}
    lines = ["def halved(x):", "    while x.abs().sum() > 0.1:", f"        x = x / {count + 1}"]
    text = "\n".join([*lines, "    return x, x.sum()"])

    name = f"<halved {len(linecache.cache)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), scope)
    return scope["halved"]


def agrees(function, found, xs=XS):
    rows = [function(x.clone()) for x in xs]
    for part, expected in zip(found, zip(*rows, strict=True), strict=True):
        torch.testing.assert_close(part, torch.stack(expected))


def test_the_first_calls_and_no_later_ones(ways):
    function = program()
    batched = autobatch.vmap(function)
    for _ in range(beginning.CALLS + 3):
        agrees(function, batched(XS))
    assert ways == [True] * beginning.CALLS + [False] * 3


@pytest.mark.parametrize("size", [1, 2, 7, 64, 65])
def test_few_threads(ways, size):
    function, xs = program(), torch.randn(size, 3)
    agrees(function, autobatch.vmap(function)(xs), xs)
    assert ways == [size <= beginning.MOST_THREADS]


@pytest.mark.parametrize(
    "options",
    [
        {"fallback": "warn"},
        {"trace_after": 0},
        {"executor": "compiled"},
        {"plain": "never"},
        {"fallback": "error"},
        {"max_steps": 10_000},
        {"listeners": [lambda step: None]},
    ],
)
def test_who_asks_for_the_general_way_gets_it(ways, options):
    function = program()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agrees(function, autobatch.vmap(function, **options)(XS))
    assert not any(ways)


def test_who_counts_sees_the_general_way_and_all_go_so_from_then_on(ways):
    function = program()
    batched = autobatch.vmap(function)
    with autobatch.counts() as counts:
        batched(XS)
    assert counts.plain == 0
    assert counts.block_executions > 1
    batched(XS)
    assert ways == [False, False]


def test_floats_that_are_to_be_the_same_each_time(ways):
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        autobatch.vmap(program())(XS)
    finally:
        torch.use_deterministic_algorithms(before)
    assert ways == [False]


def test_a_first_thread_that_takes_long_ends_it(ways, monkeypatch):
    monkeypatch.setattr(beginning, "SECONDS", 0.0)
    function, seen = program(), []
    batched = autobatch.vmap(function)
    running = beginning.run
    monkeypatch.setattr(beginning, "run", lambda *args: seen.append(args) or running(*args))
    for _ in range(3):
        agrees(function, batched(XS))
    assert ways == [False] * 3
    assert len(seen) == 1


def test_kinds_of_calls_begin_each_for_itself(ways):
    batched = autobatch.vmap(program())
    for _ in range(beginning.CALLS + 1):
        batched(XS)
    with torch.no_grad():
        batched(XS)
    assert ways[-2:] == [False, True]


def test_what_fails_is_told_as_ever(ways):
    rows = [[1.0, 2.0], [3.0]]

    def reads(x):
        row = [float(x[0]), float(x[1])]
        if row[0] > 0:
            row = rows[1]
        return row[1] + x

    def told(**options):
        with pytest.raises(IndexError) as caught:
            autobatch.vmap(reads, **options)(torch.tensor([[-1.0, 2.0], [1.0, 2.0]]))
        return str(caught.value), caught.value.__notes__

    assert told() == told(plain="never")
    assert ways[0]


def test_gradients_of_few(ways):
    function, xs = program(), XS.clone().requires_grad_()
    found, _ = autobatch.vmap(function)(xs)
    (gradient,) = torch.autograd.grad(found.sin().sum(), xs)
    rows = torch.stack([function(x)[0] for x in xs])
    (expected,) = torch.autograd.grad(rows.sin().sum(), xs)
    torch.testing.assert_close(gradient, expected)
    assert ways == [True]


@pytest.mark.parametrize(("size", "begins"), [(64, True), (65, False)])
def test_gradients_and_weights_of_any_size(ways, size, begins):
    weight = torch.randn(300, 300, requires_grad=True)

    def own(x):
        y = weight @ x
        return y.relu() if y.sum() > 0 else y * 2

    xs = torch.randn(size, 300)
    (gradient,) = torch.autograd.grad(autobatch.vmap(own)(xs).sum(), weight)
    (expected,) = torch.autograd.grad(sum(own(x).sum() for x in xs), weight)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-3)
    assert ways == [begins]


def test_a_draw_by_the_name_of_a_method(ways):
    """``randint`` is one of generators, too, which a program may have of its own."""

    def draws(x):
        return x + torch.randint(0, 1000, ())

    def draws_in_a_branch(x):
        return x + torch.randint(5, (2,)).sum() if x.sum() > 0 else x

    for func in (draws, draws_in_a_branch):
        with pytest.raises(DrawError):
            autobatch.vmap(func)(XS)
        alike = autobatch.vmap(func, randomness="same")(torch.ones(7, 1)) - 1
        assert len(alike.unique()) == 1
    assert ways == [False] * 4


def test_what_others_see_goes_together(ways, capsys):
    seen = {"calls": 0}

    def draws(x):
        return x + torch.rand(()) if x.sum() > 0 else x

    def says(x):
        if x.sum() > 0:
            print("more")
        return x * 2

    def writes(x):
        seen["calls"] += 1
        return x * 2

    autobatch.vmap(draws, randomness="different")(XS)
    autobatch.vmap(says)(XS)
    with pytest.raises(autobatch.AutobatchError):
        autobatch.vmap(writes)(XS)
    assert capsys.readouterr().out.count("more") == int((XS.sum(1) > 0).sum())
    assert seen["calls"] == 0
    assert not any(ways)


class Tags(torch.nn.Module):
    """The scores of a tagger, by a table in which it looks places up."""

    def __init__(self):
        super().__init__()
        self.places = {"start": 1}
        self.moves = torch.nn.Parameter(torch.eye(3))

    def forward(self, x):
        begins = torch.full((1, 3), -10.0)
        begins[0][self.places["start"]] = 0.0
        scores = begins
        for row in x.view(1, 3):
            scores = torch.cat([(scores + self.moves[i] + row).sum().view(1) for i in range(3)])
        return scores


def test_a_part_of_a_tensor_that_it_makes_is_its_own(ways):
    module = Tags()
    found = autobatch.vmap(module)(XS)
    torch.testing.assert_close(found, torch.stack([module(x) for x in XS]))
    assert ways == [True]


def test_a_part_of_what_may_be_a_list_of_weights_is_not(ways):
    rows = [torch.zeros(3), torch.ones(3)]

    def writes(x):
        made = torch.zeros(2, 3) if x[0] > 0 else rows
        made[0][1] = 5.0
        return made[0] + x

    for _ in range(2):
        with pytest.raises(autobatch.AutobatchError):
            autobatch.vmap(writes)(XS)
    assert rows[0].sum() == 0
    assert not any(ways)


def test_what_is_read_before_it_is_assigned(ways):
    def reads(x):
        if x[0] > 9:
            y = y[0]  # noqa: F821
        return y

    with pytest.raises(UnboundLocalError):
        autobatch.vmap(reads)(XS)


class Point:
    def __init__(self, place, left=None, right=None):
        self.place, self.left, self.right = place, left, right


TREE = Point([0.0, 0.5], Point([-1.0, 0.1]), Point([0.7, 0.2], Point([0.4, -0.3])))


def nearest(x):
    """A nested function counts the nodes of a tree that it goes through."""
    best, least, seen = None, math.inf, 0

    def search(node, depth):
        nonlocal best, least, seen
        if node is None:
            return
        seen += 1
        away = sum((a - b) ** 2 for a, b in zip(x, node.place, strict=False))
        if best is None or away < least:
            best, least = node.place, away
        side = x[depth % 2] <= node.place[depth % 2]
        search(node.left if side else node.right, depth + 1)
        if (x[depth % 2] - node.place[depth % 2]) ** 2 < least:
            search(node.right if side else node.left, depth + 1)

    search(TREE, 0)
    return least, seen, best[0]


def test_a_number_that_is_counted_is_no_container_that_existed(ways):
    agrees_with_numbers(nearest, autobatch.vmap(nearest)(XS[:, :2]))
    assert ways == [True]


def agrees_with_numbers(function, found):
    rows = [function(x.clone()) for x in XS[:, :2]]
    for part, expected in zip(found, zip(*rows, strict=True), strict=True):
        torch.testing.assert_close(
            part, torch.stack(list(map(torch.as_tensor, expected))), check_dtype=False
        )


def test_an_array_that_existed_is_not_counted_in_place(ways):
    counts, parts = np.zeros(3), [torch.zeros(())]

    def counted(x):
        seen = counts if x[0] > 0 else parts[0]
        seen += 1
        return x + torch.as_tensor(seen.sum())

    with pytest.raises(autobatch.AutobatchError):
        autobatch.vmap(counted)(XS)
    assert counts.sum() == 0
    assert parts[0] == 0
    assert not any(ways)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "name",
    [
        "adaptive_computation",
        "bilstm_tagger",
        "child_sum_treelstm",
        "collatz",
        "greedy_decoding",
        "halting_transformer",
        "lstm",
        "merge_sort",
        "mixture_of_experts",
        "ode_layer",
        "shift_reduce",
    ],
)
def test_programs_give_the_loop_s_results_to_the_bit(ways, name):
    example = importlib.import_module(f"programs.{name}").example(7)
    args = example.mapped(autobatch.objects, autobatch.ragged)
    with torch.no_grad():
        assert_matches_loop(
            example.function, args, batch_sizes=(1, 7), configurations=[{}], rtol=0, atol=0
        )
    assert ways
    assert all(ways)
