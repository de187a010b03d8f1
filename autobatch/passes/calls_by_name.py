"""Passes that look at calls, over a program as it stands: what ``autobatch opt`` runs of them.

In: a ``Program``, as lowered or read. Out: one in which calls that are sure to be of its functions
are inlined (``inline_calls``), or turned into jumps where they are a function's own last ones
(``loop_tail_calls``). As for types of calls (``ir.call_types``), names are taken to mean what they
mean now; in a run, the library knows which calls are sure while it lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from autobatch.ir.links import Links, links_of
from autobatch.ir.program import Call, Function, Program
from autobatch.passes.inlining import Callee, inline_calls
from autobatch.passes.tail_calls import loop_tail_calls

Known = Callable[[Call], Callee | None]
CallPass = Callable[[Function, Known], Function]
CALL_PASSES: Mapping[str, CallPass] = {
    "inline_calls": inline_calls,
    "loop_tail_calls": loop_tail_calls,
}
"""By name."""


def with_calls(program: Program, name: str) -> Program:
    """The program after a pass of ``CALL_PASSES``, each of its functions once."""
    links = links_of(program)
    recursive = {each for each in program.functions if each in reached(each, links)}

    def known(caller: str, call: Call) -> Callee | None:
        link = links.get(caller, {}).get(call.callee)
        if link is None:
            return None
        own = name == "loop_tail_calls"
        is_meant = link.function == caller if own else link.function not in recursive
        return Callee(program.functions[link.function], link.receiver) if is_meant else None

    functions = {
        caller: CALL_PASSES[name](function, lambda call, caller=caller: known(caller, call))  # type: ignore[misc]
        for caller, function in program.functions.items()
    }
    return replace(program, functions=functions)


def reached(caller: str, links: Links) -> set[str]:
    """The functions that its calls may come to."""
    found: set[str] = set()
    pending = [caller]
    while pending:
        more = {link.function for link in links.get(pending.pop(), {}).values()} - found
        found |= more
        pending += more
    return found
