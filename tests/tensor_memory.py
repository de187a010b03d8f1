"""How much memory tensors take while something runs: bytes of storages, exact on any machine.

In: ``with Memory() as memory``. What operators make inside counts until it is freed: ``now`` and
``peak``, in bytes. Views and what was there before count nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Memory(TorchDispatchMode):
    """A mode that notes the storages that operators make."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sizes: dict[int, int] = {}
        self.given: set[int] = set()
        self.now = self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        read = {tensor.untyped_storage()._cdata for tensor in tensors((*args, kwargs))}
        made = func(*args, **(kwargs or {}))
        for tensor in tensors(made):
            storage = tensor.untyped_storage()
            if storage._cdata not in read and storage._cdata not in self.sizes:
                self.sizes[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self.freed, storage._cdata)
        return made

    def freed(self, key: int) -> None:
        self.now -= self.sizes.pop(key)


def tensors(tree: Any) -> Iterable[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, tuple | list):
        for part in tree:
            yield from tensors(part)
    elif isinstance(tree, dict):
        yield from tensors(list(tree.values()))
