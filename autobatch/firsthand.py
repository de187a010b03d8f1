"""Torch's functions and methods as they were when autobatch was imported.

Anybody may put another in the place of one (see ``batching.replaced``). While it is there, examples
run one after the other, and what takes a call's arguments apart and puts its results together calls
torch by these names alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

as_tensor = torch.as_tensor
cat = torch.cat
empty = torch.empty
equal = torch.equal
is_grad_enabled = torch.is_grad_enabled
is_inference_mode_enabled = torch.is_inference_mode_enabled
promote_types = torch.promote_types
stack = torch.stack
tensor = torch.tensor

Method = Callable[..., Any]

clone: Method = Tensor.clone
contiguous: Method = Tensor.contiguous
cumsum: Method = Tensor.cumsum
detach: Method = Tensor.detach
flatten: Method = Tensor.flatten
getitem: Method = Tensor.__getitem__
item: Method = Tensor.item
movedim: Method = Tensor.movedim
new_zeros: Method = Tensor.new_zeros
reshape: Method = Tensor.reshape
subtract: Method = Tensor.sub
to: Method = Tensor.to
untyped_storage: Method = Tensor.untyped_storage
view: Method = Tensor.view
