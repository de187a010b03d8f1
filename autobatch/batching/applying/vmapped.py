"""One torch callable applied to operands of which some differ by thread, as a loop would.

``apply`` is the whole of "what does this torch operation mean for a group": the kernel itself where
it is pointwise, a converter if there is one, our own indexing, otherwise vmap, held to one
example's dtypes. It gives the result of the loop over threads, or raises

- ``NoRule``: no batched form; the caller runs the operation thread by thread (``Layout``, one of
  them: with the operands' data made contiguous it would have one);
- ``ExampleError``: one example fails too, with the error it carries;
- ``DrawError``: a draw that the randomness option does not allow.

The callable must be pure, or write its first operand only (``apply_inplace``). All of it can be
recorded by ``make_fx``, on tensors without data too.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from autobatch import compat
from autobatch.batching import converters
from autobatch.batching.applying import (
    assignment,
    example,
    indexing,
    inplace,
    needed,
    promotion,
)
from autobatch.batching.applying.direct import direct
from autobatch.batching.applying.failures import explained, first_row
from autobatch.batching.applying.guarding import ended, heeded, watched
from autobatch.batching.applying.inner import GETITEM, SETITEM, Inner
from autobatch.batching.applying.judging import shared_by
from autobatch.batching.levels import (
    Batched,
    DrawError,
    ExampleError,
    Layout,
    NoRule,
    has_batched,
    leaves_of,
    level,
    map_tree,
)
from autobatch.presence.moves import keeping
from autobatch.presence.record import record_at_work
from autobatch.random.drawing import draws

__all__ = [
    "Batched",
    "DrawError",
    "ExampleError",
    "Layout",
    "NoRule",
    "apply",
    "apply_inplace",
    "getitem_checked",
    "is_view_result",
    "level",
    "unrecorded",
]

_NONE: dict[str, Any] = {}


def apply(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    k: int,
    *,
    randomness: str = "error",
) -> Any:
    """``fn(*args, **kwargs)`` for each of ``k`` threads: ``Batched`` leaves where they differ."""
    keywords = dict(kwargs) if kwargs else _NONE

    def run(fn: Any, args: tuple[Any, ...], keywords: dict[str, Any], k: int) -> Any:
        return explained(fn, args, keywords, lambda: _apply(fn, args, keywords, k, randomness))

    return needed.performed(run, fn, args, keywords, k)


def _apply(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    k: int,
    randomness: str,
) -> Any:
    if not kwargs and (out := direct(fn, args)) is not None:
        return out
    if fn in GETITEM:
        return indexing.getitem(args[0], args[1], k)
    rule = converters.find(fn)
    if rule is not None and (has_batched(args, kwargs) or converters.is_drawing(fn)):
        subject = (fn,) if isinstance(fn, torch.nn.Module) else ()
        out = rule(converters.Info(k, randomness, apply), *subject, *args, **kwargs)
        if out is not NotImplemented:
            return out
    if not promotion.differs(args, kwargs):
        return _under_vmap(fn, args, kwargs, k, randomness)
    expected = example.expected(fn, args, kwargs)
    if (expected is None or not expected.sure) and (failed := first_row(fn, args, kwargs)):
        raise failed
    args, kwargs, rounded = promotion.settle(fn, args, kwargs)
    out = None if kwargs else direct(fn, args)
    if out is None:
        out = _under_vmap(fn, args, kwargs, k, randomness)
    if rounded is not None:
        out = map_tree(lambda leaf: Batched(leaf.data.to(rounded)), out)
    actual = _dtypes(out)
    if expected is not None and actual != expected.dtypes:
        raise NoRule(f"vmap gives {actual} where one example gives {expected.dtypes}")
    return out


def _under_vmap(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    k: int,
    randomness: str,
) -> Any:
    with level(k, randomness) as threads:
        wrap = threads.wrap
        inputs = [wrap(arg) for arg in args]
        keywords = {name: wrap(kwargs[name]) for name in kwargs}
        with Inner(threads, apply) if needed.is_composed(fn) else nullcontext(), draws(k):
            out = threads.unwrap(fn(*inputs, **keywords))
    if type(out) is Batched and out.data.layout is not torch.strided:
        raise NoRule("a sparse tensor of each thread's own")
    return out


def _dtypes(out: Any) -> tuple[torch.dtype | None, ...]:
    return tuple(
        leaf.data.dtype if isinstance(leaf, Batched | Tensor) else None for leaf in leaves_of(out)
    )


def apply_inplace(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    k: int,
    *,
    randomness: str = "error",
    owned: bool = False,
) -> tuple[Batched, Any]:
    """``fn`` writes its first operand: the operand's new value, and what ``fn`` returned.

    The old value is kept unless it is ``owned``: then its memory may be written.
    """
    keywords = dict(kwargs) if kwargs else _NONE
    twin = inplace.twin(fn)
    if twin is not None:
        whole = (Batched(converters.rows(args[0], k)), *args[1:])
        given, record, again = args, record_at_work(), True
        while again:
            args = given if record is None else watched(record, fn, given, keywords)
            calm = record is not None and not record.is_wild
            try:
                run = functools.partial(_apply, twin, args, keywords, k, randomness)
                out = explained(fn, whole, keywords, run)
            except ExampleError as failure:  # of another type, or what it says of the twin
                raise first_row(fn, whole, keywords) or failure from None
            again = record is not None and heeded(record, calm, twin, (args, keywords), out)
        if args is not given:
            out = ended(out)
        try:
            new = explained(fn, whole, keywords, lambda: inplace.landed(fn, args[0], out, k))
        except ExampleError as failure:  # torch may say so in other words
            raise first_row(fn, whole, keywords) or failure from None
        new = unrecorded(args[0], new, k)
        return new, new
    if (record := record_at_work()) is not None:
        record.meet(shared_by(fn, (), args))
    if fn is Tensor.requires_grad_:
        return _marked(args, keywords, k), None
    with keeping():
        target = _private(args[0], k, owned)
    operands = (target, *args[1:])
    if fn in SETITEM:
        write = functools.partial(assignment.setitem, target, args[1], args[2], k)
        return unrecorded(args[0], explained(operator.setitem, operands, {}, write), k), None
    if inplace.has_too_many(fn, target, (*args[1:], *keywords.values())):
        refused = first_row(fn, operands, keywords)
        if refused is not None:
            raise refused
    if promotion.differs(operands, keywords):
        operands = (target, *promotion.weaken(target, operands[1:]))
    out = explained(
        fn, operands, keywords, lambda: _under_vmap(fn, operands, keywords, k, randomness)
    )
    return target, out


def getitem_checked(x: Any, index: Any, k: int, inside: bool = False) -> tuple[Any, Tensor | None]:
    """``x[index]`` with each thread's own integers clamped, and the rows that were out of range.

    ``inside``: none is, as is known before.
    """
    read = functools.partial(indexing.getitem_checked, x, index, k, inside)
    result: tuple[Any, Tensor | None] = explained(operator.getitem, (x, index), {}, read)
    return result


def _private(target: Any, k: int, owned: bool) -> Batched:
    """A copy of the operand that is written, one row per thread."""
    if type(target) is Batched:
        return target if owned else Batched(target.data.clone())
    return Batched(target.expand(k, *target.shape).clone())


def unrecorded(given: Any, new: Batched, k: int) -> Batched:
    """What an operand is after a write under ``no_grad``: the write has no gradient, the operand
    has its own, as if it had not been written.
    """
    data = given.data if type(given) is Batched else given
    if torch.is_grad_enabled() or new.data.requires_grad or not data.requires_grad:
        return new
    with keeping():
        target = _private(given, k, owned=False)
    target.data.copy_(new.data)
    return target


def _marked(args: tuple[Any, ...], keywords: dict[str, Any], k: int) -> Batched:
    """A copy of an operand after its ``requires_grad_``, which means the same in all modes."""
    given, *rest = args
    data = given.data if type(given) is Batched else given.expand(k, *given.shape)
    with keeping():
        made = (data.detach() if data.is_leaf else data).clone()
        mark = functools.partial(made.requires_grad_, *rest, **keywords)
        return Batched(explained(Tensor.requires_grad_, args, keywords, mark))


def is_view_result(out: Any, args: Any) -> bool:
    """Whether a tensor of the result shares storage with one of the operands."""
    given = set(map(compat.storage_id, needed.tensors_of(args)))
    return any(compat.storage_id(data) in given for data in needed.tensors_of(out))
