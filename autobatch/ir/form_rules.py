"""The verifier's rules of form: each looks at single records of a function.

In: a ``Function`` whose fields have the right Python types and any content. Out: findings, each
a place in the function and what is wrong there. ``ir.verifier`` numbers and runs the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from autobatch.ir.dataflow import terminator_reads
from autobatch.ir.names import NAME
from autobatch.ir.ops import OPS
from autobatch.ir.printer import HEADER, Place
from autobatch.ir.program import (
    Block,
    Branch,
    Call,
    CallShape,
    Function,
    Join,
    Jump,
    Op,
    Program,
    Raise,
    Return,
    Terminator,
    UnpackShape,
)
from autobatch.source import Span

Finding = tuple[Place, str]
Rule = Callable[[Function], Iterator[Finding]]

_KINDS = ("positional_only", "positional", "var_positional", "keyword_only", "var_keyword")


def ops_of(function: Function) -> Iterator[tuple[Place, Op]]:
    for label, block in enumerate(function.blocks):
        for index, op in enumerate(block.ops):
            yield (label, index), op
        if block.converted is not None:
            for index, op in enumerate(block.converted.ops, len(block.ops) + 2):
                yield (label, index), op


def terminators_of(function: Function) -> Iterator[tuple[Place, Terminator]]:
    for label, block in enumerate(function.blocks):
        yield (label, len(block.ops)), block.terminator
        if block.converted is not None:
            end = len(block.ops) + 2 + len(block.converted.ops)
            yield (label, end), block.converted.terminator


def has_blocks(function: Function) -> Iterator[Finding]:
    if not function.blocks:
        yield HEADER, "the function has no block"


def terminators_known(function: Function) -> Iterator[Finding]:
    for place, terminator in terminators_of(function):
        if not isinstance(terminator, Jump | Branch | Call | Join | Return | Raise):
            yield place, f"a block ends in a {type(terminator).__name__}, which is no terminator"


def targets_exist(function: Function) -> Iterator[Finding]:
    labels = range(len(function.blocks))
    for place, terminator in terminators_of(function):
        for target in Block((), terminator).successors():
            if target not in labels:
                yield place, f"there is no block b{target} to go to"
    for label, block in enumerate(function.blocks):
        if block.converted is not None and block.converted.ends not in labels:
            place = (label, len(block.ops) + 1)
            yield place, f"there is no block b{block.converted.ends} to end with"
        if block.handler is not None and block.handler.target not in labels:
            yield (label, -1), f"there is no block b{block.handler.target} to handle exceptions"


def handlers_fit(function: Function) -> Iterator[Finding]:
    """What may not be in a block with a handler: calls that run later, and the return."""
    for label, block in enumerate(function.blocks):
        if block.handler is None:
            continue
        if isinstance(block.terminator, Return | Join):
            yield (label, len(block.ops)), "a block with a handler neither returns nor joins"
        for index, op in enumerate(block.ops):
            if op.name in ("fork", "defer"):
                yield (
                    (label, index),
                    f"{op.name} runs later, when its handler is not in force",
                )


def one_return(function: Function) -> Iterator[Finding]:
    last = len(function.blocks) - 1
    for place, terminator in terminators_of(function):
        if isinstance(terminator, Return) and place[0] != last:
            yield (
                place,
                f"a return stands in b{place[0]}; the only one belongs in b{last}, the last",
            )
        if place[0] == last and not isinstance(terminator, Return):
            yield place, "the last block does not return"


def spans_present(function: Function) -> Iterator[Finding]:
    for place, record in [(HEADER, function), *ops_of(function), *terminators_of(function)]:
        span = getattr(record, "span", None)
        if not isinstance(span, Span) or span.line < 1 or not span.file:
            yield place, "there is no place in the user's source"


def names_valid(function: Function) -> Iterator[Finding]:
    for place, op in ops_of(function):
        yield from _invalid(place, (*op.outs, *op.args))
    for label, block in enumerate(function.blocks):
        yield from _invalid((label, -1), block.modes)
        caught = () if block.handler is None else (block.handler.out,)
        yield from _invalid((label, -1), caught)
        out = (block.terminator.out,) if isinstance(block.terminator, Call) else ()
        names = (*out, *terminator_reads(block.terminator))
        yield from _invalid((label, len(block.ops)), names)


def _invalid(place: Place, names: tuple[Any, ...]) -> Iterator[Finding]:
    for name in names:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            yield place, f"{name!r} is not the name of a variable"


def params_valid(function: Function) -> Iterator[Finding]:
    names = [param.name for param in function.params]
    kinds = [param.kind for param in function.params]
    yield from _invalid(HEADER, tuple(names))
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield HEADER, f"two parameters are named {name}"
    for kind in kinds:
        if kind not in _KINDS:
            yield HEADER, f"{kind!r} is not a kind of parameter"
    order = [_KINDS.index(kind) for kind in kinds if kind in _KINDS]
    if (
        order != sorted(order)
        or kinds.count("var_positional") > 1
        or kinds.count("var_keyword") > 1
    ):
        yield HEADER, "the parameters are not in an order that Python allows"


def shapes_fit(program: Program) -> Iterator[str]:
    """What is wrong with the event shapes that a program declares."""
    params = program.main.params if program.entry in program.functions else ()
    names = [param.name for param in params if param.kind != "var_keyword"]
    for name, shape in program.in_shapes.items():
        if name not in names:
            known = ", ".join(names) or "none"
            yield f"there is no input {name!r} to have an event shape; the inputs are: {known}"
        elif not isinstance(shape, tuple) or not all(map(_is_size, shape)):
            yield f"the event shape of {name} is {shape!r}; it must be a tuple of sizes or None"


def _is_size(size: object) -> bool:
    return size is None or (type(size) is int and size >= 0)


def ops_known(function: Function) -> Iterator[Finding]:
    for place, op in ops_of(function):
        if op.name not in OPS:
            yield place, f"there is no operation {op.name!r}"


def operands_fit(function: Function) -> Iterator[Finding]:
    for place, op in _known(function):
        arity, got = OPS[op.name].arity, len(op.args)
        if arity is not None and got != arity:
            yield place, f"{op.name} takes {arity} operands, not {got}"
        elif op.name in ("box", "assertion") and got > 1:
            yield place, f"{op.name} takes at most one operand, not {got}"
        elif op.name == "dict" and got % 2:
            yield place, f"dict takes keys and values in pairs, not {got} operands"


def outs_fit(function: Function) -> Iterator[Finding]:
    for place, op in _known(function):
        outs, expected = op.outs, OPS[op.name].outs
        if op.name == "unpack" and isinstance(op.attr, UnpackShape):
            expected = op.attr.before + op.attr.starred + op.attr.after
        if expected >= 0 and len(outs) != expected:
            yield place, f"{op.name} assigns {expected} variables, not {len(outs)}"


def attributes_fit(function: Function) -> Iterator[Finding]:
    for place, op in _known(function):
        if not _attr_fits(op):
            wanted = OPS[op.name].attr or "none"
            yield place, f"the attribute of {op.name} is {op.attr!r}; it should be {wanted}"


def _attr_fits(op: Op) -> bool:
    match op.name, op.attr:
        case "const", _:
            return True
        case "call" | "fork", attr:
            return isinstance(attr, CallShape)
        case "defer", (str(name), _):
            return name in OPS
        case "unpack", attr:
            return isinstance(attr, UnpackShape) and min(attr.before, attr.after) >= 0
        case "function", attr:
            return isinstance(attr, Function)
        case "format", attr:
            return attr in ("", "s", "r", "a")
        case "import", (str(), int(), names):
            return names is None or all(isinstance(name, str) for name in names)
    if OPS[op.name].attr.startswith("name"):
        return isinstance(op.attr, str) and bool(op.attr)
    return op.attr is None


def _known(function: Function) -> Iterator[tuple[Place, Op]]:
    return ((place, op) for place, op in ops_of(function) if op.name in OPS)


def calls_fit(function: Function) -> Iterator[Finding]:
    for place, op in ops_of(function):
        if op.name in ("call", "fork") and not op.args:
            yield place, "the call has no callee"
        elif op.name in ("call", "fork") and isinstance(op.attr, CallShape):
            yield from _misfits(place, op.attr, len(op.args) - 1)
    for place, terminator in terminators_of(function):
        if isinstance(terminator, Call):
            yield from _misfits(place, terminator.shape, len(terminator.args))


def _misfits(place: Place, shape: CallShape, got: int) -> Iterator[Finding]:
    expected = len(shape.positional) + len(shape.keywords)
    if got != expected:
        yield place, f"the call's shape places {expected} arguments, not {got}"
    names = [name for name in shape.keywords if name is not None]
    if len(set(names)) < len(names):
        yield place, "the call passes one keyword twice"
