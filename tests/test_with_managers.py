"""``with`` around managers written in Python: what happens, and when.

Managers write what happens to ``LOG``; per-thread functions may do so. What a batch does otherwise
than the loop is the order of what threads do, and that threads above one that fails go on.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop
from tests.sweeps import case

EXECUTORS = ("vmap", "traced")
LOG: list[Any] = []
LOCK = threading.Lock()
SHARED_SUPPRESS = contextlib.suppress(ZeroDivisionError)


@autobatch.per_thread
def log(*entry):
    LOG.append(entry)


class Manager:
    def __init__(self, value):
        self.value = value
        self.steps = []

    def __enter__(self):
        log("enter", int(self.value))
        self.steps.append(1)
        return self

    def __exit__(self, kind, error, trace):
        log("exit", int(self.value), kind)
        self.steps.append(2)
        return False


class Swallowing(Manager):
    def __exit__(self, kind, error, trace):
        return kind is not None


class Inherited(contextlib.AbstractContextManager):
    def __init__(self, value):
        self.value = value

    def __exit__(self, kind, error, trace):
        log("exit", int(self.value), kind)


class FailsToEnter(Manager):
    def __enter__(self):
        if self.value == 1:
            raise KeyError("enter")
        return self


class FailsToLeave(Manager):
    def __exit__(self, kind, error, trace):
        if self.value == 1:
            raise KeyError("exit")


@contextlib.contextmanager
def generator(value) -> Iterator[Any]:
    LOG.append(("enter", int(value)))
    try:
        yield value * 2
    except ZeroDivisionError:
        LOG.append(("saw", int(value)))
        raise
    finally:
        LOG.append(("exit", int(value)))


@contextlib.contextmanager
def swallowing(value):
    with contextlib.suppress(ZeroDivisionError):
        yield value


@contextlib.contextmanager
def failing(value):
    if value == 1:
        raise ValueError("enter")
    yield value


class Ambient:
    setting = 0


@contextlib.contextmanager
def ambient(value):
    before, Ambient.setting = Ambient.setting, 1
    try:
        yield value
    finally:
        Ambient.setting = before


def with_null(x):
    with contextlib.nullcontext(x) as y:
        z = y + 1
    return z


def with_suppress(x):
    with contextlib.suppress(ZeroDivisionError):
        z = x + 1
    return z


def with_generator(x):
    with generator(x) as y:
        z = y + 1
    return z


def with_instance(x):
    with Manager(x) as m:
        m.value = m.value + 1
        z = m.value * 2
    return z, m.value, len(m.steps), m.steps[1]


def with_inherited(x):
    with Inherited(x) as m:
        z = m.value * 2
    return z


def with_return(x):
    with generator(x) as y:
        return y * 3


def with_mode_outside(x):
    with torch.no_grad(), generator(x) as y:
        z = y + 1
    return z


def with_lock(x):
    with LOCK:
        z = x + 1
    return z


def with_ambient(x):
    with ambient(x) as y:
        z = y + 1
    return z


def with_division(x):
    with generator(x) as y:
        z = y // (x - 1)
    return z


def with_index(x):
    items = [3, 4]
    with generator(x) as y:
        z = items[x]
    return z + y


def instance_division(x):
    with Manager(x):
        z = 6 // (x - 1)
    return z


def with_failing_entry(x):
    with failing(x) as y:
        z = y
    return z


def instance_failing_entry(x):
    with FailsToEnter(x) as m:
        z = m.value
    return z


def instance_failing_exit(x):
    with FailsToLeave(x) as m:
        z = m.value
    return z


def fails_below(x):
    return with_failing_entry(x) if x < 2 else no_manager(x)


def no_manager(x):
    with 3:
        z = x
    return z


def chosen(x):
    manager = contextlib.nullcontext(x) if x > 1 else generator(x)
    with manager as y:
        z = y + 1
    return z


LIKE_THE_LOOP = [
    *(with_null, with_suppress, with_generator, with_instance, with_inherited, with_return),
    *(with_mode_outside, with_lock, with_ambient, with_division, with_index, instance_division),
    *(with_failing_entry, instance_failing_entry, instance_failing_exit, no_manager, chosen),
    fails_below,
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("scalars", ["tensor", "python"])
@pytest.mark.parametrize("func", LIKE_THE_LOOP)
def test_matches_the_loop(func: Callable[..., Any], scalars: str) -> None:
    configurations = ({"executor": "vmap"}, {"executor": "traced", "trace_after": 0})
    xs = torch.tensor([0, 3, 1, 2])
    assert_matches_loop(
        func, (xs,), batch_sizes=(1, 2, 4), scalars=scalars, configurations=configurations
    )
    ones = torch.tensor([1, 1])
    assert_matches_loop(func, (ones,), scalars=scalars, configurations=configurations)
    assert Ambient.setting == 0
    assert not LOCK.locked()


def run(func: Callable[..., Any], executor: str, *rows: int) -> Any:
    LOG.clear()
    batched = autobatch.vmap(func, executor=executor, trace_after=0, scalars="python")
    return batched(torch.tensor(rows))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_each_thread_enters_and_leaves_once(executor: str) -> None:
    run(with_generator, executor, 5, 6, 7)
    entered, left = LOG[:3], LOG[3:]
    assert entered == [("enter", 5), ("enter", 6), ("enter", 7)]
    assert left == [("exit", 7), ("exit", 6), ("exit", 5)], "as nested `with` statements"
    run(with_inherited, executor, 5, 6)
    assert sorted(LOG) == [("exit", 5, None), ("exit", 6, None)]
    run(with_instance, executor, 5, 6)
    assert LOG == [("enter", 5), ("enter", 6), ("exit", 6, None), ("exit", 7, None)]


def appended(x, path):
    with open(path, "a") as file:
        file.write(f"{x.item()}\n")
    return x


@contextlib.contextmanager
def set_to(value):
    before = Ambient.setting
    Ambient.setting = value
    yield
    Ambient.setting = before


def with_setting(x):
    with set_to(x):
        y = x + 1
    return y


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_files_are_left_in_the_loops_order_and_settings_are_put_back(engine: str, tmp_path) -> None:
    path = tmp_path / "lines.txt"
    autobatch.vmap(appended, in_dims=(0, None), engine=engine)(torch.arange(4), path)
    assert path.read_text().split() == ["0", "1", "2", "3"]
    autobatch.vmap(with_setting, scalars="python", engine=engine)(torch.arange(1, 4))
    assert Ambient.setting == 0


@pytest.mark.parametrize("executor", EXECUTORS)
def test_exit_sees_the_failure_of_its_thread(executor: str) -> None:
    with pytest.raises(ZeroDivisionError):
        run(with_division, executor, 0, 1, 2)
    assert [entry for entry in LOG if entry[0] == "saw"] == [("saw", 1)]
    assert sorted(LOG[3:]) == [("exit", 0), ("exit", 1), ("exit", 2), ("saw", 1)]
    with pytest.raises(ZeroDivisionError):
        run(instance_division, executor, 0, 1, 2)
    assert sorted(LOG[3:], key=str) == [
        *[("exit", 0, None), ("exit", 1, ZeroDivisionError), ("exit", 2, None)]
    ]
    with pytest.raises(KeyError, match="enter"):
        run(instance_failing_entry, executor, 0, 1, 2)
    assert ("exit", 0, None) in LOG
    assert all(entry[1] != 1 for entry in LOG), "what was not entered is not left"


def swallowed_by_instance(x):
    with Swallowing(x):
        z = 6 // (x - 1)
    return z


def swallowed_by_generator(x):
    with swallowing(x):
        z = 6 // (x - 1)
    return z


def swallowed_by_suppress(x):
    with contextlib.suppress(ZeroDivisionError):
        z = 6 // (x - 1)
    return z


def swallowed_by_shared(x):
    with SHARED_SUPPRESS:
        z = 6 // (x - 1)
    return z


SWALLOWED = [
    *(swallowed_by_instance, swallowed_by_generator, swallowed_by_suppress, swallowed_by_shared)
]


def branches(x):
    with generator(x) as y:
        z = y if x > 1 else -y
    return z


@pytest.mark.sampled(3)
@pytest.mark.parametrize("func", [*SWALLOWED, branches])
def test_swallowing_and_branches(func: Callable[..., Any]) -> None:
    for rows in ([0, 3, 2], [0, 1, 2], [2, 1], [1]):
        assert_matches_loop(func, (torch.tensor(rows),), scalars="python")


OUTSIDE = Manager(1)


def outside(x):
    with OUTSIDE:
        z = x
    return z


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_manager_from_outside_may_not_change_itself(executor: str) -> None:
    with pytest.raises(autobatch.SharedWriteError, match="existed before the call"):
        run(outside, executor, 0, 1)
    assert OUTSIDE.steps == []


def helper(value):
    log("helper", int(value))
    return value * 2 if value > 1 else value


def two_names(x):
    first, second = Manager(x), Manager(x + 10)
    with first, second:
        z = 6 // (x - 1)
    return z, len(first.steps), len(second.steps)


def two_calls(x):
    with generator(x) as y, Manager(x + 10) as inner:
        z = y + inner.value
    return z


def second_of_first(x):
    with Manager(x) as outer, Manager(outer.value + 10) as inner:
        z = 6 // (inner.value - 11)
    return z


def nested_statements(x):
    with generator(x) as y:
        z = y + 1
        with torch.no_grad(), Manager(x):
            z = z * 2
        z = z + y
    return z


def calls_inside(x):
    with Manager(x) as outer:
        z = helper(outer.value)
        z = z + helper(z)
    return z


def fails_to_enter_second(x):
    with Manager(x), FailsToEnter(x):
        z = x
    return z


NESTED = [
    *(two_names, two_calls, second_of_first, nested_statements, calls_inside),
    fails_to_enter_second,
]
FAILURES = (ZeroDivisionError, KeyError)


def by_thread(entries: list[Any], thread: int) -> list[Any]:
    """What happened to a thread whose number is ``thread``: its managers' values end in it."""
    return [entry for entry in entries if entry[1] % 10 == thread]


