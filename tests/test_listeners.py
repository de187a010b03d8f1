"""Steps and counts: what they say, and that they agree with each other and with the program."""

from __future__ import annotations

import functools
import warnings
from collections import Counter

import numpy as np
import pytest
import torch

import autobatch
from autobatch import Step

BOTH = pytest.mark.parametrize("executor", ["traced", "vmap"])


def countdown(n):
    steps = 0
    while n > 0:
        n = n - 1
        steps += 1
    return steps


def fib(n):
    if n <= 2:
        return 1
    return fib(n - 1) + fib(n - 2)


def upper(s):
    return s.upper()


def steps_of(func, *args, **options):
    steps: list[Step] = []
    result = autobatch.vmap(func, listeners=steps.append, **options)(*args)
    return result, steps


@BOTH
def test_a_step_per_block_execution(executor):
    with autobatch.counts() as counted:
        result, steps = steps_of(countdown, torch.tensor([2, 0, 3]), executor=executor)
    assert result.tolist() == [2, 0, 3]
    assert len(steps) == counted.block_executions
    by_block = Counter((step.function, step.pc) for step in steps)
    assert by_block == counted.by_block
    threads = Counter()
    for step in steps:
        threads[step.function, step.pc] += len(step.threads)
    assert threads == counted.threads_by_block


@BOTH
@pytest.mark.parametrize("chunk_size", [None, 1, 2, 5, 9])
def test_masks_are_of_the_whole_batch(executor, chunk_size):
    ns = torch.tensor([2, 0, 3, 1, 4])
    _, steps = steps_of(countdown, ns, executor=executor, chunk_size=chunk_size)
    visits = np.zeros(5, dtype=int)
    body = autobatch.lower(countdown).main.blocks
    for step in steps:
        assert step.mask.dtype == bool and step.mask.shape == (5,)
        assert step.mask.any() and step.mask.sum() == len(step.threads)
        assert set(np.flatnonzero(step.mask)) == set(step.threads.tolist())
        assert step.function == "countdown" and step.block == f"b{step.pc}"
        assert 0 <= step.pc < len(body) and step.depth == 0 and step.seconds >= 0
        visits += step.mask * (step.pc == looping(body))
    assert visits.tolist() == ns.tolist()


def looping(blocks) -> int:
    """The loop's body: the block that adds."""
    return next(pc for pc, block in enumerate(blocks) if any(op.name == "iadd" for op in block.ops))


def test_a_chunk_sees_its_own_threads_only():
    _, steps = steps_of(countdown, torch.tensor([1, 1, 1, 1, 1]), chunk_size=2)
    assert {tuple(step.threads.tolist()) for step in steps} == {(0, 1), (2, 3), (4,)}


@BOTH
def test_depth_and_own_time(executor):
    result, steps = steps_of(fib, torch.tensor([6, 7, 8, 7]), executor=executor)
    assert result.tolist() == [8, 13, 21, 13]
    assert max(step.depth for step in steps) == 6
    assert {step.function for step in steps} == {"fib"}
    for engine in ("stackless", "sequential"):
        with pytest.raises(AssertionError, match="stop here"):
            autobatch.vmap(fib, listeners=stop, engine=engine)(torch.tensor([6]))


def test_a_step_per_block_execution_of_the_sequential_engine():
    ns = torch.tensor([6, 7, 3])
    with autobatch.counts() as counted:
        result, steps = steps_of(fib, ns, engine="sequential")
    assert result.tolist() == [8, 13, 2]
    assert counted.block_executions == len(steps) > 0
    assert counted.by_block == Counter((step.function, step.pc) for step in steps)
    assert counted.threads_by_block == counted.by_block
    for thread in range(3):
        alone, batched = (
            Counter((s.function, s.block, s.depth) for s in found if thread in s.threads)
            for found in (steps_of(fib, ns, executor="vmap", fork="off")[1], steps)
        )
        assert alone.keys() == batched.keys()
    order = [step.threads.tolist() for step in steps]
    assert order == sorted(order) and {tuple(each) for each in order} == {(0,), (1,), (2,)}
    for step in steps:
        assert step.mask.dtype == bool and step.mask.shape == (3,)
        assert np.flatnonzero(step.mask).tolist() == step.threads.tolist()
        assert step.threads.dtype == np.int64 and step.seconds >= 0
    assert max(step.depth for step in steps) == 5


@autobatch.function
def decorated(n):
    if n <= 1:
        return 1
    return doubled(decorated(n - 1)) + summed(n)


def doubled(n):
    return summed(n) * 2


def summed(n):
    return n + n


@pytest.mark.parametrize("func", [countdown, fib, decorated])
def test_one_thread_takes_the_same_blocks_on_both_engines(func):
    """Helpers of a single block and decorated functions are stepped through too."""
    found = []
    for engine in ("stackless", "sequential"):
        with autobatch.counts() as counted:
            how = {"engine": engine, "executor": "vmap", "fork": "off"}
            _, steps = steps_of(func, torch.tensor([6]), **how)
        assert len(steps) == counted.block_executions
        deepest = max(step.depth for step in steps)
        found.append((counted.by_block, counted.threads_by_block, deepest))
    assert found[0] == found[1]


