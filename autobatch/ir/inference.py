"""What the variables of a function hold at each point, as far as literals and declarations tell.

In: the blocks of a function, and what its parameters are declared to hold. Out: the types at the
start of each block (``types_before``), a way to take them through operations (``types_after``),
and a note of what each operation gives (``noted``), for the text. Nothing is said of objects, nor
of what a call gives unless who asks knows it (``ir.call_types``). A call, or a write to an
attribute, may change a tensor in place, its shape too (``x.unsqueeze_(0)``), under any name: past
one, a tensor is still a tensor, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from autobatch.ir.dataflow import Analysis, op_writes, solve, terminator_writes
from autobatch.ir.ops import BINARY, COMPARE, INPLACE, UNARY, info
from autobatch.ir.program import Block, Call, Function, Join, Op, Var
from autobatch.ir.types import (
    FLOATING,
    INTEGRAL,
    LITERALS,
    TENSOR,
    Shape,
    Type,
    joined,
)

Types = Mapping[Var, Type]
Noted = tuple[tuple[Type | None, ...], ...]
AfterCall = Callable[[Call, Types], Types | None]
"""What is known after a call, given what is before it; None if it never returns."""
NOTHING: Types = {}
_OF_LITERALS = {kind: Type(kind.__name__) for kind in (bool, int, float, str)} | {
    type(None): Type("None")
}
TRUTHS = ("not", "truth", "is", "is_not", "in", "not_in")
"""Operators that give one of Python's own booleans, whatever they are asked."""
BOOL = Type("bool")


def forgotten(call: Call, types: Types) -> Types:
    """What is still known after a call of what is not known."""
    return without(unshaped(types), (call.out,))


def noted(function: Function, given: Types = NOTHING, after_call: AfterCall = forgotten) -> Noted:
    """What each operation of each block gives, then those of what the block is converted to.

    Last, of a block that ends in a call, what that returns. None where that is not known, or where
    the operation says it.
    """
    pairs = zip(function.blocks, types_before(function.blocks, given, after_call), strict=True)
    return tuple(tuple(_given_in(block, types, after_call)) for block, types in pairs)


def _given_in(block: Block, types: Types, after_call: AfterCall) -> Iterator[Type | None]:
    for ops in (block.ops, () if block.converted is None else block.converted.ops):
        now = types
        for op in ops:
            now = stepped(op, now, after_call)
            told = op.name in (*TRUTHS, "const") or len(op.outs) != 1
            yield None if told else now.get(op.outs[0])
    if isinstance(block.terminator, Call):
        for op in block.ops:
            types = stepped(op, types, after_call)
        yield (after_call(block.terminator, types) or NOTHING).get(block.terminator.out)


def types_before(
    blocks: Sequence[Block], given: Types = NOTHING, after_call: AfterCall = forgotten
) -> Sequence[Types]:
    """What is known at the start of each block; nothing of one that is never reached."""
    return [NOTHING if found is None else found for found in solved(blocks, given, after_call)]


def solved(blocks: Sequence[Block], given: Types, after_call: AfterCall) -> Sequence[Types | None]:
    """The same, with None of blocks that are never reached."""

    def through(block: Block, types: Types | None) -> Types | None:
        return types_through(block, types, after_call)

    analysis: Analysis[Types | None] = Analysis(
        True, given, None, joined_types, through, types_raised
    )
    return solve(blocks, analysis).before


def joined_types(one: Types | None, other: Types | None) -> Types | None:
    if one is None or other is None:
        return other if one is None else one
    both = ((name, joined(one[name], other[name])) for name in one.keys() & other.keys())
    return {name: found for name, found in both if found is not None}


def types_through(
    block: Block, types: Types | None, after_call: AfterCall = forgotten
) -> Types | None:
    if types is None:
        return None
    for op in block.ops:
        types = stepped(op, types, after_call)
    if isinstance(block.terminator, Call):
        return after_call(block.terminator, types)
    return unshaped(types) if isinstance(block.terminator, Join) else types


def types_raised(block: Block, types: Types | None) -> Types | None:
    """At a handler, wherever the block has failed."""
    assert block.handler is not None
    if types is None:
        return None
    written = [name for op in block.ops for name in op_writes(op)]
    return without(
        unshaped(types), (*written, *terminator_writes(block.terminator), block.handler.out)
    )


def unshaped(types: Types) -> Types:
    if all(found.is_bare for found in types.values()):
        return types
    return {name: found.without_shape() for name, found in types.items()}


def without(types: Types, names: Sequence[Var]) -> Types:
    if types.keys().isdisjoint(names):
        return types
    return {name: found for name, found in types.items() if name not in names}


def stepped(op: Op, types: Types, after_call: AfterCall = forgotten) -> Types:
    """What is known after an operation, which may be a call of a function of one block."""
    if op.name == "call":
        return after_call(called_by(op), types) or NOTHING
    return types_after(op, types)


def called_by(op: Op) -> Call:
    """A call that does not end its block, as one that does."""
    return Call(op.outs[0], op.args[0], op.args[1:], op.attr, 0, op.span)


