"""Threads that part at an ``if`` in a loop and meet behind it, without the queue in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.api import LIBRARY
from autobatch.vm import crossing
from tests.going_round import hold_gradients_to_loop
from tests.of_its_own import of_its_own
from tests.oracle import assert_matches_loop

ROWS = torch.sin(torch.arange(9 * 12 * 3).float() * 1.7).reshape(9, 12, 3)
LIMITS = torch.linspace(-1.0, 1.0, 9)
WEIGHT = torch.tensor([[0.5, -0.2, 0.1], [0.3, 0.4, -0.6], [0.2, 0.1, 0.7]])


def both_ways(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for row in x:
        if row.sum() > limit:  # noqa: SIM108
            h = torch.tanh(WEIGHT @ h + row)
        else:
            h = torch.sin(WEIGHT @ h - row)
    return h


def one_way(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for row in x:
        h = h * 0.9 + row
        if h.sum() > limit:
            h = WEIGHT @ h
        h = torch.tanh(h)
    return h


def the_other_way(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for row in x:
        h = h * 0.9 + row
        if h.sum() > limit:
            pass
        else:
            h = WEIGHT @ h
        h = torch.tanh(h)
    return h


def counting(x: Tensor, limit: Tensor) -> tuple[Tensor, int, float]:
    """Numbers that all share become those of each thread."""
    h, n, s = torch.zeros(3), 0, 1.0
    for row in x:
        if (h * row).sum() > limit - 0.5:
            h = torch.tanh(WEIGHT @ h + row)
            n += 1
        else:
            h = torch.sin(WEIGHT @ h - row)
            s = s * 1.5
    return h, n, s


def several_rows(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    """What one arm alone gives, and what changes places."""
    h, c, last = torch.zeros(3), torch.ones(3), torch.zeros(3)
    for t in range(12):
        row = x[t]
        if row[0] > limit:
            last = h
            h, c = c, torch.tanh(WEIGHT @ h + row)
        else:
            c = c * 0.5 + row
        h = h + row * 0.1
    return h + last, c


def of_two_dtypes(x: Tensor, limit: Tensor) -> Tensor:
    """Threads of unlike kinds go on side by side."""
    h = torch.zeros(3)
    for row in x:
        if row.sum() > limit:
            h = torch.tanh(WEIGHT @ h.float() + row).double()
        else:
            h = torch.sin(WEIGHT @ h.float() - row)
    return h.float()


def of_two_kinds(x: Tensor, limit: Tensor) -> Tensor:
    h, found = torch.zeros(3), None
    for row in x:
        if row.sum() > limit:
            h = torch.tanh(WEIGHT @ h + row)
            found = h
        else:
            h = h - row
            found = None
    return h if found is None else h + found


def written_in_place(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    """Two names for one tensor: what is written by one shows by the other."""
    h = torch.zeros(3)
    seen = h
    for row in x:
        if row.sum() > limit:
            h = torch.tanh(WEIGHT @ h + row)
            seen = h
        else:
            h += row
    return h, seen


def appending(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    h, hits = torch.zeros(3), []
    for row in x:
        if row.sum() > limit:
            hits.append(h)
            h = torch.tanh(WEIGHT @ h + row)
        else:
            h = torch.sin(h - row)
    return h, len(hits)


def leaving(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for row in x:
        if row.sum() > limit:  # noqa: SIM108
            h = torch.tanh(WEIGHT @ h + row)
        else:
            h = torch.sin(WEIGHT @ h - row)
        if h.sum() > 1.2 + limit:
            break
    return h


def within(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for row in x:
        if row.sum() > limit:
            if row[0] > 0:  # noqa: SIM108
                h = torch.tanh(WEIGHT @ h + row)
            else:
                h = torch.cos(WEIGHT @ h + row)
        else:
            h = torch.sin(WEIGHT @ h - row)
    return h


def one_of_three(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    h, n = torch.zeros(3), 0
    for row in x:
        if row.sum() > limit + 0.5:
            h = torch.tanh(WEIGHT @ h + row)
        elif row[0] > limit:
            h = torch.cos(WEIGHT @ h + row)
            n += 1
        else:
            h = torch.sin(WEIGHT @ h - row)
            n += 2
    return h, n


def if_both(x: Tensor, limit: Tensor) -> Tensor:
    h = torch.zeros(3)
    for row in x:
        h = h * 0.5 + row
        if row.sum() > limit and h[0] < 0.5:
            h = torch.tanh(WEIGHT @ h)
    return h


def if_one(x: Tensor, limit: Tensor) -> Tensor:
    """Two ways lead to one arm."""
    h = torch.zeros(3)
    for row in x:
        if row.sum() > limit or h[0] < -0.5:
            h = torch.tanh(WEIGHT @ h + row)
        else:
            h = torch.sin(WEIGHT @ h - row)
    return h


def skipping(x: Tensor, limit: Tensor) -> Tensor:
    """Threads meet at the head of the loop."""
    h = torch.zeros(3)
    for row in x:
        if row.sum() < limit:
            continue
        h = torch.tanh(WEIGHT @ h + row)
    return h


def skipping_one_of_two(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    h, n = torch.zeros(3), 0
    for row in x:
        if row.sum() < limit:
            if row[0] < 0:
                continue
            h = torch.sin(WEIGHT @ h)
        else:
            h = torch.tanh(WEIGHT @ h + row)
        n += 1
    return h, n


def beyond_64_bits(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    h, n = torch.zeros(3), 7
    for row in x:
        if row.sum() > limit:
            h = torch.tanh(WEIGHT @ h + row)
            n = n * 10**9 + 1
        else:
            h = torch.sin(WEIGHT @ h - row)
    return h, n % 1000


def failing(x: Tensor, limit: Tensor) -> Tensor:
    h, n = torch.zeros(3), 3
    for row in x:
        if row.sum() > limit:
            h = torch.tanh(WEIGHT @ h + row) / n
            n -= 1
            h = h + 1 / n
        else:
            h = torch.sin(WEIGHT @ h - row)
    return h


def in_a_dict(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor, int]:
    state = {"h": torch.zeros(3), "g": torch.ones(3), "n": 0}
    for row in x:
        if row.sum() > limit:
            state["h"] = torch.tanh(WEIGHT @ state["h"] + row)
            state["n"] = state["n"] + 1
        else:
            state["g"] = torch.sin(state["g"] - state["h"])
    return state["h"], state["g"], state["n"]


def in_a_list(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    """Both ways assign its last item, by two indices."""
    state = [torch.zeros(3), torch.ones(3)]
    for row in x:
        if row.sum() > limit:
            state[0], state[1] = torch.tanh(WEIGHT @ state[1] + row), state[0]
        else:
            state[-1] = torch.sin(state[0] - row)
    return state[0], state[1]


class Cell:
    """Has attributes alone."""


@dataclass
class State:
    h: Tensor
    n: int = 0


def in_an_object(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    cell = Cell()
    cell.h, cell.n = torch.zeros(3), 0
    for row in x:
        if row.sum() > limit:
            cell.h = torch.tanh(WEIGHT @ cell.h + row)
        elif row[0] > 0:
            cell.n = cell.n + 1
        else:
            cell.h, cell.n = torch.sin(cell.h - row), cell.n + 2
    return cell.h, cell.n


def in_a_dataclass(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    state = State(torch.zeros(3))
    for row in x:
        if row.sum() > limit:
            state.h = torch.tanh(WEIGHT @ state.h + row)
            if state.h[0] > 0:
                state.n = state.n + 1
    return state.h, state.n


def by_two_names(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor, int]:
    """One dict: each way writes it by another name, and it is read by a third."""
    state = {"h": torch.zeros(3), "n": 0}
    same, around = state, {"state": state}
    for row in x:
        if row.sum() > limit:
            state["h"] = torch.tanh(WEIGHT @ same["h"] + row)
        else:
            same["h"] = torch.sin(state["h"] - row)
            state["n"] = same["n"] + 1
    return same["h"], around["state"]["h"], around["state"]["n"]


def a_new_key(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    """Threads have unlike dicts until all of them have it."""
    state = {"h": torch.zeros(3)}
    for row in x:
        if row.sum() > limit:
            state["h"] = torch.tanh(WEIGHT @ state["h"] + row)
        else:
            state["g"] = torch.sin(state["h"] - row)
    return sum(state.values()), len(state)


def of_two_kinds_in_a_dict(x: Tensor, limit: Tensor) -> tuple[Tensor, bool]:
    state: dict[str, Any] = {"h": torch.zeros(3), "last": None}
    for row in x:
        if row.sum() > limit:
            state["h"] = torch.tanh(WEIGHT @ state["h"] + row)
            state["last"] = None
        else:
            state["last"] = row * 2
    return state["h"], state["last"] is None


def by_an_int_of_a_tensor(x: Tensor, limit: Tensor) -> tuple[Tensor, int]:
    """Where it lies is looked at with the branch."""
    h, total = torch.zeros(3), 0
    for row in x:
        k = int(row.argmax() + limit.sign())
        total = total + k
        match k % 3:
            case 0:
                h = torch.tanh(WEIGHT @ h + row)
            case 1:
                h = torch.sin(WEIGHT @ h - row)
                total = total * k
            case _:
                h = h * 0.5
    return h, total


PROGRAMS = (
    by_an_int_of_a_tensor,
    in_a_dict,
    in_a_list,
    in_an_object,
    in_a_dataclass,
    by_two_names,
    a_new_key,
    of_two_kinds_in_a_dict,
    both_ways,
    one_way,
    the_other_way,
    counting,
    several_rows,
    of_two_dtypes,
    of_two_kinds,
    written_in_place,
    appending,
    leaving,
    within,
    one_of_three,
    if_both,
    if_one,
    skipping,
    skipping_one_of_two,
    beyond_64_bits,
    failing,
)
CROSSED = (
    by_an_int_of_a_tensor,
    *(in_a_dict, in_a_list, in_an_object, in_a_dataclass, by_two_names),
    *(both_ways, one_way, the_other_way, counting, several_rows, leaving),
    *(within, one_of_three, if_both, skipping),
)


@pytest.mark.parametrize("func", PROGRAMS, ids=lambda func: func.__name__)
def test_results_are_the_loops(func: Callable[..., Any]) -> None:
    assert_matches_loop(func, (ROWS, LIMITS))


@pytest.mark.parametrize("func", [*CROSSED, if_one, appending], ids=lambda func: func.__name__)
def test_gradients_are_the_loops(func: Callable[..., Any]) -> None:
    global WEIGHT
    single, WEIGHT = WEIGHT, WEIGHT.double()
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        hold_gradients_to_loop(func, ROWS, LIMITS)
    finally:
        WEIGHT = single
        torch.set_default_dtype(before)


@pytest.mark.parametrize("func", CROSSED, ids=lambda func: func.__name__)
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_they_are_crossed_once_recorded(
    func: Callable[..., Any], engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the block executions are those of the queue, the same threads in each."""
    came: list[bool] = []
    through = crossing.through

    def noted(*args: Any) -> Any:
        found = through(*args)
        came.append(found is not None)
        return found

    def counted() -> tuple[dict[Any, int], dict[Any, int]]:
        batched = autobatch.vmap(of_its_own(func), engine=engine, plain="never", trace_after=0)
        for _ in range(4):
            came.clear()
            with torch.no_grad(), autobatch.counts() as counts:
                batched(ROWS, LIMITS)
        return dict(counts.by_block), dict(counts.threads_by_block)

    monkeypatch.setattr(crossing, "through", lambda *args: None)
    plainly = counted()
    monkeypatch.setattr(crossing, "through", noted)
    found = counted()
    assert came and all(came)
    assert found == plainly


def test_what_begins_a_diamond() -> None:
    def joins(func: Callable[..., Any]) -> int:
        code = LIBRARY.code_of(func)
        return sum(code.diamond(pc) is not None for pc in range(len(code.blocks)))

    assert {func.__name__: joins(func) for func in PROGRAMS} == {
        "by_an_int_of_a_tensor": 2,
        "in_a_dict": 1,
        "in_a_list": 1,
        "in_an_object": 2,
        "in_a_dataclass": 2,
        "by_two_names": 1,
        "a_new_key": 1,
        "of_two_kinds_in_a_dict": 1,
        "both_ways": 1,
        "one_way": 1,
        "the_other_way": 1,
        "counting": 1,
        "several_rows": 1,
        "of_two_dtypes": 1,
        "of_two_kinds": 1,
        "written_in_place": 1,
        "appending": 0,
        "leaving": 1,
        "within": 2,
        "one_of_three": 2,
        "if_both": 2,
        "if_one": 1,
        "skipping": 1,
        "skipping_one_of_two": 0,
        "beyond_64_bits": 1,
        "failing": 1,
    }
