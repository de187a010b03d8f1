"""Writes to what existed before the call that host code makes, or Python by itself: refused.

Each program is held to three things: it is refused with its place, nothing has been written then,
and under ``stateful="sequential"`` it does what the loop does.
"""

from __future__ import annotations

import collections
import enum
import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch
from tests.outside_world import program
from tests.sweeps import case


class Color(enum.Enum):
    RED = 1


class Box:
    items: list[Any] = []  # noqa: RUF012


class Hooked:
    def __init_subclass__(cls, **kwargs: Any) -> None:
        SEEN.append(cls.__name__)


class Meta(type):
    def __call__(cls, *args: Any) -> Any:
        SEEN.append("call")
        return super().__call__(*args)

    def __instancecheck__(cls, item: Any) -> bool:
        SEEN.append("check")
        return True

    def __contains__(cls, item: Any) -> bool:
        SEEN.append("contains")
        return True

    def __getattr__(cls, name: str) -> int:
        SEEN.append(name)
        return 2


class Made(metaclass=Meta):
    def __init__(self, x: Any) -> None:
        self.x = x


class Telling:
    """Each use of it writes what it holds."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def put(self, value: Any) -> None:
        self.log.append("put")

    def __lt__(self, other: Any) -> bool:
        self.log.append("lt")
        return True

    def __call__(self, value: Any) -> Any:
        self.log.append("call")
        return value

    def __eq__(self, other: object) -> bool:
        self.log.append("eq")
        return True

    __hash__ = object.__hash__

    def __str__(self) -> str:
        self.log.append("str")
        return "s"

    def __index__(self) -> int:
        self.log.append("index")
        return 0

    def __iter__(self) -> Any:
        self.log.append("iter")
        return iter([1.0])

    def __float__(self) -> float:
        self.log.append("float")
        return 1.0

    def __radd__(self, other: Any) -> Any:
        self.log.append("radd")
        return other

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__":
            raise AttributeError(name)
        SEEN.append(name)
        return 1.0


SEEN: list[Any] = []
TABLE: dict[Any, Any] = {}
LISTS: list[list[Any]] = [[], []]
POINT = type("Point", (), {})()
TELLING, OTHER = Telling(), Telling()


def key(value: Any) -> Any:
    SEEN.append(value)
    return value


def through(value: Any) -> Any:
    return key(value)


@functools.lru_cache
def cached(number: int) -> list[int]:
    return [number]


@functools.cache
def counted(number: int) -> int:
    SEEN.append(number)
    return number


BODIES = (
    *("sorted([x, 1.0], key=key)", "min([x, 1.0], key=key)", "max([x, 1.0], key=through)"),
    *("[x, 1.0].sort(key=key)", "list(map(key, [x]))", "list(filter(through, [x]))"),
    "functools.reduce(lambda a, b: SEEN.append(b), [x, 2.0])",
    "functools.reduce(lambda a, b: a, [LISTS[0], 1]).append(x)",
    "list(itertools.accumulate([LISTS[0], 1], lambda a, b: a))[0].append(x)",
    "[r.append(x) for r in itertools.chain(LISTS)]",
    "[r.append(x) for r in itertools.islice(LISTS, 1)]",
    *("Color(1).seen.append(x)", "Color['RED'].seen.append(x)", "setattr(Color(1), 'n', 3)"),
    *("[c.seen.append(x) for c in Color]", "getattr(Box, 'items').append(x)"),
    *("operator.attrgetter('items')(Box).append(x)", "operator.itemgetter(0)(LISTS).append(x)"),
    "collections.defaultdict(lambda: TABLE)['a'].update({'k': 1})",
    "collections.defaultdict(lambda: LISTS[0])[1].append(x)",
    "collections.defaultdict(lambda: key(0))[1]",
    *("key.__call__(0)", "list(map(key.__call__, [0]))"),
    "operator.setitem(collections.ChainMap(TABLE), 'q', 1)",
    *("type('Sub', (Hooked,), {})", "Made(x)", "isinstance(x, Made)", "3 in Made", "Made.foo"),
    *("operator.setitem(TABLE, 'a', 1)", "list(map(operator.setitem, [TABLE], ['a'], [1]))"),
    *("list(map(setattr, [POINT], ['w'], [1]))", "list(map(list.append, LISTS, [1]))"),
    *("list(map(Telling.put, [TELLING], [1]))", "TABLE.setdefault('a', 1)"),
    *("{}.setdefault('a', LISTS[0]).append(x)", "functools.partial(SEEN.append, 1)()"),
    *("cached(1).append(2)", "counted(1)", "sorted([TELLING, OTHER])", "sorted([x], key=TELLING)"),
    *("TELLING in [OTHER]", "str(TELLING)", "'%s' % TELLING", "[1.0][TELLING]", "sum(TELLING)"),
    *("list(TELLING)", "float(TELLING)", "x.item() + TELLING", "TELLING.zzz", "[*TELLING]"),
    *("hasattr(TELLING, 'foo')", "[TELLING].count(OTHER)", "list(itertools.chain(TELLING))"),
)
MODULES = (collections, itertools, operator)
"""Of what is in the bodies only."""
NAMES = {name: found for name, found in globals().items() if name[:1] != "_"}
WAYS = (
    {"engine": "sequential"},
    {"executor": "vmap"},
    {"executor": "traced", "trace_after": 0, "plain": "never"},
    {"engine": "program_counter", "executor": "vmap"},
    {},
)


def clear() -> None:
    for each in (SEEN, TABLE, Box.items, TELLING.log, OTHER.log):
        each.clear()  # type: ignore[attr-defined]
    LISTS[:] = [[], []]
    vars(POINT).clear()
    Color.RED.seen = []  # type: ignore[attr-defined]
    Color.RED.n = 0  # type: ignore[attr-defined]
    cached.cache_clear()
    counted.cache_clear()


def state() -> str:
    red = Color.RED.seen, Color.RED.n  # type: ignore[attr-defined]
    logs = TELLING.log, OTHER.log, list(cached(1))
    return repr((SEEN, TABLE, Box.items, LISTS, vars(POINT), red, logs))


def made(body: str) -> Callable[..., Any]:
    return program(f"host writes {body}", [body, "return x"], NAMES)


@pytest.mark.parametrize(
    "body", [case(body, name=body, default=at % 3 == 0) for at, body in enumerate(BODIES)]
)
def test_a_write_is_refused_or_done_as_in_the_loop(body: str) -> None:
    func, xs = made(body), torch.tensor([1.5, -2.0, 3.0])
    clear()
    before = state()
    for x in xs:
        func(x)
    after = state()
    assert after != before, "the loop writes nothing here"
    for way in WAYS:
        clear()
        state()
        with pytest.raises(autobatch.AutobatchError, match=r"existed before the call[\s\S]*\^"):
            autobatch.vmap(func, **way)(xs)
        assert state() == before, way
    for way in WAYS[:2]:
        clear()
        state()
        autobatch.vmap(func, stateful="sequential", **way)(xs)
        assert state() == after, way


READS = (
    "sorted([x, 1.0], key=abs)",
    "hash(TELLING)",
    "isinstance(TELLING, Telling)",
    "{key: 1}",
    "sorted([1, 3, 2], key=functools.cmp_to_key(lambda p, q: q - p))",
    "[x, 1.0].sort(key=functools.cmp_to_key(lambda p, q: int(q - p)))",
)


@pytest.mark.parametrize("body", READS)
def test_what_writes_nothing_is_not_refused(body: str) -> None:
    func, xs = made(body), torch.tensor([1.5, -2.0])
    for way in WAYS:
        clear()
        assert torch.equal(autobatch.vmap(func, **way)(xs), xs)


class Asked:
    """To compare it fails, and so would a look for it in a table."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("compared")

    def __hash__(self) -> int:
        return 3

    def __call__(self, y: int) -> int:
        return y + 1


def test_what_is_called_is_not_compared() -> None:
    def func(x: Any) -> Any:
        return sum(map(Asked(), [1, 2])) + x

    for way in WAYS:
        for _ in range(2):
            assert torch.equal(autobatch.vmap(func, **way)(torch.arange(3)), torch.arange(5, 8))
