"""Stores: a stretch writes attributes of what the program has made, at its end, and nobody sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from tests.oracle import assert_matches_loop

SIZES = (0, 1, 2, 7, 64)


class Counter:
    """Draws from a row of its own, as far as it has come."""

    start = 0  # found in the class until it is first stored

    def __init__(self, row: Tensor) -> None:
        self.row = row
        self.at = 0

    def next(self) -> Tensor:
        self.at += 1
        return self.row[self.at - 1]


class Slotted:
    __slots__ = ("at", "row")

    def __init__(self, row: Tensor) -> None:
        self.row, self.at = row, 0

    next = Counter.next


class Asked:
    """Stores by way of code of the user's."""

    def __init__(self, row: Tensor) -> None:
        self.row, self.hidden = row, 0

    @property
    def at(self) -> int:
        return self.hidden

    @at.setter
    def at(self, value: int) -> None:
        self.hidden = value + (value == 3)

    next = Counter.next


class Watched:
    def __init__(self, row: Tensor) -> None:
        self.row, self.at = row, 0

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name == "at" and value > 2:
            object.__setattr__(self, "row", -self.row)

    next = Counter.next


@dataclass
class Pair:
    left: Tensor
    right: Tensor


KINDS = {"plain": Counter, "slots": Slotted, "property": Asked, "setattr": Watched}
KIND: Any = Counter


def drawn(row: Tensor, n: Tensor) -> Tensor:
    tape = KIND(row)
    total = row.sum() * 0
    while total < n:
        total = total + tape.next()
    return total + tape.at


def two_names(row: Tensor, n: Tensor) -> Tensor:
    """What one name stores, another reads, in the block of the store."""
    tape = Counter(row)
    other = tape if n > 1 else Counter(row + 1)
    total = row.sum() * 0
    while total < n:
        tape.at = tape.at + 1
        seen = other.at
        other.at = seen + 1
        total = total + tape.row[0].abs() + tape.at + seen
    return total


def names_change(row: Tensor, n: Tensor) -> Tensor:
    """What was stored keeps its value when its name, or its instance's, has another."""
    tape, spare = Counter(row), Counter(row)
    total = row.sum() * 0
    while total < n:
        x = total + 1
        tape.at = x
        x = x * 2
        spare.at = x
        tape, spare = spare, tape
        total = tape.at + spare.at
    return total


def held_tensors(row: Tensor, n: Tensor) -> Tensor:
    """What is stored is the tensor itself: writes to it show in both."""
    pair = Pair(row * 1, row * 2)
    total = row.sum() * 0
    while total < n:
        fresh = pair.left + 1
        pair.left = fresh
        pair.right = pair.left
        fresh += 1
        total = total + pair.right.abs().sum() + 1
    return pair.left + pair.right


def in_containers(row: Tensor, n: Tensor) -> Tensor:
    """An instance that is looked at within a list, or by a method, after a store."""
    tape = Counter(row)
    tapes = [tape, Counter(row)]
    total = row.sum() * 0
    while total < n:
        tape.start = tape.start + 1
        total = total + tapes[0].start + tape.next().abs()
    return total


def grows(row: Tensor, n: Tensor) -> Tensor:
    """Ints that leave int64 on the way."""
    tape = Counter(row)
    tape.at = 3
    total = row.sum() * 0
    while total < n:
        tape.at = tape.at * 5000000000 + int(total)
        total = total + 1 + tape.at % 7
    return total


