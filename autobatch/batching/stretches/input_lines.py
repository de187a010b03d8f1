"""Lines for the inputs of a replay: what the plan's key holds of them as checks.

In: a variable's cell as it was when the plan ran. Out: checks, in the order of the key's walk, and
the operands of the replay, each with the expression of its cell.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from autobatch.batching.stretches.callables import Opened, is_bare, opened
from autobatch.batching.stretches.contents import content_key, module_key, module_tensors
from autobatch.batching.stretches.driver_names import guards
from autobatch.batching.stretches.printer import OF_KIND, Printer, Undrivable
from autobatch.batching.stretches.signature import tier_of
from autobatch.values.cells import (
    BOX,
    CLOSURE,
    METHOD,
    Cell,
    Column,
    Container,
    Mark,
    Uniform,
    View,
    is_mutable,
    read,
)
from autobatch.values.heap.likeness import identity
from autobatch.values.layouts import are_seen, gaps_of
from autobatch.values.repeated import is_shared
from autobatch.values.strides import dense, row_order


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
    if row_order(table) or is_shared(table) or table.is_conj():
        raise Undrivable
    has_gaps = value.rows is None and gaps_of(table) is not None and are_seen()
    if has_gaps and dense(table)[0] is not table:
        raise Undrivable
    c = printer.fresh(expression, "c")
    name = next((name for name in printer.given if expression == f"env[{name!r}].value"), None)
    note = "" if name is None else OF_KIND
    printer.columns_of.update(() if name is None else (name,))
    printer.check(f"{c}.__class__ is not Column or {c}.tag != {value.tag!r}", note)
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
        f"{f' or {data}.is_conj()' if table.is_complex() else ''}"
    )
    if value.rows is None and not has_gaps:
        printer.check(f"{c}.rows is not None or {like}", note)
        data = printer.fresh(f"{data} if {data}.is_contiguous() else dense_rows({c})", "d")
        printer.check(f"{data} is None")
        printer.columns[data] = c
        printer.inputs.append((data, cell))
        return
    stride = printer.refer(table.stride())
    is_whole = "is not" if has_gaps else "is"
    printer.check(f"{c}.rows {is_whole} None or {like} or {data}.stride() != {stride}")
    printer.inputs.append((data, cell))
    if has_gaps:
        printer.columns[data] = c
    else:
        printer.inputs.append((printer.fresh(f"{c}.rows", "d"), cell))


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
