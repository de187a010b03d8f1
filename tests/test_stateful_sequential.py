"""``stateful="sequential"``: one thread after the other, on the real objects, as the loop."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import autobatch
from tests.outside_world import program, state, world
from tests.test_outside_writes import SHARED, SOURCES

SEQUENTIAL = {"stateful": "sequential"}
XS = torch.tensor([0.0, 1.0, 2.0])


def seeded(run: Any) -> Any:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    return run()


def outcome(run: Any) -> Any:
    """What a run gives, or the exception that it ends with."""
    try:
        return run()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("source", [each for each in (*SOURCES, *SHARED) if "resize_" not in each])
def test_whatever_the_loop_may_write(source: str) -> None:
    ours, loops = seeded(world), seeded(world)
    lines = [*source.split(";;"), "return x"]
    batched = autobatch.vmap(program(f"ours {source}", lines, ours), **SEQUENTIAL)
    func = program(f"loop {source}", lines, loops)
    expected = seeded(lambda: outcome(lambda: torch.stack([func(x.clone()) for x in XS])))
    result = seeded(lambda: outcome(lambda: batched(XS)))
    assert repr(result) == repr(expected)
    assert state(ours) == state(loops)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        x = self.norm(x)
        if x[0, 0] > 0:
            x = self.norm(x + self.seen)
        return x


@pytest.mark.parametrize("make", [Net, lambda: nn.BatchNorm1d(3)], ids=["own", "torch's"])
@pytest.mark.parametrize("options", [{}, {"engine": "program_counter"}, {"chunk_size": 2}], ids=str)
def test_running_statistics_are_the_loops_to_the_bit(make: Any, options: Any) -> None:
    torch.manual_seed(0)
    ours = make().train()
    loops = copy.deepcopy(ours)
    xs = torch.randn(5, 4, 3)
    result = autobatch.vmap(ours, **SEQUENTIAL, **options)(xs)
    expected = torch.stack([loops(x) for x in xs])
    assert torch.equal(result, expected)
    for name, value in loops.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name
    result.sum().backward()
    expected.sum().backward()
    for mine, theirs in zip(ours.parameters(), loops.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad)


def logged(x, log, table):
    log.append(len(log))
    if x > 1:
        table["big"] = table.get("big", 0) + 1
    return x + len(log)


def test_arguments_that_all_share_are_the_callers_own() -> None:
    log, table = [], {}
    mapped = autobatch.vmap(logged, in_dims=(0, None, None), **SEQUENTIAL)
    assert mapped(XS, log, table).tolist() == [1.0, 3.0, 5.0]
    assert (log, table) == ([0, 1, 2], {"big": 1})
    log.clear()
    assert autobatch.function(logged, **SEQUENTIAL).batch(XS, log, table).tolist() == [1, 3, 5]
    assert (log, table) == ([0, 1, 2], {"big": 2})


def test_one_list_under_two_names_is_one() -> None:
    def both(x, a, b):
        a.append(1)
        return x + len(b)

    shared: list[int] = []
    mapped = autobatch.vmap(both, in_dims=(0, None, None), **SEQUENTIAL)
    assert mapped(XS, shared, shared).tolist() == [1.0, 3.0, 5.0]
    private = autobatch.vmap(both, in_dims=(0, None, None))
    assert private(XS, shared, shared).tolist() == [4.0, 5.0, 6.0] and shared == [1, 1, 1]


def changed(x, weight, items):
    x += 1
    weight += x
    items.append(x.item())
    return weight.clone()


def test_rows_are_private_and_objects_are_not() -> None:
    xs, weight, lists = XS.clone(), torch.zeros(()), [[], [], []]
    mapped = autobatch.vmap(changed, in_dims=(0, None, 0), **SEQUENTIAL)
    assert mapped(xs, weight, autobatch.objects(lists)).tolist() == [1.0, 3.0, 6.0]
    assert torch.equal(xs, XS) and weight.item() == 6 and lists == [[1.0], [2.0], [3.0]]


LOG: list[float] = []


def failing(x):
    LOG.append(x.item())
    if x == 1:
        raise ValueError("one")
    return x * 2


def test_what_came_before_an_exception_has_happened() -> None:
    LOG.clear()
    with pytest.raises(ValueError, match="one"):
        autobatch.vmap(failing, **SEQUENTIAL)(XS)
    assert LOG == [0.0, 1.0]


def test_isolated_threads_go_on() -> None:
    LOG.clear()
    results = autobatch.vmap(failing, on_error="isolate", **SEQUENTIAL)(XS)
    assert LOG == [0.0, 1.0, 2.0]
    assert [result.value for result in results] == [0.0, None, 4.0]
    assert "LOG" not in str(results[1].exception) and str(results[1].exception) == "one"


def test_a_stream_runs_in_order() -> None:
    LOG.clear()
    stream = autobatch.stream(
        failing, iter([5.0, 3.0, 4.0]), width=2, on_error="raise", **SEQUENTIAL
    )
    with pytest.raises(AttributeError):
        next(stream)  # a number has no item()
    got = list(autobatch.stream(failing, torch.tensor([5.0, 3.0, 4.0]), width=2, **SEQUENTIAL))
    assert [(index, value.item()) for index, value in got] == [(0, 10.0), (1, 6.0), (2, 8.0)]
    assert LOG == [5.0, 3.0, 4.0]


def test_a_stream_shares_the_callers_own() -> None:
    log: list[int] = []
    examples = [(x, log) for x in XS]
    got = list(autobatch.stream(logged, examples, shared={"table": (table := {})}, **SEQUENTIAL))
    assert [value.item() for _, value in got] == [1.0, 3.0, 5.0]
    assert (log, table) == ([0, 1, 2], {"big": 1})


def inner(x):
    def body(i):
        LOG.append(i)
        return x + i

    return autobatch.pfor(body, 2).sum()


def test_rounds_inside_run_one_after_the_other() -> None:
    LOG.clear()
    assert autobatch.vmap(inner, **SEQUENTIAL)(XS).tolist() == [1.0, 3.0, 5.0]
    assert LOG == [0, 1] * 3


def noisy(x):
    LOG.append(torch.randn(()).item())
    return x + LOG[-1]


def test_draws_by_a_seed_are_those_of_other_engines() -> None:
    LOG.clear()
    ours = autobatch.vmap(noisy, seed=3, **SEQUENTIAL)(XS)
    other = autobatch.vmap(lambda x: x + torch.randn(()), seed=3)(XS)
    assert torch.equal(ours, other) and len(LOG) == 3


def test_the_same_function_is_refused_without_it() -> None:
    LOG.clear()
    assert autobatch.vmap(failing, **SEQUENTIAL)(torch.tensor([2.0])).tolist() == [4.0]
    for options in ({}, {"engine": "sequential"}):
        with pytest.raises(autobatch.SharedWriteError, match=r"stateful=\"sequential\""):
            autobatch.vmap(failing, **options)(torch.tensor([2.0]))
    assert LOG == [2.0]


def test_explain_has_nothing_to_show() -> None:
    with pytest.raises(autobatch.OptionError, match="one thread after the other"):
        autobatch.explain(autobatch.vmap(failing, **SEQUENTIAL), XS)


def test_execute_runs_callees_so_too() -> None:
    LOG.clear()
    program = autobatch.lower(lambda x: [failing][0](x) + 1)
    assert autobatch.execute(program, torch.tensor([3.0, 2.0]), **SEQUENTIAL)[0].tolist() == [7, 5]
    assert LOG == [3.0, 2.0]
