"""The program-counter engine: depths run together, depth is data, all else as in stackless."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import autobatch
from autobatch import Step
from autobatch.api import LIBRARY
from autobatch.vm.stack import Stack
from programs.ackermann import ackermann
from programs.fibonacci import fibonacci
from programs.treelstm import TreeLSTM, random_tree

PC: dict[str, Any] = {"engine": "program_counter"}
EXECUTORS = pytest.mark.parametrize("executor", ["vmap", "traced"])


def counted(func: Any, *args: Any, **options: Any) -> int:
    with autobatch.counts() as counts, torch.no_grad():
        autobatch.vmap(func, **options)(*args)
    return counts.block_executions


def steps_of(func: Any, *args: Any, **options: Any) -> list[Step]:
    steps: list[Step] = []
    autobatch.vmap(func, listeners=steps.append, **PC, **options)(*args)
    return steps


# What runs together.


def count_down(n):
    if n == 0:
        return 0
    return 1 + count_down(n - 1)


def test_block_executions_of_recursive_programs():
    """Against stackless without fork-join: the same for like recursions, others for unlike ones."""
    trees = autobatch.objects([random_tree(size, 8) for size in (3, 9, 15, 6, 11)])
    cases = [
        (fibonacci, (torch.tensor([6, 7, 8, 7]),), 142, 142),
        (fibonacci, (torch.arange(1, 12),), 618, 618),
        (ackermann, (torch.tensor([2, 1, 2, 0]), torch.tensor([3, 3, 1, 2])), 200, 189),
        (count_down, (torch.tensor([5, 2, 9]),), 38, 38),
        (TreeLSTM(8, 4), (trees,), 82, 86),
    ]
    found = [(counted(f, *args, fork="off"), counted(f, *args, **PC)) for f, args, _, _ in cases]
    assert found == [(stackless, pc) for _, _, stackless, pc in cases]


def helper(n):
    while n > 3:
        n = n - 2
    return n


def helped(n):
    total = 0
    for i in range(n):
        total = total + helper(i)
    if total > 5:
        total = total - 5
    return total


def test_a_callee_runs_before_what_follows_its_call():
    """Without recursion the schedule is that of stackless: the loop's end runs once for all."""
    ns = torch.tensor([3, 8, 1, 5])
    with autobatch.counts() as mine:
        autobatch.vmap(helped, **PC)(ns)
    with autobatch.counts() as theirs:
        autobatch.vmap(helped, fork="off")(ns)
    assert mine.by_block == theirs.by_block
    assert mine.threads_by_block == theirs.threads_by_block


@EXECUTORS
def test_threads_at_different_depths_run_together(executor):
    """Each level waits for its first call only: the second calls start at unlike depths."""
    depths = {0: 0, 1: 0}
    together = 0
    blocks = LIBRARY.code_of(fibonacci).blocks
    calling = {pc for pc, b in enumerate(blocks) if type(b.terminator).__name__ == "Call"}
    steps = steps_of(fibonacci, torch.tensor([5, 8]), executor=executor)
    for step in steps:
        here = {depths[thread] for thread in step.threads.tolist()}
        together += len(here) > 1
        assert step.depth == max(here)
        for thread in step.threads.tolist():
            if step.pc in calling:
                depths[thread] += 1
            elif step.pc == len(blocks) - 1:
                depths[thread] -= 1
    assert together == 23 and depths == {0: -1, 1: -1}
    assert max(step.depth for step in steps) == 6


def ragged_quicksort(x):
    if len(x) <= 1:
        return x
    pivot, rest = x[0], x[1:]
    lower, upper = rest[rest < pivot], rest[rest >= pivot]
    return torch.cat([ragged_quicksort(lower), pivot[None], ragged_quicksort(upper)])


@pytest.mark.parametrize("trace_after", [0, 2])
def test_calls_of_which_most_have_returned_are_joined_with_their_like_only(trace_after):
    """What they keep is no view any more, where that of later calls still is one."""
    torch.manual_seed(0)
    rows = [torch.randn(n) for n in (0, 1, 2, 3, 5, 8, 0)]
    sort = autobatch.vmap(ragged_quicksort, trace_after=trace_after, ragged_out="list", **PC)
    for found, row in zip(sort(autobatch.ragged(rows)), rows, strict=True):
        assert torch.equal(found, row.sort().values)


