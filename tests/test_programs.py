"""Every program: known answers for one example, and the batch against the plain loop."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import autobatch
from programs import PROGRAMS, merge_sort
from programs.ackermann import ackermann
from programs.adaptive_computation import AdaptiveComputation
from programs.child_sum_treelstm import ChildSumTreeLSTM, Node
from programs.collatz import collatz
from programs.example import Example
from programs.fibonacci import fibonacci
from programs.fixed_point import FixedPoint
from programs.gcd import gcd
from programs.greedy_decoding import GreedyDecoder
from programs.halting_transformer import HaltingTransformer
from programs.lstm import VariableLengthLSTM
from programs.mandelbrot import mandelbrot
from programs.negamax import negamax
from programs.quicksort import quicksort
from programs.runge_kutta import runge_kutta
from programs.shift_reduce import ShiftReduce
from programs.tail_sampler import tail_sampler
from programs.treelstm import Tree, TreeLSTM
from tests.expected import check
from tests.oracle import CONFIGURATIONS, Options, assert_matches_loop, run_loop
from tests.sweeps import case

CASES = [
    pytest.param(name, dtype, id=f"{name}-{str(dtype).removeprefix('torch.')}")
    for name in PROGRAMS
    for dtype in importlib.import_module(f"programs.{name}").DTYPES
]
RECORDED = {"executor": "traced", "trace_after": 0}
"""The way in which each program runs in all its dtypes by default."""
# Loops that end at a tolerance, and steps chosen by an error estimate, amplify rounding.
TOLERANCES = {"fixed_point": 2e-3, "runge_kutta": 2e-3}


def make_example(name: str, batch: int, dtype: torch.dtype) -> Example:
    example: Example = importlib.import_module(f"programs.{name}").example(batch, dtype)
    return example


def check_batch(name: str, dtype: torch.dtype, sizes: tuple[int, ...], **options: Any) -> None:
    example = make_example(name, max(sizes), dtype)
    rough = dtype is torch.float32
    atol = TOLERANCES.get(name, 1e-4 if rough else 1e-7)
    with torch.no_grad():
        assert_matches_loop(
            example.function,
            example.mapped(autobatch.objects, autobatch.ragged),
            batch_sizes=sizes,
            rtol=1e-4 if rough else 1e-7,
            atol=atol,
            max_steps=100_000,
            **example.options(),
            **options,
        )


def in_every_way() -> Iterator[Any]:
    """By default each program in every way and in every dtype, but one dtype for most ways."""
    for name in PROGRAMS:
        dtypes = importlib.import_module(f"programs.{name}").DTYPES
        for place, dtype in enumerate(dtypes):
            for way, options in enumerate(CONFIGURATIONS):
                default = way % len(dtypes) == place or options == RECORDED
                parts = (name, str(dtype).removeprefix("torch."), *map(str, options.values()))
                yield case(name, dtype, options, name="-".join(parts), default=default)


@pytest.mark.sampled(48)
@pytest.mark.parametrize(("name", "dtype", "options"), in_every_way())
def test_batch_equals_the_plain_loop(name: str, dtype: torch.dtype, options: Options) -> None:
    check_batch(name, dtype, (1, 7), configurations=[options])


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", PROGRAMS)
def test_chunks_do_not_show(name: str) -> None:
    dtype = importlib.import_module(f"programs.{name}").DTYPES[0]
    check_batch(name, dtype, (7,), configurations=[{}], chunk_sizes=(3,))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_larger_batches_equal_the_plain_loop(name: str, dtype: torch.dtype) -> None:
    check_batch(name, dtype, (2, 64), chunk_sizes=(None, 10))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["collatz", "gcd", "fibonacci", "ackermann", "mandelbrot"])
def test_python_numbers(name: str) -> None:
    dtype = {"mandelbrot": torch.float64}.get(name, torch.int64)
    check_batch(name, dtype, (1, 7), scalars="python")


@pytest.mark.gpu
@pytest.mark.parametrize("name", PROGRAMS)
def test_on_cuda(name: str) -> None:
    dtype = importlib.import_module(f"programs.{name}").DTYPES[-1]
    example = make_example(name, 7, dtype).to("cuda")
    function, args = example.function, example.mapped(autobatch.objects, autobatch.ragged)
    with torch.no_grad(), torch.device("cuda"):  # where programs make tensors of their own
        dims = (0,) * len(args)
        assert run_loop(function, args, {}, dims, seed=example.seed).error is None
        assert_matches_loop(function, args, rtol=1e-4, atol=2e-3, **example.options())


def test_gradients_flow_through_a_batch() -> None:
    example = make_example("fixed_point", 5, torch.float64)
    (x,) = example.args
    assert isinstance(x, torch.Tensor)
    parameter = example.function.W
    torch.stack([example.function(row) for row in x]).square().sum().backward()
    expected, parameter.grad = parameter.grad, None
    autobatch.vmap(example.function)(x).square().sum().backward()
    torch.testing.assert_close(parameter.grad, expected, rtol=1e-6, atol=1e-9)


# Known answers, one example at a time: the programs are plain Python.


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_examples_are_seeded_and_leave_the_generator_alone(name: str) -> None:
    state = torch.get_rng_state()
    first = make_example(name, 3, importlib.import_module(f"programs.{name}").DTYPES[0])
    assert first.batch == 3
    assert torch.equal(torch.get_rng_state(), state)
    second = make_example(name, 3, importlib.import_module(f"programs.{name}").DTYPES[0])
    for one, other in zip(first.args, second.args, strict=True):
        check(one, other, 0.0, 0.0)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", PROGRAMS)
def test_examples_part_from_each_other(name: str) -> None:
    """A batch whose threads all did the same would test little."""
    example = make_example(name, 12, importlib.import_module(f"programs.{name}").DTYPES[0])
    with torch.no_grad():
        results = {repr(example.function(*example.row(i))) for i in range(example.batch)}
    assert len(results) > 3


def test_numbers() -> None:
    assert [collatz(torch.tensor(n)) for n in (1, 7, 27)] == [0, 16, 111]
    assert gcd(torch.tensor(48), torch.tensor(36)) == 12
    assert [fibonacci(n) for n in range(1, 9)] == [1, 1, 2, 3, 5, 8, 13, 21]
    assert ackermann(torch.tensor(2), torch.tensor(3)) == 9
    assert mandelbrot(torch.tensor(0.0), torch.tensor(0.0), limit=50) == 50
    assert mandelbrot(torch.tensor(2.0), torch.tensor(2.0)) == 0


def test_fixed_point_is_one() -> None:
    layer = FixedPoint(8, 8, tolerance=1e-6).double()
    x = torch.randn(8, dtype=torch.float64)
    h = layer(x)
    assert torch.allclose(torch.tanh(layer.W @ h + layer.U @ x + layer.b), h, atol=1e-5)


def test_lstm_stops_at_its_length() -> None:
    model = VariableLengthLSTM(3, 4)
    whole = nn.LSTM(3, 4)
    cell = model.cell
    for name, parameter in cell.named_parameters():
        getattr(whole, f"{name}_l0").data.copy_(parameter.data)
    x = torch.randn(9, 3)
    torch.testing.assert_close(model(x, torch.tensor(5)), whole(x[:5])[0][-1])


def test_treelstm_of_a_leaf_forgets_nothing() -> None:
    model = TreeLSTM(labels=4, hidden=3)
    new, _, _, out, update = (model.embedding.weight[2] + model.gates.bias).chunk(5)
    c = new.sigmoid() * update.tanh()
    h, cell = model(Tree(2))
    torch.testing.assert_close(cell, c)
    torch.testing.assert_close(h, out.sigmoid() * c.tanh())


def test_runge_kutta_follows_the_circle() -> None:
    """With mu = 0 Van der Pol's equation is the harmonic oscillator."""
    y = torch.tensor([1.0, 0.0], dtype=torch.float64)
    end = runge_kutta(y, torch.zeros((), dtype=torch.float64), end=2.0, tolerance=1e-7)
    expected = torch.tensor([math.cos(2.0), -math.sin(2.0)], dtype=torch.float64)
    torch.testing.assert_close(end, expected, rtol=0.0, atol=1e-5)


