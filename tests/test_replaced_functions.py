"""Functions of torch's, and of classes, that others take the place of between two calls.

What runs is what the loop runs, whatever has run before and been recorded, and after it is put
back.
"""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import autobatch

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(5, 4, generator=GENERATOR)
T = torch.randn(5, 3, 4, generator=GENERATOR)
IMAGES = torch.randn(5, 1, 3, 3, generator=GENERATOR)
WAYS = [
    *(("stackless", name) for name in ("vmap", "traced", "compiled", "auto", "cudagraph")),
    *(("program_counter", name) for name in ("vmap", "traced", "compiled")),
    ("sequential", "traced"),
]
ways = pytest.mark.parametrize(("engine", "executor"), WAYS)


def linear(self, x):
    return F.linear(x, self.weight, self.bias) * 2


def doubled(own):
    """Another function that calls torch's own, and looks like it."""

    @functools.wraps(own)
    def forward(self, *args, **kwargs):
        first, *rest = pytree.tree_leaves(own(self, *args, **kwargs))
        return (first * 2, *rest) if rest else first * 2

    return forward


class Sub(nn.Linear):
    pass


class Calling(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 1


class Net(nn.Module):
    def __init__(self, part, times=2):
        super().__init__()
        self.part, self.times = part, times

    def forward(self, x):
        for _ in range(self.times):
            x = torch.tanh(self.part(x)) if x.sum() > 0 else self.part(x) * 0.5
        return x


def encoder_layer():
    return nn.TransformerEncoderLayer(4, 2, 8, 0.0)


def attention():
    made = nn.MultiheadAttention(4, 2)
    return lambda x: made(x, x, x)


CHANGES = {
    "linear": (nn.Linear, linear, lambda: nn.Linear(4, 4), X),
    "wrapped": (nn.Linear, doubled(nn.Linear.forward), lambda: nn.Linear(4, 4), X),
    "another's": (nn.Linear, nn.Identity.forward, lambda: nn.Linear(4, 4), X),
    "a class of it": (nn.Linear, linear, lambda: Sub(4, 4), X),
    "a class that calls it": (nn.Linear, linear, lambda: Calling(4, 4), X),
    "a part": (nn.Linear, linear, lambda: Net(nn.Linear(4, 4)), X),
    "in a chain": (nn.Linear, linear, lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh()), X),
    "in a layer": (nn.Linear, linear, encoder_layer, T),
    "attention in a layer": (
        nn.MultiheadAttention,
        doubled(nn.MultiheadAttention.forward),
        encoder_layer,
        T,
    ),
    "attention": (
        nn.MultiheadAttention,
        doubled(nn.MultiheadAttention.forward),
        attention,
        T,
    ),
    "chain": (
        nn.Sequential,
        doubled(nn.Sequential.forward),
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh()),
        X,
    ),
    "convolution": (
        nn.Conv2d,
        doubled(nn.Conv2d.forward),
        lambda: nn.Conv2d(1, 2, 2),
        IMAGES,
    ),
    "norm": (nn.LayerNorm, doubled(nn.LayerNorm.forward), lambda: nn.LayerNorm(4), X),
    "cell": (nn.GRUCell, doubled(nn.GRUCell.forward), lambda: nn.GRUCell(4, 4), X),
    "cell of two": (nn.LSTMCell, doubled(nn.LSTMCell.forward), lambda: nn.LSTMCell(4, 4), X),
    "embedding": (
        nn.Embedding,
        doubled(nn.Embedding.forward),
        lambda: nn.Embedding(6, 4),
        torch.arange(5),
    ),
}


def gradients(result, leaves):
    loss = sum(leaf.square().sum() for leaf in pytree.tree_leaves(result))
    return torch.autograd.grad(loss, leaves, allow_unused=True)


def assert_is_the_loop(batched, function, x):
    """Of values, and of gradients where something has some."""
    rows = [function(row.clone()) for row in x]
    expected = pytree.tree_map(lambda *leaves: torch.stack(leaves), *rows)
    found = batched(x)
    torch.testing.assert_close(found, expected)
    inner = getattr(function, "__closure__", None)
    module = inner[0].cell_contents if inner else function
    leaves = [p for p in module.parameters() if p.requires_grad]
    needs = [leaf.requires_grad for leaf in pytree.tree_leaves(expected)]
    assert [leaf.requires_grad for leaf in pytree.tree_leaves(found)] == needs
    if any(needs):
        torch.testing.assert_close(gradients(found, leaves), gradients(expected, leaves))


