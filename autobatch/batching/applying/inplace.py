"""In-place operations by way of their functional twins.

``x.add_(y)`` is ``x.add(y)``, brought to the dtype and held to the shape of ``x``. The twin has
the converters, promotion and direct kernels that the in-place form lacks, needs no copy of the
old value, and leaves a recorded graph free of writes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.converters.registry import rows
from autobatch.batching.levels import Batched, event_dim
from autobatch.structure import own_attribute

_NO_TWIN = frozenset(
    "bernoulli_ copy_ requires_grad_ detach_ resize_ set_ float_power_".split()  # noqa: SIM905
)
_RESHAPING = frozenset(
    "squeeze_ unsqueeze_ t_ transpose_ swapaxes_ swapdims_ resize_ resize_as_".split()  # noqa: SIM905
)
_OPERATORS = "add sub mul truediv floordiv mod pow lshift rshift and or xor"


def _twins() -> dict[Any, Callable[..., Any]]:
    found: dict[Any, Callable[..., Any]] = {}
    for name in dir(Tensor):
        if name.endswith("_") and not name.startswith("_") and name not in _NO_TWIN:
            twin = getattr(Tensor, name[:-1], None)
            if callable(twin):
                found[getattr(Tensor, name)] = twin
    for name in _OPERATORS.split():
        plain = getattr(operator, name, None) or getattr(operator, f"{name}_")
        found[getattr(operator, f"i{name}")] = plain
        method = getattr(Tensor, f"__i{name}__", None)
        if method is not None:
            found[method] = plain
    return found


_TWINS = _twins()


def twin(fn: Any) -> Callable[..., Any] | None:
    """The function that gives the new value which ``fn`` writes into its first operand."""
    try:
        return _TWINS.get(fn)
    except TypeError:  # unhashable
        return None


def reshapes(fn: Any) -> bool:
    """Whether it gives its first operand another shape, and not other values."""
    return own_attribute(fn, "__name__", "") in _RESHAPING


def resizes(fn: Any) -> bool:
    """Whether it counts the elements in memory anew, of which all threads' are one for vmap."""
    return own_attribute(fn, "__name__", "") in ("resize_", "resize_as_")


def has_too_many(fn: Any, target: Any, operands: Iterable[Any]) -> bool:
    """Whether an operand has more dimensions than ``fn``, of no twin, takes: vmap drops them."""
    name = own_attribute(fn, "__name__", "")
    most = {"copy_": event_dim(target), "fill_": 0}.get(name)
    given = (each for each in operands if isinstance(each, Tensor | Batched))
    return most is not None and any(event_dim(each) > most for each in given)


def landed(fn: Callable[..., Any], target: Any, value: Any, k: int) -> Batched:
    """``value`` as the target holds it after ``fn``; raises as the in-place form does."""
    data, old = rows(value, k), rows(target, k)
    if reshapes(fn):
        return Batched(data)
    if data.shape != old.shape:
        raise RuntimeError(
            f"output with shape {list(old.shape[1:])} doesn't match the broadcast shape "
            f"{list(data.shape[1:])}"
        )
    if not torch.can_cast(data.dtype, old.dtype):
        raise RuntimeError(
            f"result type {data.dtype} can't be cast to the desired output type {old.dtype}"
        )
    return Batched(data.to(old.dtype))
