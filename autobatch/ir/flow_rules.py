"""The verifier's rules of flow: each follows names along the paths of a function.

In: a ``Function`` whose fields have the right Python types and any content. Out: findings as from
``form_rules``. A user's variable may be read where it has no value (that raises
``UnboundLocalError``, as in Python); temporaries, modes and boxes are lowering's own and may not.
A way to a block that is not there ends where it begins: what is found is wrong on the ways that
there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from autobatch.ir.dataflow import (
    liveness,
    op_writes,
    terminator_reads,
    unbound_before,
)
from autobatch.ir.form_rules import Finding, ops_of, terminators_of
from autobatch.ir.printer import HEADER, Place
from autobatch.ir.program import Block, Branch, Function, Op, Terminator, Var

NOWHERE: Any = None
"""What ends a block that leads to no block: it reads nothing."""


def temporaries_defined(function: Function) -> Iterator[Finding]:
    for label, unbound in enumerate(_unbound(function)):
        block = function.blocks[label]
        yield from _undefined(block.ops, block.terminator, (label, 0), unbound)
        other = block.converted
        if other is not None:
            place = (label, len(block.ops) + 2)
            yield from _undefined(other.ops, other.terminator, place, unbound)


def _undefined(
    ops: Sequence[Op], terminator: Terminator, place: Place, unbound: frozenset[Var]
) -> Iterator[Finding]:
    """Temporaries that straight-line code from ``place`` on reads without a value."""
    label, start = place
    for index, op in enumerate(ops, start):
        if not unbound.isdisjoint(op.args):
            yield from _reported((label, index), _temporaries(op.args), unbound)
        unbound = _after(op, unbound)
    reads = _temporaries(terminator_reads(terminator))
    yield from _reported((label, start + len(ops)), reads, unbound)


def modes_defined(function: Function) -> Iterator[Finding]:
    if not any(block.modes for block in function.blocks):
        return
    for label, unbound in enumerate(_unbound(function)):
        block = function.blocks[label]
        yield from _reported((label, -1), block.modes, unbound)


def _temporaries(names: tuple[Var, ...]) -> tuple[Var, ...]:
    return tuple(name for name in names if isinstance(name, str) and name.startswith("%"))


def _reported(place: Place, reads: tuple[Var, ...], unbound: frozenset[Var]) -> Iterator[Finding]:
    for name in dict.fromkeys(reads):
        if name in unbound:
            yield place, f"{name} has no value on some path to here"


def _unbound(function: Function) -> tuple[frozenset[Var], ...]:
    """For each block, the variables without a value at its start on some path from the entry."""
    return unbound_before(known_ways(function), [param.name for param in function.params])


def known_ways(function: Function) -> tuple[Block, ...]:
    """The blocks, without ways to what is no block, and without deleting what nobody can name."""
    labels = range(len(function.blocks))
    return tuple(_with_ways(_without_unknown(block), labels) for block in function.blocks)


def _with_ways(block: Block, labels: range) -> Block:
    if all(at in labels for at in block.successors()):
        return block
    handler, end = block.handler, block.terminator
    if handler is not None and handler.target not in labels:
        handler = None
    known = [at for at in block.targets() if at in labels]
    if isinstance(end, Branch) and known:
        end = replace(end, then=known[0], otherwise=known[-1])
    elif not known and block.targets():
        reads = Op("tuple", (), terminator_reads(end), None, end.span)
        return replace(block, ops=(*block.ops, reads), handler=handler, terminator=NOWHERE)
    return replace(block, handler=handler, terminator=end)


def _after(op: Op, unbound: frozenset[Var]) -> frozenset[Var]:
    if op.name == "delete" and not _deletes_unknown(op):
        return unbound.union(op_writes(op))
    return unbound.difference(op.outs)


def boxes_kept_apart(function: Function) -> Iterator[Finding]:
    """Where a box belongs there is one, and nowhere else: a box is no value of the user's."""
    boxes = {out for _, op in ops_of(function) if op.name in ("box", "free_box") for out in op.outs}
    if not boxes and not any(_box_operands(op) for _, op in ops_of(function)):
        return
    for place, op in ops_of(function):
        count = _box_operands(op)
        for name in op.args[:count]:
            if name not in boxes:
                yield place, f"{op.name} needs a box, and {name} never holds one"
        for name in op.args[count:] if op.name != "box" else ():
            if name in boxes:
                yield place, f"{name} holds a box, which {op.name} cannot take"
    for place, terminator in terminators_of(function):
        for name in terminator_reads(terminator):
            if name in boxes:
                yield place, f"{name} holds a box, which cannot leave by a terminator"


def _box_operands(op: Op) -> int:
    """How many of the first operands are boxes."""
    if op.name == "function" and isinstance(op.attr, Function):
        return len(op.attr.free)
    return 1 if op.name in ("load_box", "load_outer_box", "store_box", "clear_box") else 0


def captures_known(function: Function) -> Iterator[Finding]:
    for place, op in ops_of(function):
        is_free = op.name in ("load_free", "free_box") and isinstance(op.attr, str)
        if is_free and op.attr not in function.free:
            yield place, f"{op.attr} is not among the function's captured variables"


def nested_functions_fit(function: Function) -> Iterator[Finding]:
    for place, op in ops_of(function):
        if op.name != "function" or not isinstance(op.attr, Function):
            continue
        if not any(op.attr is nested for nested in function.nested):
            yield place, f"{op.attr.name} is not among the nested functions"
        boxes, defaults = len(op.attr.free), sum(p.has_default for p in op.attr.params)
        if len(op.args) != boxes + defaults:
            wanted = f"{boxes} boxes and {defaults} defaults"
            yield place, f"{op.attr.name} takes {wanted}, not {len(op.args)} operands"


def liveness_covered(function: Function) -> Iterator[Finding]:
    if not function.live_in or any(_deletes_unknown(op) for _, op in ops_of(function)):
        return
    if len(function.live_in) != len(function.blocks):
        yield (
            HEADER,
            f"live_in has {len(function.live_in)} sets, one a block is {len(function.blocks)}",
        )
        return
    for label, live in enumerate(liveness(known_ways(function))):
        missing = sorted(map(str, live - function.live_in[label]))
        if missing:
            yield (label, -1), f"live_in lacks {', '.join(missing)}"


def _without_unknown(block: Block) -> Block:
    if not any(map(_deletes_unknown, block.ops)):
        return block
    kept = tuple(op for op in block.ops if not _deletes_unknown(op))
    return replace(block, ops=kept)


def _deletes_unknown(op: Op) -> bool:
    """Whether it takes the value of a variable that nobody can name."""
    return op.name == "delete" and not isinstance(op.attr, str)
