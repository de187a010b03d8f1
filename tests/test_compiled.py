"""``executor="compiled"``: scalar programs as machine code give what the plain loop gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import autobatch
from autobatch.compiled import launching, plans
from autobatch.runs import machine_code
from programs import ackermann, collatz, fibonacci, gcd, mandelbrot
from programs.example import Example
from tests.generator import FAMILIES, programs
from tests.of_its_own import of_its_own
from tests.oracle import assert_matches_loop
from tests.scalar_programs import scalar_program
from tests.test_properties import LONG, QUICK, hold_to_loop

pytest.importorskip("llvmlite")

COMPILED = {"executor": "compiled"}
SIZES = (1, 2, 7, 64)


def runs(function: Callable[..., Any], *args: Any, **options: Any) -> autobatch.Counts:
    """Hold a compiled call to the loop; its counts, also where it raises."""
    assert_matches_loop(function, args, configurations=(COMPILED,), **options)
    with autobatch.counts() as found, suppress(IndexError):
        autobatch.vmap(function, **COMPILED, **options)(*args)
    return found


def why_not(function: Callable[..., Any], *args: Any, **options: Any) -> str:
    """What ``explain`` says of a program that runs traced; its results are the loop's."""
    assert_matches_loop(function, args, configurations=(COMPILED,), **options)
    said = autobatch.explain(autobatch.function(**COMPILED, **options)(function), *args).compiled
    head = "not compiled, traced instead: "
    assert said.startswith(head)
    return said.removeprefix(head)


MODULES = {
    "ackermann": ackermann,
    "collatz": collatz,
    "fibonacci": fibonacci,
    "gcd": gcd,
    "mandelbrot": mandelbrot,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("scalars", ["tensor", "python"])
@pytest.mark.parametrize("name", MODULES)
def test_scalar_programs_are_one_launch(name: str, scalars: str) -> None:
    module: Any = MODULES[name]
    for dtype in module.DTYPES:
        given: Example = module.example(64, dtype)
        assert_matches_loop(
            given.function,
            given.args,
            batch_sizes=SIZES,
            configurations=(COMPILED,),
            scalars=scalars,
        )
        with autobatch.counts() as found:
            autobatch.vmap(given.function, scalars=scalars, **COMPILED)(*given.args)
        assert (found.block_executions, found.launches, found.given_up) == (1, 1, 0)
        assert found.iterations > 0


def test_an_empty_batch_goes_the_general_way() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    assert_matches_loop(collatz.collatz, (none,), configurations=(COMPILED,))


def test_an_empty_batch_says_nothing_of_the_next() -> None:
    batched = autobatch.vmap(of_its_own(collatz.collatz), **COMPILED)
    with pytest.raises(autobatch.EmptyBatchError):
        batched(torch.arange(1, 1))
    with autobatch.counts() as found:
        batched(torch.arange(1, 9))
    assert (found.launches, found.given_up) == (1, 0) and found.iterations > 0


BATCHES = (7, 0, 1, 2, 64)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", range(40))
def test_generated_programs_match_the_loop(seed: int) -> None:
    hold(seed, (BATCHES[seed % len(BATCHES)],))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(400))
def test_many_generated_programs_match_the_loop(seed: int) -> None:
    hold(seed, BATCHES)


def hold_family(data: st.DataObject, family: str) -> None:
    """A program with anything in it: machine code where there is some, at any batch size."""
    program = data.draw(programs(family), label="program")
    size = data.draw(st.sampled_from(BATCHES), label="batch size")
    hold_to_loop(program, 0, size, configurations=(COMPILED,))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("family", FAMILIES)
@settings(QUICK, max_examples=3)
@given(data=st.data())
def test_generated_programs_of_any_kind_match_the_loop(data: st.DataObject, family: str) -> None:
    hold_family(data, family)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@settings(LONG, max_examples=150)
@given(data=st.data())
def test_many_programs_of_any_kind_match_the_loop(data: st.DataObject, family: str) -> None:
    hold_family(data, family)


