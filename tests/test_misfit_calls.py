"""Builtins that are called with what they do not take, or asked for what is not there."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.oracle import CONFIGURATIONS, assert_matches_loop

NS = torch.tensor([3, -1, 0, 7])
XS = torch.tensor([1.5, 2.0, -1.0, 0.25])
Pair = collections.namedtuple("Pair", "a b")
BATCHED = tuple(each for each in CONFIGURATIONS if each.get("engine") != "sequential")
NEVER = ({"plain": "never"}, *CONFIGURATIONS)
FEW: Any = ()
MANY: Any = (1, 2)


def counted_from(n: Tensor, x: Tensor) -> Any:
    """A start that is a tensor counts as a number."""
    total = 0.0
    for i, v in enumerate([x, 2.0], n):
        total = total + i / 2 * v
    places = [i for i, _ in enumerate("ab", start=n)]
    return total, places, [isinstance(i, int) for i in places], [str(i) for i in places]


def counted_from_a_float(n: Tensor, x: Tensor) -> Any:
    return [i for i, _ in enumerate("ab", x)]


def counted_from_a_bool(n: Tensor, x: Tensor) -> Any:
    return [i for i, _ in enumerate("ab", bool(n > 1))]


@pytest.mark.parametrize("func", [counted_from, counted_from_a_float, counted_from_a_bool])
@pytest.mark.parametrize("scalars", ["tensor", "python"])
def test_what_enumerate_counts_from(func: Any, scalars: str) -> None:
    assert_matches_loop(func, (NS, XS), scalars=scalars, configurations=NEVER)


def what_is_there(n: Tensor, x: Tensor) -> Any:
    number, flag = int(n), bool(n > 2)
    things = [number, flag, x.item(), [x], (x,), {"a": x}, Pair(x, 1), x, n]
    there = [(hasattr(v, "zz"), hasattr(v, "a"), hasattr(v, "real")) for v in things]
    return there, getattr(number, "shape", None), getattr([x], "shape", 5), getattr(flag, "zz", x)


def told(n: Tensor, x: Tensor) -> Any:
    try:
        return int(n).zz  # type: ignore[attr-defined]
    except AttributeError as error:
        return str(error), error.name, error.obj


@pytest.mark.parametrize("func", [what_is_there, told])
@pytest.mark.parametrize("scalars", ["tensor", "python"])
def test_attributes_that_are_not_there(func: Any, scalars: str) -> None:
    assert_matches_loop(func, (NS, XS), scalars=scalars, configurations=NEVER)


def called(callee: Any, x: Any) -> Any:
    return callee(x)


MISFITS = {
    "len, of none": lambda n, x: len(*FEW),
    "len, of two": lambda n, x: len(*MANY),
    "reversed": lambda n, x: reversed([1], 2),
    "list": lambda n, x: list(1, 2),
    "tuple": lambda n, x: tuple([x], 2),
    "next": lambda n, x: next(*FEW),
    "slice, of none": lambda n, x: slice(*FEW),
    "slice, of four": lambda n, x: slice(1, 2, 3, 4),
    "max": lambda n, x: max(*FEW),
    "sum": lambda n, x: sum(*FEW),
    "abs": lambda n, x: abs(*FEW),
    "any": lambda n, x: any([x], 2),
    "enumerate": lambda n, x: list(enumerate([x], 1, 2)),
    "enumerate, by another name": lambda n, x: list(enumerate([x], begin=n)),
    "getattr": lambda n, x: getattr(x),
    "isinstance": lambda n, x: isinstance(x, 5),
    "item": lambda n, x: x.item(1),
    "tolist": lambda n, x: n.tolist(1),
    "append": lambda n, x: [x].append(1, 2),
    "insert": lambda n, x: [x].insert(1),
    "clear": lambda n, x: [x].clear(1),
    "reverse": lambda n, x: [x, n].reverse("a"),
    "a copy of a list": lambda n, x: [x].copy(n),
    "a copy of a dict": lambda n, x: {"a": x}.copy(n),
    "get": lambda n, x: {"a": x}.get(*FEW),
    "setdefault": lambda n, x: {"a": x}.setdefault(*FEW),
    "items": lambda n, x: {"a": x}.items(1),
    "a list that is called": lambda n, x: called([1, x], x),
    "what is no iterable, in a list": lambda n, x: [*x.item()],
    "a number of all, in a list": lambda n, x: [x, *5],
    "what is no iterable, as arguments": lambda n, x: max(*x.item()),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", MISFITS)
def test_what_python_refuses(name: str) -> None:
    own = "item" if name in ("item", "tolist") else ""  # named after another class there
    assert_matches_loop(MISFITS[name], (NS, XS), configurations=BATCHED if own else NEVER)
