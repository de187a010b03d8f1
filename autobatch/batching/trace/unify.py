"""Unification: two recordings of one stretch become a graph that is generic in what differed.

The recordings were made at thread counts k1 and k2 and with different values for each uniform
Python number. Walked side by side they must hold the same operators; where an integer is
``m * k1`` in one and ``m * k2`` in the other it is ``m * k``, where a number differs as an input
does (up to a small offset for integers) it is that input. Anything else that differs makes the
stretch untraceable. A place that holds the same number in both is a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from autobatch.batching.trace.graph import Count, Graph, Meta, Node, Ref, Symbol, Untraceable
from autobatch.batching.trace.recorder import Event, Recording

_LARGEST_OFFSET = 2
_LARGEST_LITERAL = 1024
_ATEN = torch.ops.aten
_LITERALS = (_ATEN.lift_fresh.default, _ATEN.lift_fresh_copy.default)


class _Differs(Exception):
    """Two numbers or objects differ in a way that no input explains."""


def unify(first: Recording, second: Recording, counts: tuple[int, int], grad: bool = True) -> Graph:
    """The graph of two recordings made at these thread counts, or ``Untraceable``.

    ``grad``: whether the caller was recording gradients; if not, no node needs to say so.
    """
    if len(first.events) != len(second.events) or len(first.outputs) != len(second.outputs):
        raise Untraceable("what runs depends on the thread count or on a number's value")
    walk = _Walk(_Numbers(first.inputs, second.inputs, counts), grad)
    for a, b in zip(first.inputs, second.inputs, strict=True):
        walk.enter_input(a, b)
    for event_a, event_b in zip(first.events, second.events, strict=True):
        walk.enter_event(event_a, event_b)
    outputs = [
        walk.join(a, b, "a result") for a, b in zip(first.outputs, second.outputs, strict=True)
    ]
    return Graph(
        inputs=len(first.inputs),
        nodes=tuple(walk.nodes),
        outputs=tuple(ref.value for ref in outputs),
        metas=walk.metas,
        literals=walk.literals,
    )


class _Numbers:
    """Joins two numbers to a constant, a ``Count`` or a ``Symbol``."""

    def __init__(
        self, first: Sequence[Any], second: Sequence[Any], counts: tuple[int, int]
    ) -> None:
        self.counts = counts
        pairs = list(enumerate(zip(first, second, strict=True)))
        self.ints = {a - b: (i, a) for i, (a, b) in pairs if type(a) is int}
        self.floats = {b: (i, a) for i, (a, b) in pairs if type(a) is float}

    def join(self, a: Any, b: Any) -> Any:
        if type(a) is not type(b):
            raise _Differs
        if _is_same(a, b):
            return a
        if type(a) is int:
            return self._join_ints(a, b)
        position, value = self.floats.get(b, (-1, None))
        if position >= 0 and _is_same(a, value):
            return Symbol(position)
        raise _Differs

    def _join_ints(self, a: int, b: int) -> Count | Symbol:
        multiple, rest = divmod(a, self.counts[0])
        if rest == 0 and b == multiple * self.counts[1]:
            return Count(multiple)
        position, value = self.ints.get(a - b, (-1, 0))
        if position < 0 or abs(a - value) > _LARGEST_OFFSET:
            raise _Differs
        return Symbol(position, a - value)


def _is_same(a: Any, b: Any) -> bool:
    return bool(a == b) or (a != a and b != b)


@dataclass(slots=True)
class _Walk:
    """The state of the walk; values are numbered in the order in which they appear."""

    numbers: _Numbers
    grad: bool
    nodes: list[Node] = field(default_factory=list)
    metas: dict[int, Meta] = field(default_factory=dict)
    literals: dict[int, Tensor] = field(default_factory=dict)
    known: tuple[dict[int, int], dict[int, int]] = field(default_factory=lambda: ({}, {}))
    storages: dict[int, int] = field(default_factory=dict)
    not_ours: set[int] = field(default_factory=set)
    next_value: int = 0

    def enter_input(self, a: Any, b: Any) -> None:
        if isinstance(a, Tensor):
            sizes = ((tuple(a.shape), a.stride()), (tuple(b.shape), b.stride()))
            self.not_ours.add(self.metas[self.name(a, b, *sizes)].storage)
        else:
            self.next_value += 1

    def name(self, a: Tensor, b: Tensor, sizes_a: Any, sizes_b: Any) -> int:
        """Give two fake tensors, of which one stands for the other, their number."""
        value = self.next_value
        self.next_value += 1
        self.known[0][id(a)] = self.known[1][id(b)] = value
        if a.dtype != b.dtype or len(sizes_a[0]) != len(sizes_b[0]):
            raise Untraceable("a dtype depends on the thread count or on a number's value")
        storage = self.storages.setdefault(a.untyped_storage()._cdata, value)
        shape, stride = (self.sizes(x, y) for x, y in zip(sizes_a, sizes_b, strict=True))
        self.metas[value] = Meta(shape, stride, a.dtype, a.device, storage)
        return value

    def sizes(self, first: Sequence[int], second: Sequence[int]) -> tuple[Any, ...]:
        joined: list[Any] = []
        for a, b in zip(first, second, strict=True):
            try:
                joined.append(self.numbers.join(a, b))
            except _Differs:
                joined.append(None)
        return tuple(joined)

    def enter_event(self, a: Event, b: Event) -> None:
        if a.op is not b.op or a.kwargs.keys() != b.kwargs.keys():
            raise Untraceable("what runs depends on the thread count or on a number's value")
        if a.op in _LITERALS and id(a.args[0]) not in self.known[0]:
            self.enter_literal(a, b)
            return
        args = self.join(a.args, b.args, a.op)
        kwargs = {name: self.join(a.kwargs[name], b.kwargs[name], a.op) for name in a.kwargs}
        node = Node(a.op, args, kwargs, (), isinstance(a.out, Tensor), a.grad or not self.grad)
        self.refuse_foreign_writes(node)
        if torch.Tag.inplace_view in a.op.tags:
            # unsqueeze_ and the like change no data: a view takes the tensor's place
            node = replace(node, op=_view_form(a.op))
            del self.known[0][id(a.out)]
        self.nodes.append(replace(node, outs=self.enter_outs(a, b)))

    def enter_outs(self, a: Event, b: Event) -> tuple[int | None, ...]:
        if isinstance(a.out, Tensor):
            return (self.enter_out(a.out, b.out, a.sizes[0], b.sizes[0]),)
        if not isinstance(a.out, (tuple, list)):
            return ()
        if len(a.out) != len(b.out):
            raise Untraceable(f"{a.op} makes another number of results at another thread count")
        made: list[int | None] = []
        for x, y, size_x, size_y in zip(a.out, b.out, a.sizes, b.sizes, strict=True):
            flat = (size_x[0], size_y[0]) if isinstance(x, Tensor) else ((), ())
            made.append(self.enter_out(x, y, *flat))
        return tuple(made)

    def enter_out(self, a: Any, b: Any, sizes_a: Any, sizes_b: Any) -> int | None:
        if not isinstance(a, Tensor) or id(a) in self.known[0]:
            return None
        return self.name(a, b, sizes_a, sizes_b)

    def enter_literal(self, a: Event, b: Event) -> None:
        """A tensor written down in the stretch: a number becomes an operation, others are kept."""
        first, second = a.args[0], b.args[0]
        if first.dim() == 0:
            number = self.join(first.item(), second.item(), a.op)
            kwargs = {"dtype": first.dtype, "device": first.device}
            out = self.name(a.out, b.out, a.sizes[0], b.sizes[0])
            self.nodes.append(Node(_ATEN.scalar_tensor.default, (number,), kwargs, (out,)))
            return
        same = first.shape == second.shape and torch.equal(first, second)
        if not same or first.numel() > _LARGEST_LITERAL:
            raise Untraceable("a tensor is made from numbers that differ from run to run")
        value = self.name(a.out, b.out, a.sizes[0], b.sizes[0])
        self.literals[value] = first.detach().clone()
        self.not_ours.add(self.metas[value].storage)

    def join(self, a: Any, b: Any, where: Any) -> Any:
        """One argument from two; ``where`` names the operator in the reason for a refusal."""
        if isinstance(a, Tensor):
            return self.join_tensors(a, b, where)
        if isinstance(a, (tuple, list)) and type(a) is type(b) and len(a) == len(b):
            return type(a)(self.join(x, y, where) for x, y in zip(a, b, strict=True))
        try:
            return self.numbers.join(a, b)
        except _Differs:
            raise Untraceable(
                f"an argument of {where} depends on the thread count or on a number ({a!r}, {b!r})"
            ) from None

    def join_tensors(self, a: Tensor, b: Any, where: Any) -> Ref:
        value = self.known[0].get(id(a))
        if value is None or value != self.known[1].get(id(b)):
            raise Untraceable(f"{where} reads a tensor that the trace has not seen being made")
        return Ref(value)

    def refuse_foreign_writes(self, node: Node) -> None:
        """Inputs and literals outlive a run, so a run must leave them as they are."""
        for value in node.writes():
            if self.metas[value].storage in self.not_ours:
                raise Untraceable(f"{node.op} changes an input in place")


def _view_form(op: OpOverload) -> OpOverload:
    """``squeeze`` for ``squeeze_``."""
    name = op._schema.name.split("::")[1]
    form = getattr(getattr(_ATEN, name.removesuffix("_"), None), op._overloadname, None)
    if not isinstance(form, OpOverload) or form is op:
        raise Untraceable(f"{op} changes a tensor's shape in place")
    return form
