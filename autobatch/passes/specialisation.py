"""Specialisation: a copy of a function for calls that pass constants of which there is one each.

Before:                                  After, for debug=False:

    f(x, debug):                             f(x, debug):
    b0: x = neg x                            b0: %specialised = const False
        branch debug ? b1 : b2                   %is.debug = is debug, %specialised
    b1: x = add x, x                             branch %is.debug ? b1 : b4
        jump b2                              b1: debug = const False
    b2: return x                                 jump b2
                                             b2: x = neg x
                                                 branch debug ? b3 : b7
                                             b3: x = add x, x
                                                 jump b7
                                             b4: …        (as before)
                                             b7: return x

Clearing up decides the branches of the copy. All calls are told apart at the entry, so a call that
passes anything else runs what it ran before. The constants are None, True and False: identity tells
them without asking the operand, whatever that is, and where all threads share it no host read is
needed. Nothing of a function of one block is worth having twice.

``passes=[specialised(debug=False), *PIPELINE]``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autobatch.errors import OptionError
from autobatch.ir.program import Block, Branch, Function, Jump, Op, Var

LARGEST = 400
"""Operations of a function that is worth having twice."""
TEST, CONSTANT = "%specialised", "%is"


@dataclass(frozen=True, slots=True)
class Specialised:
    """The pass: ``constants`` are names of parameters, each with None, True or False."""

    constants: tuple[tuple[Var, bool | None], ...]

    @property
    def __name__(self) -> str:
        return "specialised"

    def __call__(self, function: Function) -> Function:
        """The function with a copy for the constants of those parameters that it has."""
        plain = {param.name for param in function.params if not param.kind.startswith("var_")}
        given = [
            (name, value) for name, value in self.constants if name in plain - captured(function)
        ]
        size = sum(len(block.ops) for block in function.blocks)
        if not given or len(function.blocks) == 1 or size > LARGEST or is_done(function):
            return function
        return with_copy(function, given)


def specialised(**constants: bool | None) -> Specialised:
    """A pass that gives functions a copy for calls in which parameters are these constants."""
    for name, value in constants.items():
        if value is not None and type(value) is not bool:
            raise OptionError(f"{name} is {value!r}; a constant is None, True or False.")
    return Specialised(tuple(sorted(constants.items())))


def captured(function: Function) -> set[Var]:
    """The parameters that live in boxes: what they hold is not under their names."""
    entry = function.blocks[0].ops
    return {arg for op in entry if op.name == "box" for arg in op.args}


def is_done(function: Function) -> bool:
    return any(op.name == "const" and op.outs == (TEST,) for op in function.blocks[0].ops)


def with_copy(function: Function, given: Sequence[tuple[Var, bool | None]]) -> Function:
    """The function that asks for the constants first: the copy, then the function, then its end."""
    last = len(function.blocks) - 1
    tests = len(given)
    copy, plain = tests + 1, tests + 1 + last
    end = plain + last
    inside = {label: copy + label for label in range(last)} | {last: end}
    outside = {label: plain + label for label in range(last)} | {last: end}
    span = function.blocks[0].terminator.span
    known = (Op("const", (name,), (), value, span) for name, value in given)
    blocks = [test(*each, at, plain, function) for at, each in enumerate(given)]
    blocks.append(Block(tuple(known), Jump(copy, span)))
    blocks += [block.retargeted(inside) for block in function.blocks[:-1]]
    blocks += [block.retargeted(outside) for block in function.blocks[:-1]]
    return replace(function, blocks=(*blocks, function.blocks[-1].retargeted(outside)), live_in=())


def test(name: Var, value: bool | None, at: int, plain: int, function: Function) -> Block:
    """The block that goes on if a parameter is its constant."""
    span = function.blocks[0].terminator.span
    asked = f"{CONSTANT}.{name}"
    ops = (
        Op("const", (TEST,), (), value, span),
        Op("is", (asked,), (name, TEST), None, span),
    )
    return Block(ops, Branch(asked, at + 1, plain, span))
