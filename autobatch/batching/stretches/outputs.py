"""What a recorded stretch leaves behind: templates of the cells that it makes.

A recording runs on fake tensors; ``Template`` notes of each output cell how to make it again from
the tensors that a replay returns. Nodes are in order, so parts come before wholes, and a cell
that several names refer to is one node.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from autobatch.batching.tensors.views import PICKED, picked_by
from autobatch.batching.trace import Untraceable
from autobatch.values.cells import Cell, Column, Container, Uniform, View, read, shown_memory
from autobatch.values.heap.likeness import identity

OPEN = -1
"""The node of a cell whose parts are being noted."""
NO_NUMBER = -1
"""The node of no input."""


@dataclass(frozen=True, slots=True)
class Node:
    """``kind`` is one of

    input (a leaf), cell (a container that was there), column, tensor, uniform, container, view;
    ``refs`` are earlier nodes, ``number`` is that of the input by which a view may pick its part.
    """

    kind: str
    refs: tuple[int, ...] = ()
    slot: int = 0
    tag: str = ""
    static: Any = None
    number: int = NO_NUMBER


@dataclass(frozen=True, slots=True)
class OfInput:
    """The memory of an input that all threads share, by its position among the leaves."""

    leaf: int

    def memory(self, inputs: Sequence[Cell | None]) -> int:
        cell = inputs[self.leaf]
        return True if cell is None else shown_memory(cell.value)


@dataclass(slots=True, eq=False, repr=False)
class Template:
    """``names`` maps each output variable to a node; ``tensors`` are the outputs in slot order.

    ``numbers`` are the nodes of the ints that are inputs, by what they are in this recording;
    ``memories`` are the inputs that all threads share, by their memory.
    """

    nodes: list[Node] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    memo: dict[int, int] = field(default_factory=dict)
    kept: list[Cell] = field(default_factory=list)
    numbers: dict[int, list[int]] = field(default_factory=dict)
    memories: dict[int, OfInput] = field(default_factory=dict)

    def shape(self) -> Hashable:
        """Equal for recordings that leave the same behind."""
        nodes = [(n.kind, n.refs, n.slot, n.tag, static_key(n)) for n in self.nodes]
        return (tuple(nodes), tuple(self.names.items()))

    def give(self, cell: Cell, leaf: int) -> None:
        """Note an input's cell, by its position among the leaves."""
        self.memo[id(cell)] = node = self.add(cell, Node("input", slot=leaf))
        value = cell.value
        if type(value) is Uniform and type(value.obj) is int:
            self.numbers.setdefault(value.obj, []).append(node)
        if memory := shown_memory(value):
            self.memories[memory] = OfInput(leaf)

    def keep(self, cell: Cell, place: int) -> None:
        """Note a container that was there before, by its position among them."""
        self.memo[id(cell)] = self.add(cell, Node("cell", slot=place))

    def add(self, cell: Cell, node: Node) -> int:
        self.kept.append(cell)
        self.nodes.append(node)
        return len(self.nodes) - 1

    def slot(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def visit(self, cell: Cell) -> int:
        known = self.memo.get(id(cell))
        if known is None:
            self.memo[id(cell)] = OPEN
            known = self.memo[id(cell)] = self.add(cell, self.node(cell))
        if known is OPEN:
            raise Untraceable("a list that holds itself has no parts that come before it")
        return known

    def node(self, cell: Cell) -> Node:
        value = cell.value
        match value:
            case Column(data=data, tag=tag):
                self.columns.append(value)
                outside = value.outside
                of_input = self.memories.get(outside) if type(outside) is int else None
                static = of_input or bool(np.any(outside))
                return Node("column", slot=self.slot(data), tag=tag, static=static)
            case Uniform(obj=Tensor() as obj):
                return Node("tensor", slot=self.slot(obj), static=value.shared)
            case Uniform(obj=obj):
                return Node("uniform", static=value)
            case Container():
                refs = tuple(self.visit(child) for child in value.children())
                return Node("container", refs, static=value)
            case View():
                refs = tuple(self.visit(part) for part in (value.base, *value.args))
                content = read(cell)
                data = content.data if type(content) is Column else content.obj  # type: ignore[union-attr]
                tag = "tensor" if type(content) is Column else "uniform"
                if not isinstance(data, Tensor):
                    raise Untraceable("a view of no tensor")
                return Node("view", refs, self.slot(data), tag, value.recipe, self.number(value))
        raise Untraceable("a result is an object")

    def number(self, view: View) -> int:
        """The node of the one input that may be ``n`` of a view ``x[n]``."""
        number = picked_by(view.recipe)
        found = [] if number is None else self.numbers.get(number, [])
        return found[0] if len(found) == 1 else NO_NUMBER

    def by_numbers(self) -> Template:
        """The same where views ``x[n]`` go by the inputs that ``n`` may be."""
        nodes = [
            node
            if node.number == NO_NUMBER
            else replace(node, refs=(*node.refs, node.number), static=PICKED, number=NO_NUMBER)
            for node in self.nodes
        ]
        return replace(self, nodes=nodes)

    def make(
        self, outs: Sequence[Tensor], inputs: Sequence[Cell | None], cells: Sequence[Cell]
    ) -> list[Cell]:
        """The cells for a replay's tensors."""
        made: list[Any] = []
        for node in self.nodes:
            kind = node.kind
            if kind == "column":
                outside = node.static
                if type(outside) is OfInput:
                    outside = outside.memory(inputs)
                made.append(Cell(Column(outs[node.slot], node.tag, outside=outside)))
            elif kind == "input":
                made.append(inputs[node.slot])
            elif kind == "cell":
                made.append(cells[node.slot])
            elif kind == "tensor":
                made.append(Cell(Uniform(outs[node.slot], node.static)))
            elif kind == "uniform":
                made.append(Cell(Uniform(node.static.obj, node.static.shared)))
            elif kind == "container":
                made.append(Cell(node.static.rebuilt(iter([made[ref] for ref in node.refs]))))
            else:
                made.append(view_of(node, outs[node.slot], [made[ref] for ref in node.refs]))
        return made


def view_of(node: Node, data: Tensor, parts: list[Cell]) -> Cell:
    content = Column(data) if node.tag == "tensor" else Uniform(data)
    args = tuple(Cell(p.value) if type(p.value) is Uniform else p for p in parts[1:])
    return Cell(View(parts[0], node.static, args, content, read(parts[0])))


def static_key(node: Node) -> Hashable:
    match node.kind:
        case "uniform":
            return (identity(node.static.obj), node.static.shared)
        case "container":
            cells = node.static.cells
            keys = tuple(cells) if isinstance(cells, dict) else len(cells)
            return (node.static.type, keys, identity(node.static.static))
        case "view":
            key: Hashable = node.static.key
            return key
    static: Hashable = node.static
    return static
