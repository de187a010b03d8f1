"""The note on a failure describes the operands of the failing operation, on every engine."""

from __future__ import annotations

import pytest
import torch

import autobatch
from tests.oracle import CONFIGURATIONS

EVERY = pytest.mark.parametrize("options", CONFIGURATIONS, ids=lambda options: str(options))
XS = torch.ones(3, 4)
NS = torch.tensor([2, 0, 3])


def shapes(x, n):
    y = torch.sin(x)
    return y @ torch.ones(3, 2)


def divided(x, n):
    k = int(n)
    if k < 3:
        return 10 // k
    return k


def indexed(x, n):
    return x[n + 3]


def keyed(x, n):
    return {"a": 1}["b" if n == 0 else "a"]


def called(x, n):
    return torch.cat([x, x[None]], dim=0)


def helper(x, n):
    return inner(x * 2, n)


def inner(y, n):
    if n == 0:
        return y.view(3, 3)
    return y


def argument(x, n):
    if n == 0:
        return two(x)
    return x


def two(a, b):
    return a + b


def of_their_own_lengths(x, n):
    values = [0.0, 1.0]
    for i in range(int(n)):
        values.append(i * 0.5)
    return values[len(values) + int(n)]


def pair(x, n):
    return (x, n)[n + 1]


def decided(x, n):
    return x if x[:2] > 0 else -x


def raised(x, n):
    if n == 0:
        raise ValueError("none")
    return x


@pytest.mark.sampled(4)
@EVERY
@pytest.mark.parametrize(
    ("program", "operands"),
    [
        (shapes, "float32 [4], float32 [3, 2]"),
        (divided, "int, int"),
        (indexed, "float32 [4], int64 []"),
        (keyed, "dict of 1, str"),
        (called, "list of 2 (float32 [4]; float32 [1, 4]), int"),
        (helper, "float32 [4], int, int"),
        (argument, "float32 [4]"),
        (of_their_own_lengths, "list of 4, int"),
        (pair, "tuple of 2 (float32 [4]; int64 []), int64 []"),
        (decided, "bool [2]"),
        (raised, None),
    ],
)
def test_operands_are_those_of_the_failing_operation(program, operands, options):
    runs = 3 if options.get("trace_after") == 0 else 1
    for _ in range(runs):
        with pytest.raises(Exception) as caught:
            autobatch.vmap(program, **options)(XS, NS)
        (note,) = caught.value.__notes__
        lines = [line.strip() for line in note.splitlines()]
        told = [line for line in lines if line.startswith("Operands: ")]
        assert told == ([] if operands is None else [f"Operands: {operands}"])
        assert lines[-1].startswith("Example index: ")


def until_small(x, n):
    while x > 1:
        x = x / 2
    return x


@EVERY
@pytest.mark.parametrize("program", [decided, until_small])
def test_what_to_write_for_a_decision_of_many_elements(program, options):
    with pytest.raises(RuntimeError, match="more than one value is ambiguous") as caught:
        autobatch.vmap(program, **options)(XS, NS)
    (note,) = caught.value.__notes__
    assert "  Hint: write `.any()` or `.all()`" in note and "`torch.where`" in note


def test_isolated_examples_have_them_too():
    results = autobatch.vmap(divided, on_error="isolate")(XS, NS)
    (note,) = results[1].exception.__notes__
    assert "  Operands: int, int\n" in note


def calls_a_number(x, n):
    one = 1
    return one(2)


@EVERY
def test_a_number_that_is_called(options):
    """Among what torch lists as its own functions is a ``True``, which is 1."""
    with pytest.raises(TypeError, match="'int' object is not callable") as caught:
        autobatch.vmap(calls_a_number, **options)(XS, NS)
    assert "return one(2)" in caught.value.__notes__[0]
