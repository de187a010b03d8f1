"""Effects in what Python calls by itself, of an object that all threads share: the loop's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch
from tests.outside_world import program

CONFIGURATIONS = (
    {"executor": "vmap"},
    {"executor": "traced", "trace_after": 0},
    {"engine": "program_counter", "executor": "traced", "trace_after": 0},
    {"engine": "program_counter", "executor": "vmap"},
    {"engine": "sequential"},
)
OUTPUT: list[str] = []


@autobatch.per_thread
def shown(name: str) -> int:
    OUTPUT.append(name)
    return len(OUTPUT)


class Talking:
    """Each use leaves a trace outside of it."""

    @property
    def p(self):
        return shown("p")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return shown(name)

    def __len__(self):
        return shown("len")

    def __bool__(self):
        return shown("bool") % 2 == 0

    def __str__(self):
        return f"str{shown('str')}"

    def __repr__(self):
        return f"repr{shown('repr')}"

    def __format__(self, spec):
        return f"format{shown('format')}"

    def __iter__(self):
        yield shown("iter")

    def __eq__(self, other):
        return shown("eq") == 2

    __hash__ = object.__hash__

    def __lt__(self, other):
        return shown("lt") == 2

    def __contains__(self, item):
        return shown("contains") == 2

    def __getitem__(self, index):
        try:
            return shown("getitem")
        finally:
            pass

    def __add__(self, other):
        return shown("add")

    def __int__(self):
        return shown("int")


class Counting(Talking):
    """Each use writes it."""

    def __init__(self):
        self.n = 0

    @property
    def p(self):
        self.n += 1
        return self.n

    def __len__(self):
        self.n += 1
        return self.n

    def __bool__(self):
        self.n += 1
        return self.n % 2 == 0

    def __str__(self):
        self.n += 1
        return f"str{self.n}"

    def __eq__(self, other):
        self.n += 1
        return self.n == 2

    __hash__ = object.__hash__

    def __getitem__(self, index):
        self.n += 1
        return self.n

    def __add__(self, other):
        self.n += 1
        return self.n

    def __call__(self):
        self.n += 1
        return self.n

    def method(self):
        self.n += 1
        return self.n


READS = (
    *("c.p", "len(c)", "x if c else -x", "str(c)", "repr(c)", "f'{c}'", "format(c)", "'%s' % c"),
    *("'{}'.format(c)", "list(c)[0]", "sum(v for v in c)", "c.other", "c == 3", "c < 1", "3 in c"),
    *("c[0]", "c + 1", "int(c)", "not c", "bool(c)", "getattr(c, 'p')", "[c] == [3]", "str([c])"),
    *(
        "max([c, c]) is c",
        "hasattr(c, 'q')",
        "sorted(c)[0]",
        "tuple(c)[0]",
        "(lambda y, *z: y)(*c)",
    ),
    *("getattr(c, 'other', 3)", "[v for v in c][0]"),
)
REFUSED = (
    *("c.p", "len(c)", "x if c else -x", "c == 3", "c[0]", "c + 1", "not c", "bool(c)", "c()"),
    *("c.method()", "getattr(c, 'p')", "str(c)", "'%s' % c", "'{}'.format(str(c))", "str([c])"),
)


def made(body: str, names: dict[str, Any]) -> Callable[..., Any]:
    """A function of ``x`` that returns what ``body`` gives, with source."""
    return program(f"hidden {body}", [f"return {body}"], names)


def outcome(run: Callable[[], Any]) -> tuple[Any, list[str]]:
    OUTPUT.clear()
    result = run()
    return [getattr(item, "tolist", lambda item=item: item)() for item in result], [*OUTPUT]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("body", READS)
def test_each_thread_once(body: str) -> None:
    func, xs = made(body, {"c": Talking()}), torch.tensor([1.0, 2.0, 3.0])
    expected = outcome(lambda: list(map(func, xs)))
    assert expected[1], "the loop has no effect here"
    for configuration in CONFIGURATIONS:
        for _ in range(2):
            assert outcome(lambda: autobatch.vmap(func, **configuration)(xs)) == expected  # noqa: B023


class Asked:
    """Each attribute that is read leaves a trace, whatever it is."""

    def __init__(self):
        self.by = 2.0

    def __getattribute__(self, name):
        if not name.startswith("__"):
            shown(name)
        return super().__getattribute__(name)

    @property
    def half(self):
        return 0.5

    def times(self, x):
        while x < 5:
            x = x * self.by
        return x


@pytest.mark.parametrize(
    "body", ["c.by * x", "c.half * x", "c.times(x)", "getattr(c, 'by') * x", "hasattr(c, 'no') * x"]
)
def test_each_attribute_that_a_class_is_asked_for(body: str) -> None:
    func, xs = made(body, {"c": Asked()}), torch.tensor([1.0, 2.0, 3.0])
    expected = outcome(lambda: list(map(func, xs)))
    for configuration in CONFIGURATIONS:
        for _ in range(2):
            found = outcome(lambda: autobatch.vmap(func, **configuration)(xs))  # noqa: B023
            assert (found[0], sorted(found[1])) == (expected[0], sorted(expected[1]))


@pytest.mark.parametrize("body", REFUSED)
def test_writes_that_lowering_sees_are_refused(body: str) -> None:
    for configuration in CONFIGURATIONS:
        counting = Counting()
        func = made(body, {"c": counting})
        with pytest.raises(autobatch.SharedWriteError, match=r"existed before the call[\s\S]*\^"):
            autobatch.vmap(func, **configuration)(torch.arange(3.0))
        assert counting.n == 0


class Quiet:
    """Its methods have no effect, so they run once for all threads."""

    def __init__(self):
        self.parts = [torch.ones(2), torch.ones(2) * 2]

    @property
    def total(self):
        return self.parts[0] + self.parts[1]

    def __iter__(self):
        yield from self.parts

    def __str__(self):
        try:
            return f"quiet {len(self.parts)}"
        except AttributeError:
            return "empty"


def test_methods_without_effects_run_once_for_all_threads() -> None:
    quiet = Quiet()
    func = made("[p * x for p in c][1] + c.total + len(str(c))", {"c": quiet})
    xs = torch.tensor([1.0, 2.0])
    for configuration in CONFIGURATIONS:
        with autobatch.counts() as c:
            actual = autobatch.vmap(func, **configuration)(xs)
        assert c.fallbacks == 0
        assert torch.equal(actual, torch.stack([func(x) for x in xs]))


class Failing:
    def __init__(self, limit):
        self.limit = limit

    def __str__(self):
        n = shown("str")
        if self.limit < 2:
            raise ValueError(f"limit {self.limit}")
        return f"{n}"


def test_effects_before_a_failure_happen_once() -> None:
    func = made("str(x)", {})
    for configuration in CONFIGURATIONS:
        OUTPUT.clear()
        things = autobatch.objects([Failing(2), Failing(3), Failing(1), Failing(4)])
        with pytest.raises(ValueError, match="limit 1"):
            autobatch.vmap(func, **configuration)(things)
        assert OUTPUT == ["str"] * 3
