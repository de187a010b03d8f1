"""The registry of converters: batched forms of what ``torch.vmap`` refuses or gets wrong.

Shaped like ``torch.library.register_vmap``: ``register(operator, ...)`` decorates a rule

    rule(info, *args, **kwargs) -> result

that gets the operator's arguments with ``Batched`` leaves where threads differ (dimension 0 is
the threads'), and gives its result in the same form. For an ``nn.Module`` type the module comes
first. A rule that does not cover its arguments returns ``NotImplemented``: vmap has its try. Where
vmap would be wrong it raises ``NoRule``. Rules launch torch's own batched kernels, outside any
vmap level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from autobatch.batching.levels import Batched, DrawError, NoRule, event_dim
from autobatch.batching.module_classes import runs_torchs
from autobatch.batching.submodules import is_hooked
from autobatch.compat import CustomOpDef, OpOverloadPacket, overload_of
from autobatch.random.drawing import SOURCE

__all__ = [
    "Info",
    "Rule",
    "aligned",
    "event_dim",
    "find",
    "folded",
    "is_drawing",
    "register",
    "rows",
    "unfolded",
    "unhooked",
]

Rule = Callable[..., Any]

_RULES: dict[Any, Rule] = {}
_DRAWING: set[Any] = set()


@dataclass(frozen=True, slots=True)
class Info:
    """What a rule knows besides its arguments: the thread count and how draws are to be made.

    ``apply`` is ``vmapped.apply``, for rules that are made of other operations.
    """

    k: int
    randomness: str
    apply: Callable[..., Any]

    def allow_draws(self, name: str) -> None:
        """Raise unless each thread may draw its own random numbers."""
        if self.randomness == "error":
            raise DrawError(
                f"{name} draws random numbers for a batch: "
                'say randomness="different" (each thread draws its own) or "same"'
            )
        if self.randomness == "same":
            raise NoRule(f"{name} draws random numbers, the same for all threads")
        if SOURCE.get() is not None:
            raise NoRule(f"{name} draws random numbers, for more rows than there are threads")


def register(*operators: Any, draws: bool = False) -> Callable[[Rule], Rule]:
    """Use the decorated rule for these callables and module types.

    ``draws``: also where threads share all operands, since their results differ.
    """

    def decorate(rule: Rule) -> Rule:
        for operator in operators:
            _RULES[operator] = rule
            if draws:
                _DRAWING.add(operator)
        return rule

    return decorate


def is_drawing(fn: Any) -> bool:
    """Whether a callable with a rule draws."""
    return not isinstance(fn, nn.Module) and fn in _DRAWING


def find(fn: Any) -> Rule | None:
    """The rule for a callable, or for a module of exactly a registered type and without hooks."""
    if isinstance(fn, nn.Module):
        rule = _RULES.get(type(fn))
        return rule if rule is not None and unhooked(fn) else None
    try:
        rule = _RULES.get(fn)
    except TypeError:  # an unhashable callable has no rule
        return None
    if rule is None and isinstance(fn, CustomOpDef | OpOverloadPacket):
        rule = _RULES.get(overload_of(fn))
    return rule


def unhooked(module: nn.Module) -> bool:
    """Whether a call of the module is a call of torch's ``forward`` for its class and no more."""
    return runs_torchs(type(module)) and not is_hooked(module)


def rows(value: Batched | Tensor, k: int) -> Tensor:
    """``[k, *event]``, without a copy where all threads share the value."""
    if type(value) is Batched:
        return value.data
    return value.expand(k, *value.shape)  # type: ignore[union-attr]


def folded(value: Batched | Tensor, k: int) -> Tensor:
    """Threads and one example's own batch as one: ``[k * n, *rest]`` of event ``[n, *rest]``."""
    return rows(value, k).flatten(0, 1)


def unfolded(result: Tensor, k: int) -> Batched:
    """The inverse of ``folded``."""
    return Batched(result.reshape((k, result.shape[0] // max(k, 1), *result.shape[1:])))


def aligned(value: Any, dims: int) -> Any:
    """A tensor operand whose event has ``dims`` dimensions, ones put in front to broadcast."""
    if type(value) is not Batched:
        return value
    data = value.data
    return data.reshape(data.shape[0], *(1,) * (dims - data.dim() + 1), *data.shape[1:])
