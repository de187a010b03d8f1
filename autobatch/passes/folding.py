"""Constants and copies are carried on, and what they decide is decided.

Before:                              After:

    b0: %1 = const 2                     b0: %1 = const 2
        %2 = const 3                         %2 = const 3
        %3 = mul %1, %2                      %3 = const 6
        %4 = copy x                          %4 = copy x
        y = add %4, %3                       y = add x, %3
        %5 = gt %3, %1                       %5 = const True
        branch %5 ? b1 : b2                  jump b1

1. An operation on literals becomes the literal that it gives (``facts``).
2. A temporary that is another variable's copy is read as that variable. The user's own variables
   stay what they are: errors and ``explain`` tell of them by name.
3. A branch on a literal becomes a jump.

What is left without use goes with ``dead_code``; blocks that nothing reaches go with ``simplify``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autobatch.ir.ops import info
from autobatch.ir.program import Block, Branch, Call, Function, Jump, Op, Terminator, Var
from autobatch.passes.facts import Course, Facts, Literal, Same, facts_before, result

_OWN_OPERANDS = ("enter", "fork", "defer", "box", "function", "delete")
"""Operations whose operands stay: others go by their names."""
AS_THEY_ARE = ("const", "copy")
"""What is a literal already; a copy is the very object, which ``is`` may ask for."""


def fold_constants(function: Function) -> Function:
    """The function with literals and copies in the place of what gives them."""
    known = facts_before(function.blocks)
    pairs = zip(function.blocks, known, strict=True)
    return replace(function, blocks=tuple(folded_block(block, facts) for block, facts in pairs))


def folded_block(block: Block, facts: Facts) -> Block:
    ops: list[Op] = []
    course = Course(facts)
    for op in block.ops:
        ops.append(folded(op, course.facts))
        course.take(op)
    end = ended(block.terminator, course.facts)
    if tuple(ops) == block.ops and end == block.terminator:
        return block
    return replace(block, ops=tuple(ops), terminator=end, converted=None)


def folded(op: Op, facts: Facts) -> Op:
    """The operation, or the literal that it gives."""
    known = result(op, facts) if op.name not in AS_THEY_ARE else None
    if isinstance(known, Literal):
        return Op("const", op.outs, (), known.value, op.span)
    if op.name in _OWN_OPERANDS:
        return op
    kept = 1 if info(op.name).effect in ("writes", "advances", "unknown") else 0
    args = (*op.args[:kept], *sources(op.args[kept:], facts))
    return op if args == op.args else replace(op, args=args)


def sources(names: Sequence[Var], facts: Facts) -> tuple[Var, ...]:
    return tuple(source(name, facts) for name in names)


def source(name: Var, facts: Facts) -> Var:
    """What a temporary is a copy of."""
    known = facts.get(name)
    return known.source if isinstance(known, Same) and name.startswith("%") else name


def ended(terminator: Terminator, facts: Facts) -> Terminator:
    match terminator:
        case Branch(condition=condition, then=then, otherwise=otherwise, span=span):
            known = facts.get(condition)
            if isinstance(known, Literal):
                return Jump(then if known.value else otherwise, span)
            return replace(terminator, condition=source(condition, facts))
        case Call(callee=callee, args=args):
            return replace(terminator, callee=source(callee, facts), args=sources(args, facts))
    return terminator
