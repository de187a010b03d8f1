"""What the patterns of a ``match`` statement ask of their subject (PEP 634), as plain functions.

Lowered ``match`` statements import these and call them; like any helper, they run as part of the
program, so they are written within the language.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_THEMSELVES = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)
"""Builtins whose one positional sub-pattern takes the subject itself."""
_NOTHING = object()


def sequence_length(subject: object) -> int:
    """The length of what a sequence pattern may match, -1 of anything else."""
    if isinstance(subject, (str, bytes, bytearray)) or not isinstance(subject, Sequence):
        return -1
    return len(subject)


def mapping_values(subject: object, keys: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The values under ``keys``, None if ``subject`` is no mapping or lacks one."""
    if not isinstance(subject, Mapping):
        return None
    found: list[Any] = []
    for key in keys:
        value = subject.get(key, _NOTHING)  # as Python does: a ``defaultdict`` makes no entry
        if value is _NOTHING:
            return None
        found.append(value)
    return tuple(found)


def mapping_rest(subject: Mapping[Any, Any], keys: tuple[Any, ...]) -> dict[Any, Any]:
    """What ``**rest`` takes: the items under other keys."""
    return {key: subject[key] for key in subject if key not in keys}


def class_attributes(
    subject: object, kind: type, count: int, names: tuple[str, ...]
) -> tuple[Any, ...] | None:
    """What ``kind(p1, …, name=p)`` takes: ``count`` by ``__match_args__``, then by ``names``.

    None if ``subject`` is no ``kind``, or lacks an attribute.
    """
    if not isinstance(kind, type):
        raise TypeError("called match pattern must be a class")
    if not isinstance(subject, kind):
        return None
    known: tuple[str, ...] = getattr(kind, "__match_args__", ())
    own = not hasattr(kind, "__match_args__") and issubclass(kind, _THEMSELVES)
    most = 1 if own else len(known)
    if count > most:
        plural = "" if most == 1 else "s"
        raise TypeError(
            f"{kind.__name__}() accepts {most} positional sub-pattern{plural} ({count} given)"
        )
    found: list[Any] = [subject] if own and count else []
    for name in known[: 0 if own else count] + names:
        value = getattr(subject, name, _NOTHING)  # asked once: a property may print
        if value is _NOTHING:
            return None
        found.append(value)
    return tuple(found)
