"""The functions of torch that a compiled program may call.

They are computed in the dtype that torch takes, by the C library where torch has kernels of its
own, so they may differ in the last place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf, prod

import torch

from autobatch.compiled import numbers, tensors
from autobatch.compiled.arrays import calls
from autobatch.compiled.arrays.memory import Strided, element, strided
from autobatch.compiled.functions import Compiled, absolute, one, pair, scalar
from autobatch.compiled.machine import c_call, intrinsic
from autobatch.compiled.operators import binary
from autobatch.compiled.types import (
    FLOAT,
    FLOATS,
    MACHINE,
    TRUTH,
    Array,
    Number,
    Rows,
    Scalar,
    Static,
    Value,
    refuse,
)
from autobatch.compiled.writer import Writer
from autobatch.llvm import literal
from autobatch.values.cells import NUMBER_DTYPES


def in_floats(w: Writer, x: Value) -> Value:
    """A tensor as torch's functions of floats take it: ints in the default dtype."""
    if not isinstance(x.type, Scalar):
        refuse(f"a function of torch has no compiled form for {x.type}")
    dtype = x.type.dtype if x.type.dtype in FLOATS else torch.get_default_dtype()
    if dtype not in MACHINE:
        refuse(f"the default dtype is {dtype}")
    return Value(Scalar(dtype), (tensors.cast(w, x, dtype),))


def of_floats(name: str, is_instruction: bool, w: Writer, args: Sequence[Value]) -> Value:
    x = in_floats(w, one(args))
    assert isinstance(x.type, Scalar)
    by = intrinsic if is_instruction else c_call
    return Value(x.type, (by(w, name, MACHINE[x.type.dtype], x.leaf),))


def magnitude(w: Writer, args: Sequence[Value]) -> Value:
    """``torch.abs``, which takes no number."""
    x = one(args)
    return absolute(w, args) if isinstance(x.type, Scalar) else refuse(f"torch.abs of {x.type}")


def squared(w: Writer, args: Sequence[Value]) -> Value:
    x = one(args)
    return binary(w, "mul", x, x) if isinstance(x.type, Scalar) else refuse(f"square of {x.type}")


def chosen(w: Writer, args: Sequence[Value]) -> Value:
    """``torch.where(condition, a, b)``."""
    if len(args) != 3 or args[0].type != TRUTH:
        refuse("torch.where has a compiled form for a bool tensor and two others")
    a, b = scalar(args[1]), scalar(args[2])
    dtype = tensors.meeting(a, b)
    for each in (a, b):
        refuse_overflow(w, each, dtype)
    x, y = tensors.cast(w, a, dtype), tensors.cast(w, b, dtype)
    return Value(Scalar(dtype), (w.select(args[0].leaf, MACHINE[dtype], x, y),))


def refuse_overflow(w: Writer, x: Value, dtype: torch.dtype) -> None:
    """Give up where a float is finite, but beyond what the default dtype holds: torch raises."""
    if x.type != FLOAT or torch.get_default_dtype() is not torch.float32:
        return
    size = intrinsic(w, "fabs", "double", numbers.as_float(w, x))
    large = w.made(f"fcmp ogt double {size}, {literal(torch.finfo(torch.float32).max, 'double')}")
    finite = w.made(f"fcmp olt double {size}, {literal(inf, 'double')}")
    w.give_up_if(w.made(f"and i1 {large}, {finite}"))


def bound(name: str, w: Writer, args: Sequence[Value]) -> Value:
    """``torch.minimum`` and ``maximum``: nan if either is."""
    a, b = pair(args)
    if not (isinstance(a.type, Scalar) and isinstance(b.type, Scalar)):
        refuse(f"torch.{name} has a compiled form for two tensors")
    dtype = tensors.meeting(a, b)
    machine, x, y = MACHINE[dtype], tensors.cast(w, a, dtype), tensors.cast(w, b, dtype)
    values = Value(Scalar(dtype), (x,)), Value(Scalar(dtype), (y,))
    nearer = tensors.compare(w, "le" if name == "minimum" else "ge", *values).leaf
    if dtype in FLOATS:
        nearer = w.either(nearer, w.made(f"fcmp uno {machine} {x}, {x}"))
    return Value(Scalar(dtype), (w.select(nearer, machine, x, y),))


def item(w: Writer, args: Sequence[Value]) -> Value:
    x = one(args)
    whole = strided(x) if isinstance(x.type, Array | Rows) else None
    if isinstance(whole, Strided) and prod(whole.shape) == 1:
        x = element(w, whole, "0")
    return tensors.item(w, x) if isinstance(x.type, Scalar) else refuse(f"item of {x.type}")


def of_number(w: Writer, args: Sequence[Value], asked: torch.dtype | None = None) -> Value:
    """``torch.tensor(x, dtype=asked)`` of a number, or of a list of such."""
    if asked is not None and asked not in MACHINE:
        refuse(f"torch.tensor in {asked} has no compiled form")
    made = calls.of_numbers(w, args, asked)
    if made is not None:
        return made
    x = one(args)
    if not isinstance(x.type, Number):
        refuse("torch.tensor has a compiled form for Python numbers")
    own = torch.get_default_dtype() if x.type.tag == "float" else NUMBER_DTYPES[x.type.tag]
    dtype = own if asked is None else asked
    if dtype not in MACHINE:
        refuse(f"the default dtype is {dtype}")
    return Value(Scalar(dtype), (calls.put_in(w, x, dtype),))


def with_dtype(rule: Compiled, named: dict[str, Value]) -> Compiled | None:
    """``torch.tensor`` with the dtype that it is given by name; None for any other call."""
    asked = named["dtype"].type if rule is of_number and named.keys() == {"dtype"} else None
    if isinstance(asked, Static) and isinstance(asked.obj, torch.dtype | None):
        return partial(of_number, asked=asked.obj)
    return None


TORCH: dict[str, Compiled] = {
    **{name: partial(of_floats, name, False) for name in ("cos", "exp", "log", "sin", "tanh")},
    "sqrt": partial(of_floats, "sqrt", True),
    "abs": magnitude,
    "square": squared,
    "minimum": partial(bound, "minimum"),
    "maximum": partial(bound, "maximum"),
}
METHODS: dict[str, Compiled] = {**TORCH, "item": item}
"""Methods of tensors."""

FUNCTIONS: dict[object, Compiled] = {
    **{getattr(torch, name): compiled for name, compiled in TORCH.items()},
    torch.where: chosen,
    torch.tensor: of_number,
}
"""Functions by identity."""
FRESH = frozenset({absolute, chosen, of_number, *TORCH.values()})
"""Rules that give a new tensor."""
