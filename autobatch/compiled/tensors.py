"""torch's operators on 0-d tensors: its promotion, its dtypes' arithmetic, ints that wrap around.

Where torch raises (an int divided by zero, an int to a negative power) the thread gives up, and so
where an int is no number of the dtype that it meets. Writes in place are not here: other names
would see them.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from autobatch.compiled import numbers
from autobatch.compiled.machine import (
    c_call,
    float_floordiv,
    float_mod,
    int_floordiv,
    int_mod,
    int_power,
    intrinsic,
    to_int64,
    widened,
)
from autobatch.compiled.numbers import BITS, EXACT, FLOAT_ORDER, FLOATING, ORDER
from autobatch.compiled.types import (
    BOOL,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    MACHINE,
    NUMBER_MACHINE,
    TRUTH,
    Number,
    Scalar,
    Type,
    Value,
    refuse,
)
from autobatch.compiled.writer import Writer
from autobatch.llvm import literal

WRAPPING = {"add": "add", "sub": "sub", "mul": "mul"}
EXAMPLES = {"int": 1, "float": 1.0, "bool": True}


@lru_cache(maxsize=1024)
def promoted(a: Type, b: Type, default: torch.dtype) -> torch.dtype:
    """The dtype in which two operands meet; ``default`` is torch's default dtype, in force."""
    return torch.result_type(example(a), example(b))


def example(type_: Type) -> torch.Tensor | float:
    if isinstance(type_, Number):
        return EXAMPLES[type_.tag]
    if not isinstance(type_, Scalar):
        return refuse(f"{type_} is no operand of a tensor")
    return torch.zeros((), dtype=type_.dtype, device="cpu")


def meeting(x: Value, y: Value) -> torch.dtype:
    dtype = promoted(x.type, y.type, torch.get_default_dtype())
    if dtype not in MACHINE:
        refuse(f"a tensor has the dtype {dtype}")
    return dtype


def cast(w: Writer, x: Value, dtype: torch.dtype) -> str:
    """An operand in the dtype in which the operation computes."""
    target = MACHINE[dtype]
    if isinstance(x.type, Scalar):
        source = x.type.dtype
        if dtype is torch.bool and source is not torch.bool:
            return truth(w, x)
        return widened(w, x.leaf, MACHINE[source], target, source is not torch.uint8)
    if x.known is not None and dtype in FLOATS and abs(x.known) < EXACT:
        return literal(float(x.known), target)
    if dtype not in FLOATS and numbers.tag_of(x) == "float":
        refuse("a tensor of ints or bools is given a float")
    leaf = widened(w, x.leaf, NUMBER_MACHINE[numbers.tag_of(x)], target)
    if dtype in INTS and numbers.tag_of(x) == "int":
        back = widened(w, leaf, target, "i64", dtype is not torch.uint8)
        w.give_up_if(w.made(f"icmp ne i64 {back}, {x.leaf}"))
    return leaf


def binary(w: Writer, name: str, x: Value, y: Value) -> Value:
    dtype = meeting(x, y)
    if name == "sub" and {x.type, y.type} & {BOOL, TRUTH}:
        refuse("the operator sub is an error for tensors with bools")
    if name == "truediv" and dtype not in FLOATS:
        dtype = torch.get_default_dtype()
        if dtype not in FLOATS or dtype not in MACHINE:
            refuse(f"the default dtype is {dtype}")
    if dtype is torch.bool and name not in BITS:
        refuse(f"the operator {name} has no compiled form on tensors of bool")
    machine = MACHINE[dtype]
    if name == "pow":
        return Value(Scalar(dtype), (power(w, dtype, x, y),))
    a, b = cast(w, x, dtype), cast(w, y, dtype)
    if dtype in FLOATS:
        return Value(Scalar(dtype), (floating(w, name, machine, a, b),))
    return Value(Scalar(dtype), (integral(w, name, dtype, a, b, y.known),))


def floating(w: Writer, name: str, machine: str, a: str, b: str) -> str:
    if name in FLOATING:
        return w.made(f"{FLOATING[name]} {machine} {a}, {b}")
    if name == "truediv":
        return w.made(f"fdiv {machine} {a}, {b}")
    if name == "mod":
        return float_mod(w, machine, a, b, python=False)
    if name == "floordiv":
        plain = w.made(f"fdiv {machine} {a}, {b}")
        zero = w.made(f"fcmp oeq {machine} {b}, {literal(0.0, machine)}")
        return w.select(zero, machine, plain, float_floordiv(w, machine, a, b))
    return refuse(f"the operator {name} has no compiled form on tensors of floats")


def integral(w: Writer, name: str, dtype: torch.dtype, a: str, b: str, known: object) -> str:
    machine, signed = MACHINE[dtype], dtype is not torch.uint8
    if name in WRAPPING:
        return w.made(f"{WRAPPING[name]} {machine} {a}, {b}")
    if name in BITS:
        return w.made(f"{BITS[name]} {machine} {a}, {b}")
    if name == "floordiv":
        return int_floordiv(w, machine, a, b, known, signed)
    if name == "mod":
        return int_mod(w, machine, a, b, known, signed)
    if name in ("lshift", "rshift"):
        w.give_up_if(w.made(f"icmp uge {machine} {b}, {machine[1:]}"))
        shift = "shl" if name == "lshift" else "ashr" if signed else "lshr"
        return w.made(f"{shift} {machine} {a}, {b}")
    return refuse(f"the operator {name} has no compiled form on tensors of ints")


