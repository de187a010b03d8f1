"""Telling apart, operation by operation, what a stretch runs on the host and what it batches.

An ``Outline`` takes operations until one does not fit: one with effects, on objects, or one that
writes a variable which an earlier batched operation reads or writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from autobatch.batching import operations
from autobatch.batching.calling.modules import writes_argument
from autobatch.batching.containers.callees import inplace_position, is_hashable
from autobatch.batching.containers.in_step import begun
from autobatch.batching.context import Context
from autobatch.batching.effects import MUTATING_METHODS, belongs_to_torch, effect_of
from autobatch.batching.objects.attributes import is_stored, part_of
from autobatch.batching.operations import Env, Scope
from autobatch.batching.seldom_draws import may_draw
from autobatch.batching.stretches.contents import is_plain_module
from autobatch.batching.stretches.stores import Stores, has_items
from autobatch.batching.submodules import parts_of
from autobatch.batching.updates import is_updating
from autobatch.ir.ops import BINARY, COMPARE, HOST, INPLACE, PURE, RECORDED, UNARY, WRITES
from autobatch.ir.program import Op
from autobatch.structure import own_attribute
from autobatch.transforms.records import GRADIENTS, Transform, derives
from autobatch.values.cells import (
    BOX,
    CLOSURE,
    METHOD,
    Cell,
    Column,
    Container,
    Mark,
    Objects,
    Uniform,
    View,
    is_number,
    read,
    uniform,
)

ARITHMETIC = frozenset({"copy", *UNARY, *BINARY, *INPLACE, *COMPARE})
"""Operations that make numbers of numbers."""


@dataclass(slots=True, eq=False, repr=False)
class Outline:
    """Takes operations one by one, as host or batched, and runs the host ones on a copy.

    ``kinds`` are of what each host operation gives that is structural: what comes after is told
    apart by them.
    """

    scope: Scope
    context: Context
    env: Env
    host: list[Op] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    batched: list[Op] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    constants: dict[str, Cell] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    settled: set[str] = field(default_factory=set)
    numbers: set[str] = field(default_factory=set)
    stores: Stores = field(default_factory=Stores)
    writes: bool = False
    calls_write: bool = False
    """A call may have written a tensor that the program has made, or what that is a part of."""
    methods: dict[str, str] = field(default_factory=dict)

    def take(self, op: Op) -> bool:
        """Whether the operation fits into the stretch."""
        if op.name == "setattr" or self.stores_item(op):
            return self.stores.take(op, self.env, self.made, self.reads, self.constants)
        seen = self.stores.seen(op, self.env, self.made, self.constants)
        return seen is not None and self.taken(seen)

    def stores_item(self, op: Op) -> bool:
        """Whether it gives a list or dict that was there before another item."""
        if op.name != "setitem" or op.args[0] in self.made or op.args[0] not in self.env:
            return False
        return has_items(self.env[op.args[0]].value)

    def taken(self, op: Op) -> bool:
        """Whether an operation that writes no attribute does."""
        if op.name == "const":
            return self.constant(op)
        if any(arg in self.made for arg in op.args):
            return self.batch(op)
        if not all(arg in self.env for arg in op.args):
            return False
        cells = [self.env[arg] for arg in op.args]
        if op.name == "getattr" and has_stored(cells[0], op.attr):
            return self.run(op, cells)
        structural = is_structural(op, cells)
        if (structural and op.name == "getattr") or op.name == "iter":
            return self.run(op, cells, True)
        if any(has_objects(cell) for cell in cells):
            return False
        if structural or all(is_uniform(cell) for cell in cells):
            return self.run(op, cells, structural)
        return self.batch(op)

    def constant(self, op: Op) -> bool:
        name = op.outs[0]
        if name in self.touched or name in self.settled:
            return False
        self.constants[name] = self.env[name] = uniform(op.attr)
        return True

    def run(self, op: Op, cells: list[Cell], structural: bool = False) -> bool:
        """Run it on the host; no write of a recording's changes what is ``structural``."""
        if any(out in self.constants for out in op.outs):
            return False
        pure = op.name in HOST or (op.name in INPLACE and is_uniform_number(cells[0]))
        if op.name == "iter":
            pure = begun(cells[0]) is not None
        if op.name == "call":
            pure = is_pure_call(read(cells[0])) and not self.may_write(op)
        if not pure or self.touched & set(op.outs) or (self.writes and cells and not structural):
            return False
        if self.calls_write and any(map(may_be_written, cells)):
            return False
        try:
            operations.execute(self.context, self.scope, op, self.env)
        except Exception:
            return False
        self.settled.update(op.args, op.outs)
        self.host.append(op)
        self.kinds.append(kinds_of(op, self.env) if structural else "")
        return True

    def batch(self, op: Op) -> bool:
        if op.name not in PURE and op.name not in WRITES and op.name != "call":
            return False
        known = op.name == "call" and op.args[0] not in self.made
        if known and not is_traceable_call(read(self.env[op.args[0]])):
            return False
        given = [arg for arg in op.args if arg not in self.made and arg not in self.constants]
        if any(kind_of(self.env.get(arg)) in "oO-" for arg in given):
            return False  # nothing in a signature tells what is in them
        self.reads += [arg for arg in dict.fromkeys(given) if arg not in self.reads]
        if any(out in self.constants for out in op.outs):
            return False
        if op.name in ARITHMETIC and all(map(self.is_number, op.args)):
            self.numbers.update(op.outs)
        else:
            self.numbers.difference_update(op.outs)
            self.writes = self.writes or op.name in WRITES
        if op.name == "call":
            self.calls_write = self.calls_write or self.may_write(op)
        elif op.name == "getattr":
            self.methods[op.outs[0]] = op.attr
        self.touched.update(op.args, op.outs)
        self.made.update(op.outs)
        self.batched.append(op)
        return True

    def may_write(self, op: Op) -> bool:
        """Whether a call may write to an operand, or to what that is a part of."""
        keywords, positional = op.attr.keywords, op.attr.positional
        if any(name in (None, "out", "inplace") for name in keywords):
            return True
        if op.args[0] in self.made:
            name = self.methods.get(op.args[0], "")
            return not name or name.endswith("_") or name in MUTATING_METHODS
        value = read(self.env[op.args[0]])
        if type(value) is Container and is_gradient(value):
            return False
        callee = value.static if type(value) is Container else value.obj  # type: ignore[union-attr]
        if isinstance(callee, torch.nn.Module):
            return writes_argument(callee)
        if effect_of(callee) in ("write", "program"):
            return True
        place = inplace_position(callee) if is_hashable(callee) else None
        is_given = place is not None and (any(positional) or len(positional) > place)
        return is_given or is_updating(callee)

    def is_number(self, name: str) -> bool:
        """Whether a variable is sure to hold numbers, which no operator writes to."""
        if name in self.made:
            return name in self.numbers
        return is_number_cell(self.env[name])


