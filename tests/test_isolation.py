"""``on_error="isolate"``: each thread's value or exception, as the loop with ``try`` has them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st

import autobatch
from autobatch import DepthLimitError, OptionError, Result, StepLimitError
from tests.expected import check
from tests.generator import FAMILIES, OBJECT_KINDS, GeneratedProgram, programs
from tests.oracle import CONFIGURATIONS
from tests.test_properties import QUICK

SIZES = (0, 1, 2, 7, 64)
ENGINES = ("stackless", "program_counter", "sequential")
CHUNKED = (CONFIGURATIONS[2], CONFIGURATIONS[5])
"""Both engines, recorded: chunks are the runs' own, whatever is run."""


def loop(func: Callable[..., Any], rows: list[tuple[Any, ...]]) -> list[Result]:
    """What each row gives by itself."""
    results = []
    for row in rows:
        try:
            results.append(Result(func(*row)))
        except Exception as error:
            results.append(Result(None, error))
    return results


def assert_apart(actual: list[Result], expected: list[Result]) -> None:
    assert type(actual) is list and len(actual) == len(expected)
    for thread, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
        try:
            assert type(mine) is Result
            assert type(mine.exception) is type(theirs.exception), (mine, theirs)
            assert str(mine.exception) == str(theirs.exception)
            check(mine.value, theirs.value)
        except AssertionError as error:
            error.add_note(f"thread {thread}: {mine!r}, the loop has {theirs!r}")
            raise
        if mine.exception is not None:
            notes = "\n".join(mine.exception.__notes__)
            assert re.search(rf"Example index: {thread}$", notes, re.M), notes
            assert "^" in notes and re.search(r'File ".*", line \d+', notes), notes


def hold(func: Callable[..., Any], *columns: list[Any], **options: Any) -> None:
    """Numbers and objects, in every way and at every batch size."""
    for size in {size for size in (*SIZES, len(columns[0])) if size <= len(columns[0])}:
        rows = list(zip(*(column[:size] for column in columns), strict=True))
        expected = loop(func, rows)
        args = [
            torch.tensor(column[:size], dtype=torch.int64)
            if all(type(item) is int for item in column)
            else autobatch.objects(column[:size])
            for column in columns
        ]
        for configuration in CONFIGURATIONS:
            in_chunks = size > 3 and configuration in CHUNKED
            for chunk_size in (None, 3 if size < 8 else 24) if in_chunks else (None,):
                chosen = {**configuration, "chunk_size": chunk_size, "scalars": "python", **options}
                batched = autobatch.vmap(func, on_error="isolate", **chosen)
                try:
                    assert_apart(batched(*args), expected)
                except AssertionError as error:
                    error.add_note(f"{size} threads, {chosen}")
                    raise


# Ways to fail.


def divides(n, m):
    total = 0
    while n > 0:
        total = total + 12 // (n - m)
        n = n - 2
    if total > 12:
        raise ValueError(f"{total} is too much")
    return total


def test_kernels_that_fail_and_raises():
    hold(divides, [k % 9 for k in range(70)], [k % 4 for k in range(70)])


def reads(n, text):
    first = 1 // n
    number = int(text)
    pair = [1, 2][n % 3]
    return first + number + pair


def test_within_a_thread_the_first_failure_counts():
    words = ["1", "x", "2", "y", "3"]
    hold(reads, [k % 5 for k in range(70)], [words[k % 3 + k % 2] for k in range(70)])


@pytest.mark.parametrize("executor", ["vmap", "traced"])
def test_a_pending_failure_precedes_that_of_the_operation_under_raise(executor):
    batched = autobatch.vmap(reads, scalars="python", executor=executor)
    with pytest.raises(ZeroDivisionError):
        batched(torch.tensor([1, 0]), autobatch.objects(["1", "x"]))


def everyone(n):
    if n % 2 == 0:
        return missing  # noqa: F821
    return n


def raised_class(n):
    if n % 3 == 1:
        raise KeyError
    if n % 3 == 2:
        raise SHARED
    return n


SHARED = ValueError("one object")


class Odd(Exception):
    def __init__(self, number, *, reason):
        super().__init__(f"{number}: {reason}")
        self.number = number


def own_exceptions(n):
    if n % 2:
        try_number = n * 2
        raise Odd(try_number, reason="odd") from KeyError(n)
    return n


def wrong_arguments(n):
    if n % 2:
        return divides(n)
    return n


