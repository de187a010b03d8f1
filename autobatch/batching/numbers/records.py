"""The records of number columns: operands, results, and what a rule is.

A column of k per-thread Python numbers is a ``Number``: a tensor ``[k]`` of int64 (tag ``int``),
float64 (``float``) or bool (``bool``). A number that all threads share is passed as the bare
Python number. For ints ``bounds`` is a closed interval, kept on the host, that holds every row;
None means all of int64.

A ``Rule`` has two halves. ``foresee`` reads tags and bounds only and says what the result is
(an ``Outlook``), or None where no batched form exists; ``compute`` spends the kernels. What a
rule computes under some bounds is right under all narrower ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from torch import Tensor

Interval: TypeAlias = tuple[int, int]
Bounds: TypeAlias = Interval | None
Scalar: TypeAlias = bool | int | float

LEAST, MOST = -(2**63), 2**63 - 1
INT64: Interval = (LEAST, MOST)
BIT: Interval = (0, 1)
_SCALARS = frozenset((bool, int, float))
DOUBLE_EXACT = 2**53  # every int up to this magnitude is a float64


@dataclass(frozen=True, slots=True)
class Number:
    """A number per thread: ``data`` is ``[k]`` (0-d inside torch.vmap)."""

    tag: str
    data: Tensor
    bounds: Bounds = None


@dataclass(slots=True, eq=False, repr=False)
class NumberResult:
    """What an operation gave; ``data`` is arbitrary in rows that failed or escaped.

    ``failed`` marks rows in which Python raises; ``escape`` marks rows whose Python result
    ``data`` may not hold (it leaves int64, or has another type): recompute them on the host.
    None: no row can. ``bounds`` holds the rows that neither failed nor escaped.
    """

    tag: str
    data: Tensor
    failed: Tensor | None
    escape: Tensor | None
    bounds: Bounds


class Outlook(NamedTuple):
    """What a result will be, told from tags and bounds alone."""

    tag: str
    bounds: Bounds = None
    may_fail: bool = False
    may_escape: bool = False


class Described(Protocol):
    """A column of numbers (or its ``Outlook``): ``Number``, ``NumberResult``, a cell's column.

    Where there are kernels to run it has ``data`` too.
    """

    @property
    def tag(self) -> str: ...
    @property
    def bounds(self) -> Bounds: ...


class Term(NamedTuple):
    """An operand as rules see it.

    ``value`` is a tensor, or the Python number where ``is_uniform``, or None in a forecast.
    ``low`` and ``high`` mean nothing for floats.
    """

    tag: str
    low: int
    high: int
    value: Any
    is_uniform: bool = False

    @property
    def is_float(self) -> bool:
        return self.tag == "float"

    def within(self, low: int, high: int) -> bool:
        return low <= self.low and self.high <= high


Parts: TypeAlias = tuple[Tensor, Tensor | None, Tensor | None]  # data, failed, escape
Foresee: TypeAlias = Callable[..., Outlook | None]
Compute: TypeAlias = Callable[..., Parts]


@dataclass(frozen=True, slots=True)
class Rule:
    """One operation on numbers, of ``least`` to ``most`` operands.

    ``compute(outlook, *terms)`` is called only where ``foresee(*terms)`` gave an outlook. It makes
    no mask that the outlook does not announce, but must not crash on any row even so.
    """

    name: str
    least: int
    most: int
    foresee: Foresee
    compute: Compute


def term(operand: Described | Scalar) -> Term | None:
    """The operand as a term; None for what is not exactly a bool, an int or a float."""
    kind = type(operand)
    if kind in _SCALARS:
        place = 0 if kind is float else int(operand)  # type: ignore[arg-type]
        return Term(kind.__name__, place, place, operand, True)
    tag = getattr(operand, "tag", None)
    if tag == "bool":
        return Term(tag, 0, 1, getattr(operand, "data", None))
    if tag in ("int", "float"):
        low, high = operand.bounds or INT64  # type: ignore[union-attr]
        return Term(tag, low, high, getattr(operand, "data", None))
    return None
