"""What a program may do with tensors that plain Python runs though it computes with them.

A run that has spent its time on objects is better begun again so (see ``runs.trial``), where
nobody sees what it does to tensors either: it may call what is pure and draws nothing, and write to
rows of its own. Tensors that existed before, and those that all threads share, it may only read.
"""

from __future__ import annotations

import copy
import inspect
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn import functional as F

from autobatch.alone import reads
from autobatch.alone.kinds import NotAlone
from autobatch.alone.taint import ARRAY, FOREIGN, NONE, TENSOR, Share, Shares
from autobatch.batching import known_callees as callees
from autobatch.batching import known_library as library
from autobatch.compat import is_wrapped, within_duals, within_modes
from autobatch.ir.program import CallShape

MOST_ELEMENTS = 4096
"""Of a tensor: one kernel for all threads is better for larger ones, whatever else there is."""
MOST_OF_ONE = 65_536
"""The same where there is one thread, so that no kernel is for others, too, and of weights."""
SHARED, SHARED_FOR_EACH = 10_000, 200
"""Values that a call looks through, of what all threads share, and more for each thread: a dict of
a million entries takes 40 ms.
"""

# fmt: off
_ANYWHERE = (
    "abs acos acosh add addmm addmv all allclose amax amin any argmax argmin argsort asin asinh"
    " atan atan2 atanh bmm ceil clamp clone cos cosh cross cummax cummin cumprod cumsum deg2rad"
    " diff dist div dot eq equal erf erfc exp exp2 expm1 flip floor"
    " floor_divide fmod frac gather ge gt heaviside hypot index_select isclose isfinite isinf"
    " isnan kron le lerp lgamma log log10 log1p log2 log_softmax logaddexp logical_and logical_not"
    " logical_or logical_xor logsumexp lt masked_fill masked_select matmul max maximum mean median"
    " min minimum mm mode mul mv ne neg nonzero norm outer pow prod rad2deg reciprocal relu"
    " remainder repeat_interleave roll round rsqrt scatter scatter_add sigmoid sign sin sinc sinh"
    " softmax sort sqrt square std sub sum take tan tanh topk trace tril triu trunc unique var"
    " where absolute addr argwhere baddbmm bitwise_and bitwise_left_shift bitwise_not bitwise_or"
    " bitwise_right_shift bitwise_xor clip copysign corrcoef count_nonzero cov digamma divide"
    " erfinv fix fliplr flipud float_power gcd hypot index_add index_copy index_fill inner"
    " isneginf isposinf isreal kthvalue lcm ldexp logaddexp2 logcumsumexp logit multiply"
    " nan_to_num nanmean nansum negative polygamma quantile rot90 sgn signbit subtract"
    " take_along_dim tensordot true_divide unique_consecutive vdot xlogy"
    " addbmm addcdiv addcmul arccos arccosh arcsin arcsinh arctan arctan2 arctanh clamp_max"
    " clamp_min diagflat diagonal_scatter fmax fmin greater greater_equal histc index_put inverse"
    " less less_equal logdet masked_scatter matrix_exp msort nanmedian nanquantile narrow_copy"
    " nextafter not_equal put renorm scatter_reduce select_scatter slice_scatter"
    " angle conj_physical"
    " cholesky cholesky_inverse cholesky_solve det ger i0 igamma matrix_power mvlgamma pinverse"
    " slogdet"
)
_MAKING = (
    "arange bincount block_diag bucketize cat cdist column_stack complex concat concatenate"
    " diag_embed dstack empty empty_like eye full full_like hstack isin linspace logspace ones"
    " ones_like polar searchsorted stack std_mean tensor tril_indices triu_indices vander"
    " var_mean vstack zeros zeros_like"
    " combinations cumulative_trapezoid row_stack trapezoid trapz bilinear celu layer_norm selu"
)
_LINALG = (
    "cholesky det eigh eigvalsh inv lstsq matrix_norm matrix_power norm pinv qr slogdet solve"
    " solve_triangular svd svdvals vector_norm"
    " cond cross eig eigvals lu_solve matrix_exp matrix_rank multi_dot vander vecdot"
    " cholesky_ex inv_ex lu lu_factor solve_ex"
)
_FFT = "fft fft2 fftfreq fftshift ifft ifft2 ifftshift irfft irfft2 rfft rfft2 rfftfreq"
_SPECIAL = (
    "digamma entr erf erfc erfinv exp2 expit expm1 gammaln i0 log1p log_ndtr logit ndtr ndtri"
    " sinc xlogy"
)
_PARTS = (
    "chunk detach diag diagonal flatten movedim narrow permute ravel reshape select split squeeze"
    " t tensor_split transpose unbind unflatten unsqueeze broadcast_to dsplit hsplit moveaxis"
    " positive swapdims tile vsplit conj resolve_conj"
)
_METHODS = (
    " bincount logical_xor new_empty new_full new_ones new_tensor new_zeros repeat scatter_add"
)
_PART_METHODS = (
    " bool byte contiguous cpu double expand expand_as float half int long short swapaxes to"
    " type_as view view_as bfloat16 reshape_as unfold values"
)
_WRITES = (
    "abs_ absolute_ acos_ acosh_ add_ addbmm_ addcdiv_ addcmul_ addmm_ addmv_ addr_ arccos_"
    " arccosh_ arcsin_ arcsinh_ arctan2_ arctan_ arctanh_ asin_ asinh_ atan2_ atan_ atanh_"
    " baddbmm_ bitwise_and_ bitwise_left_shift_ bitwise_not_ bitwise_or_ bitwise_right_shift_"
    " bitwise_xor_ ceil_ clamp_ clamp_max_ clamp_min_ clip_ copy_ copysign_ cos_ cosh_ cumprod_"
    " cumsum_ deg2rad_ digamma_ div_ divide_ eq_ erf_ erfc_ erfinv_ exp2_ exp_ expm1_ fill_"
    " fill_diagonal_ fix_ float_power_ floor_ floor_divide_ fmod_ frac_ gcd_ ge_ greater_"
    " greater_equal_ gt_ heaviside_ hypot_ index_add_ index_copy_ index_fill_ index_put_ lcm_"
    " ldexp_ le_ lerp_ less_ less_equal_ lgamma_ log10_ log1p_ log2_ log_ logical_and_"
    " logical_not_ logical_or_ logical_xor_ logit_ lt_ masked_fill_ masked_scatter_ mul_ multiply_"
    " nan_to_num_ ne_ neg_ negative_ nextafter_ not_equal_ polygamma_ pow_ put_ rad2deg_"
    " reciprocal_ relu_ remainder_ renorm_ round_ rsqrt_ scatter_ scatter_add_ scatter_reduce_"
    " sgn_ sigmoid_ sign_ sin_ sinc_ sinh_ sqrt_ square_ sub_ subtract_ tan_ tanh_ tril_ triu_"
    " true_divide_ trunc_ xlogy_ zero_"
)
_FUNCTIONAL = (
    "avg_pool1d avg_pool2d binary_cross_entropy binary_cross_entropy_with_logits conv1d conv2d"
    " cosine_similarity cross_entropy gelu huber_loss kl_div l1_loss layer_norm linear log_softmax"
    " logsigmoid max_pool1d max_pool2d mse_loss nll_loss normalize one_hot pairwise_distance"
    " sigmoid smooth_l1_loss softmax softmin softplus tanh"
    " adaptive_avg_pool1d adaptive_avg_pool2d conv3d conv_transpose1d conv_transpose2d fold"
    " gaussian_nll_loss glu group_norm hardshrink poisson_nll_loss prelu rms_norm softshrink"
    " softsign tanhshrink unfold"
)
_ACTIVATIONS = (
    "celu elu hardsigmoid hardswish hardtanh leaky_relu mish relu relu6 selu silu threshold"
)
# fmt: on


