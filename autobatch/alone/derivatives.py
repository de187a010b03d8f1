"""Derivatives that existed before, ``GRADIENT = torch.func.grad(loss)``, which a program calls.

In: what it calls. Out: the function that is differentiated, where nothing else runs in that.
"""

from __future__ import annotations

from types import FunctionType

from autobatch.transforms.records import is_torchs, made_of

KINDS = frozenset({"grad", "grad_and_value", "jacrev", "jacfwd"})


def derived(found: object) -> FunctionType | None:
    """The user's function of which ``torch.func`` has made a derivative; None for all else."""
    made = made_of(found) if is_torchs(found) else None
    if made is None or made.transform.kind not in KINDS:
        return None
    inner = derived(made.function)  # a Hessian is a Jacobian of another
    function = made.function if inner is None else inner
    return function if isinstance(function, FunctionType) else None