def ambiguous(n):
    values = torch.ones(2) * n
    if values if n % 2 else n > 2:
        return 1
    return 0


def different_callees(n):
    act = len if n % 3 == 0 else abs if n % 3 == 1 else str
    return act(n)


def star(n, xs):
    return max(*xs) + n


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "func",
    [everyone, raised_class, own_exceptions, wrong_arguments, ambiguous, different_callees],
    ids=lambda func: func.__name__,
)
def test_failures_of_many_threads_alike(func):
    hold(func, list(range(12)))


def test_arguments_that_do_not_unpack():
    hold(star, list(range(8)), [[1, 2], 3, [1], None, [5, 4, 3], [2, 2], "ab", [7, 8]])


def test_exceptions_are_of_each_thread():
    results = autobatch.vmap(own_exceptions, on_error="isolate", scalars="python")(torch.arange(6))
    errors = [result.exception for result in results[1::2]]
    assert [error.number for error in errors] == [2, 6, 10]
    assert [error.__cause__.args for error in errors] == [(1,), (3,), (5,)]
    assert len({id(error) for error in errors}) == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        results[0].value = 1


def rows_of_tensors(x):
    total = torch.zeros(())
    while x.sum() > 0:
        total = total + x @ x
        x = x - 1
        if total > 20:
            raise OverflowError(f"{total.item():.1f}")
    return total, x


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_tensors_are_rows_and_keep_their_gradient(configuration):
    xs = torch.tensor([[1.0, 2.0], [4.0, 4.0], [0.0, 1.0]], requires_grad=True)
    results = autobatch.vmap(rows_of_tensors, on_error="isolate", **configuration)(xs)
    assert_apart(results, loop(rows_of_tensors, [(row,) for row in xs]))
    for made in (results, loop(rows_of_tensors, [(row,) for row in xs])):
        sum(result.value[0] for result in made if result.exception is None).backward()
    batched, xs.grad = xs.grad, None
    sum(rows_of_tensors(xs[row])[0] for row in (0, 2)).backward()
    torch.testing.assert_close(batched, 2 * xs.grad)


# Effects.


SEEN: list[Any] = []


@autobatch.per_thread
def record(tag: Any, n: int) -> None:
    SEEN.append((tag, n))


def seen(tag: Any, n: int) -> int:
    record(tag, n)
    if n % 4 == 1:
        raise RuntimeError(f"{tag} {n}")
    return n


def effects(n):
    a = seen("first", n)
    b = seen("second", a + 2)
    return a + b


def within(items):
    items = sorted(items, key=lambda item: seen("key", item))
    return items[0]


class Scale:
    def __init__(self, factor):
        self.factor = factor

    def __eq__(self, other):
        seen("eq", other)
        return self.factor == other

    def __len__(self):
        return seen("len", self.factor)

    def __iadd__(self, other):
        self.factor = self.factor + seen("iadd", other)
        return self

    __hash__ = None


def methods(n):
    scale = Scale(n % 5)
    scale += n
    different = scale != n
    size = len(scale) if n > 3 else 0
    return different, size, scale.factor


def pops(n, items):
    items.append(n)
    last = items.pop(), items.pop()
    return last, len(items), next(iter(items), None)


def iterates(n, items):
    source = iter(items)
    first = next(source)
    second = next(source)
    return first, second, list(source), n


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("func", [effects, methods], ids=lambda func: func.__name__)
def test_effects_happen_once_in_the_order_of_the_threads(configuration, func):
    SEEN.clear()
    expected = loop(func, [(n,) for n in range(12)])
    alone = sorted(SEEN, key=lambda pair: pair[0])
    SEEN.clear()
    chosen = {"scalars": "python", **configuration}
    results = autobatch.vmap(func, on_error="isolate", **chosen)(torch.arange(12))
    assert_apart(results, expected)
    assert sorted(SEEN, key=lambda pair: pair[0]) == alone


@dataclasses.dataclass
class Weighed:
    weight: float


def test_an_attribute_that_a_recorded_block_misses():
    """Whoever lacks it fails, however often others have had it."""

    def scaled(node: Weighed, x: torch.Tensor) -> torch.Tensor:
        return x * node.weight

    batched = autobatch.vmap(scaled, on_error="isolate", trace_after=0)
    nodes, x = [Weighed(float(i)) for i in range(4)], torch.ones(4, 3)
    for _ in range(3):
        assert all(result.exception is None for result in batched(autobatch.objects(nodes), x))
    del nodes[2].weight
    found = batched(autobatch.objects(nodes), x)
    assert [type(result.exception) for result in found] == [
        *(type(None), type(None)),
        *(AttributeError, type(None)),
    ]


