"""Programs that call modules run plainly on few examples, if what that rests on still holds."""

import copy
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as of_torch

import autobatch
from autobatch.alone.torchs import is_torch_as_it_was
from autobatch.batching.levels import DrawError

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


pytestmark = pytest.mark.usefixtures("plain_is_better")


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.5))
        self.scale = 0.5

    def forward(self, x):
        return self.inner(x) * self.scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.gate, self.cell = nn.Linear(4, 4), Gate(), nn.GRUCell(4, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.LayerNorm(4), Gate()])
        self.by_name = nn.ModuleDict({"relu": nn.ReLU(), "same": nn.Identity()})
        self.norm = nn.BatchNorm1d(4)
        self.embedding = nn.Embedding(5, 4)
        self.register_buffer("shift", torch.full((4,), 0.25))
        self.times = 3

    def step(self, x, state):
        return self.cell(self.gate(x), state)

    def forward(self, x):
        state = self.first(x) + self.shift
        for layer in self.layers:
            state = layer(state)
        for at in range(self.times):
            state = self.step(x, self.layers[at % 2](state))
            if state.sum() > 0:
                state = self.by_name["relu"](state)
        state = self.norm(state[None, :, None])[0, :, 0]
        return state + self.embedding(torch.tensor(self.times))


def made():
    torch.manual_seed(0)
    return Net().eval()


def batch(function, *args, times=4, **options):
    """What some calls give, and how many threads plain Python has run in the last."""
    batched = autobatch.vmap(function, **options)
    for _ in range(times):
        with autobatch.counts() as counts:
            found = batched(*args)
    return found, counts.plain


def loop(function, x=X):
    return torch.stack([function(row.clone()) for row in x])


def through(net):
    return lambda x: net(x)


def handed(net, x):
    return net.first(x) + net(x) + sum(layer(x) for layer in net.layers)


class Holder:
    def __init__(self, net):
        self.nets = [net]


def of_an_object(holder, x):
    return holder.nets[0](x)


@dataclass
class Found:
    score: float
    marks: list = field(default_factory=list)


class Searcher:
    """As people write decoders: a plain class that has modules, and makes records of its own."""

    def __init__(self, net):
        self.net, self.head, self.most, self.inner = net, nn.Linear(4, 2).eval(), 3, Inner(net)

    def search(self, x):
        found = Found(0.0)
        while len(found.marks) < self.most:
            x = self.inner.run(self.net(x))
            mark = self.head(x).argmax().item()
            found.score += float(x.sum())
            found.marks.append(mark)
        return found.score, len(found.marks)


class Inner:
    def __init__(self, net):
        self.gate = net.gate

    def run(self, x):
        return self.gate(x)


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_objects_that_have_modules(engine):
    searcher = Searcher(made())

    def way(x):
        return searcher.search(x)

    with torch.no_grad():
        for function in (way, searcher.search):
            scores, lengths = zip(*(function(row.clone()) for row in X), strict=True)
            found, plain = batch(function, X, engine=engine)
            assert plain == 3
            torch.testing.assert_close(found[0], torch.tensor(scores, dtype=torch.float64))
            assert found[1].tolist() == list(lengths)


def doubled(module, given, made):
    return made * 2


CHANGES = {
    "replaced": lambda searcher: setattr(searcher, "net", nn.Linear(4, 4)),
    "exchanged": lambda s: s.__dict__.update(net=s.inner.gate, inner=Inner(s)),
    "within": lambda searcher: setattr(searcher.inner, "gate", nn.Identity()),
    "renamed": lambda s: s.__dict__.update(inner=Renamed(s.inner.__dict__.pop("gate"))),
    "hooked": lambda searcher: searcher.net.register_forward_hook(doubled),
    "function": lambda searcher: setattr(searcher, "head", lambda x: x.flip(0)),
}


class Renamed(Inner):
    def __init__(self, net):
        self.other = net

    def run(self, x):
        return self.other(x) - 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CHANGES)
def test_objects_whose_modules_change(name):
    searcher = Searcher(made())
    searcher.gate = searcher.net.gate
    with torch.no_grad():
        assert batch(searcher.search, X)[1] == 3
        CHANGES[name](searcher)
        scores, _ = zip(*(searcher.search(row.clone()) for row in X), strict=True)
        found, _ = batch(searcher.search, X)
    wanted = torch.tensor(scores, dtype=torch.float64)  # of sums of float32
    torch.testing.assert_close(found[0], wanted, rtol=1e-5, atol=1e-5)


