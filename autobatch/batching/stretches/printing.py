"""The lines of a driver: what its plan's key holds as checks, its host operations as Python.

A ``Printer`` knows of each variable the expression of its cell, and of a uniform one that of its
object. What it cannot print is ``Undrivable``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from types import CellType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from autobatch.batching import operations
from autobatch.batching.ambient import ambient_key
from autobatch.batching.attributes import fields_of, part_of, stored_attribute
from autobatch.batching.compat import (
    any_autocast,
    deterministic,
    flash_attention,
    lean_attention,
    plain_attention,
    within_level,
)
from autobatch.batching.context import Context
from autobatch.batching.kinds import found_in_class
from autobatch.batching.operations import CAPTURED, Env, Scope
from autobatch.batching.semantics import load_global
from autobatch.batching.stretches.callables import Opened, is_bare, opened
from autobatch.batching.stretches.contents import content_key, module_key, module_tensors
from autobatch.batching.stretches.outline import is_gradient, is_pure_call, is_structural
from autobatch.batching.stretches.signature import tensor_key, tier_of
from autobatch.batching.stretches.stretch import refuse
from autobatch.ir.ops import BINARY, COMPARE, UNARY
from autobatch.ir.program import Op
from autobatch.vm.heap.likeness import identity
from autobatch.vm.heap.walks import reached
from autobatch.vm.repeated import is_shared
from autobatch.vm.strides import row_order
from autobatch.vm.values import (
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
    is_mutable,
    is_number,
    read,
)

MENTIONED = re.compile(r"env\['([^']*)'\]|\b(env|context|k|looks|outs|roots|[a-z]\d+)\b")
"""What a line reads or assigns: a variable of the program's, or a local name."""
OTHERS = frozenset(("env", "context", "k"))
MODELESS = frozenset(("copy", "getattr", "global", "load_free", "tuple", "list", "unpack"))
"""Host operations that do the same in whatever mode torch is in."""


class Undrivable(Exception):
    """The plan is not plain."""


class Printer:
    """Collects the lines of a driver and the objects that they refer to.

    ``env`` has an example of each variable, ``cells`` the expressions of the cells that the
    driver makes, ``objs`` those of uniform variables' objects; ``inputs`` are the operands of the
    replay with the expressions of their cells, ``whole`` the containers among them, ``given`` the
    variables that are in the environment before. ``asks_context``: the driver needs the context.
    ``own`` are the cells of inputs that can be written, ``columns`` the columns of operands that
    can; ``views`` are views among the inputs, in which what is written may show.
    ``picks``: the input at work is an index.
    """

    def __init__(self, env: Mapping[str, Cell]) -> None:
        self.env = env
        self.lines: list[str] = []
        self.names: dict[str, Any] = dict(NAMES)
        self.cells: dict[str, str] = {}
        self.objs: dict[str, str] = {}
        self.inputs: list[tuple[str, str]] = []
        self.whole: list[str] = []
        self.seen: set[int] = set()
        self.given: frozenset[str] = frozenset()
        self.asks_context = False
        self.own: list[str] = []
        self.columns: dict[str, str] = {}
        self.views: list[str] = []
        self.picks = False

    def line(self, text: str) -> None:
        self.lines.append(f"    {text}")

    def check(self, condition: str) -> None:
        self.line(f"if {condition}: return False")

    def fresh(self, expression: str, letter: str) -> str:
        """A local name for what an expression gives."""
        name = f"{letter}{len(self.lines)}"
        self.line(f"{name} = {expression}")
        return name

    def refer(self, obj: Any) -> str:
        name = f"_{len(self.names)}"
        self.names[name] = obj
        return name

    def cell(self, name: str) -> str:
        """The cell of a variable."""
        known = self.cells.get(name)
        if known is None and name in self.objs and name not in self.given:
            shared = self.env[name].value.shared  # type: ignore[union-attr]
            known = self.fresh(f"Cell(Uniform({self.objs[name]}, {shared}))", "m")
            self.cells[name] = known
        return known or f"env[{name!r}]"

    def obj(self, name: str) -> str:
        """The object of a uniform variable."""
        known = self.objs.get(name)
        if known is None:
            value = self.env[name].value
            if type(value) is not Uniform:
                raise Undrivable
            u = self.fresh(f"{self.cell(name)}.value", "u")
            self.check(f"{u}.__class__ is not Uniform or {u}.shared is not {value.shared}")
            known = self.objs[name] = self.fresh(f"{u}.obj", "o")
        return known


