"""What calling a module runs by its class: torch's own code, or what somebody has put in its place.

``forward`` of a class of torch's, and the functions of ``nn.Module`` that call it, are torch's own
as torch's source defines them there. Anybody may put others in their place at any time, and put
them back; until then a module of the class is as one of the user's, whose functions are lowered. So
it is only kept what torch has defined, and what is there is asked for at each look.
"""

from __future__ import annotations

import operator
import sys
from functools import cache
from types import FunctionType
from typing import Any

from torch import nn

from autobatch.batching.replaced import NOTHING, STATE

_CALLED = ("__call__", "_call_impl")
"""What calling a module runs, the first the second, before its hooks and its ``forward``."""
_STAGES = {"_wrapped_call_impl": 1, "_call_impl": 2}
"""Torch's own functions of these, and how far they have come."""
_OWN: dict[type, tuple[Any, ...]] = {}
"""The functions of torch's classes, of those that torch has a name for: these stay."""


def functions_of(kind: Any) -> tuple[Any, ...]:
    """What calling a module of a class runs; a script's class has no ``forward``."""
    return kind.__call__, kind._call_impl, getattr(kind, "forward", None)


def runs_torchs(kind: type) -> bool:
    """Whether calling a module of a class runs torch's own code, and nothing else."""
    return is_torchs(kind) and not meets_others(kind)


def meets_others(kind: type) -> bool:
    """Whether torch's own code of a class comes to what has been put in the place of torch's."""
    now = STATE.now
    return now is not NOTHING and now.is_met(getattr(kind, "forward", None), kind)


def is_torchs(kind: type) -> bool:
    """Whether calling a module of a class runs torch's own code, as torch has defined it."""
    own = _OWN.get(kind)
    if own is None:
        return kind.__module__.startswith("torch.") and is_as_defined(kind)
    return all(map(operator.is_, functions_of(kind), own))


def is_as_defined(kind: type) -> bool:
    """The same of a class that has not been seen as torch has defined it."""
    *calls, forward = found = functions_of(kind)
    if not all(is_defined(each, kind) for each in calls):
        return False
    if isinstance(forward, FunctionType) and not is_defined(forward, kind):
        return False
    if getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind:
        _OWN[kind] = found
    return True


def is_defined(function: Any, kind: type) -> bool:
    """Whether torch's source defines a function for a class, or for a base; a graph's is a text."""
    if not isinstance(function, FunctionType):
        return False
    code = function.__code__
    if code.co_filename.startswith("<eval_with_key>"):
        return True
    owner, _, name = code.co_qualname.partition(".")
    near = {base.__qualname__.partition(".")[0] for base in kind.__mro__}
    is_near = owner in near or (not name and owner == "_forward_unimplemented")
    return is_near and str(function.__globals__.get("__name__")).startswith("torch.")


def stage_of(function: FunctionType) -> int:
    """Whether it is torch's own that calls any module, and how far it has come; 0 for others."""
    code = function.__code__
    stage = _STAGES.get(code.co_name, 0)
    if not stage or code.co_qualname != f"Module.{code.co_name}":
        return 0
    return stage if function.__globals__.get("__name__") == nn.Module.__module__ else 0


def call_of(kind: Any, stage: int = 0) -> Any:
    """The function of a class that calling a module runs instead of torch's; None for torch's.

    ``stage``: how far a function of torch's has come that has been called.
    """
    for name in _CALLED[stage:]:
        found = getattr(kind, name)
        is_function = type(found) is FunctionType
        if not (is_function and (stage_of(found) or is_defined(found, kind))):
            return found
    return None


def bound_call(module: nn.Module, stage: int = 0) -> Any:
    """The same, bound to a module, which may have a ``_call_impl`` of its own."""
    kind: Any = type(module)
    is_usual = kind.__call__ is _USUAL[0] and kind._call_impl is _USUAL[1]
    if is_usual and "_call_impl" not in module.__dict__:
        return None
    found = call_of(kind, stage)
    own = module.__dict__.get("_call_impl")
    if own is not None and stage < len(_CALLED) and (found is None or found is kind._call_impl):
        return own
    if found is None:
        return None
    name = _CALLED[found is not kind.__call__]
    raw = next(vars(base)[name] for base in kind.__mro__ if name in vars(base))
    return raw.__get__(module, kind) if hasattr(type(raw), "__get__") else raw


_USUAL = (nn.Module.__call__, nn.Module._call_impl) if call_of(nn.Module) is None else (None, None)


def has_own_functions(module: nn.Module) -> bool:
    """Whether it has been given a ``forward`` in place of its class's, or what calls that."""
    return "forward" in module.__dict__ or "_call_impl" in module.__dict__


@cache
def methods_of(kind: type) -> frozenset[str]:
    """Of a class of torch's: names under which an instance has no function of its own."""
    members = ((name, each) for base in kind.__mro__ for name, each in vars(base).items())
    return frozenset(name for name, each in members if callable(each))


def is_chain(module: nn.Module) -> bool:
    """Whether its ``forward`` is that of ``nn.Sequential``, as torch has defined it."""
    is_own = type(module).forward is nn.Sequential.forward and not has_own_functions(module)
    return is_own and is_defined(nn.Sequential.forward, nn.Sequential)
