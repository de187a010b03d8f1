"""The functions that a compiled program may call, and what each is to a machine.

``math``'s are those of the C library, which CPython calls too; where CPython raises, the thread
gives up.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from autobatch.compiled import listing, numbers, tensors
from autobatch.compiled.machine import c_call, intrinsic, to_int64
from autobatch.compiled.operators import as_truth, binary, compare, truth
from autobatch.compiled.types import (
    BOOL,
    FLOAT,
    INT,
    INTS,
    Listed,
    Number,
    Range,
    Refused,
    Rows,
    Scalar,
    Static,
    Structure,
    Table,
    Value,
    machine_of,
    number,
    parts_of,
    refuse,
    structure,
)
from autobatch.compiled.writer import Writer
from autobatch.llvm import literal

Compiled = Callable[[Writer, Sequence[Value]], Value]

C_FUNCTIONS = (
    "acos acosh asin asinh atan atanh cbrt cos cosh erf exp exp2 expm1 log log10 log1p log2 sin "
    "sinh tan tanh"
)
"""Functions of ``math`` that are the C library's of the same name, but for their errors."""


class Unfit(Refused):
    """A function has no compiled form for what it is given; ``why`` is said of the function."""


def one(args: Sequence[Value]) -> Value:
    if len(args) != 1:
        raise Unfit(f"has a compiled form for one argument, not for {len(args)}")
    return args[0]


def pair(args: Sequence[Value]) -> tuple[Value, Value]:
    if len(args) != 2:
        raise Unfit(f"has a compiled form for two arguments, not for {len(args)}")
    return args[0], args[1]


def scalar(x: Value) -> Value:
    if not isinstance(x.type, Number | Scalar):
        raise Unfit(f"has no compiled form for {x.type}")
    return x


def as_double(w: Writer, x: Value) -> str:
    """What ``math`` makes of its argument: ``float(x)``."""
    return to_float(w, [x]).leaf


# Builtins


def absolute(w: Writer, args: Sequence[Value]) -> Value:
    x = scalar(one(args))
    return numbers.absolute(w, x) if isinstance(x.type, Number) else tensors.absolute(w, x)


def told(kind: type[int | float], args: Sequence[Value]) -> Value | None:
    """``float("inf")``, ``int("ff", 16)``, ``int()``: what is known before anything runs."""
    texts = [arg.type.obj for arg in args[:1] if isinstance(arg.type, Static)]
    bases = [arg.known for arg in args[1:]]
    if any(type(text) is not str for text in texts) or len(texts) != len(args[:1]):
        return None
    if (kind is float and bases) or any(type(base) is not int for base in bases):
        return None
    try:
        return number(kind(*texts, *bases))
    except (ValueError, TypeError) as error:
        raise Unfit(f"raises here: {error}") from None


def to_int(w: Writer, args: Sequence[Value]) -> Value:
    found = told(int, args)
    if found is not None:
        return found
    x = scalar(one(args))
    return numbers.to_int(w, x) if isinstance(x.type, Number) else tensors.to_int(w, x)


def to_float(w: Writer, args: Sequence[Value]) -> Value:
    found = told(float, args)
    if found is not None:
        return found
    x = scalar(one(args))
    return numbers.to_float(w, x) if isinstance(x.type, Number) else tensors.to_float(w, x)


def to_bool(w: Writer, args: Sequence[Value]) -> Value:
    return as_truth(w, one(args)) if args else number(False)


def extreme(name: str, w: Writer, args: Sequence[Value]) -> Value:
    """``min`` and ``max``: the first of several operands of one type that no other one precedes."""
    if len(args) == 1 and isinstance(args[0].type, Structure) and args[0].type.kind is not dict:
        args = parts_of(args[0])
    if not args or len({scalar(x).type for x in args}) > 1:
        refuse("min and max have a compiled form for operands of one type")
    best = args[0]
    (machine,) = machine_of(best.type)
    for other in args[1:]:
        nearer = truth(w, compare(w, name, other, best))
        best = Value(best.type, (w.select(nearer, machine, other.leaf, best.leaf),))
    return best


def rounded(w: Writer, args: Sequence[Value]) -> Value:
    """``round(x)``, to the even one of two ints as near."""
    args = args[:1] if len(args) == 2 and args[1].type == Static(None) else args
    digits = args[1].known if len(args) == 2 else None
    if type(digits) is int and digits >= 0 and args[0].type in (INT, BOOL):
        return numbers.to_int(w, args[0])
    x = one(args)
    if not isinstance(x.type, Number):
        raise Unfit(f"has a compiled form for Python numbers, not for {x.type}")
    if x.type != FLOAT:
        return numbers.to_int(w, x)
    return Value(INT, (to_int64(w, "double", intrinsic(w, "rint", "double", x.leaf)),))