def told_apart(
    lines: Iterable[str], moving: Set[str]
) -> tuple[list[str], list[str], frozenset[str]]:
    """Lines that do the same each time while only ``moving`` variables change, and the others.

    And the local names that these assign.
    """
    steady: list[str] = []
    others: list[str] = []
    changing: set[str] = set(OTHERS)
    for line in lines:
        mentioned = MENTIONED.findall(line)
        if any(name in moving if name else local in changing for name, local in mentioned):
            changing.update(assigned for assigned in [line.strip().partition(" = ")[0]])
            others.append(line)
        else:
            steady.append(line)
    return steady, others, frozenset(changing)


def unmoved(cell: Cell) -> bool:
    """Whether a variable's cell is the same for some of its threads as for all of them."""
    return type(cell.value) is Uniform and not is_mutable(cell.value)


def printed_modes(printer: Printer) -> None:
    """The check of ``ambient_key``, question by question: that takes a third of the time."""
    if any_autocast():
        printer.check(f"ambient_key() != {printer.refer(ambient_key())}")
        return
    printer.check("any_autocast()")
    for question in (
        torch.is_grad_enabled,
        torch.is_inference_mode_enabled,
        torch.get_default_dtype,
        deterministic,
        within_level,
        flash_attention,
        lean_attention,
        plain_attention,
    ):
        printer.check(f"{printer.refer(question)}() is not {printer.refer(question())}")


# Host operations.


def printed_plan(printer: Printer, skeleton: Any, scope: Scope, before: Env) -> None:
    """Checks, host operations and inputs: what needs no host operation is checked first."""
    made = {out for op in skeleton.host for out in op.outs}
    printer.given = frozenset(before) - made - set(skeleton.constants)
    if skeleton.batched or any(op.name not in MODELESS for op in skeleton.host):
        printed_modes(printer)
    early = [name for name in skeleton.reads if name in printer.given]
    parts = {name: printed_input(printer, skeleton, name) for name in early}
    printed_host(printer, skeleton, scope, before)
    for name in skeleton.reads:
        inputs, whole = parts.get(name) or printed_input(printer, skeleton, name)
        printer.inputs += inputs
        printer.whole += whole


def printed_host(printer: Printer, skeleton: Any, scope: Scope, before: Env) -> None:
    """The host operations of a stretch, and its constants."""
    for name, cell in skeleton.constants.items():
        printer.objs[name] = printer.refer(cell.value.obj)
        printer.cells[name] = printer.refer(cell)
    for op in skeleton.host:
        for name in op.outs:
            if name in printer.cells or name in printer.objs:
                raise Undrivable  # assigned a second time
        printed_operation(printer, op, scope, before)


def printed_operation(printer: Printer, op: Op, scope: Scope, before: Env) -> None:
    """A host operation, its operands checked to be of the kinds it was planned with."""
    if op.name in ("copy", "load_outer"):
        printed_copy(printer, op)
    elif op.name in ("tuple", "list", "slice"):
        parts = ", ".join(map(printer.cell, op.args))
        printer.cells[op.outs[0]] = printer.fresh(f"Cell(Container({op.name}, [{parts}]))", "m")
    elif op.name == "unpack":
        printed_unpack(printer, op)
    elif op.args and is_structural(op, [printer.env[name] for name in op.args]):
        printed_part(printer, op)
    elif op.name == "call":
        printed_call(printer, op)
    elif op.name == "getattr" and type(printer.env[op.args[0]].value) is Objects:
        printer.asks_context = True
        cell = printer.cell(op.args[0])
        printer.line(f"context.span = {printer.refer(op.span)}")
        found = printer.fresh(f"stored_attribute(context, {cell}, {op.attr!r})", "m")
        printer.check(f"{found} is None")
        printer.cells[op.outs[0]] = found
    else:
        value = printer.env[op.outs[0]].value
        if type(value) is not Uniform or is_mutable(value):  # a second name for one tensor
            raise Undrivable
        expression = host_expression(printer, op, scope, before)
        printer.objs[op.outs[0]] = printer.fresh(expression, "h")


def printed_copy(printer: Printer, op: Op) -> None:
    (out,), (name,) = op.outs, op.args
    printer.cells[out] = printer.fresh(printer.cell(name), "m")
    if name in printer.objs:
        printer.objs[out] = printer.objs[name]


