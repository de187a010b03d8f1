"""What builtins with a batched meaning take: a call that does not fit is Python's to refuse.

Handlers read the arguments that they know; one too few or too many is for the host, whose
``TypeError`` it is.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

UNNAMED: frozenset[str] = frozenset()
ANY = 1 << 30
TAKES: dict[Any, tuple[int, int, frozenset[str]]] = {
    **dict.fromkeys(
        (Tensor.item, Tensor.tolist, Tensor.__int__, Tensor.__float__), (1, 1, UNNAMED)
    ),
    **dict.fromkeys((Tensor.__bool__, Tensor.__index__), (1, 1, UNNAMED)),
    **dict.fromkeys((len, reversed, abs, any, all, id, hash), (1, 1, UNNAMED)),
    **dict.fromkeys((float, bool, list, tuple), (0, 1, UNNAMED)),
    **dict.fromkeys((isinstance, issubclass, hasattr, delattr), (2, 2, UNNAMED)),
    type: (1, 3, UNNAMED),
    torch.tensor: (1, 1, frozenset(("dtype", "device", "requires_grad", "pin_memory", "names"))),
    **dict.fromkeys((range, slice), (1, 3, UNNAMED)),
    **dict.fromkeys((iter, next), (1, 2, UNNAMED)),
    **dict.fromkeys((min, max), (1, ANY, frozenset(("key", "default")))),
    int: (0, 2, frozenset(("base",))),
    getattr: (2, 3, UNNAMED),
    setattr: (3, 3, UNNAMED),
    sum: (1, 2, frozenset(("start",))),
    sorted: (1, 1, frozenset(("key", "reverse"))),
    enumerate: (1, 2, frozenset(("start",))),
    zip: (0, ANY, frozenset(("strict",))),
    **dict.fromkeys((list.clear, list.copy, list.reverse), (1, 1, UNNAMED)),
    **dict.fromkeys(
        (list.append, list.extend, list.remove, list.count, dict.update), (2, 2, UNNAMED)
    ),
    list.insert: (3, 3, UNNAMED),
    list.pop: (1, 2, UNNAMED),
    list.index: (2, 4, UNNAMED),
    list.sort: (1, 1, frozenset(("key", "reverse"))),
    **dict.fromkeys((dict.clear, dict.copy, dict.popitem), (1, 1, UNNAMED)),
    **dict.fromkeys((dict.keys, dict.values, dict.items), (1, 1, UNNAMED)),
    **dict.fromkeys((dict.get, dict.pop, dict.setdefault), (2, 3, UNNAMED)),
}
"""The fewest and the most positional arguments, with the receiver, and the names of others."""


def fits(callee: Any, count: int, names: Collection[str]) -> bool:
    """Whether it takes so many positional arguments, and these names."""
    takes = TAKES.get(callee)
    if takes is None:
        return True
    least, most, known = takes
    return least <= count <= most and (not names or known.issuperset(names))
