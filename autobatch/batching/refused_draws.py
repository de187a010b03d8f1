"""``randomness="error"``: what torch runs in a call that nobody looks into may not draw.

In: what is called. Out: a context for that call, in which an operation of torch's that draws raises
what it raises in a batch. A draw from a generator that is named is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import nn

from autobatch.batching.levels import DrawError
from autobatch.modes import DispatchMode
from autobatch.random.drawing import is_named, is_random, is_still
from autobatch.structure import own_attribute

_LOOKED_AT: ContextVar[bool] = ContextVar("autobatch_draws_looked_at", default=True)


class _Refusing(DispatchMode):
    """Operations that draw raise in the name of what has been called."""

    def __init__(self, callee: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.callee = callee

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        draws = is_random(func) and not is_still(func, args, kwargs)
        if draws and not is_named(kwargs.get("generator")) and _LOOKED_AT.get():
            kind = type(self.callee)
            raise DrawError(draw_message(kind if issubclass(kind, nn.Module) else self.callee))
        return func(*args, **kwargs)


def draw_message(function: Any) -> str:
    name = own_attribute(function, "__name__", str(function))
    return (
        f"{name} draws random numbers, and randomness is 'error': "
        "pass randomness='different' for draws of its own in each thread, or 'same', or seed=0 "
        "(any int) for draws of its own that do not depend on how the batch runs"
    )


def makes_modules(callee: Any) -> bool:
    """Whether it is a class of modules, whose parameters may be drawn."""
    return isinstance(callee, type) and issubclass(callee, nn.Module)


@contextmanager
def looking(callee: Any) -> Iterator[None]:
    token = _LOOKED_AT.set(True)
    try:
        with _Refusing(callee):
            yield
    finally:
        _LOOKED_AT.reset(token)


@contextmanager
def unseen() -> Iterator[None]:
    token = _LOOKED_AT.set(False)
    try:
        yield
    finally:
        _LOOKED_AT.reset(token)