@pytest.mark.sampled(48)
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("change", CHANGES)
@ways
def test_forward_of_a_class_of_torchs(engine, executor, change, grad, monkeypatch):
    kind, forward, made, x = CHANGES[change]
    function = made()
    batched = autobatch.vmap(function, engine=engine, executor=executor, trace_after=0)
    with torch.set_grad_enabled(grad):
        for _ in range(2):
            assert_is_the_loop(batched, function, x)
        for _ in range(2):
            with monkeypatch.context() as patch:
                patch.setattr(kind, "forward", forward)
                for _ in range(2):
                    assert_is_the_loop(batched, function, x)
            assert_is_the_loop(batched, function, x)


def branching(self, x):
    y = F.linear(x, self.weight, self.bias)
    while y.sum() > 0:
        y = y - 1
    return y


@pytest.mark.sampled(2)
@ways
def test_a_forward_with_branches_in_place_of_torchs(engine, executor, monkeypatch):
    """It is lowered: torch's rule for the class says nothing of it."""
    for function in (nn.Linear(4, 4), Net(nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 4))):
        batched = autobatch.vmap(function, engine=engine, executor=executor)
        assert_is_the_loop(batched, function, X)
        with monkeypatch.context() as patch:
            patch.setattr(nn.Linear, "forward", branching)
            assert_is_the_loop(batched, function, X)
        assert_is_the_loop(batched, function, X)


def test_a_forward_that_is_there_from_the_first(monkeypatch):
    function = nn.Bilinear(4, 4, 4)
    monkeypatch.setattr(nn.Bilinear, "forward", lambda self, x: self.bias * x)
    for engine, executor in WAYS:
        batched = autobatch.vmap(function, engine=engine, executor=executor, trace_after=0)
        for _ in range(2):
            assert_is_the_loop(batched, function, X)


@pytest.mark.sampled(2)
@ways
def test_functional_call_of_a_class_of_torchs(engine, executor, monkeypatch):
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    given = {name: p.detach() * 2 for name, p in model.named_parameters()}

    def function(x):
        if x.sum() > 0:
            x = x * 2
        return torch.func.functional_call(model, given, (x,))

    def check():
        batched = autobatch.vmap(function, engine=engine, executor=executor, trace_after=0)
        expected = torch.stack([function(row) for row in X])
        for _ in range(2):
            torch.testing.assert_close(batched(X), expected)

    check()
    with monkeypatch.context() as patch:
        patch.setattr(nn.Linear, "forward", linear)
        check()
        own = nn.Module.__call__
        patch.setattr(nn.Module, "__call__", lambda self, x: own(self, x) + 1)
        check()
    check()


@pytest.mark.sampled(2)
@ways
def test_gradients_by_functional_call(engine, executor, monkeypatch):
    model = nn.Linear(4, 4)

    def loss(weights, x):
        return torch.func.functional_call(model, weights, (x,)).square().sum()

    def check():
        weights = dict(model.named_parameters())
        batched = autobatch.vmap(
            autobatch.grad(loss), in_dims=(None, 0), engine=engine, executor=executor
        )
        rows = [torch.func.grad(loss)(weights, row) for row in X]
        expected = {name: torch.stack([row[name] for row in rows]) for name in weights}
        torch.testing.assert_close(batched(weights, X), expected)

    check()
    with monkeypatch.context() as patch:
        patch.setattr(nn.Linear, "forward", linear)
        check()
    check()


SCALE = 1.0


class Scaled(nn.Linear):
    def forward(self, x):
        return super().forward(x) * SCALE


@pytest.mark.sampled(3)
@ways
def test_what_modules_of_the_users_read_within_one_of_torchs(engine, executor, monkeypatch):
    layer = encoder_layer()
    layer.linear1 = Scaled(4, 8)
    batched = autobatch.vmap(layer, engine=engine, executor=executor, trace_after=0)
    for scale in (1.0, 2.0, 3.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        for _ in range(2):
            assert_is_the_loop(batched, layer, T)


# What calls ``forward``.

OWN_CALL, OWN_IMPL = nn.Module.__call__, nn.Module._call_impl


def called_twice(self, *args, **kwargs):
    first = OWN_CALL(self, *args, **kwargs)
    return first * 2 if first.sum() > 0 else first


def called_within(self, *args):
    return OWN_IMPL(self, *args) * 2


def chain():
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh())


