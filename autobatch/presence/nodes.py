"""What has made a tensor, as autograd's graph tells it."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def is_made_since(tensor: Tensor, first: int) -> bool:
    """Whether an operation that was not before ``first`` has made it, as far as can be told."""
    node = tensor.grad_fn if tensor.requires_grad else None
    return node is not None and node._sequence_nr() >= first


def node_of_rows(tensor: Tensor, since: int) -> Any:
    """What has taken a copy's row out of a column, from the node of that number on."""
    node = tensor.grad_fn
    if node is None or node.name() != "CloneBackward0":
        return None
    ((before, _),) = node.next_functions
    if before is None or before.name() != "UnbindBackward0":
        return None
    return before if before._sequence_nr() >= since else None