def test_operations_on_objects_run_once():
    hold_objects(pops, [[], [1], [1, 2], [], [3, 4, 5]])
    hold_objects(iterates, [[], [1], [1, 2], [1, 2, 3], [4]])
    hold_objects(lambda n, items: within(items), [[3, 2], [5, 4], [], [8, 6, 7], [1]])


def hold_objects(func: Callable[..., Any], items: list[list[int]]) -> None:
    for configuration in CONFIGURATIONS:
        columns = [(n, list(item)) for n, item in enumerate(items)]
        expected = loop(func, columns)
        given_ = autobatch.objects([list(item) for item in items])
        chosen = {"scalars": "python", **configuration}
        batched = autobatch.vmap(func, on_error="isolate", **chosen)
        assert_apart(batched(torch.arange(len(items)), given_), expected)


def printing(n):
    print("a", n)
    check_ = 6 // (n - 2)
    print("b", n, check_)
    return check_


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_prints_of_the_threads_above(configuration, capsys):
    batched = autobatch.vmap(printing, on_error="isolate", scalars="python", **configuration)
    batched(torch.arange(5))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line[0] == "a"] == [f"a {n}" for n in range(5)]
    assert [line for line in lines if line[0] == "b"] == ["b 0 -3", "b 1 -6", "b 3 6", "b 4 3"]


class Guard:
    def __init__(self, log, n):
        self.log, self.n = log, n

    def __enter__(self):
        if self.n == 3:
            raise PermissionError("three")
        return self.n

    def __exit__(self, kind, error, trace):
        self.log.append((self.n, kind.__name__ if kind else None, str(error)))
        if self.n == 4:
            raise RuntimeError("on the way out")


@autobatch.per_thread
def guarded(log, n):
    return Guard(log, n)


def managed(n, log):
    with Guard(log, n) as given:
        value = 10 // (given - 1)
    return value, log


def managed_outside(n, log):
    with guarded(log, n) as given:
        value = 10 // (given - 1) + 10 // (given - 5)
    return value, log


@pytest.mark.parametrize("func", [managed, managed_outside], ids=lambda func: func.__name__)
def test_managers_get_the_failure_of_each_thread(func):
    for configuration in CONFIGURATIONS:
        logs = [[] for _ in range(7)]
        expected = loop(func, list(enumerate(logs)))
        given_ = autobatch.objects([[] for _ in range(7)])
        chosen = {"scalars": "python", **configuration}
        batched = autobatch.vmap(func, on_error="isolate", **chosen)
        assert_apart(batched(torch.arange(7), given_), expected)


# Calls.


def tree(n, bad):
    if n == bad:
        raise LookupError(f"{n} is bad")
    if n < 2:
        return n
    return tree(n - 1, bad) + tree(n - 2, bad)


def two_ways(n, bad):
    """The second call fails at another place than the first, whichever runs further."""
    if n < 1:
        return 10 // (n + bad)
    left = two_ways(n - 1, bad)
    right = two_ways(n - 2, bad)
    if left + right == 7:
        raise ValueError("seven")
    return left + right


@pytest.mark.sampled(2)
@pytest.mark.parametrize("func", [tree, two_ways], ids=lambda func: func.__name__)
def test_fork_join_recursion(func):
    hold(func, [k % 7 for k in range(65)], [k % 4 for k in range(65)])
    hold(func, [k % 7 for k in range(20)], [k % 4 for k in range(20)], max_width=5)


