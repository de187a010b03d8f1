"""What stands for functions of torch's, as Python for one example: forms of control flow
(``control``, ``trees``), distances of distributions (``distances``), checkpoints (``recomputed``),
maps of trees (``mapping``); and for Python's own asking of methods (``asking``).

``meant(callee)`` is what a program runs where it calls something that stands for a function.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint as torch_checkpoint
from torch.utils.checkpoint import checkpoint_sequential as torch_checkpoint_sequential

from autobatch.compat import (
    SCAN_STACKS_AT_DIM,
    kl_of_one_family,
    torch_scan,
    torch_while_loop,
    uncompiled,
)
from autobatch.forms import asking, distances, mapping, recomputed
from autobatch.forms.control import cond, foldl, foldr, scan, scan_stacking_first, while_loop
from autobatch.structure import own_attribute

__all__ = ["cond", "foldl", "foldr", "meant", "scan", "while_loop"]

FORMS: tuple[Any, ...] = (
    *(cond, foldl, foldr, scan, scan_stacking_first, while_loop),
    *(distances.kl_divergence, distances.of_one_family),
    *(recomputed.checkpoint, recomputed.checkpoint_sequential),
    *(asking.answered, asking.is_same, asking.is_other),
    *(mapping.mapped, mapping.tree_map, mapping.tree_map_),
)
for _form in FORMS:
    _form.__autobatch__ = "program"

STAND_INS: dict[Any, Any] = {
    torch.cond: cond,
    torch_while_loop: while_loop,
    torch_scan: scan if SCAN_STACKS_AT_DIM else scan_stacking_first,
    torch.distributions.kl_divergence: distances.kl_divergence,
    kl_of_one_family: distances.of_one_family,
    torch_checkpoint: recomputed.checkpoint,
    torch_checkpoint_sequential: recomputed.checkpoint_sequential,
    pytree.tree_map: mapping.tree_map,
    pytree.tree_map_: mapping.tree_map_,
}
"""Functions of torch's that compile or call what they are given, or write to what is torch's, and
what they mean for one example.
"""


def meant(callee: Any) -> Any:
    """The function that a decorated one wraps, or the form that a form of torch's stands for.

    What ``torch.compile`` makes of a function computes what that computes.
    """
    if type(callee) is FunctionType and callee in STAND_INS:
        return STAND_INS[callee]
    callee = uncompiled(callee)
    return own_attribute(callee, "__autobatch_function__", callee)
