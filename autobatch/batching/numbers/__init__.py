"""Python's numbers, one per thread: operators, builtins and ``math`` with a batched form.

In: the name of an operation (an opcode of ``ir.ops``, a builtin's name) or an ``Operation`` that
``lookup`` found, and operands: columns of numbers, and Python numbers for what all threads share.
Out: ``NumberResult`` (see ``records``), a tuple of them for ``divmod`` and its like, or None where
there is no batched form, and the caller goes thread by thread.

Types, values and errors are those of Python for each row, not torch's. ``bounds_of`` and
``forecast`` tell the same without data: a recorded ``apply`` may be replayed on any operands
whose bounds lie within those that it was recorded with.
"""

from __future__ import annotations

from autobatch.batching.numbers.api import Operation, apply, bounds_of, forecast, lookup
from autobatch.batching.numbers.records import Bounds, Number, NumberResult, Outlook
from autobatch.batching.numbers.weak import as_operand, joined_dtype

__all__ = [
    "Bounds",
    "Number",
    "NumberResult",
    "Operation",
    "Outlook",
    "apply",
    "as_operand",
    "bounds_of",
    "forecast",
    "joined_dtype",
    "lookup",
]
