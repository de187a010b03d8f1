"""Operations that begin an update of a shared tensor: put off until it is written.

In: an operation that ``passes.updates`` has found, and its operands. Out: a cell that stands for
its result, ``PLACE`` or ``UPDATE``; None where no shared tensor is to be written, and it runs as
any other.
"""

from __future__ import annotations

from autobatch.batching import semantics
from autobatch.batching.calling import resolving
from autobatch.batching.context import Context
from autobatch.batching.effects import belongs_to_torch
from autobatch.batching.shared.merging import NEGATIVE, RULES, Merge, bare, shared_tensor
from autobatch.batching.trace import Untraceable
from autobatch.ir.program import Op
from autobatch.values.cells import PLACE, UPDATE, Cell, Container


def put_off(context: Context, op: Op, cells: list[Cell]) -> Cell | None:
    made = place(cells) if op.name == "getitem" else update(op, cells)
    if made is not None and context.forecasts is not None:
        raise Untraceable("it writes to what all threads share")
    return made


def place(cells: list[Cell]) -> Cell | None:
    base, index = cells
    tensor = shared_tensor(base)
    return None if tensor is None else Cell(Container(PLACE, [index], tensor))


def update(op: Op, cells: list[Cell]) -> Cell | None:
    """A sum, a product, a maximum of a shared tensor and something."""
    if op.name == "call":
        if not op.attr.is_plain or op.attr.keywords:
            return None
        target = resolving.resolve(cells[0], cells[1:], {})
        if target.effect != "torch" or not belongs_to_torch(target.callee):
            return None
        function, cells = target.callee, target.args
    else:
        function = semantics.SEMANTICS[op.name]
    if len(cells) != 2 or bare(function) not in RULES:
        return None
    tensors = [shared_tensor(cell) for cell in cells]
    if tensors[0] is not None:
        return Cell(Container(UPDATE, [cells[1]], Merge(function, tensors[0])))
    if tensors[1] is not None and bare(function) not in NEGATIVE:
        return Cell(Container(UPDATE, [cells[0]], Merge(function, tensors[1], swapped=True)))
    return None
