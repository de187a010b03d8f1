"""Tensors of different lengths in operations of a whole: once for each length, held to the loop."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import autobatch
from autobatch import ragged
from tests.test_ragged import CONFIGURED, floats, lengths, match, same

D = 4
OFTEN = (3, 5, 7, 2, 9, 4, 6, 8) * 8
"""Sixty-four threads of eight lengths."""
CODER = torch.nn.TransformerEncoderLayer(D, 2, 8, batch_first=True).eval()


def rows(sizes, seed=0):
    return floats(*sizes, width=D, seed=seed)


def attention(q, k):
    return (q @ k.T / math.sqrt(D)).softmax(-1) @ k


def causal(q, k):
    scores = q @ k[: len(q)].T
    later = torch.ones(len(q), len(q)).triu(1).bool()
    return scores.masked_fill(later, -math.inf).softmax(-1) @ k[: len(q)]


def heads(q, k):
    own, other = (x.view(len(x), 2, 2).transpose(0, 1) for x in (q, k))
    found = (own @ other.transpose(1, 2)).softmax(-1) @ other
    return found.transpose(0, 1).reshape(len(q), D)


def scaled(q, k):
    return F.scaled_dot_product_attention(q, k, k), F.scaled_dot_product_attention(
        q[None], k[None], k[None]
    )[0]


def contracted(q, k):
    return torch.einsum("id,jd->ij", q, k).softmax(-1) @ k, torch.einsum("id,id->i", q, q)


def coded(q, k):
    return CODER(q[None])[0], q + torch.sin(torch.arange(len(q)).float())[:, None]


def distances(q, k):
    near = (q[:, None] - k[None]).square().sum(-1)
    return (
        near.min(1).values,
        near.argmin(0),
        torch.cdist(q, k).amax(),
        torch.outer(q[:, 0], k[:, 0])[0],
    )


def ranked(q, k):
    return (
        *(
            q.sort(0).values,
            q.argsort(0),
            q.median(0).values,
            q[:, 0].median(),
            q.topk(2, 0).indices,
        ),
        *(q.kthvalue(1, 0).values, q.quantile(0.5, dim=0), q[:, 0].sort().values, q.roll(1, 0)),
        *(
            q.logsumexp((0, 1)),
            q.diff(dim=0),
            q.norm(1, dim=0),
            q.norm(math.inf),
            torch.tril(q @ q.T).sum(),
            q.repeat(2, 1),
        ),
    )


def padded(q, k):
    return (
        *(q.prod(0), q.prod(), q.prod(0, keepdim=True), q.cumprod(0), q.logsumexp(0)),
        *(q.logsumexp(0, True), q.logcumsumexp(0), q[:, 0].prod(), q[:, 0].logsumexp(0)),
        *(q.long().prod(0), (q > 0).prod(), q.logsumexp((0,))),
    )


BY_LENGTH = {
    attention: 8 * 4 + 3,  # q, k, four operations, what is packed again
    causal: None,
    heads: 8 * 11 + 1,
    scaled: None,
    contracted: None,
    coded: None,
    distances: None,
    ranked: None,
    padded: 13 + 3,
}


@pytest.mark.sampled(48)
@CONFIGURED
@pytest.mark.parametrize("function", BY_LENGTH)
def test_operations(function, options):
    for size in (1, 2, 7, 64):
        own = [max(n, 2) for n in lengths(size)]
        more = [n + i % 3 for i, n in enumerate(own)]
        match(function, rows(own), rows(more, 1), options=options)


@pytest.mark.parametrize("function", BY_LENGTH)
def test_counts(function):
    batched = autobatch.vmap(function, executor="vmap", fallback="error", ragged_out="list")
    given = rows(OFTEN), rows(OFTEN, 1)
    batched(*map(ragged, given))
    with autobatch.counts() as c:
        found = batched(*map(ragged, given))
    for index in (0, 13, 63):
        one = function(given[0][index], given[1][index])
        mine = [part[index] for part in found] if isinstance(found, tuple) else found[index]
        same(mine, list(one) if isinstance(one, tuple) else one)
    assert c.block_executions <= 4 and not c.by_thread
    known = BY_LENGTH[function]
    assert known is None or c.launches <= known


def test_what_pads_does_not_depend_on_lengths():
    batched = autobatch.vmap(padded, executor="vmap", fallback="error", ragged_out="list")
    given = rows(range(1, 65))
    with autobatch.counts() as c:
        batched(ragged(given), ragged(given))
    assert c.launches <= BY_LENGTH[padded]


def parted(q, k):
    scores = q @ k.T
    if len(q) > 3:
        scores = scores * 2
    weights = scores.softmax(-1)
    if weights.amax() > 0.9:
        weights = weights.roll(1, 0)
    return weights @ k


def written(q, k):
    scores = q @ k.T
    first = scores[0]
    scores += 1
    turned = scores.T
    turned *= 2
    q[None].mul_(2)
    whole = q.view(1, len(q), D)
    whole += 1
    return scores.sum(), first, turned @ q, q


def alias(q, k):
    scores = q @ k.T
    other = scores
    other[0] = 0
    return scores @ k, [scores, other][len(q) % 2].sum()


def written_again(q, k):
    flat, turned, pairs = q.flatten(), q.T, q.view(-1, 2)
    pairs -= 1
    turned += 1
    flat += 1
    q *= 2
    return q, flat, turned.sum(0), pairs


@pytest.mark.sampled(12)
@CONFIGURED
@pytest.mark.parametrize("function", [parted, written, written_again, alias])
def test_after_threads_have_parted_and_writes(function, options):
    for size in (1, 2, 7, 64):
        own = [max(n, 1) for n in lengths(size)]
        match(function, rows(own), rows(own, 1), options=options)


def test_arguments_that_torch_refuses():
    for function in (lambda q: q.prod((0,)), lambda q: q.argmax((0,)), lambda q: q.max((0,))):
        match(function, rows((3, 2, 3)), options={})


def of_lengths(n, x):
    eye = torch.eye(n)
    return (x.view(n, -1) @ torch.ones(12 // n)).sum(), eye.sum(), torch.full((n, 2), 3.0)[n - 1]


def test_numbers_of_each_threads_own_run_once_for_each_number():
    sizes = torch.tensor([2, 3, 4, 6] * 16)
    xs = torch.randn(64, 12)
    batched = autobatch.vmap(of_lengths, scalars="python", executor="vmap", fallback="error")
    with autobatch.counts() as c:
        found = batched(sizes, xs)
    wanted = [of_lengths(n, x) for n, x in zip(sizes.tolist(), xs, strict=True)]
    for place in range(3):
        same(list(found[place]), [torch.as_tensor(one[place]) for one in wanted])
    assert not c.by_thread


def own_columns(q, j):
    best = q[0].argmax()
    places = torch.arange(len(q))
    own = q[:, j], q[:, best], q[1:, j], q[..., j], q[:, : j + 1], q[places, best], q[:: j + 1]
    read = tuple(part.sum() for part in own)
    first = q[:, best]
    first += 1
    return read, own, q


@pytest.mark.sampled(4)
@CONFIGURED
@pytest.mark.parametrize("scalars", ["python", "tensor"])
def test_columns_of_each_threads_own(scalars, options):
    sizes = (3, 1, 2, 3, 1, 2, 4)
    places = torch.tensor([1, 0, 2, 1, 0, 2, 1])
    qs = rows(sizes)
    batched = autobatch.vmap(own_columns, scalars=scalars, on_error="isolate", **options)
    for _ in range(3):
        for found, q, j in zip(batched(ragged(qs), places), qs, places, strict=True):
            given = j.item() if scalars == "python" else j
            same(found.value, own_columns(q.clone(), given))


GRADIENTS = {
    "attention": lambda q, k: attention(q, k).square().sum(),
    "causal": lambda q, k: causal(q, k).square().sum(),
    "heads": lambda q, k: heads(q, k).square().sum(),
    "einsum": lambda q, k: contracted(q, k)[0].square().sum(),
    "ranked": lambda q, k: (q.sort(0).values * q.cumsum(0)).sum() + q.median(0).values.exp().sum(),
    "padded": lambda q, k: q.prod(0).sum() * q.logsumexp(0).sum() + q.cumprod(0).square().sum(),
    "unused": lambda q, k: (
        (q @ k.T).square().sum()
        if q[0, 0] > 0
        else ((q - q) @ k.T).abs().sqrt().sum() * 0 + q.sum()
    ),
}


def kept_out(q, k):
    """A root of zero that only some threads make use of."""
    root = ((q - q.clamp(min=0)) @ k.T).abs().sqrt()
    return root.sum() if q.sum() < -1 else q.square().sum()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", [*GRADIENTS, "kept_out"])
@pytest.mark.parametrize("options", [{}, {"engine": "program_counter"}, {"executor": "vmap"}])
def test_gradients(name, options):
    function = GRADIENTS.get(name, kept_out)
    sizes = (3, 5, 2, 3, 5, 2, 4, 3)
    qs, ks = ([x.double() for x in rows([n + more for n in sizes], more)] for more in (0, 1))

    def own(parts):
        return [x.clone().requires_grad_() for x in parts]

    def slopes(total, parts):
        first = torch.autograd.grad(total, parts, create_graph=True)
        return first, torch.autograd.grad(sum(x.square().sum() for x in first), parts)

    mine, loop = own(qs), own(qs)
    scale = torch.arange(1.0, len(qs) + 1)
    batched = autobatch.vmap(function, **options)
    found = slopes((batched(ragged(mine), ragged(ks)) * scale).sum(), mine)
    wanted = slopes(sum(function(q, k) * s for q, k, s in zip(loop, ks, scale, strict=True)), loop)
    for one, other in zip(found, wanted, strict=True):
        for x, y in zip(one, other, strict=True):
            torch.testing.assert_close(x, y, equal_nan=True)
    each = autobatch.vmap(autobatch.grad(function), ragged_out="list", **options)
    tangent = autobatch.vmap(lambda q, k: autobatch.jvp(lambda x: function(x, k), (q,), (q,))[1])
    along = tangent(ragged(qs), ragged(ks))
    for index, one in enumerate(each(ragged(qs), ragged(ks))):
        q, k = qs[index], ks[index]
        torch.testing.assert_close(one, torch.func.grad(function)(q, k), equal_nan=True)
        plain = torch.func.jvp(lambda x, k=k: function(x, k), (q,), (q,))[1]
        torch.testing.assert_close(along[index], plain, equal_nan=True)
