"""What a transform is before it runs: the function that makes it, and its options.

A function that a transform has made bears ``__autobatch_transform__``, a ``Made``; functions that
are or make transforms are known by ``kind_of``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

TORCH: dict[Any, str] = {
    torch.func.grad: "grad",
    torch.func.grad_and_value: "grad_and_value",
    torch.func.hessian: "hessian",
    torch.func.jacfwd: "jacfwd",
    torch.func.jacrev: "jacrev",
    torch.func.jvp: "jvp",
    torch.func.vjp: "vjp",
    torch.func.vmap: "vmap",
}
"""torch's transforms; inside a program they are ours."""
DIRECT = ("jvp", "vjp")
"""Kinds that take a function and its arguments at once, rather than make a function."""


@dataclass(frozen=True, slots=True, eq=False)
class Transform:
    """``make(f, *args, **named)``, as a function of ``f`` and the arguments of its call."""

    make: Callable[..., Any]
    args: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()
    __autobatch__ = "transform"

    def __call__(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.make(f, *self.args, **dict(self.named))(*args, **kwargs)

    @property
    def __name__(self) -> str:
        return str(self.make.__name__)

    @property
    def kind(self) -> str:
        kind = kind_of(self.make)
        assert kind is not None
        return kind

    def options(self) -> dict[str, Any]:
        """The options by name, those that were not given among them."""
        bound = signature(self.make).bind(None, *self.args, **dict(self.named))
        bound.apply_defaults()
        return dict(list(bound.arguments.items())[1:])


@dataclass(frozen=True, slots=True)
class Pull:
    """The pullback of ``vjp``, as a function of ``(f, *primals)`` and the cotangents."""

    has_aux: bool
    __autobatch__ = "transform"

    def __call__(self, given: tuple[Any, ...], *cotangents: Any, **kwargs: Any) -> Any:
        f, *primals = given
        return torch.func.vjp(f, *primals, has_aux=self.has_aux)[1](*cotangents, **kwargs)

    def flat(self, f: Callable[..., Any], *args: Any) -> Any:
        """The same as a function of ``f``, the primals and one tree of cotangents."""
        return self((f, *args[:-1]), args[-1])

    @property
    def __name__(self) -> str:
        return "vjp"


@dataclass(frozen=True, slots=True)
class Made:
    """What a transform has made a function of."""

    transform: Transform
    function: Callable[..., Any]


def kind_of(callee: Any) -> str | None:
    """Which transform a function is, torch's or ours; None if it is none."""
    own: str | None = getattr(callee, "__autobatch_kind__", None)
    return own if own is not None else TORCH.get(callee)


@lru_cache(maxsize=64)
def signature(make: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(make)


@lru_cache(maxsize=1024)
def interned(make: Any, args: tuple[Any, ...], named: tuple[tuple[str, Any], ...]) -> Transform:
    """One record for equal options: groups that have made it apart are alike."""
    return Transform(make, args, named)


def transform_of(make: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Transform:
    given = tuple(named.items())
    try:
        return interned(make, args, given)
    except TypeError:  # a dict among the options
        return Transform(make, args, given)
