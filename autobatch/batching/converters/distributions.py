"""Draws of ``torch.distributions`` that are custom functions without a rule of their own."""

from __future__ import annotations

from typing import Any

from autobatch.batching.converters.registry import Info, register, rows
from autobatch.batching.levels import Batched, DrawError
from autobatch.compat import draws_of_dirichlet
from autobatch.random.drawing import draws


@register(draws_of_dirichlet.apply, draws=True)
def dirichlet(info: Info, concentration: Any) -> Any:
    """A point of the simplex for each thread, drawn and differentiated for all at once."""
    if info.randomness == "error":
        raise DrawError("Dirichlet draws random numbers for a batch, and randomness is 'error'")
    if info.randomness == "same":
        if type(concentration) is Batched:
            return NotImplemented
        return draws_of_dirichlet.apply(concentration)  # type: ignore[no-untyped-call]
    with draws(info.k):
        return Batched(draws_of_dirichlet.apply(rows(concentration, info.k)))  # type: ignore[no-untyped-call]
