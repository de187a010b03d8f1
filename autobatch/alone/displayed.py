"""Displays that a function makes to return them: ``return loss, path``.

In: a function as lowered. Out: those of its operations that make a tuple, list or dict that goes
nowhere but into what the function returns. Where nothing in the program calls it, what it puts into
them comes out of no container: ``return x * 2, word`` puts no tensor where ``self.text`` may be.
"""

from __future__ import annotations

from collections import defaultdict

from autobatch.ir.dataflow import op_reads, terminator_reads
from autobatch.ir.program import Function, Op, Return, Var

DISPLAYS = frozenset({"tuple", "list", "dict"})
HANDS_ON = DISPLAYS | {"copy"}


def only_returned(function: Function) -> frozenset[int]:
    """The identities of the operations whose displays are only returned."""
    users: defaultdict[Var, list[Op | None]] = defaultdict(list)
    """None: something else than a display has it."""
    returned: set[Var] = set()
    for block in function.blocks:
        for op in block.ops:
            for name in op_reads(op):
                users[name].append(op if op.name in HANDS_ON else None)
        end = block.terminator
        for name in terminator_reads(end):
            if isinstance(end, Return):
                returned.add(name)
            else:
                users[name].append(None)
    names = {out for b in function.blocks for op in b.ops if op.name in HANDS_ON for out in op.outs}
    before = len(names) + 1
    while len(names) < before:  # the greatest set that bears itself out
        before = len(names)
        names = {
            name
            for name in names
            if (name in returned or users[name])
            and all(op is not None and names.issuperset(op.outs) for op in users[name])
        }
    return frozenset(
        id(op)
        for block in function.blocks
        for op in block.ops
        if op.name in DISPLAYS and names.issuperset(op.outs)
    )
