"""Numbers that a dtype does not hold: torch's error where torch raises, torch's value elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autobatch
from tests.oracle import CONFIGURATIONS, assert_matches_loop
from tests.outside_world import program

SOME = CONFIGURATIONS[1:3]
LINES = (
    *("y[0] = n", "y[torch.tensor([0])] = n", "y[y > 1] = n", "y[...] = n", "t[0] = n; y = t"),
    *("y[x.long() * 0] = n", "y.fill_(n)", "y.masked_fill_(y > 0, n)", "t.fill_(n); y = t"),
    *("torch.nn.init.constant_(t, n); y = t", "y = torch.full((2,), n, dtype=y.dtype)"),
    "y = torch.linspace(0, n - 5, 3, dtype=y.dtype)",
    *("y = torch.scalar_tensor(n, dtype=y.dtype)", "y = y.masked_fill(y > 0, n)"),
    *("y = torch.where(y > 1, y, n)", "y = y.where(y > 1, n)", "y = y.clamp(max=n)"),
    *("y = torch.clip(y, n)", "y = y.clamp_min(n)", "y = y.scatter(0, torch.tensor([0]), n)"),
)
NUMBERS: tuple[tuple[str, list[Any]], ...] = (
    *(("uint8", [7, -255, 255]), ("uint8", [3, 300]), ("int8", [7, -129]), ("uint8", [1.5, -0.5])),
    *(("float16", [1.0, float("inf"), 65504.0]), ("float16", [1, 10**6])),
    ("float32", [1.5, 1e300]),
)


def made(dtype: str, line: str) -> Any:
    first = "n = x.item()", f"t = torch.ones(3, dtype=torch.{dtype})"
    lines = [*first, "y = t * (x > -1e9).to(t.dtype)", *line.split("; "), "return y"]
    return program(f"{dtype} {line}", lines, {"torch": torch})


@pytest.mark.sampled(12)
@pytest.mark.parametrize("line", LINES)
def test_numbers_are_converted_as_torch_does(line: str) -> None:
    for dtype, values in NUMBERS:
        whole = all(isinstance(value, int) for value in values)
        xs = torch.tensor(values, dtype=torch.int64 if whole else torch.float64)
        assert_matches_loop(made(dtype, line), [xs], configurations=CONFIGURATIONS[1:3])


@pytest.mark.parametrize("engine", ["sequential", "program_counter", "stackless"])
@pytest.mark.parametrize("executor", ["vmap", "traced", "compiled"])
def test_all_engines_and_executors(engine: str, executor: str) -> None:
    some: Any = {"configurations": [{"engine": engine, "executor": executor}]}
    for line in ("y[0] = n", "y = y.clamp(max=n)"):
        for values in ([3, 300, 7], [7, 255]):
            assert_matches_loop(made("uint8", line), [torch.tensor(values)], **some)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_nothing_is_read_where_bounds_say_that_all_fit(dtype: torch.dtype) -> None:
    run = made("uint8", "y[0] = n")
    with autobatch.counts() as counts:
        autobatch.vmap(run, executor="vmap", plain="never")(torch.tensor([3, 7], dtype=dtype))
    assert counts.host_reads == (0 if dtype is torch.uint8 else 1)


SUBTRACTED = (
    *("x - b", "b - x", "torch.sub(x, b)", "torch.subtract(x, b)", "x.__rsub__(b)"),
    *("x.sub_(b)", "x.__isub__(b)", "torch.rsub(x, b)", "(x > 0) - b", "x + b", "x * b"),
)


@pytest.mark.parametrize("expression", SUBTRACTED)
def test_bools_are_not_subtracted(expression: str) -> None:
    lines = ["b = not x", f"return {expression}"]
    run = program(f"bools {expression}", lines, {"torch": torch})
    for xs in (torch.tensor([1.0, 0.0]), torch.tensor([1, 0])):
        assert_matches_loop(run, [xs], configurations=CONFIGURATIONS[1:3])
    whole = [{"engine": e, "executor": "compiled"} for e in ("stackless", "program_counter")]
    assert_matches_loop(run, [torch.tensor([1.0, 0.0])], configurations=whole)


TAKEN = (
    *("y = y / n", "y = n / y", "y = torch.xlogy(y, n)", "y = torch.float_power(y, n)"),
    "y = torch.copysign(y, n)",
    *("y = y ** n", "y = torch.pow(y, n)", "y **= n", "y = y * n", "y = torch.lerp(y, y, n)"),
    "y = torch.logical_and(y, torch.tensor(n))",
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("line", TAKEN)
def test_operators_take_numbers_that_the_tensors_do_not_hold(line: str) -> None:
    """Divisions of ints take them as floats, products of float16 round once, powers refuse."""
    for dtype in ("int8", "uint8", "float16", "int64", "bool"):
        for values in ([3, 300, 70000], [2, -3], [1, 2**40]):
            if line != "y **= n" or dtype != "bool":
                run = made(
                    dtype, f"y = y * (y > 0) * (0.25 if y.is_floating_point() else 1); {line}"
                )
                assert_matches_loop(run, [torch.tensor(values)], configurations=SOME)


def test_halves_are_multiplied_in_place_as_torch_does() -> None:
    for line in ("y *= n", "y /= n", "y.mul_(n)"):
        run = made("float16", f"y *= 0.25; {line}")
        assert_matches_loop(run, [torch.tensor([3, 70000])], configurations=SOME)


TENSORS = {
    "uint8": [torch.tensor([3, 300]), torch.tensor([2.5, 1e30]), torch.tensor([1, 1j])],
    "float16": [torch.tensor([1, 2**40]), torch.tensor([1.0, 1e300], dtype=torch.float64)],
    "float32": [torch.tensor([1, 2**40]), torch.tensor([1.0, 1e300], dtype=torch.float64)],
    "int32": [torch.tensor([1, -1], dtype=torch.int8), torch.tensor([True, False])],
}
WRITES = (
    *("y[y > 1] = x", "y[(y > 1,)] = x", "y[x.abs() > 2] = x", "y[y.byte()] = x", "y[y > 9] = x"),
    *("y = torch.tensor([x, x], dtype=y.dtype)", "y[0] = x", "y[[0, 2]] = x", "y.fill_(x)"),
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("line", WRITES)
def test_tensors_are_converted_as_torch_does(line: str) -> None:
    for dtype, values in TENSORS.items():
        for x in values:
            lines = [f"y = torch.arange(3).to(torch.{dtype})", "y = y + y * 0", line, "return y"]
            assert_matches_loop(program(line, lines, {"torch": torch}), [x], configurations=SOME)


@pytest.mark.parametrize(
    "spaced",
    [
        lambda x: torch.linspace(0, x, 4),
        lambda x: torch.linspace(x, 2.0, 3),
        lambda x: torch.linspace(start=x, end=x + 1, steps=3),
        lambda x: torch.linspace(x, 2.0, 3, dtype=torch.float64),
        lambda x: torch.logspace(x, 2.0, 3, base=2.0),
    ],
)
def test_steps_between_tensors_are_of_the_default_dtype(spaced: Any) -> None:
    for dtype in (torch.float64, torch.float32, torch.float16, torch.int64, torch.complex64):
        x = torch.tensor([0.5, 1.5]).to(dtype)
        assert_matches_loop(spaced, [x], configurations=SOME)
    x = torch.tensor([0.5, 1.5], requires_grad=True)
    assert not autobatch.vmap(spaced)(x).requires_grad


LARGE = torch.tensor([16777217.0, 0.5, -3.7, 123456789.0], dtype=torch.float64)
STORES = (
    *("y[0] = n", "y.fill_(n)", "y[y > 1] = n", "y.masked_fill_(y > 1, n)"),
    "y.index_fill_(0, torch.tensor([1]), n)",
)


@pytest.mark.parametrize("line", STORES)
def test_ints_take_floats_as_they_are(line: str) -> None:
    """Not as the default dtype has them: float32 has no 16777217."""
    run = program(f"ints {line}", [line, "return y"], {"torch": torch}, "y, n")
    for dtype in (torch.int64, torch.int32):
        rows = torch.tensor([[1, 2], [3, 0], [4, 5], [2, 2]]).to(dtype)
        assert_matches_loop(run, [rows, LARGE], configurations=SOME, scalars="python")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int32])
def test_powers_in_float64_take_a_float_as_it_is(dtype: torch.dtype) -> None:
    run = program("float_power", ["return torch.float_power(y, n)"], {"torch": torch}, "y, n")
    rows = torch.tensor([[1, 2], [300, 4], [7, 5], [2, 2]]).to(dtype)
    exact = {"rtol": 1e-14, "atol": 0.0}
    assert_matches_loop(
        run, [rows, LARGE % 3 + 0.1], configurations=SOME, scalars="python", **exact
    )
