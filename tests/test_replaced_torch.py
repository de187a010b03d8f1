"""Functions of torch's in whose place others are put between two calls, and put back.

What runs is what the loop runs: what has been recorded or compiled under other functions is not.
"""

from __future__ import annotations

import contextlib
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import autobatch
from autobatch.batching import replaced
from autobatch.tags import namespace_of, tags_of

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
WAYS = [
    *(("stackless", name) for name in ("vmap", "traced", "compiled", "auto", "cudagraph")),
    *(("program_counter", name) for name in ("vmap", "traced", "compiled")),
    ("sequential", "traced"),
]
ways = pytest.mark.parametrize(("engine", "executor"), WAYS)
FEW = {("stackless", "traced"), ("program_counter", "compiled")}
slow_ways = pytest.mark.parametrize(
    ("engine", "executor"),
    [pytest.param(*way, marks=[] if way in FEW else pytest.mark.slow) for way in WAYS],
)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.act, self.norm = nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4)

    def forward(self, x):
        for _ in range(2):
            x = self.linear(x)
            x = F.relu(x) + 1 if x.sum() > 0 else self.act(x) - x.tanh()
        return self.norm(x) + F.softmax(x, 0)


def trebled(x, *args, **kwargs):
    return x * 3


def branching(x, *args, **kwargs):
    return x * 3 if x.sum() > 0 else x - 1


def doubled_linear(x, weight, bias=None):
    return x @ weight.T * 2


def branching_linear(x, weight, bias=None):
    return x @ weight.T if x.sum() > 0 else x - weight[0]


CHANGES = [
    (torch, "relu", trebled),
    (torch, "relu", branching),
    (F, "relu", branching),
    (F, "relu", F.elu),
    (F, "linear", doubled_linear),
    (F, "linear", branching_linear),
    (torch.Tensor, "tanh", branching),
    (torch.Tensor, "softmax", trebled),
    (torch.Tensor, "tanh", torch.Tensor.exp),
    (torch.Tensor, "__add__", lambda x, y: x * y),
    (torch.Tensor, "tanh", mock.Mock(return_value=torch.ones(4).double())),
    (torch, "layer_norm", trebled),
]


def results(batched, function, x, leaves):
    outs = (batched(x), torch.stack([function(row.clone()) for row in x]))
    return [
        (out, torch.autograd.grad(out.square().sum(), leaves, allow_unused=True)) for out in outs
    ]


@pytest.mark.sampled(2)
@slow_ways
def test_what_modules_and_tensors_come_to(engine, executor):
    net = Net().double()
    leaves = list(net.parameters())
    batched = autobatch.vmap(net, engine=engine, executor=executor, trace_after=0)

    def check(times=1):
        for _ in range(times):
            found, expected = results(batched, net, X, leaves)
            torch.testing.assert_close(found, expected)

    check(2)
    for owner, name, new in CHANGES:
        with mock.patch.object(owner, name, new):
            check(2)
        check()


@pytest.mark.sampled(4)
@ways
def test_without_gradients(engine, executor):
    def function(x):
        while x.sum() < 8:
            x = x.relu() + torch.special.expit(x)
        return x

    batched = autobatch.vmap(function, engine=engine, executor=executor, trace_after=0)

    def check():
        expected = torch.stack([function(row) for row in X])
        for _ in range(2):
            torch.testing.assert_close(batched(X), expected)

    check()
    for owner, name in [(torch.Tensor, "relu"), (torch.special, "expit")]:
        for new in (torch.Tensor.exp, lambda x: x * x + 1):
            with mock.patch.object(owner, name, new):
                check()
            check()


@pytest.mark.parametrize(("owner", "name"), [(torch, "relu"), (F, "relu"), (F, "linear")])
@pytest.mark.parametrize("size", [1, 5])
def test_each_example_calls_what_is_put_there(owner, name, size):
    chain = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).double()
    batched = autobatch.vmap(lambda x: chain(x) * 2, trace_after=0)
    for _ in range(2):
        batched(X)
    with mock.patch.object(owner, name, autospec=True, side_effect=getattr(owner, name)) as put:
        batched(X[:size])
        assert put.call_count == size
    assert batched(X).shape == X.shape
    assert put.call_count == size


