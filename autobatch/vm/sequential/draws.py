"""``randomness="error"`` for one thread: what torch runs for it may not draw.

In: what is called as plain Python. Out: a context for that call, in which an operation of torch's
that draws raises what it raises in a batch. As there, a draw from a generator that is named is
allowed, and so is what runs thread by thread in a batch, too, which nobody looks into.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from autobatch.batching.effects import effect_of
from autobatch.batching.levels import DrawError
from autobatch.batching.tensors.torch_ops import draw_message
from autobatch.random.drawing import is_random, is_still
from autobatch.structure import own_attribute
from autobatch.transforms.records import TORCH, made_of

OF_TORCH = frozenset({"torch", "draw", "write", "transform"})
"""Effects of callees that are torch's."""
_LOOKED_AT: ContextVar[bool] = ContextVar("autobatch_draws_looked_at", default=True)


class _Refusing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operations that draw raise in the name of what has been called."""

    def __init__(self, callee: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.callee = callee

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        draws = is_random(func) and not is_still(func, args, kwargs)
        if draws and kwargs.get("generator") is None and _LOOKED_AT.get():
            kind = type(self.callee)
            raise DrawError(draw_message(kind if issubclass(kind, nn.Module) else self.callee))
        return func(*args, **kwargs)


def refusing(callee: Any, args: Sequence[Any]) -> AbstractContextManager[None]:
    """What a call of plain Python runs in."""
    effect, made = effect_of(callee), made_of(callee)
    if made is not None and made.transform.kind == "vmap" and made.transform.make not in TORCH:
        return nullcontext()  # a batch, which asks for itself
    handed = effect == "host" and any(callable(a) and not isinstance(a, type) for a in args)
    if effect in OF_TORCH or handed or isinstance(own_attribute(callee, "__self__"), Tensor):
        return looking(callee)
    return unseen() if effect == "unknown" else nullcontext()


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
