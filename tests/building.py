"""Short ways to write programs by hand, for tests of the records and of what reads them.

``line(n)`` is a span; the functions below take the line of a record from a running count, so
that each record of a function stands on a line of its own.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from autobatch.ir.program import (
    Block,
    Branch,
    Call,
    CallShape,
    Function,
    Handler,
    Jump,
    Op,
    Param,
    Raise,
    Return,
    Terminator,
)
from autobatch.source import Span

FILE = "/somewhere/walk.py"


def line(number: int) -> Span:
    return Span(FILE, number, 4, number, 12)


class Lines:
    """Makes records on consecutive lines, from line 2 on."""

    def __init__(self) -> None:
        self._numbers = count(2)

    def span(self) -> Span:
        return line(next(self._numbers))

    def op(self, text: str, attr: Any = None) -> Op:
        """``op("n = add n, %1")``: outs and operands from text, the attribute apart."""
        left, _, right = text.rpartition(" = ")
        name, _, args = right.partition(" ")
        return Op(name, _names(left), _names(args), attr, self.span())

    def jump(self, target: int) -> Jump:
        return Jump(target, self.span())

    def branch(self, condition: str, then: int, otherwise: int) -> Branch:
        return Branch(condition, then, otherwise, self.span())

    def call(
        self, out: str, callee: str, args: str, target: int, shape: CallShape | None = None
    ) -> Call:
        names = _names(args)
        shape = shape or CallShape((False,) * len(names))
        return Call(out, callee, names, shape, target, self.span())

    def give(self, value: str) -> Return:
        return Return(value, self.span())

    def fail(self, exception: str, cause: str | None = None) -> Raise:
        return Raise(exception, cause, self.span())


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text.strip() else ()


def block(
    *parts: Op | Terminator, modes: tuple[str, ...] = (), handler: Handler | None = None
) -> Block:
    """Operations, the last part being the terminator."""
    *ops, terminator = parts
    return Block(tuple(ops), terminator, modes, handler)  # type: ignore[arg-type]


def params(*names: str) -> tuple[Param, ...]:
    return tuple(Param(name, "positional", False) for name in names)


def function(
    name: str,
    parameters: tuple[Param, ...] | str,
    *blocks: Block,
    free: tuple[str, ...] = (),
    nested: tuple[Function, ...] = (),
    live_in: tuple[frozenset[str], ...] = (),
) -> Function:
    if isinstance(parameters, str):
        parameters = params(*_names(parameters))
    return Function(name, parameters, blocks, free, line(1), nested, live_in)


def collatz() -> Function:
    """Steps until n is 1; ``n // 2`` or ``3 * n + 1``."""
    at = Lines()
    return function(
        "collatz",
        "n",
        block(at.op("steps = const", 0), at.jump(1)),
        block(at.op("%1 = const", 1), at.op("%2 = ne n, %1"), at.branch("%2", 2, 5)),
        block(
            at.op("%3 = const", 2),
            at.op("%4 = mod n, %3"),
            at.op("%5 = const", 0),
            at.op("%6 = eq %4, %5"),
            at.branch("%6", 3, 4),
        ),
        block(at.op("n = floordiv n, %3"), at.op("steps = iadd steps, %1"), at.jump(1)),
        block(
            at.op("%7 = const", 3),
            at.op("%8 = mul n, %7"),
            at.op("n = add %8, %1"),
            at.op("steps = iadd steps, %1"),
            at.jump(1),
        ),
        block(at.give("steps")),
    )
