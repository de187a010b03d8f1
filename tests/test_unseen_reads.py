"""Shared tensors that a program writes and then reads in code that nobody looks into.

A function that runs thread by thread, or as one operation, reads what was there before the call;
one that runs after the threads have written it is refused. What it reads otherwise is let be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch
from autobatch.vm.library import Library
from autobatch.vm.purity import Names

OPTIONS: tuple[dict[str, Any], ...] = (
    {"executor": "vmap"},
    {"trace_after": 0},
    {"trace_after": 0, "engine": "program_counter"},
)
XS = torch.tensor([3.0, -1.0, 4.0, 1.5])
TOTAL = torch.zeros(())
OTHER = torch.ones(2)
SINE = [torch.sin]


@pytest.fixture(autouse=True)
def fresh():
    TOTAL.zero_()


@autobatch.per_thread
def looks(x):
    return x + TOTAL


@autobatch.per_thread
def swallows(x):
    try:
        return x / TOTAL
    except Exception:
        return x


@autobatch.per_thread
def looks_elsewhere(x):
    return x + OTHER.sum()


@autobatch.per_thread
def takes_a_view(x):
    return x * len(TOTAL.reshape(1))


@autobatch.primitive
def at_once(x):
    return x + TOTAL


def on_the_host(x):
    TOTAL.add_(x)
    return looks(x)


def on_the_host_and_swallowed(x):
    TOTAL.add_(x)
    return swallows(x)


def as_one_operation(x):
    TOTAL.add_(x)
    return at_once(x)


def as_one_made_inside(x):
    TOTAL.add_(x)
    return autobatch.primitive(lambda y: y + TOTAL)(x)


def by_a_key(x):
    TOTAL.add_(x)
    return sorted([x, -x], key=lambda y: float(y + TOTAL))[0]


def by_a_function_of_torchs(x):
    TOTAL.add_(x)
    function = SINE[0]
    return function(TOTAL)


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    @autobatch.per_thread
    def late(self, x):
        return x + self.seen

    def forward(self, x):
        self.seen += 1
        return self.late(x)


LAYER = torch.nn.Linear(1, 1)


def added_to(x):
    with torch.no_grad():
        LAYER.weight.add_(x)
    return x[None]


def by_forward(x):
    return LAYER.forward(added_to(x))[0]


def by_vmap(x):
    return torch.vmap(LAYER)(added_to(x)[None])[0, 0]


def by_our_vmap(x):
    return autobatch.vmap(LAYER.forward)(added_to(x)[None])[0, 0]


def by_a_jacobian(x):
    return torch.func.jacrev(LAYER)(added_to(x))[0, 0]


def by_a_tangent(x):
    x = added_to(x)
    return torch.func.jvp(LAYER, (x,), (x,))[1][0]


LATE = (
    *(on_the_host, on_the_host_and_swallowed, as_one_operation, as_one_made_inside, by_a_key),
    *(by_a_function_of_torchs, by_forward, by_vmap, by_our_vmap, by_a_jacobian, by_a_tangent),
    Counter(),
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("program", LATE)
def test_late_reads_are_refused(program: Any, options: Any) -> None:
    with pytest.raises(autobatch.SharedWriteError, match="after it has written") as caught:
        autobatch.vmap(program, **options)(XS)
    assert "^ read here" in str(caught.value) and "it is added to" in str(caught.value)
    assert TOTAL == 0 and LATE[-1].seen == 0


def before(x):
    y = looks(x)
    z = at_once(y)
    TOTAL.add_(x)
    return z


def elsewhere(x):
    TOTAL.add_(x)
    return looks_elsewhere(x) + takes_a_view(x)


def only_others_have_written(x):
    if x > 3:
        TOTAL.add_(x)
        return x
    return looks(x)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("program", [before, elsewhere, only_others_have_written])
def test_other_reads_are_let_be(program: Callable[..., Any], options: Any) -> None:
    """All see what was there before the call, which is what the loop sees one by one from zero."""
    wanted = []
    for x in XS:
        TOTAL.zero_()
        wanted.append(program(x.clone()))
    TOTAL.zero_()
    assert torch.equal(autobatch.vmap(program, **options)(XS), torch.stack(wanted))
    given = XS[XS > 3] if program is only_others_have_written else XS
    assert torch.equal(TOTAL, given.sum())


def normed(x, mean, var, n):
    if n <= 0:
        return torch.nn.functional.batch_norm(x, mean, var, training=True, momentum=0.5)
    return normed(x, mean, var, n - 1) + normed(x * 2 + 1, mean, var, n - 1)


def looked_up(x, table, n):
    if n <= 0:
        return torch.nn.functional.embedding((x > 0).long(), table, max_norm=0.5 + n)
    return looked_up(x, table, n - 1) + looked_up(-x, table, n - 1)


def statistics(x):
    mean, var = torch.zeros(2), torch.ones(2)
    return normed(x, mean, var, 2), mean, var


def renormed(x):
    table = torch.ones(2, 3) * x.sum()
    return looked_up(x, table, 2), table


@pytest.mark.parametrize("function", [normed, looked_up])
def test_calls_that_update_operands_write_them(function: Any) -> None:
    library = Library()
    purity = library.purity(library.code_of(function), Names.of(function))
    assert purity.writes >= {"mean", "var"} or purity.writes >= {"table"}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("program", [statistics, renormed])
def test_operands_are_updated_in_order(program: Any, options: Any) -> None:
    xs = torch.randn(5, 4, 2)
    results = autobatch.vmap(program, **options)(xs)
    for row, x in enumerate(xs):
        for mine, one in zip(results, program(x.clone()), strict=True):
            torch.testing.assert_close(mine[row], one)


SHOWN = torch.zeros(3)
ARRAY = SHOWN.numpy()


def element(x):
    array = SHOWN.numpy()
    SHOWN.add_(x)
    return x + float(array[0])


def its_method(x):
    array = SHOWN.numpy()
    SHOWN.add_(x)
    return x + float(array.sum())


def back_to_torch(x):
    array = SHOWN.numpy()
    SHOWN.add_(x)
    return torch.from_numpy(array) + x


def from_before(x):
    SHOWN.add_(x)
    return x + float(ARRAY[0])


def arithmetic(x):
    part = SHOWN.numpy()[1:]
    SHOWN.add_(x)
    return x + float((part + 1)[0])


@pytest.mark.parametrize("function", [element, its_method, back_to_torch, from_before, arithmetic])
def test_arrays_show_the_memory_of_tensors(function):
    SHOWN.zero_()
    with pytest.raises(autobatch.SharedWriteError, match="after it has written to it"):
        autobatch.vmap(function)(torch.ones(2, 3))
    assert not SHOWN.any()


def test_an_array_that_is_read_before_the_write():
    def function(x):
        array = SHOWN.numpy()
        first = float(array[0])
        SHOWN.add_(x)
        return x + first + array.shape[0]

    SHOWN.zero_()
    found = autobatch.vmap(function)(torch.ones(2, 3))
    assert found.tolist() == [[4.0] * 3] * 2 and SHOWN.tolist() == [2.0] * 3
