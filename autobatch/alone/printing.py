"""Programs that might print, or show a tensor: plain Python runs their threads as far as that.

What threads print is seen, in the engines' order (thread by thread within each block). So a thread
that comes to a ``print`` is given up there and goes the general way from its beginning, with others
like it: nobody has seen what it has done. While threads run so, the name ``print`` means what
gives them up, in the host thread that they run in; other host threads print.

So it is with the text of a tensor where gradients are wanted: it names the graph, which is another
one in the loop. Most of what a program makes text of may be a tensor, for all that is known, and is
none.
"""

from __future__ import annotations

import builtins
from builtins import print as print_
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from torch import Tensor

from autobatch.alone.kinds import NotAlone
from autobatch.ir.program import Block, Branch, Function, Jump, Label, Op, Raise
from autobatch.vm.purity import Known

_GIVES_UP: ContextVar[bool] = ContextVar("autobatch.gives_up", default=False)
_SHOWS_NONE: ContextVar[bool] = ContextVar("autobatch.shows_none", default=False)
REPR = Tensor.__repr__


class GaveUp(BaseException):
    """A thread has come to a ``print``, or to a tensor's text; no exception of the program's."""


def given_up(*args: Any, **kwargs: Any) -> None:
    """What ``print`` means meanwhile."""
    if _GIVES_UP.get():
        raise GaveUp
    print_(*args, **kwargs)


given_up.__autobatch__ = "unknown"  # type: ignore[attr-defined]  # as ``print`` is, to a batch


def shown(self: Tensor, *args: Any, **kwargs: Any) -> str:
    """What a tensor's ``repr`` means meanwhile."""
    if _SHOWS_NONE.get():
        raise GaveUp
    return REPR(self, *args, **kwargs)  # type: ignore[no-any-return, no-untyped-call]


@dataclass(slots=True)
class Changed:
    """How many runs there are, in all host threads, for which these have been replaced."""

    lock: Lock = field(default_factory=Lock)
    runs: int = 0

    def begin(self) -> None:
        with self.lock:
            if not self.runs:
                builtins.print = given_up
                Tensor.__repr__ = shown  # type: ignore[assignment, method-assign]
            self.runs += 1

    def end(self) -> None:
        with self.lock:
            self.runs -= 1
            if not self.runs and builtins.print is given_up:  # else somebody has replaced it, too
                builtins.print = print_
            if not self.runs and Tensor.__repr__ is shown:
                Tensor.__repr__ = REPR  # type: ignore[assignment, method-assign]


_CHANGED = Changed()


@contextmanager
def giving_up(prints: bool, shows: bool) -> Iterator[None]:
    """Within, ``print`` gives up the thread at work, if the program ``prints``; so does the text of
    a tensor if it ``shows`` what may be one.
    """
    if not prints and not shows:
        yield
        return
    _CHANGED.begin()
    tokens = _GIVES_UP.set(prints), _SHOWS_NONE.set(shows)
    try:
        yield
    finally:
        _GIVES_UP.reset(tokens[0])
        _SHOWS_NONE.reset(tokens[1])
        _CHANGED.end()


def is_print(found: object) -> bool:
    return found is print_


def ahead(known: Known, block: Block, op: Op) -> bool:
    """Whether a ``print`` of the block's is still to come: the thread is as good as given up."""
    calls = [each for each in block.ops[block.ops.index(op) :] if each.name == "call"]
    return any(is_print(known.looked_up(each.args[0])) for each in calls)


def check(function: Function, known: Known, yields: bool, does: str) -> None:
    """Refuse a function that would keep ``GaveUp`` from its caller, since it ``does`` such a thing.

    One that ``yields`` may be left within a ``try``: nobody gets what is raised at its end then.
    """
    for block in function.blocks:
        if block.handler is None:
            continue
        if yields or not lets_through(function, known, block.handler.target):
            refused = NotAlone(f"it {does}, and a `try` or a manager may catch anything")
            refused.at(function.blocks[block.handler.target].terminator.span)
            raise refused


def lets_through(function: Function, known: Known, pc: Label) -> bool:
    """Whether what no ``except`` is for goes on from a handler."""
    passed: set[Label] = set()
    while pc not in passed:
        passed.add(pc)
        block = function.blocks[pc]
        catches = [op for op in block.ops if op.name == "catches"]
        match block.terminator:
            case Raise():
                return True
            case Jump(target=target):
                pc = target
            case Branch(condition=condition, otherwise=target):
                if not any(condition in op.outs and misses(known, op) for op in catches):
                    return False
                pc = target
            case _:
                return False
    return False


def misses(known: Known, op: Op) -> bool:
    """Whether an ``except`` is for other exceptions."""
    kinds = known.definitions.get(op.args[1])
    names = kinds.args if kinds is not None and kinds.name == "tuple" else op.args[1:]
    found = [known.looked_up(name) for name in names]
    return all(isinstance(kind, type) and not issubclass(GaveUp, kind) for kind in found)
