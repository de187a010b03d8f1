"""Calls with what all threads share, as products of rows with that (see ``presence.products``).

In: a call, as ``vmapped`` has it. Out: the same, in the backward of which only rows that somebody
needed have a part in the gradients of what is shared. The parameters of a module are operands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from autobatch.batching.applying.guarding import is_smooth
from autobatch.batching.applying.judging import module_of, names_of
from autobatch.batching.effects import is_inplace_name
from autobatch.batching.levels import Batched, leaves_of, map_tree
from autobatch.presence.guards import ONE
from autobatch.presence.moves import is_differentiated
from autobatch.presence.products import FACTORS, is_watched, watched
from autobatch.presence.record import Record, may_spoil
from autobatch.presence.risks import LINEAR, PRODUCTS, is_bare_norm, is_risky, name_of
from autobatch.structure import own_attribute

Run = Callable[[Any, tuple[Any, ...], dict[str, Any], int], Any]
"""Runs what is called on operands for a number of threads."""


@dataclass(frozen=True, slots=True)
class Operand:
    """The place of a tensor among the operands of a call."""

    nr: int


class Holding(nn.Module):
    """A module within another, so that all that is done with it is with given parameters."""

    def __init__(self, module: nn.Module, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.module = module
        vars(self)["fn"] = fn  # no part of it

    def __call__(self, run: Run, *args: Any) -> Any:
        """Without the hooks of all modules: they know of no such."""
        return run(self.fn, *args)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call:
    """``fn`` with ``given``: arguments, keywords and parameters, with ``Operand`` for tensors.

    ``dims`` has 0 for operands with rows, None for what is shared.
    """

    fn: Callable[..., Any]
    given: Any
    operands: list[Tensor]
    dims: list[int | None]

    def performed(self, run: Run) -> Any:
        """What ``run`` gives."""
        if not is_watched(self.dims, self.operands):
            return self.on(tuple(self.operands), run)
        first: Any = None

        def function(*operands: Tensor) -> tuple[Tensor, ...]:
            nonlocal first
            out = map_tree(apart, self.on(operands, run))
            first = first or (out,)
            return tuple(leaf.data for leaf in leaves_of(out) if is_own_smooth(leaf))

        args, keywords, _ = self.given
        is_factor = all(
            name in FACTORS | PRODUCTS and not is_bare_norm(name, args, keywords)
            for name in names_of(self.fn)
        )
        watched(function, self.dims, 0, ONE, self.operands, is_factor)
        (out,), first = first, (None,)  # nobody holds its graph, whoever runs the function again
        return out

    def on(self, operands: tuple[Tensor, ...], run: Run) -> Any:
        """The same on other operands."""

        def operand(leaf: Any) -> Any:
            if type(leaf) is not Operand:
                return leaf
            found = operands[leaf.nr]
            return found if self.dims[leaf.nr] is None else Batched(found)

        args, keywords, parameters = map_tree(operand, self.given)
        k = len(operands[self.dims.index(0)])
        module = module_of(self.fn)
        if module is None:
            return run(self.fn, args, keywords, k)
        return functional_call(Holding(module, self.fn), parameters, (run, args, keywords, k))


def with_shared(
    record: Record, fn: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]
) -> Call | None:
    """A call that gives what is shared a gradient which an infinite row may spoil.

    Of a chain of modules each is a call by itself.
    """
    module = module_of(fn)
    if isinstance(module, nn.Sequential):
        return None
    if not (torch.is_grad_enabled() and is_product(fn, args, keywords) and record.has_wild()):
        return None
    held = {} if module is None else dict(module.named_parameters())
    operands: list[Tensor] = []
    dims: list[int | None] = []

    def taken(leaf: Any) -> Any:
        own = type(leaf) is Batched
        if not own and not is_shared_smooth(leaf):
            return leaf
        operands.append(leaf.data if own else leaf)
        dims.append(0 if own else None)
        return Operand(len(operands) - 1)

    parameters = {f"module.{name}": tensor for name, tensor in held.items()}
    given = map_tree(taken, (args, keywords, parameters))
    return Call(fn, given, operands, dims) if {0, None} <= set(dims) else None


def may_be_spoilt(fn: Callable[..., Any]) -> bool:
    """Whether within a call of several operations this one may have to be looked at by itself."""
    if not may_spoil():
        return False
    name = own_attribute(fn, "__name__", "")
    if name == "__get__" or is_inplace_name(name):  # it may write
        return False
    name = name_of(fn)
    return name not in LINEAR or name in FACTORS


def has_shared_smooth(*operands: Any) -> bool:
    """Whether one of them is differentiated, and the same for all threads."""
    return any(map(is_shared_smooth, leaves_of(*operands)))


def is_product(fn: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Whether a gradient may be infinite, by a function that can run once more."""
    (name,) = names_of(fn)
    if drops(fn, name, args, keywords):
        return False
    if name in FACTORS or (name in PRODUCTS and len(dtypes_of(args)) > 1):
        return True  # operands of several dtypes are not broadcast to be guarded
    return is_risky(name, args, keywords)


def dtypes_of(args: tuple[Any, ...]) -> set[torch.dtype]:
    """Of a tensor's own, not of its ``data``: torch lets nobody ask for that within its vmap."""
    leaves = (leaf.data if isinstance(leaf, Batched) else leaf for leaf in leaves_of(*args))
    return {leaf.dtype for leaf in leaves if isinstance(leaf, Tensor)}


RATES = {
    **dict.fromkeys(("gru", "lstm", "rnn_relu", "rnn_tanh"), 5),
    "multi_head_attention_forward": 10,
    "scaled_dot_product_attention": 4,
}
"""Functions that may drop some of what they get: where among the arguments the rate is."""


def drops(
    fn: Callable[..., Any], name: str, args: tuple[Any, ...], keywords: dict[str, Any]
) -> bool:
    """Whether it draws what it drops."""
    module = module_of(fn)
    if module is not None:
        return any(part.training and rate_of(part) > 0 for part in module.modules())
    place = RATES.get(name, len(args))
    return bool(keywords.get("dropout_p", args[place] if place < len(args) else 0.0))


def rate_of(part: nn.Module) -> float:
    """How much of what it gets a module drops in training."""
    rate = getattr(part, "dropout", None)
    if not isinstance(rate, int | float):
        rate = getattr(part, "p", 0.0) if "Dropout" in type(part).__name__ else 0.0
    return rate


def apart(leaf: Any) -> Any:
    """A result by a node of its own: what comes to it has not come by way of another result."""
    return Batched(leaf.data.view_as(leaf.data)) if is_own_smooth(leaf) else leaf


def is_shared_smooth(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and is_differentiated(leaf) and is_smooth(leaf)


def is_own_smooth(leaf: Any) -> bool:
    return type(leaf) is Batched and is_smooth(leaf.data)