def divided(w: Writer, args: Sequence[Value]) -> Value:
    x, y = pair(args)
    if not (isinstance(x.type, Number) and isinstance(y.type, Number)):
        raise Unfit("has a compiled form for Python numbers")
    return structure(tuple, [binary(w, "floordiv", x, y), binary(w, "mod", x, y)])


def powered(w: Writer, args: Sequence[Value]) -> Value:
    return binary(w, "pow", *pair(args))


def length(w: Writer, args: Sequence[Value]) -> Value:
    x = one(args)
    if isinstance(x.type, Structure):
        return number(len(x.type.parts))
    if isinstance(x.type, Listed | Table):
        return Value(INT, (listing.length(w, x),))
    if isinstance(x.type, Range):
        return Value(INT, (x.leaves[1],))
    return number(x.type.shape[0]) if isinstance(x.type, Rows) else refuse(f"len of {x.type}")


def ranged(w: Writer, args: Sequence[Value]) -> Value:
    """``range(…)``: its first item, and how many there are."""
    if not 1 <= len(args) <= 3:
        refuse("range has one to three arguments")
    step = args[2].known if len(args) == 3 else 1
    if not isinstance(step, int) or step == 0:
        return stepping(w, *(_index(w, x) for x in args))
    ends = [_index(w, x) for x in args[:2]]
    start, stop = ("0", ends[0]) if len(ends) == 1 else ends
    far, near = (stop, start) if step > 0 else (start, stop)
    span = far if near == "0" else w.checked("ssub", far, near)
    if abs(step) != 1:
        more = w.checked("sadd", span, str(abs(step) - 1))
        span = w.made(f"sdiv i64 {more}, {abs(step)}")
    some = w.made(f"icmp sgt i64 {span}, 0")
    return Value(Range(step), (start, w.select(some, "i64", span, "0")))


def stepping(w: Writer, start: str, stop: str, step: str) -> Value:
    """A range whose step is not known: how many items it has, forwards or backwards."""
    w.raise_if(w.made(f"icmp eq i64 {step}, 0"), ValueError)
    falls = w.made(f"icmp slt i64 {step}, 0")
    stride = w.select(falls, "i64", w.checked("ssub", "0", step), step)
    far, near = w.select(falls, "i64", start, stop), w.select(falls, "i64", stop, start)
    span = w.checked("ssub", far, near)
    some = w.made(f"icmp sgt i64 {span}, 0")
    rest = w.made(f"sdiv i64 {w.made(f'sub i64 {span}, 1')}, {stride}")
    many = w.select(some, "i64", w.made(f"add i64 {rest}, 1"), "0")
    return Value(Range(None), (start, many, step))


def _index(w: Writer, x: Value) -> str:
    """An int, or a tensor that is one."""
    if isinstance(x.type, Scalar) and x.type.dtype in INTS:
        return tensors.to_int(w, x).leaf
    return numbers.as_int(w, x) if x.type in (INT, BOOL) else refuse(f"{x.type} is no index")


PYTHON = {"int": int, "float": float, "bool": bool}


def is_instance(w: Writer, args: Sequence[Value]) -> Value:
    x, kinds = pair(args)
    wanted = parts_of(kinds) if isinstance(kinds.type, Structure) else [kinds]
    if not isinstance(x.type, Number | Scalar | Rows):
        refuse(f"isinstance of {x.type} has no compiled form")
    own: type = PYTHON[x.type.tag] if isinstance(x.type, Number) else torch.Tensor
    found = False
    for kind in wanted:
        if not isinstance(kind.type, Static) or kind.type.obj not in (
            int,
            float,
            bool,
            str,
            torch.Tensor,
        ):
            refuse("isinstance has a compiled form for int, float, bool, str and torch.Tensor")
        found = found or issubclass(own, kind.type.obj)
    return number(found)


# math


def c_function(name: str, w: Writer, args: Sequence[Value]) -> Value:
    x = as_double(w, one(args))
    made = c_call(w, name, "double", x)
    numbers.refuse_failed(w, made, x, raises=raised_by(name))
    return Value(FLOAT, (made,))


