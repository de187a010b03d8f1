"""What counts as the same values, of a recording, an executor's and the operations one by one."""

from __future__ import annotations

import torch
from torch import Tensor


def same_values(a: Tensor, b: Tensor) -> bool:
    """Whether tensors of one dtype and shape are the same but for rounding; NaN is itself."""
    if a.dtype.is_floating_point or a.dtype.is_complex:
        return torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True)
    return torch.equal(a, b)
