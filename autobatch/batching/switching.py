"""Modes of torch's that are switched for good, not by a `with` statement: refused, and put back.

A plain loop would go on under them, from one example to the next, which has no batched meaning. A
call of what switches one is refused before it runs (lowering does so where it sees the callee), but
for what a `with` statement enters at once. Code on the host may switch one unseen: what was in
force is put back, then refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from autobatch.batching import replaced
from autobatch.compat import default_device, set_grad
from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.source import Span
from autobatch.structure import own_attribute

Mode = tuple[str, Callable[[], Any], Callable[[Any], Any]]


def _of_device(kind: str) -> tuple[Mode, ...]:
    return (
        (
            f"autocast on {kind}",
            partial(torch.is_autocast_enabled, kind),
            lambda flag: torch.set_autocast_enabled(kind, flag),
        ),
        (
            f"the dtype of autocast on {kind}",
            partial(torch.get_autocast_dtype, kind),
            lambda dtype: torch.set_autocast_dtype(kind, dtype),
        ),
    )


MODES: tuple[Mode, ...] = (
    ("the grad mode", torch.is_grad_enabled, set_grad),
    ("the default dtype", torch.get_default_dtype, torch.set_default_dtype),
    ("the default device", default_device, torch.set_default_device),
    (
        "whether algorithms are deterministic",
        torch.get_deterministic_debug_mode,
        torch.set_deterministic_debug_mode,
    ),
    ("anomaly detection", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    *_of_device("cpu"),
    *_of_device("cuda"),
)
MANAGERS: tuple[Any, ...] = (torch.set_grad_enabled, torch.autograd.set_detect_anomaly)
"""Managers that switch a mode when they are made, whether anything enters them or not."""
SETTERS: tuple[Any, ...] = (
    torch.set_default_dtype,
    torch.set_default_tensor_type,
    torch.set_default_device,
    torch.use_deterministic_algorithms,
    torch.set_deterministic_debug_mode,
    torch.set_autocast_enabled,
    torch.set_autocast_dtype,
    torch.set_autocast_cpu_enabled,
    torch.set_autocast_cpu_dtype,
    torch.set_autocast_gpu_dtype,
    torch.set_anomaly_enabled,
    set_grad,
)
SEEDS: tuple[Any, ...] = (
    *(torch.manual_seed, torch.seed, torch.set_rng_state, torch.cuda.manual_seed),
    *(torch.cuda.manual_seed_all, torch.cuda.seed, torch.cuda.seed_all, torch.cuda.set_rng_state),
)
"""Functions that set what torch draws from for good, as ``torch.random`` has them, too."""
_SEEDS = frozenset(map(id, SEEDS))
_MANAGERS = frozenset(map(id, MANAGERS))
_SETTERS = frozenset(map(id, SETTERS))
WHY = "all threads would go on under it, those too that have not come there."


def switches(callee: object) -> bool:
    """Whether calling it switches a mode, even where nothing enters what it gives."""
    return id(behind(callee)) in _MANAGERS | _SETTERS | _SEEDS


def behind(callee: object) -> object:
    """The function that a partial call is of."""
    while type(callee) is partial:
        callee = callee.func
    return callee


def refuse_switch(span: Span | None, callee: object, entered: bool = False) -> None:
    """Refuse a call that lowering has not seen to switch a mode.

    ``entered``: a ``with`` statement enters what it gives, which puts back what was before.
    """
    callee = behind(callee)
    name = own_attribute(callee, "__name__", "this")
    if id(callee) in _SEEDS:
        raise _refused(
            span,
            f"`{name}` sets what all threads draw from",
            "pass `seed=` to autobatch, by which each thread draws, or seed before the call.",
        )
    if id(callee) in _SETTERS:
        hint = "set the mode before the call."
    elif id(callee) in _MANAGERS and not entered:
        hint = f"write `with {name}(…):`, or set the mode before the call."
    else:
        return
    raise _refused(span, f"`{name}` switches a mode for good", hint)


@contextmanager
def switching_refused(span: Span | None) -> Iterator[None]:
    """Code on the host leaves the modes as it found them, and torch's functions; else that is
    refused.
    """
    before, functions = modes_in_force(), replaced.look()
    try:
        yield
    finally:
        switched = modes_in_force() != before and put_back(before)
        others = replaced.look() is not functions and replaced.put_back(functions)
    if switched:
        raise left(span, switched)
    if others:
        raise _others(span, others)


def modes_in_force() -> tuple[Any, ...]:
    return tuple([read() for _, read, _ in MODES])


def put_back(before: tuple[Any, ...]) -> str:
    """The modes of ``before`` are in force again; what was not."""
    names: list[str] = []
    for (name, read, write), value in zip(MODES, before, strict=True):
        if read() != value:
            write(value)
            names.append(name)
    return " and ".join(names)


def left(span: Span | None, names: str) -> UnsupportedError:
    hint = "within the function, write `with torch.set_grad_enabled(flag):` or the like, or put "
    return _refused(span, f"this changes {names}", hint + "back what was before.")


def _others(span: Span | None, names: str) -> UnsupportedError:
    return UnsupportedError(
        Diagnostic(
            "What a program calls puts another function in the place of torch's.",
            span,
            f"this replaces {names}",
            ("all threads would go on with it, those too that have not come there.",),
            ("replace it before the call, or put back what was before.",),
            "replaced-function",
        )
    )


def _refused(span: Span | None, label: str, hint: str) -> UnsupportedError:
    return UnsupportedError(
        Diagnostic(
            "What a program calls switches a mode of torch's for good.",
            span,
            label,
            (WHY,),
            (hint,),
            "mode-switch",
        )
    )