def square_root(w: Writer, args: Sequence[Value]) -> Value:
    x = as_double(w, one(args))
    w.raise_if(w.made(f"fcmp olt double {x}, {literal(0.0, 'double')}"), ValueError)
    return Value(FLOAT, (intrinsic(w, "sqrt", "double", x),))


def raised_by(name: str) -> type[BaseException] | None:
    """What Python raises where a function of C's gives no number."""
    if name in ("exp", "expm1", "sinh", "cosh"):
        return OverflowError
    return ValueError if name in ("log", "log2", "log10", "acos", "asin", "sin", "cos") else None


def c_pair(name: str, w: Writer, args: Sequence[Value]) -> Value:
    """A function of two floats; ``fmod`` and ``pow`` fail where they give what is no number."""
    a, b = (as_double(w, x) for x in pair(args))
    made = c_call(w, name, "double", a, b)
    if name in ("fmod", "pow"):
        numbers.refuse_failed(w, made, a, b)
    return Value(FLOAT, (made,))


def sign_of(w: Writer, args: Sequence[Value]) -> Value:
    a, b = (as_double(w, x) for x in pair(args))
    return Value(FLOAT, (intrinsic(w, "copysign", "double", a, b),))


def size_of(w: Writer, args: Sequence[Value]) -> Value:
    return Value(FLOAT, (intrinsic(w, "fabs", "double", as_double(w, one(args))),))


def to_whole(name: str, w: Writer, args: Sequence[Value]) -> Value:
    """``math.floor``, ``ceil`` and ``trunc``, of numbers; of a tensor it is that of its float."""
    x = scalar(one(args))
    if isinstance(x.type, Scalar):
        if name == "trunc":
            refuse("math.trunc of a tensor is an error")
        x = tensors.item(w, x)
        numbers.refuse_inexact(w, x)
    if x.type != FLOAT:
        return numbers.to_int(w, x)
    return Value(INT, (to_int64(w, "double", intrinsic(w, name, "double", x.leaf)),))


def is_kind(kind: str, w: Writer, args: Sequence[Value]) -> Value:
    """``math.isnan``, ``isinf`` and ``isfinite``."""
    x, zero = as_double(w, one(args)), literal(0.0, "double")
    nan = w.made(f"fcmp uno double {x}, {zero}")
    if kind == "nan":
        return Value(BOOL, (nan,))
    odd = w.made(f"fcmp uno double {w.made(f'fmul double {x}, {zero}')}, {zero}")
    if kind == "finite":
        return Value(BOOL, (w.made(f"xor i1 {odd}, true"),))
    return Value(BOOL, (w.select(nan, "i1", "false", odd),))


def size_in_bits(w: Writer, args: Sequence[Value]) -> Value:
    """``n.bit_length()``."""
    zeros = w.call("llvm.ctlz.i64", "i64", ("i64", size_of_int(w, one(args))), ("i1", "false"))
    return Value(INT, (w.made(f"sub i64 64, {zeros}"),))


def ones_in_bits(w: Writer, args: Sequence[Value]) -> Value:
    """``n.bit_count()``."""
    return Value(INT, (w.call("llvm.ctpop.i64", "i64", ("i64", size_of_int(w, one(args)))),))


def size_of_int(w: Writer, x: Value) -> str:
    if x.type not in (INT, BOOL):
        refuse(f"{x.type} has no bits")
    return numbers.absolute(w, x).leaf


METHODS: dict[str, Compiled] = {"bit_length": size_in_bits, "bit_count": ones_in_bits}
"""Methods of Python's ints."""
FUNCTIONS: dict[Any, Compiled] = {
    builtins.abs: absolute,
    builtins.int: to_int,
    builtins.float: to_float,
    builtins.bool: to_bool,
    builtins.min: partial(extreme, "lt"),
    builtins.max: partial(extreme, "gt"),
    builtins.round: rounded,
    builtins.divmod: divided,
    builtins.pow: powered,
    builtins.len: length,
    builtins.range: ranged,
    builtins.isinstance: is_instance,
    **{getattr(math, name): partial(c_function, name) for name in C_FUNCTIONS.split()},
    math.sqrt: square_root,
    math.atan2: partial(c_pair, "atan2"),
    math.fmod: partial(c_pair, "fmod"),
    math.pow: partial(c_pair, "pow"),
    math.copysign: sign_of,
    math.fabs: size_of,
    **{getattr(math, name): partial(to_whole, name) for name in ("floor", "ceil", "trunc")},
    **{getattr(math, f"is{kind}"): partial(is_kind, kind) for kind in ("nan", "inf", "finite")},
}
"""Builtins and functions of ``math``, by identity."""
