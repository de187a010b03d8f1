"""Counts that do not depend on the machine: kernel launches and the peak of memory.

A dispatch mode sees every operator that runs, forward and backward. A *launch* is one that
computes or moves data: views, allocations and reads by the host are none. Memory is that of
the tensors made inside, by their storages, at the moment when they were most.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NO_LAUNCH = {
    "_unsafe_view",
    "lift_fresh",
    "empty",
    "empty_like",
    "new_empty",
    "empty_strided",
    "new_empty_strided",
}
HOST_READS = {"_local_scalar_dense", "equal"}


class Counting(TorchDispatchMode):
    """``with Counting() as found:`` gives ``found.launches``, ``host_reads``, ``peak_bytes``."""

    def __init__(self) -> None:
        super().__init__()
        self.launches = 0
        self.host_reads = 0
        self.peak_bytes = 0
        self._bytes = 0
        self._storages: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        found = function(*args, **(kwargs or {}))
        if _name(function) in HOST_READS:
            self.host_reads += 1
        elif launches(function):
            self.launches += 1
        if not any(result.alias_info for result in function._schema.returns):
            for tensor in tree_leaves(found):
                if isinstance(tensor, Tensor):
                    self._hold(tensor)
        return found

    def _hold(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._storages or not size:
            return

        def release(_: Any) -> None:
            self._bytes -= size
            self._storages.pop(key, None)

        self._storages[key] = weakref.ref(storage, release)
        self._bytes += size
        self.peak_bytes = max(self.peak_bytes, self._bytes)


@functools.cache
def launches(function: Any) -> bool:
    """Whether an operator runs a kernel."""
    return not _is_view(function) and _name(function) not in NO_LAUNCH | HOST_READS


def _is_view(function: Any) -> bool:
    aliases = [result.alias_info for result in function._schema.returns]
    return bool(aliases) and all(alias and not alias.is_write for alias in aliases)


def _name(function: Any) -> str:
    name: str = function._schema.name
    return name.removeprefix("aten::")
