"""Which functions of the program's own captured variables are sure to name.

In: a lowered function. Out: for each function defined in it, however deep, the captured variables
that hold one function only, and which: those that one ``def`` or lambda alone assigns; and, of one
function, all variables that do (``calls_of``). Nothing else can assign them, since what
``nonlocal`` assigns is held in a list (``frontend.scope``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autobatch.ir.program import Call, Function, Op, Var

Captures = Mapping[str, Function]
Calls = Mapping[Var, Function]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Nested:
    """A function that a program defines, in the namespace of its module."""

    function: Function
    namespace: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is Nested
            and self.function is other.function
            and self.namespace is other.namespace
        )

    def __hash__(self) -> int:
        return hash((id(self.function), id(self.namespace)))


def captures(
    function: Function, own: Captures | None = None
) -> Iterator[tuple[Function, Captures]]:
    """Each function defined in one, with what its captured variables name; ``own`` are its own."""
    ops = [op for block in function.blocks for op in block.ops]
    outs = Counter(out for op in ops for out in op.outs)
    assigned = {out: op for op in ops for out in op.outs if outs[out] == 1}
    boxes = boxed_functions(ops, assigned, own or {})
    for op in ops:
        if op.name == "function":
            inner: Function = op.attr
            names = zip(inner.free, op.args, strict=False)
            found = {name: boxes[box] for name, box in names if box in boxes}
            yield inner, found
            yield from captures(inner, found)


def boxed_functions(
    ops: list[Op], assigned: Mapping[Var, Op], own: Captures
) -> dict[Var, Function]:
    """The boxes that hold one function, and no other, ever."""
    stores: dict[Var, list[Op | None]] = {}
    for op in ops:
        if op.name == "box" and op.args:
            stores.setdefault(op.outs[0], []).append(assigned.get(op.args[0]))
        elif op.name == "store_box":
            stores.setdefault(op.args[0], []).append(assigned.get(op.args[1]))
    found = {op.outs[0]: own[op.attr] for op in ops if op.name == "free_box" and op.attr in own}
    for box, values in stores.items():
        value = values[0]
        if len(values) == 1 and value is not None and value.name == "function":
            found[box] = value.attr
    return found


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
