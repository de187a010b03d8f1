"""Every program: known answers for one example, and the batch against the plain loop."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest
import torch
from torch import nn

import autobatch
from programs import PROGRAMS
from programs.ackermann import ackermann
from programs.adaptive_computation import AdaptiveComputation
from programs.collatz import collatz
from programs.example import Example
from programs.fibonacci import fibonacci
from programs.fixed_point import FixedPoint
from programs.gcd import gcd
from programs.greedy_decoding import GreedyDecoder
from programs.halting_transformer import HaltingTransformer
from programs.lstm import VariableLengthLSTM
from programs.mandelbrot import mandelbrot
from programs.runge_kutta import runge_kutta
from programs.shift_reduce import ShiftReduce
from programs.treelstm import Tree, TreeLSTM
from tests.oracle import CONFIGURATIONS, Options, assert_matches_loop

CASES = [
    pytest.param(name, dtype, id=f"{name}-{str(dtype).removeprefix('torch.')}")
    for name in PROGRAMS
    for dtype in importlib.import_module(f"programs.{name}").DTYPES
]
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
            example.mapped(autobatch.objects),
            batch_sizes=sizes,
            rtol=1e-4 if rough else 1e-7,
            atol=atol,
            max_steps=100_000,
            **options,
        )


@pytest.mark.parametrize(
    "options", CONFIGURATIONS, ids=lambda options: "-".join(map(str, options.values()))
)
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_batch_equals_the_plain_loop(name: str, dtype: torch.dtype, options: Options) -> None:
    check_batch(name, dtype, (1, 7), configurations=[options])


@pytest.mark.parametrize("name", PROGRAMS)
def test_chunks_do_not_show(name: str) -> None:
    dtype = importlib.import_module(f"programs.{name}").DTYPES[0]
    check_batch(name, dtype, (7,), configurations=[{}], chunk_sizes=(3,))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_larger_batches_equal_the_plain_loop(name: str, dtype: torch.dtype) -> None:
    check_batch(name, dtype, (2, 64), chunk_sizes=(None, 10))


@pytest.mark.parametrize("name", ["collatz", "gcd", "fibonacci", "ackermann", "mandelbrot"])
def test_python_numbers(name: str) -> None:
    dtype = {"mandelbrot": torch.float64}.get(name, torch.int64)
    check_batch(name, dtype, (1, 7), scalars="python")


@pytest.mark.gpu
@pytest.mark.parametrize("name", PROGRAMS)
def test_on_cuda(name: str) -> None:
    dtype = importlib.import_module(f"programs.{name}").DTYPES[-1]
    example = make_example(name, 7, dtype)
    function = example.function
    if isinstance(function, nn.Module):
        function = function.cuda()
    args = tuple(
        autobatch.objects(arg) if isinstance(arg, list) else arg.cuda() for arg in example.args
    )
    with torch.no_grad():
        assert_matches_loop(function, args, rtol=1e-4, atol=2e-3)


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


@pytest.mark.parametrize("name", PROGRAMS)
def test_examples_are_seeded_and_leave_the_generator_alone(name: str) -> None:
    state = torch.get_rng_state()
    first = make_example(name, 3, importlib.import_module(f"programs.{name}").DTYPES[0])
    assert first.batch == 3
    assert torch.equal(torch.get_rng_state(), state)
    second = make_example(name, 3, importlib.import_module(f"programs.{name}").DTYPES[0])
    for one, other in zip(first.args, second.args, strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


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
