"""``functools.partial`` in a program: what it makes is called as the function would be."""

from __future__ import annotations

import functools
from functools import partial

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

XS, KS = torch.arange(4.0), torch.tensor([0, 1, 0, 1])
SEEN: list[torch.Tensor] = []
LAYER = torch.nn.Linear(1, 1)


def scaled(v, s=1.0, t=0.0):
    return v * s + t if v > 1 else v


class Line:
    def __init__(self, slope):
        self.slope = slope

    def at(self, x, offset):
        return x * self.slope + offset


def of_a_lambda(x, k):
    return partial(lambda a, b: a * b, x)(k)


def of_a_partial(x, k):
    inner = functools.partial(scaled, s=x)
    outer = partial(inner, t=k)
    return inner(k) + outer(x, s=2.0) + outer.func(x, **outer.keywords) + len(inner.args)


def of_a_method(x, k):
    return partial(Line(x).at, offset=1)(k) + partial(Line, 3)().slope


def of_what_torch_has(x, k):
    return partial(LAYER)(x[None]).sum() + partial(torch.add, alpha=2)(x, k)


def of_builtins(x, k):
    return partial(int, base=2)("101") + x + partial(max, 3)(int(k))


def that_reads_a_variable(x, k):
    n = x
    late = partial(lambda v: v + n, x)
    n = n * 3
    return late()


def on_some_ways(x, k):
    call = partial(lambda v: v + x, k) if x > 1 else (lambda: x)
    return call()


def in_a_table(x, k):
    table = [partial(scaled, s=float(i)) for i in range(3)]
    return table[k](x) + sum(each(x) for each in table)


def that_writes(x, k):
    found, t = [], torch.zeros(2)
    keep, both = partial(found.append), partial(lambda a, b: a.append(b), found)
    for i in range(3):
        keep(x + i)
        if x > 1:
            both(k)
            partial(t.add_, 1)()
    return sum(found), t


def that_recurs(x, k):
    def deeper(d, n):
        return 0 if n <= 0 else 1 + deeper(d, n - d) + partial(deeper, d)(n - 2 * d)

    return deeper(1, int(x) + 2)


def handed_to_python(x, k):
    key = partial(lambda sign, v: sign * v, -1)
    return sorted([3, 1, int(k)], key=key)[0], sum(map(partial(scaled, t=x), [x, k]))


def that_fails(x, k):
    return partial(lambda v: 1 / int(v), k)()


def with_too_many(x, k):
    return partial(scaled, 1, 2)(x, k, 5)


def seen(x, k):
    call = partial(scaled)
    return isinstance(call, partial), type(call) is partial, call.func is scaled


PROGRAMS = [
    *(of_a_lambda, of_a_partial, of_a_method, of_what_torch_has, of_builtins),
    *(that_reads_a_variable, on_some_ways, in_a_table, that_writes, that_recurs),
    *(handed_to_python, that_fails, with_too_many, seen),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_partial_call(program):
    assert_matches_loop(program, (XS, KS))


@pytest.mark.parametrize("program", [of_a_lambda, of_a_method, that_reads_a_variable])
def test_threads_stay_together(program):
    with autobatch.counts() as counts:
        autobatch.vmap(program, fallback="error", plain="never")(XS, KS)
    assert counts.by_thread == 0


def test_it_is_what_python_has():
    made = autobatch.vmap(lambda x: partial(scaled, x, t=2))(XS)
    assert all(type(each) is partial and each.func is scaled for each in made)
    assert [each.args for each in made] == [(x,) for x in XS]
    assert made[0].keywords == {"t": 2}


@pytest.mark.parametrize("write", [partial(SEEN.append), partial(list.append, SEEN)])
def test_a_write_to_what_was_there_is_refused(write):
    with pytest.raises(autobatch.SharedWriteError):
        autobatch.vmap(lambda x: partial(write)(x))(XS)
    assert not SEEN
