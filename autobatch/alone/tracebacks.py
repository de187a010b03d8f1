"""Where an exception has come about in code that plain Python has run: the calls on the way to it.

In: a traceback from the first call on. Out: the place as a note shows it, with the calls of the
user's functions that lead there, as far as these are one within the other: what a library has
called is the library's.
"""

from __future__ import annotations

import linecache
from itertools import islice
from types import TracebackType

from autobatch.source import PACKAGE, Span, is_of_library, span_at

DEEPEST = 64
"""Calls that are told of; of deeper ones it is the first alone, with what it has called."""


def placed(trace: TracebackType | None, place: Span) -> Span:
    """The innermost place of the user's, called from ``place``, where the first call is."""
    found, depth = place, 0
    while trace is not None:
        code = trace.tb_frame.f_code
        file = code.co_filename
        if file.startswith(PACKAGE) or is_of_library(file):
            break
        positions = next(islice(code.co_positions(), trace.tb_lasti // 2, None))
        inner = span_at(file, positions, linecache.getlines(file))
        depth += 1
        if inner is None or depth > DEEPEST:
            return place
        found, trace = inner.called_from(found), trace.tb_next
    return found