def printed_call(printer: Printer, op: Op) -> None:
    """A call without effects, of what all threads share."""
    if not op.attr.is_plain:
        raise Undrivable
    made = printer.env[op.outs[0]].value
    if type(made) is Container and is_gradient(made) and len(op.args) == 2:
        make = printer.obj(op.args[0])
        printer.check(f"{make} is not {printer.refer(printer.env[op.args[0]].value.obj)}")  # type: ignore[union-attr]
        function = printer.cell(op.args[1])
        static = printer.refer(made.static)
        new = f"Cell(Container({printer.refer(METHOD)}, [{function}], {static}))"
        printer.cells[op.outs[0]] = printer.fresh(new, "m")
        return
    printer.asks_context = True
    parts = ", ".join(map(printer.cell, op.args))
    found = printer.fresh(f"pure_call(context, {printer.refer(op)}, [{parts}])", "m")
    printer.check(f"{found} is None")
    printer.cells[op.outs[0]] = found


def printed_unpack(printer: Printer, op: Op) -> None:
    """``a, b = x`` where ``x`` is a list or tuple of as many parts."""
    value = printer.env[op.args[0]].value
    if type(value) is not Container or op.attr.starred:
        raise Undrivable
    whole = printed_structure(printer, printer.cell(op.args[0]), value)
    for place, out in enumerate(op.outs):
        printer.cells[out] = printer.fresh(f"{whole}.cells[{place}]", "m")


def printed_part(printer: Printer, op: Op) -> None:
    """``x.name``, or ``x[i]``, where that is a part of a container."""
    base = printer.env[op.args[0]].value
    assert type(base) is Container
    whole = printer.fresh(f"{printer.cell(op.args[0])}.value", "w")
    printer.check(
        f"{whole}.__class__ is not Container or {whole}.type is not {printer.refer(base.type)}"
    )
    if op.name == "getitem":
        part = f"{whole}.cells[{printer.obj(op.args[1])}]"
    elif base.type in (list, dict, set, tuple):
        raise Undrivable
    else:
        found, name = part_of(base, op.attr), printer.refer(op.attr)
        part = f"{whole}.cells[{name}]"
        if isinstance(base.cells, list):
            part = f"{whole}.cells[{fields_of(base.type).index(op.attr)}]"
        elif isinstance(found, FunctionType):
            method = printer.refer(found)
            printer.check(
                f"{name} in {whole}.cells or found_in_class({whole}.type, {name}) is not {method}"
            )
            receiver = printer.cell(op.args[0])
            part = f"Cell(Container({printer.refer(METHOD)}, [{receiver}], {method}))"
    printer.cells[op.outs[0]] = printer.fresh(part, "m")


def printed_structure(printer: Printer, cell: str, value: Container) -> str:
    """A container's value, checked to have the structure of another one."""
    name = printer.fresh(f"{cell}.value", "w")
    if isinstance(value.cells, dict):
        cells = f"tuple({name}.cells) != {printer.refer(tuple(value.cells))}"
    else:
        cells = f"len({name}.cells) != {len(value.cells)}"
    printer.check(
        f"{name}.__class__ is not Container or {name}.type is not {printer.refer(value.type)}"
        f" or {cells} or identity({name}.static) != {printer.refer(identity(value.static))}"
    )
    return name


def host_expression(printer: Printer, op: Op, scope: Scope, before: Env) -> str:
    if op.name == "global":
        return f"load_global(scope.namespace, {op.attr!r})"
    if op.name == "load_free":
        if CAPTURED in before or type(scope.free.get(op.attr)) is not CellType:
            raise Undrivable
        box = printer.fresh(f"scope.free[{op.attr!r}]", "b")
        printer.check(f"{CAPTURED!r} in env or {box}.__class__ is not CellType")
        return f"{box}.cell_contents"
    operands = [printer.obj(arg) for arg in op.args]
    if op.name == "getattr":
        return f"{operands[0]}.{op.attr}"
    write = writer_of(op.name)
    for arg, operand in zip(op.args, operands, strict=True):
        obj = printer.env[arg].value.obj  # type: ignore[union-attr]
        if not is_number(obj):
            raise Undrivable
        printer.check(f"{operand}.__class__ is not {type(obj).__name__}")
    return write(*operands)


