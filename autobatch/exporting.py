"""Straight-line parts of programs as ``torch.fx`` graphs: one block, for one example.

In: a ``Program`` and the number of a block of its entry. Out: a ``GraphModule`` that computes what
the block does: it takes the variables that live at the block's start, by name, and gives what the
block returns, or else a dict of what lives on, with what its branch asks. Global and captured names
are looked up now; a module among them (``nn.Linear``) becomes a submodule, a tensor an attribute.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from types import BuiltinMethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node

from autobatch.batching.calling.resolving import resolve_object
from autobatch.errors import Diagnostic, OptionError, UnsupportedError
from autobatch.ir.dataflow import liveness, terminator_reads
from autobatch.ir.ops import BINARY, COMPARE, UNARY
from autobatch.ir.program import Branch, Jump, Op, Program, Return, Var
from autobatch.runs.executing import Entry

_NAMED = {"and": "and_", "or": "or_", "is": "is_", "not": "not_"}
OPERATORS: dict[str, Callable[..., Any]] = {
    name: getattr(operator, _NAMED.get(name, name))
    for name in (*UNARY, *BINARY, *(f"i{name}" for name in BINARY), *COMPARE)
    if name not in ("in", "not_in")
} | {
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "truth": operator.truth,
}
_LITERALS = (type(None), bool, int, float, complex, str, torch.dtype, torch.device, type(Ellipsis))


@dataclass(frozen=True, slots=True)
class Known:
    """An object that is known now: of a global name, or an attribute of one."""

    value: object


@dataclass(frozen=True, slots=True)
class Method:
    """``receiver.name``, until it is called."""

    receiver: Node
    name: str


def to_fx(program: Program, block: int = 0) -> GraphModule:
    """A block of the program's entry as a ``torch.fx.GraphModule`` for one example.

    Args:
        program: what ``lower`` gives. A function without control flow is its block 0, whole.
        block: the number of the block, as the text has it.

    Raises:
        OptionError: there is no such block.
        UnsupportedError: the block calls a function with control flow, raises, or holds an
            operation that a graph has no node for; with its place.
    """
    blocks = program.main.blocks
    if type(block) is not int or not 0 <= block < len(blocks):
        raise OptionError(f"block is {block!r}; {program.entry} has b0 to b{len(blocks) - 1}.")
    exporting = Exporting.of(program)
    live = liveness(blocks)
    end = blocks[block].terminator
    params = [param.name for param in program.main.params]
    inputs = params if block == 0 else [name for name in params if name in live[block]]
    exporting.enter([*inputs, *sorted(live[block].difference(params))])
    for op in blocks[block].ops:
        exporting.run(op)
    match end:
        case Return(value=value):
            result = exporting.leaf(value)
        case Jump() | Branch():
            after = {name for target in blocks[block].targets() for name in live[target]}
            names = sorted(after.union(terminator_reads(end)))
            result = {name: exporting.leaf(name) for name in names}
        case _:
            raise refused(f"b{block} ends in a {type(end).__name__.lower()}", end.span)
    exporting.graph.output(result)
    return GraphModule(exporting.attributes, exporting.graph, program.entry)


def refused(what: str, span: Any) -> UnsupportedError:
    headline = f"torch.fx has no straight-line graph of this: {what}."
    hint = "export another block: autobatch.to_fx(program, block=…)."
    return UnsupportedError(Diagnostic(headline, span, hints=(hint,), code="to-fx"))


@dataclass(slots=True, eq=False, repr=False)
class Exporting:
    """A graph in the making: what its variables are, and what it takes from its root."""

    names: dict[str, object]
    free: dict[str, object]
    env: dict[Var, Any] = field(default_factory=dict)
    graph: Graph = field(default_factory=Graph)
    attributes: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program) -> Exporting:
        """With what names mean now, and the parameters that a method or ``partial`` has filled."""
        function = Entry.of(program).function
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        free = {name: cell.cell_contents for name, cell in cells}
        made = cls({**vars(builtins), **function.__globals__}, free)
        target = resolve_object(program.callable, [], {})
        if target.effect == "program":
            names = (param.name for param in program.main.params)
            filled = {**dict(zip(names, target.args, strict=False)), **target.kwargs}
            made.env = {name: Known(cell.value.obj) for name, cell in filled.items()}  # type: ignore[union-attr]
        return made

    def enter(self, names: list[Var]) -> None:
        for name in names:
            if name not in self.env:
                self.env[name] = self.graph.placeholder(name.replace("%", "_"))

    def leaf(self, name: Var) -> Any:
        return self.argument(self.env[name])

    def argument(self, value: Any) -> Any:
        """A value as an operand of a node."""
        match value:
            case Known(value=found):
                return self.known(found)
            case Method(receiver=receiver, name=name):
                return self.graph.call_function(getattr, (receiver, name))
            case tuple() | list():
                return type(value)(map(self.argument, value))
            case dict():
                return {key: self.argument(each) for key, each in value.items()}
            case slice():
                parts = (value.start, value.stop, value.step)
                return slice(*map(self.argument, parts))
        return value

    def known(self, found: Any) -> Any:
        """An object from outside: a literal, or an attribute of the graph's root."""
        if isinstance(found, _LITERALS):
            return found
        if not isinstance(found, Tensor | nn.Module):
            raise TypeError(f"{type(found).__name__} is neither a tensor nor a number")
        return self.graph.get_attr(self.attribute(found))

    def attribute(self, found: Tensor | nn.Module) -> str:
        for name, value in self.attributes.items():
            if value is found:
                return name
        kind = "module" if isinstance(found, nn.Module) else "tensor"
        name = f"{kind}_{len(self.attributes)}"
        self.attributes[name] = found
        return name

    def run(self, op: Op) -> None:
        """One operation, as nodes."""
        try:
            made = self.made(op)
        except (TypeError, LookupError) as error:
            raise refused(f"{op.name}: {error}", op.span) from None
        for out, value in zip(op.outs, made if len(op.outs) > 1 else [made], strict=False):
            self.env[out] = value

    def made(self, op: Op) -> Any:
        given = [self.env[arg] for arg in op.args]
        match op.name:
            case "const":
                return Known(op.attr)
            case "global":
                return Known(self.names[op.attr])
            case "load_free":
                return Known(self.free[op.attr])
            case "copy":
                return given[0]
            case "getattr":
                return self.attribute_of(given[0], op.attr)
            case "tuple" | "list" | "slice":
                kinds: dict[str, Callable[[list[Any]], Any]] = {
                    "tuple": tuple,
                    "list": list,
                    "slice": lambda parts: slice(*parts),
                }
                return kinds[op.name](given)
            case "unpack":
                return self.unpacked(op, given[0])
            case "call":
                return self.called(op, given)
        if op.name not in OPERATORS:
            raise TypeError("a graph has no node for it")
        return self.graph.call_function(OPERATORS[op.name], tuple(map(self.argument, given)))

    def attribute_of(self, value: Any, name: str) -> Any:
        known = isinstance(value, Known)
        of_tensor = isinstance(value, Node) or (known and isinstance(value.value, Tensor))
        if of_tensor and callable(getattr(Tensor, name, None)):
            return Method(self.argument(value), name)
        if known:
            return Known(getattr(value.value, name))
        return self.graph.call_function(getattr, (self.argument(value), name))

    def unpacked(self, op: Op, value: Any) -> list[Any]:
        if op.attr.starred:
            raise TypeError("the number of its targets is not fixed")
        if isinstance(value, tuple | list):
            return list(value)
        source = self.argument(value)
        return [
            self.graph.call_function(operator.getitem, (source, place))
            for place in range(op.attr.before)
        ]

    def called(self, op: Op, given: list[Any]) -> Node:
        if not op.attr.is_plain:
            raise TypeError("its arguments are starred")
        count = len(op.attr.positional)
        args = tuple(map(self.argument, given[1 : 1 + count]))
        kwargs = dict(zip(op.attr.keywords, map(self.argument, given[1 + count :]), strict=True))
        match given[0]:
            case Method(receiver=receiver, name=name):
                return self.graph.call_method(name, (receiver, *args), kwargs)
            case Known(value=nn.Module() as module):
                return self.graph.call_module(self.attribute(module), args, kwargs)
            case Known(value=BuiltinMethodType(__self__=owner, __module__=None)):
                raise TypeError(f"a method of {type(owner).__name__} is no function of a module")
            case Known(value=function) if callable(function):
                return self.graph.call_function(function, args, kwargs)
        return self.graph.call_function(operator.call, (self.argument(given[0]), *args), kwargs)