def hold(seed: int, sizes: tuple[int, ...]) -> None:
    """Machine code is exact on Python's numbers; torch's functions, which threads that have given
    up come to, may round the last place otherwise.
    """
    program = scalar_program(seed)
    columns = program.columns(max(sizes), seed)
    batched = autobatch.vmap(program.function(), scalars=program.scalars, **COMPILED)
    for size in sizes:
        with autobatch.counts() as found, suppress(Exception):
            batched(*(column[:size] for column in columns))
        alone = (found.launches, found.given_up) == (1, 0)
        exact = {"rtol": 0.0, "atol": 0.0} if program.scalars == "python" and alone else {}
        assert_matches_loop(
            program.function(),
            columns,
            batch_sizes=(size,),
            scalars=program.scalars,
            configurations=(COMPILED,),
            **exact,
        )


def test_most_generated_programs_are_compiled() -> None:
    with autobatch.counts() as found:
        for seed in range(1000, 1016):
            program = scalar_program(seed)
            batched = autobatch.vmap(
                program.function(), scalars=program.scalars, on_error="isolate", **COMPILED
            )
            batched(*program.columns(2, seed))
    assert found.compilations == 14


# Threads that give up


def power_of(base: int, n: int) -> int:
    made = 1
    for _ in range(n):
        made *= base
    return made % 1_000_003


def test_ints_that_leave_int64_are_pythons() -> None:
    bases, exponents = torch.tensor([2, 3, 2, 10]), torch.tensor([62, 39, 64, 40])
    found = runs(power_of, bases, exponents, scalars="python")
    assert found.given_up == 2


def grown(base: int, n: int) -> int:
    made = 1
    for _ in range(n):
        made *= base
    return made


def test_a_result_beyond_int64_comes_in_a_list() -> None:
    runs(grown, torch.tensor([2, 3]), torch.tensor([70, 3]), scalars="python")


def factorial(n: int) -> int:
    made = 1
    for i in range(2, n + 1):
        made *= i
    return made


def test_a_number_beyond_int64_that_one_thread_alone_has_come_to_is_one_of_the_list() -> None:
    runs(factorial, torch.tensor([8, 32, 20]), scalars="python")


def ratio(a: int, b: int) -> float:
    if b > 5:
        raise ValueError(f"too large: {b}")
    return a / b


def test_errors_are_the_loops() -> None:
    a, b = torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 9, 0])
    assert_matches_loop(ratio, (a, b), configurations=(COMPILED,), scalars="python")
    with pytest.raises(ValueError, match="too large: 9") as raised:
        autobatch.vmap(ratio, scalars="python", **COMPILED)(a, b)
    with pytest.raises(ValueError, match="too large: 9") as expected:
        autobatch.vmap(ratio, scalars="python")(a, b)
    assert raised.value.__notes__ == expected.value.__notes__


def test_isolated_threads_have_their_own_exceptions() -> None:
    a, b = torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 9, 0])
    isolated = autobatch.vmap(ratio, scalars="python", on_error="isolate", **COMPILED)
    found = isolated(a, b)
    assert [result.value for result in found] == [1.0, 1.0, None, None]
    kinds = [type(result.exception) for result in found]
    assert kinds == [type(None), type(None), ValueError, ZeroDivisionError]


def descent(n: int) -> int:
    if n == 0:
        return 0
    return descent(n - 1) + 1


def test_deep_calls_leave_the_machines_stack() -> None:
    depths = torch.tensor([5, launching.MOST_DEPTH + 10])
    options = {"scalars": "python", **COMPILED}
    with autobatch.counts() as found:
        assert autobatch.vmap(descent, **options)(depths).tolist() == depths.tolist()
    assert found.given_up == 1
    with pytest.raises(autobatch.AutobatchError, match="max_depth=3"):
        autobatch.vmap(descent, max_depth=3, **options)(torch.tensor([2, 9]))


