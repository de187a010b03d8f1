"""What a program may not hold: one table from construct to the user's name for it and advice.

In: a syntax node (or the name of a construct that no single node stands for) and its span.
Out: the ``UnsupportedError`` to raise. A node class that is in no table of the lowering and not
here is refused by ``UNKNOWN``.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from autobatch.errors import Diagnostic, SharedWriteError, UnsupportedError
from autobatch.source import Span


@dataclass(frozen=True, slots=True)
class Refusal:
    """``name`` is what the user calls the construct; ``why`` and ``instead`` are full sentences."""

    code: str
    name: str
    why: str
    instead: str


_YIELD = Refusal(
    "yield",
    "`yield`",
    "A program runs to its end for every thread. Python runs a function that yields where it only "
    "computes: it writes nothing that it is given or that existed before, draws nothing that "
    "randomness refuses, and calls what is known.",
    "go through what it gives in a function (`for v in f(x)`), which is batched; or collect the "
    "values in a list, and return it; or mark the function that makes and reads the generator with "
    "autobatch.per_thread: it runs example by example.",
)
_ASYNC = Refusal(
    "async",
    "`async` and `await`",
    "Threads of a batch are run by autobatch, not by an event loop.",
    "write an ordinary function, and do the waiting before the batch.",
)
_TRY_STAR = Refusal(
    "except-star",
    "`except*`",
    "A thread raises one exception, not a group of them.",
    "write `except`, or put the `try` into a function marked @autobatch.per_thread.",
)
_CLASS = Refusal(
    "class",
    "`class`",
    "Each thread would define a class of its own.",
    "define the class at module level.",
)
_TYPE_ALIAS = Refusal(
    "type-alias",
    "a `type` statement",
    "A type alias has no use inside a program.",
    "move it to module level.",
)

REFUSED: dict[type[ast.AST], Refusal] = {
    ast.Yield: _YIELD,
    ast.YieldFrom: _YIELD,
    ast.Await: _ASYNC,
    ast.AsyncFunctionDef: _ASYNC,
    ast.AsyncFor: _ASYNC,
    ast.AsyncWith: _ASYNC,
    ast.TryStar: _TRY_STAR,
    ast.ClassDef: _CLASS,
    **({ast.TypeAlias: _TYPE_ALIAS} if hasattr(ast, "TypeAlias") else {}),
}

UNKNOWN = Refusal(
    "unknown-construct",
    "this construct",
    "autobatch does not know it.",
    "move it into a function marked @autobatch.per_thread.",
)
GLOBAL_WRITE = Refusal(
    "global-write",
    "assignment to a `global` name",
    "All threads share the module's globals, so the threads' writes would overwrite each other.",
    "keep the value in a local variable, and return it.",
)
NONLOCAL_WRITE = Refusal(
    "nonlocal-write",
    "assignment to a `nonlocal` name",
    "The variable belongs to a call that began before the program.",
    "return the new value, or keep it in a list or dict that the program makes.",
)
NONLOCAL_UNSET = Refusal(
    "nonlocal-unset",
    "a `nonlocal` name that may have no value",
    "What nested functions assign needs a value before they are called, and keeps one.",
    "give it a value before the nested function is defined, and write None in the place of `del` "
    "or of the name in `except … as`.",
)
KEPT_WALRUS = Refusal(
    "kept-walrus",
    "`:=` in a generator expression that is kept",
    "Its items are made later, where it can set no variable of the function.",
    "make a list (`[... for ...]`), or take the items where it stands (`sum(... for ...)`).",
)
SHARED_WRITE = Refusal(
    "shared-write",
    "a write to an object that existed before the call",
    "All threads share it, so the threads' writes would overwrite each other.",
    "make a copy inside the program and change that, or return the new value; "
    'stateful="sequential" runs the threads one after the other.',
)


def shared_attribute(name: str) -> Refusal:
    """The same of ``object.name = …``, which often holds what one call needs."""
    local = f"keep it in a local variable (`{name} = …`) if only this call reads it; else "
    return replace(SHARED_WRITE, instead=local + SHARED_WRITE.instead)


# fmt: off
SHARED_WRITES = frozenset(
    [
        "add_", "sub_", "subtract_", "mul_", "multiply_", "fill_", "zero_", "copy_",
        "index_add_", "index_put_", "scatter_add_", "scatter_reduce_",
    ]
)
# fmt: on
"""Methods that may write a tensor from before the call: what is written is decided as it runs."""
FRAME_ACCESS = Refusal(
    "frame-access",
    "reading or running code in the current frame",
    "A program's variables are not those of a Python frame.",
    "name the variables that you need.",
)


MODE_SWITCH = Refusal(
    "mode-switch",
    "a mode of torch's that is switched other than by a `with` statement",
    "All threads run under it, those too that have not come there.",
    "write the `with` statement of the mode itself, `with torch.set_grad_enabled(flag):`, or set "
    "the mode before the call.",
)


def unsupported(refusal: Refusal, span: Span, label: str = "") -> UnsupportedError:
    """The error for ``refusal``, its caret at ``span``."""
    kind = SharedWriteError if refusal.code == SHARED_WRITE.code else UnsupportedError
    headline = f"{refusal.name[:1].upper()}{refusal.name[1:]} is not supported in a program."
    if refusal is _ASYNC:
        headline = "`async` and `await` are not supported in a program."
    return kind(Diagnostic(headline, span, label, (refusal.why,), (refusal.instead,), refusal.code))


def refuse_node(node: ast.AST, span: Span) -> UnsupportedError:
    """The error for a node that no rule of the lowering takes."""
    return unsupported(REFUSED.get(type(node), UNKNOWN), span)
