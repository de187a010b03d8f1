"""Converters, indexing and promotion for torch calls inside Python code that runs under a level.

A Python function that is one operation (a library's, or one marked as such) calls torch many
times under one vmap level. ``Inner`` sees these calls and takes out the ones that vmap refuses or
answers otherwise than a loop would: they run on physical tensors, outside the level, as they
would if each were an operation of its own. All others go on to vmap, and so do the calls within
torch's own Python functions, which a function mode does not see.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from autobatch import compat
from autobatch.batching import converters
from autobatch.batching.applying import assignment, promotion
from autobatch.batching.applying.shared_operands import has_shared_smooth, may_be_spoilt
from autobatch.batching.levels import Batched, NoRule, has_batched, level

GETITEM = frozenset({operator.getitem, Tensor.__getitem__})
SETITEM = frozenset({operator.setitem, Tensor.__setitem__})
_KERNELS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


class Inner(TorchFunctionMode):
    """Active while a Python callable runs under the level ``threads``."""

    def __init__(self, threads: level, apply: Callable[..., Any]) -> None:
        super().__init__()
        self._threads = threads
        self._apply = apply

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        keywords = kwargs or {}
        special = func in GETITEM or func in SETITEM or converters.find(func) is not None
        risky = not special and may_be_spoilt(func)
        if not special and not isinstance(func, _KERNELS) and not risky:
            return func(*args, **keywords)
        physical = self._physical(args, keywords)
        if physical is None:
            return func(*args, **keywords)
        special = special or (risky and has_shared_smooth(*physical))
        if not special and not (isinstance(func, _KERNELS) and promotion.differs(*physical)):
            return func(*args, **keywords)
        if func in SETITEM:
            return self._assign(*physical[0])
        with compat.outside_level():
            out = self._apply(func, *physical, self._threads.k, randomness=self._threads.randomness)
        return self._threads.wrap(out)

    def _physical(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The operands with ``Batched`` leaves; None if they are not this level's to look at."""
        if not self._threads.is_innermost():
            return None
        try:
            operands = self._threads.unwrap((args, kwargs))
        except NoRule:
            return None
        return operands if has_batched(operands) else None

    def _assign(self, target: Any, index: Any, value: Any) -> None:
        if type(target) is not Batched:
            raise NoRule("a thread's own value is written into a tensor that all threads share")
        with compat.outside_level():
            new = assignment.setitem(target, index, value, self._threads.k)
            if new.data is not target.data:
                target.data.copy_(new.data)
