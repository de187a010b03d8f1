"""Python's builtins and torch's number conversions that have a batched meaning.

``HANDLERS[callable](context, args, kwargs)`` gives the result, or None where this combination
of operands has no batched form and runs once or thread by thread like any other host call.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import torch

from autobatch.batching import conversions, lists, operator_calls, shapes, sharing
from autobatch.batching.calling import partials
from autobatch.batching.containers import iteration, reductions, structures
from autobatch.batching.context import Handler
from autobatch.batching.host import managing
from autobatch.batching.objects import copying, introspection
from autobatch.batching.tables import masks

HANDLERS: dict[Any, Handler] = {
    **conversions.HANDLERS,
    **copying.HANDLERS,
    **introspection.HANDLERS,
    **iteration.HANDLERS,
    **lists.HANDLERS,
    **managing.HANDLERS,
    **masks.HANDLERS,
    **operator_calls.HANDLERS,
    **partials.HANDLERS,
    **reductions.HANDLERS,
    **shapes.HANDLERS,
    **sharing.HANDLERS,
    **structures.HANDLERS,
}

TAKES: dict[Any, tuple[int, float, Collection[str]]] = {
    **dict.fromkeys((len, reversed, any, all, abs), (1, 1, ())),
    **dict.fromkeys((list, tuple, bool), (0, 1, ())),
    **dict.fromkeys((isinstance, issubclass, hasattr), (2, 2, ())),
    **dict.fromkeys((range, slice), (1, 3, ())),
    **dict.fromkeys((min, max), (1, math.inf, ("key", "default"))),
    **dict.fromkeys((iter, next), (1, 2, ())),
    getattr: (2, 3, ()),
    setattr: (3, 3, ()),
    sum: (1, 2, ("start",)),
    sorted: (1, 1, ("key", "reverse")),
    type: (1, 3, ()),
    **dict.fromkeys((list.append, list.extend, dict.update), (2, 2, ())),
    **dict.fromkeys((list.clear, list.reverse, list.copy, dict.clear, dict.copy), (1, 1, ())),
    **dict.fromkeys((dict.get, dict.pop, dict.setdefault), (2, 3, ())),
    list.insert: (3, 3, ()),
    torch.tensor: (1, 1, ("dtype", "device", "requires_grad", "pin_memory", "names")),
}
"""How many positional arguments some take, at least and at most, and what they know by name; of
methods the receiver is one."""


def may_take(callee: Any, args: Collection[Any], kwargs: Collection[str]) -> bool:
    """Whether a call's arguments are such as it takes; if not, it is for it to say so."""
    known = TAKES.get(callee)
    if known is None:
        return True
    least, most, names = known
    return least <= len(args) <= most and all(name in names for name in kwargs)