def _found(owner: Any, names: str) -> frozenset[Any]:
    return frozenset(getattr(owner, name) for name in names.split() if hasattr(owner, name))


MAKING = frozenset().union(
    _found(torch, f"{_ANYWHERE} {_MAKING}"),
    _found(F, _FUNCTIONAL),
    _found(torch.linalg, _LINALG),
    _found(torch.fft, _FFT),
    _found(torch.special, _SPECIAL),
)
"""Functions whose result has memory of its own; none that may write to what it gets."""
MORE_WHERE_ASKED = {
    found: (list(inspect.signature(found).parameters).index("inplace"), "inplace")
    for found in _found(F, _ACTIVATIONS)
} | {F.embedding: (3, "max_norm"), F.scaled_dot_product_attention: (4, "dropout_p")}
"""Those that write to a tensor, or draw, where they are told to, by the place and name of that."""
PARTS = _found(
    torch,
    f"{_PARTS} as_tensor broadcast_tensors cartesian_prod einsum from_numpy meshgrid real"
    " imag view_as_real view_as_complex",
) | {F.pad}
"""Functions whose result may be a part of what they get."""
MAKING_ONE = _found(
    torch,
    "arange cat empty empty_like eye full full_like linspace ones ones_like stack tensor zeros"
    " zeros_like",
)
"""Those of the former that give one tensor, whatever they get."""
OF_ARRAYS = frozenset({torch.as_tensor, torch.from_numpy})
"""Those that give the memory of an array of numpy's."""
MAKING_METHODS = frozenset((_ANYWHERE + _METHODS).split())
PART_METHODS = frozenset((_PARTS + _PART_METHODS).split())
WRITING_METHODS = frozenset(_WRITES.split())
"""Methods that write to their tensor and to nothing else; none that draws, or resizes it."""
OF_PARTS = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})
OF_KINDS = frozenset({"dtype", "device"})
"""Attributes that are parts of a tensor, and those that nobody can write."""
OF_RESULTS = frozenset(
    {"values", "indices", "eigenvalues", "eigenvectors", "solution", "logabsdet", "sign"}
    | {"Q", "R", "U", "S", "Vh", "L", "info"}
)
"""Attributes of what functions of torch's give, tensors of their own."""
OUTWARD = frozenset({"out", "generator", "requires_grad", "pin_memory", "layout"})
"""Keywords by which a function does more than its name says."""
SHOWN = frozenset({"format", "join"})
"""Operations that show what only a tensor of the loop's has."""
SHOWING = frozenset({ascii, format, repr, str})
"""Functions of Python's that do so."""
NO_TENSORS = frozenset(
    {len, int, float, bool, isinstance, issubclass, any, all, callable, range, torch.is_tensor}
)
"""Functions of Python's, of those that only read, that give a tensor for nothing, a bool, say."""
STARTING = frozenset({math.prod})
"""Functions of Python's, of those that only read, whose result may be what they begin with."""
GOING_ON = (
    (callees.READS | callees.COPIES | callees.LENDS | callees.CHANGES)
    - {*(ascii, bytes, format, hash, repr, str, type, super, object, copy.copy, copy.deepcopy)}
    - (library.READS | library.LENDS | library.CHANGES)
)
"""Functions of Python's that do with tensors what the program could; the others show more of one,
or hand it on as something else."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The tensors that plain Python may compute with: of ``most`` elements.

    Those that existed before, weights say, have at most ``most_held``. Where they may need
    ``gradients``, the graph is the loop's. Where none does, their ``texts`` are, too: they name no
    function of a graph.
    """

    most: int = MOST_ELEMENTS
    most_held: int = MOST_OF_ONE
    gradients: bool = False
    texts: bool = False
    most_shared: int = field(default=SHARED, compare=False)
    """How much of what all threads share may be looked through, which each call does again."""

    @classmethod
    def of(cls, threads: int, saves: bool, begins: bool = False) -> Limits:
        """For so many threads; ``saves``: autograd saves what it does, and no more is asked.

        ``begins``: few calls run so, which the clock bounds, whatever they compute with.
        """
        shared = SHARED + SHARED_FOR_EACH * threads
        texts = torch.is_grad_enabled()  # else one may be said to need some
        if begins:
            return cls(sys.maxsize, sys.maxsize, saves, texts, shared)
        if threads == 1:
            return cls(MOST_OF_ONE, sys.maxsize, saves, texts, shared)
        return cls(gradients=saves, texts=texts, most_shared=shared)

    def detached(self) -> Limits:
        """The same, of tensors that need no gradients."""
        return replace(self, gradients=False)

    def allow(self, tensors: Iterable[Tensor]) -> bool:
        """Whether it may compute with what the caller gives: nobody asks how it did."""
        return may_compute(tensors, self.most, self.gradients)

    def allow_held(self, tensors: Iterable[Tensor]) -> bool:
        """Whether it may with what existed before."""
        return may_compute(tensors, self.most_held, self.gradients)

    def check(self, tensors: Sequence[Tensor]) -> None:
        """That it may with these, of its arguments."""
        if not self.allow(tensors):
            raise NotAlone(self.against(tensors, self.most, "an argument"))

    def check_held(self, tensors: Sequence[Tensor]) -> None:
        if not self.allow_held(tensors):
            raise NotAlone(self.against(tensors, self.most_held, "a tensor that it reads"))

    def against(self, tensors: Iterable[Tensor], most: int, what: str) -> str:
        for tensor in tensors:
            if tensor.numel() > most:
                return f"{what} has {tensor.numel():,} elements, more than {most:,}"
            if tensor.requires_grad and not self.gradients:
                return f"{what} needs gradients, and `save` says what is kept for them"
        return f"{what} is no plain one on the CPU, or a transform of torch's is at work"