def types_after(op: Op, types: Types) -> Types:
    """What is known after an operation."""
    found = result(op, types)
    if types and not is_quiet(op, types):
        types = unshaped(types)
    if found is None:
        return without(types, op_writes(op))
    name = op.outs[0]
    return types if types.get(name) == found else {**types, name: found}


def is_quiet(op: Op, types: Types) -> bool:
    """Whether an operation runs no code of others, and changes no tensor's shape."""
    if op.name in (*BINARY, *COMPARE, *UNARY, *INPLACE, "truth", "setitem"):
        given = [types.get(arg) for arg in op.args]
        return op.name in ("is", "is_not") or all(
            found is not None and (found.is_plain or found.kind in LITERALS) for found in given
        )
    declared = info(op.name)
    return declared.effect in ("pure", "binds") or op.name in _QUIET


_QUIET = ("global", "load_free", "load_box", "store_box", "clear_box", "append", "free_box")


def result(op: Op, types: Types) -> Type | None:
    """The type of what an operation gives, if that is known; None if it gives several things."""
    if len(op.outs) != 1:
        return None
    if op.name == "const":
        return _OF_LITERALS.get(type(op.attr))
    if op.name in TRUTHS:
        return BOOL
    given = [types.get(arg) for arg in op.args]
    if op.name == "select":
        given = given[1:]
    elif op.name in ("sum_left", "sum_whole"):
        given = given[:1]
    if not given or None in given:
        return None
    rule = _RULES.get(op.name)
    return None if rule is None else rule(*given)


# What operators give.


def _select(one: Type, other: Type) -> Type | None:
    return joined(one, other)


def _arithmetic(name: str) -> Callable[[Type, Type], Type | None]:
    def rule(one: Type, other: Type) -> Type | None:
        if not (one.is_plain and other.is_plain):
            return None
        if one.is_number and other.is_number:
            return _of_numbers(name, one.kind, other.kind)
        return Type(TENSOR, _dtype(name, one, other), broadcast(one, other))

    return rule


def _of_numbers(name: str, one: str, other: str) -> Type | None:
    if name in COMPARE:
        return BOOL
    if name in ("and", "or", "xor", "lshift", "rshift"):
        if "float" in (one, other):
            return None
        both = one == other == "bool" and not name.endswith("shift")
        return BOOL if both else Type("int")
    if name == "pow":
        return None  # an int, a float or a complex number, as the values are
    is_float = "float" in (one, other) or name == "truediv"
    return Type("float" if is_float else "int")


def _dtype(name: str, one: Type, other: Type) -> str:
    """The dtype of what an operator gives, of which one operand is a tensor."""
    if name in COMPARE:
        return "bool_"
    if one.kind == other.kind:
        dtype = one.dtype if one.dtype == other.dtype else ""
    else:
        tensor, number = (one, other) if one.kind == TENSOR else (other, one)
        fits = number.kind != "float" or tensor.dtype in FLOATING
        dtype = tensor.dtype if fits else ""
    stays = dtype in FLOATING or (dtype in INTEGRAL and name not in ("truediv", "pow"))
    return dtype if stays else ""


def broadcast(one: Type, other: Type) -> Shape | None:
    """The shape of two operands together; a number has none."""
    shapes = [() if each.is_number else each.shape for each in (one, other)]
    if shapes[0] is None or shapes[1] is None:
        return None
    short, long = sorted((shapes[0], shapes[1]), key=len)
    short = (1,) * (len(long) - len(short)) + short
    return tuple(_size(a, b) for a, b in zip(short, long, strict=True))


def _size(one: int | None, other: int | None) -> int | None:
    """A size of 1 goes with any; of two others, which must be equal, one may be known."""
    if one == 1 or other == 1:
        return other if one == 1 else one
    return other if one is None else one


def _matmul(one: Type, other: Type) -> Type | None:
    if one.kind != TENSOR or other.kind != TENSOR:
        return None
    dtype = one.dtype if one.dtype == other.dtype else ""
    if one.shape is None or other.shape is None or not 0 < len(one.shape) <= 2:
        return Type(TENSOR, dtype)
    if not 0 < len(other.shape) <= 2:
        return Type(TENSOR, dtype)
    return Type(TENSOR, dtype, (*one.shape[:-1], *other.shape[1:]))


def _unary(name: str) -> Callable[[Type], Type | None]:
    def rule(one: Type) -> Type | None:
        if not one.is_number:
            return one if one.is_plain else None
        if name == "invert" and one.kind == "float":
            return None
        return Type("int") if one.kind == "bool" else one

    return rule


def _inplace(name: str) -> Callable[[Type, Type], Type | None]:
    pure = _arithmetic(name)

    def rule(one: Type, other: Type) -> Type | None:
        if one.kind == TENSOR:
            return one if other.is_plain else None
        return pure(one, other)

    return rule


_RULES: dict[str, Callable[..., Type | None]] = {
    "copy": lambda one: one,
    "select": _select,
    "sum_left": lambda total: total,
    "sum_whole": lambda total: total,
    **{name: _unary(name) for name in ("neg", "pos", "invert")},
    **{name: _arithmetic(name) for name in (*BINARY, *COMPARE) if name != "matmul"},
    **{f"i{name}": _inplace(name) for name in BINARY if name != "matmul"},
    "matmul": _matmul,
}
