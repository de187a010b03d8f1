"""By which names an operation is judged, and by which operands that all threads share.

In: what is called. Out: names that ``presence.risks`` and ``presence.products`` know, or not. A
module of torch's as it comes is judged by its class, as the function is that it runs, with its
parameters and buffers as operands; a chain of them by all of its parts. Any other module may do
anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from types import MethodType
from typing import Any

from torch import Tensor, nn

from autobatch.batching.levels import leaves_of
from autobatch.batching.module_classes import is_chain, methods_of, runs_torchs
from autobatch.batching.submodules import is_hooked
from autobatch.presence.risks import PRODUCTS, name_of

ANYTHING = ""
"""The name of what may do anything."""


def names_of(fn: Any) -> tuple[str, ...]:
    """The names of what is called; several of a chain of modules."""
    module = module_of(fn)
    if module is None:
        return (name_of(fn),)
    if not is_as_it_comes(module) or (fn is module and is_hooked(module)):
        return (ANYTHING,)
    if not is_chain(module):
        if isinstance(module, nn.GELU) and module.approximate != "none":
            return ("tanh_GELU",)
        eps = getattr(module, "eps", None)  # None is the least of the dtype, as without one
        return (type(module).__name__ if eps is None or eps > 0 else ANYTHING,)
    return tuple(chain.from_iterable(map(names_of, module.children())))


def module_of(fn: Any) -> nn.Module | None:
    """The module that is called, or whose ``forward`` is, as where hooks run before and after."""
    if isinstance(fn, MethodType) and isinstance(fn.__self__, nn.Module):
        return fn.__self__ if fn.__func__ is type(fn.__self__).forward else None
    return fn if isinstance(fn, nn.Module) else None


def is_as_it_comes(module: nn.Module) -> bool:
    """Whether it is of a class that users know by ``torch.nn``, and its ``forward`` is its own."""
    kind = type(module)
    if getattr(nn, kind.__name__, None) is not kind or not runs_torchs(kind):
        return False
    return module.__dict__.keys().isdisjoint(methods_of(kind))


def shared_by(fn: Callable[..., Any], names: tuple[str, ...], args: Any) -> Iterator[Any]:
    """Tensors that all threads share, and numbers that make a product."""
    module = module_of(fn)
    if module is not None:
        yield from chain(module.parameters(), module.buffers())
        for part in module.modules():  # in the place of a parameter that has been deleted, say
            yield from (each for each in vars(part).values() if isinstance(each, Tensor))
    is_factor = not PRODUCTS.isdisjoint(names)
    for leaf in leaves_of(args):
        if isinstance(leaf, Tensor) or (is_factor and type(leaf) is float):
            yield leaf