def test_greedy_decoder_pads_after_the_end() -> None:
    model = GreedyDecoder(limit=6)
    model.scores.weight.data.zero_()
    model.scores.bias.data.zero_()
    model.scores.bias.data[3] = 1.0
    tokens, length = model(torch.zeros(32))
    assert tokens.tolist() == [3] * 6 and length == 6
    model.scores.bias.data[0] = 2.0
    tokens, length = model(torch.zeros(32))
    assert tokens.tolist() == [0] * 6 and length == 0


def test_adaptive_computation_ponders_once_when_it_halts_at_once() -> None:
    model = AdaptiveComputation(inputs=2, hidden=4)
    model.halt.bias.data.fill_(50.0)
    _, cost = model(torch.randn(3, 2))
    torch.testing.assert_close(cost, torch.tensor(3 * 2.0))


def test_shift_reduce_without_early_reductions_is_a_right_fold() -> None:
    model = ShiftReduce(hidden=4)
    model.score.bias.data.fill_(-50.0)
    words = torch.randn(3, 4)
    vector, early = model(words)
    inner = torch.tanh(model.compose(torch.cat((words[1], words[2]))))
    torch.testing.assert_close(vector, torch.tanh(model.compose(torch.cat((words[0], inner)))))
    assert early == 0


def test_halting_transformer_halts() -> None:
    model = HaltingTransformer().eval()
    model.halt.bias.data.fill_(50.0)
    x = torch.randn(5, 16)
    encoded, depth = model(x)
    assert depth == 1
    torch.testing.assert_close(encoded, model.layer(x))