def apply_all(n):
    double = lambda x: 2 * (6 // (x - 1))  # noqa: E731
    return [double(k) for k in range(n % 3 + 2, 0 if n % 2 else 1, -1)], max(
        [n, n + 1], key=lambda k: 1 / (k - 4)
    )


def test_calls_within_operations():
    hold(apply_all, list(range(9)))


# Limits.


def descend(n):
    if n == 0:
        return 0
    return 1 + descend(n - 1)


class Node:
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return 0 if self.n == 0 else 1 + len(Node(self.n - 1))


def nodes(n):
    return len(Node(n))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("func", [descend, nodes])
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("chunk_size", [None, 2])
def test_depth(func, configuration, chunk_size):
    if func is nodes and configuration.get("engine") == "sequential":
        pytest.skip("a method that a builtin calls is plain Python there")
    batched = autobatch.vmap(
        func,
        on_error="isolate",
        max_depth=9,
        scalars="python",
        chunk_size=chunk_size,
        **configuration,
    )
    results = batched(torch.tensor([1, 30, 2, 0, 12]))
    expected = [func(1), None, func(2), 0, None]
    assert [result.value for result in results] == expected
    for thread in (1, 4):
        error = results[thread].exception
        assert type(error) is DepthLimitError and "max_depth=9" in str(error)
        (said,) = error.__notes__
        assert said.endswith(f"Example index: {thread}") and "(n - 1)" in said.replace("self.", "")


def wait(n):
    i = 0
    while i < n:
        i = i + 1
    done = n
    return done


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("executor", ["traced", "vmap"])
def test_steps(engine, executor):
    batched = autobatch.vmap(
        wait, on_error="isolate", max_steps=30, scalars="python", engine=engine, executor=executor
    )
    with autobatch.counts() as counted:
        results = batched(torch.tensor([1, 70, 3, 90]))
    assert counted.block_executions == 31  # one more for the two that had left the loop
    assert [result.value for result in results] == [1, None, 3, None]
    for thread in (1, 3):
        error = results[thread].exception
        assert type(error) is StepLimitError and "while i < n:" in str(error)
        assert "An example takes more" in str(error) and "1 thread is" in str(error)
        assert error.__notes__[0].endswith(f"Example index: {thread}")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("way", [{}, {"chunk_size": 1}, {"schedule": "most_threads"}])
def test_isolated_examples_have_steps_of_their_own(engine, way):
    """What others take counts for none: as many as one alone, and one is stopped with one less."""
    options = {"on_error": "isolate", "scalars": "python", "engine": engine, **way}
    with autobatch.counts() as counted:
        autobatch.vmap(wait, **options)(torch.tensor([7]))
    for steps, kept in ((counted.block_executions, 7), (counted.block_executions - 1, None)):
        results = autobatch.vmap(wait, max_steps=steps, **options)(torch.tensor([2, 7, 90, 1]))
        assert [result.value for result in results] == [2, kept, None, 1]
        assert type(results[2].exception) is StepLimitError


def own_recursion(n):
    return 0 if n == 0 else own_recursion(n - 1) + own_recursion(n - 2 if n > 1 else 0)


@pytest.mark.parametrize("engine", ENGINES)
def test_steps_of_calls_are_an_examples_own(engine):
    """Rows of forked calls count for the example that has made them, once for each step."""
    results = autobatch.vmap(
        own_recursion, on_error="isolate", max_steps=120, scalars="python", engine=engine
    )(torch.tensor([1, 100, 3, 2]))
    assert [result.value for result in results] == [0, None, 0, 0]
    assert type(results[1].exception) is StepLimitError
    assert "Example index: 1" in results[1].exception.__notes__[0]


def test_steps_that_end_within_forked_calls():
    results = autobatch.vmap(tree, on_error="isolate", max_steps=12, scalars="python")(
        torch.tensor([1, 12, 3]), torch.tensor([-1, -1, 3])
    )
    assert type(results[1].exception) is StepLimitError
    assert "Example index: 1" in results[1].exception.__notes__[0]


@pytest.mark.parametrize("engine", ENGINES)
def test_limits_that_raise_name_threads_too(engine):
    with pytest.raises(StepLimitError) as caught:
        autobatch.vmap(wait, max_steps=20, scalars="python", engine=engine)(torch.tensor([90, 80]))
    threads = "0" if engine == "sequential" else "0, 1"
    assert caught.value.__notes__[0].endswith(f"Example index: {threads}")
    with pytest.raises(DepthLimitError) as caught:
        autobatch.vmap(descend, max_depth=5, scalars="python", engine=engine)(torch.tensor([1, 9]))
    assert caught.value.__notes__[0].endswith("Example index: 1")


def waits_or_descends(n):
    down = descend(n)
    if n == 1:
        raise ValueError("one")
    return down


@pytest.mark.parametrize("engine", ENGINES)
def test_a_lower_threads_exception_precedes_calls_that_nest_too_deep(engine):
    """As in the loop, which never comes to the thread that would call too deep."""
    batched = autobatch.vmap(waits_or_descends, max_depth=9, scalars="python", engine=engine)
    with pytest.raises(ValueError, match="one") as caught:
        batched(torch.tensor([3, 1, 40, 2, 30]))
    assert caught.value.__notes__[0].endswith("Example index: 1")
    with pytest.raises(DepthLimitError):
        batched(torch.tensor([3, 40, 1]))


# What is no thread's failure.


def ragged(n):
    return torch.ones(n).sum()


def test_refusals_are_raised():
    with pytest.raises(autobatch.FallbackError):
        autobatch.vmap(ragged, on_error="isolate", fallback="error")(torch.arange(3))
    with pytest.raises(OptionError, match="out_dims is 1"):
        autobatch.vmap(divides, on_error="isolate", out_dims=1)


def test_a_program_is_not_executed_so():
    program = autobatch.lower(divides)
    with pytest.raises(OptionError, match="on_error is 'isolate'"):
        autobatch.execute(program, [1, 2], [3, 4], on_error="isolate")


def test_explain_reports_the_run(capsys):
    func = autobatch.function(printing, on_error="isolate", scalars="python")
    report = autobatch.explain(func, torch.arange(5))
    assert "check_ = 6 // (n - 2)" in str(report)


def test_results_need_not_stack():
    def unlike(n):
        return [0] * n if n < 3 else str(n)

    results = autobatch.vmap(unlike, on_error="isolate", scalars="python")(torch.arange(5))
    assert [result.value for result in results] == [[], [0], [0, 0], "3", "4"]


# Random programs.

FAULTS = (
    "assert ({name} * 7 + {place}) % 5 != 1, 'fault {place}'",
    "{name} = {name} + 0 * (8 // (({name} + {place}) % 4))",
    "[1, 2, 3][int({name}) % 4]",
    "if {name} % 6 == {place} % 6: raise ValueError(f'{{{name}}} at {place}')",
    "int('7' if ({name} + {place}) % 5 else 'seven')",
)


def with_faults(program: GeneratedProgram, places: list[tuple[int, int]]) -> GeneratedProgram:
    """The program with lines that may fail, at some places of its main function."""
    lines = program.source.split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("def program"))
    first = next(i for i in range(start, len(lines)) if lines[i].lstrip().startswith("n = ")) + 1
    for place, kind in sorted(places, reverse=True):
        at = first + place % (len(lines) - first)
        text = lines[at].lstrip()
        if text and not text.startswith(
            ("elif", "else", "case", "except", "finally", "def program")
        ):
            indent = lines[at][: len(lines[at]) - len(text)]
            lines.insert(at, indent + FAULTS[kind].format(name="n", place=place))
    return dataclasses.replace(program, source="\n".join(lines))


