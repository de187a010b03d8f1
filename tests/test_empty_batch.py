"""Batches of size 0: empty results where types follow without data, else an error; both engines."""

from __future__ import annotations

import pytest
import torch

import autobatch
from autobatch import EmptyBatchError

ENGINES = ("stackless", "sequential")


def straight(x):
    return {"double": x * 2, "pair": (x.sum(), 3)}


def looped(x):
    for _ in range(3):
        x = helper(x)
    return x


def helper(x):
    return torch.relu(x) @ torch.ones(3, 4) @ torch.ones(4, 3)


def branched(x):
    return x if x.sum() > 0 else -x


def raising(x):
    raise ValueError("no thread comes here")


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x)


def outcome(func, engine, chunk_size):
    try:
        return autobatch.vmap(func, engine=engine, chunk_size=chunk_size)(torch.empty(0, 3))
    except Exception as error:
        return error


@pytest.mark.parametrize("chunk_size", [None, 2])
@pytest.mark.parametrize("func", [straight, looped, Layer(), torch.sin, lambda x: (x, "text")])
def test_empty_results_of_both_engines(func, chunk_size):
    stackless, sequential = (outcome(func, engine, chunk_size) for engine in ENGINES)
    leaves, spec = torch.utils._pytree.tree_flatten(stackless)
    others, other_spec = torch.utils._pytree.tree_flatten(sequential)
    assert leaves and spec == other_spec
    for leaf, other in zip(leaves, others, strict=True):
        assert isinstance(leaf, torch.Tensor) and leaf.shape[0] == 0
        assert (leaf.shape, leaf.dtype) == (other.shape, other.dtype)
    like, _ = torch.utils._pytree.tree_flatten(func(torch.ones(3)))
    event = [leaf for leaf in like if isinstance(leaf, torch.Tensor)]
    assert [leaf.shape[1:] for leaf in leaves][: len(event)] == [leaf.shape for leaf in event]


class Of:
    """An object whose comparison is a program."""

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return type(other) is Of and self.x.shape == other.x.shape


def forked(x):
    return sum(helper(x * i).sum() for i in range(3)), [helper(x + i) for i in range(2)]


def compared(x):
    return Of(x) == Of(x + 1), Of(x) != Of(x[:2]), x


def recursive(x, depth=3):
    return x if depth == 0 else recursive(x + 1, depth - 1) * recursive(x - 1, depth - 1)


@pytest.mark.parametrize("engine", [*ENGINES, "program_counter"])
@pytest.mark.parametrize("func", [forked, compared, recursive])
def test_calls_of_no_threads_are_of_the_same_structure(func, engine):
    for xs in (torch.empty(0, 3), torch.ones(2, 3), torch.empty(0, 3)):
        found, spec = torch.utils._pytree.tree_flatten(autobatch.vmap(func, engine=engine)(xs))
        _, wanted = torch.utils._pytree.tree_flatten(func(torch.ones(3)))
        assert spec == wanted
        assert all(isinstance(leaf, torch.Tensor) and len(leaf) == len(xs) for leaf in found)


@pytest.mark.parametrize("func", [branched, raising])
def test_what_needs_data_is_said_by_both_engines(func):
    stackless, sequential = (outcome(func, engine, None) for engine in ENGINES)
    assert type(stackless) is type(sequential) is EmptyBatchError
    assert str(stackless) == str(sequential) and "batch of size 0" in str(stackless)
    assert stackless.span.file == __file__


def test_a_step_without_threads():
    for engine in ENGINES:
        steps = []
        run = autobatch.vmap(straight, engine=engine, listeners=steps.append)
        run(torch.empty(0, 3))
        assert [(len(step.threads), len(step.mask)) for step in steps] == [(0, 0)]


