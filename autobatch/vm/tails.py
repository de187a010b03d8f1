"""What a block of a loop ends with: ``ys.append(y)``, and the ``next`` of the loop.

    %3 = call %1(%2)                 a stretch
    %4 = getattr[append] ys      ┐
    %5 = call %4(%3)             │   the tail
    %6, %7 = next %8             ┘

A recording holds no list that grows, so what is before the tail is a stretch of its own, which one
driver may run all of; the tail is run by itself (``laps``).

In: a block's operations. Out: its ``Tail``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from autobatch.ir.program import CallShape, Op, Var
from autobatch.values.cells import Cell, Container

ONE = CallShape((False,))


@dataclass(frozen=True, slots=True)
class Append:
    """``target.append(item)``; ``names`` are the variables that it assigns, which nobody reads."""

    target: Var
    item: Var
    names: tuple[Var, ...] = ()


@dataclass(frozen=True, slots=True)
class Tail:
    """What stands from ``start`` on: ``appends``, in order, then ``advance``, a ``next``."""

    start: int
    appends: tuple[Append, ...]
    advance: Op | None

    @property
    def names(self) -> set[Var]:
        """What it reads and assigns."""
        found = {name for each in self.appends for name in (each.target, each.item, *each.names)}
        return found if self.advance is None else {*found, *self.advance.outs, *self.advance.args}


def tail_of(ops: Sequence[Op], needed: Set[Var]) -> Tail:
    """The tail of a block; ``needed`` are the variables that are read when it is done."""
    advance = ops[-1] if ops and ops[-1].name == "next" else None
    start = len(ops) - (advance is not None)
    appends: list[Append] = []
    read = set(needed) if advance is None else {*needed, *advance.args}
    while (found := append_at(ops, start)) is not None:
        append, begin = found
        if not read.isdisjoint(append.names):
            break
        start = begin
        read |= {append.target, append.item}
        appends.insert(0, append)
    made = {out for op in ops[:start] for out in op.outs}
    if not made.isdisjoint(append.target for append in appends):
        return Tail(len(ops) - (advance is not None), (), advance)
    return Tail(start, tuple(appends), advance)


def append_at(ops: Sequence[Op], end: int) -> tuple[Append, int] | None:
    """The append that ends before ``end``, and where it begins."""
    last = ops[end - 1] if end else None
    if last is None:
        return None
    if last.name == "append":
        return Append(last.args[0], last.args[1]), end - 1
    method = ops[end - 2] if end > 1 else None
    if method is None or method.name != "getattr" or method.attr != "append":
        return None
    if last.name != "call" or last.attr != ONE or last.args[0] != method.outs[0]:
        return None
    names = (*method.outs, *last.outs)
    target, item = method.args[0], last.args[1]
    return None if item in names or target in names else (Append(target, item, names), end - 2)


def lists_of(appends: Sequence[Append], env: Mapping[Var, Cell]) -> list[list[Cell]] | None:
    """The lists that they append to, which the threads of a group have alike; else None."""
    found: list[list[Cell]] = []
    for append in appends:
        value = env[append.target].value if append.target in env else None
        if type(value) is not Container or value.type is not list:
            return None
        found.append(value.cells)  # type: ignore[arg-type]
    return found
