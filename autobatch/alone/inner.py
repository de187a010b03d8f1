"""Which nested functions the variables of a program are sure to name.

In: a function, and a variable that it calls. Out: the function that this names, where one ``def``
or lambda alone makes it (``vm.nested``); None for all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from autobatch.ir.program import Call, Function, Op, Var
from autobatch.vm.nested import Captures, boxed_functions, captures

Calls = Mapping[Var, Function]


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


def calls_of(function: Function, own: Captures) -> Calls:
    """The variables that hold one nested function and nothing else."""
    ops = [op for block in function.blocks for op in block.ops]
    outs = Counter(out for op in ops for out in op.outs)
    outs.update(param.name for param in function.params)
    outs.update(b.terminator.out for b in function.blocks if isinstance(b.terminator, Call))
    assigned: dict[Var, Op] = {out: op for op in ops for out in op.outs if outs[out] == 1}
    boxes = boxed_functions(ops, assigned, own)
    found: dict[Var, Function] = {}
    for out, op in assigned.items():
        if op.name == "function":
            found[out] = op.attr
        elif op.name == "load_box" and op.args[0] in boxes:
            found[out] = boxes[op.args[0]]
        elif op.name in ("load_free", "load_outer_box") and op.attr in own:
            found[out] = own[op.attr]
    return found
