"""The records of a recorded stretch: operations on values, generic in the thread count.

A ``Graph`` is straight-line: each ``Node`` applies one torch operator to arguments that hold
``Ref`` (a value), ``Count`` (a multiple of the thread count), ``Symbol`` (a uniform Python
number among the inputs) and constants, nested in lists and tuples. Values are numbered; the
inputs come first. Values that share storage (views) have one ``Meta.storage``.

Invariants: a value is made by at most one node, before it is read; a node that writes to an
argument makes no new value for it; no input's storage is written to,
but in a graph that is printed for that (``over``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload


class Untraceable(Exception):
    """A stretch that cannot be recorded; it runs untraced, for the reason given."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Ref:
    """The tensor with this number."""

    value: int


@dataclass(frozen=True, slots=True)
class Count:
    """``multiple`` times the thread count."""

    multiple: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """The Python number that is input ``position``, plus ``offset``."""

    position: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Meta:
    """What is known of a tensor without its data; a size of None differs in an unknown way."""

    shape: tuple[Any, ...]
    stride: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device
    storage: int


@dataclass(frozen=True, slots=True)
class Node:
    """``outs = op(*args, **kwargs)``; an entry of ``outs`` is None where nothing new is made.

    ``single`` tells a lone tensor from a tuple or list of them. ``grad`` is False where the
    operator ran without gradients although the caller was recording them.
    """

    op: OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outs: tuple[int | None, ...]
    single: bool = True
    grad: bool = True

    @property
    def mutates(self) -> bool:
        """Whether the operator writes to one of its arguments."""
        return bool(_written(self.op))

    @property
    def is_view(self) -> bool:
        """Whether the result shares storage with an argument, so that no kernel runs."""
        return _makes_view(self.op)

    def reads(self) -> Iterator[int]:
        """The values among the arguments, in order, as often as they occur."""
        yield from values_in(self.args)
        yield from values_in(tuple(self.kwargs.values()))

    def writes(self) -> Iterator[int]:
        """The values that the operator writes to."""
        for place, name in _written(self.op):
            given = self.args[place] if place < len(self.args) else None
            yield from values_in(self.kwargs.get(name, given))


@cache
def _written(op: OpOverload) -> tuple[tuple[int, str], ...]:
    """Places and names of the arguments that an operator writes to."""
    places = enumerate(op._schema.arguments)
    return tuple((i, a.name) for i, a in places if a.alias_info and a.alias_info.is_write)


@cache
def _makes_view(op: OpOverload) -> bool:
    return not _written(op) and any(r.alias_info is not None for r in op._schema.returns)


@dataclass(frozen=True, slots=True)
class Graph:
    """A stretch: ``inputs`` values come from outside, ``outputs`` go back out.

    ``literals`` are tensors that the stretch itself wrote down, the same at every run.
    """

    inputs: int
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    metas: Mapping[int, Meta]
    literals: Mapping[int, Tensor]

    def written(self) -> frozenset[int]:
        """The storages that some node writes to."""
        return frozenset(self.metas[v].storage for node in self.nodes for v in node.writes())

    def leaving(self) -> frozenset[int]:
        """The storages that the caller gets to see."""
        return frozenset(self.metas[out].storage for out in self.outputs)


def values_in(argument: Any) -> Iterator[int]:
    """The values that an argument refers to."""
    if isinstance(argument, Ref):
        yield argument.value
    elif isinstance(argument, (tuple, list)):
        for item in argument:
            yield from values_in(item)


def rename(node: Node, now: Mapping[int, int]) -> Node:
    """The node reading other values, as ``now`` tells."""
    if not any(value in now for value in node.reads()):
        return node
    kwargs = {name: _renamed(argument, now) for name, argument in node.kwargs.items()}
    return replace(node, args=_renamed(node.args, now), kwargs=kwargs)


def _renamed(argument: Any, now: Mapping[int, int]) -> Any:
    if isinstance(argument, Ref):
        return Ref(now.get(argument.value, argument.value))
    if isinstance(argument, (tuple, list)):
        return type(argument)(_renamed(item, now) for item in argument)
    return argument


def is_constant(argument: Any) -> bool:
    """Whether an argument is the same at every run."""
    if isinstance(argument, (tuple, list)):
        return all(map(is_constant, argument))
    return not isinstance(argument, (Ref, Count, Symbol))


def text(graph: Graph) -> str:
    """The graph as text: one operation a line."""
    names = ", ".join(f"%{i}" for i in range(graph.inputs))
    lines = [f"graph(k, {names})"]
    lines += [f"  %{value} = {tensor.tolist()!r}" for value, tensor in graph.literals.items()]
    for node in graph.nodes:
        outs = ", ".join("_" if out is None else f"%{out}" for out in node.outs)
        words = [show(a) for a in node.args] + [f"{n}={show(a)}" for n, a in node.kwargs.items()]
        marks = "" if node.grad else "  # no_grad"
        lines.append(f"  {outs} = {node.op}({', '.join(words)}){marks}")
    return "\n".join([*lines, f"  return {', '.join(f'%{out}' for out in graph.outputs)}"])


def show(argument: Any) -> str:
    """An argument as the text of a graph has it."""
    match argument:
        case Ref(value):
            return f"%{value}"
        case Count(1):
            return "k"
        case Count(multiple):
            return f"{multiple}*k"
        case Symbol(position, 0):
            return f"%{position}"
        case Symbol(position, offset):
            return f"%{position}{offset:+d}"
        case list() | tuple():
            return f"[{', '.join(map(show, argument))}]"
    return repr(argument)


def dense_strides(shape: Sequence[object]) -> tuple[object, ...]:
    """The strides of a dense tensor, row after row, as a graph has them; None for what it has not.

    Sizes are ints, or multiples of the number of threads.
    """
    strides: list[object] = []
    step: object = 1
    for size in reversed(shape):
        strides.append(step)
        if isinstance(size, int) and isinstance(step, int):
            step *= size
        elif isinstance(size, Count) and isinstance(step, int):
            step = Count(size.multiple * step)
        elif isinstance(size, int) and isinstance(step, Count):
            step = Count(step.multiple * size)
        else:
            step = None
    return tuple(reversed(strides))
