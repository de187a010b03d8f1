"""``super().__init__`` into what ``dataclasses`` has made, which has no source: it is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from tests.oracle import assert_matches_loop

XS = torch.tensor([1.0, -2.0, 0.5])


@dataclasses.dataclass
class Base:
    a: Any
    b: int = 2
    held: list[Any] = dataclasses.field(default_factory=list)


class Kid(Base):
    def __init__(self, a: Tensor) -> None:
        super().__init__(a, b=3)
        self.held.append(a)


class Plain(Base):
    pass


@dataclasses.dataclass
class Initial:
    u: Any
    k: int = dataclasses.field(default=3, kw_only=True)
    scale: dataclasses.InitVar[float] = 1.0

    def __post_init__(self, scale: float) -> None:
        self.total = self.u * 2 + scale if self.u > 0 else self.u


class OfInitial(Initial):
    def __init__(self, u: Tensor) -> None:
        super().__init__(u, 4.0)
        self.rest = self.total + 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    u: Any


class OfFrozen(Frozen):
    def __init__(self, u: Tensor) -> None:
        super().__init__(u * 2)


def kid(x: Tensor) -> Any:
    made = Kid(x)
    return made.a * 2, made.b, len(made.held), len(Base(x).held)


def inherited(x: Tensor) -> Any:
    return Plain(x, 5).a + Plain(a=x).b


def initial(x: Tensor) -> Any:
    return Initial(x, 3.0).total, Initial(x, k=4).k


def of_initial(x: Tensor) -> Any:
    made = OfInitial(x)
    return made.rest, made.total


def frozen(x: Tensor) -> Any:
    return OfFrozen(x).u


def again(x: Tensor) -> Any:
    made = Base(x)
    made.held.append(1)
    if x > 0:
        made.__init__(x * 3)
    return made.a, len(made.held)


def listed(*items: Any, end: Any = 0) -> list[Any]:
    return [*items, end]


@dataclass
class Made:
    x: Any
    first: list[Any] = field(default_factory=partial(listed, 3, end=4))
    second: list[Any] = field(default_factory=partial(list, (1, 2)))


def by_partials(x: Tensor) -> Any:
    made = Made(x)
    if x > 0:
        made.first.append(made.second.pop())
    return made.first[0], made.first[-1], len(made.second)


def too_many(x: Tensor) -> Any:
    made = Base(x)
    Base.__init__(made, x, 1, [], 4)
    return x


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "program",
    [kid, inherited, initial, of_initial, frozen, again, too_many, by_partials],
    ids=lambda f: f.__name__,
)
def test_generated_inits(program: Callable[..., Any]) -> None:
    assert_matches_loop(program, [XS], batch_sizes=[1, 3])


SHARED = Base(1.0)


def of_a_shared_object(x: Tensor) -> Any:
    Base.__init__(SHARED, x)
    return x


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
def test_a_shared_object_is_not_filled_anew(engine: str) -> None:
    with pytest.raises(autobatch.SharedWriteError, match=r"existed before[\s\S]*\^"):
        autobatch.vmap(of_a_shared_object, engine=engine)(XS)
    assert SHARED.a == 1.0
