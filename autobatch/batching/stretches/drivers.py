"""Drivers: a planned stretch as one Python function, with all written down that can be.

Most steps of a run repeat a plan on values of the same kinds. A driver is that plan printed as
straight Python: it reads the variables, checks what the plan's key holds, runs the host
operations and the replay, and writes the results; about a third of what the general way costs.
It answers False, with nothing changed, where a check fails, and the general way decides.

Only plain plans have one: inputs and results are columns, uniform tensors and numbers; the host
operations read globals and attributes and compute with numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from autobatch.batching.compat import any_autocast, deterministic, within_level
from autobatch.batching.operations import Env
from autobatch.batching.selects import are_lone
from autobatch.batching.semantics import load_global
from autobatch.batching.stretches.signature import (
    ambient_key,
    content_key,
    module_key,
    module_tensors,
)
from autobatch.ir.ops import BINARY, COMPARE, UNARY
from autobatch.ir.program import Op
from autobatch.vm.repeated import is_shared
from autobatch.vm.values import Cell, Column, Uniform, is_mutable, is_number

Driver = Callable[[Env, dict[str, Any], int], bool]
PLAIN_NODES = frozenset({"column", "input", "uniform", "tensor"})


class Undrivable(Exception):
    """The plan is not plain."""


class Printer:
    """Collects the lines of a driver and the objects that they refer to."""

    def __init__(self, env: Mapping[str, Cell]) -> None:
        self.env = env
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "Cell": Cell,
            "Column": Column,
            "Uniform": Uniform,
            "Tensor": Tensor,
            "load_global": load_global,
            "ambient_key": ambient_key,
            "any_autocast": any_autocast,
            "module_key": module_key,
            "module_tensors": module_tensors,
            "content_key": content_key,
            "guards": guards,
        }
        self.objs: dict[str, str] = {}
        """The expression of each uniform variable's object."""

    def line(self, text: str) -> None:
        self.lines.append(f"    {text}")

    def check(self, condition: str) -> None:
        self.line(f"if {condition}: return False")

    def refer(self, obj: Any) -> str:
        name = f"_{len(self.names)}"
        self.names[name] = obj
        return name

    def obj(self, name: str) -> str:
        """The object of a uniform variable."""
        known = self.objs.get(name)
        if known is None:
            value = self.env[name].value
            if type(value) is not Uniform:
                raise Undrivable
            known = self.objs[name] = f"o{len(self.objs)}"
            self.line(f"u = env[{name!r}].value")
            self.check(f"u.__class__ is not Uniform or u.shared is not {value.shared}")
            self.line(f"{known} = u.obj")
        return known


def driver_of(
    skeleton: Any, plan: Any, env: Mapping[str, Cell], namespace: dict[str, Any]
) -> Driver | None:
    """The driver of a plan, whose variables hold what ``env`` holds; None if it is not plain."""
    if plan.checks or plan.loose is not None or plan.forecasts or plan.written:
        return None
    if any(node.kind not in PLAIN_NODES for node in plan.template.nodes):
        return None
    if any(op.name in ("is", "is_not") for op in skeleton.batched):
        return None  # a driver does not ask which variables are one cell
    printer = Printer(env)
    try:
        values = printed_host(printer, skeleton)
        inputs = printed_inputs(printer, skeleton)
    except Undrivable:
        return None
    if len(inputs) != plan.inputs:
        return None  # two variables are one cell
    if plan.lone:
        printer.check(f"not {printer.refer(are_lone)}(env, {plan.lone!r})")
    if plan.assumed:
        printer.check(f"{printer.refer(plan)}.is_stale")
    printed_results(printer, skeleton, plan, inputs, values)
    source = "\n".join(["def drive(env, namespace, k):", *printer.lines, "    return True"])
    scope = dict(printer.names)
    exec(source, scope)
    drive: Driver = scope["drive"]
    return drive


def printed_host(printer: Printer, skeleton: Any) -> dict[str, str]:
    """The host operations; gives the expressions of what they assign."""
    printed_modes(printer)
    for name, cell in skeleton.constants.items():
        printer.objs[name] = printer.refer(cell.value.obj)
    made: dict[str, str] = {}
    for op in skeleton.host:
        expression = host_expression(printer, op)
        value = printer.env[op.outs[0]].value
        if type(value) is not Uniform or is_mutable(value):  # a second name for one tensor
            raise Undrivable
        name = f"h{len(made)}"
        printer.line(f"{name} = {expression}")
        printer.objs[op.outs[0]] = made[op.outs[0]] = name
    return made


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
    ):
        printer.check(f"{printer.refer(question)}() is not {printer.refer(question())}")


def host_expression(printer: Printer, op: Op) -> str:
    """A host operation as Python, its operands checked to be of the kinds it was planned with."""
    if op.name == "global":
        return f"load_global(namespace, {op.attr!r})"
    operands = [printer.obj(arg) for arg in op.args]
    if op.name == "getattr":
        return f"{operands[0]}.{op.attr}"
    if op.name == "copy":
        return operands[0]
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


