"""Lines for the host operations of a stretch, as Python.

Each checks its operands to be of the kinds that it was planned with, and leaves the expression of
what it makes with the ``Printer``.
"""

from __future__ import annotations

from types import CellType, FunctionType
from typing import Any

from torch import nn

from autobatch.batching.containers.in_step import begun, begun_by
from autobatch.batching.kinds import found_in_class
from autobatch.batching.objects.attributes import fields_of, part_of
from autobatch.batching.operations import CAPTURED, Env, Scope
from autobatch.batching.stretches.input_lines import printed_structure
from autobatch.batching.stretches.operator_lines import (
    is_shared_operator,
    printed_shared,
    writer_of,
)
from autobatch.batching.stretches.outline import is_gradient, is_structural
from autobatch.batching.stretches.printer import Printer, Undrivable
from autobatch.ir.program import Op
from autobatch.values.cells import METHOD, Container, Objects, Uniform, is_mutable, is_number

TAKING = {kind: kind.__getitem__ for kind in (nn.ModuleList, nn.Sequential)}
"""Lists of modules, with what takes one of them."""
OF_NUMBERS = (range, int, float, bool, abs)
"""Builtins that do nothing but make of numbers a number, or a range."""


def printed_host(printer: Printer, skeleton: Any, scope: Scope, before: Env) -> None:
    """The host operations of a stretch, and its constants."""
    for name, cell in skeleton.constants.items():
        printer.objs[name] = printer.refer(cell.value.obj)
        printer.cells[name] = printer.refer(cell)
    for op in skeleton.host:
        for name in op.outs:
            if name in printer.cells or name in printer.objs:
                raise Undrivable  # assigned a second time
        printed_operation(printer, skeleton, op, scope, before)


def printed_operation(printer: Printer, skeleton: Any, op: Op, scope: Scope, before: Env) -> None:
    """A host operation, its operands checked to be of the kinds it was planned with."""
    if is_shared_operator(op, printer.env):
        printed_shared(printer, skeleton, op)
    elif any(printer.objs.get(arg) in printer.computed for arg in op.args):
        raise Undrivable  # it may hand on what is computed once
    elif op.name in ("copy", "load_outer"):
        printed_copy(printer, op)
    elif op.name in ("tuple", "list", "slice"):
        parts = ", ".join(map(printer.cell, op.args))
        made = f"Cell(Container({op.name}, [{parts}]))"
        printer.cells[op.outs[0]] = (
            printer.anew(made) if op.name == "list" else printer.fresh(made, "m")
        )
    elif op.name == "iter":
        printed_iterator(printer, op, f"{printer.refer(begun)}({printer.cell(op.args[0])})")
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
    if is_number_call(printer, op):
        printed_number_call(printer, op)
        return
    if is_begun_by(printer, op):
        callee, *cells = printer.obj(op.args[0]), *map(printer.cell, op.args[1:])
        call = f"{printer.refer(begun_by)}({callee}, [{', '.join(cells)}])"
        printed_iterator(printer, op, call)
        return
    printer.asks_context = True
    parts = ", ".join(map(printer.cell, op.args))
    found = printer.fresh(f"pure_call(context, {printer.refer(op)}, [{parts}])", "m")
    printer.check(f"{found} is None")
    printer.cells[op.outs[0]] = found


def printed_iterator(printer: Printer, op: Op, made: str) -> None:
    """An iterator, checked to be one that needs no context."""
    found = printer.cells[op.outs[0]] = printer.anew(made)
    printer.check(f"{found} is None")


def is_begun_by(printer: Printer, op: Op) -> bool:
    """Whether it is an ``enumerate`` or ``zip`` that needs no context."""
    callee, *sources = (printer.env[name] for name in op.args)
    if type(callee.value) is not Uniform or op.attr.keywords:
        return False
    return begun_by(callee.value.obj, sources) is not None


def is_number_call(printer: Printer, op: Op) -> bool:
    """Whether it is one of a builtin that makes a number or a range of numbers, and those alone."""
    callee, *args = (printer.env[name].value for name in op.args)
    if type(callee) is not Uniform or not any(callee.obj is known for known in OF_NUMBERS):
        return False
    given = all(type(arg) is Uniform and is_number(arg.obj) for arg in args)
    return given and not op.attr.keywords and type(printer.env[op.outs[0]].value) is Uniform