def test_child_sum_of_one_child() -> None:
    """Equations 2 to 8 by hand."""
    model = ChildSumTreeLSTM(labels=4, hidden=3)
    h, c = model(Node(1))
    new, out, update, keep = model.embedding.weight[2].chunk(4)
    more_new, more_out, more_update = model.gates(h).chunk(3)
    kept = (keep + model.forget(h)).sigmoid() * c
    cell = (new + more_new).sigmoid() * (update + more_update).tanh() + kept
    state = (out + more_out).sigmoid() * cell.tanh()
    torch.testing.assert_close(model(Node(2, [Node(1)])), (state, cell))


def test_child_sum_does_not_see_the_order_of_children() -> None:
    model = ChildSumTreeLSTM(labels=4, hidden=3)
    children = [Node(1), Node(2, [Node(3), Node(0)]), Node(3)]
    torch.testing.assert_close(model(Node(0, children)), model(Node(0, children[::-1])))


@pytest.mark.parametrize("sort", [merge_sort.merge_sort, quicksort], ids=["merge", "quick"])
def test_sorting(sort: Any) -> None:
    for size in range(9):
        values = torch.randint(0, 5, (size,))
        given = list(values) if sort is merge_sort.merge_sort else values
        assert [int(x) for x in sort(given)] == values.sort().values.tolist()


def test_negamax_knows_tic_tac_toe() -> None:
    lost = torch.tensor([-1, -1, -1, 1, 1, 0, 0, 0, 0])
    wins = torch.tensor([1, 1, 0, -1, -1, 0, 0, 0, 0])
    full = torch.tensor([1, -1, 1, 1, -1, -1, -1, 1, 1])
    assert negamax(lost) == (-1, 1)
    assert negamax(wins)[0] == 1
    assert negamax(full) == (0, 1)
    last = torch.where(torch.arange(9) == 8, 0, full)
    assert negamax(last) == (0, 2)


