"""What a variable is known to hold, for any thread: its kind, and of a tensor dtype and shape.

In: nothing. Out: ``Type`` and its text, which ``ir.printer`` writes and ``of_text`` reads:

    type = "None" | "bool" | "int" | "float" | "str"     (a literal's)
         | ("tensor" | DTYPE) [shape]                     (DTYPE as torch calls it, without torch.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

Shape = tuple[int | None, ...]

LITERALS = ("None", "bool", "int", "float", "str")
NUMBERS = frozenset({"bool", "int", "float"})
TENSOR = "tensor"
FLOATING = frozenset({"float16", "bfloat16", "float32", "float64"})
INTEGRAL = frozenset({"uint8", "int8", "int16", "int32", "int64"})
DTYPES = FLOATING | INTEGRAL | {"bool_", "complex64", "complex128"}
"""The tensor dtypes that have a name here; ``torch.bool`` is ``bool_``, apart from Python's."""
PATTERN = re.compile(r"(\w+)(\[(?:(?:\d+|\*)(?:, (?:\d+|\*))*)?\])?")


@dataclass(frozen=True, slots=True)
class Type:
    """``kind`` is a literal's, or ``"tensor"``; ``dtype`` is empty if not known.

    ``shape`` is one thread's, None where not even its length is known, as is a size in it.
    """

    kind: str
    dtype: str = ""
    shape: Shape | None = None

    def __str__(self) -> str:
        if self.kind != TENSOR:
            return self.kind
        sizes = self.shape
        shown = "" if sizes is None else f"[{', '.join(map(size_text, sizes))}]"
        return f"{self.dtype or TENSOR}{shown}"

    @property
    def is_number(self) -> bool:
        """A number of Python's: nothing can write to it."""
        return self.kind in NUMBERS

    @property
    def is_plain(self) -> bool:
        """A number or a tensor: operators on it run no code of the user's."""
        return self.is_number or self.kind == TENSOR

    @property
    def is_bare(self) -> bool:
        """Nothing that a write in place could change."""
        return not self.dtype and self.shape is None

    def without_shape(self) -> Type:
        return self if self.is_bare else replace(self, dtype="", shape=None)


def size_text(size: int | None) -> str:
    return "*" if size is None else str(size)


def of_text(text: str) -> Type | None:
    """The type that a text is of; None if it is none."""
    found = PATTERN.fullmatch(text)
    if found is None:
        return None
    name, sizes = found.groups()
    if sizes is None and name in LITERALS:
        return Type(name)
    if name != TENSOR and name not in DTYPES:
        return None
    shape = None if sizes is None else tuple(map(size_of, sizes[1:-1].split(", ")))
    if sizes == "[]":
        shape = ()
    return Type(TENSOR, "" if name == TENSOR else name, shape)


def size_of(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def declared(shape: Shape) -> Type | None:
    """What an input holds whose event shape is declared; one without dimensions may be a number."""
    return Type(TENSOR, "", shape) if shape else None


def joined(one: Type, other: Type) -> Type | None:
    """What holds of both; None if nothing does."""
    if one == other:
        return one
    if one.kind == other.kind == TENSOR:
        dtype = one.dtype if one.dtype == other.dtype else ""
        return Type(TENSOR, dtype, joined_shapes(one.shape, other.shape))
    return None


def joined_shapes(one: Shape | None, other: Shape | None) -> Shape | None:
    if one is None or other is None or len(one) != len(other):
        return None
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))
