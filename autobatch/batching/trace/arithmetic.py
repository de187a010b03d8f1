"""Arithmetic that comes to less: a table of patterns, each with the condition on which it holds.

In: a node of a recorded graph, and the nodes that make its operands. Out: the value that it is
equal to (``equal``), or a cheaper node (``cheaper``). Dtypes, shapes and strides are known here, so
that ``x * 1`` of bools, which is no bool, or ``x + 0`` of one row, which is broadcast, are told
apart. A pattern that is not exact for floats, bit by bit, with -0.0, infinities and NaN, has
``fast``: it holds only where the user has said ``fast_math=True``; on integers it is exact.

    neutral      x * 1, x / 1, x - 0, x + -0.0, x ** 1       →  x
                 x + 0                                       →  x           fast
    involutions  --x, ~~x, not not x                         →  x
                 1 / (1 / x)                                 →  x           fast
    inverses     log(exp(x))                                 →  x           fast
    idempotents  f(f(x)), f one of abs, relu, floor, …       →  f(x)
                 abs(-x)                                     →  abs(x)
                 min(x, x), x & x, where(c, x, x), …         →  x
    absorbing    x * 0, x & 0, x - x                         →  zeros       fast, without gradients
    constants    (x * a) * b, (x + a) + b                    →  x * (a * b), …   fast
                 x / c                                       →  x * (1 / c)      fast, or c = 2 ** n
    powers       n // 2 ** p, n % 2 ** p, of integers        →  n >> p, n & (2 ** p - 1)
                 x * ones_like(y), x * (ones_like(y) * c)    →  x * c

The last is how gradients begin: one, times what a mean or a density is scaled by, for each row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._ops import OpOverload

from autobatch.batching.trace.graph import Meta, Node, Ref, is_constant

_ATEN = torch.ops.aten
_ADD, _SUB = (_ATEN.add.Tensor, _ATEN.add.Scalar), (_ATEN.sub.Tensor, _ATEN.sub.Scalar)
_MUL, _DIV = (_ATEN.mul.Tensor, _ATEN.mul.Scalar), (_ATEN.div.Tensor, _ATEN.div.Scalar)
_AND = (_ATEN.bitwise_and.Tensor, _ATEN.bitwise_and.Scalar)
_POWER = (_ATEN.pow.Tensor_Scalar,)
_FLOORS = (_ATEN.floor_divide.default, _ATEN.floor_divide.Scalar)
_MODS = (_ATEN.remainder.Tensor, _ATEN.remainder.Scalar)
_WIDE = (torch.float32, torch.float64, torch.int32, torch.int64)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_VIEWS = tuple(
    getattr(_ATEN, name).default
    for name in ("view", "reshape", "_unsafe_view", "unsqueeze", "expand", "permute")
)
_IDEMPOTENT = tuple(
    getattr(_ATEN, name).default
    for name in ("abs", "relu", "floor", "ceil", "trunc", "round", "sign", "sgn", "nan_to_num")
)
_SAME_TWICE = (
    _ATEN.minimum.default,
    _ATEN.maximum.default,
    _ATEN.bitwise_and.Tensor,
    _ATEN.bitwise_or.Tensor,
)
_INVERSE: Mapping[OpOverload, OpOverload] = {
    _ATEN.neg.default: _ATEN.neg.default,
    _ATEN.bitwise_not.default: _ATEN.bitwise_not.default,
    _ATEN.logical_not.default: _ATEN.logical_not.default,
}
_NEARLY_INVERSE: Mapping[OpOverload, OpOverload] = {
    _ATEN.reciprocal.default: _ATEN.reciprocal.default,
    _ATEN.log.default: _ATEN.exp.default,
}


@dataclass(frozen=True, slots=True)
class Site:
    """A node among others: what makes its operands, what is known of values, and what may be done.

    ``grad``: gradients may flow. ``fast``: floats may come out rounded otherwise.
    """

    node: Node
    makers: Mapping[int, Node]
    metas: Mapping[int, Meta]
    grad: bool
    fast: bool

    @property
    def dtype(self) -> torch.dtype:
        out = self.node.outs[0]
        assert out is not None
        return self.metas[out].dtype

    @property
    def may_round(self) -> bool:
        """Whether a rewrite that is exact for integers alone may be done."""
        return self.fast or not (self.dtype.is_floating_point or self.dtype.is_complex)

    def operand(self, place: int = 0) -> Any:
        return self.node.args[place] if place < len(self.node.args) else None

    def number(self, place: int = 1) -> int | float | None:
        """The Python number that an operand is at every run; None for anything else."""
        found = self.operand(place)
        return found if type(found) in (int, float) else None

    def inner(self) -> Node | None:
        """What makes the first operand, for whom gradients flow as for the node."""
        first = self.operand()
        maker = self.makers.get(first.value) if isinstance(first, Ref) else None
        return maker if maker is not None and maker.grad and not maker.kwargs else None


def is_number(found: int | float | None, *wanted: float) -> bool:
    """Whether an operand is one of some numbers, its sign told apart if it is a float's zero."""
    return found is not None and any(
        found == each and math.copysign(1, found) == math.copysign(1, each) for each in wanted
    )


