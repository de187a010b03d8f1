"""Random per-example programs as source text, for property tests: see ``families``."""

from __future__ import annotations

from .families import FAMILIES, WRITING, programs
from .record import OBJECT_KINDS, GeneratedProgram

__all__ = ["FAMILIES", "OBJECT_KINDS", "WRITING", "GeneratedProgram", "programs"]
