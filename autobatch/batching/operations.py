"""The operations of the intermediate representation, on cells.

``execute(context, scope, op, env)`` runs one ``Op`` for a group: reads its operands from the
environment and assigns its outs. ``Scope`` is what an operation sees of its frame's function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import CellType
from typing import Any

from autobatch import errors
from autobatch.batching import calls, comparisons, operators, semantics
from autobatch.batching.calling import resolving
from autobatch.batching.containers import displays, iterators, subscripts, sums
from autobatch.batching.containers.starring import (
    Differing,
    mapping_of,
    starred_parts,
    titled,
    used_up,
)
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.effects import effect_of
from autobatch.batching.host import catching, making, managing
from autobatch.batching.host.rower import Rower
from autobatch.batching.host.rows import run_rows, write_rows
from autobatch.batching.late_reads import late_reads, only_looks, still_read
from autobatch.batching.objects import attributes
from autobatch.batching.operators import once
from autobatch.batching.selects import select
from autobatch.batching.shared.putting_off import put_off
from autobatch.batching.truths import truth
from autobatch.batching.unseen import refuse_late
from autobatch.ir.ops import BINARY, COMPARE, UNARY
from autobatch.ir.program import CallShape, Function, Op
from autobatch.values.cells import (
    BOX,
    CLOSURE,
    METHOD,
    UNSET,
    Cell,
    Container,
    Objects,
    Uniform,
    read,
    uniform,
)

Env = dict[str, Cell]
CAPTURED = "%captured"
"""Holds the boxes that the function at work captured, so that they move with its threads."""


HANDLED = "%handled"
"""Holds the exceptions that are being handled where the function at work was called."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A function at work: its module's names, its captured variables, how messages call it."""

    function: Function
    namespace: dict[str, Any]
    title: str
    free: Mapping[str, Cell | CellType]


def execute(context: Context, scope: Scope, op: Op, env: Env, stands: Op | None = None) -> None:
    """Run one operation for the group; in its block it ``stands`` as another, if that is given."""
    context.span = op.span
    context.begin(stands or op, env)
    if context.checkpoint is not None and not may_repeat(op, env):
        context.settle()
    late = context.contributions is not None and context.contributions.written
    try:
        if late:
            with_reads_seen(context, scope, op, env)
        else:
            perform(context, scope, op, env)
    except errors.AutobatchError:
        raise
    except Exception:
        context.settle()  # it may have failed on rows that are not what they should be
        raise


def perform(context: Context, scope: Scope, op: Op, env: Env) -> None:
    handler = TABLE[op.name]
    if op.name in FRAMED:
        handler(context, scope, op, env)
        return
    if context.begins is not None and context.begins(op):
        begun = put_off(context, op, operands(context, op.args, env))
        if begun is not None:
            env[op.outs[0]] = begun
            return
    cells = operands(context, op.args, env)
    result = handler(context, op.attr, *cells)
    if type(result) is tuple:
        env.update(zip(op.outs, result, strict=True))
    elif op.outs:
        env[op.outs[0]] = result


def with_reads_seen(context: Context, scope: Scope, op: Op, env: Env) -> None:
    """An operation while there are writes to shared tensors that have not been applied."""
    begins = context.begins is not None and context.begins(op)
    found = late_reads(context, op, env)
    if found and not begins and not only_looks(op, env):
        raise refuse_late(context, found)
    perform(context, scope, op, env)
    found = still_read(context, found, op, env) if found else found
    if found:
        raise refuse_late(context, found)


def may_repeat(op: Op, env: Env) -> bool:
    """Whether an operation changes nothing but the program's cells, so can be taken back."""
    if op.name != "call":
        return op.name not in ("next", "iter", "import")
    cell = env.get(op.args[0])
    value = None if cell is None else read(cell)
    if type(value) is Container and value.type is METHOD:
        return effect_of(value.static) in ("torch", "host")
    return type(value) is Uniform and effect_of(value.obj) in ("torch", "host")


def operands(context: Context, names: tuple[str, ...], env: Env) -> list[Cell]:
    try:
        return [env[name] for name in names]
    except KeyError as missing:
        name = missing.args[0]
        error = semantics.unbound_local(name)
        raise RowsFail(context.lowest(), error) from error


def _global(context: Context, scope: Scope, op: Op, env: Env) -> None:
    try:
        value = semantics.load_global(scope.namespace, op.attr)
    except NameError as error:
        raise RowsFail(context.lowest(), error) from error
    env[op.outs[0]] = uniform(value, shared=True)


def free_box(scope: Scope, name: str, env: Env) -> Cell | CellType:
    """The box of a captured variable: a cell of the group, or one of a function outside."""
    held = env.get(CAPTURED)
    if held is not None and name in held.value.cells:  # type: ignore[union-attr]
        found: Cell = held.value.cells[name]  # type: ignore[union-attr, call-overload]
        return found
    return scope.free[name]


