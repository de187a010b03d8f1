"""Errors about what all threads share: writes that no reduction stands for, reads that come late.

Each names the place and what to write instead.
"""

from __future__ import annotations

from autobatch.batching.contributions import SIGNS, Rule, Written
from autobatch.errors import Diagnostic, SharedWriteError, UnsupportedError
from autobatch.source import Span

ONE_BY_ONE = 'stateful="sequential" runs the threads one after the other.'
REDUCED = (
    "`+=`, `-=`, `*=`, `t[i] += x`, `t.copy_(torch.maximum(t, x))` and the like, of what each "
    "thread has, are reduced over the threads; "
)
RETURN_IT = (
    f"pass it as an argument and return the new value, or write to a copy of it; {ONE_BY_ONE}"
)
SHARED = "all threads share it, so there is no one order in which they would write it."
OWN = (
    "it is the caller's, who would see the change, and so would whatever else refers to it, other "
    "threads' objects too; they run side by side."
)
OUT_OF_DERIVATIVES = (
    "return the value, with has_aux=True from a function that is differentiated, and write it "
    "outside of that function."
)
ATTRIBUTES = {
    "data": "write the values, `with torch.no_grad(): y.copy_(v)`, or name another: `y = v`.",
    "requires_grad": "call `y.requires_grad_()`, or differentiate by `autobatch.grad`.",
    "grad": "differentiate by `autobatch.grad`, which returns gradients.",
}
OF_TENSORS = f"{REDUCED}else return the value, or write to a copy; {ONE_BY_ONE}"


COPY_IT = (
    "write to a copy of it, made by copy.copy or copy.deepcopy in the program, or return the new "
    f"value; {ONE_BY_ONE}"
)


def written(
    span: Span | None, what: str, hint: str = RETURN_IT, note: str = SHARED
) -> SharedWriteError:
    """A write to what existed before the call."""
    return SharedWriteError(
        Diagnostic(
            f"A program writes to {what} that existed before the call.",
            span,
            "written here",
            (note,),
            (hint,),
            "shared-write",
        )
    )


def of_exception(span: Span | None, what: str) -> SharedWriteError:
    """A program raises an exception that existed before, which gets another cause or context."""
    return SharedWriteError(
        Diagnostic(
            f"A program gives another {what} to an exception that existed before the call.",
            span,
            "raised here",
            (SHARED,),
            (f"raise a new one (`raise KeyError(name)`); {ONE_BY_ONE}",),
            "shared-write",
        )
    )


def finalized(span: Span | None, kind: type) -> UnsupportedError:
    """A program makes an instance of a class with a ``__del__``."""
    return UnsupportedError(
        Diagnostic(
            f"A program makes an instance of {kind.__qualname__}, which has a __del__.",
            span,
            "made here",
            (
                "when it would run is not said in the program: the instances of all threads live "
                "together.",
            ),
            (
                "write a manager (`__enter__` and `__exit__`) and use it in a `with` statement, or "
                "mark the function that uses it `autobatch.per_thread`.",
            ),
            "finalizer",
        )
    )


def tensor_attribute(span: Span | None, name: str) -> UnsupportedError:
    """A program sets an attribute of a tensor of its own."""
    return UnsupportedError(
        Diagnostic(
            f"A program sets .{name} of a tensor.",
            span,
            "set here",
            ("of a batched tensor there is one for all threads, which has no such attribute.",),
            (ATTRIBUTES.get(name, "keep what belongs to it in a variable of its own."),),
            "tensor-attribute",
        )
    )


def read_late(span: Span | None, before: Written) -> SharedWriteError:
    """A thread reads what it has written; without a place where it returns it."""
    return SharedWriteError(
        Diagnostic(
            "A program reads a tensor from before the call after it has written to it.",
            span or before.span,
            "read here" if span else "written here, and returned",
            (
                f"{place(before.span, span)} it is {SIGNS[before.rule]}: what all threads give is "
                "applied when the call is over, and until then it is as it was.",
            ),
            (f"read it before the write, or keep what is read in a variable; {ONE_BY_ONE}",),
            "shared-read",
        )
    )


def two_ways(span: Span | None, rule: Rule, anew: bool, before: Written) -> SharedWriteError:
    """A tensor is written in ways of which the order matters."""
    how = "here another one takes its place" if anew else f"here it is {SIGNS[rule]}"
    earlier = "another one takes its place" if before.anew else f"it is {SIGNS[before.rule]}"
    return SharedWriteError(
        Diagnostic(
            "A program writes in two ways to a tensor that existed before the call.",
            span,
            how,
            (
                f"{place(before.span, span)} {earlier}: the result would depend on the order of "
                "the threads.",
            ),
            (f"write to two tensors, and put them together after the call; {ONE_BY_ONE}",),
            "shared-write",
        )
    )


def own_value(span: Span | None) -> SharedWriteError:
    """Each thread assigns a value of its own."""
    return SharedWriteError(
        Diagnostic(
            "A program assigns each thread's own value to what existed before the call.",
            span,
            "assigned here",
            ("one of the values would be left, by the order of the threads.",),
            (OF_TENSORS,),
            "shared-write",
        )
    )


def differing(span: Span | None) -> SharedWriteError:
    """Threads assign different values, each of them to all."""
    return SharedWriteError(
        Diagnostic(
            "Threads assign different values to what existed before the call.",
            span,
            "one of them is assigned here",
            ("one of the values would be left, by the order of the threads.",),
            (OF_TENSORS,),
            "shared-write",
        )
    )


def place(span: Span | None, here: Span | None) -> str:
    if span is None:
        return "before that"
    file = f" of {span.file}" if here is not None and here.file != span.file else ""
    return f"in line {span.line}{file}"
