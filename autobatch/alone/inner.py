"""Which nested functions the variables of a program are sure to name.

In: a function, and a variable that it calls. Out: the function that this names, where one ``def``
or lambda alone makes it (``vm.nested``); None for all others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from autobatch.ir.program import Function, Var
from autobatch.vm.nested import Calls, Captures, calls_of, captures


@dataclass(slots=True, eq=False, repr=False)
class Inner:
    """``own`` has what the captured variables of each function name, ``found`` what it calls."""

    own: dict[int, Captures] = field(default_factory=dict)
    found: dict[int, tuple[Function, Calls]] = field(default_factory=dict)

    def named(self, function: Function, name: Var) -> Function | None:
        known = self.found.get(id(function))
        if known is None:
            if id(function) not in self.own:
                self.own.update((id(each), names) for each, names in captures(function))
            known = (function, calls_of(function, self.own.get(id(function), {})))
            self.found[id(function)] = known
        return known[1].get(name)
