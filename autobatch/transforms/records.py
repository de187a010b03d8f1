"""What a transform is before it runs: the function that makes it, and its options.

A function that a transform has made bears ``__autobatch_transform__``, a ``Made``; functions that
are or make transforms are known by ``kind_of``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

import torch

from autobatch.structure import own_attribute

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
GRADIENTS = ("grad", "grad_and_value", "value_and_grad")
"""Kinds whose calls a recording may hold."""
DIRECT = ("jvp", "map_fn", "pfor", "vjp")
"""Kinds that take a function and its arguments at once, rather than make a function."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
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
    """The pullback of ``vjp``, as a function of ``(f, *primals)`` and the cotangents.

    ``seeded``: the last of the primals says where ``f`` began to draw.
    """

    has_aux: bool
    seeded: bool = False
    __autobatch__ = "transform"

    def __call__(self, given: tuple[Any, ...], *cotangents: Any, **kwargs: Any) -> Any:
        f, *primals = given
        with primals.pop().again() if self.seeded else nullcontext():
            pull = torch.func.vjp(f, *primals, has_aux=self.has_aux)[1]
        return pull(*cotangents, **kwargs)

    def flat(self, f: Callable[..., Any], *args: Any) -> Any:
        """The same as a function of ``f``, the primals and one tree of cotangents."""
        return self((f, *args[:-1]), args[-1])

    @property
    def __name__(self) -> str:
        return "vjp"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Made:
    """What a transform has made a function of; ``result`` is what it has made."""

    transform: Transform
    function: Callable[..., Any]
    result: Callable[..., Any]


def made_of(callee: Any) -> Made | None:
    """What a function is a transform of, ours or torch's; None if it is none.

    A wrapper may have taken on the attributes of what it wraps, so these alone say nothing.
    """
    if is_torchs(callee):
        return seen_through(callee)
    made = own_attribute(callee, "__autobatch_transform__")
    return made if isinstance(made, Made) and made.result is callee else None


def is_torchs(function: Any) -> bool:
    """Whether ``torch.func`` made it (``jacrev(f)``); it bears the name and the module of ``f``."""
    if not isinstance(function, FunctionType):
        return False
    return str(function.__globals__.get("__name__", "")).startswith("torch._functorch.")


def seen_through(function: FunctionType) -> Made | None:
    """What ``torch.func`` has made a function of; None for what autobatch does not know."""
    make = WRAPPERS.get(function.__code__)
    if make is None:
        return None
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    held = {name: cell.cell_contents for name, cell in cells}
    options = {name: held[name] for name in signature(make).parameters if name in held}
    wrapped = options.pop("func", None)
    return None if wrapped is None else Made(transform_of(make, (), options), wrapped, function)


def kind_of(callee: Any) -> str | None:
    """Which transform a function is, torch's or ours; None if it is none."""
    own: str | None = own_attribute(callee, "__autobatch_kind__")
    return own if own is not None else TORCH.get(callee)


def derives(make: object) -> bool:
    """Whether it makes the gradient of a function; no code of the user's runs."""
    return isinstance(make, FunctionType) and kind_of(make) in GRADIENTS


@lru_cache(maxsize=64)
def signature(make: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(make)


def nothing(*args: Any) -> None:
    """Transformed to see by what code torch's transforms run."""


MAKERS = (torch.func.grad, torch.func.grad_and_value, torch.func.jacfwd, torch.func.jacrev)
WRAPPERS: dict[CodeType, Any] = {
    make(nothing).__code__: make for make in (*MAKERS, torch.func.vmap)
}
"""The code of what ``torch.func`` makes; a Hessian is a Jacobian of another."""


@lru_cache(maxsize=1024)
def interned(
    make: Any, args: tuple[Any, ...], named: tuple[tuple[str, Any], ...], types: Any
) -> Transform:
    """One record for equal options: groups that have made it apart are alike.

    ``types`` are those of the options: 1, 1.0 and True are equal, and mean other ``argnums``.
    """
    return Transform(make, args, named)


def types_of(option: Any) -> Any:
    """The type of an option, and the types within it if it is a tuple."""
    return tuple(map(types_of, option)) if type(option) is tuple else type(option)


def transform_of(make: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Transform:
    given = tuple(named.items())
    try:
        return interned(make, args, given, types_of((args, given)))
    except TypeError:  # a dict among the options
        return Transform(make, args, given)
