"""What runs once on the rows of all threads' tensors of different lengths, against the loop."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import autobatch
from autobatch import ragged
from programs import message_passing
from tests.test_ragged import CONFIGURED, LENGTHS, floats, lengths, match, same, taken

SIZES = (1, 2, 7, 64)
NONEMPTY = (3, 1, 5, 2, 3, 7)


def sums(x):
    return (
        *(x.sum(), x.sum(0), x.sum(0, keepdim=True), x.sum((0, 1)), x.mean(), x.mean(0)),
        *(x.mean(-2, True), x.norm(), x.norm(dim=0), torch.linalg.norm(x), (x > 0).any()),
        *((x > 0).all(0), (x > 9).any(0), x.std(0), x.var(), x.var(0, unbiased=False)),
        *(x.std(dim=0, correction=2), x.std(), x.var(0, keepdim=True)),
    )


def extremes(x):
    top, where = x.max(0)
    low = x.min(dim=0, keepdim=True)
    return (
        *(top, where, low.values, low.indices, x.max(), x.min(), x.amax(0), x.amin()),
        *(x.amax(0, keepdim=True), x.argmax(), x.argmin(0), x.argmax(0, True), x.amax((0,))),
        torch.max(x, x.flip(0) * 2),
    )


def normalised(x):
    return (
        *(x.softmax(0), torch.softmax(x, -2), F.softmax(x, dim=0), x.log_softmax(0)),
        *(F.log_softmax(x, 1), x.softmax(-1), F.normalize(x), F.normalize(x, dim=1)),
        *(x.cumsum(0), x.cumsum(1), x.flip(0), x - x.mean(0), x / x.norm(dim=1, keepdim=True)),
    )


def ordered(x):
    return (
        *x.sort(1), *x.sort(0), x.argsort(0, descending=True), *x.topk(2, 1), *x.cummax(0),
        *x.cummin(0), *x.max(1), x.argmax(1), x.argsort(-1), x.amax(1), x.median(1).values,
    )  # fmt: skip


def ranked(x):
    whole, infinite = (x * 2).round(), torch.where(x > 1, torch.inf, x)
    infinite = torch.where(x < -1, -torch.inf, torch.where(x.abs() < 0.2, torch.nan, infinite))
    found = whole.sort(0)
    return (
        *(*whole.sort(dim=0, stable=True), *whole.sort(dim=0, descending=True, stable=True)),
        *(whole.argsort(dim=0, stable=True), found.values, found[0], found.indices.shape[0]),
        *(torch.sort(infinite, 0).values, torch.sort(infinite, -2, True)[0], x[:, 0].sort()[0]),
        *(
            infinite.argsort(dim=0, descending=True, stable=True),
            whole.long().sort(dim=0, stable=True)[1],
            x[:, 0].argsort(),
        ),
        *((x > 0).argsort(dim=0, stable=True), (x > 0).sort(0, True)[0], x.half().sort(0).values),
    )


def masked(x):
    inside = x[:, 0] > 0
    return (
        *(x[inside], x * inside[:, None], x[x > 0], torch.where(x > 0, x, -1.0)),
        *(
            x.masked_fill(x > 0, 0),
            x[inside].sum(0),
            x[:, 1:],
            x[..., 0],
            x[1:, 1],
            x[:, -1:].exp(),
        ),
        x[inside][:, 0].cumsum(0),
    )


def joined(x, y):
    both = torch.cat([x, y])
    return (
        *(both, both.sum(0), torch.cat([x, y, x], 0), torch.cat((x, x * 2), dim=1)),
        *(torch.stack([x, x + 1], 1), torch.stack((x, x), dim=-1)),
        torch.cat([x, torch.ones(2, 3)]),
        torch.cat([x.sum(0, keepdim=True), x]), torch.cat([x[:1], x]).cumsum(0),
    )  # fmt: skip


WEIGHT = torch.arange(12.0).reshape(3, 4) / 12
MODULES = (
    torch.nn.GRUCell(3, 3),
    torch.nn.RNNCell(3, 3),
    torch.nn.Sequential(torch.nn.LayerNorm(3), torch.nn.Linear(3, 4), torch.nn.Softmax(-1)),
    torch.nn.Softmax(1),
)


def products(x):
    cell, plain, chain, soft = MODULES
    return (
        *(x @ WEIGHT, x @ WEIGHT[:, 0], torch.mm(x, WEIGHT), F.linear(x, WEIGHT.T)),
        *(cell(x), cell(x, x * 2), plain(x, x), chain(x), soft(x), F.layer_norm(x, (3,))),
    )


def turned(x):
    y = x.T
    y += 1
    return x.sum(), y.sum(), y @ x, x.t() @ x, x.transpose(0, 1) @ (x * 2), x.mT @ x[:, 0]


def exact(x):
    return x.T @ x, x.T @ (x * 2), (x @ x.T).softmax(-1) @ x, x.transpose(0, 1) @ x[:, 0]


@pytest.mark.sampled(24)
@CONFIGURED
@pytest.mark.parametrize("function", [sums, normalised, masked, products, exact, turned, ranked])
def test_operations(function, options):
    for size in SIZES:
        match(function, floats(*lengths(size)), options=options)
    match(function, floats(*LENGTHS), options=options)
    match(function, floats(4, 4, 4), options=options)


@pytest.mark.sampled(6)
@CONFIGURED
@pytest.mark.parametrize("function", [extremes, ordered])
def test_of_rows_that_are_there(function, options):
    match(function, floats(*NONEMPTY), options=options)
    match(function, floats(*LENGTHS), options=options)  # one is empty, and refused as torch does
    match(function, floats(2, 2), options=options)


RELU = torch.nn.ReLU(inplace=True)
RELU_FIRST = torch.nn.Sequential(RELU, torch.nn.Softmax(1))


@pytest.mark.parametrize("arguments", [((0,), {"stable": True}), ((0, True, True), {})])
def test_sorting_by_arguments_that_torch_refuses(arguments):
    args, kwargs = arguments
    match(lambda x: x.argsort(*args, **kwargs), floats(2, 3), options={})


def norms(x):
    return (
        *(torch.linalg.norm(x, 2), torch.linalg.norm(x, 2, 0), torch.norm(x, 2), x.norm(1)),
        *(torch.linalg.vector_norm(x, 2, 0), torch.linalg.norm(x, dim=0), x.norm(2, 0, True)),
    )


def of_pairs(x):
    mine, other = x[:, 0].long() % 3, torch.tensor([0, 1, 2])
    return (
        F.cross_entropy(x, mine.abs(), reduction="none"),
        F.one_hot(mine.abs(), 3) * other,
        torch.stack([x, x], 2).bmm(torch.stack([x, x], 1)),
        x.gather(1, mine.abs()[:, None]),
        torch.maximum(x, x[:, :1] + 0 * x),
        torch.where(x > 0, 1, x),
    )


def in_place_module(x):
    return RELU(x).sum(), x


def in_place_modules(x):
    return RELU_FIRST(x).sum(), x


@pytest.mark.sampled(4)
@CONFIGURED
@pytest.mark.parametrize("function", [norms, of_pairs, in_place_module, in_place_modules])
def test_what_looks_like_it(function, options):
    match(function, floats(*NONEMPTY), options=options)


def test_a_shared_target_is_no_row_of_the_threads():
    """As many classes as all threads have rows, but not as any of them has."""
    labels = torch.tensor([0, 1, 2, 0])
    with pytest.raises(ValueError, match="batch_size"):
        autobatch.vmap(lambda x: F.cross_entropy(x, labels, reduction="none").sum())(
            ragged(floats(1, 3))
        )


@pytest.mark.sampled(3)
@CONFIGURED
def test_joins(options):
    for size in (1, 7, 64):
        match(joined, floats(*lengths(size)), floats(*lengths(size, 1), seed=1), options=options)


@pytest.mark.sampled(16)
@CONFIGURED
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float16, torch.int32, torch.int64, torch.bool]
)
def test_dtypes(dtype, options):
    rows = [(x * 3).to(dtype) for x in floats(*NONEMPTY)]
    for function in (
        lambda x: (x.sum(0), x.sum(), (x > 0).any(0), x.all(), x * 2, x + 0.5, x[:, 0]),
        lambda x: (x[x > 0], torch.cat([x, x]), x.flip(0), x.long(), x.double().mean(0)),
        lambda x: x.mean(0),
        lambda x: x.softmax(0) if x.dtype is not torch.float16 else x * 1,
        lambda x: (x.amax(0), x.argmax(0), x.max()),
        lambda x: x.max(0),
        lambda x: x.cumsum(0),
        lambda x: torch.where(x > 0, x, x + x),
        lambda x: x.std(0),
    ):
        match(function, rows, options=options)


@pytest.mark.sampled(3)
@CONFIGURED
def test_nan_and_infinity(options):
    rows = floats(*NONEMPTY)
    rows[0][1, 1], rows[2][0, 0], rows[3][:, 2] = torch.nan, torch.inf, -torch.inf
    rows[5][6, 0] = -torch.inf
    for function in (sums, extremes, normalised, exact):
        match(function, rows, options=options)


def sent(h, edges):
    source, target = edges[:, 0], edges[:, 1]
    moved = h[source]
    new = torch.zeros_like(h).index_add(0, target, moved)
    return (
        *(moved, new, h.index_select(0, target), torch.zeros(9, 3).index_add(0, source, moved)),
        *(h.new_zeros(h.shape).index_add_(0, target, moved), h[edges], h[-source - 1]),
        torch.zeros(9, 3).scatter_add(0, source[:, None] + torch.zeros(1, 3).long(), moved),
    )


def edges_of(sizes, wrong=()):
    generator = torch.Generator().manual_seed(4)
    found = []
    for index, n in enumerate(sizes):
        count = 0 if not n else int(torch.randint(0, 9, (), generator=generator))
        edges = torch.randint(0, max(n, 1), (count, 2), generator=generator)
        if index in wrong:
            edges = torch.cat([edges, torch.tensor([[0, n]])])
        found.append(edges)
    return found


@pytest.mark.sampled(3)
@CONFIGURED
def test_places(options):
    for size in (1, 2, 7, 64):
        sizes = lengths(size)
        match(sent, floats(*sizes), edges_of(sizes), options=options)
    match(sent, floats(*LENGTHS), edges_of(LENGTHS, wrong=(4, 5)), options=options)
    for function in (
        lambda h, e: h[e[:, 1]].sum(),
        lambda h, e: h.index_select(0, e[:, 1]),
        lambda h, e: h.index_add(0, e[:, 1], torch.ones(3).expand(len(e), 3) * h.sum()),
        lambda h, e: torch.zeros_like(h).index_add(0, e[:, 1] - 1, h[e[:, 0]]),
        lambda h, e: torch.zeros(3)[e[:, 1]],
    ):
        match(function, floats(*LENGTHS), edges_of(LENGTHS, wrong=(4, 5)), options=options)
        match(function, floats(*NONEMPTY), edges_of(NONEMPTY), options=options)


def test_places_in_tensors_that_are_objects():
    """Tensors of two dtypes are each example's own object, their places are in one table."""

    def function(h, at, rows):
        rows = rows.to(h.dtype)
        new = h.index_add(0, at, rows)
        new.scatter_add_(0, at[:, None].expand(-1, 3), rows)
        return (new.double() + h.index_select(0, at).sum(), h.dtype is torch.float64)

    hs = [h.double() if i % 2 else h for i, h in enumerate(floats(*NONEMPTY))]
    ats, rows = [torch.arange(len(h)) for h in hs], floats(*NONEMPTY)
    mine = autobatch.objects(hs), ragged(ats), ragged(rows)
    same(
        list(autobatch.vmap(function, plain="never", ragged_out="list")(*mine)[0]),
        [function(*each)[0] for each in zip(hs, ats, rows, strict=True)],
    )