def _load_free(context: Context, scope: Scope, op: Op, env: Env) -> None:
    box = free_box(scope, op.attr, env)
    if isinstance(box, CellType):
        try:
            env[op.outs[0]] = uniform(box.cell_contents, shared=True)
        except ValueError:
            error = semantics.unbound_free(op.attr)
            raise RowsFail(context.lowest(), error) from error
        return
    env[op.outs[0]] = boxed(context, box, op.attr, semantics.unbound_free)


def _load_outer(context: Context, scope: Scope, op: Op, env: Env) -> None:
    if op.args[0] not in env:
        raise RowsFail(context.lowest(), semantics.unbound_free(op.attr))
    env[op.outs[0]] = env[op.args[0]]


def _free_box(context: Context, scope: Scope, op: Op, env: Env) -> None:
    box = free_box(scope, op.attr, env)
    env[op.outs[0]] = uniform(box, shared=True) if isinstance(box, CellType) else box


def _delete(context: Context, scope: Scope, op: Op, env: Env) -> None:
    if op.attr not in env:
        error = semantics.unbound_local(op.attr)
        raise RowsFail(context.lowest(), error) from error
    del env[op.attr]


def _import(context: Context, scope: Scope, op: Op, env: Env) -> None:
    module, level, names = op.attr
    try:
        found = __import__(module, scope.namespace, None, names, level)
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error
    env[op.outs[0]] = uniform(found, shared=True)


def _function(context: Context, scope: Scope, op: Op, env: Env) -> None:
    making.check(op.attr, op.span)
    cells = operands(context, op.args, env)
    static = (op.attr, scope.namespace, scope.title)
    env[op.outs[0]] = Cell(Container(CLOSURE, cells, static))


def boxed(context: Context, box: Cell, name: str, unbound: Callable[[str], NameError]) -> Cell:
    """What a captured variable's box holds; ``unbound`` makes what an empty one raises."""
    value = read(box)
    if type(value) is Container:
        content: Cell = value.cells[0]
        inner = content.value
        if type(inner) is Uniform and inner.obj is UNSET:
            raise RowsFail(context.lowest(), unbound(name))
        return content
    return run_rows(
        context, lambda b: semantics.load_box(name, b, unbound), [box], {}, "objects", fresh=False
    )


def _box(context: Context, attr: Any, *cells: Cell) -> Cell:
    return Cell(Container(BOX, [cells[0] if cells else uniform(UNSET)]))


def _load_box(context: Context, attr: Any, box: Cell) -> Cell:
    return boxed(context, box, attr, semantics.unbound_local)


def _load_outer_box(context: Context, attr: Any, box: Cell) -> Cell:
    return boxed(context, box, attr, semantics.unbound_free)


def _store_box(context: Context, attr: Any, box: Cell, item: Cell) -> None:
    value = read(box)
    if type(value) is Container:
        value.cells[0] = item
        return
    write_rows(context, semantics.SEMANTICS["store_box"], box, item)


def _clear_box(context: Context, name: str, box: Cell) -> None:
    value = read(box)
    if type(value) is Container:
        boxed(context, box, name, semantics.unbound_local)
        value.cells[0] = uniform(UNSET)
        return
    clear = partial(semantics.SEMANTICS["clear_box"], name)
    write_rows(context, clear, box)


def _format(context: Context, conversion: str, cell: Cell, spec: Cell) -> Cell:
    return host(context, partial(semantics.SEMANTICS["format"], conversion), [cell, spec])


def _join(context: Context, attr: Any, *cells: Cell) -> Cell:
    return host(context, semantics.SEMANTICS["join"], list(cells))


def host(context: Context, meaning: Callable[..., Any], cells: list[Cell]) -> Cell:
    values = [read(cell) for cell in cells]
    if all(type(value) is Uniform for value in values):
        return once(context, meaning, *[value.obj for value in values])  # type: ignore[union-attr]
    return run_rows(context, meaning, cells, {}, "strings are made on the host")


def _import_from(context: Context, name: str, module: Cell) -> Cell:
    value = read(module)
    assert type(value) is Uniform
    try:
        return uniform(semantics.import_from(name, value.obj), shared=True)
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error


def _call(context: Context, shape: CallShape, callee: Cell, *cells: Cell) -> Cell:
    try:
        args, kwargs = arguments(context, shape, callee, list(cells))
    except Differing as found:
        effect = resolving.resolve(callee, [], {}).effect
        if effect in ("program", "construct", "chain", "hooked"):
            raise
        return call_rows(context, shape, callee, found.cells, effect)
    context.leave()
    target = resolving.resolve(callee, args, kwargs)
    if target.effect in ("program", "construct", "objects"):
        return context.invoke(context, callee, args, kwargs)
    return calls.run(context, target.called_by(shape))


def call_rows(
    context: Context, shape: CallShape, callee: Cell, cells: list[Cell], effect: str
) -> Cell:
    """A call whose arguments differ in number: thread by thread."""
    meaning = partial(semantics.call, shape)
    why = "the number of arguments differs by thread"
    shown = None if effect == "host" and not any(map(calls.may_write, cells)) else True
    return run_rows(
        context, meaning, [callee, *cells], {}, why, keep=True, fresh=False, effect=shown
    )