def is_structural(op: Op, cells: list[Cell]) -> bool:
    """Whether it reads the structure of a container only: no thread's own value, so no tensor.

    On the host it keeps all else that is in it from being an input of the recording.
    """
    base = cells[0].value if cells else None
    if type(base) is not Container:
        return False
    if op.name == "getattr":
        return base.type in (list, dict, set, tuple) or part_of(base, op.attr) is not None
    if op.name == "unpack":
        fits = len(base.cells) == len(op.outs) and not op.attr.starred
        return base.type in (list, tuple) and fits
    key = cells[1].value if op.name == "getitem" and base.type in (list, tuple, dict) else None
    return type(key) is Uniform and type(key.obj) in (int, bool, str)


def may_be_written(cell: Cell) -> bool:
    """Whether a recording may write to it: a tensor of the program's own, or what has one."""
    value = read(cell)
    if type(value) is Uniform:
        return isinstance(value.obj, torch.Tensor) and not value.shared
    return True


def has_stored(cell: Cell, name: str) -> bool:
    """Whether an attribute of the threads' objects is only looked up: no code of theirs runs."""
    value = cell.value
    if type(value) is not Objects or value.lists is not None:
        return False
    return all(is_stored(kind, name) for kind in set(map(type, value.items)))


def is_unsafe_read(cell: Cell, name: str) -> bool:
    """Whether to read an attribute of the threads' objects may run their code."""
    value = cell.value
    return type(value) is Objects and value.lists is None and not has_stored(cell, name)