def printed_inputs(printer: Printer, skeleton: Any) -> list[tuple[str, str]]:
    """The replay's operands, checked as the plan's key has them; with each, its variable."""
    found: list[tuple[str, str]] = []
    for place, name in enumerate(skeleton.reads):
        value = printer.env[name].value
        if type(value) is Column:
            found += printed_column(printer, name, value)
        elif type(value) is Uniform:
            found += printed_uniform(printer, name, value.obj, place in skeleton.baked)
        else:
            raise Undrivable
    return found


def printed_column(printer: Printer, name: str, value: Column) -> list[tuple[str, str]]:
    if value.tag == "int" or is_shared(value.table):  # bounds are part of the key
        raise Undrivable
    table, data = value.table, f"d{len(printer.lines)}"
    printer.line(f"c = env[{name!r}].value")
    printer.check(f"c.__class__ is not Column or c.tag != {value.tag!r}")
    printer.line(f"{data} = c.table")
    event = f"{data}.shape[1:] != {printer.refer(table.shape[1:])}"
    place = f"{data}.device != {printer.refer(table.device)}"
    like = (
        f"{data}.dtype is not {printer.refer(table.dtype)}"
        f" or {event if table.dim() > 1 else f'{data}.dim() != 1'}"
        f" or {data}.requires_grad is not {table.requires_grad}"
        f" or {f'not {data}.is_cpu' if table.is_cpu else place}"
    )
    if value.rows is None:
        printer.check(f"c.rows is not None or {like} or not {data}.is_contiguous()")
        return [(data, name)]
    printer.check(f"c.rows is None or {like} or {data}.stride() != {printer.refer(table.stride())}")
    printer.line(f"{data}r = c.rows")
    return [(data, name), (f"{data}r", name)]


def printed_uniform(printer: Printer, name: str, obj: Any, baked: bool) -> list[tuple[str, str]]:
    operand = printer.obj(name)
    if isinstance(obj, Tensor):
        printer.check(f"guards({operand}) != {printer.refer(guards(obj))}")
        return [(operand, name)]
    if type(obj) in (int, float) and not baked:
        if name in printer.objs and name.startswith("%") and operand.startswith("_"):
            return [(operand, name)]
        printer.check(f"{operand}.__class__ is not {type(obj).__name__}")
        return [(operand, name)]
    if isinstance(obj, nn.Module):
        tensors = f"m{len(printer.lines)}"
        printer.check(f"module_key({operand}) != {printer.refer(module_key(obj))}")
        printer.line(f"{tensors} = list(module_tensors({operand}))")
        given = list(module_tensors(obj))
        printer.check(
            f"[guards(t) for t in {tensors}] != {printer.refer([guards(t) for t in given])}"
        )
        return [(f"{tensors}[{place}]", "") for place in range(len(given))]
    if operand.startswith("_"):
        return []  # a constant of the program's
    printer.check(f"content_key({operand}) != {printer.refer(content_key(obj))}")
    return []


def guards(tensor: Any) -> Any:
    """What the key holds of a uniform tensor."""
    if not isinstance(tensor, Tensor):
        return None
    return (tensor.dtype, tensor.shape, tensor.stride(), tensor.requires_grad, tensor.device)


def printed_results(
    printer: Printer,
    skeleton: Any,
    plan: Any,
    inputs: list[tuple[str, str]],
    values: Mapping[str, str],
) -> None:
    operands = "".join(f", {operand}" for operand, _ in inputs)
    printer.line(f"outs = {printer.refer(getattr(plan.run, 'replay', plan.run))}(k{operands})")
    made: dict[int, str] = {}
    for _, number in plan.names:
        if number not in made:
            made[number] = cell = f"r{number}"
            printer.line(f"{cell} = {made_cell(printer, plan.template.nodes[number], inputs)}")
    # Only from here on is anything changed.
    for name, cell in skeleton.constants.items():
        if name in skeleton.wanted:
            printer.line(f"env[{name!r}] = {printer.refer(cell)}")
    for name, value in values.items():
        if name in skeleton.wanted:
            shared = printer.env[name].value.shared  # type: ignore[union-attr]
            printer.line(f"env[{name!r}] = Cell(Uniform({value}, {shared}))")
    for name, number in plan.names:
        printer.line(f"env[{name!r}] = {made[number]}")


def made_cell(printer: Printer, node: Any, inputs: list[tuple[str, str]]) -> str:
    if node.kind == "column":
        outside = ", outside=True" if node.static else ""
        return f"Cell(Column(outs[{node.slot}], {node.tag!r}{outside}))"
    if node.kind == "tensor":
        return f"Cell(Uniform(outs[{node.slot}], {node.static}))"
    if node.kind == "input":
        operand, name = inputs[node.slot]
        value = printer.env[name].value
        if name in printer.objs and not is_mutable(value):  # perhaps made just now, by the host
            return f"Cell(Uniform({operand}, {value.shared}))"  # type: ignore[union-attr]
        return f"env[{name!r}]"
    obj = printer.refer(node.static.obj)
    return f"Cell(Uniform({obj}, {node.static.shared}))"
