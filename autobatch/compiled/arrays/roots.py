"""What tensors of a program's own refer to, and how that is told between blocks and calls.

Within a block an array is known by its root (``writer``), so its type says nothing of who owns it.
"""

from __future__ import annotations

from dataclasses import replace

from autobatch.compiled.types import Array, Number, Rows, Scalar, Type, Value, flat_types
from autobatch.compiled.writer import Writer


def roots_of(w: Writer, value: Value, *kinds: type) -> list[str]:
    """What the leaves of a value that are tensors point into, or were read from as views."""
    wanted = kinds or (Array, Rows, Scalar)
    pairs = zip(value.leaves, flat_types(value.type), strict=True)
    return [w.root(leaf) for leaf, type_ in pairs if isinstance(type_, wanted)]


def may_view(leaf: Type) -> bool:
    """Whether a result may look at the elements of an array that was lent for the call."""
    match leaf:
        case Scalar(own=own):
            return not own
        case Rows(lent=lent):
            return lent
        case _:
            return False


def unmarked(leaf: Type, _: int) -> Type:
    """A leaf as it is within a block."""
    if isinstance(leaf, Number):
        return Number(leaf.tag)
    return replace(leaf, own=False) if isinstance(leaf, Array) else leaf


def handed(leaf: Type, _: int) -> Type:
    """A leaf as the host is given it."""
    return Array(leaf.dtype, leaf.shape) if isinstance(leaf, Array) else unmarked(leaf, 0)


def owned(leaf: Type, _: int) -> Type:
    """A tensor as an array of the function's own."""
    return Array(leaf.dtype, leaf.shape, strides=leaf.strides) if isinstance(leaf, Rows) else leaf


def lent(leaf: Type, _: int) -> Type:
    """An array as another function has it."""
    if not isinstance(leaf, Array):
        return leaf
    return Rows(leaf.dtype, leaf.shape, lent=True, strides=leaf.strides)
