"""Functions that yield and that a program makes (``def`` in a function): they are Python's own.

    def program(n):
        def down(k):
            while k:
                yield k * n
                k -= 1
        return sum(down(n))

In: what a ``function`` operation makes, and what it holds for a thread. Out: the function, with the
boxes of the thread's captured variables, which the program's own operations read and assign, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import CellType, FunctionType
from typing import Any

from autobatch.batching.binding import by_name
from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.ir.program import Function
from autobatch.source import Span

MADE = "__autobatch_made__"
"""What such a function has that says of what it is, and what it holds."""
PER_THREAD = "autobatch.per_thread: it runs example by example"
Static = tuple[Function, dict[str, Any], str]
"""A function as lowered, its module's names, and the title of the one that it stands in."""


def python_function(static: Static, held: Sequence[Any]) -> FunctionType:
    """The function that has these boxes, then defaults."""
    lowered = static[0]
    count = len(lowered.free)
    made = bare(static, dict(zip(lowered.free, held[:count], strict=True)))
    defaults = by_name(lowered.params, held[count:])
    named = {param.name for param in lowered.params if param.kind == "keyword_only"}
    given = tuple(value for name, value in defaults.items() if name not in named)
    made.__defaults__ = given or None
    made.__kwdefaults__ = {k: v for k, v in defaults.items() if k in named} or None
    vars(made)[MADE] = (static, tuple(held))
    return made


def bare(static: Static, boxes: Mapping[str, CellType] | None = None) -> FunctionType:
    """The function; without ``boxes``, one that has captured nothing."""
    lowered, namespace, _ = static
    assert lowered.yields is not None
    code = lowered.yields.code
    closure = tuple(CellType() if boxes is None else boxes[name] for name in code.co_freevars)
    made = FunctionType(code, namespace, code.co_name, None, closure)
    vars(made)[MADE] = (static, ())
    return made


def static_of(function: FunctionType) -> Static | None:
    """Of what a function is that a program has made; None for others."""
    found = made_of(function)
    return None if found is None else found[0]


def made_of(function: FunctionType) -> tuple[Static, tuple[Any, ...]] | None:
    """The same, and the boxes and defaults that it has got."""
    found: tuple[Static, tuple[Any, ...]] | None = vars(function).get(MADE)
    return found


def check(lowered: Function, span: Span) -> None:
    """Refuse a function that is to be made, where Python's code cannot read what it captures."""
    if lowered.yields is not None and lowered.yields.held:
        name = min(lowered.yields.held)
        raise refused(
            lowered,
            span,
            f"it reads {name}, which a function assigns by nonlocal",
            f"give it the value of {name} as an argument",
        )


def handed_on(lowered: Function, span: Span | None) -> UnsupportedError:
    return refused(
        lowered,
        span,
        "it is handed on here",
        "write `for` around its call, or move it out of the function that it stands in",
    )


def refused(lowered: Function, span: Span | None, what: str, instead: str) -> UnsupportedError:
    name = lowered.name.rpartition(".")[2]
    return UnsupportedError(
        Diagnostic(
            f"`yield` is not supported in a function within another, but where that calls it: "
            f"{name}.",
            span,
            what,
            ("Python runs a function that yields, with the variables that it captures.",),
            (f"{instead}; or mark the function that it stands in with {PER_THREAD}.",),
            "yield",
        )
    )
