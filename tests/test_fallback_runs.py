"""``fallback="warn"`` runs what the default runs, and warns of what is slow in that."""

from __future__ import annotations

import linecache
import re
import warnings
from collections import deque

import pytest
import torch

import autobatch
from autobatch.explaining.overhead import MANY
from autobatch.runs.entry import name_of
from benchmarks import host_programs, mixed_programs
from programs import collatz, fixed_point, gcd, lstm, mandelbrot, merge_sort, runge_kutta
from tests.oracle import assert_matches_loop
from tests.textbook import numerics, simulations


def counted(function, args, **options):
    """The result and the counts of a call that has run before, and what it has warned of."""
    run = autobatch.vmap(function, **options)
    with warnings.catch_warnings(record=True) as warned, torch.no_grad():
        warnings.simplefilter("always")
        for _ in range(8):  # the first recording waits for six
            with autobatch.counts() as counts:
                result = run(*args)
    return result, counts, [str(each.message) for each in warned]


def same_run(function, args, **options):
    """The counts of a run, which are those of the default, and its warnings."""
    allowed, expected, none = counted(function, args, **options)
    found, counts, told = counted(function, args, fallback="warn", **options)
    assert none == []
    assert str(found) == str(allowed)
    for name in ("block_executions", "launches", "plain", "plain_parts", "host_reads"):
        assert getattr(counts, name) == getattr(expected, name), name
    return counts, told


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", host_programs.PROGRAMS)
def test_a_program_of_objects_runs_as_plain_python_and_warns_of_nothing(name):
    items = host_programs.examples(name, 5)
    counts, told = same_run(host_programs.PROGRAMS[name][0], [autobatch.objects(items)])
    assert counts.plain == 5 and counts.block_executions == 1
    assert told == []


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", mixed_programs.PROGRAMS)
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_the_parts_of_objects_run_as_plain_python(name, engine):
    rows = mixed_programs.examples(name, 3)
    args = [
        torch.stack(column) if isinstance(column[0], torch.Tensor) else autobatch.objects(column)
        for column in zip(*rows, strict=True)
    ]
    counts, _ = same_run(mixed_programs.PROGRAMS[name][0], args, engine=engine)
    assert counts.plain_parts + counts.plain > 0


def flooded(grid, row):
    """The cells of one colour around the first of a row."""
    seen = {(int(row), 0)}
    waiting = deque(seen)
    while waiting:
        y, x = waiting.popleft()
        for place in ((y, x + 1), (y + 1, x), (y, x - 1), (y - 1, x)):
            inside = 0 <= place[0] < grid.shape[0] and 0 <= place[1] < grid.shape[1]
            if inside and place not in seen and grid[place] == grid[y, x]:
                seen.add(place)
                waiting.append(place)
    return len(seen)


def test_a_program_of_tensors_that_runs_as_plain_python_is_told_so():
    grids, rows = torch.randint(0, 2, (16, 6, 6)), torch.randint(0, 6, (16,))
    counts, told = same_run(flooded, [grids, rows])
    line = flooded.__code__.co_firstlineno
    assert counts.plain == 16
    assert f"line {line}: flooded runs as plain Python, one example after the other" in told[-1]


def test_a_sort_of_lists_warns_of_no_more_than_its_reads():
    example = merge_sort.example(8)
    counts, told = same_run(example.function, example.args)
    assert counts.plain_parts == 8
    assert all("line 37" in each for each in told)  # its lists, from a tensor and back


# Runs that keeping threads together makes slower than the plain loop.


def halved(x):
    """Few operations of each execution."""
    while x > 1:
        x = x / 2
        if x > 4:
            x = x - 0.1 * x.item()  # which is not computed both ways
    return x


def told_of(function, *args, **options):
    """What a run is told of what keeping threads together costs, and its counts."""
    with warnings.catch_warnings(record=True) as warned, autobatch.counts() as counts:
        warnings.simplefilter("always")
        autobatch.vmap(function, fallback="warn", **options)(*args)
    return [each for each in warned if "plain loop" in str(each.message)], counts


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_many_block_executions_of_few_threads_are_told_of(engine):
    xs = torch.logspace(0, 30, 3, base=2, dtype=torch.float64)
    (warned,), counts = told_of(halved, xs, engine=engine)
    executions, threads = counts.block_executions, sum(counts.threads_by_block.values())
    assert executions >= MANY
    text = str(warned.message)
    assert f"{executions:,} block executions, of {threads / executions:.3g} threads" in text
    assert "halved is likely slower than a plain loop" in text
    assert "autobatch.per_thread(halved)" in text and 'executor="compiled"' in text
    assert warned.filename == __file__
    code = halved.__code__
    assert code.co_firstlineno < warned.lineno <= code.co_firstlineno + 8
    assert linecache.getline(__file__, warned.lineno).strip() in text


def states(x):
    state = 0
    for _ in range(20):
        if state == 0:
            x, state = x * 1.7 % 1.0, 1 if x > 0.5 else 2
        elif state == 1:
            x, state = (x + 0.37) % 1.0, 0 if x > 0.3 else 2
        else:
            x, state = (x * 5.1 + 0.3) % 1.0, 0 if x > 0.6 else 1
    return x


def parted(x, depth=8):
    if depth == 0:
        return x
    return parted(x * 2 % 1.0, depth - 1) + 1 if x > 0.5 else parted(x * 2, depth - 1) * 0.5


