"""``nonlocal``: variables of a program's functions that those nested in them assign."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch
from autobatch.errors import UnsupportedError
from tests.oracle import CONFIGURATIONS, assert_matches_loop

# ruff: noqa: C416, E731, F821, PLC3002, SIM105
# What users write, idiomatic or not.

X = torch.linspace(-2, 3, 192).reshape(64, 3)
N = torch.arange(64) % 7
SIZES = (1, 2, 7, 64)
MORE = (
    *CONFIGURATIONS,
    {"executor": "compiled", "plain": "never"},
    {"fork": "off", "plain": "never"},
    {"engine": "program_counter", "executor": "vmap"},
    {"passes": ()},
)


def matcher(n: Any) -> Any:
    """A recursive-descent parser of what a number says."""
    text, pos = "(a|b)*c|(ab"[: n + 5], 0

    def peek():
        return text[pos] if pos < len(text) else ""

    def take():
        nonlocal pos
        pos += 1
        return text[pos - 1]

    def either():
        left = sequence()
        while peek() == "|":
            take()
            left = (left, sequence())
        return left

    def sequence():
        parts = []
        while peek() not in ("", "|", ")"):
            parts.append(repeated())
        return tuple(parts)

    def repeated():
        found = atom()
        while peek() == "*":
            take()
            found = ("*", found)
        return found

    def atom():
        if peek() != "(":
            return take()
        take()
        found = either()
        if peek() != ")":
            raise ValueError(f"expected ) at {pos}")
        take()
        return found

    return str(either())


def parted(x: Any, n: Any) -> Any:
    """Threads write in one branch, and in their own number of rounds."""
    total, count = x * 0, 0

    def add(k):
        nonlocal total, count
        if k % 2 == n % 2:
            total = total + x * k
        else:
            count += k
        return total

    for i in range(n):
        add(i)
        if total.sum() > 4:
            total = total / 2
    return total, count


def types_change(n: Any) -> Any:
    value = 0

    def step():
        nonlocal value
        value = value + 1 if n % 2 else value + 0.5

    for _ in range(n):
        step()
    return str(value)


def deep(n: Any) -> Any:
    a = 0

    def outer():
        b = 0

        def inner():
            nonlocal a, b

            def innermost():
                nonlocal a, b
                a += n
                b += a

            innermost()
            innermost()

        inner()
        if n > 3:
            inner()
        return b

    return outer() + outer(), a


def recursive(n: Any) -> Any:
    """Calls that would run as one, but for what they write."""
    count = order = 0

    def fib(m):
        nonlocal count, order
        count += 1
        order = (order * 3 + m) % 1009
        return m if m < 2 else fib(m - 1) + fib(m - 2)

    return fib(n), count, order


def aliased(x: Any) -> Any:
    t = x.clone()
    u = t

    def change():
        nonlocal t
        t += 1
        if x.sum() > 0:
            t = t * 2
        t.mul_(3)

    change()
    change()
    return t, u


def read_by_others(n: Any) -> Any:
    """Lambdas, comprehensions and generators read what is there when they run."""
    k = 1
    scaled = lambda v: v * k

    def bump():
        nonlocal k
        k += n
        return k

    lazy = (v * k for v in range(5))
    found = [next(lazy), scaled(2)]
    bump()
    found += [scaled(v) + bump() for v in range(3)]
    return sum(found) + sum(lazy) + next(iter({v: v + k for v in range(2)}.values()))


def targets(n: Any) -> Any:
    a = b = c = d = e = 0
    rest = [0]

    def assigns():
        nonlocal a, b, c, d, e, rest
        for a in range(n % 4):
            b, *rest = (a, n, 3)
        d = c = n
        if (e := n * 2) > 4:
            e += 1
        [d := d + v for v in range(3)]
        match n % 3:
            case 0:
                pass
            case c:
                rest[0] += c

    assigns()
    return a, b, c, d, e, str(rest)


def shadowed(n: Any) -> Any:
    """Comprehensions and lambdas have names of their own."""
    v = n

    def own():
        nonlocal v
        v += 1
        return [v for v in range(3)][-1] + (lambda v: v)(5) + (lambda: v)()

    return own() + v, [(lambda: v)() for v in range(3)][n % 3]


def functions(n: Any) -> Any:
    step = lambda v: v

    def choose():
        nonlocal step
        if n % 2:

            def step(v):
                return v + 1

        else:
            step = lambda v: v * 2

    first = step(n)
    choose()
    return first, step(n)


def parameters(n: Any, k: Any = 2, *rest: Any) -> Any:
    def step(m=k):
        nonlocal n, k, rest
        n -= 1
        k += m
        rest = (*rest, k)

    while n > 0:
        step()
    return n, k, len(rest)


def counters(n: Any) -> Any:
    """Each call of a function has a variable of its own."""
    made = []
    for i in range(3):

        def make(start):
            k = start

            def step():
                nonlocal k
                k += n
                return k

            return step

        made.append(make(i))
    return made[0]() + made[n % 3]() * 10 + made[0]() * 100


def defined_before(n: Any) -> Any:
    """Functions that nothing calls before the variable has its value."""

    def step():
        nonlocal k
        k = k * 2 + n

    def twice():
        step()
        step()

    k = 1
    twice()
    return k


def in_branches(n: Any) -> Any:
    if n % 2:
        k = 1

        def step():
            nonlocal k
            k += n

        step()
        return k
    total = 0
    for i in range(n):
        k = i

        def step():
            nonlocal k, total
            k += 1
            total += k

        step()
        step()
    return total


def handled(n: Any) -> Any:
    """What has been written before an exception stays."""
    a = 0

    def divide(k):
        nonlocal a
        a += 1
        found = 10 // (k - 2)
        a += 100
        return found

    for k in range(n):
        try:
            divide(k)
        except ZeroDivisionError:
            a += 10000
        finally:
            divide(7)
    return a


def raised(n: Any) -> Any:
    a = 0

    def step():
        nonlocal a
        a += 1
        if a > 2 and n == 5:
            raise ValueError(f"a is {a}")

    while a < n:
        step()
    return a


def given_to_host_code(n: Any) -> Any:
    calls = 0

    def key(v):
        nonlocal calls
        calls += 1
        return -v

    def folded(a, b):
        nonlocal calls
        calls *= 2
        return a + b * calls

    ordered = sorted([3, 1, n], key=key)
    return calls, ordered[0], functools.reduce(folded, ordered), sum(map(key, ordered)), calls


NUMBERS: list[Callable[..., Any]] = [
    types_change,
    deep,
    recursive,
    read_by_others,
    targets,
    shadowed,
    functions,
    parameters,
    counters,
    defined_before,
    in_branches,
    handled,
    given_to_host_code,
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("program", [*NUMBERS, matcher, raised], ids=lambda f: f.__name__)
def test_numbers_and_texts_are_the_loops(program: Callable[..., Any]) -> None:
    assert_matches_loop(program, (N,), scalars="python", batch_sizes=SIZES, configurations=MORE)


@pytest.mark.parametrize("program", [parted], ids=lambda f: f.__name__)
def test_tensors_and_numbers_are_the_loops(program: Callable[..., Any]) -> None:
    assert_matches_loop(program, (X, N), scalars="python", batch_sizes=SIZES, configurations=MORE)


def test_a_tensor_written_in_place_through_two_names() -> None:
    assert_matches_loop(aliased, (X,), batch_sizes=(0, *SIZES), configurations=MORE)


def shared(x: Any) -> Any:
    total = x * 0

    def add(k):
        nonlocal total
        total = total + x * k

    for k in range(3):
        add(k)
    return total


def test_an_empty_batch() -> None:
    assert_matches_loop(shared, (X,), batch_sizes=(0, 2), configurations=MORE)


def walked(x: Any) -> Any:
    total, n = x * 0, 0

    def add(v):
        nonlocal total, n
        total = total + v.sin() * n
        n += 1

    while total.sum() < 5 and n < 9:
        add(x)
    return total


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", [*MORE, {"save": "recompute", "trace_after": 0}], ids=str)
def test_gradients_are_the_loops(options: dict[str, Any]) -> None:
    mine, loops = X.clone().requires_grad_(), X.clone().requires_grad_()
    autobatch.vmap(walked, **options)(mine).sum().backward()
    torch.stack([walked(x) for x in loops]).sum().backward()
    torch.testing.assert_close(mine.grad, loops.grad)


def derived(x: Any) -> Any:
    n = 0

    def scaled(v):
        nonlocal n
        n += 1
        return (v * v).sum() * n

    return torch.func.grad(scaled)(x), n


def test_a_derivative_of_what_counts() -> None:
    assert_matches_loop(derived, (X,), batch_sizes=SIZES, configurations=MORE)


def test_a_parser_runs_as_plain_python() -> None:
    with autobatch.counts() as counts:
        autobatch.vmap(matcher)(autobatch.objects([0, 1, 2]))
    assert counts.plain == 3


def kept(x: Any) -> Any:
    count = 0

    def step():
        nonlocal count
        count += 1
        return count

    step()
    return step


def test_a_function_that_comes_back_counts_on_for_itself() -> None:
    for plain in ("auto", "never"):
        first, other = autobatch.vmap(kept, plain=plain)(torch.zeros(2))
        assert (first(), first(), other()) == (2, 3, 2)


def mapped(x: Any) -> Any:
    total = torch.zeros(())

    def add(v):
        nonlocal total
        total = total + v
        return v

    return torch.vmap(add)(x), total


def test_inner_rows_write_to_no_variable_of_all() -> None:
    with pytest.raises(autobatch.SharedWriteError, match="it writes to `total`"):
        autobatch.vmap(mapped)(X)


def unset(x: Any) -> Any:
    if x.sum() > 0:
        total = x

    def read():
        return total

    def write():
        nonlocal total
        total = x

    write()
    return read()


def called_before(x: Any) -> Any:
    def write():
        nonlocal total
        total = x

    first = write()
    total = first
    return total


def passed_on_before(x: Any) -> Any:
    def write():
        nonlocal total
        total = x

    def through():
        write()

    total = [through][0]()
    return total


def set_in_a_branch(x: Any) -> Any:
    def write():
        nonlocal total
        total = x

    if x.sum() > 0:
        total = 1
    write()
    return total


def set_in_a_handler(x: Any) -> Any:
    try:
        total = 1
    except ValueError:
        pass

    def write():
        nonlocal total
        total = x

    write()
    return total


@pytest.mark.parametrize(
    "program",
    [unset, called_before, passed_on_before, set_in_a_branch, set_in_a_handler],
    ids=lambda f: f.__name__,
)
def test_what_may_have_no_value_is_refused(program: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedError, match="A `nonlocal` name that may have no value"):
        autobatch.vmap(program)(X)


def read_too_soon(x: Any) -> Any:
    if x.sum() > 0:
        return total

    total = x

    def write():
        nonlocal total
        total = x * 2

    write()
    return total


def test_a_variable_that_has_no_value_yet_is_the_loops_error() -> None:
    assert_matches_loop(read_too_soon, (X,), batch_sizes=SIZES, configurations=MORE)