def test_a_launch_that_runs_out_of_fuel_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    n = torch.arange(1, 60)
    found = runs(collatz.collatz, n)
    monkeypatch.setattr(launching, "FUEL", 20)
    assert runs(collatz.collatz, n).iterations == found.iterations


def test_many_rows_are_shared_among_host_threads() -> None:
    n = torch.arange(1, 4 * launching.LEAST_SHARE)
    batched, before = autobatch.vmap(collatz.collatz, **COMPILED), torch.get_num_threads()
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        try:
            with autobatch.counts() as counts:
                found.append((batched(n).tolist(), counts.iterations))
        finally:
            torch.set_num_threads(before)
    assert found[0] == found[1]


# Types


def changing(n: int) -> float:
    x = 0
    for i in range(n):
        x = x + 1 if i % 2 == 0 else x + 0.5
    return float(x)


def test_a_variable_may_hold_an_int_and_then_a_float() -> None:
    runs(changing, torch.arange(6), scalars="python")


def test_results_of_several_types_stack_as_the_loops_do() -> None:
    def either(n: int) -> Any:
        return n if n > 1 else n / 2

    def nested(n: int) -> Any:
        return {"n": either(n), "sign": "even" if n % 2 == 0 else "odd"}

    def tensors(x: Tensor) -> Any:
        if x > 0.5:
            return x, 1
        return (1, x) if x > 0.2 else (0.5, x > 0)

    x = torch.rand(64, generator=torch.Generator().manual_seed(0))
    for function in (either, nested):
        assert runs(function, torch.arange(7), scalars="python").launches == 1
    for dtype in (torch.float32, torch.float64, torch.float16):
        runs(tensors, x.to(dtype))
    isolated = autobatch.vmap(either, scalars="python", on_error="isolate", **COMPILED)
    assert [type(each.value) for each in isolated(torch.arange(4))] == [float, float, int, int]


def test_results_that_do_not_stack_are_the_loops_error() -> None:
    def maybe(n: int) -> Any:
        return n if n > 1 else None

    with pytest.raises(autobatch.StackingError) as expected:
        autobatch.vmap(maybe, scalars="python")(torch.arange(4))
    with pytest.raises(autobatch.StackingError) as found:
        autobatch.vmap(maybe, scalars="python", **COMPILED)(torch.arange(4))
    assert str(found.value) == str(expected.value)


def divided_or_none(a: int, b: int) -> int | float | None:
    if b == 0:
        return None
    return a // b if a % b == 0 else a / b


def collected_quotients(n: int) -> tuple[int, float]:
    none, total = 0, 0
    for k in range(-2, n):
        made = divided_or_none(n, k)
        if made is None:
            none += 1
            continue
        total += made
    return none, total


def unlike_all_the_way(n: int) -> Any:
    if n < 3:
        return n
    below = unlike_all_the_way(n - 1)
    return below / 2 if n % 3 == 0 else below + 1 if n % 3 == 1 else None


def test_what_follows_a_call_goes_on_for_each_type_that_it_returns() -> None:
    assert runs(collected_quotients, torch.arange(9), scalars="python").given_up == 0
    with pytest.raises(TypeError, match="NoneType"):
        autobatch.vmap(unlike_all_the_way, scalars="python", **COMPILED)(torch.arange(8))
    runs(unlike_all_the_way, torch.tensor([0, 3, 4, 1]), scalars="python")


def test_too_many_types_run_traced() -> None:
    def many(n: int) -> Any:
        if n < 2:
            return n if n else 0.5
        return (n, n) if n == 2 else (n, 0.5) if n == 3 else [n, n]

    assert "returns a Python" in why_not(many, torch.zeros(4, dtype=torch.int64), scalars="python")


def test_refusals_are_not_looked_at_again_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    look = machine_code.plan_of

    def counted(*args: Any) -> Any:
        asked.append(1)
        return look(*args)

    monkeypatch.setattr(machine_code, "plan_of", counted)
    batched = autobatch.vmap(accumulated, **COMPILED)
    for _ in range(40):
        batched(torch.arange(6).view(2, 3))
    assert len(asked) == 5
    with autobatch.counts() as found:  # of other arguments it is asked anew
        batched(torch.arange(3))
    assert len(asked) == 6
    assert found.compilations == 0


