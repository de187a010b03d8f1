"""Draws of one thread: those of transforms, and none, by torch, under ``randomness="error"``.

In: what is called as plain Python. Out: a context for that call, in which an operation of torch's
that draws raises what it raises in a batch. As there, a draw from a generator that is named is
allowed, and so is what runs thread by thread in a batch, too, which nobody looks into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.effects import effect_of
from autobatch.batching.refused_draws import looking, makes_modules, unseen
from autobatch.random.drawing import SOURCE
from autobatch.random.sources import Thread
from autobatch.structure import own_attribute
from autobatch.transforms.records import TORCH, Transform, made_of, transform_of

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


def alike(transform: Transform) -> Transform:
    """A transform whose function draws once: a Jacobian by tangents runs it for all at once."""
    if transform.kind not in ("jacfwd", "hessian"):
        return transform
    given = transform.options()
    given.pop("randomness", None)
    make = torch.func.jacfwd if transform.kind == "jacfwd" else second
    return transform_of(make, (), {**given, "randomness": "same"})


def second(func: Any, argnums: Any, randomness: str) -> Any:
    """``torch.func.hessian`` with an option for draws, which it has not."""
    inner = torch.func.jacrev(func, argnums)
    return torch.func.jacfwd(inner, argnums, randomness=randomness)


def drawing_as(options: dict[str, Any], draws: str) -> dict[str, Any]:
    """The options of a ``vmap`` of ours within a program in which draws mean ``draws``.

    That holds where it is an error, and where the ``vmap`` itself lets nothing be drawn.
    """
    given = dict(options)
    own = given["randomness"]
    holds = draws == "error" or own in (None, "error")
    return {**given.pop("options"), **given, "randomness": draws if holds else own}


def unopened(run: Callable[..., Any]) -> Callable[..., Any]:
    """What runs a function in frames, for Python: under a seed no call within opens a path."""

    def flat(*call: Any) -> Any:
        source = SOURCE.get()
        if type(source) is not Thread:
            return run(*call)
        before, source.flat = source.flat, True
        try:
            return run(*call)
        finally:
            source.flat = before

    return flat
