"""``randomness="error"`` for one thread: what torch runs for it may not draw.

In: what is called as plain Python. Out: a context for that call, in which an operation of torch's
that draws raises what it raises in a batch. As there, a draw from a generator that is named is
allowed, and so is what runs thread by thread in a batch, too, which nobody looks into.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor

from autobatch.batching.effects import effect_of
from autobatch.batching.refused_draws import looking, makes_modules, unseen
from autobatch.structure import own_attribute
from autobatch.transforms.records import TORCH, made_of

OF_TORCH = frozenset({"torch", "draw", "write", "transform"})
"""Effects of callees that are torch's."""


def refusing(callee: Any, args: Sequence[Any]) -> AbstractContextManager[None]:
    """What a call of plain Python runs in."""
    effect, made = effect_of(callee), made_of(callee)
    if made is not None and made.transform.kind == "vmap" and made.transform.make not in TORCH:
        return nullcontext()  # a batch, which asks for itself
    handed = effect == "host" and any(callable(a) and not isinstance(a, type) for a in args)
    of_tensor = isinstance(own_attribute(callee, "__self__"), Tensor)
    if effect in OF_TORCH or handed or of_tensor or makes_modules(callee):
        return looking(callee)
    return unseen() if effect == "unknown" else nullcontext()
