"""How the arguments of a call reach the parameters of a lowered function.

In: a function's parameters, the name that messages give it, arguments, and defaults by the names
of their parameters: those that the function has now, whatever its text says. Out: a value for each
parameter, or the ``TypeError`` that Python raises, word for word: a Python function of the same
parameters does the binding. Values are only handed on, so the engines bind cells with it as well
as real values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import FunctionType, MappingProxyType
from typing import Any

from autobatch.ir.program import Param

NONE: Mapping[str, Any] = MappingProxyType({})
_MISSING = object()
_STARS = {"var_positional": "*", "var_keyword": "**"}


def bind(
    params: tuple[Param, ...],
    title: str,
    args: Iterable[Any],
    kwargs: Mapping[str, Any],
    defaults: Mapping[str, Any] = NONE,
) -> dict[str, Any]:
    """The parameters' values by name. ``*args`` gets a tuple and ``**kwargs`` a dict."""
    values = _binder(params, title, frozenset(defaults))(*args, **kwargs)
    for name, default in defaults.items():
        if values[name] is _MISSING:
            values[name] = default
    return values


def defaults_of(function: FunctionType, params: tuple[Param, ...]) -> dict[str, Any]:
    """A Python function's defaults as they are now; positional ones are those of the last."""
    positional = [p.name for p in params if p.kind in ("positional_only", "positional")]
    given, keywords = function.__defaults__ or (), function.__kwdefaults__ or {}
    found = dict(zip(reversed(positional), reversed(given), strict=False))
    named = [p.name for p in params if p.kind == "keyword_only" and p.name in keywords]
    return found | {name: keywords[name] for name in named}


def by_name(params: tuple[Param, ...], defaults: Iterable[Any]) -> dict[str, Any]:
    """The defaults that a nested function was made with: those of its text."""
    return dict(zip((p.name for p in params if p.has_default), defaults, strict=True))


@lru_cache(maxsize=1024)
def _binder(
    params: tuple[Param, ...], title: str, optional: frozenset[str]
) -> Callable[..., dict[str, Any]]:
    """``lambda a, b=missing, *c: {"a": a, …}`` under the name that errors are to show."""
    shown = _signature(params, optional)
    source = f"lambda {shown}: {{{', '.join(f'{p.name!r}: {p.name}' for p in params)}}}"
    binder: Callable[..., dict[str, Any]] = eval(source, {"_MISSING": _MISSING})
    binder.__name__ = binder.__qualname__ = title
    return binder


def _signature(params: tuple[Param, ...], optional: frozenset[str]) -> str:
    parts: list[str] = []
    kinds = [p.kind for p in params]
    for index, param in enumerate(params):
        if param.kind == "keyword_only" and not {"keyword_only", "var_positional"} & {
            *kinds[:index]
        }:
            parts.append("*")
        default = "=_MISSING" if param.name in optional else ""
        parts.append(f"{_STARS.get(param.kind, '')}{param.name}{default}")
        if param.kind == "positional_only" and "positional_only" not in kinds[index + 1 :]:
            parts.append("/")
    return ", ".join(parts)
