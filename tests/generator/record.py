"""A generated program: its source text, the kinds of its parameters, and rows to run it on.

The text is written to a real file and imported from there, since lowering reads source
by file and line. Row ``i`` of the inputs depends on the seed and ``i`` alone, never on
the batch size, so that a failure at 64 threads can be looked for in one thread.

Kinds of parameters, as one thread sees them: ``int``, ``float``, ``bool`` (numbers, with
``scalars="python"``); ``i0 f0 d0 b0`` (0-d tensors: int64, float32, float64, bool);
``i3 f3 d3`` (tensors of shape [3]); ``text`` and ``numbers`` (a string, a list of ints).
"""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

# Dyadic values: their sums and products are exact, so a branch on them cannot go another
# way because a batched reduction rounds otherwise.
INTEGERS = (0, 1, 2, 3, 4, 5, 7, 9, 12, -1, -2, -5)
FLOATS = (0.0, 0.5, 1.0, 1.5, 2.25, 3.0, -0.5, -1.25, -2.0, 6.5)
WORDS = ("", "a", "bc", "cab", "abba", "Bead", "deed cab")

DTYPES = {
    "int": torch.int64,
    "float": torch.float64,
    "bool": torch.bool,
    "i": torch.int64,
    "f": torch.float32,
    "d": torch.float64,
    "b": torch.bool,
}
OBJECT_KINDS = ("text", "numbers")


@dataclass(frozen=True, slots=True)
class GeneratedProgram:
    """``source`` defines ``program``; ``large`` puts integers near int64's end among the rows."""

    source: str
    params: tuple[str, ...]
    scalars: str
    large: bool = False

    def function(self) -> Callable[..., Any]:
        """The function ``program`` of the imported source."""
        function: Callable[..., Any] = load_module(self.source).program
        return function

    def columns(self, batch: int, seed: int) -> tuple[Any, ...]:
        """One argument per parameter: a tensor ``[batch, *E]``, or a list of ``batch`` objects."""
        return tuple(
            self._column(kind, [random.Random(f"{seed}/{place}/{i}") for i in range(batch)])
            for place, kind in enumerate(self.params)
        )

    def _column(self, kind: str, sources: list[random.Random]) -> Any:
        rows = [_row(kind, source, self.large) for source in sources]
        if kind in OBJECT_KINDS:
            return rows
        shape = (len(rows), 3) if kind.endswith("3") else (len(rows),)
        return torch.tensor(rows, dtype=_dtype(kind)).reshape(shape)

    def row(self, columns: tuple[Any, ...], i: int) -> tuple[Any, ...]:
        """What thread ``i`` is given: private copies, Python numbers where the kind says so."""
        return tuple(
            _thread_value(kind, column[i])
            for kind, column in zip(self.params, columns, strict=True)
        )

    def __repr__(self) -> str:
        head = f"params={self.params} scalars={self.scalars!r} large={self.large}"
        return f"<{head}\n{self.source}>"


def _dtype(kind: str) -> torch.dtype:
    return DTYPES[kind] if kind in DTYPES else DTYPES[kind[0]]


def _thread_value(kind: str, value: Any) -> Any:
    if kind in OBJECT_KINDS:
        return copy.deepcopy(value)
    return value.item() if kind in DTYPES else value.clone()


def _row(kind: str, source: random.Random, large: bool) -> Any:
    if kind == "text":
        return source.choice(WORDS)
    if kind == "numbers":
        return source.choices(INTEGERS, k=source.randrange(5))
    pool = _pool(_dtype(kind), large)
    return source.choices(pool, k=3) if kind.endswith("3") else source.choice(pool)


def _pool(dtype: torch.dtype, large: bool) -> tuple[Any, ...]:
    if dtype == torch.bool:
        return (False, True)
    if dtype.is_floating_point:
        return FLOATS
    return (*INTEGERS, 2**61, -(2**62) + 1) if large else INTEGERS


@lru_cache(maxsize=1)
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="generated_programs_")


@lru_cache(maxsize=256)
def load_module(source: str) -> ModuleType:
    """Write ``source`` to a file of its own and import it."""
    name = "generated_" + hashlib.sha256(source.encode()).hexdigest()[:16]
    path = Path(_folder().name) / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
