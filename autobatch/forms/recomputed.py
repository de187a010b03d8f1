"""``torch.utils.checkpoint``, as Python for one example: the function that it is given, called.

What a backward needs is kept, or computed once more, as ``save=`` of the batch says. Torch's own
would be one operation, which runs code of the program's that nobody has looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Any = None,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """``torch.utils.checkpoint.checkpoint``; what it has options for is autobatch's own."""
    return function(*args, **kwargs)


def checkpoint_sequential(
    functions: nn.Sequential | Iterable[Callable[..., Any]],
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    """``torch.utils.checkpoint.checkpoint_sequential``, likewise."""
    out = input
    for function in functions:
        out = function(out)
    return out
