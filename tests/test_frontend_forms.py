"""Corners of the language that the corpus leaves out, held to plain Python one thread at a time."""

# ruff: noqa: B023, C416, E731, F821, PLC3002

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest
import torch

import autobatch
from autobatch.frontend import lower_function
from autobatch.frontend.matching import class_attributes, mapping_values, sequence_length
from autobatch.ir.program import Function
from autobatch.passes import run_passes
from tests.one_thread import run_thread

events: list[Any] = []
HOST = ("note", "level")


def note(value: Any) -> Any:
    """An effect that a test can see; runs as plain Python."""
    events.append(value)
    return value


@contextmanager
def level(name: str) -> Any:
    note(f"enter {name}")
    yield name.upper()
    note(f"exit {name}")


@cache
def lowered(func: FunctionType) -> Function:
    return run_passes(lower_function(func))


def lookup(func: FunctionType) -> Function | None:
    own = func.__module__ in (__name__, sequence_length.__module__)
    inner = func.__code__.co_filename.endswith(("test_frontend_forms.py", "matching.py"))
    return lowered(func) if own and inner and func.__name__ not in HOST else None


def outcome(run: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    events.clear()
    own = copy.deepcopy(args)
    try:
        result = run(*own)
    except Exception as error:
        return "raised", type(error), str(error), repr(own), list(events)
    return "returned", repr(result), repr(own), list(events)


def holds(func: Callable[..., Any], *calls: tuple[Any, ...]) -> None:
    """``func`` lowered does what it does in Python, for each tuple of arguments."""
    assert isinstance(func, FunctionType)
    for args in calls:
        actual = outcome(lambda *own: run_thread(lowered(func), func, own, lookup=lookup), args)
        assert actual == outcome(func, args)


@dataclass
class Circle:
    radius: int


class Plain:
    kind = "plain"


def matching(value):
    match value:
        case True | None:
            return "singleton"
        case 0 | 1 | -1 as small:
            return "small", small
        case "abc" | "abd":
            return "literal"
        case str(text) | bytes(text):
            return "text", text
        case []:
            return "empty"
        case [1, "z", _]:
            return "z"
        case [[a, b], c] | [a, b, c] if note(a) != 9:
            return "three", a, b, c
        case [only] | (only, 2):
            return "one", only
        case [first, *rest] if first or note(rest):
            return "many", first, rest
        case [*_]:
            return "sequence"
        case {"k": 1}:
            return "k one"
        case {"k": v, **rest}:
            return "k", v, rest
        case {}:
            return "mapping"
        case Circle(radius=r) if r < 0:
            return "negative", r
        case Circle(r):
            return "circle", r
        case Plain(kind=k, missing=m):
            return k, m
        case Plain(kind="plain"):
            return "plain"
        case int() | float():
            return "number"
    return "other"


def bad_match(value):
    match value:
        case int(a, b):
            return a, b
        case Plain(a):
            return a
        case Circle(a, b):
            return a, b


SUBJECTS = [
    *(0, 1, 2, -1, True, None, "a", "abc", 2.5, b"x", range(4), {3}),
    *([], [1], [1, 2], (3, 4, 5), [[1, 2], 3], [1, "z", 9], [9, 8, 7], [0, 0, 0, 0]),
    *({"k": 1}, {"k": 5, "l": 2}, {}, Circle(3), Circle(-3)),
]


@pytest.mark.parametrize("subject", SUBJECTS, ids=repr)
def test_match(subject) -> None:
    holds(matching, (subject,))


def test_match_on_classes() -> None:
    assert run_thread(lowered(matching), matching, (Plain(),), lookup=lookup) == "plain"
    for subject in (Circle(3), Plain(), 3):
        made = lowered(bad_match)
        with pytest.raises(TypeError) as expected:
            bad_match(subject)
        with pytest.raises(TypeError) as actual:
            run_thread(made, bad_match, (subject,), lookup=lookup)
        assert str(actual.value) == str(expected.value)


def test_questions_of_patterns() -> None:
    assert [sequence_length(x) for x in ([1], (), "ab", {1}, range(3))] == [1, 0, -1, -1, 3]
    assert mapping_values({"a": 1}, ("a",)) == (1,) and mapping_values([], ()) is None
    assert class_attributes(3, int, 1, ()) == (3,)
    assert class_attributes(3, str, 0, ()) is None
    with pytest.raises(TypeError, match="must be a class"):
        class_attributes(3, 4, 0, ())  # type: ignore[arg-type]


def test_order_of_unbound_reads() -> None:
    def pair(xs):
        for x in xs:
            y = x
        return note(1), y, note(2), undefined_name

    def product(xs, n):
        if n:
            scale = 2
        return scale * note(n)

    holds(pair, ([],), ([1],))
    holds(product, ([], 0), ([], 3))


def test_first_items() -> None:
    def firsts(xs):
        return (
            next((note(x) for x in xs if x > 1), "none"),
            next(x for x in xs),
            next((y for x in xs for y in x), note(3)) if isinstance(xs[0], list) else None,
        )

    holds(firsts, ([1, 2, 3],), ([],), ([[], [5]],))


def test_items_under_a_name_and_numbered_items_are_made_for_all_threads_at_once() -> None:
    def summed(x, n):
        items = (x * k for k in range(4))
        x = x + next(items)
        for i, item in enumerate(y + n for y in (1, 2, 3)):
            if item > 3:
                break
            x = x + i * item
        return x + sum(items)

    xs, ns = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.0, 1.0, 5.0])
    expected = [summed(x, n) for x, n in zip(xs, ns, strict=True)]
    for engine in ("stackless", "program_counter"):
        together = autobatch.vmap(summed, engine=engine, fallback="error")
        assert together(xs, ns).tolist() == torch.stack(expected).tolist()


