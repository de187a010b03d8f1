"""``table[k](x)``: each thread calls what its own index picks of functions that a program made."""

from __future__ import annotations

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

XS, KS = torch.arange(4.0), torch.tensor([0, 1, 0, 1])


def of_lambdas(x, k):
    return [lambda v: v * 2, lambda v: v if v > 1 else -v][k](x)


def by_key(x, k):
    table = {"a": lambda v: v + x, "b": lambda v: v * x}
    return table["ab"[int(k)]](x)


def with_defaults(x, k):
    return [lambda v, s=s: v * s for s in (1.5, 2.5)][k](x)


def called_with_more(x, k):
    n = x * 2
    table = [lambda v, s=3.0: v * s + n, lambda v, s=2: v + s * n if v > 1 else n]
    n = n + 1
    y = table[k](x)
    n = n * 10
    return y + table[k](x, s=k)


def that_write(x, k):
    found = []
    table = [lambda v: found.append(v), lambda v: found.append(-v)]
    for i in range(3):
        table[k](x + i)
        table[(k + i) % 2](x)
    return torch.stack(found)


def scaled(s):
    def inner(v):
        return v * s if v > 1 else v

    return inner


def made_elsewhere(x, k):
    table = [scaled(x), scaled(k), scaled(3)]
    return table[k](x) + table[k + 1](x)


def that_recur(x, k):
    def deeper(n):
        return x if n <= 0 else deeper(n - 1) + 1

    def itself(n):
        return n

    return [deeper, itself][k](x)


def that_fail(x, k):
    return [lambda: 1 / (x - 2), lambda: 1 / int(x - 1)][k]()


def bound(x, k):
    class_of = [float.__mul__, float.__add__]
    return class_of[k](2.0, x.item())


PROGRAMS = [
    *(of_lambdas, by_key, with_defaults, called_with_more, that_write, made_elsewhere, that_recur),
    *(that_fail, bound),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_functions_of_a_table(program):
    assert_matches_loop(program, (XS, KS))


@pytest.mark.parametrize("program", [of_lambdas, with_defaults])
def test_threads_that_pick_one_function_call_it_together(program):
    run = autobatch.vmap(program, fallback="error", plain="never")
    xs, ks = XS.repeat(8), KS.repeat(8)
    with autobatch.counts() as few:
        run(XS, KS)
    with autobatch.counts() as many:
        assert torch.equal(run(xs, ks)[:4], run(XS, KS))
    assert many.block_executions == 2 * few.block_executions
