"""``pfor`` and ``map_fn``: loops whose rounds do not need each other, as batches.

A call outside of programs is a batched call like one of ``autobatch.vmap``, with its options. One
inside a program joins the batch that it is in: its rounds become rows (``transforms.loops``),
nested calls rows of these, and the outermost call's options hold; one with an option that says what
its body gets, draws or gives is a batch of its own for each thread, as a ``vmap`` is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autobatch.api import call
from autobatch.arguments.in_dims import mapped_by_dims
from autobatch.options import Options, own_options
from autobatch.transforms.loops import count
from autobatch.transforms.public import checked, transform

LOOP = {"randomness": "different", "fallback": "warn"}
"""What holds for loops unless an option says otherwise: rounds draw as a loop's do."""


@transform("pfor")
def pfor(body: Callable[[int], Any], n: int | Tensor, **options: Any) -> Any:
    """``body(i)`` for ``i`` in ``range(n)``, all at once: a parallel ``for`` (arXiv 1903.04243).

    ``body`` is ordinary Python of one round, with any control flow. It may read what is around it,
    write what it makes, draw, and differentiate. What does not depend on ``i`` is computed once,
    not per round; ``xs[i]`` of a tensor that all share is one gather. An operation that has no
    batched form runs round by round, with a ``FallbackWarning`` that names it, its line and why.

    Args:
        body: a function of the loop's index, a Python int.
        n: how many rounds: an int of at least 0, or a 0-d integer tensor. Inside a program it may
            be each thread's own; tensors of different lengths come of that (see ``ragged``).
        **options: see ``Options``; here ``randomness`` is ``"different"`` and ``fallback`` is
            ``"warn"``. Those of a decorated body hold where these say nothing else. Inside a
            program those of the outermost call hold, but for those that say what the body gets,
            draws or gives: with these each thread's loop runs by itself.

    Returns:
        The rounds' results stacked, ``[n, *E]``, in the structure that ``body`` returns; a list of
        n where these are neither tensors nor numbers.

    Raises what the plain loop raises, and ``TypeError`` or ``ValueError`` for another ``n``.
    """
    checked(body, "pfor")
    settings = Options().updated({**LOOP, **own_options(body), **options, "scalars": "python"})
    batch = mapped_by_dims((torch.arange(count(n)),), {}, 0, body)
    return call(body, batch, settings)


@transform("map_fn")
def map_fn(f: Callable[[Any], Any], elems: Any, **options: Any) -> Any:
    """``f(elem)`` for each element of ``elems``, all at once; see ``pfor``.

    Args:
        f: a function of one element.
        elems: a tensor ``[n, *E]`` or a tree of them; an element is the same tree of ``[*E]``.
            Ragged ones are gone through thread by thread's own number, inside a program.
        **options: as for ``pfor``.

    Returns:
        The results stacked, ``[n, *O]``, in the structure that ``f`` returns.
    """
    checked(f, "map_fn")
    settings = Options().updated({**LOOP, **own_options(f), **options})
    return call(f, mapped_by_dims((elems,), {}, 0, f), settings)