def test_the_trials_of_the_tail_sampler_are_geometric() -> None:
    """Their mean is 1/p and the share of one trial p, and draws are normal beyond the bound."""
    bound, threads = 1.0, 4096
    p = 0.5 * math.erfc(bound / math.sqrt(2.0))
    values, trials = autobatch.vmap(tail_sampler, in_dims=(0, None))(
        torch.arange(1, threads + 1), bound
    )
    counts = trials.double()
    assert abs(counts.mean() - 1 / p) < 4 * math.sqrt((1 - p) / p**2 / threads)
    for n in range(1, 8):
        share = (counts <= n).double().mean()
        expected = 1 - (1 - p) ** n
        assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / threads)
    mean = math.exp(-(bound**2) / 2) / math.sqrt(2 * math.pi) / p
    variance = 1 + bound * mean - mean**2
    assert values.min() > bound
    assert abs(values.mean() - mean) < 4 * math.sqrt(variance / threads)


# How many steps a batch takes: fork-join calls make it follow the depth.


def steps(func: Any, *args: Any, fork: str) -> int:
    with torch.no_grad(), autobatch.counts() as counts:
        autobatch.vmap(func, fork=fork, plain="never")(*args)
    return counts.block_executions


def full_node(depth: int, children: int) -> Node:
    return Node(depth, [full_node(depth - 1, children) for _ in range(children if depth else 0)])


@pytest.mark.parametrize("children", [1, 2, 3])
def test_the_steps_of_a_child_sum_treelstm(children: int) -> None:
    model = ChildSumTreeLSTM(labels=8, hidden=4)
    for depth in range(5):
        trees = autobatch.objects([full_node(depth, children)] * 5)
        assert steps(model, trees, fork="auto") == 4 + (4 + 2 * children) * depth
        nodes = sum(children**level for level in range(depth + 1))
        assert steps(model, trees, fork="off") == 3 * nodes + 3 * (nodes - 1)


def test_the_steps_of_merge_sort_follow_its_depth() -> None:
    """Calls on halves of one length: one more level for twice the numbers."""

    def frames(size: int, fork: str) -> int:
        values = torch.arange(size).expand(4, size)
        with autobatch.counts() as counts:
            batched = autobatch.vmap(merge_sort.sort_first, fork=fork, plain="never")
            batched(values, torch.full((4,), size))
        return counts.by_block["merge_sort", 0]

    assert [frames(size, "auto") for size in (1, 2, 4, 8, 16)] == [1, 2, 3, 4, 5]
    assert [frames(size, "off") for size in (1, 2, 4, 8, 16)] == [1, 3, 7, 15, 31]


def test_the_steps_of_quicksort_follow_its_depth() -> None:
    """A pivot in the middle of numbers in order: as deep as they can be halved."""

    def frames(size: int, fork: str) -> int:
        values = torch.arange(size).expand(4, size)
        with autobatch.counts() as counts:
            autobatch.vmap(quicksort, fork=fork)(values)
        return counts.by_block["quicksort", 0]

    assert [frames(size, "auto") for size in (1, 3, 7, 15)] == [1, 2, 3, 4]
    assert [frames(size, "off") for size in (1, 3, 7, 15)] == [1, 3, 7, 15]


def test_the_frames_of_negamax_follow_the_empty_cells() -> None:
    """No line is ever full here, so the tree is as deep as there are empty cells."""
    board = torch.tensor([1, -1, 1, 1, -1, -1, -1, 1, 1])
    for empty in range(4):
        boards = torch.where(torch.arange(9) < 9 - empty, board, 0).expand(3, 9)
        frames = {}
        for fork in ("auto", "off"):
            with autobatch.counts() as counts:
                _, sizes = autobatch.vmap(negamax, fork=fork)(boards)
            frames[fork] = counts.by_block["negamax", 0]
        assert frames == {"auto": empty + 1, "off": sizes[0]}
