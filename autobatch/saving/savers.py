"""The saver at work in this host thread: it runs the functions that a run's kernels are in.

In: a function of tensors, pure, and its arguments. Out: what it returns; the saver has seen to what
autograd saves of it. Within a functorch transform torch lets nobody do that, so it saves as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import torch
from torch import Tensor

from autobatch.compat import within_level

CHANGED = (
    "A tensor that a batched call needs for its gradients was changed in place after the call; "
    'clone it before, or use save="keep".'
)


class Saver(Protocol):
    """``is_step``: whether the call is a step of the run, or moves rows between two of them.

    ``decide`` hears of what a function at work decides by more than its arguments; ``rest`` is
    called when a part of the run is over.
    """

    def call(self, function: Callable[..., Any], args: Sequence[Any], is_step: bool) -> Any: ...
    def decide(self, answer: bool) -> None: ...
    def rest(self) -> None: ...


def results(made: Any) -> Sequence[Tensor]:
    """What a function returns, a tensor or several, as a sequence."""
    found: Sequence[Tensor] = (made,) if isinstance(made, Tensor) else made
    return found


def version(tensor: Tensor) -> int:
    """How often a tensor has been written in place; tensors of inference mode do not count."""
    return -1 if tensor.is_inference() else tensor._version


_AT_WORK: ContextVar[Saver | None] = ContextVar("autobatch.saver", default=None)


@contextmanager
def saving(saver: Saver | None) -> Iterator[None]:
    """``saver`` is at work, where gradients are wanted; None: torch's own way."""
    if saver is None or not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        yield
        return
    token = _AT_WORK.set(saver)
    try:
        yield
    finally:
        _AT_WORK.reset(token)
        saver.rest()


def saver_at_work() -> Saver | None:
    """What sees to what autograd saves, if anything does."""
    return None if within_level() else _AT_WORK.get()


def is_saving() -> bool:
    return saver_at_work() is not None


def saved(function: Callable[..., Any], *args: Any, is_step: bool = False) -> Any:
    """``function(*args)``, by way of the saver at work."""
    saver = saver_at_work()
    if saver is None:
        return function(*args)
    return saver.call(function, args, is_step)


_AGAIN: ContextVar[Iterator[bool] | None] = ContextVar("autobatch.saver.again", default=None)


@contextmanager
def again(answers: Iterable[bool]) -> Iterator[None]:
    """What runs inside has run before, and decided so."""
    token = _AGAIN.set(iter(answers))
    try:
        yield
    finally:
        _AGAIN.reset(token)


def is_again() -> bool:
    """Whether the function at work has run before."""
    return _AGAIN.get() is not None


def is_noted() -> bool:
    """Whether somebody notes what is decided, or has."""
    return _AGAIN.get() is not None or _AT_WORK.get() is not None


def decided(find: Callable[[], bool]) -> bool:
    """What ``find`` says; or has said, where the function at work has run before."""
    if (answers := _AGAIN.get()) is not None:
        return next(answers, False)
    answer = find()
    if (saver := saver_at_work()) is not None:
        saver.decide(answer)
    return answer