def is_uniform_number(cell: Cell) -> bool:
    value = cell.value
    return type(value) is Uniform and is_number(value.obj)


def is_number_cell(cell: Cell) -> bool:
    """Whether it holds a number, for all threads or for each."""
    value = cell.value
    return is_uniform_number(cell) or (type(value) is Column and value.tag != "tensor")


def is_pure_call(value: Any) -> bool:
    if type(value) is not Uniform:
        return False
    if effect_of(value.obj) in ("torch", "host"):
        return not may_draw(value.obj)  # a host operation may run twice
    return derives(value.obj)


def is_traceable_call(value: Any) -> bool:
    """Whether a callee may be recorded: torch's own code, and what has a batched meaning here."""
    if type(value) is Container:
        if is_gradient(value):
            return True
        if not callable(value.static) or changes_container(value):
            return False
        return is_traceable_call(Uniform(value.static))
    if type(value) is not Uniform:
        return False
    effect = effect_of(value.obj)
    if effect == "torch":
        if isinstance(value.obj, torch.nn.Module):
            return all(map(is_plain_module, parts_of(value.obj)))
        return belongs_to_torch(value.obj)
    return effect in ("host", "write", "program")


def is_gradient(value: Container) -> bool:
    """Whether it is the gradient of a function that the program has made."""
    return type(value.static) is Transform and value.static.kind in GRADIENTS


def changes_container(value: Container) -> bool:
    """Whether it is a bound method that changes a list or dict that was there before."""
    if (
        value.type is not METHOD
        or own_attribute(value.static, "__name__", "") not in MUTATING_METHODS
    ):
        return False
    return any(type(receiver.value) is Container for receiver in value.children())


def may_begin(op: Op) -> bool:
    """Whether an operation can be the first of a stretch, for some operands."""
    return op.name in RECORDED


def kind_of(cell: Cell | None) -> str:
    """A rough kind, which decides what is host and what is batched."""
    if cell is None:
        return "-"
    value = cell.value
    kind = type(value)
    if kind is Uniform:
        return "u"
    if kind is Column:
        return "c"
    if kind is Container:
        return kind_of_container(cell)
    return "o" if kind is Objects else kind_of(Cell(read(cell)))


def kinds_of(op: Op, env: Env) -> str:
    """The rough kinds of what an operation has given."""
    return "".join(kind_of(env[out]) for out in op.outs)


def kind_of_container(cell: Cell) -> str:
    """``O`` if it holds what no recording can, ``C`` if a thread's own values, else ``U``.

    A recording may hold a function that the program has made where it is differentiated.
    """
    kind = "U"
    seen = {id(cell)}
    waiting = [cell]
    closures = is_gradient(cell.value)  # type: ignore[arg-type]
    while waiting:
        value = waiting.pop().value
        if type(value) is View:
            value = read(Cell(value))
        if type(value) is Column:
            kind = "C"
        elif type(value) is Objects:
            return "O"
        elif type(value) is Container:
            held = (METHOD, CLOSURE, BOX) if closures else (METHOD,)
            if isinstance(value.type, Mark) and value.type not in held:
                return "O"
            for child in value.children():
                if type(child.value) is not Container:
                    waiting.append(child)
                elif id(child) not in seen:
                    seen.add(id(child))
                    waiting.append(child)
    return kind


def is_uniform(cell: Cell) -> bool:
    """Whether no thread's own value is in it."""
    return kind_of(cell) in "uU"


def has_objects(cell: Cell) -> bool:
    """Whether it holds what no recording can: objects, iterators, functions and their boxes."""
    return kind_of(cell) in "oO"
