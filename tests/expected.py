"""What a batch must return, given what the plain loop returned; and when two results are equal.

``stacked(rows)`` states how results stack: containers keep their structure; numbers become a
bool, int64, float64 or complex128 tensor (a list where an int does not fit), numpy's scalars one of
their own dtype; tensors stack as ``torch.stack`` promotes, numbers among them through
``torch.as_tensor``; all else is a list, and so are lists that hold no number and no tensor, unless
they are empty in all rows.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import OrderedDict, defaultdict, deque
from typing import Any

import numpy as np
import torch
from torch import Tensor

import autobatch


@dataclasses.dataclass(frozen=True, slots=True)
class Unstackable:
    """In place of an expected value: the threads' results do not stack."""

    rows: list[Any]


def stacked(rows: list[Any]) -> Any:
    """The batch result that the threads' results make, with ``Unstackable`` in it if need be."""
    if not rows:
        return None
    first = rows[0]
    if not any(_is_structure(row) for row in rows):
        return _stacked_leaves(rows)
    if all(type(row) is list for row in rows) and any(rows) and not _holds_stackable(rows):
        return rows
    if any(_outline(row) != _outline(first) for row in rows):
        return Unstackable(rows)
    if isinstance(first, dict):
        made = copy.copy(first)
        made.update((key, stacked([row[key] for row in rows])) for key in first)
        return made
    if dataclasses.is_dataclass(first):
        made = copy.copy(first)
        for field in dataclasses.fields(first):
            column = stacked([getattr(row, field.name) for row in rows])
            object.__setattr__(made, field.name, column)
        return made
    parts = [stacked(list(part)) for part in zip(*rows, strict=True)]
    return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)


def _is_structure(row: Any) -> bool:
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return not any(type(row).__name__ in str(field.type) for field in dataclasses.fields(row))
    return type(row) in (tuple, list, dict, OrderedDict, defaultdict, deque) or hasattr(
        row, "_fields"
    )


def _holds_stackable(value: Any) -> bool:
    if not _is_structure(value):
        return isinstance(value, Tensor) or _is_number(value)
    if dataclasses.is_dataclass(value):
        parts: Any = [getattr(value, field.name) for field in dataclasses.fields(value)]
    else:
        parts = value.values() if isinstance(value, dict) else value
    return any(map(_holds_stackable, parts))


def _outline(row: Any) -> Any:
    if not _is_structure(row):
        return None
    if dataclasses.is_dataclass(row):
        return type(row)
    return type(row), frozenset(row) if isinstance(row, dict) else len(row)


def _is_number(row: Any) -> bool:
    return type(row) in (bool, int, float, complex) or isinstance(row, np.number | np.bool_)


def _stacked_leaves(rows: list[Any]) -> Any:
    stackable = [isinstance(row, Tensor) or _is_number(row) for row in rows]
    if not any(stackable):
        return rows
    if not all(stackable):
        return Unstackable(rows)
    if all(map(_is_number, rows)):
        return _stacked_numbers(rows)
    columns = [torch.as_tensor(row) for row in rows]
    same_shape = len({column.shape for column in columns}) == 1
    return torch.stack(columns) if same_shape else Unstackable(rows)


def _stacked_numbers(rows: list[Any]) -> Any:
    if not all(type(row) is not int or -(2**63) <= row < 2**63 for row in rows):
        return rows
    own = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
    return torch.stack([torch.as_tensor(row, dtype=own.get(type(row))) for row in rows])


def has_unstackable(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, Unstackable):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, (tuple, list, deque)):
        return any(has_unstackable(part) for part in value)
    return isinstance(value, Unstackable)


def check(actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None) -> None:
    """Same type, structure, dtype and shape; floats to tolerance; NaN equals NaN."""
    assert not isinstance(expected, Unstackable), f"these should not stack: {expected.rows!r}"
    if isinstance(expected, (np.ndarray, np.generic)):
        actual, expected = torch.as_tensor(actual), torch.as_tensor(expected)
    assert type(actual) is type(expected), f"{actual!r} where the loop has {expected!r}"
    if isinstance(expected, Tensor):
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    elif isinstance(expected, float):
        close = math.isclose(actual, expected, rel_tol=rtol or 1e-6, abs_tol=atol or 1e-9)
        assert close or (actual != actual and expected != expected), f"{actual} != {expected}"
    elif isinstance(expected, autobatch.objects):
        check(actual.items, expected.items, rtol, atol)
    elif isinstance(expected, autobatch.ragged):
        check(list(actual.tensors), list(expected.tensors), rtol, atol)
    elif isinstance(expected, (tuple, list, deque)):
        assert len(actual) == len(expected), f"{actual!r} where the loop has {expected!r}"
        for one, other in zip(actual, expected, strict=True):
            check(one, other, rtol, atol)
    elif isinstance(expected, dict):
        assert list(actual) == list(expected), f"{list(actual)} where the loop has {list(expected)}"
        assert getattr(actual, "default_factory", 0) is getattr(expected, "default_factory", 0)
        for key, value in expected.items():
            check(actual[key], value, rtol, atol)
    elif dataclasses.is_dataclass(expected) and not isinstance(expected, type):
        for field in dataclasses.fields(expected):
            check(getattr(actual, field.name), getattr(expected, field.name), rtol, atol)
    elif type(expected).__eq__ is object.__eq__ and hasattr(expected, "__dict__"):
        check(vars(actual), vars(expected), rtol, atol)
    else:
        assert actual == expected, f"{actual!r} where the loop has {expected!r}"


def joined(mine: Any, theirs: Any, others: list[Any]) -> Any:
    """What the loop has for an example, numbers as the 0-d tensors that they may have joined.

    That is what README allows under *Limits*: ``others`` are what the loop has for other examples,
    and a number of which an example has got a 0-d tensor may be one if an other one has one there,
    in its dtype, if that is what numbers of its kind alone would be part of.
    """
    if type(theirs) in (tuple, list, dict) and type(mine) is type(theirs):
        alike = [each for each in others if _outline(each) == _outline(theirs)]
        keys = list(theirs) if type(theirs) is dict else range(len(theirs))
        if len(mine) != len(theirs) or not all(key in mine for key in keys if type(mine) is dict):
            return theirs
        parts = [joined(mine[key], theirs[key], [each[key] for each in alike]) for key in keys]
        return dict(zip(keys, parts, strict=True)) if type(theirs) is dict else type(theirs)(parts)
    if not isinstance(mine, Tensor) or mine.dim() or type(theirs) not in (bool, int, float):
        return theirs
    met = any(
        isinstance(each, Tensor) and not each.dim() and each.dtype == mine.dtype for each in others
    )
    return (
        torch.tensor(theirs, dtype=mine.dtype) if met and _may_join(theirs, mine.dtype) else theirs
    )


def _may_join(number: bool | int | float, dtype: torch.dtype) -> bool:
    if type(number) is bool or dtype is torch.bool:
        return type(number) is bool and dtype is torch.bool
    if type(number) is int:
        return dtype is torch.int64 or dtype.is_floating_point
    return torch.promote_types(dtype, torch.get_default_dtype()) is dtype
