"""What host code keeps, and objects that are asked for numbers: as the loop has it, or refused."""

from __future__ import annotations

import functools
import itertools
import random

import numpy as np
import pytest
import torch

import autobatch
from autobatch.errors import AutobatchError, SharedWriteError, UnsupportedError

SIZES = [1, 2, 7]


@functools.lru_cache
def kept(size):
    return torch.zeros(size)


class Keeping:
    @functools.cache  # noqa: B019
    def kept(self, size):
        return torch.zeros(size)


KEEPING, PARTIAL = Keeping(), functools.partial(kept, 3)


def adds(x):
    t = kept(3)
    t += x
    return t * 1


def sets(x):
    t = kept(3)
    t[0] = x
    return t.sum()


def writes_a_view(x):
    kept(3).view(3).mul_(x)
    return x


def writes_out(x):
    t = kept(3)
    torch.add(t, x, out=t)
    return t * 1


def of_a_method(x):
    t = KEEPING.kept(2)
    t += x
    return t * 1


def by_partial(x):
    t = PARTIAL()
    t += x
    return t * 1


def asks_the_cache(x):
    kept(3)
    return x + kept.cache_info().hits


def seeds_pythons(x):
    random.seed(3)
    return x + random.random()


def seeds_numpys(x):
    np.random.seed(int(x))
    return x + np.random.rand()


STREAM = random.Random(1)


def seeds_one_that_existed(x):
    STREAM.seed(int(x))
    return x + STREAM.randint(0, 9)


GIVEN = np.random.PCG64(1)


def sets_ahead(x):
    GIVEN.advance(3)
    return x


WRITES = [adds, sets, writes_a_view, writes_out, of_a_method, by_partial, asks_the_cache]
WRITES += [seeds_pythons, seeds_numpys, seeds_one_that_existed, sets_ahead]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("f", WRITES)
def test_a_write_to_what_is_kept_is_refused(f, size):
    with autobatch.counts(), pytest.raises(SharedWriteError, match=r"\^"):
        autobatch.vmap(f)(torch.arange(1.0, size + 1))
    assert kept(3).tolist() == [0, 0, 0]


def reads_the_cache(x):
    return kept(3) + x


@pytest.mark.parametrize("size", SIZES)
def test_what_is_kept_is_read(size):
    xs = torch.arange(1.0, size + 1)
    with autobatch.counts():
        result = autobatch.vmap(reads_the_cache)(xs)
    torch.testing.assert_close(result, torch.stack([reads_the_cache(x) for x in xs]))


T = torch.zeros(2)


def takes_memory(x):
    y = torch.zeros(2)
    y.set_(T)
    y += x
    return y * 1


@pytest.mark.parametrize("size", SIZES)
def test_set_is_refused(size):
    with autobatch.counts(), pytest.raises(UnsupportedError, match=r"another \(`set_`\)"):
        autobatch.vmap(takes_memory)(torch.arange(1.0, size + 1))
    assert T.tolist() == [0, 0]


def draws_from_its_own(x):
    stream = np.random.PCG64(1)
    stream.advance(int(x))
    return x + stream.random_raw() % 100


@pytest.mark.parametrize("size", SIZES)
def test_a_bit_generator_that_a_thread_makes_is_its_own(size):
    xs = torch.arange(1.0, size + 1)
    with autobatch.counts():
        result = autobatch.vmap(draws_from_its_own)(xs)
    assert result.tolist() == [draws_from_its_own(x).item() for x in xs]


class Counting:
    """Each time that it is asked it is one more, by what no one looks into."""

    def __init__(self):
        self.numbers = itertools.count(1)

    def __index__(self):
        return next(self.numbers)


class Stepping:
    def __init__(self):
        self.number = 0

    def __index__(self):
        self.number += 1
        return self.number


def item(x, c):
    return torch.arange(90.0)[c] * x


def part(x, c):
    return torch.arange(90.0)[:c].sum() + x


def put(x, c):
    y = torch.zeros(90)
    y[c] = x
    return y


def size(x, c):
    return x + torch.ones(c).sum()


def repeated(x, c):
    return x.repeat(c).sum()


def of_list(x, c):
    values = [x * n for n in range(90)]
    return values[c]


def of_slice(x, c):
    return x + len(list(range(90))[:c])


def into_list(x, c):
    values = list(range(90))
    values[c] = 0
    return x + sum(values)


ASKING = [item, part, put, size, repeated, of_list, of_slice, into_list]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("trace_after", [0, 100])
@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("f", ASKING)
def test_what_is_asked_for_a_number_is_asked_in_the_order_of_the_loop(f, count, trace_after):
    xs, own = torch.arange(1.0, count + 1), Counting()
    expected = torch.stack([f(x, own) for x in xs])
    own = Counting()
    with autobatch.counts():
        result = autobatch.vmap(f, in_dims=(0, None), trace_after=trace_after)(xs, own)
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("f", ASKING)
def test_one_that_writes_when_asked_is_refused(f):
    own = Stepping()
    with autobatch.counts(), pytest.raises(AutobatchError, match=r"\^"):
        autobatch.vmap(f, in_dims=(0, None))(torch.arange(1.0, 4.0), own)
    assert own.number == 0


ARRAY, BYTES = np.zeros(2, np.float32), bytearray(8)
VIEW = memoryview(BYTES)


def of_an_array(x):
    t = torch.from_numpy(ARRAY)
    t += x
    return t * 1


def through_a_slice(x):
    part = VIEW[1:3]
    part[0] = int(x)
    return x + VIEW[1]


@pytest.mark.parametrize("options", [{}, {"executor": "compiled"}])
@pytest.mark.parametrize("f", [of_an_array, through_a_slice])
def test_writes_to_buffers_that_existed_are_refused(f, options):
    with pytest.raises(SharedWriteError, match=r"\^"):
        autobatch.vmap(f, **options)(torch.arange(1.0, 4.0))
    assert ARRAY.tolist() == [0, 0] and not any(BYTES)
