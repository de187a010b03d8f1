"""What a group has to run when it joins: its *entries*, in program order.

An entry is a forked call, a container of its parameters' cells that stands where its result is to
be, or a deferred operation, a container of its operands and of what stands for its outs. They are
cells of the group, so they move with its threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autobatch.ir.program import Op
from autobatch.values.cells import CLOSURE, DEFERRAL, FORK, PENDING, Cell, Container
from autobatch.values.heap import copying, walks
from autobatch.values.heap.walks import REFERRING
from autobatch.vm.calling import relinked
from autobatch.vm.groups import FORKED, Group


def is_pending(cell: Cell) -> bool:
    """Whether it is a result yet to come, or a list or tuple that holds one."""
    if type(cell.value) is not Container:
        return False
    return any(
        type(part.value) is Container and part.value.type in (FORK, PENDING)
        for part in walks.parts(cell, is_no_sequence)
    )


def is_no_sequence(value: Container) -> bool:
    return value.type not in (list, tuple)


def is_forked(cell: Cell) -> bool:
    return type(cell.value) is Container and cell.value.type is FORK


def is_branch(op: Op, operands: Sequence[Cell]) -> bool:
    """Whether a deferred operation is a branch that was taken out: no other calls a function."""
    callee = operands[0].value if op.name == "call" else None
    return type(callee) is Container and callee.type is CLOSURE


def remember(group: Group, cell: Cell) -> None:
    """Add to what a group has to run when it joins."""
    held = group.env.get(FORKED)
    if held is None:
        group.env[FORKED] = held_entries([cell])
        return
    before = held.value
    assert type(before) is Container
    defers = before.static or is_deferred(cell)
    group.env[FORKED] = Cell(Container(tuple, [*before.children(), cell], defers))


def held_entries(cells: list[Cell]) -> Cell:
    """What holds a group's entries, and says whether deferred operations are among them."""
    return Cell(Container(tuple, cells, any(map(is_deferred, cells))))


def is_deferred(cell: Cell) -> bool:
    return type(cell.value) is Container and cell.value.type is DEFERRAL


def has_deferred(group: Group) -> bool:
    """Whether operations are deferred, and not only calls noted."""
    held = group.env[FORKED].value
    return type(held) is Container and held.static is True


def entries(group: Group) -> list[tuple[Cell, Container]]:
    """A group's forked calls and deferred operations, in program order."""
    held = group.env[FORKED].value
    assert type(held) is Container
    return [(cell, cell.value) for cell in held.children()]  # type: ignore[misc]


def operands_of(entry: Container, known: dict[int, Cell]) -> list[Cell]:
    """The operands of a deferred operation, with what is known of them."""
    cells = list(entry.children())
    return [relinked(cell, known, {}) for cell in cells[: len(entry.static.args)]]


def without_entries(group: Group, known: dict[int, Cell]) -> Group:
    """The group with cells in place of those that stood for them; nothing is left to join."""
    env = relinked_env(group, known, {})
    return Group(group.rows, env, group.checks, group.ways, group.pending)


def with_entries(group: Group, known: dict[int, Cell], rest: Sequence[Cell]) -> Group:
    """The same, with what is left to run."""
    memo: dict[int, Cell] = {}
    kept = held_entries([relinked(cell, known, memo) for cell in rest])
    env = relinked_env(group, known, memo)
    env[FORKED] = kept
    return Group(group.rows, env, group.checks, group.ways, group.pending)


def relinked_env(group: Group, known: dict[int, Cell], memo: dict[int, Cell]) -> dict[str, Cell]:
    """What a group's variables hold, but for its entries."""
    return {
        name: relinked(cell, known, memo) if type(cell.value) in REFERRING else cell
        for name, cell in group.env.items()
        if name != FORKED
    }


def snapshot(cells: Any) -> list[Cell]:
    """Cells as they are now, whatever their group changes until the join."""
    return copying.duplicated(list(cells))