def summed(x: Tensor, n: Tensor) -> Tensor:
    total = torch.tensor(0.0)
    for i in range(n):
        total += x * i
    return total


def test_a_tensor_that_nobody_else_knows_is_written_in_place() -> None:
    for dtype in (torch.float32, torch.float64):
        x = torch.rand(4, generator=torch.Generator().manual_seed(0), dtype=dtype)
        assert runs(summed, x, torch.arange(4)).launches == 1


def aliased(x: Tensor) -> Tensor:
    y = x
    y += 1
    return x * y


def test_a_tensor_with_two_names_is_not_written() -> None:
    assert "written in place" in why_not(aliased, torch.arange(4.0))


def by_a_pair(x: Tensor) -> Tensor:
    y = x + 1
    if x > 100:
        y += (x, x)
    return y


def test_a_tensor_is_not_written_by_what_is_no_number() -> None:
    assert "no operand of a tensor" in why_not(by_a_pair, torch.arange(4.0))


def kept_in_a_pair(x: Tensor) -> Tensor:
    y = x + 1
    pair = (y, x)
    y += 1
    return pair[0] * y


def test_a_tensor_within_a_tuple_is_not_written() -> None:
    assert "written in place" in why_not(kept_in_a_pair, torch.arange(4.0))


def table(x: Tensor, i: Tensor) -> Tensor:
    best = x[0]
    for at in range(len(x)):
        if x[at] > best:
            best = x[at]
    return best + x[i]


def test_elements_of_tensors_are_read() -> None:
    x = torch.tensor([[3.0, 1.0, 2.0], [0.5, 7.0, -1.0]])
    assert runs(table, x, torch.tensor([-1, 1])).launches == 1
    assert runs(table, x.T.contiguous().T, torch.tensor([0, 2])).launches == 1
    assert runs(table, x, torch.tensor([0, 3])).given_up == 1  # out of range


def test_a_table_that_all_share_is_read() -> None:
    weights = torch.arange(12.0).reshape(3, 4)

    def pick(i: Tensor, j: Tensor, w: Tensor) -> Tensor:
        return w[i, j] + w[j][i]

    i, j = torch.tensor([0, 1, 2]), torch.tensor([2, 1, 0])
    batched = autobatch.vmap(pick, in_dims=(0, 0, None), **COMPILED)
    with autobatch.counts() as found:
        assert batched(i, j, weights).tolist() == [10.0, 10.0, 10.0]
    assert found.launches == 1


