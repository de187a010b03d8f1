"""The programs that learn: gradients, optimizer steps and how far threads stay together.

The plain loop has the draws of the threads, so that gradients are of the same episodes.
"""

from __future__ import annotations

import copy
import importlib
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import autobatch
from autobatch.random.drawing import drawing
from autobatch.random.paths import key_of
from autobatch.random.sources import Thread
from programs.example import Example, seeded

WAYS: dict[str, dict[str, Any]] = {
    "stackless": {},
    "recorded": {"trace_after": 0},
    "program counter": {"engine": "program_counter"},
}
LEARNING = (
    "reinforce",
    "particle_filter",
    "message_passing",
    "early_stopping",
    "mixture_of_experts",
    "bilstm_tagger",
    "adaptive_computation",
    "ode_layer",
)


def example_of(name: str, batch: int = 5) -> Example:
    with seeded(0):
        example: Example = importlib.import_module(f"programs.{name}").example(batch, torch.float64)
    pytree.tree_map_only(Tensor, wants_gradient, example.args)
    return example


def wants_gradient(arg: Tensor) -> None:
    if arg.is_floating_point():
        arg.requires_grad_()


def batched(example: Example, **way: Any) -> Any:
    function = autobatch.vmap(example.function, **example.options(), **way)
    return function(*example.mapped(autobatch.objects, autobatch.ragged))


def alone(example: Example, index: int) -> Any:
    """The plain function on one example, which draws what its thread does."""
    source = nullcontext()
    if example.seed is not None:
        source = drawing(Thread(index, key_of(example.seed)))
    with source:
        return example.function(*example.row(index))


def first(result: Any) -> Tensor:
    """The tensor that is learnt from."""
    found: Tensor = result[0] if isinstance(result, tuple) else result
    return found


def gradients(example: Example, total: Tensor) -> list[Tensor]:
    given = [arg for arg in pytree.tree_leaves(example.args) if isinstance(arg, Tensor)]
    leaves = [*example.function.parameters(), *(arg for arg in given if arg.requires_grad)]
    return list(torch.autograd.grad(total, leaves, materialize_grads=True))


@pytest.mark.sampled(24)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("name", LEARNING)
def test_gradients_are_the_loops(name: str, way: dict[str, Any]) -> None:
    example = example_of(name)
    rows = [first(alone(example, index)).square().sum() for index in range(example.batch)]
    expected = gradients(example, torch.stack(rows).sum())
    assert sum(grad.abs().sum() for grad in expected) > 0
    for _ in range(3 if way else 1):
        found = gradients(example, first(batched(example, **way)).square().sum())
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["adaptive_computation", "reinforce"])
def test_a_few_steps_of_an_optimizer(name: str) -> None:
    """A loss of what comes back, its batch and its draws new in each step."""
    trained = {}
    for way in ("loop", "batch"):
        model: nn.Module = example_of(name).function
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for step in range(3):
            given = importlib.import_module(f"programs.{name}").example(4, torch.float64, seed=step)
            example = Example(model, given.args, given.seed)
            optimizer.zero_grad()
            if way == "batch":
                losses = first(batched(example))
            else:
                losses = torch.stack([first(alone(example, i)) for i in range(4)])
            losses.mean().backward()
            optimizer.step()
        trained[way] = copy.deepcopy(model.state_dict())
    torch.testing.assert_close(trained["batch"], trained["loop"], rtol=1e-6, atol=1e-8)
    start = example_of(name).function.state_dict()
    assert not torch.allclose(*(next(iter(each.values())) for each in (start, trained["loop"])))


def test_thinking_less_is_learnt() -> None:
    """Adaptive computation by its ponder cost: threads take fewer steps after some training."""
    example = example_of("adaptive_computation", 8)
    optimizer = torch.optim.Adam(example.function.parameters(), lr=0.02)
    costs = []
    for _ in range(12):
        _, cost = batched(example)
        costs.append(cost.mean())
        optimizer.zero_grad()
        costs[-1].backward()
        optimizer.step()
    assert costs[-1] < 0.8 * costs[0]


@pytest.mark.parametrize("name", ["reinforce", "early_stopping", "particle_filter"])
def test_as_many_rounds_as_the_longest_thread_needs(name: str) -> None:
    """The part of a round that no thread leaves out runs once for all that are in one."""
    example = example_of(name, 9)
    with torch.no_grad():
        if name == "particle_filter":
            lengths = [len(series) for series in example.args[0]]
        else:
            lengths = [int(alone(example, index)[1]) for index in range(example.batch)]
        with autobatch.counts() as counts:
            batched(example, executor="vmap")
    assert len(set(lengths)) > 2
    threads = counts.threads_by_block
    shared = [n for place, n in counts.by_block.items() if threads[place] == sum(lengths)]
    assert max(lengths) in shared


def test_each_step_of_training_is_a_call_of_the_loss() -> None:
    """The one for the gradient is part of a recording."""
    example = example_of("early_stopping", 9)
    with autobatch.counts() as counts, torch.no_grad():
        _, steps = batched(example)
    assert counts.by_block["Training.loss", 0] == steps.max()


@pytest.mark.parametrize("name", ["mixture_of_experts", "message_passing"])
def test_the_batch_takes_the_steps_of_one_example(name: str) -> None:
    executions = set()
    for batch in (4, 16):
        with autobatch.counts() as counts, torch.no_grad():
            batched(example_of(name, batch))
        executions.add(counts.block_executions)
    assert len(executions) == 1


def test_one_agent_is_replayed_alone() -> None:
    example = example_of("dqn", 4)
    (rates,) = example.args
    values, ages = batched(example)
    again = autobatch.vmap(example.function, seed=example.seed, thread_offset=2)(rates[2:3])
    torch.testing.assert_close(again, (values[2:3], ages[2:3]))
