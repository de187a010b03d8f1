"""Python's operators on Python's numbers, exactly, or the thread gives up.

Ints are 64-bit; a thread whose ints leave that, whose division has no result, whose power is
complex or too large, gives up: what such an operation means (a larger int, an exception) is the
general way's business.
"""

from __future__ import annotations

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
from autobatch.compiled.types import (
    BOOL,
    FLOAT,
    INT,
    NUMBER_MACHINE,
    Number,
    Value,
    number,
    refuse,
)
from autobatch.compiled.writer import Writer
from autobatch.llvm import literal

ORDER = {"lt": "slt", "le": "sle", "eq": "eq", "ne": "ne", "gt": "sgt", "ge": "sge"}
FLOAT_ORDER = {"lt": "olt", "le": "ole", "eq": "oeq", "ne": "une", "gt": "ogt", "ge": "oge"}
FLIPPED = {"lt": "gt", "le": "ge", "eq": "eq", "ne": "ne", "gt": "lt", "ge": "le"}
BITS = {"and": "and", "or": "or", "xor": "xor"}
CHECKED = {"add": "sadd", "sub": "ssub", "mul": "smul"}
FLOATING = {"add": "fadd", "sub": "fsub", "mul": "fmul"}
EXACT = 2**53
"""Up to which every int is a double."""


def tag_of(value: Value) -> str:
    assert isinstance(value.type, Number)
    return value.type.tag


def as_int(w: Writer, x: Value) -> str:
    """A bool or an int as an i64."""
    return widened(w, x.leaf, NUMBER_MACHINE[tag_of(x)], "i64")


def as_float(w: Writer, x: Value) -> str:
    if x.known is not None:
        return literal(float(x.known), "double")
    return widened(w, x.leaf, NUMBER_MACHINE[tag_of(x)], "double")


def is_wide(x: Value) -> bool:
    """Whether a number may be an int that no double holds exactly."""
    return tag_of(x) == "int" and (x.known is None or abs(x.known) > EXACT)


def refuse_inexact(w: Writer, x: Value) -> None:
    """Give up where an int is beyond what a double holds exactly."""
    if not is_wide(x):
        return
    moved = w.made(f"add i64 {x.leaf}, {EXACT}")
    w.give_up_if(w.made(f"icmp ugt i64 {moved}, {2 * EXACT}"))


def refuse_nans(w: Writer, x: Value, y: Value) -> None:
    """Give up where two floats are nan: whether they are one object is not known."""
    if "float" == tag_of(x) == tag_of(y) and x.known is None and y.known is None:
        w.give_up_if(w.made(f"and i1 {is_nan(w, x)}, {is_nan(w, y)}"))


def is_nan(w: Writer, x: Value) -> str:
    return w.made(f"fcmp uno double {x.leaf}, {x.leaf}")


def binary(w: Writer, name: str, x: Value, y: Value) -> Value:
    """One of Python's binary operators."""
    tags = {tag_of(x), tag_of(y)}
    if name in BITS and tags == {"bool"}:
        return Value(BOOL, (w.made(f"{BITS[name]} i1 {x.leaf}, {y.leaf}"),))
    if name == "pow":
        return power(w, x, y)
    if name == "truediv":
        return quotient(w, x, y)
    if "float" in tags:
        return Value(FLOAT, (floating(w, name, as_float(w, x), as_float(w, y)),))
    return Value(INT, (integral(w, name, as_int(w, x), as_int(w, y), y.known),))


