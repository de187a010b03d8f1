"""Fused attention whose gradients have gradients, too.

Torch's fused kernels have none. ``attended`` puts ``Again`` behind the node of such a kernel, where
its gradients are to be differentiated: they stay what the kernel gives, and their gradients are
those of attention as torch composes it of products and a softmax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autobatch.compat import unwrap_if_dead, within_level
from autobatch.presence.layers import differentiated

FUSED: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


@dataclass(frozen=True, slots=True)
class Settings:
    """What attention depends on besides its query, key and value."""

    mask: Tensor | None = None
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    def composed(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention without dropout, as products and a softmax, to which a mask is added."""
        mask = self.mask
        if mask is not None and mask.dtype is torch.bool:
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -torch.inf)
        found: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_attention_math(
            *(query, key, value, mask, 0.0, self.is_causal),
            scale=self.scale,
            enable_gqa=self.enable_gqa,
        )
        return found[0]


def fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    """The operator ``FUSED``."""
    found = FUSED(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
    if not dropout_p:
        attended(found[0], (query, key, value), Settings(attn_mask, is_causal, scale))
    return found


def attended(out: Tensor, operands: tuple[Tensor, ...], settings: Settings) -> None:
    """Let the gradients of a fused kernel's output have gradients, where it has a node.

    Within functorch's levels all gradients are made to be differentiated: there, only where the
    levels, or the graph around them, are seen to do so twice. They are composed then.
    """
    node = out.grad_fn
    if node is None or not node.name().startswith("ScaledDotProduct"):
        return
    nested = within_level()
    if nested and len(list(differentiated(out))) < 2:
        return

    def again(grads: Any, of_output: Any) -> Any:
        if not torch.is_grad_enabled() or of_output[0] is None:
            return None
        if nested:
            found = composed_gradients(settings, operands, of_output[0], grads[:3])
            return None if found is None else (*found, *grads[3:])
        given = [None if grad is None else grad.detach() for grad in grads[:3]]
        return (*Again.apply(settings, of_output[0], *operands, *given), *grads[3:])  # type: ignore[no-untyped-call]

    node.register_hook(again)


def composed_gradients(
    settings: Settings, operands: tuple[Tensor, ...], of_output: Tensor, wanted: Any
) -> list[Tensor | None] | None:
    """Composed gradients within levels, of operands whose own may have been left since.

    None where one of them is only of a level that has been left.
    """
    inputs = [unwrap_if_dead(each).view_as(each) for each in operands]
    places = [place for place, grad in enumerate(wanted) if grad is not None]
    if not all(inputs[place].requires_grad for place in places):
        return None
    out = settings.composed(*inputs)
    by = [inputs[place] for place in places]
    grads = iter(torch.autograd.grad(out, by, of_output, create_graph=True))
    return [None if grad is None else next(grads) for grad in wanted]


class Again(torch.autograd.Function):
    """Gradients that are given, as a function of what they are the gradients of."""

    @staticmethod
    def forward(settings: Settings, of_output: Tensor, *tensors: Tensor | None) -> Any:
        """``tensors``: query, key and value, then the gradient of each that has one."""
        return tensors[3:]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.set_materialize_grads(False)
        ctx.settings = inputs[0]
        ctx.save_for_backward(*inputs[1:5])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            of_output, *operands = inputs = [own(each, again) for each in ctx.saved_tensors]
            out = ctx.settings.composed(*operands)
            first = torch.autograd.grad(out, operands, of_output, create_graph=True)
            given = [pair for pair in zip(first, grads, strict=True) if pair[1] is not None]
            outs, along = zip(*given, strict=True)
            found = torch.autograd.grad(outs, inputs, along, create_graph=again)
        return None, *found, None, None, None


def own(tensor: Tensor, again: bool) -> Tensor:
    """A tensor to differentiate by: others of its operation may be the same one.

    ``again``: what comes of it is differentiated itself.
    """
    if again and tensor.requires_grad:
        return tensor.view_as(tensor)
    return tensor.detach().requires_grad_()