def power(w: Writer, dtype: torch.dtype, x: Value, y: Value) -> str:
    """torch takes powers by known exponents apart into products and roots."""
    machine = MACHINE[dtype]
    if dtype not in FLOATS:
        exponent = cast(w, y, torch.int64)
        if isinstance(y.type, Number):
            cast(w, y, dtype)  # torch raises where it is no number of the tensor's
        w.give_up_if(w.made(f"icmp slt i64 {exponent}, 0"))
        return int_power(w, machine, cast(w, x, dtype), exponent, checked=False)
    a = cast(w, x, dtype)
    if y.known == 2:
        return w.made(f"fmul {machine} {a}, {a}")
    if y.known == 3:
        return w.made(f"fmul {machine} {w.made(f'fmul {machine} {a}, {a}')}, {a}")
    if y.known == 0.5:
        return intrinsic(w, "sqrt", machine, a)
    return c_call(w, "pow", machine, a, cast(w, y, dtype))


def written(w: Writer, name: str, x: Value, y: Value) -> Value:
    """``x += y`` and the like: what ``x`` holds afterwards, in its dtype."""
    made = binary(w, name, x, y)
    assert isinstance(x.type, Scalar) and isinstance(made.type, Scalar)
    if not torch.can_cast(made.type.dtype, x.type.dtype):
        refuse(f"{made.type} is written to {x.type}")
    return Value(x.type, (cast(w, made, x.type.dtype),))


def compare(w: Writer, name: str, x: Value, y: Value) -> Value:
    dtype = meeting(x, y)
    machine, a, b = MACHINE[dtype], cast(w, x, dtype), cast(w, y, dtype)
    if dtype in FLOATS:
        return Value(TRUTH, (w.made(f"fcmp {FLOAT_ORDER[name]} {machine} {a}, {b}"),))
    order = ORDER[name]
    if dtype in (torch.uint8, torch.bool) and order not in ("eq", "ne"):
        order = "u" + order[1:]
    return Value(TRUTH, (w.made(f"icmp {order} {machine} {a}, {b}"),))


def unary(w: Writer, name: str, x: Value) -> Value:
    assert isinstance(x.type, Scalar)
    machine = MACHINE[x.type.dtype]
    if name == "invert":
        if x.type.dtype in FLOATS:
            refuse("~x of a tensor of floats is an error")
        return Value(
            x.type, (w.made(f"xor {machine} {x.leaf}, {'true' if machine == 'i1' else -1}"),)
        )
    if x.type.dtype is torch.bool:
        refuse(f"the operator {name} has no compiled form on tensors of bool")
    if name == "pos":
        return x
    if x.type.dtype in FLOATS:
        return Value(x.type, (w.made(f"fneg {machine} {x.leaf}"),))
    return Value(x.type, (w.made(f"sub {machine} 0, {x.leaf}"),))


def truth(w: Writer, x: Value) -> str:
    assert isinstance(x.type, Scalar)
    machine = MACHINE[x.type.dtype]
    if x.type.dtype in FLOATS:
        return w.made(f"fcmp une {machine} {x.leaf}, {literal(0.0, machine)}")
    return x.leaf if machine == "i1" else w.made(f"icmp ne {machine} {x.leaf}, 0")


def absolute(w: Writer, x: Value) -> Value:
    assert isinstance(x.type, Scalar)
    dtype = x.type.dtype
    if dtype in FLOATS:
        return Value(x.type, (intrinsic(w, "fabs", MACHINE[dtype], x.leaf),))
    if dtype is torch.bool or dtype is torch.uint8:
        return refuse(f"abs has no compiled form on tensors of {dtype}")
    machine = MACHINE[dtype]
    minus = w.made(f"sub {machine} 0, {x.leaf}")
    below = w.made(f"icmp slt {machine} {x.leaf}, 0")
    return Value(x.type, (w.select(below, machine, minus, x.leaf),))


def item(w: Writer, x: Value) -> Value:
    """``x.item()``."""
    assert isinstance(x.type, Scalar)
    dtype = x.type.dtype
    if dtype is torch.bool:
        return Value(BOOL, x.leaves)
    if dtype in FLOATS:
        return Value(FLOAT, (widened(w, x.leaf, MACHINE[dtype], "double"),))
    return Value(INT, (widened(w, x.leaf, MACHINE[dtype], "i64", dtype is not torch.uint8),))


def to_int(w: Writer, x: Value) -> Value:
    """``int(x)``."""
    assert isinstance(x.type, Scalar)
    if x.type.dtype in FLOATS:
        return Value(INT, (to_int64(w, MACHINE[x.type.dtype], x.leaf),))
    return numbers.to_int(w, item(w, x))


def to_float(w: Writer, x: Value) -> Value:
    return numbers.to_float(w, item(w, x))


def loaded(w: Writer, machine: str, address: str) -> str:
    """An element at an address; a bool takes a byte."""
    if machine != "i1":
        return w.made(f"load {machine}, ptr {address}")
    return w.made(f"icmp ne i8 {w.made(f'load i8, ptr {address}')}, 0")
