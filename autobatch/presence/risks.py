"""Which operations may turn a zero cotangent into one that is not finite.

By the name that torch's functions, methods, operators and Python's ``operator`` have in common,
and by that of a module's class, whose parameters are operands. What is not named here may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from autobatch.structure import own_attribute


def named(words: str) -> frozenset[str]:
    return frozenset(words.split())


LINEAR = named(
    """abs add addbmm addmm addmv alias amax amin argmax argmin as_strided atleast_1d atleast_2d
 avg_pool1d avg_pool2d baddbmm broadcast_to cat celu chunk clamp clamp_max clamp_min clip clone
 concat constant_pad_nd contiguous conv1d conv2d conv3d convolution copy cos cumsum detach
 diag_embed diagonal diagonal_scatter dropout elu embedding empty empty_like expand expand_as fill
 flatten flip float full full_like gather gelu getitem group_norm hardsigmoid hardswish hardtanh
 hstack index index_add index_copy index_fill index_put index_select layer_norm leaky_relu
 lift_fresh lift_fresh_copy linear log_sigmoid_forward log_softmax logsigmoid masked_fill
 masked_scatter masked_select max max_pool2d_with_indices maximum mean median mH min minimum mish
 mm movedim mse_loss mT mv narrow native_dropout native_group_norm native_layer_norm neg negative
 new_empty new_full new_ones new_zeros nll_loss_forward ones ones_like permute pos positive put
 relu relu6 repeat reshape roll round rsub scatter scatter_add select select_backward
 select_scatter setitem sigmoid sign silu sin slice slice_scatter softmax softplus softsign split
 split_with_sizes squeeze stack sub subtract sum swapaxes t T take_along_dim tanh
 thnn_fused_gru_cell thnn_fused_lstm_cell threshold to to_copy transpose tril triu type unbind
 unflatten unfold unsafe_chunk unsafe_split unsafe_view unsqueeze view view_as vstack where zeros
 zeros_like
 AvgPool1d AvgPool2d Conv1d Conv2d Conv3d Dropout ELU Embedding Flatten GELU GroupNorm Hardsigmoid
 Hardswish Hardtanh Identity LayerNorm LeakyReLU Linear LogSigmoid LogSoftmax MaxPool1d MaxPool2d
 Mish ReLU ReLU6 SiLU Sigmoid Softmax Softplus Softsign Tanh Threshold Unflatten"""
)
"""Its gradient is finite if its cotangent and its operands are, and zero where that is zero."""
PRODUCTS = named(
    """addbmm addcmul affine baddbmm bilinear bmm convolved dot einsum inner lerp matmul mul
 multiply outer prelu prelu_kernel square thnn_fused_gru_cell thnn_fused_lstm_cell trilinear
 weighted
 Bilinear GRU GRUCell LSTM LSTMCell PReLU RNN RNNCell"""
)
"""The same, and it has an operand as a factor, which may be infinite."""
HOLDING = named(
    """abs amax amin cos gelu group_norm layer_norm log_sigmoid_forward log_softmax logsigmoid max
 min mish mse_loss native_group_norm native_layer_norm pow sigmoid silu sin softmax softplus
 softsign tanh thnn_fused_gru_cell thnn_fused_lstm_cell GELU GroupNorm LayerNorm LogSigmoid
 LogSoftmax Mish SiLU Sigmoid Softmax Softplus Softsign Tanh"""
)
"""The same, and its derivative is no number where an operand is infinite, or none itself."""
INWARD = named(
    """bilinear einsum group_norm layer_norm lerp mse_loss native_group_norm native_layer_norm pow
 square Bilinear GroupNorm LayerNorm"""
)
"""Its derivative may be no number where its result is none, be its operands finite: what it makes
on the way overflows."""
DRAWING = named("dropout native_dropout Dropout")
STEEP = named("frobenius_norm linalg_norm linalg_vector_norm logsumexp norm vector_norm tanh_GELU")
"""Only its gradient, or that of its gradient, may be infinite where its one operand is finite."""
CONSTANT = named(
    """all allclose and any argsort bitwise_and bitwise_not bitwise_or bitwise_xor bool bucketize
 ceil count_nonzero detach eq equal floor floor_divide floordiv ge gt int isclose isfinite isinf
 isnan item le logical_and logical_not logical_or logical_xor long lt ne nonzero not or round
 searchsorted sign trunc xor"""
)
"""It has no gradient, or none but zero."""
TAME = named(
    """abs alias amax amin as_strided broadcast_to cat chunk clamp clamp_max clamp_min clip clone
 concat contiguous copy cos detach diag_embed diagonal diagonal_scatter embedding empty empty_like
 expand expand_as flatten flip full full_like gather gelu getitem hardsigmoid hardswish hardtanh
 hstack index index_copy index_fill index_select lift_fresh lift_fresh_copy log_sigmoid_forward
 logsigmoid masked_fill masked_scatter masked_select max max_pool2d_with_indices maximum mH min
 minimum mish movedim mT narrow neg negative new_empty new_full new_ones
 new_zeros ones ones_like permute pos positive relu relu6 repeat reshape roll round select
 select_backward select_scatter sigmoid sign silu sin slice slice_backward slice_scatter softmax
 softplus softsign split split_with_sizes squeeze stack swapaxes t T take_along_dim tanh transpose
 tril triu type unbind unflatten unfold unsafe_chunk unsafe_split unsafe_view unsqueeze view view_as
 vstack where zeros zeros_like
 Flatten GELU Hardsigmoid Hardswish Hardtanh Identity LogSigmoid MaxPool1d MaxPool2d Mish ReLU ReLU6
 SiLU Sigmoid Softmax Softplus Softsign Tanh Unflatten tanh_GELU"""
)
"""Its result is finite if its operands are, or holds what somebody has written down."""
WITHIN_ONE = named("cos hardsigmoid sigmoid sign sin softmax softsign tanh")
"""The result is between -1 and 1."""
SATURATING = named("hardsigmoid relu relu6 sigmoid tanh")
"""Its derivative at an infinite operand is a number, and its result is none where that is none."""
MASKED = named("amax amin log_softmax max min softmax")
"""The same of one element at ``-inf``, by which masks take it out, if not all are."""
SHOWING = named(
    """addmm alias baddbmm bmm clone contiguous expand linear mean mm mul neg permute reshape square
 sub sum t transpose unsafe_view unsqueeze add view abs"""
)
"""Its result is not finite where an operand is not."""
QUOTIENTS = named("div divide true_divide truediv")
NORMS: Final = {
    "group_norm": 4, "layer_norm": 4, "native_group_norm": 7, "native_layer_norm": 4, "rms_norm": 3,
}  # fmt: skip
"""Where their ``eps`` is."""
MOST_POWER = 6
"""The derivative of a higher one may overflow in float16 where the power does not."""
NO_KEYWORDS: Final[Mapping[str, Any]] = MappingProxyType({})


def name_of(function: Any) -> str:
    """``sub`` for ``__sub__``, ``sub_`` and ``aten.sub.Tensor``."""
    schema = getattr(function, "_schema", None)
    named_by = getattr(schema, "name", None)  # torch.library's custom operators have a text there
    name = own_attribute(function, "__name__", "") if named_by is None else named_by.split("::")[-1]
    return str(name).strip("_")


def is_risky(name: str, args: Sequence[Any], keywords: Mapping[str, Any] = NO_KEYWORDS) -> bool:
    """Whether a gradient may be infinite, or the result, where all operands are finite."""
    if name in LINEAR or name in PRODUCTS or name in CONSTANT:
        return is_bare_norm(name, args, keywords)
    second = args[1] if len(args) > 1 else None
    if name in QUOTIENTS:
        return not isinstance(second, int | float) or second == 0
    if name == "pow":
        return not (isinstance(second, int | float) and second in range(1, MOST_POWER + 1))
    return True


def is_bare_norm(name: str, args: Sequence[Any], keywords: Mapping[str, Any] = NO_KEYWORDS) -> bool:
    """Whether it divides by zero where all elements are equal, or zero: it has no ``eps``."""
    if name not in NORMS:
        return False
    place = NORMS[name]
    eps = keywords.get("eps", args[place] if len(args) > place else None)
    return eps is not None and not (isinstance(eps, int | float) and eps > 0)


def gives_infinities(
    name: str, args: Sequence[Any], keywords: Mapping[str, Any] = NO_KEYWORDS
) -> bool:
    """Whether the result may be infinite where all operands are finite."""
    return name not in STEEP and is_risky(name, args, keywords)


def is_steep(name: str, keywords: Mapping[str, Any] = NO_KEYWORDS) -> bool:
    """Whether only its gradient may be infinite; ``gelu`` by ``tanh`` cubes its operand."""
    return name in STEEP or (name == "gelu" and keywords.get("approximate", "none") != "none")


def is_looked_at(name: str, args: Sequence[Any]) -> bool:
    """Whether it may, or would if its operands were infinite."""
    return name in PRODUCTS or name in HOLDING or is_risky(name, args)