FEWEST = Limits()


def may_compute(tensors: Iterable[Tensor], most: int, gradients: bool) -> bool:
    if within_duals() or within_modes():
        return False
    return all(is_small_data(tensor, most, gradients) for tensor in tensors)


def is_small_data(tensor: Tensor, most: int, gradients: bool) -> bool:
    return (
        type(tensor) in (Tensor, Parameter)
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and tensor.numel() <= most
        and not is_wrapped(tensor)
        and (gradients or not (tensor.requires_grad and torch.is_grad_enabled()))
    )


def need_gradients(tensors: Iterable[Tensor]) -> bool:
    """Whether what is computed with them may have gradients."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def is_function(found: object) -> bool:
    """Whether it is a function of torch's that plain Python may call."""
    try:
        return found in MAKING or found in PARTS or found in MORE_WHERE_ASKED
    except TypeError:  # unhashable
        return False


def is_method(name: str) -> bool:
    """Whether it is a method of tensors that gives something new, or a part, and writes nothing."""
    known = name in MAKING_METHODS or name in PART_METHODS or name == "__getitem__"
    return known or name == "tolist" or name in reads.NUMBERS


def makes_one(found: object) -> bool:
    """Whether it is a function of torch's that gives one tensor, in memory of its own."""
    return callable(found) and any(found is each for each in MAKING_ONE)