def one_way(data: st.DataObject, family: str) -> None:
    drawn = data.draw(programs(family, raising=True), label="program")
    fault = st.tuples(st.integers(0, 99), st.integers(0, len(FAULTS) - 1))
    places = data.draw(st.lists(fault, min_size=1, max_size=4), label="faults")
    check_faults(data, with_faults(drawn, places))


def check_faults(data: st.DataObject, program: GeneratedProgram) -> None:
    """Hold each thread of a program that fails in some to the loop's value or exception."""
    note(repr(program))
    size = data.draw(st.sampled_from(SIZES), label="batch size")
    columns = program.columns(size, data.draw(st.integers(0, 99), label="seed"))
    expected = loop(program.function(), [program.row(columns, i) for i in range(size)])
    args = tuple(
        autobatch.objects(column) if kind in OBJECT_KINDS else column
        for kind, column in zip(program.params, columns, strict=True)
    )
    chosen = {
        **data.draw(st.sampled_from(CONFIGURATIONS), label="configuration"),
        "chunk_size": data.draw(st.sampled_from((None, 3)), label="chunk size"),
        "scalars": program.scalars,
    }
    assert_apart(autobatch.vmap(program.function(), on_error="isolate", **chosen)(*args), expected)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("family", FAMILIES)
@settings(QUICK, max_examples=4)
@given(data=st.data())
def test_random_programs_that_fail(data: st.DataObject, family: str) -> None:
    one_way(data, family)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@settings(QUICK, max_examples=300, derandomize=False)
@given(data=st.data())
def test_many_random_programs_that_fail(data: st.DataObject, family: str) -> None:
    one_way(data, family)
