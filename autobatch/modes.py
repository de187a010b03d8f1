"""Dispatch modes, which see the operators that this host thread runs, and what is not compiled."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Self, TypeVar, cast

import torch
from torch._C._dynamo import eval_frame
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)

F = TypeVar("F", bound=Callable[..., Any])


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that sees operators; it does not load ``torch._dynamo``, and goes off by all means.

    An interrupt as torch puts it on, or takes it off, would leave it there for all that follows.

    torch keeps its compiler off the code of each mode, and loads the compiler to tell it so when
    the first operator comes: one to two seconds of the first seeded call in a process. It is told
    here once it is there.
    """

    def __enter__(self) -> Self:
        try:
            super().__enter__()  # type: ignore[no-untyped-call]
        except BaseException:
            take_off(self)
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            super().__exit__(*raised)  # type: ignore[no-untyped-call]
        finally:
            take_off(self)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        own = cls.__dict__.get("__torch_dispatch__")
        super().__init_subclass__(**kwargs)  # type: ignore[no-untyped-call]
        if own is None:
            return
        cls.__torch_dispatch__ = uncompiled(own)  # type: ignore[method-assign]


looks_on: Callable[[], object] = getattr(eval_frame, "get_eval_frame_callback", lambda: True)
"""What looks at each frame of this host thread, None if nothing does; a torch that does not tell
is taken to."""


def compiler_at_work() -> bool:
    """Whether torch's compiler looks at the code that this host thread runs."""
    return "torch._dynamo" in sys.modules and looks_on() is not None


def uncompiled(own: F) -> F:
    """Keep torch's compiler off a function and all that it calls, without loading the compiler."""
    kept_off = torch._disable_dynamo(own)  # type: ignore[attr-defined]

    @functools.wraps(own)
    def called(*args: Any, **kwargs: Any) -> Any:
        return (kept_off if compiler_at_work() else own)(*args, **kwargs)

    return cast(F, called)


def take_off(mode: TorchDispatchMode) -> None:
    """See to it that a mode is not on; those above it stay."""
    on = _get_current_dispatch_mode_stack()
    if not any(each is mode for each in on):
        return
    above: list[TorchDispatchMode] = []
    while (found := _pop_mode()) is not mode:
        above.append(found)
    for each in reversed(above):
        _push_mode(each)
