"""Which of torch's functions treat each row of their packed operands alike.

Row ``i`` of what they give comes from row ``i`` of each packed operand ``[n, *E]``, and from what
all threads share. So they may run on the rows of all threads at once.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autobatch.batching.submodules import is_hooked, parts_of
from autobatch.batching.tables.arguments import MISSING, is_own, packs_in, shared
from autobatch.values.cells import Container, Uniform
from autobatch.values.packs import is_packed

_UNARY = (
    "abs acos asin atan ceil clone cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor "
    "frac i0 isfinite isinf isnan lgamma log log10 log1p log2 logical_not logit nan_to_num neg "
    "positive rad2deg reciprocal relu round rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt "
    "square tan tanh trunc bitwise_not clamp clip"
)
_CASTS = "float double half bfloat16 long int bool short"
_BINARY = (
    "add sub mul div true_divide floor_divide remainder fmod pow maximum minimum atan2 hypot eq ne "
    "lt le gt ge logical_and logical_or logical_xor logaddexp copysign fmax fmin xlogy "
    "bitwise_and bitwise_or bitwise_xor"
)
_THREE = "where masked_fill lerp addcmul addcdiv"
_OPERATORS = "add sub mul truediv floordiv mod pow eq ne lt le gt ge neg invert and_ or_ xor"
_ACTIVATIONS = (
    "relu relu6 gelu silu elu selu celu mish softplus leaky_relu hardtanh logsigmoid hardsigmoid "
    "hardswish softsign tanhshrink"
)
_LIKE = "zeros_like ones_like full_like"
_DIM_FIRST = (
    "sum mean amax amin argmax argmin logsumexp any all max min nansum prod median cumsum cumprod "
    "cummax cummin logcumsumexp softmax log_softmax std var sort argsort count_nonzero gather "
    "std_mean var_mean"
)
_DIM_SECOND = "topk norm kthvalue take_along_dim"
_BY_ROW_LOSS = "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss binary_cross_entropy"
LAST_BY_DEFAULT = "sort argsort topk kthvalue"


def named(names: str, *owners: Any) -> frozenset[Any]:
    return frozenset(
        getattr(owner, name) for owner in owners for name in names.split() if hasattr(owner, name)
    )


BINARY = named(_BINARY, torch, Tensor) | named(_OPERATORS, operator)
ELEMENTWISE = (
    named(f"{_UNARY} {_THREE}", torch, Tensor)
    | BINARY
    | named(_CASTS, Tensor)
    | named(_ACTIVATIONS, F)
    | named(_LIKE, torch)
)
CASTS: dict[Any, torch.dtype] = {
    getattr(Tensor, name): getattr(torch, {"half": "float16", "long": "int64"}.get(name, name))
    for name in _CASTS.split()
}
PRODUCTS = named("matmul", operator, torch, Tensor)
MATRIX_PRODUCTS = named("mm", torch, Tensor)
BATCHED_PRODUCTS = named("bmm", torch, Tensor) | PRODUCTS
EXTREMES = named("max min", torch, Tensor)
DIM_FIRST = named(_DIM_FIRST, torch, Tensor) | named("softmax log_softmax softmin", F)
DIM_SECOND = (
    named(_DIM_SECOND, torch, Tensor)
    | named("normalize", F)
    | named("norm vector_norm", torch.linalg)
)
WITH_DEFAULT = {
    **dict.fromkeys(named(LAST_BY_DEFAULT, torch, Tensor), -1),
    F.normalize: 1,
}
WEIGHTED = PRODUCTS | MATRIX_PRODUCTS | {F.linear, F.embedding}
"""Functions whose second operand all rows meet as a whole."""
LOSSES = named(_BY_ROW_LOSS, F)
ACTIVATIONS = (
    *(nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.ELU, nn.SELU, nn.CELU, nn.Mish, nn.Softplus),
    *(nn.LeakyReLU, nn.Hardtanh, nn.LogSigmoid, nn.Tanh, nn.Sigmoid, nn.Hardsigmoid, nn.Hardswish),
)
CELLS = (nn.GRUCell, nn.RNNCell)


def treats_rows_alike(function: Any, values: list[Any], given: dict[str, Any]) -> bool:
    """Whether each row of the result comes from that row of the packed operands."""
    first = values[0]
    dims: list[int] = [value.static.dim() for value in packs_in(values)]
    if isinstance(function, nn.Module):
        hooked = any(map(is_hooked, parts_of(function)))
        return not hooked and not given and all(map(is_packed, values)) and module(function, values)
    beside = values[2:] if function in WEIGHTED else values
    if any(tensor.dim() >= dims[0] for tensor in of_all((*beside, *given.values()))):
        return False
    if function in ELEMENTWISE or (function in EXTREMES and len(dims) == len(values) == 2):
        return elementwise(function, values, dims)
    if any(map(is_own, (*values, *given.values()))) or not is_packed(first):
        return False
    if function is F.embedding:
        return len(values) == 2 and len(dims) == 1 and not given
    if function is F.one_hot:
        classes = (*map(shared, values[1:]), *map(shared, given.values()))
        return len(classes) == 1 and type(classes[0]) is int and classes[0] > 0
    if function is F.layer_norm:
        shape = shared(values[1]) if len(values) > 1 else MISSING
        return len(dims) == 1 and isinstance(shape, tuple) and len(shape) < dims[0]
    if function in LOSSES:
        each = shared(given.get("reduction")) == "none" and "weight" not in given
        return each and len(values) == len(dims) == 2
    if function in BATCHED_PRODUCTS and dims == [3, 3]:
        return len(values) == 2
    if function in PRODUCTS or function in MATRIX_PRODUCTS or function is F.linear:
        weight = values[1].obj if len(values) > 1 and type(values[1]) is Uniform else None
        least = 2 if function in MATRIX_PRODUCTS else 1 if function in PRODUCTS else 2
        fits = isinstance(weight, Tensor) and least <= weight.dim() <= 2
        return fits and dims[0] >= 2 and (function not in MATRIX_PRODUCTS or dims[0] == 2)
    place = 1 if function in DIM_FIRST else 2 if function in DIM_SECOND else 0
    if not place or of_all((*values, *given.values())):
        return False
    return inner_dims(dim_of(function, values, given, place), dims)


def elementwise(function: Any, values: list[Any], dims: list[int]) -> bool:
    own = [len(value.event_shape) for value in values if is_own(value)]
    if own and (function not in BINARY or len(values) != 2):
        return False
    return len(set(dims)) == 1 and max(own, default=-1) < dims[0]


def of_all(values: Iterable[Any]) -> list[Tensor]:
    """The tensors that all threads share."""
    return [obj for obj in map(shared, values) if isinstance(obj, Tensor)]


def dim_of(function: Any, values: list[Any], given: dict[str, Any], place: int) -> Any:
    """The dimension, or dimensions, that a function is given; ``MISSING`` if none."""
    if len(values) > place:
        return shared(values[place])
    if "dim" in given:
        return shared(given["dim"])
    return WITH_DEFAULT.get(function, MISSING)


def inner_dims(dim: Any, dims: list[int]) -> bool:
    """Whether these are dimensions of a row, the first of the tensor not among them."""
    wanted = dim if isinstance(dim, tuple) else (dim,)
    return (
        bool(wanted)
        and len(set(dims)) == 1
        and all(type(d) is int and (0 < d < dims[0] or -dims[0] < d < 0) for d in wanted)
    )


def module(function: nn.Module, values: list[Container]) -> bool:
    dims: int = values[0].static.dim()
    if type(function) in CELLS:
        return all(value.static.dim() == 2 for value in values) and len(values) <= 2
    if type(function) is nn.Bilinear:
        return all(value.static.dim() == 2 for value in values) and len(values) == 2
    if len(values) != 1:
        return False
    if type(function) is nn.Sequential:
        return len(function) > 0 and all(keeps_rows(part, dims) for part in function)
    if type(function) is nn.Embedding:
        return function.max_norm is None
    return keeps_rows(function, dims)


def keeps_rows(part: nn.Module, dims: int) -> bool:
    """Whether a module treats each row alike, gives as many dimensions, and writes to none."""
    if getattr(part, "inplace", False):
        return False
    if isinstance(part, nn.Softmax | nn.LogSoftmax):
        return type(part) in (nn.Softmax, nn.LogSoftmax) and inner_dims(part.dim, [dims])
    if isinstance(part, nn.LayerNorm | nn.RMSNorm):
        is_plain = type(part) in (nn.LayerNorm, nn.RMSNorm)
        return is_plain and len(part.normalized_shape) < dims
    if type(part) is nn.Dropout:
        return not part.training
    return type(part) in ACTIVATIONS or (type(part) is nn.Linear and dims >= 2)