def writer_of(name: str) -> Callable[..., str]:
    """How an operation on numbers is written."""
    if name == "truth":
        return "bool({})".format
    if name == "select":
        return "{1} if {0} else {2}".format
    if name in UNARY:
        return UNARY[name].replace("x", "{}").format
    plain = name.removeprefix("i") if name not in COMPARE else name
    sign = BINARY.get(plain) or COMPARE.get(name)
    if sign is None or sign == "@":
        raise Undrivable
    return f"{{}} {sign} {{}}".format


# Inputs of the replay.


def printed_input(
    printer: Printer, skeleton: Any, name: str
) -> tuple[list[tuple[str, str]], list[str]]:
    """What a variable gives the replay, checked as the plan's key has it, in its walk's order."""
    before = printer.inputs, printer.whole
    printer.inputs, printer.whole = [], []
    cell, place = printer.env[name], skeleton.reads.index(name)
    baked, printer.picks = place in skeleton.baked, place in skeleton.picks
    if type(cell.value) is Uniform:
        if is_mutable(cell.value):
            printer.own.append(printer.cell(name))
        printer.obj(name)
        printed_object(printer, name, cell.value, baked)
    else:
        printed_cell(printer, printer.cell(name), cell, baked)
    found = printer.inputs, printer.whole
    printer.inputs, printer.whole = before
    return found


def printed_cell(printer: Printer, expression: str, cell: Cell, baked: bool) -> None:
    value = cell.value
    if is_mutable(value):
        if id(cell) in printer.seen:
            raise Undrivable  # two variables are one cell
        printer.seen.add(id(cell))
        printer.own.append(expression)
    if type(value) is Column:
        printed_column(printer, expression, f"{expression}.value", value)
    elif type(value) is View and type(read(cell)) is Column:
        printer.check(f"{expression}.value.__class__ is not View")
        printer.views.append(expression)
        printed_column(printer, expression, f"read({expression})", read(cell))  # type: ignore[arg-type]
    elif type(value) is Uniform:
        u = printer.fresh(f"{expression}.value", "u")
        printer.check(f"{u}.__class__ is not Uniform or {u}.shared is not {value.shared}")
        printed_uniform(printer, expression, printer.fresh(f"{u}.obj", "o"), value.obj, baked)
    elif type(value) is Container and is_held(cell):
        baked = baked or value.type is CLOSURE
        whole = printed_structure(printer, expression, value)
        printer.whole.append(expression)
        keys = value.cells if isinstance(value.cells, dict) else range(len(value.cells))
        for key, child in zip(keys, value.children(), strict=True):
            part = printer.fresh(f"{whole}.cells[{printer.refer(key)}]", "m")
            printed_cell(printer, part, child, baked)
    else:
        raise Undrivable


def is_held(cell: Cell) -> bool:
    """Whether a container can be an input: one of the program's, a function's gradient."""
    value = cell.value
    assert type(value) is Container
    return not isinstance(value.type, Mark) or value.type in (METHOD, CLOSURE, BOX)


def printed_column(printer: Printer, cell: str, expression: str, value: Column) -> None:
    table = value.table
    if row_order(table) or is_shared(table):
        raise Undrivable
    c = printer.fresh(expression, "c")
    printer.check(f"{c}.__class__ is not Column or {c}.tag != {value.tag!r}")
    if value.tag == "int":
        picks = printer.picks
        printer.check(f"tier_of({c}, {picks}) != {tier_of(value, picks)}")
    data = printer.fresh(f"{c}.table", "d")
    event = f"{data}.shape[1:] != {printer.refer(table.shape[1:])}"
    place = f"{data}.device != {printer.refer(table.device)}"
    like = (
        f"{data}.dtype is not {printer.refer(table.dtype)}"
        f" or {event if table.dim() > 1 else f'{data}.dim() != 1'}"
        f" or {data}.requires_grad is not {table.requires_grad}"
        f" or {f'not {data}.is_cpu' if table.is_cpu else place}"
    )
    if value.rows is None:
        printer.check(f"{c}.rows is not None or {like}")
        data = printer.fresh(f"{data} if {data}.is_contiguous() else dense_rows({c})", "d")
        printer.check(f"{data} is None")
        printer.columns[data] = c
        printer.inputs.append((data, cell))
        return
    stride = printer.refer(table.stride())
    printer.check(f"{c}.rows is None or {like} or {data}.stride() != {stride}")
    printer.inputs += [(data, cell), (printer.fresh(f"{c}.rows", "d"), cell)]


