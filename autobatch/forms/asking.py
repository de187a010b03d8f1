"""What Python does where a special method has no answer, as Python for one example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def answered(answer: Any, method: Callable[[Any, Any], Any], receiver: Any, other: Any) -> Any:
    """The answer of the method that is asked next, where that before gives none."""
    return method(receiver, other) if answer is NotImplemented else answer


def is_same(left: Any, right: Any) -> bool:
    return left is right


def is_other(left: Any, right: Any) -> bool:
    return left is not right
