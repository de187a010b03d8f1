"""Functions and methods of numpy's that programs run as plain Python may call, by what they do.

None of them writes but what it is told to: ``out=``, or the first of ``CHANGES``. ``NEW`` give
arrays with memory of their own, or numbers; ``PARTS`` may give what they get, or a view of it. An
array of Python objects calls their methods, by the names in ``ASKED`` too. What draws from numpy's
own state, reads a file or warns in a way of its own is not here.
"""

from __future__ import annotations

import inspect
import sys
from functools import cache
from types import BuiltinMethodType, MethodType, ModuleType
from typing import Any

import numpy as np

from autobatch.structure import own_attribute


def _found(owner: ModuleType, names: str) -> frozenset[Any]:
    return frozenset(getattr(owner, name) for name in names.split() if hasattr(owner, name))


# fmt: off
_UFUNCS = (
    "abs absolute add arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_and"
    " bitwise_count bitwise_not bitwise_or bitwise_xor cbrt ceil copysign cos cosh deg2rad degrees"
    " divide divmod equal exp exp2 expm1 fabs float_power floor floor_divide fmax fmin fmod frexp"
    " gcd greater greater_equal heaviside hypot invert isfinite isinf isnan lcm ldexp left_shift"
    " less less_equal log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or"
    " logical_xor matmul matvec maximum minimum mod modf multiply negative nextafter not_equal"
    " positive power rad2deg radians reciprocal remainder right_shift rint sign signbit sin sinh"
    " spacing sqrt square subtract tan tanh true_divide trunc vecdot vecmat"
)
_NEW = (
    "all allclose amax amin angle any append arange argmax argmin argpartition argsort argwhere"
    " around array array_equal array_equiv average bartlett bincount blackman block can_cast clip"
    " column_stack compress concat concatenate convolve copy corrcoef correlate count_nonzero cov"
    " cross cumprod cumsum cumulative_prod cumulative_sum delete diag_indices digitize dot ediff1d"
    " empty empty_like extract eye fix flatnonzero fromiter full full_like geomspace gradient"
    " hamming hanning hstack identity indices inner insert interp intersect1d isclose iscomplex"
    " iscomplexobj isin isneginf isposinf isreal isrealobj isscalar kron lexsort linspace logspace"
    " max mean median min nanargmax nanargmin nancumsum nanmax nanmean nanmedian nanmin"
    " nanpercentile nanprod nanquantile nanstd nansum nanvar ndim nonzero ones ones_like outer"
    " packbits pad partition percentile poly polyadd polyfit polymul polysub polyval prod ptp"
    " quantile ravel_multi_index repeat result_type roll roots round searchsorted select setdiff1d"
    " setxor1d shape sinc size sort stack std sum take take_along_axis tensordot tile trace"
    " trapezoid tri tril tril_indices triu triu_indices union1d unique unpackbits unravel_index"
    " unwrap vander var vdot vstack where zeros zeros_like"
)
_PARTS = (
    "apply_along_axis array_split asanyarray asarray ascontiguousarray asfortranarray atleast_1d"
    " atleast_2d atleast_3d broadcast_arrays broadcast_to choose conj conjugate diag diagflat"
    " diagonal diff dsplit einsum expand_dims flip fliplr flipud frombuffer fromfunction histogram"
    " histogram2d hsplit imag ix_ matrix_transpose meshgrid moveaxis nan_to_num ndenumerate"
    " ndindex permute_dims polyder polydiv polyint ravel real real_if_close reshape resize rollaxis"
    " rot90 split squeeze swapaxes transpose trim_zeros unstack vectorize vsplit"
)
_LINALG = (
    "cholesky cond det eig eigh eigvals eigvalsh inv lstsq matrix_norm matrix_rank norm pinv qr"
    " slogdet solve svd svdvals tensorinv tensorsolve vector_norm"
)
_FFT = "fft fft2 fftfreq hfft ifft ifft2 ihfft irfft irfft2 rfft rfft2 rfftfreq"
_GENERATORS = "Generator MT19937 PCG64 PCG64DXSM Philox RandomState SFC64 SeedSequence default_rng"
_WRITES = "copyto fill_diagonal place put put_along_axis putmask"
_ELEMENTS = (
    "all amax amin any choose extract fmax fmin item logical_and logical_or max maximum min minimum"
    " nanmax nanmin nanprod nansum positive prod ptp sum take trace"
)
_NEW_METHODS = (
    "all any argmax argmin argpartition argsort astype clip compress copy cumprod cumsum dot"
    " flatten item max mean min nonzero prod ptp repeat round searchsorted std sum take tobytes"
    " tolist trace var"
)
# fmt: on
UFUNCS = frozenset(f for f in _found(np, _UFUNCS) if isinstance(f, np.ufunc))
NEW = frozenset(
    {*UFUNCS, *_found(np, f"{_UFUNCS} {_NEW}"), *_found(np.linalg, _LINALG), *_found(np.fft, _FFT)}
)
KINDS = frozenset(
    kind
    for kind in {*np.sctypeDict.values(), np.bool_}
    if isinstance(kind, type) and not issubclass(kind, np.void | np.object_)
)
"""Classes of numbers and texts; called with an array, one may give the array itself."""
ABSTRACT = _found(
    np, "complexfloating floating generic inexact integer number signedinteger unsignedinteger"
) | {np.ndarray}
"""Classes of which something may be an instance."""
PARTS = (
    _found(np, _PARTS)
    | _found(np.linalg, "matrix_power multi_dot")
    | _found(np.fft, "fftn fftshift ifftn ifftshift")
    | KINDS
    | ABSTRACT
)
LIMITS = frozenset({np.finfo, np.iinfo, np.dtype})
"""What they give is one for all who ask."""
TO_ARRAYS = _found(np, "array asarray ascontiguousarray copy") | {np.float64, np.float32, np.int64}
"""Functions that make arrays of tensors, and never give one."""
CHANGES = _found(np, _WRITES)
OVERWRITING = frozenset({"overwrite_input"})
"""Keywords by which a function is told to write its first argument."""
CALLING = _found(np, "apply_along_axis fromfunction pad vectorize")
"""Those that call functions that they get."""
GENERATORS = _found(np.random, _GENERATORS)
NOWHERE = sys.maxsize
METHODS_OF_UFUNCS = frozenset({"accumulate", "at", "outer", "reduce", "reduceat"})
BOUND = (BuiltinMethodType, MethodType)
DRAWING = (np.random.Generator, np.random.RandomState, np.random.BitGenerator)
FUNCTIONS = NEW | PARTS | LIMITS | CHANGES
MANAGERS = frozenset({np.errstate})
"""They put back what was, and give nothing."""
ELEMENTS = _found(np, _ELEMENTS)
"""Functions that may give an element of an array, or what is none as it is."""


