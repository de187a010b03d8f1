"""The whole corpus of the language, batched: threads together give what each gives alone.

Rows are the argument tuples of one function, so threads diverge; the result of each is boxed in
an object of its own, so that nothing needs to stack and types are those of plain Python.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from tests import language
from tests.expected import check
from tests.language import classes, common, library, mixed, tensors, trees
from tests.sweeps import case

WAYS = {
    "vmap": {"executor": "vmap"},
    "traced": {"executor": "traced", "trace_after": 0},
    "program_counter": {"engine": "program_counter", "executor": "vmap"},
}
MODULES = (classes, library, mixed, tensors, trees)
"""More of the corpus, for the batched engines alone."""

common.seen.__autobatch__ = "unknown"  # type: ignore[attr-defined]


class Result:
    """What a thread returns, whatever it is."""

    def __init__(self, value: Any) -> None:
        self.value = value


def by_function() -> Iterator[tuple[FunctionType, list[tuple[Any, ...]]]]:
    found: dict[FunctionType, list[tuple[Any, ...]]] = {}
    for func, arguments in language.cases():
        found.setdefault(func, []).append(arguments)
    for module in MODULES:
        for func in vars(module).values():
            if isinstance(func, FunctionType) and func.__module__ == module.__name__:
                found.setdefault(func, []).extend(getattr(func, "arguments", ()))
    yield from ((func, rows) for func, rows in found.items() if rows)


def batches(rows: list[tuple[Any, ...]], few: bool) -> Iterator[list[tuple[Any, ...]]]:
    """Every row alone, pairs of neighbours, all together up to seven, for each length of row.

    ``few``: one row alone, one pair, and all together.
    """
    lengths = sorted({len(row) for row in rows})
    for length in lengths:
        fitting = [row for row in rows if len(row) == length]
        if not length:
            continue
        yield from ([row] for row in fitting[: 1 if few else None])
        yield from itertools.islice(map(list, itertools.pairwise(fitting)), 1 if few else None)
        yield [fitting[index % len(fitting)] for index in range(7)]


def column(values: list[Any]) -> Any:
    kinds = {type(value) for value in values}
    if kinds <= {int} and all(abs(value) < 2**62 for value in values):
        return torch.tensor(values)
    if kinds in ({float}, {bool}):
        return torch.tensor(values, dtype=torch.float64 if kinds == {float} else torch.bool)
    alike = kinds == {Tensor} and len({(v.dtype, v.shape, v.requires_grad) for v in values}) == 1
    if alike and values[0].dim() and not values[0].requires_grad:
        return torch.stack(values)
    return autobatch.objects(values)


def outcome(run: Callable[[], list[Any]]) -> tuple[list[Any], Exception | None, list[Any]]:
    common.log.clear()
    try:
        values, error = run(), None
    except Exception as raised:
        values, error = [], raised
    return values, error, list(common.log)


def loop(func: FunctionType, rows: list[tuple[Any, ...]]) -> list[Any]:
    return [func(*copy.deepcopy(row)) for row in rows]


def batched(func: FunctionType, rows: list[tuple[Any, ...]], options: Any) -> list[Any]:
    def boxed(*args: Any) -> Result:
        return Result(func(*args))

    columns = [column(list(values)) for values in zip(*rows, strict=True)]
    results = autobatch.vmap(boxed, scalars="python", **options)(*columns)
    return [result.value for result in results]


def plain(value: Any) -> Any:
    """The same with functions as their names."""
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    if callable(value) and hasattr(value, "__qualname__") and not isinstance(value, type):
        return ("callable", value.__qualname__)
    return value


def joined(actual: Any, expected: Any) -> Any:
    """What is expected, with numbers as 0-d tensors where other threads made them join one."""
    if type(expected) in (list, tuple) and type(actual) is type(expected):
        pairs = zip(actual, expected, strict=False)
        rest = expected[len(actual) :]
        return type(expected)([*(joined(one, other) for one, other in pairs), *rest])
    if isinstance(actual, Tensor) and type(expected) in (int, float) and not actual.dim():
        return torch.tensor(expected, dtype=actual.dtype)
    return expected


def held(func: FunctionType, rows: list[tuple[Any, ...]], options: Any) -> None:
    """The batch gives what the loop gives: results, exception, effects."""
    expected, wanted, effects = outcome(lambda: loop(func, rows))
    actual, got, seen = outcome(lambda: batched(func, rows, options))
    if wanted is not None or got is not None:
        if (type(got), str(got)) != (type(wanted), str(wanted)):
            raise AssertionError(f"the loop raises {wanted!r}, the batch {got!r}") from got
        return
    check(plain(actual), joined(plain(actual), plain(expected)))
    if len(rows) == 1:
        check(seen, effects)
    assert sorted(map(repr, seen)) == sorted(map(repr, effects))


WHOLE = "traced"
"""The way that runs every batch by default; the others run few, and all in the sweep."""


def in_every_way() -> Iterator[Any]:
    for func, rows in by_function():
        for way in WAYS:
            for few in (False,) if way == WHOLE else (True, False):
                name = f"{func.__name__}-{way}{'-few' if few else ''}"
                yield case(func, rows, way, few, name=name, default=few or way == WHOLE)


@pytest.mark.sampled(48)
@pytest.mark.parametrize(("func", "rows", "way", "few"), in_every_way())
def test_batch_is_the_loop(
    func: FunctionType, rows: list[tuple[Any, ...]], way: str, few: bool
) -> None:
    for batch in batches(rows, few):
        try:
            held(func, batch, WAYS[way])
        except AssertionError as error:
            error.add_note(f"rows {batch!r}")
            raise
