"""How near what a compiler has made must come to what torch gives: floats to rounding, or exactly.

In: two results of the same operations on the same rows. Out: whether one may stand for the other.
"""

from __future__ import annotations

import torch
from torch import Tensor

CLOSE = {torch.float32: (1e-4, 1e-5), torch.float64: (1e-9, 1e-11)}
"""What floats may differ by: relatively and absolutely."""


def are_close(out: Tensor, other: Tensor) -> bool:
    """Whether two results are of one dtype and shape, and the same values to rounding."""
    if (out.dtype, out.shape) != (other.dtype, other.shape):
        return False
    tolerances = CLOSE.get(out.dtype)
    if tolerances is None:
        return torch.equal(out, other)
    relative, absolute = tolerances
    return torch.allclose(out, other, rtol=relative, atol=absolute, equal_nan=True)
