"""Methods that Python calls within a host operation and that are seen to write are refused."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import functools
import heapq
import itertools
import json
import operator

import pytest
import torch

import autobatch

NUMBERS = torch.tensor([3, 1, 2])
LOG = []


class F:
    def __init__(s, v):
        s.v = v

    def __format__(s, spec):
        LOG.append(("f", int(s.v)))
        return "W" + spec


class S:
    def __init__(s, v):
        s.v = v

    def __str__(s):
        LOG.append(("s", int(s.v)))
        return "S"


class R:
    def __init__(s, v):
        s.v = v

    def __repr__(s):
        LOG.append(("r", int(s.v)))
        return "R"


class A:
    def __init__(s, v):
        s.v = v

    def __add__(s, o):
        LOG.append(("a", int(s.v)))
        return A(s.v + o.v)

    def __mul__(s, o):
        LOG.append(("m", int(s.v)))
        return A(s.v * o.v)


class L:
    def __init__(s, v):
        s.v = v

    def __lt__(s, o):
        LOG.append(("lt", int(s.v)))
        return bool(s.v < o.v)


class Q:
    def __init__(s, v):
        s.v = int(v)

    def __eq__(s, o):
        LOG.append(("eq", int(s.v)))
        return s.v == o.v

    def __hash__(s):
        return hash(s.v)


class Through:
    def __init__(s, v):
        s.v = v

    def __iter__(s):
        LOG.append(("it", int(s.v)))
        return iter([1])


class X:
    def __init__(s, v):
        s.v = v

    def __index__(s):
        LOG.append(("ix", int(s.v)))
        return 1


@dataclasses.dataclass
class D:
    a: object
    b: int


@dataclasses.dataclass
class DR:
    a: object


def in_an_f_string(n):
    w = F(n)
    f"{w}"
    f"{w}"
    return n


def by_str_format(n):
    w = F(n)
    f"{w}"
    f"{w}"
    return n


def by_name(n):
    w = F(n)
    f"{w:3}"
    "{a}".format_map({"a": w})
    return n


def by_place(n):
    w = [F(n)]
    f"{w[0]:3}"
    f"{w[0]:3}"
    return n


def str_in_a_join(n):
    w = [S(n), S(n + 1)]
    ",".join(map(str, w))
    return n


def str_mapped_before(n):
    w = [S(n), S(n + 1)]
    m = map(str, w)
    n = n + 1
    ",".join(m)
    return n


def repr_mapped(n):
    w = [R(n), R(n + 1)]
    ",".join(map(str, w))
    ",".join(map(repr, w))
    return n


def lists_as_text(n):
    w = [R(n), R(n + 1)]
    str(w)
    repr((w,))
    f"{w}"
    f"{w}"
    f"{w} {1}"
    return n


def printed(n):
    w = S(n)
    print(w)
    print(w)
    return n


def added_up(n):
    w = [A(n), A(n)]
    r = functools.reduce(operator.add, w)
    r = functools.reduce(operator.add, w)
    return r.v


def summed(n):
    w = [A(n), A(n)]
    r = sum(w, A(0))
    r = sum(w, A(0))
    return r.v


def multiplied(n):
    r = functools.reduce(operator.mul, map(A, [1, 2]), A(n))
    return r.v


def accumulated(n):
    w = [A(n), A(n)]
    return [x.v for x in itertools.accumulate(w)]


def starmapped(n):
    w = [A(n), A(n)]
    return [x.v for x in itertools.starmap(operator.add, [w, w])]


def added_by_map(n):
    return [w.v for w in map(operator.add, [A(n), A(n)], [A(n), A(n)])]


def sorted_(n):
    w = [L(n), L(n - 1)]
    r = sorted(w)
    r = sorted(w)
    return r[0].v


def least(n):
    w = [L(n), L(n - 1)]
    r = min(w)
    r = min(w)
    return r.v


def heaped(n):
    h = [L(n), L(n - 1)]
    heapq.heapify(h)
    heapq.heappush(h, L(n))
    return heapq.heappop(h).v


def smallest(n):
    return [v.v for v in heapq.nsmallest(1, [L(n), L(n - 1)])]


def merged(n):
    return [v.v for v in heapq.merge([L(n)], [L(n - 1)])]


def bisected(n):
    return bisect.bisect([L(n - 1), L(n + 1)], L(n))


def lists_compared(n):
    return [Q(n)] == [Q(n)]


def in_a_set(n):
    return len({Q(n), Q(n)})


def counted(n):
    return len(collections.Counter([Q(n), Q(n)]))


def records_compared(n):
    return D(Q(n), 1) == D(Q(n), 1)


def record_as_text(n):
    d = DR(R(n))
    str(d)
    f"{d}"
    repr(d)
    return n


def grouped(n):
    return len(list(itertools.groupby([Q(n), Q(n), Q(n + 1)])))


def mapped_over(n):
    return sum(map(int, Through(n)))


def into_a_slice(n):
    a = [1, 2]
    a[0:1] = Through(n)
    return a


def chained(n):
    return list(itertools.chain(Through(n), Through(n)))


def chained_within(n):
    return list(itertools.chain.from_iterable([Through(n), Through(n)]))


def into_a_deque(n):
    return collections.deque(Through(n))[0]


def reduced_over(n):
    return functools.reduce(operator.add, Through(n))


def into_a_range(n):
    return len(list(range(X(n))))


def added_up_of_own_length(n):
    w = []
    for i in range(n):
        w.append(A(i))
    return functools.reduce(operator.add, w).v


def joined_of_own_length(n):
    w = []
    for i in range(n):
        w.append(R(i))
    return ",".join(map(str, w))


def default_of_json(n):
    json.dumps([1, S(n)], default=str)
    return n


PROGRAMS = (
    in_an_f_string,
    by_str_format,
    by_name,
    by_place,
    str_in_a_join,
    str_mapped_before,
    repr_mapped,
    lists_as_text,
    printed,
    added_up,
    summed,
    multiplied,
    accumulated,
    starmapped,
    added_by_map,
    sorted_,
    least,
    heaped,
    smallest,
    merged,
    bisected,
    lists_compared,
    in_a_set,
    counted,
    records_compared,
    record_as_text,
    grouped,
    mapped_over,
    into_a_slice,
    chained,
    chained_within,
    into_a_deque,
    reduced_over,
    into_a_range,
    added_up_of_own_length,
    joined_of_own_length,
    default_of_json,
)


class Plain:
    def __init__(self, v):
        self.v = v

    def __str__(self):
        return f"<{self.v}>"

    def __format__(self, spec):
        return str(self) + spec

    def __add__(self, other):
        return Plain(self.v + other.v)

    def __lt__(self, other):
        return bool(self.v < other.v)


def quiet(n):
    w = [Plain(n.item()), Plain(n.item() + 1)]
    joined = ",".join(map(str, w))
    added = functools.reduce(operator.add, w)
    return (joined, f"{w[0]:>}", str(added), str(heapq.nsmallest(1, w)[0]), str(min(w)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "options", [{"executor": "vmap"}, {"trace_after": 0}, {"engine": "program_counter"}]
)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_method_that_writes_is_refused(program, options):
    LOG.clear()
    with pytest.raises(autobatch.AutobatchError, match="existed before the call") as caught:
        autobatch.vmap(program, **options)(NUMBERS)
    assert "LOG.append" in str(caught.value)
    assert LOG == []


def test_methods_that_write_nothing_are_not():
    expected = [quiet(n) for n in NUMBERS]
    assert autobatch.vmap(quiet)(NUMBERS) == tuple(map(list, zip(*expected, strict=True)))