class Writing(Searcher):
    def __init__(self, net, way):
        super().__init__(net)
        self.way, self.own, self.shift, self.box = way, Found(0.0), torch.zeros(4), (X[:1].clone(),)

    def search(self, x):
        y = self.head(x)
        if self.way == "record":
            self.own.score += float(y.sum())
        elif self.way == "list":
            self.own.marks.append(1)
        elif self.way == "weight":
            self.head.weight += 1.0
        elif self.way == "tensor":
            self.shift += x
        elif self.way == "in a tuple":
            self.box[0].add_(1.0)
        elif self.way == "by another name":
            shift = self.shift
            shift += x
        else:
            found = Found(self.shift)
            found.score += x
        return y


WAYS = ["record", "list", "weight", "tensor", "in a tuple", "by another name", "put into a record"]


TRACKING = [
    (nn.BatchNorm1d(2), (5, 2)),
    (nn.BatchNorm2d(2), (3, 2, 4, 4)),
    (nn.BatchNorm3d(2), (3, 2, 2, 2, 2)),
    (nn.InstanceNorm1d(2, track_running_stats=True), (2, 5)),
    (nn.InstanceNorm2d(2, track_running_stats=True), (2, 4, 4)),
]


@pytest.mark.parametrize(
    ("norm", "shape"), TRACKING, ids=[type(norm).__name__ for norm, _ in TRACKING]
)
def test_statistics_are_not_written_plainly(norm, shape):
    norm.train()

    def own(x):
        return norm(x) * 2 if x.sum() > 0 else norm(x)

    batched = autobatch.vmap(own)
    for _ in range(4):
        with pytest.raises(autobatch.AutobatchError):
            batched(torch.randn(3, *shape))
    assert norm.running_mean.eq(0).all()
    assert norm.num_batches_tracked == 0
    norm.eval()
    with torch.no_grad():
        assert batch(own, torch.randn(3, *shape))[1] == 3


@pytest.mark.parametrize("way", WAYS)
def test_what_objects_with_modules_hold_is_not_written_plainly(way):
    searcher = Writing(made(), way)
    given = [searcher.shift.clone(), searcher.head.weight.clone(), searcher.box[0].clone()]
    with torch.no_grad():
        for _ in range(4):
            with autobatch.counts() as counts, suppress(autobatch.AutobatchError):
                autobatch.vmap(searcher.search)(X[:1])
            assert counts.plain == 0
    assert searcher.own == Found(0.0)
    for left, right in zip(
        given, [searcher.shift, searcher.head.weight, searcher.box[0]], strict=True
    ):
        assert torch.equal(left, right) or way in (
            "tensor",
            "by another name",
            "weight",
            "in a tuple",
        )


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_it_is_the_loop_and_its_gradients(size, engine):
    net, x = made(), X[:size].clone().requires_grad_()
    leaves = (x, *net.parameters())
    for way in (net, through(net), net.forward):
        expected = loop(way, x)
        wanted = torch.autograd.grad(expected.sum(), leaves, allow_unused=True)
        found, plain = batch(way, x, engine=engine)
        assert plain == size
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(
            torch.autograd.grad(found.sum(), leaves, allow_unused=True), wanted
        )


def test_modules_among_the_arguments():
    net = made()
    with torch.no_grad():
        for function, given in ((handed, net), (of_an_object, Holder(net))):
            expected = loop(lambda x, f=function, g=given: f(g, x))
            for engine in ("stackless", "program_counter"):
                found, plain = batch(function, given, X, in_dims=(None, 0), engine=engine)
                torch.testing.assert_close(found, expected)
            assert plain == 3


# What it rests on.

SEEN = []


def seen(*args):
    SEEN.append(1)


