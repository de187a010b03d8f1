"""aten's operators element by element: what each gives of one element of each operand.

Operands come in the dtype in which the operator computes: that of the result, or, where that is
bool, the one in which the operands meet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from autobatch.compiled import tensors
from autobatch.compiled.machine import c_call, intrinsic, refuse_divisor
from autobatch.compiled.types import FLOATS, MACHINE, TRUTH, Scalar, Value, refuse
from autobatch.compiled.writer import Writer
from autobatch.llvm import literal

Rule = Callable[[Writer, Sequence[Value]], Value]


def dtype_of(x: Value) -> torch.dtype:
    assert isinstance(x.type, Scalar)
    return x.type.dtype


def floats(x: Value) -> str:
    """The machine type of an operand of a function that is for floats."""
    dtype = dtype_of(x)
    return MACHINE[dtype] if dtype in FLOATS else refuse(f"a function of floats of {dtype}")


def constant(x: Value, known: float) -> Value:
    """A number in the dtype of an operand."""
    return Value(x.type, (literal(known, MACHINE[dtype_of(x)]),))


def of_c(name: str, w: Writer, args: Sequence[Value]) -> Value:
    (x,) = args
    return Value(x.type, (c_call(w, name, floats(x), x.leaf),))


def of_two(name: str, w: Writer, args: Sequence[Value]) -> Value:
    x, y = args
    return Value(x.type, (c_call(w, name, floats(x), x.leaf, y.leaf),))


def signed(w: Writer, args: Sequence[Value]) -> Value:
    x, y = args
    return Value(x.type, (intrinsic(w, "copysign", floats(x), x.leaf, y.leaf),))


def instruction(name: str, w: Writer, args: Sequence[Value]) -> Value:
    (x,) = args
    if dtype_of(x) not in FLOATS:
        return x  # rounding an int
    return Value(x.type, (intrinsic(w, name, floats(x), x.leaf),))


def root(w: Writer, args: Sequence[Value]) -> Value:
    (x,) = args
    return Value(x.type, (intrinsic(w, "sqrt", floats(x), x.leaf),))


OF_BITS = {"mul": "and", "add": "or"}
"""What operators are on bools."""


def binary(name: str, w: Writer, args: Sequence[Value]) -> Value:
    if dtype_of(args[0]) is torch.bool:
        name = OF_BITS.get(name, name)
    return tensors.binary(w, name, *args)


def truncated_quotient(w: Writer, args: Sequence[Value]) -> Value:
    if dtype_of(args[0]) not in FLOATS:
        refuse("a quotient of ints that is truncated has no compiled form")
    return instruction("trunc", w, [tensors.binary(w, "truediv", *args)])


def rest(w: Writer, args: Sequence[Value]) -> Value:
    """``fmod``: the remainder with the sign of the dividend."""
    a, b = args
    dtype, machine = dtype_of(a), MACHINE[dtype_of(a)]
    if dtype in FLOATS:
        return Value(a.type, (w.made(f"frem {machine} {a.leaf}, {b.leaf}"),))
    refuse_divisor(w, machine, a.leaf, b.leaf, b.known)
    word = "urem" if dtype is torch.uint8 else "srem"
    return Value(a.type, (w.made(f"{word} {machine} {a.leaf}, {b.leaf}"),))


ROUNDED: dict[str, Rule] = {"floor": partial(binary, "floordiv"), "trunc": truncated_quotient}
"""Quotients by their rounding mode."""


def compare(name: str, w: Writer, args: Sequence[Value]) -> Value:
    return tensors.compare(w, name, *args)


def unary(name: str, w: Writer, args: Sequence[Value]) -> Value:
    return tensors.unary(w, name, args[0])


def absolute(w: Writer, args: Sequence[Value]) -> Value:
    return tensors.absolute(w, args[0])


def reciprocal(w: Writer, args: Sequence[Value]) -> Value:
    return tensors.binary(w, "truediv", constant(args[0], 1.0), args[0])


def reciprocal_root(w: Writer, args: Sequence[Value]) -> Value:
    return reciprocal(w, [root(w, args)])


def sigmoid(w: Writer, args: Sequence[Value]) -> Value:
    (x,) = args
    decay = of_c("exp", w, [tensors.unary(w, "neg", x)])
    return reciprocal(w, [tensors.binary(w, "add", constant(x, 1.0), decay)])


def extreme(name: str, w: Writer, args: Sequence[Value]) -> Value:
    """``minimum`` and ``maximum``: nan if either is."""
    x, y = args
    nearer = tensors.compare(w, name, x, y).leaf
    machine = MACHINE[dtype_of(x)]
    if dtype_of(x) in FLOATS:
        nearer = w.either(nearer, w.made(f"fcmp uno {machine} {x.leaf}, {x.leaf}"))
    return Value(x.type, (w.select(nearer, machine, x.leaf, y.leaf),))


def rectified(w: Writer, args: Sequence[Value]) -> Value:
    (x,) = args
    zero = constant(x, 0)
    below = tensors.compare(w, "lt", x, zero).leaf
    return Value(x.type, (w.select(below, MACHINE[dtype_of(x)], zero.leaf, x.leaf),))


def sign(w: Writer, args: Sequence[Value]) -> Value:
    (x,) = args
    if dtype_of(x) is torch.bool:
        return x
    zero = constant(x, 0)
    up = tensors.cast(w, tensors.compare(w, "gt", x, zero), dtype_of(x))
    down = tensors.cast(w, tensors.compare(w, "lt", x, zero), dtype_of(x))
    return tensors.binary(w, "sub", Value(x.type, (up,)), Value(x.type, (down,)))


def as_truth(w: Writer, x: Value) -> Value:
    return Value(TRUTH, (tensors.truth(w, x),))


def logical(name: str, w: Writer, args: Sequence[Value]) -> Value:
    bits = [as_truth(w, x).leaf for x in args]
    if name == "not":
        return Value(TRUTH, (w.made(f"xor i1 {bits[0]}, true"),))
    return Value(TRUTH, (w.made(f"{name} i1 {bits[0]}, {bits[1]}"),))


def is_nan(w: Writer, args: Sequence[Value]) -> Value:
    (x,) = args
    if dtype_of(x) not in FLOATS:
        return Value(TRUTH, ("false",))
    return Value(TRUTH, (w.made(f"fcmp uno {floats(x)} {x.leaf}, {x.leaf}"),))


def is_infinite(w: Writer, args: Sequence[Value]) -> Value:
    (x,) = args
    if dtype_of(x) not in FLOATS:
        return Value(TRUTH, ("false",))
    return tensors.compare(w, "eq", absolute(w, args), constant(x, float("inf")))


def same(w: Writer, args: Sequence[Value]) -> Value:
    """A copy, which has a name of its own."""
    (x,) = args
    return Value(x.type, (w.made(f"freeze {MACHINE[dtype_of(x)]} {x.leaf}"),))


C_FUNCTIONS = (
    "acos acosh asin asinh atan atanh cos cosh erf erfc exp exp2 expm1 lgamma log log10 log1p log2 "
    "sin sinh tan tanh"
)
IN_C = frozenset(
    {f"aten.{name}.default" for name in (*C_FUNCTIONS.split(), "atan2", "hypot", "sigmoid")}
    | {f"aten.pow.{kind}" for kind in ("Tensor_Tensor", "Scalar")}
)
"""What takes a call for each element."""
RULES: dict[str, Rule] = {
    **{f"aten.{name}.default": partial(of_c, name) for name in C_FUNCTIONS.split()},
    **{f"aten.{name}.default": partial(instruction, name) for name in ("floor", "ceil", "trunc")},
    "aten.round.default": partial(instruction, "rint"),
    "aten.sqrt.default": root,
    "aten.abs.default": absolute,
    "aten.neg.default": partial(unary, "neg"),
    "aten.bitwise_not.default": partial(unary, "invert"),
    "aten.reciprocal.default": reciprocal,
    "aten.rsqrt.default": reciprocal_root,
    "aten.sigmoid.default": sigmoid,
    "aten.relu.default": rectified,
    "aten.sign.default": sign,
    "aten.isnan.default": is_nan,
    "aten.isinf.default": is_infinite,
    "aten.logical_not.default": partial(logical, "not"),
    "aten.logical_and.default": partial(logical, "and"),
    "aten.logical_or.default": partial(logical, "or"),
    "aten.logical_xor.default": partial(logical, "xor"),
    "aten.clone.default": same,
    "aten._to_copy.default": same,
    "aten.lift_fresh_copy.default": same,
    "aten.copy.default": same,
    "aten.atan2.default": partial(of_two, "atan2"),
    "aten.hypot.default": partial(of_two, "hypot"),
    "aten.copysign.Tensor": signed,
    "aten.copysign.Scalar": signed,
    "aten.maximum.default": partial(extreme, "ge"),
    "aten.minimum.default": partial(extreme, "le"),
    "aten.clamp_min.default": partial(extreme, "ge"),
    "aten.clamp_max.default": partial(extreme, "le"),
    "aten.clamp_min.Tensor": partial(extreme, "ge"),
    "aten.clamp_max.Tensor": partial(extreme, "le"),
}
for _name, _ours in {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "truediv",
    "remainder": "mod",
    "pow": "pow",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
}.items():
    for _kind in ("Tensor", "Scalar", "Tensor_Tensor", "Tensor_Scalar"):
        RULES[f"aten.{_name}.{_kind}"] = partial(binary, _ours)
for _kind in ("Tensor", "Scalar"):
    RULES[f"aten.fmod.{_kind}"] = rest
    RULES[f"aten.div.{_kind}_mode"] = partial(binary, "truediv")
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    for _kind in ("Tensor", "Scalar"):
        RULES[f"aten.{_name}.{_kind}"] = partial(compare, _name)