# A value that a node is equal to, whatever its layout.

Equal = Callable[[Site], Any]


def neutral(site: Site) -> Any:
    number, op = site.number(), site.node.op
    if op in (*_MUL, *_DIV, *_POWER) and is_number(number, 1):
        return site.operand()
    if op in _SUB and is_number(number, 0):
        return site.operand()
    if op in _ADD and (is_number(number, -0.0) or (is_number(number, 0) and site.may_round)):
        return site.operand()
    return None


def undone(site: Site) -> Any:
    """What is inverted twice."""
    inner, op = site.inner(), site.node.op
    if inner is None:
        return None
    exact = _INVERSE.get(op) is inner.op
    nearly = site.fast and _NEARLY_INVERSE.get(op) is inner.op
    return inner.args[0] if exact or nearly else None


def idempotent(site: Site) -> Any:
    inner = site.inner()
    again = site.node.op in _IDEMPOTENT and inner is not None and inner.op is site.node.op
    return site.operand() if again and len(site.node.args) == 1 else None


def of_one(site: Site) -> Any:
    """An operator that gives one of its operands, which are the same."""
    if site.node.op in _SAME_TWICE and site.operand(0) == site.operand(1):
        return site.operand()
    same = site.node.op is _ATEN.where.self and site.operand(1) == site.operand(2)
    return site.operand(1) if same else None


EQUAL: tuple[Equal, ...] = (neutral, undone, idempotent, of_one)


def equal(site: Site) -> int | None:
    """The value that a node is equal to, in dtype, shape and strides too."""
    out = site.node.outs[0] if len(site.node.outs) == 1 else None
    if out is None or site.node.kwargs or not site.node.grad or site.node.mutates:
        return None
    for pattern in EQUAL:
        found = pattern(site)
        if isinstance(found, Ref) and are_alike(site.metas[found.value], site.metas[out]):
            return found.value
    return None


def are_alike(one: Meta, other: Meta) -> bool:
    known = None not in (*one.shape, *one.stride)
    return known and replace(one, storage=0) == replace(other, storage=0)


# A node that costs less.


def absorbed(site: Site) -> Node | None:
    """Zeros; where gradients may flow they stay a product, through which zeros flow."""
    node, first = site.node, site.operand()
    zero = node.op in (*_MUL, *_AND) and is_number(site.number(), 0)
    nothing = node.op in _SUB and first == site.operand(1)
    if not (zero or nothing) or site.grad or not site.may_round or not isinstance(first, Ref):
        return None
    out = node.outs[0]
    assert out is not None
    if not are_alike(site.metas[first.value], site.metas[out]):
        return None
    return replace(node, op=_ATEN.zeros_like.default, args=(first,))


def absolute(site: Site) -> Node | None:
    """Of what is negated."""
    inner = site.inner()
    if site.node.op is not _ATEN.abs.default or inner is None or inner.op is not _ATEN.neg.default:
        return None
    return replace(site.node, args=inner.args)


