"""Context managers, for one example: which are entered around each block, and how others are.

Torch's modes and locks (``is_mode``) are entered around each execution of the blocks inside, so
what ``with`` itself calls is nothing more than a look at what entering gives. A manager whose class
is a program's own is entered and left by its methods, any other on the host.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Hashable
from types import FunctionType
from typing import Any

import torch

from autobatch.batching.effects import effect_of
from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.source import Span

GeneratorManager: Any = contextlib._GeneratorContextManager
MODES: tuple[Any, ...] = (
    torch.no_grad,
    torch.enable_grad,
    torch.set_grad_enabled,
    torch.inference_mode,
    torch.autocast,
    torch.device,
    torch.autograd.set_detect_anomaly,
    torch.autograd.detect_anomaly,
    torch.autograd.profiler.record_function,
    torch.autograd.graph.saved_tensors_hooks,
)
REMADE: frozenset[Any] = frozenset({torch.nn.attention.sdpa_kernel})
"""Functions of torch's that make modes which can be entered once only: each entry makes it anew."""
LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Semaphore, threading.Condition)
"""Managers that are entered and left again and again."""
ENTER, EXIT = "__enter__", "__exit__"


def is_mode(manager: object) -> bool:
    """Whether each block inside enters and leaves a manager by itself."""
    return isinstance(manager, (*MODES, *LOCKS)) or is_remade(manager)


def is_remade(manager: object) -> bool:
    if not isinstance(manager, GeneratorManager):
        return False
    func = getattr(manager, "func", None)  # gone once it has been entered
    return any(func is inspect.unwrap(made) for made in REMADE)


def makes_mode(callee: object) -> bool:
    """Whether calling it makes such a manager; lowering asks."""
    if isinstance(callee, type):
        return issubclass(callee, MODES)
    return any(callee is made for made in REMADE)


def by_hand(name: str, span: Span | None) -> UnsupportedError:
    """The refusal of a call of what ``with`` calls of a mode."""
    return UnsupportedError(
        Diagnostic(
            "A program enters or leaves a mode of torch's by hand.",
            span,
            f"`{name}` changes the mode for all threads",
            (),
            ("write a `with` statement.",),
            "mode-by-hand",
        )
    )


def mode_key(manager: Any) -> Hashable:
    """What a mode amounts to: those with equal keys are one mode."""
    own: tuple[Hashable, ...]
    match manager:
        case torch.autocast():
            own = (manager.device, manager._enabled, manager.fast_dtype, manager._cache_enabled)
        case torch.set_grad_enabled() | torch.inference_mode():
            own = (bool(manager.mode),)
        case torch.no_grad() | torch.enable_grad():
            own = ()
        case torch.device():
            own = (manager,)
        case _:
            return id(manager)
    return (type(manager), *own)


def ready(manager: Any) -> Any:
    """The mode, to be entered once."""
    if is_remade(manager):
        return type(manager)(manager.func, manager.args, manager.kwds)
    return manager


def enter_mode(manager: Any) -> Any:
    """What entering a mode gives; the blocks inside enter it for themselves."""
    with ready(manager) as given:
        return given


def leave_mode(manager: Any, *failure: Any) -> None:
    """The blocks inside have left it."""


def enter_host(manager: Any) -> Any:
    return type(manager).__enter__(manager)


def leave_host(manager: Any, *failure: Any) -> Any:
    return type(manager).__exit__(manager, *failure)


def itself(manager: Any) -> Any:
    return manager


def function_of(name: str, kind: type, manager: object) -> Any:
    """The function by which ``with`` enters or leaves a manager of a class."""
    lacks = [each for each in (ENTER, EXIT) if not hasattr(kind, each)]
    if lacks:
        missed = f" (missed {EXIT} method)" if lacks == [EXIT] else ""
        text = f"{kind.__name__!r} object does not support the context manager protocol{missed}"
        raise TypeError(text)
    if is_mode(manager):
        return enter_mode if name == ENTER else leave_mode
    method = getattr(kind, name)
    if isinstance(method, FunctionType) and effect_of(method) == "program":
        return method
    if method is contextlib.AbstractContextManager.__enter__:
        return itself
    return enter_host if name == ENTER else leave_host


def way(name: str, manager: Any) -> Any:
    """The same of one manager, for one example."""
    return function_of(name, type(manager), manager)
