"""What shares memory with what goes by the layout of one example's tensor, on every path to it.

``y.reshape(-1)`` is a view of ``y`` or a copy: a write to it tells. Each way of making a tensor ×
each question × each path from the one to the other is held to the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import autobatch
from autobatch.vm.asking import Asks
from autobatch.vm.library import Library
from autobatch.vm.purity import Names
from tests.oracle import assert_matches_loop

MADE: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.t(),
    "columns": lambda x: x[:, :2],
    "steps": lambda x: x[::2, 0],
    "expanded": lambda x: x[:1].expand(3, 3),
    "conjugate": lambda x: torch.complex(x, x).conj(),
    "picked": lambda x: x[:, (x[0] > 0).long()],
    "picked, by all": lambda x: x[:, torch.tensor([2, 0])],
    "picked of transposed": lambda x: x.t()[(x[0] > 0).long()],
    "column": lambda x: x[:, int(x[0, 0] > 0)],
    "row of transposed": lambda x: x.t()[int(x[0, 0] > 0)],
    "window": lambda x: x[:, int(x[0, 0] > 0) : int(x[0, 0] > 0) + 2],
    "rolled": lambda x: x.t().roll(1, 0),
    "joined": lambda x: torch.cat([x.t(), x.t()]),
    "convolved": lambda x: F.conv1d(torch.stack([x, x]), torch.stack([x[:, :2]] * 3)),
    "filled": lambda x: x.index_fill(1, (x[0, :2] > 0).long(), 1.0),
}
ASKED: dict[str, Callable[[Tensor], Any]] = {
    "reshape": lambda y: y.reshape(-1),
    "flatten": lambda y: torch.flatten(y),
    "contiguous": lambda y: y.contiguous(),
    "view": lambda y: y.view(-1),
    "itself": lambda y: y,
}


def straight(x, make, ask):
    y = make(x)
    z = ask(y)
    z += 100
    return y, x


def after_a_branch(x, make, ask):
    y = make(x)
    if x[0, 0] > 0:
        z = ask(y)
        z += 100
    return y, x, y.stride(), y.is_contiguous(), y.is_conj()


def after_its_base(x, make, ask):
    y = make(x)
    if x[0, 0] > 0:
        x = x + 1
    z = ask(y)
    z += 100
    return y, y.stride(), y.is_contiguous()


def met(x, make, ask):
    y = make(x) if x[0, 0] > 0 else torch.clone(make(x), memory_format=torch.contiguous_format)
    z = ask(y)
    z += 100
    return y, x, y.stride()


PATHS = [straight, after_a_branch, after_its_base, met]


@pytest.mark.sampled(48)
@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("path", PATHS)
def test_writes_go_where_they_go_in_one_example(path: Any, asked: str, made: str) -> None:
    make, ask = MADE[made], ASKED[asked]
    x = torch.arange(27.0).reshape(3, 3, 3) - 10
    for some in (x[2:], x):
        assert_matches_loop(lambda x: path(x, make, ask), (some,))


def turned(x):
    for _ in range(int(x[0, 0].abs()) % 3):
        x = x.t()
    z = x.flatten()
    z += 100
    return x


def recursive(x):
    def go(n, y):
        return y if n == 0 else go(n - 1, y.t())

    y = go(int(x[0, 0] > 0), x)
    y.reshape(-1).zero_()
    return y


def from_a_list(x):
    y = [x, x.t()][int(x[0, 0] > 0)]
    y.reshape(9)[1] = 100
    return y, x


def shared(x):
    y = torch.zeros(3, 3).t() if x[0, 0] > 0 else torch.zeros(3, 3)
    y.copy_(x)
    y.contiguous().zero_()
    return y


def of_weights(x):
    y = WEIGHTS[:, :2] if x[0, 0] > 0 else WEIGHTS[:, :2] * 1
    return y.stride(), y.is_contiguous()


def per_thread(x):
    y = x.t() if x[0, 0] > 0 else x * 2
    return STRIDES(y)


def repeated(x):
    y = x[:1].expand(3, 3) if x[0, 0] > 0 else x * 2
    y += 1
    return y


def as_real(x):
    z = torch.complex(x, x)
    return torch.view_as_real(z.conj() if x[0, 0] > 0 else z)


WEIGHTS = torch.ones(3, 4)
STRIDES = autobatch.per_thread(lambda y: y.stride())
PROGRAMS = [turned, recursive, from_a_list, shared, of_weights, per_thread, repeated, as_real]
SOME = torch.tensor([-2.0, 1.0, 0.0, 5.0])[:, None, None] + torch.arange(9.0).reshape(3, 3) / 8


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", PROGRAMS)
def test_threads_of_unlike_layouts_run_apart_where_it_shows(program: Any) -> None:
    assert_matches_loop(program, (SOME,))
    assert_matches_loop(program, (SOME,), configurations=[{"executor": "compiled"}])


def plain(x):
    y = x.t() if x[0, 0] > 0 else x * 2
    return (y + 1).sum()


def read_only(x):
    y = x.t() if x[0, 0] > 0 else x * 2
    return (y.reshape(-1) + 1).sum()


def asking(x):
    y = x.t() if x[0, 0] > 0 else x * 2
    return (y + 1).sum() + y.stride(0)


def test_nothing_runs_apart_where_it_does_not_show() -> None:
    found = {}
    for func in (plain, read_only, asking):
        with autobatch.counts() as counts:
            autobatch.vmap(func)(SOME)
        found[func] = counts.block_executions
    assert found[plain] == found[read_only] == found[asking] - 1


def test_a_stream_and_rounds() -> None:
    def program(x):
        y = x.t() if x[0, 0] > 0 else x * 2
        y.reshape(9)[1] = 100
        return y

    expected = torch.stack([program(x.clone()) for x in SOME])
    found = dict(autobatch.stream(program, [x.clone() for x in SOME], 2))
    assert torch.equal(torch.stack([found[i] for i in range(4)]), expected)
    assert torch.equal(autobatch.pfor(lambda i: program(SOME[i].clone()), 4), expected)


def test_gradients_reach_what_has_gaps() -> None:
    def program(x):
        y = x[:, :2]
        if x[0, 0] > 0:
            x = x * 2
        return (y.contiguous() ** 2).sum() * y.stride(0)

    leaf, single = SOME.clone().requires_grad_(), SOME.clone().requires_grad_()
    autobatch.vmap(program)(leaf).sum().backward()
    sum(program(x) for x in single).backward()
    assert torch.equal(leaf.grad, single.grad)


class Turning:
    def turn(self, x):
        return x.t()


def named(x):
    flat = x.flatten
    return flat


LAYERS = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.ReLU())
ASKS: list[tuple[Callable[..., Any], Asks]] = [
    (lambda x: x.t() * 2, Asks.NEVER),
    (lambda x: plain(x), Asks.NEVER),
    (lambda x: print(math.sqrt(len(x))), Asks.NEVER),
    (lambda x: torch.nn.functional.relu(x), Asks.NEVER),
    (lambda x: read_only(x), Asks.IF_IT_WRITES),
    (lambda x: LAYERS(x), Asks.IF_IT_WRITES),
    (named, Asks.IF_IT_WRITES),
    (lambda x: asking(x), Asks.ALWAYS),
    (lambda x, f: f(x), Asks.ALWAYS),
    (lambda x: Turning().turn(x), Asks.ALWAYS),
    (lambda x: STRIDES(x), Asks.ALWAYS),
    (lambda x: sorted([x], key=lambda y: y.stride()), Asks.ALWAYS),
    (lambda x: torch.func.grad(asking)(x), Asks.ALWAYS),
]


@pytest.mark.parametrize(("func", "expected"), ASKS)
def test_what_sees_layouts(func: Any, expected: Asks) -> None:
    library = Library()
    assert library.asks(library.code_of(func), Names.of(func)) is expected


LAID: dict[str, Callable[..., Tensor]] = {
    "x[:, I]": lambda x, i, n: x[:, torch.tensor([0, 2])],
    "x[:, i]": lambda x, i, n: x[:, i],
    "x[i, :, i]": lambda x, i, n: x[i, :, i],
    "x[..., i]": lambda x, i, n: x[..., i],
    "x[:, i, 0]": lambda x, i, n: x[:, i, 0],
    "x[0, :, i]": lambda x, i, n: x[0, :, i],
    "x[n]": lambda x, i, n: x[n],
    "x[:, n]": lambda x, i, n: x[:, n],
    "x[:, :, n]": lambda x, i, n: x[:, :, n],
    "x[n:]": lambda x, i, n: x[n : n + 2],
    "x[:, n:]": lambda x, i, n: x[:, n : n + 2],
    "x[..., n::2]": lambda x, i, n: x[..., n : n + 3 : 2],
    "select": lambda x, i, n: x.index_select(1, i),
    "fill": lambda x, i, n: x.index_fill(1, i, 1.0),
    "embedding": lambda x, i, n: F.embedding(torch.tensor([[0, 1], [2, 1]]), x[0]),
    "cat": lambda x, i, n: torch.cat([x, x], 1),
    "baddbmm": lambda x, i, n: torch.baddbmm(x, x, x),
    "roll": lambda x, i, n: x.roll(1, 0),
    "pad": lambda x, i, n: F.pad(x, (1, 1)),
    "conv": lambda x, i, n: F.conv1d(x, x[:, :, :2]),
    "norm": lambda x, i, n: F.batch_norm(x, None, None, training=True),
    "gradient": lambda x, i, n: torch.gradient(x, dim=1)[0],
    "where": lambda x, i, n: torch.where(x > 0, x, x.permute(2, 1, 0)),
    "matmul": lambda x, i, n: x @ x.mT,
    "cumsum": lambda x, i, n: x.cumsum(1),
    "softmax": lambda x, i, n: x.softmax(0),
    "solve": lambda x, i, n: torch.linalg.solve(x[0] + 5 * torch.eye(4), x[1]),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("base", [lambda x: x, lambda x: x.permute(2, 0, 1)])
@pytest.mark.parametrize("lay", LAID.values(), ids=list(LAID))
def test_results_lie_as_one_examples_do(lay: Any, base: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    xs = torch.randn(3, 4, 4, 4, generator=generator)
    places = torch.randint(0, 4, (3, 2), generator=generator)
    numbers = torch.tensor([1, 0, 1])

    def asked(x, i, n):
        y = lay(base(x), i, n)
        return str(y.stride()), y.is_contiguous()

    assert_matches_loop(asked, (xs, places, numbers))


def parts_of_complex(x):
    parts = torch.view_as_real(x)
    return x.is_conj(), parts * 2 if x.real.sum() > 0 else parts


def test_rows_of_what_is_conjugated_or_negated_as_it_is_read_are_copies() -> None:
    """Of ``z.conj()`` a row has no bit that says so, as the loop's copy has none."""
    z = torch.complex(SOME[:, 0], SOME[:, 1])
    assert_matches_loop(parts_of_complex, (z.conj(),))
    assert_matches_loop(lambda x: (x.is_neg(), x * 2), (z.conj().imag,))
