"""What Python has had since 3.12: generic functions and classes, f-strings that nest, inlined
comprehensions; and functions of the library since 3.12 and 3.13. Texts, which 3.11 cannot parse.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

TEXTS = {
    (3, 12): """
import itertools, math

def generic[T](x: T, n: int) -> T:
    def twice[S](y: S) -> S:
        return y * 2
    while n > 0:
        x = twice(x)
        n -= 1
    return x

class Box[T]:
    def __init__(self, value: T) -> None:
        self.value = value
    def larger[S](self, other: S) -> T | S:
        return self.value if self.value > 2 else other

def boxes(x, n):
    return Box(x).larger(n) + Box(n).larger(x)

def quotes(x, n):
    row = {"n": n, "width": n + 1}
    return f"{row["n"]:>{row["width"]}} {f"{f"{x}"}"} {n=} {'\\n'.join(["x" for _ in range(n)])}"

def comprehensions(x, n):
    i = 5
    rows = [[i * j for j in range(i)] for i in range(n)]
    late = [lambda: i for i in range(n)]
    return str((i, rows, [f() for f in late], {k: [v for v in range(k)] for k in range(n)}))

def unbound(x, n):
    return [y for y in range(n) if n < 5 or later] and [later for later in range(n)]

def library(x, n):
    pairs = [list(pair) for pair in itertools.batched(range(n), 2)]
    return math.sumprod([1, n], [n, 2]), math.nextafter(1.0, 2.0, steps=3) * n, str(pairs)
""",
    (3, 13): """
import copy, math
from dataclasses import dataclass
from typing import NamedTuple

class Pair(NamedTuple):
    a: int
    b: float

@dataclass(frozen=True)
class Record:
    a: int
    b: float

class Default[T = int]:
    def __init__(self, value: T) -> None:
        self.value = value

def replaced(x, n):
    record = copy.replace(Record(n, x), a=n + 1)
    pair = copy.replace(Pair(n, x), b=x * 2)
    return record.a + pair.a, record.b + pair.b

def defaults(x, n):
    box = Default(x)
    box.value += n
    return box.value

def library(x, n):
    return math.fma(x, 2.0, n * 1.0), ("a" * n).replace("a", "b", count=2)
""",
}
NAMES = {
    (3, 12): ("generic", "boxes", "quotes", "comprehensions", "unbound", "library"),
    (3, 13): ("replaced", "defaults", "library"),
}
XS = torch.tensor([0.5, 1.5, 3.0, 4.5, 2.0, 6.0, 7.0, 1.0, 9.0])
NS = torch.tensor([3, 1, 2, 0, 4, 5, 1, 2, 3])


def module_of(version: tuple[int, int], folder: Path) -> ModuleType:
    """The module that a text is, from a file: lowering asks for the source."""
    if sys.version_info < version:
        pytest.skip(f"needs Python {version[0]}.{version[1]}")
    path = folder / "since_{}_{}.py".format(*version)
    path.write_text(TEXTS[version], encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("version", "name"), [(version, name) for version in NAMES for name in NAMES[version]]
)
def test_as_in_the_loop(version: tuple[int, int], name: str, tmp_path: Path) -> None:
    func = getattr(module_of(version, tmp_path), name)
    assert_matches_loop(func, (XS, NS), batch_sizes=(1, 2, 5, 9), scalars="python")


def test_generic_functions_run_batched(tmp_path: Path) -> None:
    module = module_of((3, 12), tmp_path)
    with autobatch.counts() as found:
        autobatch.vmap(module.generic, scalars="python")(XS, NS)
    assert found.by_thread == 0


T = TypeVar("T")


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value

    def larger(self, other: Any) -> Any:
        return self.value if self.value > 2 else other


class Boxed(Generic[T]):
    def __init__(self, value: T) -> None:
        self.value = value

    def larger(self, other: T) -> T:
        return self.value if self.value > 2 else other


def plain_boxes(x: Any, n: Any) -> Any:
    return Plain(x).larger(n) + Plain(n).larger(x)


def generic_boxes(x: Any, n: Any) -> Any:
    return Boxed(x).larger(n) + Boxed(n).larger(x)


def test_generic_classes_cost_what_plain_ones_cost() -> None:
    assert_matches_loop(generic_boxes, (XS, NS), batch_sizes=(1, 9), scalars="python")
    counted = []
    for func in (plain_boxes, generic_boxes):
        with autobatch.counts() as found:
            autobatch.vmap(func, scalars="python")(XS, NS)
        counted.append((found.block_executions, found.fallbacks, found.by_thread))
    assert counted[0] == counted[1]
