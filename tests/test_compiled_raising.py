"""Exceptions that are caught where they arise have machine code; others give the thread up."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import autobatch
from tests.generator import FAMILIES, programs
from tests.test_compiled import runs, why_not
from tests.test_properties import QUICK, hold_to_loop

pytest.importorskip("llvmlite")

XS = torch.arange(7)


class Mine(ValueError):
    pass


def in_a_loop(x: int) -> int:
    total = 0
    while x > 0:
        try:
            total += 10 // (x % 5)
        except ZeroDivisionError:
            total += 100
        x -= 1
    return total


def with_all_clauses(x: int) -> tuple[int, int]:
    y = 0
    try:
        y = [1, 2, 3][x]
    except IndexError:
        y = -1
    else:
        y += 10
    finally:
        x += 100
    return y, x


def through_an_inner_try(x: int) -> tuple[float, int]:
    try:
        try:
            y = 6 / (x - 2)
        except IndexError:
            y = 0.0
        finally:
            x += 10
    except ArithmeticError:
        y = -5.0
    return y, x


def raised_on_purpose(x: int) -> int:
    try:
        if x == 5:
            raise KeyError
        if x > 3:
            raise Mine("no")
        y = 1
    except (ValueError, KeyError):
        y = 2
    return y


def as_written_until_then(x: int) -> tuple[Tensor, int]:
    z, n = torch.zeros(3), 0
    for i in range(6):
        try:
            z[i] = float(x)
            n += 1
            if n > 2:
                raise Mine
        except IndexError:
            n += 10
        except Mine:
            z[0] = -1.0
    return z, n


def of_math(x: int) -> float:
    try:
        return math.sqrt(float(x - 1)) + math.log(float(x - 2)) + math.exp(200.0 * x)
    except ValueError:
        return -1.0
    except OverflowError:
        return -2.0


def left_by_jumps(x: int) -> int:
    n = found = 0
    while True:
        try:
            n += 1
            if n > 5 + x + found % 2:
                break
            if n % 2:
                continue
            found = 10 // (n - 4)
        except ZeroDivisionError:
            found = n = n + 1
    return n


def of_tensors(x: Tensor) -> Tensor:
    rows = torch.stack((x, x + 1))
    try:
        return rows[int(x) - 2]
    except IndexError:
        return rows[0] * 2


CAUGHT = (
    *(in_a_loop, with_all_clauses, through_an_inner_try, raised_on_purpose),
    *(as_written_until_then, of_math, left_by_jumps),
)


@pytest.mark.parametrize("program", CAUGHT)
def test_handlers_run_in_machine_code(program: Callable[..., Any]) -> None:
    found = runs(program, XS, scalars="python")
    assert (found.launches, found.given_up) == (1, 0)


def test_a_place_beyond_a_tensors_ends_is_caught() -> None:
    found = runs(of_tensors, XS)
    assert (found.launches, found.given_up) == (1, 0)


def uncaught(x: int) -> int:
    try:
        return 10 // (x - 3)
    except IndexError:
        return -1


def of_a_call(x: int) -> int:
    try:
        return uncaught(x)
    except ZeroDivisionError:
        return -2


def asked(x: int) -> int:
    try:
        return 10 // x
    except ZeroDivisionError as error:
        return len(str(error))


def too_large(x: int) -> int:
    try:
        for _ in range(7):
            x = x * x
        return x
    except ZeroDivisionError:
        return -1


@pytest.mark.parametrize(("program", "count"), [(of_a_call, 1), (asked, 1), (too_large, 5)])
def test_what_else_fails_gives_up(program: Callable[..., Any], count: int) -> None:
    assert runs(program, XS, scalars="python").given_up == count


def test_an_exception_that_is_uncaught_is_the_loops() -> None:
    with pytest.raises(ZeroDivisionError):
        autobatch.vmap(uncaught, executor="compiled", scalars="python")(XS)


def seen_in_a_handler(x: int) -> Tensor:
    y = torch.zeros(3) + x
    part = y[1:]
    try:
        y[1] = 7.0
        y[0] = 1 // x
    except ZeroDivisionError:
        return part
    return y[1:]


def test_what_a_handler_sees_of_a_write_is_no_machine_codes() -> None:
    assert "to which other names may refer" in why_not(seen_in_a_handler, XS, scalars="python")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("family", FAMILIES)
@settings(QUICK, max_examples=4)
@given(data=st.data())
def test_random_programs_that_catch(data: st.DataObject, family: str) -> None:
    program = data.draw(programs(family, raising=True, catching=True), label="program")
    hold_to_loop(
        program, data.draw(st.integers(0, 99)), 5, configurations=({"executor": "compiled"},)
    )
