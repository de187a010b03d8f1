"""Losses of ``torch.nn.functional``: one of each thread's own, then a reduction over its event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from autobatch.batching.converters.pointwise import aligned_all, one_dtype
from autobatch.batching.converters.registry import (
    Info,
    event_dim,
    folded,
    register,
    rows,
    unfolded,
)
from autobatch.batching.levels import Batched, NoRule, map_tree


def _register_loss(function: Callable[..., Any]) -> None:
    @register(function)
    def loss(info: Info, *args: Any, **kwargs: Any) -> Any:
        keywords = dict(kwargs)
        reduction = keywords.pop("reduction", "mean")
        if _is_legacy(args, keywords):
            return NotImplemented
        one_dtype(args, keywords)
        if function is F.margin_ranking_loss and len({event_dim(arg) for arg in args[:3]}) > 1:
            raise NoRule("operands of several numbers of dimensions")
        physical, named = aligned_all(*threaded(info, args, keywords))
        each = function(*physical, **named, reduction="none")
        return reduced(
            each, reduction, event_dim(args[0]) and args[0].data.shape[-event_dim(args[0])]
        )


def threaded(info: Info, *trees: Any) -> Any:
    """The operands with a row for each thread: these kernels want them of one shape."""

    def leaf(value: Any) -> Any:
        return Batched(rows(value, info.k)) if isinstance(value, Tensor) else value

    return tuple(map_tree(leaf, tree) for tree in trees)


def _is_legacy(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Old ways to name a reduction, and reductions by position: vmap may have a try."""
    old = kwargs.get("size_average") is not None or kwargs.get("reduce") is not None
    return old or any(isinstance(arg, bool | str) for arg in args)


def reduced(each: Tensor, reduction: str, batch: int = 1) -> Batched:
    """``[k, *event]`` reduced over the event as the losses of ``torch.nn.functional`` name it."""
    if reduction == "none":
        return Batched(each)
    flat = each.flatten(1) if each.dim() > 1 else each.unsqueeze(1)
    if reduction == "mean":
        return Batched(flat.mean(1))
    if reduction == "batchmean":
        return Batched(flat.sum(1) / batch)
    if reduction == "sum":
        return Batched(flat.sum(1))
    raise ValueError(f"{reduction} is not a valid value for reduction")


for _function in (F.soft_margin_loss, F.margin_ranking_loss, F.kl_div):
    _register_loss(_function)


_triplet: Callable[..., Tensor] = F.triplet_margin_loss


@register(F.triplet_margin_loss)
def triplet_margin_loss(
    info: Info, anchor: Any, positive: Any, negative: Any, *args: Any, **kwargs: Any
) -> Any:
    """Distances along the last dimension, whatever stands before it."""
    keywords = dict(kwargs)
    reduction = keywords.pop("reduction", "mean")
    dims = event_dim(anchor)
    if dims == 0 or event_dim(positive) != dims or event_dim(negative) != dims or len(args) > 5:
        return NotImplemented
    operands = [rows(operand, info.k) for operand in (anchor, positive, negative)]
    keywords["reduction"] = "none"
    return reduced(_triplet(*operands, *args, **keywords), reduction)


def _register_class_loss(function: Callable[..., Any]) -> None:
    @register(function)
    def loss(info: Info, input: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        """``[C]`` or ``[N, C]`` scores: one loss each."""
        keywords = dict(kwargs)
        reduction = keywords.pop("reduction", "mean")
        own = (Batched, bool)
        given = (*args, *kwargs.values())
        if event_dim(input) not in (1, 2) or any(isinstance(arg, own) for arg in given):
            return NotImplemented
        if event_dim(input) == 1:
            scores, classes = rows(input, info.k), rows(target, info.k)
            if classes.dim() == 2 and function is F.multi_margin_loss:
                classes = classes.squeeze(1)
            each = function(scores, classes, *args, **keywords, reduction="none")
            return Batched(each)
        operands = folded(input, info.k), folded(target, info.k)
        each = function(*operands, *args, **keywords, reduction="none")
        return reduced(unfolded(each, info.k).data, reduction)


_register_class_loss(F.multi_margin_loss)
_register_class_loss(F.multilabel_margin_loss)


@register(F.ctc_loss)
def ctc_loss(
    info: Info,
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """``[T, C]`` and ``[S]`` of one example, or its own batch of them, join the kernel's batch."""
    own = 1 if event_dim(log_probs) == 3 else 0  # whether the example is itself a batch
    if event_dim(targets) != 1 + own:
        raise NoRule("targets in one run")
    if not own and isinstance(target_lengths, Batched):
        raise NoRule("one sequence must use all of its targets")
    sizes = [
        rows(torch.as_tensor(n) if isinstance(n, int | tuple | list) else n, info.k)
        for n in (input_lengths, target_lengths)
    ]
    if any(size.dim() != 1 + own for size in sizes):
        raise NoRule("lengths that are not one number for each sequence")
    probs, labels = rows(log_probs, info.k), rows(targets, info.k)
    if own:
        probs, labels = probs.transpose(1, 2).flatten(0, 1), labels.flatten(0, 1)
        sizes = [size.flatten() for size in sizes]
    each = F.ctc_loss(
        *(probs.transpose(0, 1), labels, sizes[0], sizes[1]),
        blank=blank,
        reduction="none",
        zero_infinity=zero_infinity,
    )
    if reduction == "mean":
        each = each / sizes[1].clamp(min=1).to(each.dtype)
    return reduced(unfolded(each, info.k).data, reduction) if own else Batched(each)