def test_what_was_recorded_is_found_again():
    batched = autobatch.vmap(lambda x: x.cumprod(0) * 2 + torch.sin(x), trace_after=0)
    for _ in range(2):
        batched(X)
    for times in range(2):
        with mock.patch.object(torch.Tensor, "cumprod", trebled), autobatch.counts() as under:
            batched(X)
        assert bool(under.traces) is (times == 0)
        with autobatch.counts() as after:
            batched(X)
        assert not after.traces


def test_a_program_that_is_run_by_execute():
    program, cache = autobatch.lower(lambda x: F.relu(x) + x.exp()), {}
    run = program.callable
    for new in (F.relu, trebled, F.relu):
        with mock.patch.object(F, "relu", new), mock.patch.object(torch.Tensor, "exp", new):
            for _ in range(2):
                (out,) = autobatch.execute(program, X, block_code_cache=cache, trace_after=0)
                torch.testing.assert_close(out, torch.stack([run(row) for row in X]))


@pytest.mark.parametrize("options", [{}, {"engine": "sequential"}])
def test_a_stream(options):
    def function(x):
        return F.relu(x) if x.sum() > 0 else x.relu() - 1

    def streamed():
        found = dict(autobatch.stream(function, list(X), width=2, **options))
        return [found[i] for i in range(len(X))]

    for name in ("relu", "__mul__"):
        torch.testing.assert_close(streamed(), [function(row) for row in X])
        with mock.patch.object(torch.Tensor, name, trebled):
            torch.testing.assert_close(streamed(), [function(row) for row in X])


def test_a_stream_that_is_at_work():
    stream = autobatch.stream(F.relu, list(X), width=2)
    next(stream)
    with (
        mock.patch.object(torch, "relu", trebled),
        pytest.raises(autobatch.AutobatchError, match="while a stream was at work"),
    ):
        list(stream)


def patched_within(x):
    with mock.patch.object(torch, "relu", trebled):
        return F.relu(x)


@autobatch.per_thread
def patching(x):
    torch.relu = trebled
    return x


@pytest.mark.parametrize("function", [patched_within, patching])
def test_what_a_program_replaces_is_refused_and_put_back(function):
    own = torch.relu
    with pytest.raises(autobatch.AutobatchError, match=r"replaces torch\.relu"):
        autobatch.vmap(lambda x: function(x))(X)
    assert torch.relu is own
    torch.testing.assert_close(autobatch.vmap(F.relu)(X), X.relu())


def test_transforms():
    def loss(x):
        return F.relu(x).square().sum()

    for new in (torch.relu, trebled, branching):
        with mock.patch.object(torch, "relu", new):
            found = autobatch.vmap(autobatch.grad(loss))(X)
            torch.testing.assert_close(found, torch.stack([torch.func.grad(loss)(r) for r in X]))


# The look itself.


def test_looks_see_what_is_put_and_put_back():
    assert replaced.look() is replaced.NOTHING
    with mock.patch.object(F, "gelu", trebled):
        first = replaced.look()
        assert first.names == {"gelu"} and first.one_by_one
        with mock.patch.object(torch.Tensor, "exp", trebled):
            assert replaced.look().names == {"gelu", "exp"}
        assert replaced.look() is first
    assert replaced.look() is replaced.NOTHING
    torch.some_other_name = 1
    del torch.some_other_name
    assert replaced.look() is replaced.NOTHING


def test_looks_without_tags(monkeypatch):
    """From Python 3.14 on dicts have none."""
    monkeypatch.setattr(replaced, "_tags", None)
    test_looks_see_what_is_put_and_put_back()


def test_tags_of_dicts():
    class Some:
        value = 1

    read = tags_of([namespace_of(Some)])
    if read is None:
        pytest.skip("this Python keeps none")
    before = read()
    with contextlib.suppress(AttributeError):
        Some.other  # noqa: B018
    assert read() == before
    Some.value = 2
    after = read()
    assert after != before
    del Some.value
    assert read() != after
