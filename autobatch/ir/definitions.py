"""What defines the variables of a function, as far as one operation does."""

from __future__ import annotations

from collections.abc import Mapping

from autobatch.ir.dataflow import op_writes
from autobatch.ir.program import Call, Function, Op, Var

LOOKUPS = ("global", "getattr", "load_free")
DISPLAYS = ("tuple", "slice")
Definitions = Mapping[Var, Op | None]
"""The only operation that assigns a variable; None if there are several, a call, or a parameter's,
or if it names the variable itself, by whatever way (``x = x.next``). A look-up that stands at
several places, as a rotated loop has its condition twice, is one.

A parameter that nothing assigns is not in it.
"""


def definitions_of(function: Function) -> Definitions:
    """What defines the variables of a function."""
    params = {param.name for param in function.params}
    found: dict[Var, Op | None] = {}
    for block in function.blocks:
        for op in block.ops:
            for out in op_writes(op):
                again = out in found and not is_same(found[out], op)
                found[out] = None if again or out in params else op
        if isinstance(block.terminator, Call):
            found[block.terminator.out] = None
    for name in found:
        if comes_back(name, found):
            found[name] = None
    return found


def literals_of(definitions: Definitions) -> frozenset[Var]:
    """The variables that always hold the same tuple or slice of literals."""
    return frozenset(
        name
        for name, op in definitions.items()
        if op is not None and op.name in DISPLAYS and is_literal(name, definitions)
    )


def is_literal(name: Var, definitions: Definitions, around: frozenset[Var] = frozenset()) -> bool:
    """Whether a variable is one literal, or a tuple or slice of such."""
    op = definitions.get(name)
    if op is None or name in around:
        return False
    if op.name == "const":
        return True
    around |= {name}
    return op.name in DISPLAYS and all(is_literal(arg, definitions, around) for arg in op.args)


def is_same(one: Op | None, other: Op) -> bool:
    """Whether two operations look up the same name."""
    if one is None or other.name not in LOOKUPS:
        return False
    return (one.name, one.args, one.attr) == (other.name, other.args, other.attr)


def comes_back(name: Var, definitions: Definitions) -> bool:
    """Whether a chain of copies and attributes leads from a variable to itself."""
    seen = {name}
    op = definitions.get(name)
    while op is not None and op.name in ("copy", "getattr"):
        if op.args[0] in seen:
            return True
        seen.add(op.args[0])
        op = definitions.get(op.args[0])
    return False