def integral(w: Writer, name: str, a: str, b: str, known: object) -> str:
    if name in CHECKED:
        return w.checked(CHECKED[name], a, b)
    if name in BITS:
        return w.made(f"{BITS[name]} i64 {a}, {b}")
    if name == "floordiv":
        refuse_no_divisor(w, b, known)
        return int_floordiv(w, "i64", a, b, known, signed=True)
    if name == "mod":
        refuse_no_divisor(w, b, known)
        return int_mod(w, "i64", a, b, known, signed=True)
    if name == "rshift":
        w.give_up_if(w.made(f"icmp slt i64 {b}, 0"))
        most = w.select(w.made(f"icmp sgt i64 {b}, 63"), "i64", "63", b)
        return w.made(f"ashr i64 {a}, {most}")
    if name == "lshift":
        w.give_up_if(w.made(f"icmp ugt i64 {b}, 62"))
        made = w.made(f"shl i64 {a}, {b}")
        back = w.made(f"ashr i64 {made}, {b}")
        w.give_up_if(w.made(f"icmp ne i64 {back}, {a}"))
        return made
    return refuse(f"the operator {name} has no compiled form on ints")


def floating(w: Writer, name: str, a: str, b: str) -> str:
    if name in FLOATING:
        return w.made(f"{FLOATING[name]} double {a}, {b}")
    if name in ("floordiv", "mod"):
        refuse_zero(w, b)
        if name == "mod":
            return float_mod(w, "double", a, b, python=True)
        return float_floordiv(w, "double", a, b)
    return refuse(f"the operator {name} has no compiled form on floats")


def refuse_zero(w: Writer, x: str) -> None:
    w.raise_if(w.made(f"fcmp oeq double {x}, {literal(0.0, 'double')}"), ZeroDivisionError)


def refuse_no_divisor(w: Writer, x: str, known: object) -> None:
    if w.handled is not None and not known:
        w.raise_if(w.made(f"icmp eq i64 {x}, 0"), ZeroDivisionError)


def quotient(w: Writer, x: Value, y: Value) -> Value:
    """``x / y``: the float nearest to the quotient, as division gives it of exact operands."""
    if "float" not in (tag_of(x), tag_of(y)):
        refuse_inexact(w, x)
        refuse_inexact(w, y)
    a, b = as_float(w, x), as_float(w, y)
    if not y.known:
        refuse_zero(w, b)
    return Value(FLOAT, (w.made(f"fdiv double {a}, {b}"),))


def power(w: Writer, x: Value, y: Value) -> Value:
    whole = "float" not in (tag_of(x), tag_of(y))
    if whole and not (y.known is not None and y.known < 0):
        exponent = as_int(w, y)
        if y.known is None:
            w.give_up_if(w.made(f"icmp slt i64 {exponent}, 0"))
        return Value(INT, (int_power(w, "i64", as_int(w, x), exponent, checked=True),))
    a, b = as_float(w, x), as_float(w, y)
    made = c_call(w, "pow", "double", a, b)
    refuse_failed(w, made, a, b)
    return Value(FLOAT, (made,))


def refuse_failed(
    w: Writer, made: str, *operands: str, raises: type[BaseException] | None = None
) -> None:
    """Give up where operands that are no nan gave one, or finite ones an infinity.

    Or raise what that is to Python, where it is known.
    """
    zero = literal(0.0, "double")
    finite = [
        w.made(f"fcmp ord double {w.made(f'fmul double {x}, {zero}')}, {zero}") for x in operands
    ]
    numbers = [w.made(f"fcmp ord double {x}, {zero}") for x in operands]
    lost = w.made(f"fcmp uno double {made}, {zero}")
    rest = w.made(f"fmul double {made}, {zero}")
    large = w.made(f"fcmp uno double {rest}, {zero}")
    all_numbers, all_finite = numbers[0], finite[0]
    for one, other in zip(numbers[1:], finite[1:], strict=True):
        all_numbers = w.made(f"and i1 {all_numbers}, {one}")
        all_finite = w.made(f"and i1 {all_finite}, {other}")
    undefined = w.made(f"and i1 {lost}, {all_numbers}")
    overflowed = w.made(f"and i1 {large}, {all_finite}")
    failed = w.either(undefined, overflowed)
    if raises is None:
        w.give_up_if(failed)
    else:
        w.raise_if(failed, raises)