def _names(*kinds: type) -> frozenset[str]:
    return frozenset(name for kind in kinds for name in dir(kind) if name[0] != "_")


_OUTWARD = frozenset({"dump", "tofile", "ctypes", "base", "data", "to_device", "set_state"})
"""They write a file, or show memory in another way."""
_DRAWS = _names(np.random.Generator, np.random.RandomState) - _OUTWARD
METHODS = (_names(np.ndarray) - _OUTWARD) | _DRAWS | _names(np.random.PCG64, np.random.SeedSequence)
WRITING_METHODS = frozenset(
    {"byteswap", "fill", "itemset", "partition", "put", "resize", "setfield", "setflags", "sort"}
)
_DRAWN_PARTS = frozenset({"choice", "permutation", "permuted", "shuffle", "bit_generator", "spawn"})
NEW_METHODS = frozenset(_NEW_METHODS.split()) | (_DRAWS - _DRAWN_PARTS)
"""Of an array, they give one with memory of its own, or a number."""
ELEMENT_METHODS = frozenset(_ELEMENTS.split()) & NEW_METHODS
"""Those of them that may give an element."""
FIXED = frozenset({"dtype", "itemsize", "nbytes", "ndim", "shape", "size", "strides"})
"""Attributes of an array that are numbers."""
SHOWING = frozenset({"base", "ctypes", "data"})
"""Attributes of an array that lead to what has its memory."""
ASKED = (_names(np.ndarray) | {f.__name__ for f in UFUNCS}) - {"T"}
"""What numpy may ask an object by name that it gets, or that is in an array."""


def is_of_ufunc(found: object) -> bool:
    """Whether it is a method of one of numpy's functions: ``np.add.reduce``."""
    owner = found.__self__ if isinstance(found, BuiltinMethodType) else None
    return isinstance(owner, np.ufunc) and owner in UFUNCS


@cache
def places_of(function: Any) -> dict[str, int]:
    """The parameters by which a function is told to write, and their places."""
    try:
        params = enumerate(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return {"out": function.nin} if isinstance(function, np.ufunc) else {}
    told = OVERWRITING | ({"copy"} if function is np.nan_to_num else set()) | {"out"}
    return {
        param.name: NOWHERE if param.kind is param.KEYWORD_ONLY else place
        for place, param in params
        if param.name in told
    }


def place_of_out(function: Any) -> int:
    """At which place a function has what it writes to."""
    return places_of(function).get("out", NOWHERE)


def place_of_methods_out(name: str) -> int:
    """The same of a method of an array, or of a generator."""
    if name in ("conj", "conjugate"):
        return 0
    if name in ("reduce", "accumulate", "cumsum", "cumprod"):
        return 2 if name[:3] == "cum" else 3
    if name == "reduceat":
        return 4
    if name in _DRAWS:
        return 2 if name == "random" or name.startswith("standard_") else NOWHERE
    function = getattr(np, name, None)
    place = place_of_out(function) if function in FUNCTIONS else NOWHERE
    return place if place == NOWHERE else place - 1


def is_draw(found: object) -> bool:
    """Whether it is of numpy's own state, or of a generator: ``np.random.rand``."""
    bound = isinstance(found, BOUND) and isinstance(found.__self__, DRAWING)
    return bound or own_attribute(found, "__module__") == np.random.rand.__module__