# Depth.


@pytest.mark.parametrize("depth", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_deep_recursion_beside_1_023_that_return_at_once(depth):
    """Each level keeps ``n``, for the one thread that is so deep: at most 2 KiB a level."""
    command = [sys.executable, "-m", "tests.deep_recursion", str(depth)]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) * 1024 <= 2 * depth


def climb(n, deep):
    """One thread goes down while the others make the same call again and again."""
    while n > 0:
        n = n - 1
        climb(n if deep else n - n, deep)
        if deep:
            n = n - n
    return n


def test_memory_follows_the_sum_of_the_depths(monkeypatch):
    most = 0
    push = Stack.push

    def watched(self, rows, call):
        nonlocal most
        push(self, rows, call)
        kept = sum(saved.group.k for saved in self.saved.values())
        assert kept <= 2 * self.depths.sum()
        most = max(most, kept)

    monkeypatch.setattr(Stack, "push", watched)
    deep = torch.arange(64) == 5
    autobatch.vmap(climb, **PC)(torch.full((64,), 40), deep)
    assert 40 + 63 <= most <= 2 * (40 + 63)


def test_max_depth_is_none_unless_given():
    with pytest.raises(autobatch.DepthLimitError, match="max_depth=50") as caught:
        autobatch.vmap(count_down, max_depth=50, **PC)(torch.tensor([3, 60]))
    assert "use engine" not in str(caught.value)
    with pytest.raises(autobatch.DepthLimitError, match='use engine="program_counter"'):
        autobatch.vmap(count_down, max_depth=50)(torch.tensor([3, 60]))
    limits = [autobatch.Options(engine=e).depth_limit for e in ("stackless", "program_counter")]
    assert limits == [10_000, None]


class Chain:
    def __init__(self, length):
        self.length = length

    def __neg__(self):
        return 0 if self.length == 0 else 1 + -Chain(self.length - 1)


def negated(n):
    return -Chain(n)


def test_calls_within_operations_nest_too(monkeypatch):
    run = autobatch.vmap(negated, scalars="python", plain="never", **PC)
    assert run(torch.tensor([3, 60])).tolist() == [3, 60]
    with pytest.raises(autobatch.DepthLimitError, match="max_depth=50"):
        autobatch.vmap(negated, scalars="python", max_depth=50, **PC)(torch.tensor([3, 60]))
    monkeypatch.setattr("autobatch.vm.program_counter.NESTED", 40)
    with pytest.raises(autobatch.DepthLimitError, match="calls that operations make"):
        run(torch.tensor([3, 60]))


# Failures.


def failing(n, bad):
    if n == 0:
        if bad:
            raise ValueError("at the bottom")
        return 0
    return 1 + failing(n - 1, bad)


def test_the_lowest_failing_thread_counts_however_deep_it_is():
    ns, bad = torch.tensor([5, 40, 2, 0]), torch.tensor([False, True, True, True])
    with pytest.raises(ValueError, match="at the bottom") as caught:
        autobatch.vmap(failing, **PC)(ns, bad)
    (note,) = caught.value.__notes__
    assert "Example index: 1" in note and "… the same line 39 more times …" in note
    assert note.count("called here") == 1


def test_notes_are_those_of_the_stackless_engine():
    notes = []
    for options in (PC, {}):
        with pytest.raises(ValueError) as caught:
            autobatch.vmap(failing, **options)(torch.tensor([3, 5]), torch.tensor([False, True]))
        notes.append(caught.value.__notes__)
    assert notes[0] == notes[1] and "… the same line 4 more times …" in notes[0][0]


# Modes.


def scaled(x, n):
    if n == 0:
        return x * 2
    return scaled(x, n - 1) + x


def partly_graded(x, n):
    if n > 1:
        with torch.no_grad():
            y = scaled(x, n)
    else:
        y = scaled(x, n)
    return y


