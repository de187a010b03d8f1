"""Matrices of as many rows and columns as each thread likes, run once for all, against the loop."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import autobatch
from autobatch import ragged
from tests.test_ragged import CONFIGURED, floats, match, same, taken

D = 4
SIZES = (3, 5, 1, 2, 7, 4, 6, 8)
"""As many lengths as threads."""


def rows(sizes, seed=0):
    return floats(*sizes, width=D, seed=seed)


def attention(q, k):
    return (q @ k.T / math.sqrt(D)).softmax(-1) @ k


def by_hand(q, k):
    scores = torch.matmul(q, k.transpose(0, 1))
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True) @ k, (scores > 0).sum(1), (scores > 0).any(0)


def reductions(q, k):
    scores = q @ k.T
    top, where = scores.max(1)
    return (
        *(scores.sum(), scores.sum(0), scores.mean(1), scores.mean(0), scores.mean(), top, where),
        *(scores.amax(0), scores.amin(-1), scores.argmax(0), scores.min(0).values),
        *(scores.logsumexp(-1), torch.logsumexp(scores, 0), (scores > 0).all(1), scores.amax()),
        *(scores.sum((0, 1)), scores.std(0), scores.sum(0, keepdim=True)[0], scores.max()),
    )


def elementwise(q, k):
    scores = q @ k.T
    own = q.sum()
    mask = scores > own
    return (
        (scores * own - 1).sum(1),
        (-scores).masked_fill(mask, 0.0).sum(0),
        torch.where(mask, scores, -1.0).sum(1),
        (scores + k[:, 0]).tanh().sum(1),
        (scores * q[:, :1]).sum(1),
        (1 / (1 + scores.exp())).sum(0),
        scores.double().sum(1),
        torch.maximum(scores, scores * 2).sum(1),
        (scores + scores.clone()).sum(0),
        (mask & (scores < 9)).sum(1),
        scores.float().sum(),
        (scores // 1).sum(0),
    )


def turned(q, k):
    scores = q @ k.T
    weights = scores.log_softmax(0)
    return (
        *(scores.T @ q, weights.T @ q, weights @ k[:, 0], q[:, 0] @ weights, weights.t().sum(1)),
        *((scores @ scores.T).sum(1), scores.T[0], (q @ q.T + (q @ q.T).T).sum(0), q @ q[0]),
    )


def given_back(q, k):
    return q @ k.T.contiguous(), (q @ k.T)[0], (q @ k.T).flatten(), (q @ k.T).shape[1]


def fused(q, k):
    return (
        F.scaled_dot_product_attention(q, k, k),
        F.scaled_dot_product_attention(q, key=k, value=k, scale=0.5),
        F.scaled_dot_product_attention(q, k, k, is_causal=True),
        F.scaled_dot_product_attention(q, k, k, torch.ones(len(q), len(k)).tril().bool()),
    )


def parted(q, k):
    scores = q @ k.T
    if len(q) > 3:
        scores = scores * 2
    weights = scores.softmax(-1)
    if weights.amax() > 0.9:
        weights = weights.exp()
    return weights @ k


def written(q, k):
    scores = q @ k.T
    other = scores
    scores += 1
    scores[0] = 0
    return other.sum(), other.softmax(1) @ k


FUNCTIONS = (
    *(attention, by_hand, reductions, elementwise, turned, given_back, fused, parted, written),
)


@pytest.mark.sampled(8)
@CONFIGURED
@pytest.mark.parametrize("function", FUNCTIONS)
def test_operations(function, options):
    more = [n + i % 3 for i, n in enumerate(SIZES)]
    match(function, rows(SIZES), rows(more, 1), options=options)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("function", [f for f in FUNCTIONS if f is not written])
@pytest.mark.parametrize(
    "sizes", [((2, 0, 3), (1, 4, 2)), ((2, 1, 3), (1, 0, 2)), ((2, 2), (3, 3))]
)
def test_lengths_of_zero_and_equal_ones(function, sizes):
    match(function, rows(sizes[0]), rows(sizes[1], 1), options={"executor": "vmap"})


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("function", [attention, elementwise, fused])
def test_dtypes(function, dtype):
    qs = [(x * 4).round().to(dtype) / 4 for x in rows(SIZES)]
    batched = autobatch.vmap(function, ragged_out="list")
    for found, q in zip(zip(*parts(batched(ragged(qs), ragged(qs))), strict=True), qs, strict=True):
        for one, other in zip(found, parts(function(q, q)), strict=True):
            rough = dtype is torch.bfloat16
            assert one.dtype == other.dtype
            torch.testing.assert_close(one, other, **({"rtol": 0.1, "atol": 0.2} if rough else {}))


def parts(value):
    return value if isinstance(value, tuple) else (value,)


COUNTS = {attention: 4, by_hand: 11}


@pytest.mark.parametrize("function", COUNTS)
def test_one_launch_for_all_lengths(function):
    given = rows(range(1, 65)), rows(range(2, 66), 1)
    batched = autobatch.vmap(function, executor="vmap", fallback="error", ragged_out="list")
    with autobatch.counts() as c:
        batched(*map(ragged, given))
    assert c.launches == COUNTS[function] and not c.by_thread


def test_what_costs_much_more_with_padding_runs_by_length():
    """One long sequence among many short ones."""
    sizes = (2,) * 300 + (200,)
    given = rows(sizes)
    batched = autobatch.vmap(attention, executor="vmap", fallback="error", ragged_out="list")
    found = batched(ragged(given), ragged(given))
    for index in (0, 300):
        same(found[index], attention(given[index], given[index]))


SCALE = torch.tensor(0.7, dtype=torch.float64)
GRADIENTS = {
    "attention": lambda q, k, s: attention(q, k).square().sum(),
    "by_hand": lambda q, k, s: by_hand(q, k)[0].square().sum(),
    "scaled": lambda q, k, s: (((q @ k.T) * s) / (s + 1)).softmax(0).sum(1).square().sum(),
    "roots": lambda q, k, s: ((q @ k.T).square() * s + s).sqrt().log().sum(1).sum(),
    "quotient": lambda q, k, s: (s / (q @ k.T)).sum(),
    "powers": lambda q, k, s: (((q @ k.T).square() ** s).mean(0) * k[:, 0]).sum(),
    "beside": lambda q, k, s: ((q @ k.T + k[:, 0]) * q[:, :1]).abs().sqrt().sum(),
    "extremes": lambda q, k, s: (q @ k.T).amax(1).sum() + (q @ k.T).max(0).values.exp().sum(),
    "turned": lambda q, k, s: ((q @ k.T).softmax(1).T @ q).square().sum(),
    "fused": lambda q, k, s: F.scaled_dot_product_attention(q, k, k).square().sum(),
    "powers of weights": lambda q, k, s: (q @ k.T).softmax(1).sqrt().sum(),
    "logs of weights": lambda q, k, s: (q @ k.T).log_softmax(0).exp().log().square().sum(),
    "sums of logs": lambda q, k, s: (q @ k.T).log_softmax(0).logsumexp(1).square().sum(),
    "product": lambda q, k, s: ((q @ k.T).logsumexp(1) @ q).square().sum(),
}


def kept_out(q, k, s):
    """A root of zero that only some threads make use of."""
    root = ((q - q.clamp(min=0)) @ k.T).abs().sqrt() / s
    return root.sum() if q.sum() < -1 else q.square().sum() * s


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [*GRADIENTS, "kept_out"])
@pytest.mark.parametrize("options", [{}, {"engine": "program_counter", "executor": "vmap"}])
def test_gradients(name, options):
    function = GRADIENTS.get(name, kept_out)
    qs, ks = ([x.double() for x in rows([n + more for n in SIZES], more)] for more in (0, 1))

    def own():
        return [x.clone().requires_grad_() for x in (*qs, *ks, SCALE)]

    def slopes(total, leaves):
        first = torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
        if name == "fused":  # torch has no derivative of the derivative of its kernel
            return (first,)
        second = sum(x.square().sum() for x in first if x is not None)
        return first, torch.autograd.grad(second, leaves, allow_unused=True)

    mine, loop, n = own(), own(), len(qs)
    batched = autobatch.vmap(function, in_dims=(0, 0, None), **options)
    out = batched(ragged(mine[:n]), ragged(mine[n:-1]), mine[-1])
    wanted = [function(loop[i], loop[n + i], loop[-1]) for i in range(n)]
    torch.testing.assert_close(out, torch.stack(wanted))
    for one, other in zip(slopes(out.sum(), mine), slopes(sum(wanted), loop), strict=True):
        for x, y in zip(one, other, strict=True):
            x = torch.zeros_like(y) if x is None and y is not None else x
            y = torch.zeros_like(x) if y is None and x is not None else y
            torch.testing.assert_close(x, y, equal_nan=True)


@pytest.mark.parametrize(("more", "others"), [((0, 0), (2, 1)), ((2, 1), (0, 0)), ((0, 0), (0, 0))])
@pytest.mark.parametrize("function", [attention, elementwise, by_hand])
def test_gradients_where_no_thread_has_a_row(function, more, others):
    qs, ks = ([x.requires_grad_() for x in rows(sizes)] for sizes in (more, others))
    try:
        wanted = [parts(function(q, k)) for q, k in zip(qs, ks, strict=True)]
    except (IndexError, RuntimeError) as error:
        with pytest.raises(type(error)):
            autobatch.vmap(function, ragged_out="list")(ragged(qs), ragged(ks))
        return
    found = autobatch.vmap(function, ragged_out="list")(ragged(qs), ragged(ks))
    for index, own in enumerate(wanted):
        same(taken(found if type(found) is tuple else (found,), index), own)


def test_nothing_of_a_thread_reaches_another_nor_its_padding():
    qs = rows((3, 2, 4))
    qs[1][0], qs[1][1] = torch.inf, torch.nan
    mine, loop = ([x.clone().requires_grad_() for x in qs] for _ in range(2))

    def function(q):
        scores = q @ q.T
        return (scores.softmax(-1) @ q).sum() + scores.log_softmax(0).T.sum(1) @ q[:, 0]

    out = autobatch.vmap(function)(ragged(mine))
    wanted = [function(q) for q in loop]
    torch.testing.assert_close(out, torch.stack(wanted), equal_nan=True)
    out.sum().backward()
    sum(wanted).backward()
    for one, other in zip(mine, loop, strict=True):
        torch.testing.assert_close(one.grad, other.grad, equal_nan=True)