def test_how_many_examples_may_pay():
    """More examples part more: what is told goes by how far those at hand have parted."""
    enough = {}
    for size in (1, 4):
        xs = torch.linspace(0.1, 0.9, size)
        (warned,), _ = told_of(states, xs, plain="never")
        (enough[size],) = re.findall(r"a batch of (\d+) examples or more", str(warned.message))
        assert ("if they part little" in str(warned.message)) == (size == 1)
    assert int(enough[4]) > 2 * int(enough[1])  # which was told of both
    (warned,), _ = told_of(parted, torch.linspace(0.001, 0.999, 16), plain="never", fork="off")
    assert "examples or more" not in str(warned.message)


@pytest.mark.parametrize("threads", [3, 300])
def test_a_larger_batch_of_the_same_is_told_nothing(threads):
    xs = torch.logspace(0, 30, 3, base=2, dtype=torch.float64).repeat(threads // 3)
    told, counts = told_of(halved, xs)
    assert counts.block_executions >= MANY
    assert bool(told) == (threads == 3)


def test_numbers_of_pythons_take_more_examples_to_pay():
    xs = torch.logspace(0, 30, 3, base=2, dtype=torch.float64).repeat(100)
    (warned,), _ = told_of(halved_number, xs, scalars="python")
    assert 'executor="compiled", if it compiles' in str(warned.message)
    told, _ = told_of(halved_number, xs.repeat(100), scalars="python")
    assert told == []


def halved_number(x):
    while x > 1:
        x = x / 2
    return x


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "example",
    [
        collatz.example(16),
        mandelbrot.example(16),
        fixed_point.example(16),
        lstm.example(16),
        runge_kutta.example(16),
        gcd.example(256),
    ],
    ids=lambda example: name_of(example.function),
)
def test_programs_that_win_are_told_nothing(example):
    args = example.mapped(autobatch.objects, autobatch.ragged)
    assert told_of(example.function, *args)[0] == []
    with torch.no_grad():
        report = autobatch.explain(example.function, *args)
    assert report.overhead == ""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["integrate", "cart_pole", "sinkhorn", "jacobi"])
def test_textbook_programs_that_win_are_told_nothing(name):
    function, args, in_dims = {**numerics.PROGRAMS, **simulations.PROGRAMS}[name]
    args = [torch.cat([arg] * 10) for arg in args]
    assert told_of(function, *args, in_dims=in_dims)[0] == []


def descended(x):
    """Each gradient takes long for one example."""
    for _ in range(40):
        slope = torch.func.grad(lambda y: (y**4).sum())(x)
        if slope.norm() < 1e-3:
            break
        x = x - 0.1 * slope
    return x


def test_gradients_are_not_cheap():
    told, counts = told_of(descended, torch.rand(4, 3))
    assert counts.block_executions >= MANY and told == []


def large(x):
    for _ in range(40):
        if x.sum() > 0:
            x = x @ x
    return x


def test_operations_on_large_tensors_are_not_cheap():
    told, counts = told_of(large, torch.full((2, 40, 40), 1 / 40))
    assert counts.block_executions >= MANY and told == []
    assert told_of(large, torch.full((2, 4, 4), 1 / 4))[0] != []


def test_explain_says_so_too():
    xs = torch.logspace(0, 30, 3, base=2, dtype=torch.float64)
    told = autobatch.explain(halved, xs).overhead
    assert "test_fallback_runs.py, line " in told and "slower than a plain loop" in told
    assert autobatch.explain(halved, xs.repeat(100)).overhead == ""
    assert autobatch.explain(autobatch.vmap(halved_number, executor="compiled"), xs).overhead == ""


def halved_either_way(x):
    """One branch is computed both ways where it is recorded, the other never."""
    while x > 1:
        x = x / 2 if x > 8 else x / 3
        if x > 4:
            x = x - 0.1 * x.item()
    return x


def test_explain_counts_what_is_left_where_branches_are_computed_both_ways():
    xs = torch.logspace(0, 30, 3, base=2, dtype=torch.float64)
    report = autobatch.explain(halved_either_way, xs)
    (left,) = re.findall(r"a plain loop: ([0-9,]+) block executions", report.overhead)
    assert MANY <= int(left) < report.counts.block_executions
    blocks = autobatch.lower(halved_either_way).functions["halved_either_way"].blocks
    assert any(block.converted for block in blocks)


def test_the_judgement_is_an_option_of_its_own_and_changes_nothing():
    xs = torch.logspace(0, 30, 3, base=2, dtype=torch.float64)
    found, counts, told = counted(halved, [xs], fallback="warn")
    expected, allowed, none = counted(halved, [xs])
    assert torch.equal(found, expected) and counts == allowed
    assert told and none == []


def first_as_int(row):
    return int(row[0]) + 1


def noisy(x):
    return x + torch.randn_like(x)


def test_texts_say_what_an_operand_is_and_what_to_do_about_draws():
    rows = autobatch.objects([[1.5], ["2"]])
    with pytest.warns(autobatch.FallbackWarning, match="int: each example has a Python object"):
        autobatch.vmap(first_as_int, fallback="warn", plain="never")(rows)
    with pytest.raises(RuntimeError, match=r'randomness="different".* or seed=0'):
        autobatch.vmap(noisy)(torch.ones(2))


@autobatch.per_thread
def adder(x):
    made = [x]
    return made.append, made


def by_a_method(x):
    add, made = adder(x)
    add(x + 1)
    return made[1]


def test_methods_that_the_host_gives_are_those_of_each_examples_own_list():
    """That of one example alone was taken for one that all share: a write was refused."""
    assert_matches_loop(by_a_method, (torch.arange(7),), batch_sizes=(1, 2, 7))