class Printing(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


def put_forward(net, monkeypatch):
    net.first.forward = lambda x: x * 3


def put_method(net, monkeypatch):
    net.step = lambda x, state: state * 2


def of_gate(net, monkeypatch):
    monkeypatch.setattr(Gate, "forward", lambda self, x: x - 1)


def of_functional(net, monkeypatch):
    own = F.linear
    monkeypatch.setattr(F, "linear", lambda *args: SEEN.append(1) or own(*args) * 2)


def hook_of_all(net, monkeypatch):
    handle = of_torch.register_module_forward_hook(lambda m, args, out: out + 1)
    monkeypatch.setattr(handle, "undo", handle.remove, raising=False)
    return handle


BREAKS = {
    "hook": lambda net, _: net.first.register_forward_hook(lambda m, args, out: out + 1),
    "pre-hook": lambda net, _: net.gate.register_forward_pre_hook(lambda m, args: (args[0] * 2,)),
    "within": lambda net, _: net.gate.inner[0].register_forward_hook(lambda m, args, out: -out),
    "hook of all": hook_of_all,
    "backward hook": lambda net, _: net.first.register_full_backward_hook(seen),
    "a module": lambda net, _: setattr(net, "first", Printing(4, 4)),
    "a part": lambda net, _: net.gate.inner.append(nn.Linear(4, 4)),
    "an element": lambda net, _: net.layers.insert(1, nn.Linear(4, 4)),
    "an entry": lambda net, _: net.by_name.update({"relu": Gate().eval()}),
    "a parameter": lambda net, _: setattr(net.first, "bias", nn.Parameter(torch.ones(4))),
    "none": lambda net, _: setattr(net.first, "bias", None),
    "a buffer": lambda net, _: setattr(net, "shift", torch.ones(4)),
    "a class": lambda net, _: setattr(net.first, "__class__", Printing),
    "a number": lambda net, _: setattr(net, "times", 2),
    "a scale": lambda net, _: setattr(net.gate, "scale", 4.0),
    "forward": put_forward,
    "a method": put_method,
    "a class's forward": of_gate,
    "torch's function": of_functional,
    "double": lambda net, _: net.first.double(),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", BREAKS)
def test_what_changes_between_calls_is_seen(name, monkeypatch):
    net = made().requires_grad_(name == "backward hook")
    ways = (net, through(net))
    for way in ways:
        assert batch(way, X)[1] == 3
    handle = BREAKS[name](net, monkeypatch)
    try:
        for way in ways:
            try:
                expected = loop(way)
            except RuntimeError:  # dtypes that do not fit
                with pytest.raises(RuntimeError):
                    batch(way, X)
            else:
                torch.testing.assert_close(batch(way, X, times=1)[0], expected)
                torch.testing.assert_close(batch(way, X)[0], expected)
    finally:
        if name == "hook of all":
            handle.remove()


CHANGED = {
    "linear": (nn.Linear, "forward", lambda self, x: x * self.weight.diagonal() - 1),
    "norm": (nn.LayerNorm, "forward", lambda self, x: x * self.weight),
    "cell": (nn.GRUCell, "forward", lambda self, x, state: x + state @ self.weight_hh[:4]),
    "embedding": (nn.Embedding, "forward", lambda self, x: self.weight[x] * 2),
    "chain": (nn.Sequential, "forward", lambda self, x: self[0](x) * 2),
    "call": (nn.Module, "__call__", lambda self, *args: self._call_impl(*args) * 2),
    "call within": (nn.Module, "_call_impl", lambda self, *args: self.forward(*args) * 2),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("engine", "needs_grad"), [("stackless", True), ("program_counter", False)]
)
@pytest.mark.parametrize("name", CHANGED)
def test_what_torchs_modules_run_may_be_changed(name, engine, needs_grad, monkeypatch):
    net = made().requires_grad_(needs_grad)
    batched = autobatch.vmap(net, engine=engine)

    def check(times):
        expected = loop(net, X[:1])
        for _ in range(times):
            with autobatch.counts() as counts:
                found = batched(X[:1])
            torch.testing.assert_close(found, expected)
        if needs_grad:
            wanted, got = (
                torch.autograd.grad(each.sum(), [*net.parameters()], allow_unused=True)
                for each in (expected, found)
            )
            torch.testing.assert_close(got, wanted)
        return counts.plain

    assert check(times=4) == 1
    with monkeypatch.context() as patch:
        patch.setattr(*CHANGED[name])
        assert check(times=2) == 0
    assert check(times=12) == 1


def by_function(x):
    return F.softmax(F.layer_norm(x, (4,)), 0)


def by_method(x):
    return x.relu() + x.softmax(0) + x.abs()


def by_operator(x):
    return x + 1 if x.sum() > 0 else x - 1


def by_number(x):
    found = [row.item() for row in x]
    return {"most": max(found)}["most"]


RELU = nn.Sequential(nn.ReLU(), nn.Linear(4, 4).requires_grad_(False))


def by_module(x):
    return RELU(x) * 2


OF_TORCHS = {
    "function": (by_function, torch, "layer_norm"),
    "method of a function": (by_function, torch.Tensor, "softmax"),
    "method": (by_method, torch.Tensor, "relu"),
    "operator": (by_operator, torch.Tensor, "__add__"),
    "number": (by_number, torch.Tensor, "item"),
    "module": (by_module, torch, "relu"),
    "module's function": (by_module, F, "relu"),
}


def drawing(own):
    return lambda *args, **kwargs: own(*args, **kwargs) * (1 + torch.rand(()).item())


@pytest.mark.parametrize("name", OF_TORCHS)
def test_what_torchs_functions_run_may_be_changed(name):
    """What is in the place of one may draw: plain Python would not ask whether it may."""
    function, owner, title = OF_TORCHS[name]
    own, is_own = getattr(owner, title), title in vars(owner)
    assert batch(function, X[:1])[1] == 1
    for made in (lambda *args, **kwargs: own(*args, **kwargs) * 2, drawing(own)):
        setattr(owner, title, made)
        try:
            with suppress(DrawError):
                assert batch(function, X[:1], times=2, randomness="error")[1] == 0
        finally:
            setattr(owner, title, own) if is_own else delattr(owner, title)
    assert is_torch_as_it_was()


def test_methods_that_others_add_to_tensors_are_no_matter(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "of_my_own", lambda self: self, raising=False)
    assert batch(lambda x: x.exp() + 1, X[:1])[1] == 1


def test_hooks_are_called():
    net = made().requires_grad_(False)
    assert batch(net, X[:1])[1] == 1
    net.gate.inner[0].register_forward_hook(lambda module, given, out: out * 2)
    found, plain = batch(net, X[:1])
    torch.testing.assert_close(found, loop(net, X[:1]))
    assert plain == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "change",
    [
        lambda net: net.train(),
        lambda net: net.norm.train(),
        lambda net: net.gate.inner[2].train(),
        lambda net: setattr(net.by_name["relu"], "inplace", True),
        lambda net: setattr(net.embedding, "max_norm", 1.0),
    ],
)
def test_what_draws_or_writes_is_not_run(change):
    net = made().requires_grad_(False)
    assert batch(net, X[:1])[1] == 1
    change(net)
    for _ in range(3):
        with autobatch.counts() as counts, suppress(autobatch.AutobatchError):
            autobatch.vmap(net, randomness="different")(X[:1])
        assert counts.plain == 0
    net.eval()
    net.by_name["relu"].inplace, net.embedding.max_norm = False, None
    assert batch(net, X[:1], times=12)[1] == 1


class Counting(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.linear, self.way, self.count = nn.Linear(4, 4), way, 0
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        y = self.linear(x)
        if self.way == "number":
            self.count += 1
        elif self.way == "buffer":
            self.seen.add_(1.0)
        elif self.way == "slot":
            self.seen[0] = 1.0
        elif self.way == "module":
            self.linear = nn.Identity()
        elif self.way == "same":
            nn.functional.relu(self.linear.bias, inplace=True)
        else:
            self.linear.weight.mul_(2.0)
        return y


@pytest.mark.parametrize("way", ["number", "buffer", "slot", "module", "same", "weight"])
def test_writes_to_modules_are_refused_as_ever(way):
    net = Counting(way).requires_grad_(False)
    before = copy.deepcopy(net.state_dict())
    for _ in range(4):
        with autobatch.counts() as counts, pytest.raises(autobatch.AutobatchError):
            autobatch.vmap(net)(X[:1])
        assert counts.plain == 0
    assert net.count == 0
    for key, value in net.state_dict().items():
        assert torch.equal(before[key], value)


def test_parts_of_what_modules_give_are_the_weights():
    """An identity gives what it gets: a write to that is one to the weights."""
    net = made().requires_grad_(False)

    def own(x):
        shift = net.by_name["same"](net.shift)
        shift += x
        return shift

    for _ in range(4):
        with autobatch.counts() as counts, suppress(autobatch.AutobatchError):
            autobatch.vmap(own)(X[:1])
        assert counts.plain == 0


def test_a_module_that_is_another_each_time(monkeypatch):
    def own(x):
        return NETS[0](x)

    for _ in range(12):
        monkeypatch.setitem(globals(), "NETS", [made().requires_grad_(False)])
        found, _ = batch(own, X[:1], times=2)
        torch.testing.assert_close(found, loop(NETS[0], X[:1]))


NETS: list[nn.Module] = []