def written(x):
    y = x * 2
    y += 1
    y *= x
    first = y[:, 0]
    y.relu_()
    y.add_(x, alpha=2)
    first += 3
    x[:, 1] = 0
    x[:, 1:] += 1
    return y, first, x, y.sum()


def written_whole(x):
    y = x
    y += x
    z = x.float()
    z += 1
    y[y > 1] = 0.5
    return x, y, z


@CONFIGURED
def test_writes(options):
    for size in (1, 7):
        match(written, floats(*lengths(size)), options=options)
        match(written_whole, floats(*lengths(size)), options=options)


def halved(x):
    y = x + 1
    if len(x) > 2:
        y = y + x
    z = y.softmax(0)
    if x.sum() > 0:
        z = z[1:] - y.sum(0)
    return torch.cat([z, y]).cumsum(0), z.sum(0)


@pytest.mark.sampled(3)
@CONFIGURED
def test_after_threads_have_parted(options):
    for size in SIZES:
        match(halved, floats(*lengths(size)), options=options)


def sent_to_ranks(x, target, source):
    return torch.zeros_like(x).index_add(0, target, x * x)[source].exp().sum()


GRADIENTS = {
    "sums": lambda x: x.sum() + (x.sum(0) * x.mean(0)).sum() + x.norm() + x.std(0).sum() + x.var(),
    "extremes": lambda x: x.amax(0).sum() + x.max(0).values.prod() + x.min() + x.amin() * 2,
    "ties": lambda x: (x.round().amax(0) * WEIGHT[:, 0]).sum() + x.round().max() + (x * 0).norm(),
    "normalised": lambda x: (x.softmax(0) * x.log_softmax(0)).sum() + x.cumsum(0).pow(2).sum(),
    "masked": lambda x: x[x > 0].sum() + x[x[:, 0] > 0].pow(2).sum() + (x[:, 1] * 2).exp().sum(),
    "joined": lambda x: torch.cat([x, x * x]).cumsum(0).sum() + torch.stack([x, x.exp()], 1).sum(),
    "ordered": lambda x: (x.sort(0).values * x.flip(0)).sum() + x.cummax(0).values.sum(),
    "products": lambda x: (x.T @ x).exp().sum() + ((x @ x.T).softmax(-1) @ x).pow(2).sum(),
    "sent": lambda x: sent_to_ranks(x, x[:, 0].argsort(0), x[:, 1].argsort(0)),
}  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    function = GRADIENTS[name]
    rows = [x.double() for x in floats(3, 4, 2, 7, *[1] * (name != "sums"), seed=3)]

    def batched(*parts: Tensor) -> Tensor:
        return autobatch.vmap(function)(ragged(list(parts)))

    given = [x.clone().requires_grad_() for x in rows]
    loop = [x.clone().requires_grad_() for x in rows]
    scale = torch.arange(1.0, len(rows) + 1, dtype=torch.float64)
    (batched(*given) * scale).sum().backward()
    (torch.stack([function(x) for x in loop]) * scale).sum().backward()
    for one, other in zip(given, loop, strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    if name != "ties":
        few = [x.clone().requires_grad_() for x in rows[:3]]
        assert torch.autograd.gradcheck(batched, few)


OF_ZEROS = {
    "norm": lambda x: (x / x.norm()).sum(),
    "norm of a dim": lambda x: (x / torch.linalg.vector_norm(x, dim=0)).sum(),
    "std": lambda x: (x / x.std()).sum(),
    "std of a dim": lambda x: (x / x.std(0)).sum(),
}


@pytest.mark.parametrize("name", OF_ZEROS)
def test_gradients_that_are_not_finite_at_a_norm_of_zero(name):
    """Torch's norm multiplies what comes by zero, which gives NaN; its deviation drops it."""
    function = OF_ZEROS[name]
    rows = [torch.zeros(3, 2).double(), *(x[:, :2].double() for x in floats(2, 5, seed=1))]
    mine, loop = ([x.clone().requires_grad_() for x in rows] for _ in range(2))
    autobatch.vmap(function)(ragged(mine)).sum().backward()
    sum(function(x) for x in loop).backward()
    for one, other in zip(mine, loop, strict=True):
        torch.testing.assert_close(one.grad, other.grad, equal_nan=True)


def test_what_a_thread_makes_no_use_of_adds_nothing():
    """As many rows as threads, and a root of 0 that one of them computes for nothing."""

    def function(x):
        root = x.abs().sum(0).sqrt() + x.abs().amax()
        return root.sum() if x.sum() > 0 else x.sum()

    rows = [torch.tensor([[1.0], [2.0]]), torch.zeros(1, 1), torch.tensor([[3.0]])]
    mine, loop = ([x.clone().requires_grad_() for x in rows] for _ in range(2))
    autobatch.vmap(function)(ragged(mine[1:] + mine[:1])).sum().backward()
    sum(function(x) for x in loop).backward()
    for one, other in zip(mine, loop, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_nothing_of_a_thread_reaches_another():
    """A thread with NaN or an infinity has it alone, in values and gradients."""
    rows = [x.requires_grad_() for x in floats(3, 2, 4)]
    with torch.no_grad():
        rows[1][0] = torch.inf
        rows[1][1] = torch.nan

    def function(x):
        weights = (x @ x.T).softmax(-1)
        return (weights @ x).sum() + x.cumsum(0).sum() + (x.T @ x).sum() + x.softmax(0).norm()

    out = autobatch.vmap(function)(ragged(rows))
    out.sum().backward()
    assert out.isfinite().tolist() == [True, False, True]
    assert rows[0].grad.isfinite().all() and rows[2].grad.isfinite().all()


@pytest.mark.parametrize("batch", [64, 256])
def test_message_passing_runs_once_for_all(batch):
    example = message_passing.example(batch)
    model, (features, edges) = example.function, example.args
    function = autobatch.vmap(model, executor="vmap", fallback="error")
    found = function(ragged(features), ragged(edges))
    with autobatch.counts() as c:
        function(ragged(features), ragged(edges))
    same(list(found), [model(*own) for own in zip(features, edges, strict=True)])
    assert c.block_executions == 5
    assert c.launches <= 26
    assert not c.other_reads


def test_lengths_are_read_once():
    """What is computed from tensors of the same lengths asks for them no more."""

    def function(x):
        y = torch.tanh(x[1:] * 2)
        return ((y - y.mean(0)).softmax(0) + x[1:]).sum(0)

    rows = floats(3, 4, 6, 2, 9)
    batched = autobatch.vmap(function, executor="vmap", fallback="error")
    batched(ragged(rows))
    with autobatch.counts() as c:
        found = batched(ragged(rows))
    same(list(found), [function(x) for x in rows])
    assert sum(c.other_reads.values()) <= 2  # of two slices
    assert taken(found, 0).shape == (3,)
