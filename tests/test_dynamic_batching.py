"""Dynamic batching, the competitor: right results, and exactly the batches that it should have."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from benchmarks.counting import Counting
from benchmarks.dynamic_batching import STRATEGIES, DynamicBatching, Unsupported
from benchmarks.dynamic_batching.buffers import Buffer, column
from benchmarks.dynamic_batching.schedule import Pending, by_agenda, by_depth
from benchmarks.systems import total
from programs.example import Example, seeded

pytest.importorskip("greenlet")
EACH = pytest.mark.parametrize("strategy", STRATEGIES)
# Without collatz and runge_kutta, which take long, and greedy_decoding, which writes in place.
MATCHED = (
    "gcd",
    "fibonacci",
    "ackermann",
    "fixed_point",
    "lstm",
    "treelstm",
    "adaptive_computation",
    "shift_reduce",
    "halting_transformer",
)


def assert_like_the_loop(function: Callable[..., Any], *args: Any, strategy: str) -> None:
    actual = DynamicBatching(function, strategy)(*args)
    for i in range(len(args[0])):
        expected = function(*(arg[i] for arg in args))
        row = tree_map(lambda leaf, i=i: leaf[i], actual)
        for own, other in zip(tree_leaves(row), tree_leaves(expected), strict=True):
            torch.testing.assert_close(own, torch.as_tensor(other), rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(4)
@EACH
@pytest.mark.parametrize("name", MATCHED)
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@torch.no_grad()
def test_programs_match_the_loop(name: str, strategy: str) -> None:
    example: Example = importlib.import_module(f"programs.{name}").example(4)
    assert_like_the_loop(example.function, *example.args, strategy=strategy)


def operations(x: Tensor, n: Tensor) -> Tensor:
    """What has rules of its own, what runs under vmap, and mixed shapes and dtypes."""
    weight = WEIGHT
    y = torch.cat((weight @ x, x @ weight, x[1:3], weight[2], 1.0 - x[None, 0]))
    first, second = y[:8].chunk(2)
    z = torch.stack((first, second)).softmax(1)[0] * n + y.sum() - y.mean(0)
    z = z + torch.outer(x, x).diagonal() * torch.linalg.vector_norm(x) + (x * weight[-1]).sum()
    return torch.where(z > 0, z, x[n] * z) + x.flip(0) / torch.tensor(3.0)


WEIGHT = torch.linspace(-1, 1, 16).reshape(4, 4)


@EACH
def test_operations_match_the_loop(strategy: str) -> None:
    with seeded(0):
        x = torch.randn(5, 4)
    assert_like_the_loop(operations, x, torch.tensor([0, 1, 3, 2, 1]), strategy=strategy)


@EACH
@pytest.mark.parametrize("name", ["fixed_point", "lstm", "treelstm"])
def test_gradients_match_the_loop(name: str, strategy: str) -> None:
    example: Example = importlib.import_module(f"programs.{name}").example(5)
    model: Any = example.function
    parameters = list(model.parameters())
    batched = DynamicBatching(model, strategy)(*example.args)
    actual = torch.autograd.grad(total(batched), parameters)
    loop = [total(tree_map(lambda leaf: leaf[None], model(*example.row(i)))) for i in range(5)]
    expected = torch.autograd.grad(torch.stack(loop).sum(), parameters)
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3)


def test_gradients_of_inputs_flow_through_aliases_and_gathers() -> None:
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)

    def function(row: Tensor, n: Tensor) -> Tensor:
        y = row.exp()
        for _ in range(n):
            y = y * row
        return y + y[0]

    batched = DynamicBatching(function)
    n = torch.tensor([2, 0, 1])
    assert torch.autograd.gradcheck(lambda x: batched(x, n), (x,))


def test_gradients_of_a_row_that_several_nodes_take() -> None:
    def function(row: Tensor) -> Tensor:
        y = row.exp()
        return y * row[0] + y * row[1]

    x = torch.tensor([[0.5, -1.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(DynamicBatching(function), (x,))


# Batches, exactly.


def chain(x: Tensor, n: Tensor) -> Tensor:
    for _ in range(n):
        x = x.tanh()
    return x.exp()


LENGTHS = torch.tensor([1, 2, 3])


def test_the_agenda_waits_for_what_is_deeper_on_average() -> None:
    # The paper's case: three tanh and one exp; by depth the exps of each length are apart.
    batched = DynamicBatching(chain, "agenda")
    batched(torch.ones(3, 2), LENGTHS)
    assert (batched.phases.nodes, batched.phases.batches, batched.phases.flushes) == (9, 4, 1)
    batched = DynamicBatching(chain, "depth")
    batched(torch.ones(3, 2), LENGTHS)
    assert (batched.phases.nodes, batched.phases.batches, batched.phases.flushes) == (9, 6, 1)


def launches_of(function: Callable[..., Any], *args: Any) -> int:
    batched = DynamicBatching(function)
    batched(*args)
    with Counting() as found, torch.no_grad():
        batched(*args)
    return found.launches


def test_rows_side_by_side_are_aliased() -> None:
    weight = torch.ones(2, 2)
    # A product, a sum, a tanh, and no copy.
    assert launches_of(lambda x: (weight @ x + x).tanh(), torch.ones(4, 2)) == 3


def test_rows_apart_are_gathered() -> None:
    # tanh of three rows; then rows 1 and 2, side by side; then row 2; exp of one row of each of
    # the three results, copied to one place.
    assert launches_of(chain, torch.ones(3, 2), LENGTHS) == 3 + 1 + 1
    # The middle row leaves first, so the two others are gathered; the results are three runs of
    # rows, and go back to the order of the examples by a gather.
    assert launches_of(chain, torch.ones(3, 2), torch.tensor([2, 1, 2])) == 2 + 1 + 1 + 1 + 1


def test_nodes_run_in_the_order_of_their_arguments() -> None:
    def function(x: Tensor) -> Tensor:
        first, second = x[0].exp(), x[1].exp()
        last = second.tanh()
        return torch.stack((last, first.tanh()))

    # A lookup, exp, tanh, stack: nothing is gathered to turn the two rows round.
    assert launches_of(function, torch.rand(1, 2, 3)) == 4


def test_weights_are_shared_and_their_rows_looked_up_together() -> None:
    table = nn.Parameter(torch.arange(8.0).reshape(4, 2))
    batched = DynamicBatching(lambda i: table[i.item()] + table.t()[0][:2])
    with torch.no_grad():
        result = batched(torch.tensor([3, 0, -1]))
    assert result.tolist() == [[6.0, 9.0], [0.0, 3.0], [6.0, 9.0]]
    # For each example two lookups, a slice and a sum; the transpose is no node.
    assert (batched.phases.nodes, batched.phases.batches) == (12, 4)


def test_examples_that_wait_for_a_value_are_flushed_together() -> None:
    def halve(x: Tensor) -> Tensor:
        while x.sum() > 1:
            x = x / 2
        return x

    batched = DynamicBatching(halve)
    result = batched(torch.tensor([[8.0], [1.0], [2.0]]))
    assert result.flatten().tolist() == [1.0, 1.0, 1.0]
    # 4 sums for the first, 1 and 2 for the others, each with its comparison; 3 and 1 halvings.
    assert (batched.phases.nodes, batched.phases.flushes) == (14 + 4, 4)
    assert batched.phases.batches == 2 + 3 * 3


def test_a_shape_that_depends_on_data_runs_for_its_example() -> None:
    def positive(x: Tensor) -> Tensor:
        return (x * 2)[(x > 0).nonzero().squeeze(1)].sum()

    x = torch.tensor([[1.0, -1.0, 3.0], [-1.0, -1.0, 5.0]])
    assert DynamicBatching(positive)(x).tolist() == [8.0, 10.0]


def test_slices_by_an_examples_own_numbers() -> None:
    def cropped(x: Tensor, i: Tensor) -> Tensor:
        return x[:, i : i + 2] * 2

    x, i = torch.randn(6, 3, 5), torch.tensor([0, 3, 1, 0, 2, 1])
    found = DynamicBatching(cropped, "depth")(x, i)
    assert torch.equal(found, torch.stack([cropped(x[k], i[k]) for k in range(6)]))


def test_waiting_inside_a_torch_call_leaves_the_others_lazy() -> None:
    def function(x: Tensor) -> Tensor:
        found = torch.nonzero(x > 0)  # waits within the call
        return (x + len(found)).exp()

    batched = DynamicBatching(function)
    x = torch.tensor([[1.0, -1.0], [1.0, 2.0], [-1.0, -1.0]])
    torch.testing.assert_close(batched(x), torch.stack([function(row) for row in x]))
    # x > 0 for all, x + 0, x + 1 and x + 2 apart, exp for all.
    assert (batched.phases.nodes, batched.phases.batches) == (9, 5)


def test_weights_that_change_are_seen() -> None:
    weight = nn.Parameter(torch.eye(2))
    batched = DynamicBatching(lambda x: weight.t() @ x)
    x = torch.ones(3, 2)
    with torch.no_grad():
        assert batched(x).sum() == 6
        weight.mul_(2)
        assert batched(x).sum() == 12


def test_an_exception_is_the_examples_own() -> None:
    def function(x: Tensor) -> Tensor:
        if x.exp() > 2:
            raise ValueError(f"large: {x.item()}")
        return x

    with pytest.raises(ValueError, match=r"large: 3\.0"):
        DynamicBatching(function)(torch.tensor([0.0, 3.0]))
    assert torch.ones(2).sum() == 2  # no mode is left behind


@pytest.mark.parametrize(
    "write", [lambda x: x.add_(1), lambda x: x.__setitem__(0, 1.0), lambda x: torch.exp(x, out=x)]
)
def test_writes_in_place_are_refused(write: Callable[[Tensor], Any]) -> None:
    with pytest.raises(Unsupported, match="in place"):
        DynamicBatching(write)(torch.ones(2, 2))


# Parts.


def test_strategies_run_arguments_first_and_every_node_once() -> None:
    draw = np.random.default_rng(0)
    n = 200
    consumer = np.repeat(np.arange(1, n), 2)
    producer = np.array([draw.integers(c) for c in consumer])
    depth = np.zeros(n, np.int64)
    for p, c in zip(producer, consumer, strict=True):
        depth[c] = max(depth[c], depth[p] + 1)
    signature = draw.integers(0, 5, n)
    pending = Pending(signature, depth, producer, consumer, np.zeros(5, bool))
    for strategy in (by_agenda, by_depth):
        batches = strategy(pending)
        step = np.empty(n, np.int64)
        for number, batch in enumerate(batches):
            assert len(set(signature[batch])) == 1
            step[batch] = number
        assert sorted(np.concatenate(batches)) == list(range(n))
        assert (step[producer] < step[consumer]).all()


@pytest.mark.parametrize(
    ("where", "rows", "pieces", "reordered"),
    [
        ([1, 1, 1], [0, 1, 2], 1, False),
        ([1, 1], [1, 2], 1, False),
        ([1, 1], [2, 2], 1, False),
        ([1, 1, 1], [2, 0, 1], 1, False),
        ([0, 0, 1, 1], [0, 1, 1, 2], 2, False),
        ([0, 1, 0, 1, 0, 1, 0, 1], [0, 0, 0, 0, 1, 1, 1, 1], 2, True),
    ],
)
def test_a_column_has_its_values(
    where: list[int], rows: list[int], pieces: int, reordered: bool
) -> None:
    buffers = [Buffer(torch.arange(4.0).reshape(2, 2)), Buffer(torch.arange(6.0).reshape(3, 2))]
    found = column(np.array(where), np.array(rows))
    assert (len(found.pieces), found.order is not None) == (pieces, reordered)
    expected = torch.stack([buffers[w].data[r] for w, r in zip(where, rows, strict=True)])
    assert found.tensor(buffers).equal(expected)
