"""What deferred operations write: whether it can wait for a join, or others would see it unwritten.

In: a deferred operation that a group with forked calls comes to. Out: whether it may wait. It may
if it writes nothing, or a value such as a number, which nobody can write; or else if what it writes
has no other name. By that name threads come to it only once they have joined (see
``passes.fork_calls``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from types import BuiltinMethodType, NoneType
from typing import Any

from torch import Tensor

from autobatch.batching.effects import effect_of
from autobatch.batching.foreign import Foreign, parts
from autobatch.batching.operations import CAPTURED
from autobatch.ir.ops import INPLACE
from autobatch.ir.program import Op
from autobatch.passes.forked_results import STORING
from autobatch.structure import own_attribute
from autobatch.values.cells import (
    DEFERRAL,
    FORK,
    METHOD,
    PENDING,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    Value,
    ties_of,
)
from autobatch.values.heap import walks
from autobatch.vm.code import Code
from autobatch.vm.forks.pending import entries
from autobatch.vm.groups import CARRIED, FORKED, Group

VALUES = frozenset([int, float, bool, complex, str, bytes, NoneType, tuple, frozenset, range])
CONTAINERS = (list, dict, set)
ITERATORS = frozenset(map(type, (iter([]), iter(()), reversed([]))))
MOST_PARTS = 10_000
"""Lists and the like that are looked at for what they hold."""


def may_wait(code: Code, pc: int, op: Op, env: Mapping[str, Cell], foreign: Foreign) -> bool:
    """Whether an operation of a block can be deferred, for what it writes."""
    name, _ = op.attr
    if name in INPLACE or name == "setitem":
        return is_alone(code, pc, op, op.args[0], env[op.args[0]], env, foreign)
    definition = code.definitions.get(op.args[0]) if name == "call" else None
    if definition is None or definition.name != "getattr" or definition.attr not in STORING:
        return True
    method = env[op.args[0]].value
    if type(method) is Container and method.type is METHOD:
        (receiver, *_) = method.children()
        own = is_made(receiver)
        return own and is_alone(code, pc, op, definition.args[0], receiver, env, foreign)
    bound = getattr(method, "obj", None)  # ``torch.add`` writes nothing
    return effect_of(bound) == "torch" and not isinstance(bound, BuiltinMethodType)


def is_behind(group: Group, op: Op, operands: Sequence[Cell]) -> bool:
    """Whether an operation comes after what a group has noted, for what one of them writes."""
    if FORKED not in group.env:
        return False
    if written(op, operands) is not None:
        return True
    noted = [entry for _, entry in entries(group) if entry.type is DEFERRAL]
    targets = [written(entry.static, list(entry.children())) for entry in noted]
    found = {id(target) for target in targets if target is not None}
    return bool(found) and any(id(cell) in found for cell in walks.reached(operands))


def written(op: Op, operands: Sequence[Cell]) -> Cell | None:
    """What an operation writes that can be written, if anything."""
    if op.name in INPLACE or op.name == "setitem":
        return None if is_value(operands[0].value) else operands[0]
    method = operands[0].value if op.name == "call" else None
    if type(method) is not Container or method.type is not METHOD:
        return None
    (receiver, *_) = method.children()
    name = own_attribute(method.static, "__name__", "")
    return receiver if name in STORING and is_made(receiver) else None


def is_made(cell: Cell) -> bool:
    return type(cell.value) is Container and cell.value.type in CONTAINERS


def is_alone(
    code: Code,
    pc: int,
    op: Op,
    name: str,
    target: Cell,
    env: Mapping[str, Cell],
    foreign: Foreign,
) -> bool:
    """Whether what a variable names cannot be written, or is named by no other that is needed."""
    value = target.value
    if is_value(value) or (type(value) is Container and value.type in (FORK, PENDING)):
        return True
    if not is_own(target, foreign) or ties_of(target):
        return False
    later = code.after(pc, op).difference((name, *op.outs)) | {CARRIED, CAPTURED}
    others = list(walks.reached(env[other] for other in later if other in env))
    if any(cell is target for cell in others):
        return False
    if type(value) is not Objects or value.lists is not None:
        return True
    return not may_hold(others, set(map(id, value.items)), foreign)


def is_own(target: Cell, foreign: Foreign) -> bool:
    """Whether the program has made what is written, and names for it are cells that hold it."""
    value = target.value
    if type(value) is Column:
        return value.outside is False
    if type(value) is Uniform:
        return not value.shared
    if type(value) is not Objects:
        return is_made(target)
    if value.lists is not None:
        return True
    return value.kinds <= set(CONTAINERS) and not any(map(foreign.holds, value.items))


def may_hold(cells: Iterable[Cell], wanted: Set[int], foreign: Foreign) -> bool:
    """Whether objects in cells may be, or hold, some objects of the program's own."""
    waiting: list[Any] = []
    seen: set[int] = set()
    for cell in cells:
        if type(cell.value) is Objects and cell.value.lists is None:
            waiting += cell.value.items
        elif type(cell.value) is Uniform and not cell.value.shared:
            waiting.append(cell.value.obj)
    while waiting:
        item = waiting.pop()
        if id(item) in wanted or len(seen) > MOST_PARTS:
            return True
        if type(item) in (tuple, frozenset, *CONTAINERS):
            waiting += parts(item) if id(item) not in seen else []
            seen.add(id(item))
        elif type(item) in ITERATORS:
            waiting += item.__reduce__()[1]
        elif type(item) not in (Tensor, *VALUES) and not foreign.holds(item):
            return True
    return False


def is_value(value: Value) -> bool:
    """Whether it is nothing that can be written."""
    if type(value) is Column:
        return value.tag != "tensor"
    if type(value) is Uniform:
        return type(value.obj) in VALUES
    if type(value) is Objects:
        return value.kinds <= VALUES
    return type(value) is Container and value.type is tuple