def test_callbacks_on_the_host_are_no_steps():
    """The stackless engine calls a program's lambda for one thread at a time as plain code."""

    def smallest(x):
        return functools.reduce(lambda v, w: v if v < w else w, [x, -x, x * 2])

    with autobatch.counts() as counted:
        result, steps = steps_of(smallest, torch.tensor([6.0, -2.0]))
    assert result.tolist() == [-6, -4] and len(steps) == counted.block_executions == 1


def stop(step):
    raise AssertionError("stop here")


@pytest.mark.parametrize("ns, most", [([6, 7, 8, 7], 21), ([6], 7), ([7], 12), ([8], 20)])
def test_batched_additions_of_fib(ns, most):
    """TFP's example; one by one, 6, 7, 8 and 7 take 7 + 12 + 20 + 12 = 51 additions."""
    _, steps = steps_of(fib, torch.tensor(ns))
    blocks = autobatch.lower(fib).main.blocks
    adding = {pc for pc, block in enumerate(blocks) if any(op.name == "add" for op in block.ops)}
    assert len(adding) == 1
    assert 0 < sum(step.pc in adding for step in steps) <= most


def test_several_listeners_get_the_same_steps():
    first, second = [], []
    run = autobatch.vmap(countdown, listeners=[first.append, second.append])
    run(torch.tensor([1, 2]))
    assert first and all(a is b for a, b in zip(first, second, strict=True))


def test_threads_that_meet_run_a_block_once():
    """On a straight loop: as many executions as the longest thread has, not the sum."""
    with autobatch.counts() as counted:
        autobatch.vmap(countdown)(torch.tensor([5, 3, 9, 1]))
    with autobatch.counts() as alone:
        autobatch.vmap(countdown)(torch.tensor([9]))
    assert counted.block_executions == alone.block_executions


# Counts.


def test_counts_repeat():
    def counted():
        with autobatch.counts() as found:
            autobatch.vmap(countdown, executor="vmap")(torch.tensor([4, 1]))
        return found

    assert counted() == counted()


def test_counts_nest_and_end():
    with autobatch.counts() as outer:
        autobatch.vmap(countdown)(torch.tensor([1]))
        before = outer.block_executions
        with autobatch.counts() as inner:
            autobatch.vmap(countdown)(torch.tensor([1]))
    autobatch.vmap(countdown)(torch.tensor([1]))
    assert inner.block_executions == before
    assert outer.block_executions == 2 * before


@BOTH
def test_one_host_read_for_each_per_thread_branch(executor):
    with autobatch.counts() as counted:
        autobatch.vmap(countdown, executor=executor)(torch.tensor([4, 1]))
    blocks = autobatch.lower(countdown).main.blocks
    branches = {
        pc for pc, block in enumerate(blocks) if type(block.terminator).__name__ == "Branch"
    }
    for (_, pc), reads in counted.reads_by_block.items():
        assert pc in branches and reads <= counted.by_block["countdown", pc]
    assert counted.host_reads == sum(counted.reads_by_block.values()) == 5


def test_what_runs_thread_by_thread_is_counted_by_place():
    with autobatch.counts() as counted:
        autobatch.vmap(upper, plain="never")(autobatch.objects(["a", "b"]))
    assert (counted.fallbacks, counted.meant, counted.by_thread) == (0, 1, 1)
    ((file, line, what, why),) = counted.meant_by_place
    assert (file, line) == (__file__, upper.__code__.co_firstlineno + 1)
    assert what == "str.upper" and why


def test_launches_and_copies():
    with autobatch.counts() as counted:
        autobatch.vmap(lambda x: x + 1 if x > 0 else x, executor="vmap")(torch.tensor([1.0, -1.0]))
    assert counted.launches == sum(counted.launches_by_block.values()) > 0
    assert counted.row_copies == 2


def test_traces_do_not_grow_with_trips_or_threads():
    def traces(ns):
        with autobatch.counts() as counted:
            autobatch.vmap(countdown, trace_after=0)(ns)
        return counted

    first = traces(torch.tensor([3, 2]))
    assert first.traces == sum(first.traces_by_block.values())
    again = [traces(torch.arange(size) * 7) for size in (3, 17, 5)]
    assert all(found.traces <= first.traces for found in again)


def named(x):
    table = dict.fromkeys(["bias", "weight"], 2.0)
    for _, value in table.items():
        x = x + value
    return x.unique().sum()


LINEAR = torch.nn.Linear(2, 1)


def test_fallbacks_are_what_is_warned_of_and_what_is_meant_counts_apart():
    with warnings.catch_warnings(record=True) as told, autobatch.counts() as counted:
        warnings.simplefilter("always")
        autobatch.vmap(named, fallback="warn")(torch.ones(3))
    lines = {line for _, line, _, _ in counted.fallbacks_by_place}
    assert lines == {warning.lineno for warning in told}
    assert counted.fallbacks == len(told) == len(counted.fallbacks_by_place) > 0
    assert {what for _, _, what, _ in counted.meant_by_place} >= {"iter", "dict.items"}
    assert counted.meant == sum(counted.meant_by_place.values())
    assert counted.by_thread == counted.meant + counted.fallbacks
