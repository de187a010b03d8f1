"""Operations whose derivatives rows that nobody needed add nothing to.

In: a call of an operation that treats each thread's rows alike, and what runs it. Out: the same by
operands that are guarded where its derivative may be infinite, its result noted as one whose rows
are made of the same rows of the operands.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from autobatch.batching import converters
from autobatch.batching.applying.direct import POINTWISE
from autobatch.batching.applying.guarding import ended, heeded, watched, watched_rows
from autobatch.batching.applying.judging import module_of
from autobatch.batching.applying.shared_operands import Run, with_shared
from autobatch.batching.levels import Batched, leaves_of, map_tree
from autobatch.batching.module_classes import is_chain
from autobatch.presence import moves
from autobatch.presence.record import record_at_work
from autobatch.structure import own_attribute


def performed(
    run: Run,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    keywords: dict[str, Any],
    k: int,
    watch: Callable[..., tuple[Any, ...]] = watched,
) -> Any:
    """What ``run`` gives; ``watch`` guards the operands."""
    if (record := record_at_work()) is None:
        return run(fn, args, keywords, k)
    given, args = args, watch(record, fn, args, keywords)
    calm = not record.is_wild
    before, call, composed = None, None, is_composed(fn)
    if not composed and fn not in POINTWISE and torch.is_grad_enabled():
        before = moves.nodes_of(operands_of(fn, args, keywords))
    if not composed or converters.find(fn) is not None:
        call = with_shared(record, fn, args, keywords)
    out = run(fn, args, keywords, k) if call is None else call.performed(run)
    if before is not None:
        moves.stayed(tensors_of(out), before)
    if heeded(record, calm, fn, (args, keywords), out):
        return performed(run, fn, given, keywords, k, watch)
    return out if args is given else ended(out)


def of_table(fn: Callable[..., Any], table: Tensor, meaning: Callable[[Tensor], Any]) -> Any:
    """What ``meaning``, which is that of ``fn``, makes of all threads' rows."""
    if (record := record_at_work()) is None:
        return meaning(table)
    (given,) = watched(record, fn, (Batched(table),))
    found = meaning(given.data)
    if given.data is not table:
        ended(map_tree(as_rows, found))
    return found


def on_rows(fn: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any], k: int) -> Any:
    """``fn``, which treats rows alike, on the tables that have them."""

    def run(fn: Any, args: tuple[Any, ...], keywords: dict[str, Any], k: int) -> Any:
        return map_tree(as_rows, fn(*map_tree(data_of, args), **keywords))

    return map_tree(data_of, performed(run, fn, args, keywords, k, watched_rows))


def as_rows(leaf: Any) -> Any:
    return Batched(leaf) if isinstance(leaf, Tensor) else leaf


def data_of(leaf: Any) -> Any:
    return leaf.data if type(leaf) is Batched else leaf


def operands_of(fn: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Iterator[Tensor]:
    """The tensors that an operation gets, with the parameters of a module."""
    module = module_of(fn)
    if module is not None:
        yield from module.parameters()
    yield from tensors_of(args, keywords)


def is_composed(fn: Callable[..., Any]) -> bool:
    """Whether ``fn`` is Python code, not torch's own, or modules in a module."""
    if isinstance(fn, torch.nn.Module):
        owner = type(fn).__module__
        return next(fn.children(), None) is not None or not owner.startswith("torch.nn.")
    if isinstance(fn, functools.partial):
        return is_composed(fn.func)
    module = module_of(fn)
    if module is not None and is_chain(module):  # ``nn.Sequential.forward``
        return True
    if isinstance(fn, types.FunctionType | types.MethodType):
        return fn is torch.func.functional_call or not (fn.__module__ or "").startswith("torch.")
    return own_attribute(fn, "__autobatch_composed__", False) is True


def tensors_of(*trees: Any) -> Iterator[Tensor]:
    """Those that all threads share, and what holds threads' own."""
    for leaf in leaves_of(*trees):
        if isinstance(leaf, Tensor | Batched):
            yield leaf if isinstance(leaf, Tensor) else leaf.data
