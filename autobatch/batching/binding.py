"""How the arguments of a call reach the parameters of a lowered function.

In: a function's parameters, the name that messages give it, arguments, and defaults in the
order of the parameters that have one. Out: a value for each parameter, or the ``TypeError``
that Python raises, word for word: a Python function of the same parameters does the binding.
Values are only handed on, so the engines bind cells with it as well as real values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import FunctionType
from typing import Any

from autobatch.ir.program import Param

_MISSING = object()
_STARS = {"var_positional": "*", "var_keyword": "**"}


def bind(
    params: tuple[Param, ...],
    title: str,
    args: Iterable[Any],
    kwargs: Mapping[str, Any],
    defaults: Iterable[Any] = (),
) -> dict[str, Any]:
    """The parameters' values by name. ``*args`` gets a tuple and ``**kwargs`` a dict."""
    values = _binder(params, title)(*args, **kwargs)
    remaining = iter(defaults)
    for param in params:
        if param.has_default:
            default = next(remaining)
            if values[param.name] is _MISSING:
                values[param.name] = default
    return values


def defaults_of(function: FunctionType, params: tuple[Param, ...]) -> list[Any]:
    """A Python function's defaults as they are now, in the order of ``params`` that have one."""
    positional = list(function.__defaults__ or ())
    keywords = function.__kwdefaults__ or {}
    named = [p.name for p in params if p.has_default and p.kind == "keyword_only"]
    return positional + [keywords[name] for name in named]


@lru_cache(maxsize=1024)
def _binder(params: tuple[Param, ...], title: str) -> Callable[..., dict[str, Any]]:
    """``lambda a, b=missing, *c: {"a": a, …}`` under the name that errors are to show."""
    source = (
        f"lambda {_signature(params)}: {{{', '.join(f'{p.name!r}: {p.name}' for p in params)}}}"
    )
    binder: Callable[..., dict[str, Any]] = eval(source, {"_MISSING": _MISSING})
    binder.__name__ = binder.__qualname__ = title
    return binder


def _signature(params: tuple[Param, ...]) -> str:
    parts: list[str] = []
    kinds = [p.kind for p in params]
    for index, param in enumerate(params):
        if param.kind == "keyword_only" and not {"keyword_only", "var_positional"} & {
            *kinds[:index]
        }:
            parts.append("*")
        default = "=_MISSING" if param.has_default else ""
        parts.append(f"{_STARS.get(param.kind, '')}{param.name}{default}")
        if param.kind == "positional_only" and "positional_only" not in kinds[index + 1 :]:
            parts.append("/")
    return ", ".join(parts)