def test_generators_handed_on() -> None:
    def consumed(xs):
        items = (note(x) + 1 for x in xs)
        return (
            min((-x for x in xs), key=lambda v: v, default="empty"),
            frozenset(x for x in xs),
            list(enumerate(x for x in xs)),
            list(map(str, (x for x in xs))),
            "".join(str(x) for x in xs),
            "+".join([str(x) for x in xs]),
            list(items),
            sum(x for x in xs) + sum((x for x in xs), start=0.5),
        )

    def wrong(xs):
        return any((x for x in xs), 1)

    holds(consumed, ([3, 1],), ([],))
    holds(wrong, ([],))


def test_captures_of_comprehensions() -> None:
    def captured(n):
        late = [lambda: (i, j, n) for i in range(n) for j in "ab"]
        inner = [[lambda: (i, k) for k in range(2)] for i in range(2)]
        found = {i: (lambda: i) for i in range(n)}
        n += 10
        return late[0](), [[f() for f in row] for row in inner], found[0]()

    def first_iterable(n):
        return [n for n in (lambda: range(n))()], n, [f() for f in [lambda: n]]

    holds(captured, (3,))
    holds(first_iterable, (3,))


def test_targets() -> None:
    def stores(n):
        data, holder = [0, 0, 0], SimpleNamespace()
        i, data[i if n < 0 else n] = 1, 7
        for data[0], holder.x in [(note(4), note(5))]:
            note(list(data))
        (holder.a, [data[1], *rest]), holder.b = (1, "xyz"), data
        holder.a += data.pop()
        with level("w") as holder.c, level("v") as (holder.d, *_):
            note(holder.c)
        del (holder.a, [data[0]])
        return data, rest, vars(holder)

    holds(stores, (1,), (2,), (9,))


def test_empty_with_and_return_inside() -> None:
    def inside(n):
        with level("a"):
            pass
        with level("b") as b:
            return b, n

    holds(inside, (1,))


class Shape:
    __count = 3

    def __init__(self, size):
        self.__size = size

    def area(self, scale=1):
        __local = self.__size * scale
        total = [__local + __i for __i in range(self.__count)]

        def __nested(__x, **kw):
            return __x + __local, kw

        return total, __nested(1, __k=2), self.__private(scale)

    def __private(self, n):
        return __class__.__name__, n

    def describe(self):
        return "shape"


class Square(Shape):
    def describe(self):
        def explicit():
            return super(Square, self).describe()

        implicit = super().describe
        return implicit(), explicit(), [super(Square, self).describe() for _ in range(2)]


def test_private_names_and_super() -> None:
    def shapes(n):
        square = Square(n)
        return square.area(2), square.describe()

    def misplaced(n):
        return super().describe()

    holds(shapes, (3,))
    assert outcome(misplaced, (1,))[1] is RuntimeError
    with pytest.raises(RuntimeError):
        run_thread(lowered(misplaced), misplaced, (1,), lookup=lookup)


def test_imports() -> None:
    def imported(n):
        import os.path  # noqa: PLC0415
        import xml.etree.ElementTree as tree  # noqa: PLC0415
        from os import path as p  # noqa: PLC0415

        if n:
            import math  # noqa: PLC0415
        return os.path is p, tree.__name__, math.pi

    holds(imported, (1,), (0,))


def test_lowering_twice_keeps_what_is_nested() -> None:
    def outer(n):
        if n:
            f = lambda: n
        g = lambda: f() + 1
        return g(), f()

    holds(outer, (2,))
    made = lower_function(outer)
    assert len(made.nested) == 2
