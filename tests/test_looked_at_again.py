"""What is looked at again, since a number left its type or a thread failed, is done once."""

from __future__ import annotations

import io
from collections import Counter
from contextlib import redirect_stdout
from typing import Any

import pytest
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st

import autobatch
from tests.effect_programs import EffectProgram, effect_programs, rows
from tests.oracle import RUNS, assert_matches_loop
from tests.test_properties import LONG, QUICK

WAYS: tuple[dict[str, Any], ...] = (
    {"executor": "traced", "trace_after": 0, "plain": "never"},
    {"executor": "traced", "trace_after": 1, "plain": "never"},
    {"executor": "traced", "plain": "never"},
    {"executor": "traced", "trace_after": 0, "plain": "never", "fork": "off"},
    {"executor": "vmap"},
    {"engine": "program_counter", "executor": "traced", "trace_after": 0, "plain": "never"},
)


def noted(n, acc):
    acc.append(n)
    return min(0.25, n)


def after_a_literal(n):
    acc = []
    noted(1, acc)
    return str(noted(n, acc)), str(acc)


def counted(n, seen):
    seen["a"] += n
    return max(abs(n), 1.5)


def in_a_dict(n):
    seen = {"a": 0}
    counted(2, seen)
    return str(counted(n, seen)), str(seen)


def descended(n, acc):
    if n <= 0:
        return 0
    acc += [n]
    least = min(abs(0.25), n)
    return descended(n - 1, acc) + least


def recursive_after_a_literal(n):
    acc = []
    descended(1, acc)
    return descended(n, acc), str(acc)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("func", [after_a_literal, in_a_dict, recursive_after_a_literal])
@pytest.mark.parametrize("ints", [[1, 2], [2, 2], [3], [0, 1, 2, 3, 4]])
def test_what_comes_before_a_call_that_had_a_number_for_all(func, ints):
    """Its operands are numbers of each thread's own now, which may be of another type."""
    assert_matches_loop(func, (torch.tensor(ints),), configurations=WAYS, scalars="python")


def summed(xs, n):
    it = iter(xs)
    k = n * n
    return str((k, sum(it), list(it)))


def sought(xs, n):
    it = iter(xs)
    k = min(n, 2.0)
    return str((k, 5 in it, list(it)))


def unpacked(xs, n):
    it = iter(xs)
    k = min(n, 2.0)
    a, *rest = it
    return str((k, a, rest, list(it)))


def added(xs, n):
    it = iter(xs)
    k = min(n, 2.0)
    found = [1]
    found.extend(it)
    found += it
    found += xs
    return str((k, found, list(it)))


def changed_in_place(xs, n):
    seen = set(xs)
    k = min(n, 2.0)
    seen.add(11)
    seen |= {12}
    found = list(xs)
    found *= 2
    found.sort()
    found.pop(0)
    del found[0]
    return str((k, sorted(seen), found))


LISTS = autobatch.objects([[1, 5, 2], [3], [4, 4, 4, 4], [5, 6]])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("func", [summed, sought, unpacked, added, changed_in_place])
@pytest.mark.parametrize("ints", [[1, 2**62, 5, 3], [1, 2, 1, 2], [4, 4, 4, 4]])
def test_what_each_example_has_of_its_own_is_changed_once(func, ints):
    args = (LISTS, torch.tensor(ints))
    assert_matches_loop(func, args, configurations=WAYS[:5], batch_sizes=(1, 4), scalars="python")


def summed_up(n, y):
    it = iter([n, 5, y])
    first = next(it)
    total = sum(it)
    return float(total), float(min(n, 2.0)), float(first), str(list(it))


def sorted_out(n, y):
    it = iter([n, 5, y])
    found, k = sorted(it), min(n, 2.0)
    return str(found), float(k), str(list(it))


def least(n, y):
    it = iter([n * n, 5, y])
    return float(min(it)), float(min(n, 2.0)), str(list(it))


def enumerated(n, y):
    it = enumerate([n, 1, y], n)
    first, k = next(it), n * n
    return str(first), float(min(k, 2.0)), str(list(it))


def zipped(n, y):
    it = enumerate(zip(range(n, n + 3), range(n, n + 4), strict=False), n)
    first, k = next(it), n * n
    return str(first), float(min(k, 2.0)), str(list(it))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("func", [summed_up, sorted_out, least, enumerated, zipped])
@pytest.mark.parametrize("ints", [[1, 2**62, 5, 3], [1, 2, 1, 2], [1]])
def test_an_iterator_that_a_call_has_moved_on_is_taken_back(func, ints):
    """To where it was before the call, which is the first to note that a number left its type."""
    floats = torch.tensor([7.0, 2.0, 0.5, 9.0], dtype=torch.float64)[: len(ints)]
    args = (torch.tensor(ints), floats)
    assert_matches_loop(
        func, args, configurations=WAYS, batch_sizes=(1, len(ints)), scalars="python"
    )


def hold_drawn(data: st.DataObject) -> None:
    program: EffectProgram = data.draw(effect_programs())
    way = data.draw(st.sampled_from(WAYS))
    args = data.draw(rows())
    note(repr(program))
    shown = io.StringIO()
    with redirect_stdout(shown):
        assert_matches_loop(program.function(), args, configurations=(way,), scalars="python")
    runs = RUNS if way.get("trace_after") == 0 else 1
    if not has_failed(program, args):  # else others' lines may come before that
        times = Counter(shown.getvalue().split("\n")[:-1])
        assert all(number % (1 + runs) == 0 for number in times.values()), times


def has_failed(program: EffectProgram, args: tuple[Any, ...]) -> bool:
    with redirect_stdout(io.StringIO()):
        try:
            autobatch.vmap(program.function(), engine="sequential", scalars="python")(*args)
        except Exception:
            return True
    return False


@settings(QUICK, max_examples=15)
@given(data=st.data())
def test_effects_happen_once(data: st.DataObject) -> None:
    hold_drawn(data)


@pytest.mark.slow
@settings(LONG, max_examples=1000)
@given(data=st.data())
def test_effects_of_many_programs_happen_once(data: st.DataObject) -> None:
    hold_drawn(data)
