"""What Python's and torch's arithmetic are to a machine, where they are not one instruction.

Floor division and remainders as CPython and torch define them (both follow C's ``fmod``, and
differ in the sign of a zero), powers of ints, conversions between machine types.
"""

from __future__ import annotations

from autobatch.compiled.writer import Writer
from autobatch.llvm import literal

C_NAMES = {"double": "", "float": "f"}
"""What the C library's functions have at the end of their names."""


def c_call(w: Writer, name: str, machine: str, *operands: str) -> str:
    """A function of the C library's, in the precision of its operands."""
    return w.call(name + C_NAMES[machine], machine, *((machine, x) for x in operands))


def intrinsic(w: Writer, name: str, machine: str, *operands: str) -> str:
    """A function that is an instruction: ``sqrt``, ``fabs``, ``floor``, …"""
    short = {"double": "f64", "float": "f32"}.get(machine, machine)
    return w.call(f"llvm.{name}.{short}", machine, *((machine, x) for x in operands))


def power_of_two(known: object) -> int | None:
    """n where a known divisor is ``2 ** n``."""
    if type(known) is int and known > 0 and known & (known - 1) == 0:
        return known.bit_length() - 1
    return None


def refuse_divisor(w: Writer, machine: str, a: str, b: str, known: object) -> None:
    """Give up on a division that has no result: by zero, or of the least int by -1."""
    if type(known) is int and known not in (0, -1):
        return
    zero = w.made(f"icmp eq {machine} {b}, 0")
    least = w.made(f"icmp eq {machine} {a}, {-(2 ** (int(machine[1:]) - 1))}")
    minus = w.made(f"icmp eq {machine} {b}, -1")
    w.give_up_if(w.either(zero, w.made(f"and i1 {least}, {minus}")))


def int_floordiv(w: Writer, machine: str, a: str, b: str, known: object, signed: bool) -> str:
    """``a // b``, rounded down."""
    shift = power_of_two(known)
    if shift is not None and signed:
        return w.made(f"ashr {machine} {a}, {shift}")
    if not signed:
        w.give_up_if(w.made(f"icmp eq {machine} {b}, 0"))
        return w.made(f"udiv {machine} {a}, {b}")
    refuse_divisor(w, machine, a, b, known)
    quotient = w.made(f"sdiv {machine} {a}, {b}")
    rest = w.made(f"srem {machine} {a}, {b}")
    less = w.made(f"sub {machine} {quotient}, 1")
    return w.select(_unlike(w, machine, rest, b), machine, less, quotient)


def int_mod(w: Writer, machine: str, a: str, b: str, known: object, signed: bool) -> str:
    """``a % b``, with the sign of b."""
    shift = power_of_two(known)
    if shift is not None and signed:
        return w.made(f"and {machine} {a}, {(1 << shift) - 1}")
    if not signed:
        w.give_up_if(w.made(f"icmp eq {machine} {b}, 0"))
        return w.made(f"urem {machine} {a}, {b}")
    refuse_divisor(w, machine, a, b, known)
    rest = w.made(f"srem {machine} {a}, {b}")
    more = w.made(f"add {machine} {rest}, {b}")
    return w.select(_unlike(w, machine, rest, b), machine, more, rest)


def _unlike(w: Writer, machine: str, rest: str, divisor: str) -> str:
    """Whether a remainder is not zero and has the other sign than the divisor."""
    signs = w.made(f"xor {machine} {rest}, {divisor}")
    apart = w.made(f"icmp slt {machine} {signs}, 0")
    some = w.made(f"icmp ne {machine} {rest}, 0")
    return w.made(f"and i1 {apart}, {some}")


def int_power(w: Writer, machine: str, base: str, exponent: str, checked: bool) -> str:
    """``base ** exponent`` by squaring; the exponent, an i64, is not negative.

    ``checked``: gives up where the result leaves 64 bits; else it wraps.
    """
    kinds = (machine, machine, "i64")
    places = [w.slot(kind) for kind in kinds]
    for place, kind, start in zip(places, kinds, ("1", base, exponent), strict=True):
        w.emit(f"store {kind} {start}, ptr {place}")
    test, body, multiply, halve, square, done = (w.fresh() for _ in range(6))
    w.emit(f"br label %{test}")
    w.begin(test)
    left = w.made(f"load i64, ptr {places[2]}")
    w.emit(f"br i1 {w.made(f'icmp eq i64 {left}, 0')}, label %{done}, label %{body}")
    w.begin(body)
    w.emit(f"br i1 {w.made(f'trunc i64 {left} to i1')}, label %{multiply}, label %{halve}")
    w.begin(multiply)
    factor = w.made(f"load {machine}, ptr {places[1]}")
    so_far = w.made(f"load {machine}, ptr {places[0]}")
    product = _product(w, machine, so_far, factor, checked)
    w.emit(f"store {machine} {product}, ptr {places[0]}")
    w.emit(f"br label %{halve}")
    w.begin(halve)
    half = w.made(f"lshr i64 {left}, 1")
    w.emit(f"store i64 {half}, ptr {places[2]}")
    w.emit(f"br i1 {w.made(f'icmp eq i64 {half}, 0')}, label %{done}, label %{square}")
    w.begin(square)
    root = w.made(f"load {machine}, ptr {places[1]}")
    w.emit(f"store {machine} {_product(w, machine, root, root, checked)}, ptr {places[1]}")
    w.emit(f"br label %{test}")
    w.begin(done)
    return w.made(f"load {machine}, ptr {places[0]}")