def inputs(size: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(size)
    rows = torch.rand(size, 60, generator=draw, dtype=torch.float64) + 0.2
    return rows, torch.linspace(0, 9, size, dtype=torch.float64)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", [two_names, names_change, held_tensors, in_containers, grows])
def test_programs_that_store(program: Any) -> None:
    assert_matches_loop(program, inputs(64), batch_sizes=SIZES)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_instances(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "KIND", KINDS[kind])
    assert_matches_loop(drawn, inputs(64), batch_sizes=SIZES)


def test_a_class_that_comes_to_have_a_setter(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(Counter):
        pass

    monkeypatch.setitem(globals(), "KIND", Own)
    assert_matches_loop(drawn, inputs(7))
    monkeypatch.setattr(Own, "__setattr__", Watched.__setattr__)
    assert_matches_loop(drawn, inputs(7))


def test_a_read_past_the_end_is_that_threads() -> None:
    """Bounds no longer say that all indices are in range: those that are not, fail."""
    rows, n = inputs(7)
    n[4] = 1000.0
    for _ in range(3):
        results = autobatch.vmap(drawn, on_error="isolate", trace_after=0)(rows, n)
        assert [type(result.exception) for result in results].count(IndexError) == 1
        assert isinstance(results[4].exception, IndexError)
        for place in (0, 1, 2, 3, 5, 6):
            torch.testing.assert_close(results[place].value, drawn(rows[place], n[place]))


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_a_store_runs_in_one_replay_and_needs_no_read(engine: str) -> None:
    """A call that stores runs by a driver, within its caller's step; its index needs no look."""
    rows, n = inputs(64)
    batched = autobatch.vmap(drawn, engine=engine, trace_after=0, plain="never")
    for _ in range(4):
        batched(rows, n)
    with autobatch.counts() as counts:
        batched(rows, n)
    calls = counts.by_block["Counter.next", 0]
    assert calls > 10
    assert counts.host_reads <= calls + 1  # of the loop's branch
    assert not counts.traces and not counts.fallbacks


class Narrow(Slotted):
    __slots__ = ("more",)
    fixed = 3


@pytest.mark.parametrize("name", ["other", "fixed"])
def test_an_instance_without_room_takes_no_other_attribute(name: str) -> None:
    def stored(x: Tensor) -> Tensor:
        narrow = Narrow(x)
        narrow.more = x * 2
        if name == "other":
            narrow.other = narrow.more
        else:
            narrow.fixed = narrow.more
        return narrow.more

    def caught(x: Tensor) -> tuple[Tensor, int]:
        try:
            return stored(x), 0
        except AttributeError as error:
            return x, len(str(error))

    xs = torch.arange(21.0).reshape(7, 3)
    assert_matches_loop(stored, (xs,), batch_sizes=(1, 2, 7))
    assert_matches_loop(caught, (xs,), batch_sizes=(1, 2, 7))


class Doubling(Counter):
    """Each of its attributes is read by code of the user's."""

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        return found * 2 if name == "sum" else found


def test_an_instance_that_looks_up_by_itself_is_asked() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor, int]:
        one = Doubling(x)
        one.sum = x
        other = one
        if x[0] > 9:
            other.sum = one.sum + 1
        return one.sum, other.next(), one.at

    assert_matches_loop(program, (torch.arange(21.0).reshape(7, 3),), batch_sizes=(1, 2, 7))


class Later(Counter):
    """Its class gets a property only after a first call."""


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_a_property_that_a_class_gets_later_is_called(engine: str) -> None:
    def program(x: Tensor) -> Tensor:
        later = Later(x)
        later.sum = x
        for _ in range(3):
            later.sum = later.sum + x
        return later.sum

    def given(self: Any) -> Tensor:
        return self.kept + 1

    def kept(self: Any, value: Tensor) -> None:
        self.kept = value

    xs = torch.arange(21.0).reshape(7, 3)
    run = autobatch.vmap(program, engine=engine, trace_after=0, plain="never")
    for _ in range(3):
        torch.testing.assert_close(run(xs), xs * 4)
    Later.sum = property(given, kept)  # type: ignore[attr-defined]
    try:
        for _ in range(3):
            torch.testing.assert_close(run(xs), xs * 4 + 4)
    finally:
        del Later.sum  # type: ignore[attr-defined]
