"""What an exception under vmap means: the user's own error, or that there is no batched form."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from autobatch.batching.applying import example
from autobatch.batching.levels import Batched, DrawError, ExampleError, Layout, NoRule, map_tree
from autobatch.batching.raising import lose_context
from autobatch.compat import shown_name, within_level
from autobatch.errors import AutobatchError
from autobatch.random.drawing import spare
from autobatch.values.strides import copies


def explained(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    run: Callable[[], Any],
) -> Any:
    """``run()``, which does ``fn(*args, **kwargs)`` for all threads, its errors told apart."""
    try:
        return run()
    except (NoRule, DrawError, ExampleError, AutobatchError):
        raise
    except Exception as error:
        raise _meaning(error, fn, args, kwargs) from error


def first_row(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ExampleError | None:
    """The error of the first thread, from torch's own kernels, if it has one."""

    def row(leaf: Any) -> Any:
        return copies(leaf.data[:1])[0] if type(leaf) is Batched else leaf

    handled = sys.exception()
    try:
        with spare():
            fn(*map_tree(row, args), **map_tree(row, kwargs))
    except Exception as error:
        lose_context(error, handled)
        return ExampleError(error)
    return None


AROUND = (
    "; without a seed, the torch.vmap or torch.func.jacfwd that is around needs a randomness, too"
)
"""What else a draw needs where levels of torch's are at work."""


def _meaning(
    error: Exception, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception:
    text = str(error)
    first_line = text.splitlines()[0] if text else type(error).__name__
    if "different inplace randomness on an unbatched tensor" in text:
        return NoRule(f"{shown_name(fn)} fills a tensor that all threads share")
    if "support same randomness with a batched" in text:
        return DrawError(
            f"{shown_name(fn)} draws by what differs from thread to thread, so that no draw can be "
            'the same for all: say randomness="different" (each thread draws its own), or seed=0 '
            "(so too, and the same draws each time)"
        )
    if "andomness" in text and "vmap" in text:
        return DrawError(
            f"{shown_name(fn)} draws random numbers for a batch: "
            'say randomness="different" (each thread draws its own) or "same", or seed=0 (each its '
            f"own, and the same draws each time){AROUND if within_level() else ''}"
        )
    if "view size is not compatible" in text:
        return Layout(f"{shown_name(fn)}: {first_line}")
    reason = NoRule(f"{shown_name(fn)}: {first_line}")
    if "hit the vmap fallback" in text:
        return NoRule("it has no batching rule")
    if "vmap" in text or "atching rule" in text:
        return reason
    try:
        example.without_data(fn, args, kwargs)
    except Exception:
        return first_row(fn, args, kwargs) or reason
    return reason