def dense_rows(column: Column) -> Tensor | None:
    """A column's rows without gaps between them; None where theirs is another order.

    A column whose rows have gaps between them only, none within, keeps what they come to.
    """
    table = column.table
    if row_order(table):
        return None
    dense = table.contiguous()
    if table[:1].is_contiguous() and not table.requires_grad:
        column.table = dense
    return dense


def printed_object(printer: Printer, name: str, value: Uniform, baked: bool) -> None:
    """A uniform variable whose object is known by then: made by the host, a constant."""
    operand = printer.objs[name]
    if operand.startswith("_"):  # a constant of the program's
        if type(value.obj) in (int, float) and not baked:
            printer.inputs.append((operand, printer.cell(name)))
        return
    printed_uniform(printer, printer.cell(name), operand, value.obj, baked)


def printed_uniform(printer: Printer, cell: str, operand: str, obj: Any, baked: bool) -> None:
    if isinstance(obj, Tensor):
        printer.check(f"guards({operand}) != {printer.refer(guards(obj))}")
        printer.inputs.append((operand, cell))
    elif type(obj) in (int, float) and not baked:
        printer.check(f"{operand}.__class__ is not {type(obj).__name__}")
        printer.inputs.append((operand, cell))
    elif (function := opened(obj)) is not None:
        printed_function(printer, operand, obj, function)
        printer.whole.append(cell)
    elif isinstance(obj, nn.Module):
        printer.check(f"module_key({operand}) != {printer.refer(module_key(obj))}")
        printed_tensors(printer, f"list(module_tensors({operand}))", list(module_tensors(obj)))
    elif obj is None or type(obj) is bool:
        printer.check(f"{operand} is not {obj!r}")
    else:
        printer.check(f"content_key({operand}) != {printer.refer(content_key(obj))}")


def printed_function(printer: Printer, operand: str, obj: Any, function: Opened) -> None:
    if is_bare(obj):
        code, space = printer.refer(obj.__code__), printer.refer(obj.__globals__)
        printer.check(f"not is_bare({operand}) or {operand}.__code__ is not {code}")
        printer.check(f"{operand}.__globals__ is not {space}")
        return
    name = printer.fresh(f"opened({operand})", "f")
    printer.check(f"{name} is None or {name}.key != {printer.refer(function.key)}")
    printed_tensors(printer, f"{name}.tensors", function.tensors)


def printed_tensors(printer: Printer, expression: str, given: list[Tensor]) -> None:
    """The tensors that a module or a function holds, as inputs."""
    if not given:
        return
    tensors = printer.fresh(expression, "t")
    wanted = printer.refer([guards(tensor) for tensor in given])
    printer.check(f"[guards(t) for t in {tensors}] != {wanted}")
    printer.inputs += [(f"{tensors}[{place}]", "None") for place in range(len(given))]


def pure_call(context: Context, op: Op, cells: list[Cell]) -> Cell | None:
    """A host call's result; None where it may have effects."""
    if not is_pure_call(read(cells[0])):
        return None
    invoke, context.invoke, context.span = context.invoke, refuse, op.span
    try:
        made: Cell = operations.TABLE["call"](context, op.attr, *cells)
    finally:
        context.invoke = invoke
    return made


def are_apart(cells: Sequence[Cell]) -> bool:
    """Whether no two are one cell: what is written to one, no other has."""
    return len(set(map(id, cells))) == len(cells)


def shows(cell: Cell, views: Sequence[Cell]) -> bool:
    """Whether a cell is among what views go by."""
    return any(base is cell for base in reached(views))


def guards(tensor: Any) -> Any:
    """What the key holds of a uniform tensor."""
    return tensor_key(tensor) if isinstance(tensor, Tensor) else None


NAMES: dict[str, Any] = {
    "Cell": Cell,
    "CellType": CellType,
    "Column": Column,
    "Container": Container,
    "Uniform": Uniform,
    "View": View,
    "ambient_key": ambient_key,
    "any_autocast": any_autocast,
    "are_apart": are_apart,
    "content_key": content_key,
    "dense_rows": dense_rows,
    "found_in_class": found_in_class,
    "guards": guards,
    "identity": identity,
    "is_bare": is_bare,
    "load_global": load_global,
    "module_key": module_key,
    "module_tensors": module_tensors,
    "opened": opened,
    "pure_call": pure_call,
    "read": read,
    "shows": shows,
    "stored_attribute": stored_attribute,
    "tier_of": tier_of,
}
"""What the lines of every driver refer to."""
