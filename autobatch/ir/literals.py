"""Literals in the text of programs: Python's own, in a form that says the value to the last bit.

In: a value, and names for the objects in it. Out: one line of text; ``ir.scanner`` reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from autobatch.ir.objects import object_name

_LONGEST = 10_000
"""Bits of the largest int in decimal: Python refuses to read very long ones."""


def literal(value: object, name_of: Callable[[object], str] = object_name) -> str:
    """Python's literal for ``value`` where it has one, otherwise its name."""
    kind = type(value)
    if value is None or kind in (bool, str, bytes):
        return repr(value)
    if isinstance(value, int) and kind is int:
        return str(value) if value.bit_length() < _LONGEST else hex(value)
    if isinstance(value, float) and kind is float:
        return _float(value)
    if isinstance(value, complex) and kind is complex:
        return _complex(value)
    if value is ...:
        return "..."
    if isinstance(value, tuple) and kind is tuple:
        items = ", ".join(literal(item, name_of) for item in value)
        return f"({items},)" if len(value) == 1 else f"({items})"
    if isinstance(value, frozenset) and kind is frozenset:
        return f"frozenset({{{', '.join(sorted(literal(item, name_of) for item in value))}}})"
    return name_of(value)


def _float(value: float) -> str:
    """Infinity as the number that is read as it; a NaN as ``nan``."""
    return repr(value) if not math.isinf(value) else "-1e309" if value < 0 else "1e309"


def _complex(value: complex) -> str:
    if math.copysign(1.0, value.real) > 0 and not value.real and math.isfinite(value.imag):
        return repr(value)
    return f"complex({_float(value.real)}, {_float(value.imag)})"