MODULES = {
    "linear": lambda: nn.Linear(4, 4),
    "a class of it": lambda: Calling(4, 4),
    "chain": chain,
    "a part": lambda: Net(chain()),
}


@pytest.mark.sampled(24)
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    ("name", "call"), [("__call__", called_twice), ("_call_impl", called_within)]
)
@ways
def test_what_calls_forward(engine, executor, name, call, module, monkeypatch):
    made = MODULES[module]()
    for function in (made, lambda x: made(x) + made.__call__(x)):
        batched = autobatch.vmap(function, engine=engine, executor=executor, trace_after=0)
        for _ in range(2):
            assert_is_the_loop(batched, function, X)
        with monkeypatch.context() as patch:
            patch.setattr(nn.Module, name, call)
            for _ in range(2):
                assert_is_the_loop(batched, function, X)
        assert_is_the_loop(batched, function, X)


class OwnCall(nn.Module):
    """It is called by a function of its own, which calls torch's."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def __call__(self, x):
        if x.sum() > 0:
            return super().__call__(x) * 3
        return nn.Module.__call__(self, x)

    def forward(self, x):
        return self.inner(x) if x[0] > 0 else x


class OwnImpl(nn.Linear):
    def _call_impl(self, x):
        return super()._call_impl(x) * 3


@pytest.mark.sampled(8)
@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("kind", [OwnCall, lambda: OwnImpl(4, 4), lambda: Net(OwnCall())])
@ways
def test_a_class_with_a_call_of_its_own(engine, executor, kind, hooked):
    function = kind()
    if hooked:
        function.register_forward_hook(lambda m, args, out: out + 1)
    batched = autobatch.vmap(function, engine=engine, executor=executor, trace_after=0)
    for _ in range(2):
        assert_is_the_loop(batched, function, X)


@ways
def test_modules_of_each_example(engine, executor):
    modules = [OwnCall(), nn.Linear(4, 4), OwnCall(), Net(OwnCall()), chain()]

    def function(module, x):
        return module(x) * 2

    batched = autobatch.vmap(function, engine=engine, executor=executor)
    expected = torch.stack([function(*row) for row in zip(modules, X, strict=True)])
    torch.testing.assert_close(batched(autobatch.objects(modules), X), expected)


@pytest.mark.sampled(3)
@ways
def test_a_call_of_one_modules_own(engine, executor):
    for function in (nn.Linear(4, 4), Net(nn.Linear(4, 4)), Calling(4, 4)):
        batched = autobatch.vmap(function, engine=engine, executor=executor, trace_after=0)
        assert_is_the_loop(batched, function, X)
        part = getattr(function, "part", function)
        part._call_impl = lambda x, part=part: part.forward(x) * 2
        for _ in range(2):
            assert_is_the_loop(batched, function, X)
        del part._call_impl
        assert_is_the_loop(batched, function, X)


# The user's own classes.


class Gate(nn.Module):
    def forward(self, x):
        return x + 1


class Function:
    def __call__(self, x):
        return x + 1


class Made:
    def __init__(self, x):
        self.value = x + 1


def writing(self, x):
    x.mul_(2.0)
    return x + 1


def writing_init(self, x):
    x.mul_(2.0)
    self.value = x + 1


def calling(part):
    def function(x):
        x = x * 1.0

        def halves(depth):
            return part(x) if depth == 0 else halves(depth - 1) + halves(depth - 1)

        return halves(2) + part(x)

    return function


def building(x):
    x = x * 1.0

    def halves(depth):
        return Made(x).value if depth == 0 else halves(depth - 1) + halves(depth - 1)

    return halves(2) + Made(x).value


@pytest.mark.sampled(16)
@pytest.mark.parametrize(
    ("kind", "name", "other"),
    [
        (Gate, "forward", lambda self, x: x * 3 if x[0] > 0 else x),
        (Gate, "forward", writing),
        (Function, "__call__", lambda self, x: x * 3 if x[0] > 0 else x),
        (Function, "__call__", writing),
        (Made, "__init__", writing_init),
    ],
)
@ways
def test_functions_of_the_users_classes(engine, executor, kind, name, other, monkeypatch):
    function = building if kind is Made else calling(kind())
    batched = autobatch.vmap(function, engine=engine, executor=executor, trace_after=0)

    def check():
        expected = torch.stack([function(row) for row in X])
        for _ in range(2):
            torch.testing.assert_close(batched(X), expected)

    check()
    with monkeypatch.context() as patch:
        patch.setattr(kind, name, other)
        check()
    check()