def printed_number_call(printer: Printer, op: Op) -> None:
    callee, *args = (printer.env[name].value.obj for name in op.args)  # type: ignore[union-attr]
    made = printer.refer(callee)
    printer.check(f"{printer.obj(op.args[0])} is not {made}")
    operands = [printer.obj(name) for name in op.args[1:]]
    for operand, arg in zip(operands, args, strict=True):
        printer.check(f"{operand}.__class__ is not {type(arg).__name__}")
    printer.objs[op.outs[0]] = printer.fresh(f"{made}({', '.join(operands)})", "h")


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
    cell = printer.cell(op.args[0])
    key = printer.obj(op.args[1]) if op.name == "getitem" else repr(op.attr)
    known = printer.parts.get((cell, key))
    if known is not None:
        printer.cells[op.outs[0]] = known
        return
    whole = printer.fresh(f"{cell}.value", "w")
    printer.check(
        f"{whole}.__class__ is not Container or {whole}.type is not {printer.refer(base.type)}"
    )
    if op.name == "getitem":
        part = f"{whole}.cells[{key}]"
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
        else:
            check_class(printer, whole, base.type, op.attr)
    printer.cells[op.outs[0]] = printer.parts[cell, key] = printer.fresh(part, "m")


def check_class(printer: Printer, whole: str, kind: type, name: str) -> None:
    """Check that a class has for an attribute what it had: no property, say, by now."""
    static = printer.refer(found_in_class(kind, name))
    printer.check(f"found_in_class({whole}.type, {name!r}) is not {static}")


def printed_place(printer: Printer, store: Op) -> None:
    """The container that a store is to, checked to be one that only keeps what it is given."""
    name = store.args[0]
    kind = printer.env[name].value.type  # type: ignore[union-attr]
    known = printer.places.get(name)
    whole = known or printer.fresh(f"{printer.cell(name)}.value", "w")
    if known is None:
        printer.places[name] = whole
        checks = f"{whole}.__class__ is not Container or {whole}.type is not {printer.refer(kind)}"
        if store.name == "setattr":
            plain = printer.refer(object.__setattr__)
            checks += f" or {whole}.type.__setattr__ is not {plain}"
        printer.check(checks)
    if store.name == "setattr":
        check_class(printer, whole, kind, store.attr)
        return
    key = printed_key(printer, store)
    if store.args[2:]:
        given = type(printer.env[store.args[2]].value.obj)  # type: ignore[union-attr]
        printer.check(f"{key}.__class__ is not {given.__name__}")
    if kind is list:
        printer.check(f"not -len({whole}.cells) <= {key} < len({whole}.cells)")


def printed_key(printer: Printer, store: Op) -> str:
    """The name, key or index of a store."""
    return printer.obj(store.args[2]) if store.args[2:] else repr(store.attr)


def is_list_of_modules(printer: Printer, op: Op) -> bool:
    """Whether it takes one module of a list by its place."""
    base, place = (printer.env[name].value.obj for name in op.args)  # type: ignore[union-attr]
    return type(base) in TAKING and type(place) is int


def module_taken(printer: Printer, op: Op, modules: str, place: str) -> str:
    kind = type(printer.env[op.args[0]].value.obj)  # type: ignore[union-attr]
    known, taking = printer.refer(kind), printer.refer(TAKING[kind])
    printer.check(f"{modules}.__class__ is not {known} or {known}.__getitem__ is not {taking}")
    printer.check(f"{place}.__class__ is not int")
    return f"{modules}[{place}]"


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
    if op.name == "getitem" and is_list_of_modules(printer, op):
        return module_taken(printer, op, *operands)
    write = writer_of(op.name)
    for arg, operand in zip(op.args, operands, strict=True):
        obj = printer.env[arg].value.obj  # type: ignore[union-attr]
        if not is_number(obj):
            raise Undrivable
        printer.check(f"{operand}.__class__ is not {type(obj).__name__}")
    return write(*operands)