def called(found: object, whole: Share, shares: Shares, shape: CallShape) -> Share:
    """What a function of torch's gives for what has the share ``whole``."""
    check(shape)
    more = MORE_WHERE_ASKED.get(found)
    if more is not None and may_say(shape, *more):
        draws = more[1] == "dropout_p"
        raise NotAlone("it may draw" if draws else "it may write in place")
    if found in MAKING or more is not None:
        return TENSOR
    of_array = FOREIGN if whole & ARRAY and found in OF_ARRAYS else NONE
    return TENSOR | (shares.within(whole) & FOREIGN) | of_array


def may_say(shape: CallShape, place: int, name: str) -> bool:
    """Whether a call may give an argument, of a name and a place."""
    return any(shape.positional) or len(shape.positional) > place or name in shape.keywords


def check(shape: CallShape) -> None:
    """That a call gives operands, ``*x`` too: what else it could say has no place."""
    if None in shape.keywords or not OUTWARD.isdisjoint(shape.keywords):
        raise NotAlone("what it tells torch is more than operands")


def by_method(name: str, receiver: Share, shares: Shares, shape: CallShape) -> Share | None:
    """What a method of a tensor gives; None if it is none that is known."""
    if name == "tolist" or name in reads.NUMBERS:
        return NONE
    if name in MAKING_METHODS:
        check(shape)
        return TENSOR
    if name in PART_METHODS:
        check(shape)
        return TENSOR | (receiver & FOREIGN)
    if name in WRITING_METHODS:
        check(shape)
        shares.write(receiver)
        return receiver
    return None