def gathered(site: Site) -> Node | None:
    """Two numbers in one."""
    inner, last = site.inner(), site.number()
    if inner is None or last is None or not site.may_round or len(inner.args) != 2:
        return None
    first = inner.args[1]
    source = inner.args[0]
    if type(first) is not type(last) or not isinstance(source, Ref):
        return None
    for ops, number in ((_MUL, first * last), (_ADD, first + last)):
        if site.node.op in ops and inner.op in ops:
            fits = math.isfinite(number) and (type(number) is float or abs(number) < 2**31)
            fits = fits and site.metas[source.value].dtype is site.dtype in _WIDE
            return replace(site.node, args=(source, number)) if fits else None
    return None


def reciprocal(site: Site) -> Node | None:
    """Of a number that divides: exact for a power of two, and faster."""
    number = site.number()
    first = site.operand()
    if site.node.op not in _DIV or not number or not isinstance(first, Ref):
        return None
    if site.metas[first.value].dtype not in _WIDE[:2]:
        return None
    mantissa, exponent = math.frexp(number)
    is_power = abs(mantissa) == 0.5 and abs(exponent) < 100
    if not (is_power or (site.fast and 1e-30 < abs(number) < 1e30)):
        return None
    return replace(site.node, op=_ATEN.mul.Tensor, args=(first, 1 / number))


def of_bits(site: Site) -> Node | None:
    """A division by a power of two, floored as Python's is, takes bits away: eight times faster."""
    node, number, first = site.node, site.number(), site.operand()
    if node.op not in (*_FLOORS, *_MODS) or type(number) is not int or number < 1:
        return None
    dtype = site.metas[first.value].dtype if isinstance(first, Ref) else None
    fits = dtype is site.dtype in _INTEGERS and number <= torch.iinfo(site.dtype).max
    if not fits or number & (number - 1):
        return None
    if node.op in _MODS:
        return replace(node, op=_ATEN.bitwise_and.Scalar, args=(first, number - 1))
    shift = _ATEN.bitwise_right_shift.Tensor_Scalar
    return replace(node, op=shift, args=(first, number.bit_length() - 1))


def scaled(site: Site) -> Node | None:
    """By a tensor that is one number throughout."""
    node, out = site.node, site.node.outs[0]
    if node.op is not _ATEN.mul.Tensor or out is None or site.dtype not in _WIDE[:2]:
        return None
    for one, other in (node.args, node.args[::-1]):
        if not isinstance(one, Ref) or not isinstance(other, Ref):
            return None
        number = throughout(other.value, site)
        if number is not None and lie_alike(site.metas[one.value], site.metas[out]):
            return replace(node, args=(one, number))
    return None


def lie_alike(one: Meta, other: Meta) -> bool:
    """Whether two have one shape and their elements lie in memory alike."""
    if one.shape != other.shape or one.dtype is not other.dtype or None in one.shape:
        return False
    steps = zip(one.shape, one.stride, other.stride, strict=True)
    return all(size == 1 or (a == b and a is not None) for size, a, b in steps)


def throughout(value: int, site: Site) -> float | None:
    """The number that each element of a floating tensor is; None if that is not known."""
    maker, dtype = site.makers.get(value), site.metas[value].dtype
    if maker is None or dtype is not site.dtype:
        return None
    if maker.op is _ATEN.ones_like.default:
        return 1.0
    source = maker.args[0]
    if not isinstance(source, Ref) or (maker.op is not _ATEN.mul.Tensor and maker.op not in _VIEWS):
        return None
    number = throughout(source.value, site)
    if number is None or maker.op in _VIEWS:
        return number
    factor = maker.args[1]
    known = type(factor) in (int, float) and not maker.kwargs
    return float(torch.tensor(number, dtype=dtype, device="cpu") * factor) if known else None


CHEAPER: tuple[Callable[[Site], Node | None], ...] = (
    absorbed,
    absolute,
    gathered,
    reciprocal,
    of_bits,
    scaled,
)


def cheaper(site: Site) -> Node:
    """The node, or one that gives the same for less."""
    node = site.node
    fits = len(node.outs) == 1 and node.outs[0] is not None and not node.kwargs and node.grad
    if not fits or node.mutates or not all(is_operand(each) for each in node.args):
        return node
    for pattern in CHEAPER:
        found = pattern(site)
        if found is not None:
            return found
    return node


def is_operand(argument: Any) -> bool:
    return isinstance(argument, Ref) or is_constant(argument)
