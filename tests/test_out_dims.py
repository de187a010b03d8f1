"""``out_dims`` as in ``torch.vmap``: where the batch goes, and None for what all threads share."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch
from torch.utils import _pytree as pytree

import autobatch
from autobatch import OptionError

ENGINES = pytest.mark.parametrize("engine", ["stackless", "sequential"])
CHUNKS = pytest.mark.parametrize("chunk_size", [None, 1, 2])
Pair = namedtuple("Pair", "left right")
XS = torch.arange(6.0).reshape(3, 2)
WEIGHT = torch.tensor([2.0, -0.0, float("nan")])


def weight(x, w):
    return w * 2


def both(x, w):
    return x + 1, w


def nested(x, w):
    return {"x": x, "rest": [w, Pair(x * 2, w.sum())]}


def number(x, w):
    return 3


def made(x, w):
    return torch.zeros(2)


# What torch.vmap takes.
TAKEN = [
    (weight, None),
    (weight, (None,)),
    (both, (0, None)),
    (both, (1, None)),
    (lambda x, w: [x, w], [1, None]),
    (lambda x, w: {"x": x, "rest": [w, w * 3]}, {"x": 1, "rest": None}),
    (nested, {"x": 1, "rest": [None, Pair(0, None)]}),
    (number, None),
    (made, None),
    (weight, 0),
    (lambda x, w: (x, x[0] * w), -1),
    (lambda x, w: x, (1,)),
    (lambda x, w: w, None),
    (lambda x, w: None, None),
    (lambda x, w: ("text", w), None),
]


@pytest.mark.sampled(4)
@ENGINES
@CHUNKS
@pytest.mark.parametrize("func, out_dims", TAKEN)
def test_as_in_torch_vmap(engine, chunk_size, func, out_dims):
    expected = torch.vmap(func, (0, None), out_dims)(XS, WEIGHT)
    run = autobatch.vmap(func, (0, None), out_dims, engine=engine, chunk_size=chunk_size)
    actual = run(XS, WEIGHT)
    found, spec = pytree.tree_flatten(actual)
    wanted, wanted_spec = pytree.tree_flatten(expected)
    assert spec == wanted_spec
    for got, want in zip(found, wanted, strict=True):
        assert type(got) is type(want)
        if isinstance(want, torch.Tensor):
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
        else:
            assert got == want


def test_what_all_threads_share_is_the_object_itself():
    assert autobatch.vmap(lambda x, w: w, (0, None), None)(XS, WEIGHT) is WEIGHT
    tree = {"a": 1}
    func = autobatch.function(lambda x, t: (x, t["a"], t), out_dims=(0, None, {"a": None}))
    rows, one, same = func.batch(XS, tree)
    assert torch.equal(rows, XS) and one == 1 and same == tree


REFUSED = [
    (lambda x, w: x, None, "the result of"),
    (both, None, r"the result\[0\] of both"),
    (both, (None, None), r"the result\[0\] of both"),
    (nested, {"x": 0, "rest": None}, r"the result\['rest'\]\[1\]"),
    (lambda x, w: 1 if x.sum() > 2 else 2, None, "the result of"),
    (lambda x, w: "a" if x.sum() > 2 else "b", None, "the result of"),
    (lambda x, w: torch.zeros(2) if x.sum() > 2 else torch.ones(2), None, "the result of"),
]


@ENGINES
@CHUNKS
@pytest.mark.parametrize("func, out_dims, place", REFUSED)
def test_what_differs_by_thread_is_refused(engine, chunk_size, func, out_dims, place):
    run = autobatch.vmap(func, (0, None), out_dims, engine=engine, chunk_size=chunk_size)
    with pytest.raises(OptionError, match=f"out_dims is None for {place}.*differs by thread"):
        run(XS, WEIGHT)


def test_a_column_is_refused_whatever_it_holds():
    """As in torch.vmap: what is computed for each thread is not taken for the same by chance."""
    for xs in (torch.ones(3), torch.ones(1)):
        with pytest.raises(ValueError):
            torch.vmap(lambda x: x * 2, out_dims=None)(xs)
        with pytest.raises(OptionError, match="differs by thread"):
            autobatch.vmap(lambda x: x * 2, out_dims=None)(xs)


def test_branches_that_share():
    def func(x, w):
        if x.sum() > 2:
            return x, w
        return -x, w

    rows, shared = autobatch.vmap(func, (0, None), (1, None))(XS, WEIGHT)
    assert rows.shape == (2, 3) and shared is WEIGHT

    def unlike(x, w):
        return (3, w) if x.sum() > 2 else (x.sum(), w)

    rows, shared = autobatch.vmap(unlike, (0, None), (0, None))(XS, WEIGHT)
    assert rows.tolist() == [1, 3, 3] and shared is WEIGHT


@CHUNKS
def test_gradients_reach_what_all_threads_share(chunk_size):
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    run = autobatch.vmap(weight, (0, None), None, chunk_size=chunk_size)
    run(XS, w).sum().backward()
    assert w.grad.tolist() == [2, 2]


def test_each_bit_counts_between_chunks():
    def signed(x):
        return -0.0 if x > 1 else 0.0

    run = autobatch.vmap(signed, out_dims=None, chunk_size=1)
    assert run(torch.zeros(2)) == 0.0
    with pytest.raises(OptionError, match="differs by thread"):
        run(torch.arange(3.0))

    def filled(x):
        return torch.full((2,), -0.0) if x > 1 else torch.full((2,), 0.0)

    run = autobatch.vmap(filled, out_dims=None, chunk_size=1)
    assert torch.equal(run(torch.zeros(2)), torch.zeros(2))
    with pytest.raises(OptionError, match="differs by thread"):
        run(torch.arange(3.0))


@ENGINES
def test_no_threads(engine):
    empty = torch.empty(0, 2)
    rows, shared = autobatch.vmap(both, (0, None), (1, None), engine=engine)(empty, WEIGHT)
    assert rows.shape == (2, 0) and shared is WEIGHT


def test_out_dims_that_do_not_fit():
    for func, out_dims in ((weight, (0, 0)), (both, (0, 0, 0)), (both, {"x": 0})):
        with pytest.raises(ValueError):
            torch.vmap(func, (0, None), out_dims)(XS, WEIGHT)
        with pytest.raises(OptionError, match=r"out_dims=.* does not fit the result of"):
            autobatch.vmap(func, (0, None), out_dims)(XS, WEIGHT)
