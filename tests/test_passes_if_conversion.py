"""If-conversion: short branches run as selects where nobody can tell; all else stays as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch
from autobatch.frontend import lower_function
from autobatch.ir.program import Function
from autobatch.ir.verifier import verify
from autobatch.passes import run_passes
from autobatch.passes.if_conversion import MOST, convert_ifs
from programs.collatz import collatz
from programs.mandelbrot import mandelbrot
from programs.runge_kutta import example as runge_kutta_example
from tests.language import cases
from tests.of_its_own import of_its_own
from tests.oracle import assert_matches_loop
from tests.outside_world import program

FUNCTIONS = list(dict.fromkeys(func for func, _ in cases() if func.__name__ != "matching"))
AT_ONCE = {"executor": "traced", "trace_after": 0}
CONFIGURATIONS = (AT_ONCE, {**AT_ONCE, "engine": "program_counter"}, {})


def passed(func: Callable[..., Any]) -> Function:
    return run_passes(lower_function(func))


def converted(func: Callable[..., Any]) -> list[int]:
    """The blocks of a function that have something to run instead of them."""
    return [at for at, block in enumerate(passed(func).blocks) if block.converted is not None]


def warm(func: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The counts of a run for which all recordings are there."""
    for _ in range(3):
        with torch.no_grad(), autobatch.counts() as counts:
            autobatch.vmap(func, **AT_ONCE, **options)(*args)
    return counts


# What it is good for


def test_a_round_of_collatz_is_one_execution_and_one_read():
    counts = warm(of_its_own(collatz), torch.arange(1, 200))
    longest = max(collatz(n) for n in range(1, 200))
    assert counts.block_executions == 1 + longest + 1
    assert counts.host_reads == 1 + longest


def test_a_round_of_mandelbrot_is_one_execution():
    """Both halves of its ``and``; the branch that all threads share reads nothing."""
    draw = torch.Generator().manual_seed(0)
    points = [torch.rand(64, generator=draw) * 3 - 2, torch.rand(64, generator=draw) * 2 - 1]
    counts = warm(of_its_own(mandelbrot), *points)
    longest = max(mandelbrot(*point) for point in zip(*points, strict=True))
    assert longest == 100 and counts.block_executions == longest + 3


def test_a_step_of_the_ode_solver_is_one_execution():
    example = runge_kutta_example(16)
    counts = warm(example.function, *example.args)
    rounds = counts.by_block[("runge_kutta", 1)]
    assert counts.block_executions == rounds + 2 and counts.host_reads == rounds + 1


@pytest.mark.sampled(8)
@pytest.mark.parametrize("func", FUNCTIONS, ids=lambda func: func.__name__)
def test_the_corpus_is_well_formed(func):
    assert verify(passed(func)) == []


def test_it_is_made_anew():
    """Its result is no input: what it made of blocks that have changed would be stale."""
    made = passed(collatz)
    assert run_passes(made) == made
    bare = replace(made, blocks=tuple(replace(b, converted=None) for b in made.blocks))
    assert convert_ifs(bare).blocks == made.blocks


# What is converted


def calls_in_a_way(x):
    if x > 0:
        x = torch.exp(x)
    return x * 2


def unknown_call(x, f):
    if x > 0:
        x = f(x)
    return x * 2


def long_way(x):
    if x > 0:
        x = x + 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9 + 10 + 11 + 12 + 13
    return x * 2


def divides(x, y):
    if y != 0:
        x = x // y
    return x * 2


def divides_by_two(x):
    if x % 2 == 0:
        x = x // 2
    return x * 2


def early_return(x):
    if x > 0:
        return x
    return -x


def chain(x):
    if x > 2:
        y = x * 2
    elif x > 1:
        y = x * 3
    elif x > 0 and x * x > 0.25:
        y = x * 5
    else:
        y = x - 1
    return y + x


def writes(x):
    y = torch.zeros_like(x)
    if x > 0:
        y += x
    return y * 2


def under_mode(x):
    with torch.no_grad():
        if x > 0:
            x = x + 1
        x = x * 2
    return x + 0