def _product(w: Writer, machine: str, a: str, b: str, checked: bool) -> str:
    return w.checked("smul", a, b) if checked else w.made(f"mul {machine} {a}, {b}")


def float_mod(w: Writer, machine: str, a: str, b: str, python: bool) -> str:
    """``a % b`` for a divisor that is not zero: ``fmod``, brought to the divisor's sign.

    A zero has the divisor's sign in Python, and that of ``a`` in torch.
    """
    rest = w.made(f"frem {machine} {a}, {b}")
    some = w.made(f"fcmp une {machine} {rest}, {literal(0.0, machine)}")
    data = w.select(_apart(w, machine, rest, b, some), machine, _sum(w, machine, rest, b), rest)
    if not python:
        return data
    zero = intrinsic(w, "copysign", machine, literal(0.0, machine), b)
    return w.select(some, machine, data, zero)


def _sum(w: Writer, machine: str, a: str, b: str) -> str:
    return w.made(f"fadd {machine} {a}, {b}")


def _apart(w: Writer, machine: str, rest: str, b: str, some: str) -> str:
    """Whether a remainder that is not zero has the other sign than the divisor."""
    zero = literal(0.0, machine)
    below = w.made(f"fcmp olt {machine} {b}, {zero}")
    negative = w.made(f"fcmp olt {machine} {rest}, {zero}")
    return w.made(f"and i1 {some}, {w.made(f'xor i1 {below}, {negative}')}")


def float_floordiv(w: Writer, machine: str, a: str, b: str) -> str:
    """``a // b`` for a divisor that is not zero, as CPython's ``float_floor_div`` has it."""
    zero, one, half = (literal(x, machine) for x in (0.0, 1.0, 0.5))
    rest = w.made(f"frem {machine} {a}, {b}")
    some = w.made(f"fcmp une {machine} {rest}, {zero}")
    whole = w.made(f"fdiv {machine} {w.made(f'fsub {machine} {a}, {rest}')}, {b}")
    less = w.made(f"fsub {machine} {whole}, {one}")
    whole = w.select(_apart(w, machine, rest, b, some), machine, less, whole)
    down = intrinsic(w, "floor", machine, whole)
    over = w.made(f"fcmp ogt {machine} {w.made(f'fsub {machine} {whole}, {down}')}, {half}")
    near = w.select(over, machine, w.made(f"fadd {machine} {down}, {one}"), down)
    nothing = intrinsic(w, "copysign", machine, zero, w.made(f"fdiv {machine} {a}, {b}"))
    return w.select(w.made(f"fcmp une {machine} {whole}, {zero}"), machine, near, nothing)


def to_int64(w: Writer, machine: str, x: str) -> str:
    """A float without its fraction as an i64; gives up beyond, at infinities and nan."""
    wide = x if machine == "double" else w.made(f"fpext float {x} to double")
    size = intrinsic(w, "fabs", "double", wide)
    fits = w.made(f"fcmp olt double {size}, {literal(2.0**63, 'double')}")
    w.give_up_if(w.made(f"xor i1 {fits}, true"))
    return w.made(f"fptosi double {wide} to i64")


def widened(w: Writer, x: str, source: str, target: str, signed: bool = True) -> str:
    """A number of one machine type in another; an int in a narrower one wraps."""
    if source == target:
        return x
    floats = ("float", "double")
    if target in floats and source in floats:
        word = "fpext" if target == "double" else "fptrunc"
    elif target in floats:
        word = "sitofp" if signed and source != "i1" else "uitofp"
    else:
        more = int(target[1:]) > int(source[1:])
        word = "trunc" if not more else "sext" if signed and source != "i1" else "zext"
    return w.made(f"{word} {source} {x} to {target}")
