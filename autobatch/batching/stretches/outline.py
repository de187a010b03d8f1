"""Telling apart, operation by operation, what a stretch runs on the host and what it batches.

An ``Outline`` takes operations until one does not fit: one with effects, on objects, or one that
writes a variable which an earlier batched operation reads or writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from autobatch.batching import operations
from autobatch.batching.context import Context
from autobatch.batching.effects import belongs_to_torch, effect_of
from autobatch.batching.operations import Env, Scope
from autobatch.batching.stretches.signature import is_plain_module
from autobatch.ir.ops import BINARY, COMPARE, UNARY
from autobatch.ir.program import Op
from autobatch.vm.values import (
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

PURE = frozenset(
    {"copy", "getattr", "getitem", "slice", "tuple", "list", "dict", "unpack", "truth", "to_tuple"}
    | UNARY.keys()
    | BINARY.keys()
    | COMPARE.keys()
)
HOST = PURE | {"const", "global", "load_free", "format", "join", "import_from"}
INPLACE = frozenset(f"i{name}" for name in BINARY)
WRITES = INPLACE | {"setitem"}


@dataclass(slots=True, eq=False)
class Outline:
    """Takes operations one by one, as host or batched, and runs the host ones on a copy."""

    scope: Scope
    context: Context
    env: Env
    host: list[Op] = field(default_factory=list)
    batched: list[Op] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    constants: dict[str, Cell] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    settled: set[str] = field(default_factory=set)
    writes: bool = False

    def take(self, op: Op) -> bool:
        """Whether the operation fits into the stretch."""
        if op.name == "const":
            return self.constant(op)
        if any(arg in self.made for arg in op.args):
            return self.batch(op)
        if not all(arg in self.env for arg in op.args):
            return False
        cells = [self.env[arg] for arg in op.args]
        if any(has_objects(cell) for cell in cells):
            return False
        if all(is_uniform(cell) for cell in cells):
            return self.run(op, cells)
        return self.batch(op)

    def constant(self, op: Op) -> bool:
        name = op.outs[0]
        if name in self.touched or name in self.settled:
            return False
        self.constants[name] = self.env[name] = uniform(op.attr)
        return True

    def run(self, op: Op, cells: list[Cell]) -> bool:
        if any(out in self.constants for out in op.outs):
            return False
        pure = op.name in HOST or (op.name in INPLACE and is_uniform_number(cells[0]))
        if op.name == "call":
            pure = is_pure_call(read(cells[0]))
        if not pure or self.touched & set(op.outs) or (self.writes and cells):
            return False
        try:
            operations.execute(self.context, self.scope, op, self.env)
        except Exception:
            return False
        self.settled.update(op.args, op.outs)
        self.host.append(op)
        return True

    def batch(self, op: Op) -> bool:
        if op.name not in PURE and op.name not in WRITES and op.name != "call":
            return False
        known = op.name == "call" and op.args[0] not in self.made
        if known and not is_traceable_call(read(self.env[op.args[0]])):
            return False
        for arg in op.args:
            if arg not in self.made and arg not in self.constants and arg not in self.reads:
                self.reads.append(arg)
        if any(out in self.constants for out in op.outs):
            return False
        self.touched.update(op.args, op.outs)
        self.made.update(op.outs)
        self.writes = self.writes or op.name in WRITES
        self.batched.append(op)
        return True


def is_uniform_number(cell: Cell) -> bool:
    value = cell.value
    return type(value) is Uniform and is_number(value.obj)


def is_pure_call(value: Any) -> bool:
    return type(value) is Uniform and effect_of(value.obj) in ("torch", "host")


def is_traceable_call(value: Any) -> bool:
    """Whether a callee may be recorded: torch's own code, and what has a batched meaning here."""
    if type(value) is Container:
        return is_traceable_call(Uniform(value.static)) if callable(value.static) else False
    if type(value) is not Uniform:
        return False
    effect = effect_of(value.obj)
    if effect == "torch":
        if isinstance(value.obj, torch.nn.Module):
            return all(map(is_plain_module, value.obj.modules()))
        return belongs_to_torch(value.obj)
    return effect in ("host", "write", "program")


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
        return "O" if has_objects(cell) else "U" if is_uniform(cell) else "C"
    return "o" if kind is Objects else kind_of(Cell(read(cell)))


def is_uniform(cell: Cell) -> bool:
    """Whether no thread's own value is in it."""
    return not found_in(cell, lambda value: type(value) is not Uniform, set())


def has_objects(cell: Cell) -> bool:
    """Whether it holds what no recording can: objects, iterators, functions and their boxes."""
    return found_in(cell, lambda value: type(value) is Objects, set())


def found_in(cell: Cell, wanted: Callable[[Any], bool], seen: set[int]) -> bool:
    value = cell.value
    if type(value) is View:
        return wanted(read(cell))
    if type(value) is not Container:
        return wanted(value)
    if isinstance(value.type, Mark) and value.type is not METHOD:
        return True
    if id(cell) in seen:
        return False
    seen.add(id(cell))
    return any(found_in(child, wanted, seen) for child in value.children())