@EXECUTORS
def test_a_callee_runs_in_the_modes_of_its_call(executor):
    x = torch.ones(4, requires_grad=True)
    ns = torch.tensor([0, 3, 1, 2])
    y = autobatch.vmap(partly_graded, executor=executor, **PC)(x, ns)
    assert y.tolist() == [2.0, 5.0, 3.0, 4.0]
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 0.0, 3.0, 0.0]
    assert torch.is_grad_enabled()


def nested_modes(x, n):
    if n == 0:
        return x * torch.is_grad_enabled()
    with torch.no_grad():
        y = nested_modes(x, n - 1)
    return y + torch.is_grad_enabled()


def test_modes_do_not_pile_up():
    """The same mode again is the same place: recursions within it run together."""
    ns = torch.tensor([9, 2, 5])
    assert autobatch.vmap(nested_modes, **PC)(torch.ones(3), ns).tolist() == [1.0, 1.0, 1.0]
    assert counted(nested_modes, torch.ones(3), ns, **PC) <= 2 + counted(
        nested_modes, torch.ones(1), torch.tensor([9]), **PC
    )


# The rest: batches of none, gradients, what explain sees.


def straight(x):
    return count_twice(x) + 1


def count_twice(x):
    for _ in range(2):
        x = x + count_once(x)
    return x


def count_once(x):
    while False:
        x = x + 1
    return x


def test_a_batch_of_none():
    assert autobatch.vmap(straight, **PC)(torch.ones(0, 3)).shape == (0, 3)
    with pytest.raises(autobatch.EmptyBatchError):
        autobatch.vmap(count_down, **PC)(torch.ones(0))


def powers(x, n):
    if n == 0:
        return torch.ones_like(x)
    return x * powers(x, n - 1) + powers(x, n // 3)


def test_gradients_flow_through_calls():
    ns = torch.tensor([4, 0, 7, 2])
    grads: list[Tensor] = []
    for run in (autobatch.vmap(powers, **PC), autobatch.vmap(powers)):
        x = torch.tensor([0.5, 1.0, -1.5, 2.0], dtype=torch.float64, requires_grad=True)
        run(x, ns).sum().backward()
        assert x.grad is not None
        grads.append(x.grad)
    torch.testing.assert_close(grads[0], grads[1])


def test_explain_runs_the_engine_that_it_is_told(capsys):
    function = autobatch.function(count_down, **PC)
    report = autobatch.explain(function, torch.tensor([2, 4]))
    assert torch.equal(report.result, torch.tensor([2, 4]))
    assert "count_down(n - 1)" in capsys.readouterr().out


def test_results_come_in_the_caller_s_order():
    steps = steps_of(count_down, torch.tensor([4, 0, 2]))
    assert autobatch.vmap(count_down, **PC)(torch.tensor([4, 0, 2])).tolist() == [4, 0, 2]
    last = steps[-1]
    assert last.pc == len(LIBRARY.code_of(count_down).blocks) - 1
    assert np.array_equal(last.mask, [True, False, False])


def pair_or_one(x):
    if x > 1:
        return x, x
    return x


def at_the_end(x, n):
    if n == 0:
        return pair_or_one(x)
    return at_the_end(x, n - 1)


def test_results_that_do_not_stack_name_the_returns_of_calls():
    said = []
    for options in (PC, {"fork": "off"}):
        with pytest.raises(autobatch.StackingError) as caught:
            autobatch.vmap(at_the_end, **options)(torch.tensor([1.0, 2.0]), torch.tensor([3, 1]))
        said.append(str(caught.value))
    assert said[0] == said[1] and "^ here a tensor of shape (), in thread 0" in said[0]


class Tree:
    """Filled by calls of its own class."""

    def __init__(self, n, log):
        log.append(n)
        self.size = 1
        if n > 0:
            self.child = Tree(n - 1, log)
            self.size = self.size + self.child.size


def grown(n):
    log = []
    tree = Tree(n, log)
    return tree.size, sum(log), len(log)


@EXECUTORS
def test_constructors_are_calls_that_share_what_they_get(executor):
    sizes, sums, lengths = autobatch.vmap(grown, executor=executor, **PC)(torch.tensor([4, 0, 2]))
    assert sizes.tolist() == lengths.tolist() == [5, 1, 3] and sums.tolist() == [10, 0, 3]