def compare(w: Writer, name: str, x: Value, y: Value) -> Value:
    """Exactly, as Python compares an int and a float."""
    tags = (tag_of(x), tag_of(y))
    if "float" not in tags:
        return Value(BOOL, (w.made(f"icmp {ORDER[name]} i64 {as_int(w, x)}, {as_int(w, y)}"),))
    if is_wide(x):
        return Value(BOOL, (with_float(w, name, x.leaf, y.leaf),))
    if is_wide(y):
        return Value(BOOL, (with_float(w, FLIPPED[name], y.leaf, x.leaf),))
    a, b = as_float(w, x), as_float(w, y)
    return Value(BOOL, (w.made(f"fcmp {FLOAT_ORDER[name]} double {a}, {b}"),))


def with_float(w: Writer, name: str, a: str, b: str) -> str:
    """Whether an int is less than a float, and so on.

    Rounding keeps order, so only where the rounded int is the float does the int itself tell; the
    float is one then, or ``2 ** 63``, which is more than any.
    """
    rounded = w.made(f"sitofp i64 {a} to double")
    if name in ("eq", "ne", "le", "ge"):
        strict = {"le": "gt", "ge": "lt"}.get(name)
        if strict is not None:  # nan is neither
            sure = w.made(f"fcmp ord double {b}, {b}")
            other = w.made(f"xor i1 {with_float(w, strict, a, b)}, true")
            return w.made(f"and i1 {sure}, {other}")
        apart = w.either(with_float(w, "lt", a, b), with_float(w, "gt", a, b))
        nan = w.made(f"fcmp uno double {b}, {b}")
        unequal = w.either(apart, nan)
        return unequal if name == "ne" else w.made(f"xor i1 {unequal}, true")
    tied = w.made(f"fcmp oeq double {rounded}, {b}")
    whole = w.call("llvm.fptosi.sat.i64.f64", "i64", ("double", b))
    closer = w.made(f"icmp {ORDER[name]} i64 {a}, {whole}")
    if name == "lt":
        closer = w.either(closer, w.made(f"fcmp oge double {b}, {literal(2.0**63, 'double')}"))
    clear = w.made(f"fcmp {FLOAT_ORDER[name]} double {rounded}, {b}")
    return w.either(clear, w.made(f"and i1 {tied}, {closer}"))


def truth(w: Writer, x: Value) -> str:
    """``bool(x)`` as a bit; nan is true."""
    tag = tag_of(x)
    if tag == "bool":
        return x.leaf
    if tag == "int":
        return w.made(f"icmp ne i64 {x.leaf}, 0")
    return w.made(f"fcmp une double {x.leaf}, {literal(0.0, 'double')}")


def unary(w: Writer, name: str, x: Value) -> Value:
    if x.known is not None and name in ("neg", "pos"):
        return number(-x.known if name == "neg" else +x.known)
    if tag_of(x) == "float":
        if name == "neg":
            return Value(FLOAT, (w.made(f"fneg double {x.leaf}"),))
        return x if name == "pos" else refuse("~x of a float is an error")
    a = as_int(w, x)
    if name == "neg":
        return Value(INT, (w.checked("ssub", "0", a),))
    return Value(INT, (a if name == "pos" else w.made(f"xor i64 {a}, -1"),))


def absolute(w: Writer, x: Value) -> Value:
    if tag_of(x) == "float":
        return Value(FLOAT, (intrinsic(w, "fabs", "double", x.leaf),))
    a = as_int(w, x)
    minus = w.checked("ssub", "0", a)
    return Value(INT, (w.select(w.made(f"icmp slt i64 {a}, 0"), "i64", minus, a),))


def to_int(w: Writer, x: Value) -> Value:
    """``int(x)``."""
    if tag_of(x) != "float":
        return Value(INT, (as_int(w, x),))
    return Value(INT, (to_int64(w, "double", x.leaf),))


def to_float(w: Writer, x: Value) -> Value:
    return Value(FLOAT, (as_float(w, x),))