def arguments(
    context: Context, shape: CallShape, callee: Cell, cells: list[Cell]
) -> tuple[list[Cell], dict[str, Cell]]:
    """The arguments of a call, ``*x`` and ``**x`` laid open."""
    if shape.is_plain:
        count = len(shape.positional)
        return cells[:count], dict(zip(shape.keywords, cells[count:], strict=True))  # type: ignore[arg-type]
    title = titled(callee)
    laid_open: list[Any] = []
    stars = (*shape.positional, *shape.keywords)
    try:
        for starred, cell in zip(stars, cells, strict=True):
            if starred is True:
                laid_open.append(starred_parts(context, title, cell, len(shape.positional) == 1))
            elif starred is None:
                laid_open.append(mapping_of(context, title, cell))
            else:
                laid_open.append(cell)
    except Differing as found:
        done = list(map(used_up, stars, laid_open))
        found.cells = [*done, found.laid_open, *cells[len(done) + 1 :]]
        raise
    try:
        return semantics.arguments(shape, title, tuple(laid_open))
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error


def _handled(context: Context, scope: Scope, op: Op, env: Env) -> None:
    cell = env[op.args[0]] if op.args else env.get(HANDLED)
    if cell is None:
        try:
            env[op.outs[0]] = uniform(semantics.handled(op.attr, None))
        except RuntimeError as error:
            raise RowsFail(context.lowest(), error) from error
        return
    rows = [semantics.handled(op.attr, error) for error in Rower(context).rows(cell)]
    env[op.outs[0]] = Cell(Objects(rows))


def _add_context(context: Context, scope: Scope, op: Op, env: Env) -> None:
    cell = env[op.args[1]] if len(op.args) > 1 else env.get(HANDLED)
    if cell is not None:
        catching.add_context(context, env[op.args[0]], cell)


Handler = Callable[..., Any]
FRAMED: dict[str, Handler] = {
    "global": _global,
    "load_free": _load_free,
    "load_outer": _load_outer,
    "free_box": _free_box,
    "delete": _delete,
    "import": _import,
    "function": _function,
    "handled": _handled,
    "context": _add_context,
}


def _fixed(rule: Callable[..., Any], name: str) -> Handler:
    return lambda context, attr, *cells: rule(context, name, *cells)


TABLE: dict[str, Handler] = {
    **FRAMED,
    **{name: _fixed(operators.unary, name) for name in UNARY},
    **{name: _fixed(operators.binary, name) for name in BINARY},
    **{f"i{name}": _fixed(operators.inplace, name) for name in BINARY},
    **{name: _fixed(comparisons.compare, name) for name in COMPARE},
    "const": lambda context, value: uniform(value),
    "copy": lambda context, attr, cell: cell,
    "box": _box,
    "load_box": _load_box,
    "load_outer_box": _load_outer_box,
    "store_box": _store_box,
    "clear_box": _clear_box,
    "getattr": lambda context, name, cell: attributes.get(context, cell, name),
    "setattr": lambda context, name, cell, item: attributes.put(context, cell, name, item),
    "delattr": lambda context, name, cell: attributes.remove(context, cell, name),
    "getitem": lambda context, attr, *cells: subscripts.getitem(context, *cells),
    "setitem": lambda context, attr, *cells: subscripts.setitem(context, *cells),
    "delitem": lambda context, attr, *cells: subscripts.delitem(context, *cells),
    "slice": lambda context, attr, *cells: Cell(Container(slice, list(cells))),
    "tuple": lambda context, attr, *cells: Cell(Container(tuple, list(cells))),
    "list": lambda context, attr, *cells: Cell(Container(list, list(cells))),
    "set": displays.set_,
    "dict": displays.dict_,
    "extend": displays.extend,
    "update": displays.update,
    "append": displays.append,
    "to_tuple": displays.to_tuple,
    "to_set": displays.to_set,
    "format": _format,
    "join": _join,
    "unpack": iterators.unpack,
    "iter": lambda context, attr, cell: iterators.iterate(context, cell),
    "next": lambda context, attr, cell: iterators.advance(context, cell),
    "call": _call,
    "import_from": _import_from,
    "truth": lambda context, attr, cell: truth(context, cell),
    "select": lambda context, attr, *cells: select(context, *cells),
    "sum_begun": lambda context, attr, *cells: sums.begun(context, *cells),
    "sum_left": lambda context, attr, *cells: sums.left(context, *cells),
    "sum_lost": lambda context, attr, *cells: sums.lost_by(context, *cells),
    "sum_whole": lambda context, attr, *cells: sums.whole(context, *cells),
    "assertion": lambda context, attr, *cells: catching.made(context, AssertionError, cells, {}),
    "catches": catching.catches,
    "enter": managing.mode_entered,
    "manager": managing.ways,
}
