"""What Python's ``sum`` does besides adding: since 3.12 it makes up for what its additions lose.

It adds ints while they fit a C long, then floats, where what each addition has lost is added up
beside the total (Neumaier's sum), then anything, plainly; once it does so it does to the end. What
has been ``lost`` says how far it is: ``0`` while the total is an int, a float beside a float, None
where it adds plainly::

    lost = begun(total)
    for item in items:
        total = left(total, lost, item)
        lost, total = lost_by(lost, total, item, total + item), total + item
    total = whole(total, lost)

How exactly differs from release to release, 3.13's among themselves, so the ``sum`` that runs is
asked. Before 3.12 there is nothing of it: ``lost`` is always None. No ``sum`` begins with a string.
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

Lost: TypeAlias = Literal[0] | float | complex | None
STRINGS = (str, bytes, bytearray)
"""What no sum begins with."""
LIMIT = 2**63
"""Ints from here on fit no C long."""


class _Nothing:
    """What is no number, and leaves what it is added to as it is."""

    def __radd__(self, other: Any) -> Any:
        return other


def _sum(*items: Any) -> Any:
    return sum(items)


COMPENSATED: bool = _sum(1e16, 1.0, -1e16) == 1.0
"""Whether what additions of floats lose is added at the end."""
WHOLE_WHEN_LEFT: bool = COMPENSATED and _sum(1e16, 1.0, -1e16, _Nothing()) == 1.0
"""Whether it is added, too, where something else is added to the floats."""
COMPENSATED_INTS: bool = COMPENSATED and _sum(1e16, 1, -1e16) == 1.0
"""Whether the same goes for ints among the floats."""
COMPENSATED_COMPLEX: bool = COMPENSATED and _sum(1e16 + 0j, 1.0, -1e16) == 1.0
"""Whether complex numbers are added so, too: both of their parts."""


def begun(start: Any) -> Lost:
    """How ``sum`` begins."""
    if isinstance(start, STRINGS):
        sum((), start)  # raises
    if type(start) is int:
        return 0 if COMPENSATED and fits(start) else None
    return _beside(start)


def _beside(total: Any) -> Lost:
    """Nothing is lost yet of a total that is no int."""
    if type(total) is float:
        return 0.0 if COMPENSATED else None
    return 0j if type(total) is complex and COMPENSATED_COMPLEX else None


def fits(number: int) -> bool:
    return -LIMIT <= number < LIMIT


def goes_on(lost: Lost, item: Any) -> bool:
    """Whether ``sum`` still adds as it did, floats or complex numbers, when it adds an item."""
    if type(lost) is complex:
        return type(item) is complex or isinstance(item, int | float)
    if type(item) is float:
        return True
    return isinstance(item, int) and (COMPENSATED_INTS or fits(item))


def left(total: Any, lost: Lost, item: Any) -> Any:
    """The total that an item is added to."""
    if not WHOLE_WHEN_LEFT or not lost or goes_on(lost, item):
        return total
    return whole(total, lost)


def lost_by(lost: Lost, total: Any, item: Any, after: Any) -> Lost:
    """What has been lost when ``total + item`` has given ``after``."""
    if lost is None:
        return None
    if type(lost) is int:
        if type(item) is int or type(item) is bool:
            return 0 if fits(item) and fits(after) else None
        return _beside(after)
    if not goes_on(lost, item):
        return _beside(after) if type(lost) is float and type(after) is complex else None
    if type(lost) is complex:
        real = lost.real + error(total.real, float(item.real), after.real)
        if type(item) is not complex:
            return complex(real, lost.imag)
        return complex(real, lost.imag + error(total.imag, item.imag, after.imag))
    if type(item) is float or COMPENSATED_INTS:
        return lost + error(total, float(item), after)
    return lost


def error(a: float, b: float, c: float) -> float:
    """By how much ``c``, the nearest float to ``a + b``, falls short of it."""
    return (a - c) + b if abs(a) >= abs(b) else (b - c) + a


def whole(total: Any, lost: Lost) -> Any:
    """The sum: no infinite loss makes it nan, and none keeps the sign of a zero."""
    if type(lost) is complex:
        return complex(whole(total.real, lost.real), whole(total.imag, lost.imag))
    return total + lost if lost and abs(lost) < math.inf else total
