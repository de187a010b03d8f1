"""Writes to a tensor that nobody else holds go where it is, and those to any other to a copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.batching.stretches import driver_names, sites
from autobatch.batching.stretches.checking import agrees
from autobatch.batching.stretches.holders import is_sole
from autobatch.batching.trace import Input, record
from autobatch.values.cells import Cell, Column
from tests.oracle import assert_matches_loop


def element(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    made = x.clone()
    made[:, 1] = y
    return (made,)


def read_before(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    total, made = x.sum(1), x.clone()
    made[:, 1] = y + total
    return made, total


def places(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    made = x.clone()
    made[torch.arange(len(x)), y.abs().long() % 2] = y
    return (made,)


def counted(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    rows, at = torch.arange(len(x)), y.abs().long() % 2
    new, made = x[rows, at] + 1, x.clone()
    made[rows, at] = new
    return (made,)


def read_after(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    made = x.clone()
    made[:, 1] = y
    return made, x.sum(1)


def shown(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    made = x.clone()
    made[:, 1] = y
    return made, made[:, :2]


def at_unknown_places(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Once more, it would write something else."""
    total, made = x.sum(1), x.clone()
    made[torch.arange(len(x)), y.abs().long() % 2] = total
    return made, total


def fails_later(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    made = x.clone()
    made[:, 1] = x[:, 0] + y
    return made, y.gather(0, y.abs().long() % 2)


@pytest.mark.parametrize("fn", [element, read_before, places, counted])
def test_a_recording_writes_over_what_it_would_copy(fn: Callable[..., Any]) -> None:
    over, x, y, trace = recorded(fn)
    assert over is not None
    want = trace(4, x, y)
    found = over(4, x, y)
    assert found[0] is x
    torch.testing.assert_close(found, want)


@pytest.mark.parametrize("fn", [read_after, shown, at_unknown_places, fails_later])
def test_it_does_not_where_that_could_be_seen(fn: Callable[..., Any]) -> None:
    assert recorded(fn)[0] is None


def test_nor_where_gradients_may_flow() -> None:
    assert recorded(element, grad=True)[0] is None


def recorded(fn: Callable[..., Any], grad: bool = False) -> Any:
    x, y = torch.randn(4, 3), torch.randn(4, requires_grad=grad)
    trace = record(lambda k, x, y: fn(x, y), [Input("column", x), Input("column", y)])
    return trace.over(0, 0), x, y, trace


def looked_at(cell: Any) -> bool:
    """As a driver does."""
    column = cell.value
    table = column.table
    dense = table if table.is_contiguous() else None
    return is_sole((column, dense))


@pytest.mark.parametrize(
    "held",
    [
        lambda column: column,
        lambda column: column.table,
        lambda column: column.table[:1],
        lambda column: column.table.detach(),
        lambda column: column.table.numpy(),
        lambda column: torch.ones(2, requires_grad=True) * column.table,
    ],
)
def test_who_holds_what_is_written(held: Callable[[Any], Any]) -> None:
    cell = Cell(Column(torch.zeros(2)))
    assert looked_at(cell)
    holder = held(cell.value)
    assert not looked_at(cell)
    del holder
    assert looked_at(cell)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """How often somebody else held what was written, and how often not."""
    found: Counter[bool] = Counter()

    def noted(pair: Any) -> bool:
        answer = is_sole(pair)
        found[answer] += 1
        return answer

    monkeypatch.setitem(driver_names.NAMES, "is_sole", noted)
    return found


def filled(x: Tensor, n: Tensor) -> Tensor:
    made, i = torch.zeros(6), 0
    while i < n:
        x = x * 1.5
        made[i] = x
        i = i + 1
    return made


def test_an_array_is_filled_where_it_is(asked: Counter[bool]) -> None:
    n = torch.tensor([6, 6, 6, 6])
    for _ in range(4):
        asked.clear()
        autobatch.vmap(filled, trace_after=0, plain="never")(torch.randn(4), n)
    assert asked[True] >= 5 >= asked[False]


def kept_names(x: Tensor, n: Tensor) -> list[Tensor]:
    """Some of them are names of one tensor, some hold copies, some show a part."""
    made, kept = torch.zeros(6), []
    for i in range(6):
        if i < n:
            kept.append(made if i % 2 else made.clone())
            kept.append(made[i:])
        made[i] = x + i
    return kept


def caught(x: Tensor, n: Tensor) -> Tensor:
    """What is written before the failure is seen after it."""
    made, i = torch.zeros(4), n
    try:
        while i < 9:
            made[i] = made[i] + x
            x = x * 2.0
            i = i + 1
    except IndexError:
        return made * 10.0 + i
    return made


def written_halfway(x: Tensor, n: Tensor) -> Tensor:
    made = torch.ones(3)
    for i in range(5):
        made[0] = made[0] + x
        made[i - 2] = made[0] / n
    return made


PROGRAMS = [filled, kept_names, caught, written_halfway]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("func", PROGRAMS)
def test_programs_that_write(func: Callable[..., Any]) -> None:
    for given in ([2, 5, 3, 6], [4, 4, 4, 4], [0, 6, 1, 3]):
        assert_matches_loop(func, (torch.randn(4), torch.tensor(given)), batch_sizes=(0, 1, 4))


def test_what_a_gradient_needs_is_copied() -> None:
    """A product keeps its operands, which are written to later."""

    def func(w: Tensor, x: Tensor) -> Tensor:
        made, total = torch.ones(3), torch.zeros(())
        for i in range(3):
            total = total + (w * made).sum()
            if x > -100.0:
                made[i] = x + i
        return total

    x = torch.randn(5)
    for _ in range(4):
        w = torch.randn(5, 3, requires_grad=True)
        autobatch.vmap(func, trace_after=0, plain="never")(w, x).sum().backward()
        expected = torch.stack([x * 2 + 1, x + 3, torch.full((5,), 3.0)], 1)
        torch.testing.assert_close(w.grad, expected)


def test_in_inference_mode() -> None:
    x, n = torch.randn(4), torch.tensor([6, 2, 3, 6])
    with torch.inference_mode():
        found = [autobatch.vmap(filled, trace_after=0, plain="never")(x, n) for _ in range(4)]
    expected = torch.stack([filled(*row) for row in zip(x, n, strict=True)])
    for result in found:
        torch.testing.assert_close(result, expected)


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


def test_what_holds_a_written_tensor_is_as_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first replay is checked: an input that it writes shows that within a result, too."""

    def func(x: Tensor, n: Tensor) -> Tensor:
        held = x * 1.0
        while held[0] < n:
            held[0] = held[0] + 1.0
            pair = Pair(held, x)
            if x[1] > -100.0:
                held = pair.left
        return pair.left + pair.right

    answers: list[bool] = []

    def noted(*given: Any) -> bool:
        answers.append(agrees(*given))
        return answers[-1]

    monkeypatch.setattr(sites, "agrees", noted)
    rows = torch.tensor([[0.5, 1.0], [-3.0, 2.0], [0.1, 0.2]])
    assert_matches_loop(func, (rows, torch.tensor([2.0, 3.0, 1.0])))
    assert answers and all(answers)
