"""Classes of the user's below ``abc.ABC`` and with ``__init_subclass__`` are plain ones, made and
asked like all others; what has an abstract method left is made by nobody.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from tests.oracle import CONFIGURATIONS, assert_matches_loop

XS = torch.tensor([0.5, 2.0, -1.0, 3.0, 0.25])
KINDS: dict[str, type] = {}


class Plain:
    def __init__(self, side: Tensor) -> None:
        self.side = side

    def area(self) -> Tensor:
        return self.side * self.side


class Shape(abc.ABC):
    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        KINDS[cls.__name__] = cls

    @abc.abstractmethod
    def area(self) -> Tensor: ...

    @property
    @abc.abstractmethod
    def sides(self) -> int: ...

    def larger(self, other: Shape) -> Shape:
        return self if self.area() > other.area() else other


class Square(Shape):
    sides = 4

    def __init__(self, side: Tensor) -> None:
        self.side = side

    def area(self) -> Tensor:
        return self.side * self.side


@dataclass
class Rectangle(Shape):
    width: Tensor
    height: Any

    @property
    def sides(self) -> int:
        return 4

    def area(self) -> Tensor:
        return self.width * self.height


class Unfinished(Shape):
    sides = 0


class Sized(abc.ABC):  # noqa: B024
    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        return any("area" in vars(base) for base in kind.__mro__)


def plain(x: Tensor) -> Tensor:
    return Plain(x).area() + Plain(x + 1).area()


def below_abc(x: Tensor) -> Tensor:
    return Square(x).area() + Square(x + 1).area()


def kinds(x: Tensor) -> tuple[Tensor, bool, str, int]:
    one, other = Square(x), Rectangle(x + 1, 2)
    found = one.larger(other)
    while found.area() < 3:
        found = Square(found.area() + 1)
    return found.area(), isinstance(one, Shape), type(one).__name__, other.sides


def unfinished(x: Tensor) -> Tensor:
    return Square(x).area() if x < 2.5 else Unfinished().area()  # type: ignore[abstract]


def by_hook(x: Tensor) -> Tensor:
    made = Square(x) if x > 1 else Plain(x)
    return made.area() if isinstance(made, Sized) and isinstance(Plain(x), Sized) else x


def registered(x: Tensor) -> tuple[Tensor, bool]:
    return KINDS["Square"](x).area(), isinstance(Plain(x), Shape)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("func", [below_abc, kinds, unfinished, by_hook, registered])
def test_the_loop(func: Any) -> None:
    ways = [*CONFIGURATIONS, {"plain": "never"}]
    assert_matches_loop(func, (XS,), batch_sizes=(1, 3, 5), configurations=ways)


def test_they_cost_what_plain_ones_cost() -> None:
    counted = []
    for func in (plain, below_abc):
        with autobatch.counts() as found:
            autobatch.vmap(func, plain="never")(XS)
        counted.append((found.block_executions, found.fallbacks, found.by_thread))
    assert counted[0] == counted[1]


def test_their_small_batches_run_as_plain_python() -> None:
    calls = autobatch.vmap(below_abc)
    calls(XS)
    with autobatch.counts() as found:
        autobatch.vmap(named, scalars="python")(autobatch.objects(["a", "bcd"]))
    assert found.plain == 2


class Word:
    def __init_subclass__(cls) -> None:
        KINDS[cls.__name__] = cls

    def __init__(self, text: str) -> None:
        self.text = text


class Short(Word):
    def __len__(self) -> int:
        return len(self.text) % 2


def named(text: str) -> int:
    return len(Short(text)) + len(KINDS["Short"](text).text)


def late(text: str) -> int:
    return len(type(f"Late{len(text)}", (Word,), {}).__name__)


def late_by_kind(text: str) -> int:
    return len(type(Word)(f"Late{len(text)}", (Word,), {}).__name__)


def late_by_value(text: str) -> int:
    make = type if len(text) > 1 else str
    return len(make(f"Late{len(text)}", (Word,), {}).__name__)  # type: ignore[call-overload]


def late_by_class(text: str) -> int:
    return len(Word.__class__(f"Late{len(text)}", (Word,), {}).__name__)


@pytest.mark.parametrize("func", [late, late_by_kind, late_by_value, late_by_class])
def test_a_class_made_by_a_program_writes_nothing_unseen(func: Any) -> None:
    before = dict(KINDS)
    with autobatch.counts() as found, pytest.raises(autobatch.AutobatchError):
        autobatch.vmap(func)(autobatch.objects(["abc", "de"]))
    assert found.plain == 0
    assert before == KINDS


def test_gradients() -> None:
    xs = XS.clone().requires_grad_()
    for _ in range(4):
        (grad,) = torch.autograd.grad(autobatch.vmap(below_abc)(xs).sum(), xs)
        torch.testing.assert_close(grad, 4 * XS + 2)