VALUES = ((0, 2, 3), (2, 1, 3), (1, 2, 3), (0, 2, 1))
OVER_NESTED = [
    case(
        *(func, values, executor),
        name=f"{func.__name__}-{'-'.join(map(str, values))}-{executor}",
        default=(i + j + k) % 2 == 0,
    )
    for i, func in enumerate(NESTED)
    for j, values in enumerate(VALUES)
    for k, executor in enumerate(EXECUTORS)
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("func", "values", "executor"), OVER_NESTED)
def test_managers_within_managers(
    func: Callable[..., Any], values: tuple[int, ...], executor: str
) -> None:
    expected, error = [], None
    LOG.clear()
    for value in values:
        try:
            expected.append(func(value))
        except FAILURES as raised:
            error = raised
            break
    happened = list(LOG)
    LOG.clear()
    try:
        result = run(func, executor, *values)
    except FAILURES:
        assert error is not None
    else:
        assert error is None
        rows = [part.tolist() for part in result] if isinstance(result, tuple) else result.tolist()
        rows = list(zip(*rows, strict=True)) if isinstance(result, tuple) else rows
        assert rows == expected
    for value in values[: len(expected) + (error is not None)]:
        if func is not calls_inside:
            assert by_thread(LOG, value) == by_thread(happened, value)
        else:
            assert sorted(map(repr, LOG)) == sorted(map(repr, happened))


@pytest.mark.parametrize("func", [two_names, calls_inside])
def test_managers_within_managers_on_the_other_engine(func: Callable[..., Any]) -> None:
    LOG.clear()
    values = [0, 2, 3]
    expected = [func(value) for value in values]
    happened = list(LOG)
    LOG.clear()
    batched = autobatch.vmap(func, engine="program_counter", scalars="python")
    result = batched(torch.tensor(values))
    if isinstance(result, tuple):
        assert list(zip(*(part.tolist() for part in result), strict=True)) == expected
    else:
        assert result.tolist() == expected
    assert sorted(map(repr, LOG)) == sorted(map(repr, happened))