SHARED = torch.ones(7, 3)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("trace_after", [0, 8])
@pytest.mark.parametrize(
    "func",
    [
        lambda i: SHARED * i,
        lambda i: i - SHARED,
        lambda i: torch.where(i > 0, SHARED, i),
        lambda i: (SHARED + i).sum(0) @ SHARED.T,
        lambda i: torch.stack([i, i * 2]) + SHARED[:2, :2].double(),
    ],
)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_a_tensor_that_all_share_meets_a_number_of_no_thread(func, engine, trace_after, dtype):
    like = func(torch.ones((), dtype=dtype))
    for _ in range(2):
        made = autobatch.vmap(func, engine=engine, trace_after=trace_after)(
            torch.empty(0, dtype=dtype)
        )
        assert (made.shape, made.dtype) == ((0, *like.shape), like.dtype)


ROWS = torch.arange(24.0).reshape(3, 4, 2)
NONE = torch.zeros(3, dtype=torch.int64)
FEW = torch.ones(2, 3)
NO_ROUNDS = {
    "pfor": lambda n, x: autobatch.pfor(lambda i: x[0] * i, 0),
    "pfor of each thread's own": lambda n, x: autobatch.pfor(lambda i: x[0] * i, n),
    "map_fn": lambda n, x: autobatch.map_fn(lambda row: row * 2, x[:0]),
    "map_fn of each thread's own": lambda n, x: autobatch.map_fn(lambda row: row * 2, x[:n]),
    "vmap": lambda n, x: autobatch.vmap(lambda row: helper(row.sum() * torch.ones(3)))(x[:0]),
    "torch's": lambda n, x: torch.vmap(lambda row: (row * 2).sum())(x[:0]),
    "forked calls": lambda n, x: autobatch.pfor(lambda i: sum(helper(r + i) for r in FEW), 0),
    "comparisons": lambda n, x: autobatch.pfor(lambda i: (Of(x) == Of(x), x[0]), n)[1],
    "within another": lambda n, x: autobatch.pfor(
        lambda i: autobatch.map_fn(lambda row: row * x[0, 0], x[:2]), n
    ),
}


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("name", NO_ROUNDS)
def test_no_round_in_any_thread(name, engine):
    """Of a shape where that follows without data, as for a batch of size 0."""
    func = NO_ROUNDS[name]
    found = autobatch.vmap(func, scalars="python", ragged_out="list", engine=engine)(NONE, ROWS)
    for x, part in zip(ROWS, found, strict=True):
        torch.testing.assert_close(part, func(0, x))


def test_no_round_on_the_device_of_the_operands():
    made = autobatch.pfor(lambda i: ROWS[0, 0] * i, 0)
    assert (made.device.type, made.dtype, made.shape) == ("cpu", torch.float32, (0, 2))


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_a_branch_that_no_round_decides(engine):
    def none(x):
        return autobatch.map_fn(branched, x[:0])

    with pytest.raises(EmptyBatchError, match="has no threads to decide"):
        autobatch.vmap(none, engine=engine)(ROWS)


@pytest.mark.parametrize("engine", ["stackless", "sequential", "program_counter"])
@pytest.mark.parametrize("padded", [False, True])
def test_no_ragged_row(engine, padded):
    none = torch.zeros(0, 4, 2), torch.zeros(0, dtype=torch.int64)
    given = autobatch.ragged(*none) if padded else autobatch.ragged([])

    def of_rows(x):
        (first,) = x.chunk(1)
        return x * 2, x.sum(), first + x[:1], len(x)

    out = autobatch.vmap(of_rows, engine=engine, ragged_out=("list", None, "list", None))(given)
    assert (out[0], out[2]) == ([], [])
    assert (out[1].shape, out[3].shape) == ((0,), (0,))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_list_of_no_numbers_is_a_batch_of_none(engine):
    of = autobatch.function(lambda x, more=None: x + 1, engine=engine)
    for result in (of.batch([]), of.batch([], more=()), of.batch(torch.ones(0).double(), more=[])):
        assert result.dtype is torch.float64 and result.shape == (0,)
    whole = autobatch.function(lambda x, more: x + len(more), engine=engine)
    assert whole.batch([1, 2], []).tolist() == [1, 2]
    with pytest.raises(EmptyBatchError):
        autobatch.function(branched, engine=engine).batch([])
