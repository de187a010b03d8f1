"""Calls of one block run within their caller's step, as the block executions that they are."""

from __future__ import annotations

import pytest
import torch

import autobatch
from autobatch import StepLimitError
from autobatch.vm import outright
from tests.oracle import assert_matches_loop

ENGINES = pytest.mark.parametrize("engine", ["stackless", "program_counter"])


class Mixer(torch.nn.Module):
    """``forward`` calls methods that lowering does not see through: ``other`` may be anything."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.1, 0.9, 9).reshape(3, 3))

    def mixed(self, x, scale):
        return torch.tanh(self.weight @ x) * scale, x

    def forward(self, x, n, other):
        total = 0
        for i in range(n):
            y, before = other.mixed(x, 1.5)
            x = y if y.sum() > 0 else before - 0.25
            total = total + i
        return x, total


def arguments() -> tuple[Mixer, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return Mixer(), torch.randn(12, 3, generator=draw), torch.arange(12) % 5


def ran_outright(monkeypatch, batched, *args):
    """The counts of a warm run, and how many of its calls ran outright."""
    found = []
    run = outright.run

    def watched(*given):
        result = run(*given)
        found.append(result is not None)
        return result

    for _ in range(4):
        batched(*args)
    monkeypatch.setattr(outright, "run", watched)
    with autobatch.counts() as counts:
        batched(*args)
    monkeypatch.undo()
    return counts, sum(found)


@ENGINES
def test_a_call_of_one_block_is_one_execution_of_it(engine, monkeypatch):
    mixer, xs, ns = arguments()
    options = {"engine": engine, "trace_after": 0, "in_dims": (0, 0, None), "scalars": "python"}
    batched = autobatch.vmap(mixer, **options)
    counts, outright_calls = ran_outright(monkeypatch, batched, xs, ns, mixer)
    assert outright_calls == counts.by_block["Mixer.mixed", 0] > 0
    seen = autobatch.vmap(mixer, **options, listeners=[lambda step: None])
    with autobatch.counts() as general:
        told = seen(xs, ns, mixer)
    assert counts.by_block == general.by_block
    assert counts.threads_by_block == general.threads_by_block
    torch.testing.assert_close(batched(xs, ns, mixer), told)


@ENGINES
def test_it_counts_for_max_steps(engine):
    mixer, xs, ns = arguments()
    options = {"engine": engine, "trace_after": 0, "in_dims": (0, 0, None), "scalars": "python"}
    batched = autobatch.vmap(mixer, **options)
    for _ in range(4):
        batched(xs, ns, mixer)
    with autobatch.counts() as counts:
        batched(xs, ns, mixer)
    enough = counts.block_executions
    autobatch.vmap(mixer, **options, max_steps=enough)(xs, ns, mixer)
    with pytest.raises(StepLimitError):
        autobatch.vmap(mixer, **options, max_steps=enough - 1)(xs, ns, mixer)


class Table:
    def __init__(self, rows):
        self.rows = rows

    def row(self, i):
        return self.rows[i] * 2

    def swapped(self, x):
        x[0], x[1] = x[1] + 0, x[0] + 0
        return x


def looked_up(x, n, table):
    for i in range(n):
        x = x + table.row(i)
    y = table.swapped(x)
    return x, y is x, y + 1


@pytest.mark.sampled(2)
@ENGINES
@pytest.mark.parametrize("most", [3, 6])
def test_what_may_fail_or_writes_means_the_same(engine, most):
    """Rows that are out of range fail as ever, and what a callee writes its caller sees."""
    table, xs = Table(torch.arange(8.0).reshape(4, 2)), torch.randn(7, 2)
    ns = torch.arange(7).clamp(max=most)
    for _ in range(3):
        assert_matches_loop(
            lambda x, n: looked_up(x, int(n), table), [xs, ns], engine=engine, trace_after=0
        )