@pytest.mark.parametrize(
    "func, labels",
    [
        (calls_in_a_way, [0]),
        (unknown_call, []),
        (long_way, []),
        (divides, []),
        (divides_by_two, [0]),
        (early_return, []),
        (chain, [0, 2, 4, 5]),
        (writes, [0]),
        (under_mode, []),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_converted(func, labels):
    assert converted(func) == labels


def test_a_count_on_one_way_is_a_select():
    def hits(x):
        found = 0
        while x > 1:
            if x % 3 < 1:
                found += 1
            x = x - 1
        return found

    xs = torch.arange(1.0, 30.0)
    counts = warm(hits, xs)
    assert counts.block_executions == 30
    assert counts.by_block[("hits", 1)] == 28 and counts.host_reads == 29


def test_how_much_is_cheap():
    assert MOST == 12, "long_way has one more"


# That nobody can tell


def kinds_differ(x):
    y = x * 1.0
    if x > 0:
        y = 1
    return y + x


def numbers_differ(n):
    y = 1
    if n > 2:
        y = 0.5
    z = y * 3
    return z if n > 1 else z + n


def nothing_or_something(x):
    y = None
    if x > 0:
        y = x + 1
    return x if y is None else y * 2


def dtypes_differ(x):
    y = x + 0
    if x > 0:
        y = x > 1
    return y * 1 + x


def guarded_division(n, m):
    q = 0
    if m != 0:
        q = n / m
    return q + n


def guarded_root(x):
    y = x * 0
    if x > 0:
        y = torch.sqrt(x)
    return (y + x) * 2


def bound_on_one_way(x):
    if x > 0:
        y = x + 1
    return x + y if x > 0 else x


def unbound(x):
    if x > 1:
        y = x + 1
    x = x * 2
    return x + y


def counts_up(n):
    hits = 0
    total = 0
    while n > 0:
        if n % 3 == 0:
            hits += 1
        if n % 2 == 0 or n % 5 == 0:
            total += n
        n -= 1
    return hits * 1000 + total


def stays_an_alias(x):
    a = x + 1
    b = x + 2
    if x > 0:
        a = b
    z = a * 1
    a += 10
    return a + b * 100 + z


def alias_of_an_argument(x):
    y = x
    if x > 0:
        x = x + 1
    z = x * 1
    x += 5
    return y * 100 + x + z


def held_in_a_list(x):
    a = x + 1
    box = [a]
    if x > 0:
        a = x + 2
    z = a * 3
    a += 7
    return box[0] + z + a


def is_told_apart(x):
    a = x + 1
    b = x + 2
    c = a
    if x > 0:
        c = b
    z = c * 2
    return z + (1 if c is a else 0) + (2 if c is b else 0)


def adds_in_place(x):
    if x > 0:
        x = x + 1
    x += 10
    return x


def callee_of_an_argument(x):
    y = x * 1
    z = adds_in_place(y)
    return y * 100 + z


def captured(x):
    a = x + 1

    def later():
        return a * 2

    if x > 0:
        a = a + 3
    b = a + 1
    return later() + b


def grows_in_place(x):
    """What a way writes is a tensor that the other way has, too."""
    y = x * 2
    if x > 0:
        y += 1
    return y * 3 + x


def grows_by_another_name(x):
    """Nothing reads what a way assigns, and it writes what has another name."""
    x = x * 2
    y = x
    if x > 1:
        y += 1
    return x


def grows_in_part(x):
    row = torch.stack([x, x + 1, x + 2])
    part = row[1:]
    if x > 0:
        part *= 2
    else:
        part -= 1
    return row


def grows_in_either_half(x):
    x = x * 2
    y = x.view(-1)
    if x > 1:
        y += 1
        if x > 3:
            y *= 2
    return x


def grows_in_rounds(x):
    for i in range(3):
        x = x + 1
        y = x.detach()
        if x > i:
            y -= 3
    return x


def views(x):
    row = torch.stack([x, x + 1, x + 2])
    a = row[0]
    if x > 0:
        a = x * 5
    b = a * 1
    a += 100
    return row.sum() + b


ALIASES = [
    stays_an_alias,
    alias_of_an_argument,
    held_in_a_list,
    is_told_apart,
    callee_of_an_argument,
    captured,
    grows_in_place,
    grows_by_another_name,
    grows_in_part,
    grows_in_either_half,
    grows_in_rounds,
    writes,
    views,
]
FLOATS = torch.tensor([0.3, -1.2, 2.5, 0.0, 1.5, -0.7, 3.0])
INTS = torch.tensor([3, -1, 2, 0, 1, 5, 4])


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    "func",
    [
        kinds_differ,
        dtypes_differ,
        nothing_or_something,
        guarded_root,
        bound_on_one_way,
        chain,
        calls_in_a_way,
        mandelbrot,
        *ALIASES,
    ],
    ids=lambda func: func.__name__,
)
def test_tensors(func):
    args = [FLOATS] if func is not mandelbrot else [FLOATS, FLOATS.flip(0)]
    with torch.no_grad():
        assert_matches_loop(func, args, batch_sizes=(0, 1, 2, 7), configurations=CONFIGURATIONS)
        autobatch.vmap(func, **AT_ONCE)(*args)
        assert_matches_loop(func, args, batch_sizes=(0, 1, 2, 7), configurations=CONFIGURATIONS)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("scalars", ["python", "tensor"])
@pytest.mark.parametrize(
    "func", [numbers_differ, counts_up, collatz, guarded_division], ids=lambda func: func.__name__
)
def test_numbers(func, scalars):
    ns = INTS.abs() + 1 if func is collatz else INTS
    args = [ns, torch.tensor([0, 1, 2, 0, 4, 5, 0])] if func is guarded_division else [ns]
    for _ in range(2):
        assert_matches_loop(
            func, args, scalars=scalars, batch_sizes=(0, 1, 2, 7), configurations=CONFIGURATIONS
        )


def test_unbound_on_a_way():
    for xs in (torch.tensor([2.0, 3.0]), torch.tensor([2.0, 0.5])):
        for _ in range(3):
            assert_matches_loop(unbound, [xs], batch_sizes=(1, 2), configurations=CONFIGURATIONS)


@pytest.mark.parametrize("func", [guarded_root, chain], ids=lambda func: func.__name__)
def test_gradients_are_those_of_the_way_taken(func):
    xs = FLOATS.clone().requires_grad_()
    for _ in range(3):
        (got,) = torch.autograd.grad(autobatch.vmap(func, **AT_ONCE)(xs).sum(), xs)
        assert got.isfinite().all()
        for x, slope in zip(FLOATS, got, strict=True):
            own = x.clone().requires_grad_()
            (wanted,) = torch.autograd.grad(func(own), own)
            assert torch.allclose(slope, wanted)


def test_large_tensors_part():
    """Computing both ways for all costs more than copying each thread's rows to its way."""

    def either(x):
        for _ in range(3):
            x = x * 2 if x.sum() > 0 else x * 3  # noqa: RUF100
            x = x - 1
        return x

    small, large = torch.randn(8, 64), torch.randn(8, 65)
    assert warm(either, small).row_copies == 0
    assert warm(either, large).row_copies > 0


def test_where_it_does_not_come_to_that_it_is_tried_rarely():
    """Unlike results part threads as before, and cost no attempt at each execution."""

    def parts(n):
        total = 0
        while n > 0:
            y = 1
            if n % 2 == 0:
                y = 0.5
            total = total + y
            n = n - 1
        return total

    ns = torch.arange(1, 40)
    counts = warm(parts, ns, scalars="python")
    assert counts.row_copies > 0
    assert autobatch.vmap(parts, scalars="python")(ns).tolist() == [parts(n) for n in ns.tolist()]


def test_what_listeners_and_explain_see():
    """A listener sees the executions that were; ``explain`` runs the blocks as they stand."""
    steps: list[Any] = []
    ns = torch.arange(1, 60)
    warm(collatz, ns)
    with autobatch.counts() as counts:
        autobatch.vmap(collatz, listeners=steps.append, **AT_ONCE)(ns)
    assert len(steps) == counts.block_executions
    report = autobatch.explain(collatz, ns)
    assert all(report.counts.by_block[("collatz", pc)] for pc in range(6))


MADE = ("x * 2", "x + 1", "-x")
NAMES = ("{}", "{}.view(-1)", "{}[1:]", "{}.detach()", "{}[0]", "{} + 1")
TESTS = ("x.sum() > 3", "n > 1", "x[0] > 1", "n % 2 == 0", "x.sum() > 3 and n > 0")
WRITES = ("{0} += 1", "{0} *= 2", "{0} -= n", "{0} /= 2", "{0} = {0} + 1", "k += 1")


@st.composite
def branches(draw: st.DrawFn) -> list[str]:
    """Names for a tensor and its parts, branches that write to some, and results that see some."""

    def one(options: Sequence[str]) -> str:
        return draw(st.sampled_from(options))

    indent = "    " if draw(st.integers(0, 3)) == 3 else ""
    names, lines = ["x"], ["k = 0", *(["for i in range(2):"] if indent else [])]
    lines.append(f"{indent}x = {one(MADE)}")
    for number in range(draw(st.integers(1, 2))):
        lines.append(f"{indent}v{number} = {one(NAMES).format(one(names))}")
        names.insert(0, f"v{number}")
        lines += [f"{indent}if {one(TESTS)}:", f"{indent}    {one(WRITES).format(one(names))}"]
        if draw(st.integers(0, 2)) == 2:
            lines += [f"{indent}else:", f"{indent}    {one(WRITES).format(one(names))}"]
    return [*lines, f"return {draw(st.sampled_from(['x', 'x, k', *([] if indent else names)]))}"]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(branches())
def test_what_branches_write_by_other_names(lines):
    text = "; ".join(lines)
    func = program(text, lines, {"torch": torch}, "x, n")
    xs, ns = torch.arange(12.0).reshape(4, 3) - 4, torch.tensor([0, 1, 2, 3])
    way = {**AT_ONCE, "plain": "never"}
    assert_matches_loop(func, [xs, ns], scalars="python", configurations=(way,))