def described(n: int, mode: str) -> dict[str, Any]:
    if mode == "even":
        return {"n": n, "parts": (n // 2, [n % 2 == 0]), "why": None}
    return {"n": -n, "parts": (n, [n < 0]), "why": None}


def test_results_keep_their_structure() -> None:
    batched = autobatch.vmap(described, in_dims=(0, None), scalars="python", **COMPILED)
    plain = autobatch.vmap(described, in_dims=(0, None), scalars="python")
    for mode in ("even", "odd"):
        with autobatch.counts() as found:
            made = batched(torch.arange(3), mode)
        assert found.launches == 1
        expected = plain(torch.arange(3), mode)
        assert str(made) == str(expected)


# What a program knows


SCALE = 3


def scaled(n: int) -> int:
    return n * SCALE


def test_globals_that_change_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    n, batched = torch.arange(3), autobatch.vmap(scaled, scalars="python", **COMPILED)
    assert batched(n).tolist() == [0, 3, 6]
    monkeypatch.setitem(scaled.__globals__, "SCALE", 5)
    assert batched(n).tolist() == [0, 5, 10]
    monkeypatch.setitem(scaled.__globals__, "SCALE", 0.5)
    assert batched(n).dtype == torch.float64


def test_closures_of_one_text_have_their_own_numbers() -> None:
    def times(factor: int) -> Callable[[int], int]:
        def product(n: int) -> int:
            return n * factor

        return product

    for factor in (2, 7):
        batched = autobatch.vmap(times(factor), scalars="python", **COMPILED)
        assert batched(torch.arange(3)).tolist() == [0, factor, 2 * factor]


def test_numbers_that_all_share_are_no_reason_to_compile_again() -> None:
    def above(n: int, limit: int) -> int:
        return n if n > limit else limit

    batched = autobatch.vmap(above, in_dims=(0, None), scalars="python", **COMPILED)
    with autobatch.counts() as found:
        assert batched(torch.arange(4), 2).tolist() == [2, 2, 2, 3]
        assert batched(torch.arange(4), 1).tolist() == [1, 1, 2, 3]
    assert found.compilations == 1


def test_what_changes_too_often_runs_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST_COMPILATIONS", 2)

    def lifted(n: int) -> int:
        return n + SCALE

    batched = autobatch.vmap(lifted, scalars="python", **COMPILED)
    with autobatch.counts() as found:
        for scale in (11, 12, 13, 14):
            monkeypatch.setitem(lifted.__globals__, "SCALE", scale)
            assert batched(torch.arange(2)).tolist() == [scale, scale + 1]
    assert found.compilations == 2


# What runs traced, and why


def test_gradients_are_the_general_ways() -> None:
    def cubed(x: Tensor) -> Tensor:
        return x * x * x if x > 0 else x

    x = torch.tensor([2.0, -1.0], requires_grad=True)
    autobatch.vmap(cubed, **COMPILED)(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [12.0, 1.0]
    said = autobatch.explain(autobatch.function(**COMPILED)(cubed), x).compiled
    assert said.endswith("gradients are wanted")
    slopes = autobatch.vmap(autobatch.grad(cubed), **COMPILED)(x.detach())
    assert slopes.tolist() == [12.0, 1.0]
    with torch.no_grad():
        assert runs(cubed, x).launches == 1


def accumulated(n: Tensor) -> Tensor:
    m = n + 1
    return torch.sort(m).values


def test_reasons_name_the_line() -> None:
    line = accumulated.__code__.co_firstlineno + 2
    said = why_not(accumulated, torch.arange(3))
    assert said == f"test_compiled.py, line {line}: aten.sort.default has no compiled form"


def test_options_that_look_at_blocks_run_traced() -> None:
    heard: list[Any] = []
    batched = autobatch.vmap(collatz.collatz, listeners=heard.append, **COMPILED)
    batched(torch.arange(1, 4))
    assert len(heard) > 1
    with pytest.raises(autobatch.StepLimitError):
        autobatch.vmap(collatz.collatz, max_steps=3, **COMPILED)(torch.arange(1, 4))


def test_a_with_runs_traced() -> None:
    def quiet(n: Tensor) -> Tensor:
        with torch.no_grad():
            return n * 2

    assert "`no_grad` has no compiled form" in why_not(quiet, torch.arange(3))


def test_without_llvmlite_programs_run_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "is_installed", lambda: False)

    def doubled(n: Tensor) -> Tensor:
        return n * 2

    assert "pip install 'autobatch[compiled]'" in why_not(doubled, torch.arange(1, 4))


def test_results_under_ragged_out_and_out_dims() -> None:
    n = torch.arange(1, 6)
    expected = autobatch.vmap(collatz.collatz)(n).tolist()
    assert autobatch.vmap(collatz.collatz, ragged_out="pad", **COMPILED)(n).tolist() == expected
    assert autobatch.vmap(lambda n: 3, out_dims=None, **COMPILED)(n) == 3
    assert autobatch.vmap(collatz.collatz, chunk_size=2, **COMPILED)(n).tolist() == expected


def test_math_constants_are_known() -> None:
    def area(r: float) -> float:
        return math.pi * r**2

    assert runs(area, torch.tensor([1.0, 2.5], dtype=torch.float64), scalars="python").launches == 1
