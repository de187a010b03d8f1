"""From Python source to the intermediate representation: the accepted subset, and lowering."""

from __future__ import annotations

from autobatch.frontend.decided import Decided, Path, meaning
from autobatch.frontend.lowering import Lowered, lower, lower_function, lower_program
from autobatch.frontend.resolve import MISSING, Resolver, python_function, static_attribute

__all__ = [
    "MISSING",
    "Decided",
    "Lowered",
    "Path",
    "Resolver",
    "lower",
    "lower_function",
    "lower_program",
    "meaning",
    "python_function",
    "static_attribute",
]
