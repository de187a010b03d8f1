"""Names for the leaves of a result, as far as the text of a ``return`` shows them.

``return x, {"loss": y}`` has the leaves ``out.0`` and ``out.1.loss``; anything but a display of a
tuple, a list or a dict with string keys is one leaf.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence


def leaves(node: ast.expr | None, name: str = "out") -> tuple[str, ...]:
    """The names of the leaves of ``node``, in the order in which they are written."""
    parts = list(_parts(node))
    if not parts:
        return (name,)
    inner = [leaves(part, f"{name}.{key}") for key, part in parts]
    return tuple(leaf for each in inner for leaf in each)


def _parts(node: ast.expr | None) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Tuple(elts=items) | ast.List(elts=items):
            if not any(isinstance(item, ast.Starred) for item in items):
                yield from ((str(place), item) for place, item in enumerate(items))
        case ast.Dict(keys=keys, values=values):
            names = _string_keys(keys)
            if len(set(names)) == len(keys):
                yield from zip(names, values, strict=True)


def _string_keys(keys: Sequence[ast.expr | None]) -> list[str]:
    """The keys that are string literals."""
    values = [key.value for key in keys if isinstance(key, ast.Constant)]
    return [value for value in values if isinstance(value, str)]
