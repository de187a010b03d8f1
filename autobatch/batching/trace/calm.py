"""What a recorded stretch looks at while nothing was infinite before it (see ``presence.calm``).

In: a graph through whose replays gradients may flow, and which operands and products it would guard
if something were infinite. Out: the values, as few as will do, that are finite if nothing has
overflowed which a derivative could come by: operands of those, and results of the replay.

    s = x * x
    u = s * s               shows what s is; looked at: where it is infinite cos has no derivative
    h = cos(u)              between -1 and 1
    y = tanh(w @ h)         looked at, as a result; tanh has a derivative everywhere
    return y

Invariant: what a replay gets is finite, be it that somebody has written it down so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from autobatch.batching.trace.graph import Graph, Node, Ref, Symbol
from autobatch.batching.trace.guarding import has_infinite
from autobatch.presence.record import SUMMED
from autobatch.presence.risks import (
    MASKED,
    QUOTIENTS,
    SATURATING,
    SHOWING,
    TAME,
    WITHIN_ONE,
    name_of,
)

PRODUCT = frozenset({"mul", "multiply"})
FILLING = frozenset(
    {"clamp", "clamp_max", "clamp_min", "full", "full_like", "masked_fill", "new_full"}
)
CASTS = frozenset({"to", "to_copy", "type", "float"})


Look = tuple[int, int]
"""A value and where it is looked at: the place of what has made it, or written to it, last."""
Looks = Mapping[int, Sequence[int]]
"""The same by place."""


def looks(graph: Graph, watched: Iterable[int]) -> Looks:
    """``watched`` are the places of the nodes that have guards, or are products.

    On another device than the CPU there are none: a look would wait for it.
    """
    if any(meta.device.type != "cpu" for meta in graph.metas.values()):
        return {}
    places = frozenset(watched)
    asked = Finding.of(graph, places).asked
    asked = Finding.of(graph, places, frozenset(asked)).kept
    found: dict[int, list[int]] = {}
    for value, place in unshown(graph, asked):
        found.setdefault(place, []).append(value)
    return found


@dataclass(slots=True)
class Finding:
    """``unsure`` are values that may have overflowed, each by the value it is a part of, with the
    place where; ``filled`` those in which somebody has put infinite numbers, as masks have them;
    ``small`` are between -1 and 1; ``asked`` are to be looked at, in order. Of values that are
    looked at (``sound``) it has ``kept`` those that do not follow from others.
    """

    graph: Graph
    watched: frozenset[int]
    sound: frozenset[Look] = frozenset()
    bases: dict[int, int] = field(default_factory=dict)
    unsure: dict[int, int] = field(default_factory=dict)
    filled: dict[int, int] = field(default_factory=dict)
    small: set[int] = field(default_factory=set)
    asked: list[Look] = field(default_factory=list)
    kept: list[Look] = field(default_factory=list)

    @classmethod
    def of(
        cls, graph: Graph, watched: frozenset[int], sound: frozenset[Look] = frozenset()
    ) -> Finding:
        found = cls(graph, watched, sound)
        for place, node in enumerate(graph.nodes):
            found.pass_by(place, node)
        for value in graph.outputs:
            found.ask(value, found.unsure, found.filled)
        return found

    def pass_by(self, place: int, node: Node) -> None:
        name = name_of(node.op)
        if place in self.watched and name not in SATURATING:
            asked = (self.unsure,) if name in MASKED else (self.unsure, self.filled)
            for value in node.reads():
                self.ask(value, *asked)
        made = [out for out in (*node.outs, *node.writes()) if out is not None]
        if self.is_small(node):
            self.small.update(made)
        else:
            self.small.difference_update(made)
        if node.is_view:
            self.bases.update((out, self.base(next(node.reads()))) for out in made)
            return
        among = self.result_of(node)
        for each in ((self.base(out), place) for out in made if self.is_float(out)):
            if among is not None and each in self.sound:
                self.kept.append(each)
            elif among is not None:
                among.update([each])

    def base(self, value: int) -> int:
        """What it is a part of, by itself."""
        return self.bases.get(value, value)

    def is_float(self, value: int) -> bool:
        return self.graph.metas[value].dtype in SUMMED

    def ask(self, value: int, *among: dict[int, int]) -> None:
        base = self.base(value)
        for each in among:
            if base in each:
                self.asked.append((base, each.pop(base)))

    def result_of(self, node: Node) -> dict[int, int] | None:
        """What the results are among; None: they are finite if what has been asked for is."""
        name, read = name_of(node.op), [self.base(value) for value in node.reads()]
        smooth = [value for value in read if self.is_float(value)]
        if any(value in self.unsure for value in smooth):
            return self.unsure
        if self.fills(node) or any(value in self.filled for value in smooth):
            return self.unsure if name in MASKED or name not in TAME else self.filled
        return self.unsure if smooth and self.may_overflow(name, node) else None

    def fills(self, node: Node) -> bool:
        """Whether it puts a number somewhere that is infinite, or is another one each time."""
        numbers = name_of(node.op) in FILLING and any(type(arg) is Symbol for arg in node.args)
        return numbers or has_infinite(self.graph, node)

    def may_overflow(self, name: str, node: Node) -> bool:
        """Whether a result of finite operands may be infinite."""
        if name in TAME:
            return False
        if name in PRODUCT:
            return sum(not self.is_within_one(operand) for operand in node.args[:2]) > 1
        if name in QUOTIENTS:
            return not (is_number(node.args[1]) and abs(node.args[1]) >= 1)
        return name not in CASTS or self.is_narrowing(node)

    def is_within_one(self, operand: Any) -> bool:
        if type(operand) is Ref:
            return operand.value in self.small
        return is_number(operand) and abs(operand) <= 1

    def is_small(self, node: Node) -> bool:
        if name_of(node.op) in PRODUCT:
            return all(map(self.is_within_one, node.args[:2]))
        moved = node.is_view and all(value in self.small for value in node.reads())
        return moved or name_of(node.op) in WITHIN_ONE

    def is_narrowing(self, node: Node) -> bool:
        metas = self.graph.metas
        ranges = [
            torch.finfo(metas[value].dtype).max
            for value in (*node.reads(), *(out for out in node.outs if out is not None))
            if metas[value].dtype.is_floating_point
        ]
        return ranges[-1] < ranges[0]


def unshown(graph: Graph, asked: Sequence[Look]) -> Iterator[Look]:
    """Those that no other of them shows, the last first."""
    readers: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for value in node.reads():
            readers.setdefault(value, []).append(node)
    kept: set[int] = set()
    for value, place in reversed(asked):
        if not any(shown in kept for shown in shown_by(value, readers)):
            kept.add(value)
            yield value, place


def shown_by(value: int, readers: Mapping[int, list[Node]]) -> Iterator[int]:
    """The values that are not finite where this one is not."""
    waiting, seen = [value], set[int]()
    while waiting:
        for node in readers.get(waiting.pop(), ()):
            (out, *others) = node.outs
            if others or out is None or out in seen or not is_showing(node):
                continue
            seen.add(out)
            waiting.append(out)
            yield out


def is_showing(node: Node) -> bool:
    return name_of(node.op) in SHOWING and not node.kwargs


def is_number(operand: Any) -> bool:
    return isinstance(operand, int | float) and math.isfinite(operand)
