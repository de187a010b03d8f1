"""Calls that run as one see what they were called with, and what they write comes in its place.

Threads' own objects (lists of unlike elements, say) are not copied where a call is noted: the calls
come before what would write them, and those that turn out to write them run one after the other.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch
from tests.generator.orders import Orders
from tests.generator.record import load_module

NUMBERS = torch.tensor([3, 2, 0])
ROWS = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
LISTS: tuple[list[list[Any]], ...] = ([[1], [2, 3], [4]], [[1], [2, "a"], [5, None]])
EXECUTORS = ({"executor": "vmap"}, {"executor": "traced", "trace_after": 0})
COUNT = itertools.count()

FUNCTIONS = """
def adds(n, xs):
    if n < 0:
        return adds(n + 1, xs)
    xs += [n]
    return n


def appends(n, xs):
    if n < 0:
        return appends(n + 1, xs)
    xs.append(n)
    return n


def size(n, xs):
    if n < 0:
        return size(n + 1, xs)
    return len(xs) + n


def left(n, xs):
    if n < 0:
        return left(n + 1, xs)
    return len(list(xs)) + n


def made(function):
    def inner(n, xs):
        return 0 if n <= 0 else function(n, xs) + inner(n - 1, xs)

    return inner


adding = made(adds)
wrapped = made(adding)


class Acc:
    def __init__(self, xs):
        self.xs = xs
        self.count = 0


class Told:
    def __init__(self, xs):
        self.xs = xs

    @property
    def last(self):
        self.xs.append(0)
        return 1

    def __getattr__(self, name):
        self.xs.append(0)
        return name

    def __lt__(self, other):
        self.xs.append(0)
        return True


def counts(n, o):
    if n < 0:
        return counts(n + 1, o)
    xs = o.xs
    xs += [n]
    return n


def program(n, xs):
    BODY
"""
BODIES = {
    "closures_of_one_code": "return wrapped(n, xs) + wrapped(n + 1, xs)",
    "of_an_own_list": "xs = [0]\nreturn wrapped(n, xs) + wrapped(n + 1, xs), str(xs)",
    "read_between": "a = adds(n, xs)\nk = len(xs)\nreturn a + adds(n + 1, xs), k",
    "called_between": "a = size(n, xs)\nc = appends(n, xs)\nreturn a, size(n, xs), c",
    "added_between": "a = size(n, xs)\nadds(n, xs)\nreturn a, size(n, xs)",
    "appended_between": "a = size(n, xs)\nxs.append(1)\nreturn a, size(n, xs)",
    "by_a_bound_method": "add, a = xs.append, size(n, xs)\nadd(1)\nreturn a, size(n, xs)",
    "in_place_between": "a = size(n, xs)\nxs += [1]\nreturn a, size(n, xs)",
    "by_a_method_that_is_handed_over": (
        "a = size(n, xs)\nlist(map(xs.append, [1, 2]))\nreturn a, size(n, xs)"
    ),
    "by_what_is_gone_through": (
        "m = map(xs.append, [1, 2, 3])\na = size(n, xs)\nnone, *rest = m\nreturn a, size(n, xs)"
    ),
    "by_a_function_that_is_handed_over": (
        "add = lambda v: xs.append(v) or v\na = size(n, xs)\nsorted([3, 1], key=add)\n"
        "return a, size(n, xs)"
    ),
    "by_methods_that_python_calls": (
        "o, p = Told(xs), Told(xs)\na = size(n, xs)\nsorted([o, p])\nb = size(n, xs)\no.last\n"
        "c = size(n, xs)\no.none\nreturn a, b, c, size(n, xs)"
    ),
    "of_an_iterator": "it = iter(xs)\nreturn left(n, it), left(n + 5, it)",
    "of_an_enumeration": "it = enumerate(xs)\nreturn left(n, it), left(n + 5, it)",
    "of_an_iterator_of_a_loop": (
        "it, t = iter(xs), 0\nfor i in range(3):\n    t = 10 * t + left(i, it)\nreturn t"
    ),
    "of_what_is_an_iterator_at_last": (
        "t, ys = 0, [0]\nfor i in range(4):\n    t = 10 * t + left(i, ys)\n"
        "    if i == 1:\n        ys = enumerate(xs)\nreturn t"
    ),
    "deleted_between": "a = size(n, xs)\ndel xs[0]\nreturn a, size(n, xs)",
    "within_another": "ys = [xs, 1]\na = size(n, xs)\nys[0].append(2)\nreturn a, size(n, xs)",
    "by_a_list_of_functions": (
        "fs = [appends, size]\na = size(n, xs)\nb = fs[n % 2](n, xs)\nreturn a, b, size(n, xs)"
    ),
    "in_a_loop": "t = 0\nfor i in range(3):\n    t += size(i, xs)\n    appends(i, xs)\nreturn t",
    "with_what_it_gives": (
        "t = 0\nfor i in range(3):\n    t += size(i, xs)\n    adds(t, xs)\n    t += size(i, xs)\n"
        "return t"
    ),
    "with_what_it_gives_of_an_own_list": (
        "ys, t = [0], 0\nfor i in range(3):\n    t += size(i, ys)\n    adds(t, ys)\n"
        "    t += size(i, ys)\nreturn t, str(ys)"
    ),
    "in_what_waits": (
        "t = []\nfor i in range(2):\n    t = t + [size(i, xs)] + xs\n    appends(i, xs)\n"
        "return str(t)"
    ),
    "of_an_attribute": "o = Acc(xs)\na = counts(n, o)\nk = len(o.xs)\nreturn a + counts(n, o), k",
    "after_what_can_be_seen": (
        "seen(n)\na = adds(n, xs)\nk = len(xs)\nreturn a + adds(n + 1, xs), k"
    ),
}
"""Of functions that get a number and a list of the thread's own, and return the list, too."""


def source_of(body: str) -> str:
    """A program whose code nobody has seen before: what is known of functions is kept."""
    body = f"{body}, str(xs)".replace("\n", "\n    ")
    return FUNCTIONS.replace("BODY", body) + f"\n# {next(COUNT)}\n"


def assert_order(source: str, lists: list[Any], *more: torch.Tensor, **names: Any) -> None:
    module = load_module(source)
    vars(module).update(names)
    program: Callable[..., Any] = module.program
    numbers = NUMBERS.tolist()
    rows = zip(numbers, copy.deepcopy(lists), *(part.clone() for part in more), strict=True)
    want = [[told(part) for part in program(*row)] for row in rows]
    for options in EXECUTORS:
        given = autobatch.objects(copy.deepcopy(lists))
        batched = autobatch.vmap(program, scalars="python", plain="never", **options)
        got = batched(NUMBERS, given, *more)
        assert [[told(part[i]) for part in got] for i in range(len(want))] == want, options


def told(part: Any) -> Any:
    return part.tolist() if isinstance(part, torch.Tensor) else part


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "lists", [pytest.param(LISTS[0], marks=pytest.mark.slow), LISTS[1]], ids=["numbers", "mixed"]
)
@pytest.mark.parametrize("name", BODIES)
def test_the_order_of_writes_is_the_loops(name, lists):
    assert_order(source_of(BODIES[name]), lists, seen=autobatch.per_thread(lambda n: None))


@pytest.mark.parametrize(
    "seed",
    [25, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(400))],
)
def test_random_programs_write_in_the_order_of_the_loop(seed):
    source = Orders(seed).source() + f"\n# {next(COUNT)}\n"
    assert_order(source, LISTS[seed % 2], ROWS)
