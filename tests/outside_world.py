"""What exists before a batched call, for ``test_outside_writes``: a fresh one for each test."""

from __future__ import annotations

import array
import collections
import linecache
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

import autobatch


class Holder:
    count = 0

    def __init__(self) -> None:
        self.v = 0
        self.items = [1]
        self.t = torch.zeros(2)
        self.n = np.zeros(2)

    def __call__(self, x):
        self.v += 1
        return x

    def bump(self):
        self.v += 1

    def by_dict(self):
        self.__dict__["v"] = 9


class Slotted:
    __slots__ = ("v",)

    def __init__(self) -> None:
        self.v = 1


class Guarded:
    def __init__(self) -> None:
        self.__dict__["d"] = 0

    def __setattr__(self, name, value):
        self.__dict__[name] = value


class Adder:
    def __init__(self) -> None:
        self.n = 0

    def __iadd__(self, other):
        self.n += other
        return self


class Words(list):
    pass


MAKERS: dict[str, str] = {
    "A": "np.zeros(3)",
    "X": "[3, 1, 2]",
    "D": "{'a': 1}",
    "S": "{1}",
    "T": "torch.zeros(3)",
    "T2": "torch.zeros(2, 3)",
    "LT": "[torch.zeros(3)]",
    "DQ": "collections.deque([1, 2, 3])",
    "BA": "bytearray(b'abc')",
    "CT": "collections.Counter()",
    "DD": "collections.defaultdict(list)",
    "OD": "collections.OrderedDict(a=1)",
    "AR": "array.array('i', [1, 2])",
    "NS": "types.SimpleNamespace(a=1)",
    "WL": "Words([3, 1])",
    "h": "Holder()",
    "slotted": "Slotted()",
    "guarded": "Guarded()",
    "adder": "Adder()",
    "M": "nn.Linear(2, 2)",
}
"""How each object is made, before the call or inside a program."""


def world() -> dict[str, Any]:
    """The names that programs see, with objects of their own."""
    Holder.count = 0
    names: dict[str, Any] = {**globals()}
    exec(
        "import bisect, copy, functools, heapq, itertools, operator, random\n"
        + "\n".join(f"{name} = {maker}" for name, maker in MAKERS.items())
        + "\nMS = [nn.Linear(2, 2), M]\nHS = [h, Holder()]\nKINDS = [Holder, Holder]",
        names,
    )
    return names


def program(
    name: str, lines: list[str], names: dict[str, Any], params: str = "x"
) -> Callable[..., Any]:
    """The function with these lines, which has source."""
    text = f"def f({params}):\n" + "".join(f"    {line}\n" for line in lines)
    file = f"<outside {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), names)
    made: Callable[..., Any] = names["f"]
    return made


WAYS: tuple[dict[str, Any], ...] = (
    {"plain": "never"},
    {"plain": "never", "engine": "program_counter"},
    {"engine": "sequential"},
    {},
)


def assert_same_every_way(func: Callable[..., Any], rows: list[Any]) -> None:
    """Of an object of each example's own it gives what the loop gives, and does so again."""
    expected = [func(row) for row in rows]
    for way in WAYS:
        batched = autobatch.vmap(func, **way)
        for _ in range(2):
            assert batched(autobatch.objects(rows)) == expected, way


def state(names: dict[str, Any]) -> str:
    """All that a write could change."""
    return "\n".join(f"{name}: {shown(names[name])}" for name in (*MAKERS, "MS", "HS", "KINDS"))


def shown(item: Any) -> str:
    if isinstance(item, nn.Module):
        modes = [(part.training, *part.__dict__) for part in item.modules()]
        return repr((modes, [(p.tolist(), p.grad, p.requires_grad) for p in item.parameters()]))
    if isinstance(item, type):
        return repr(item.count)  # type: ignore[attr-defined]
    if isinstance(item, list) and not isinstance(item, Words):
        return repr([shown(part) for part in item])
    if isinstance(item, Slotted):
        return repr(item.v)
    if isinstance(item, (Holder, Guarded, Adder)):
        return repr(vars(item))
    return repr(item)


__all__ = ["array", "collections", "np", "program", "shown", "state", "types", "world"]
