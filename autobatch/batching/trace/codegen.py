"""Code: a graph becomes one straight-line Python function ``replay(k, *inputs)``.

A line an operation, each calling torch's fast function for it; a value is deleted after its
last read, so memory peaks as in hand-written code, and results go into the memory of what is read
for the last time, as far as no gradient needs that (``reuse``). Operators that ran without
gradients stand under ``no_grad``; where the recording saw autocast (its casts are operations of
the graph), the replay runs without it.

    def replay(k, a0, a1):
        v2 = mm(a0, a1)
        v3 = tanh(v2)
        del v2
        return (v3,)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.trace.bindings import Example, binding
from autobatch.batching.trace.calm import Looks, looks
from autobatch.batching.trace.graph import Count, Graph, Node, Ref, Symbol
from autobatch.batching.trace.guarding import (
    Dims,
    End,
    Guard,
    barring,
    ends,
    gives_infinities,
    guards,
    in_calm,
    products,
    shared_inputs,
)
from autobatch.batching.trace.lifted import lifted
from autobatch.batching.trace.narrow import stand_in
from autobatch.batching.trace.picked import picks, threads_places
from autobatch.batching.trace.reuse import NOTHING, in_place
from autobatch.presence.calm import held, look, sound
from autobatch.presence.guards import ONE, is_watchful
from autobatch.presence.products import product, product_over
from autobatch.presence.record import has_sum, met, wild
from autobatch.structure import own_attribute

Replay = Callable[..., tuple[Tensor, ...]]


def compile_graph(
    graph: Graph,
    example: Example,
    autocast: Iterable[str] = (),
    grad: bool = True,
    within: bool = False,
    spent: Set[int] = NOTHING,
    heeded: bool = False,
) -> tuple[Replay, str]:
    """The replay function of a graph and its source.

    ``autocast``: the devices for which the recording saw it on; ``grad``: whether gradients may
    flow through a replay; ``within``: whether it runs within a transform, where results keep to
    memory of their own; ``spent``: inputs that nobody else holds; ``heeded``: whether, without
    gradients, the run is to know if something overflows.
    """
    given = guards(graph) if grad or heeded else {}
    of_shared = products(graph) if grad or heeded else {}
    seen = looks(graph, {*given, *of_shared}) if grad or heeded else {}
    if not grad:
        given, of_shared = {}, {}
    ended = ends(graph, given)
    writes = {} if within else in_place(graph, grad, set(barring(given)), spent)
    printer = _Printer(graph, example, writes, given, ended, of_shared, grad, seen)
    body = [*printer.beginning(), *printer.bodies()]
    for kind in autocast:
        body = [
            f"with {printer.constant(torch.autocast)}({kind!r}, enabled=False):",
            *_deeper(body),
        ]
    parameters = ", ".join(["k", *(f"a{i}" for i in range(graph.inputs))])
    source = "\n".join([f"def replay({parameters}):", *_deeper(body)]) + "\n"
    space: dict[str, Any] = dict(printer.names)
    exec(compile(source, "<autobatch trace>", "exec"), space)
    return space["replay"], source


def _deeper(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


@dataclass(slots=True)
class _Printer:
    """Prints a graph; ``names`` are the globals of the printed function."""

    graph: Graph
    example: Example
    in_place: Mapping[int, Node]
    guards: Mapping[int, Mapping[int, Guard]]
    ends: Mapping[int, End]
    products: Mapping[int, Dims]
    grad: bool
    looks: Looks = field(default_factory=dict)
    again: bool = False
    names: dict[str, Any] = field(default_factory=dict)
    threads: Set[int] | None = None

    def beginning(self) -> list[str]:
        """What the record of the run hears first."""
        lines = [f"{self.constant(wild)}()"] if gives_infinities(self.graph) else []
        if given := shared_inputs(self.graph):
            lines.append(f"{self.constant(met)}({', '.join(f'a{place}' for place in given)})")
        return lines

    def bodies(self) -> list[str]:
        """The operations; first as they are while nothing may be infinite, if that differs.

        What overflows then has them run once more, unless they draw.
        """
        watched = replace(self, looks={})
        if gives_infinities(self.graph):
            return watched.body()
        guards, ends = in_calm(self.guards, self.ends)
        differs = bool(self.products) or len(guards) < len(self.guards)
        again = differs and not any(map(draws, self.graph.nodes))
        calm = replace(self, guards=guards, ends=ends, products={}, again=again)
        if not differs:
            return calm.body()
        return [f"if not {self.constant(is_watchful)}():", *_deeper(calm.body()), *watched.body()]

    def body(self) -> list[str]:
        lines = self.beginning_to_look() if self.looks else []
        dying = _last_reads(self.graph)
        inside = False
        for place, node in enumerate(self.graph.nodes):
            quiet = not node.grad
            if quiet and not inside:
                lines.append(f"with {self.constant(torch.no_grad)}():")
            inside = quiet
            dead = sorted(dying.get(place, ()))
            here = [self.statement(place, self.in_place.get(place, node), dead)]
            here += [f"s{value} = see(v{value})" for value in self.looks.get(place, ())]
            if left := [f"v{value}" for value in dead if self.survives(node, value, dead)]:
                here.append(f"del {', '.join(left)}")
            lines += _deeper(here) if quiet else here
        results = "".join(f"{self.name(out)}, " for out in self.graph.outputs)
        return [*lines, *self.end(f"return ({results})")]

    def beginning_to_look(self) -> list[str]:
        return [
            f"see = {self.constant(look)}()" if self.grad else f"see = {self.constant(has_sum)}"
        ]

    def end(self, leave: str) -> list[str]:
        """Leaves, unless the operations are to run once more."""
        if not self.looks:
            return [leave]
        seen = ", ".join(f"s{value}" for values in self.looks.values() for value in values)
        ask = f"{self.constant(held if self.grad else sound)}({seen})"
        return [f"if {ask}:", *_deeper([leave])] if self.again else [ask, leave]

    def survives(self, node: Node, value: int, dead: list[int]) -> bool:
        """Whether a dead value has a name: the unread results of one that is read have none."""
        return value not in node.outs or not _only_one_read(node, dead)

    def statement(self, place: int, node: Node, dead: list[int]) -> str:
        call = self.call(place, node)
        if (end := self.ends.get(place)) is not None:
            words = ", ".join([call, *map(repr, end.dims)])
            call = f"{self.constant(end.function)}({words})"
        made = [out for out in node.outs if out is not None]
        if not made:
            return call
        if node.single:
            return f"v{made[0]} = {call}"
        if _only_one_read(node, dead):
            place = next(
                i for i, out in enumerate(node.outs) if out is not None and out not in dead
            )
            return f"v{node.outs[place]} = {call}[{place}]"
        targets = ["_" if out is None else f"v{out}" for out in node.outs]
        return f"{', '.join(targets)}, = {call}"

    def call(self, place: int, node: Node) -> str:
        looked_at = self.guards.get(place, {})
        function = None if self.grad else self.stand_in(node)
        function = function or binding(node, self.graph.metas, self.example)
        words = [self.operand(a, looked_at.get(nr)) for nr, a in enumerate(node.args)]
        pure = self.graph.nodes[place]
        numbers = None if self.grad else lifted(pure, function, self.graph.metas, self.example)
        if numbers is not None:
            words[1] = f"{self.constant(numbers)}[{words[1]}]"
        words += [f"{name}={self.argument(a)}" for name, a in node.kwargs.items()]
        if (dims := self.products.get(place)) is not None:
            words = [self.constant(function), *map(repr, dims), *words]
            if node is not pure:
                again = binding(pure, self.graph.metas, self.example)
                words = [self.constant(again), *words]
            function = product if node is pure else product_over
        return f"{self.constant(function)}({', '.join(words)})"

    def stand_in(self, node: Node) -> Callable[..., Any] | None:
        """What does the same where no gradient flows, in less time."""
        if self.threads is None:
            self.threads = threads_places(self.graph)
        return stand_in(node, self.graph.metas) or picks(self.graph, node, self.threads)

    def operand(self, argument: Any, guard: Guard | None) -> str:
        word = self.argument(argument)
        if guard is None:
            return word
        more = "" if guard.shape is None else f", {self.argument(guard.shape)}"
        more += "" if guard.fold == ONE else f", fold={guard.fold}"
        return f"{self.constant(guard.function)}({word}, {guard.dim}{more})"

    def argument(self, argument: Any) -> str:
        match argument:
            case Ref(value):
                return self.name(value)
            case Count(multiple):
                return "k" if multiple == 1 else f"{multiple} * k"
            case Symbol(position, offset):
                return f"a{position} + {offset}" if offset else f"a{position}"
            case list() | tuple():
                items = [self.argument(item) for item in argument]
                plain = all(isinstance(item, (int, Count, Symbol)) for item in argument)
                return f"({', '.join(items)},)" if items and plain else f"[{', '.join(items)}]"
            case bool() | int() | str() | None:
                return repr(argument)
            case float() if math.isfinite(argument):
                return repr(argument)
        return self.constant(argument)

    def name(self, value: int) -> str:
        if value in self.graph.literals:
            self.names[f"c{value}"] = self.graph.literals[value]
            return f"c{value}"
        return f"a{value}" if value < self.graph.inputs else f"v{value}"

    def constant(self, thing: Any) -> str:
        """A global name for a function or constant, after its own name where it has one."""
        wish = own_attribute(thing, "__name__", "constant").split(".")[0]
        wish = wish if wish.isidentifier() else "constant"
        name = wish
        while name in self.names and self.names[name] is not thing:
            name = f"{wish}_{len(self.names)}"
        self.names[name] = thing
        return name


def draws(node: Node) -> bool:
    return torch.Tag.nondeterministic_seeded in node.op.tags


def _only_one_read(node: Node, dead: list[int]) -> bool:
    """Whether of several results one alone is read later."""
    alive = [out for out in node.outs if out is not None and out not in dead]
    return not node.single and len(alive) == 1


def _last_reads(graph: Graph) -> Mapping[int, set[int]]:
    """By place among the nodes, the made values that nothing reads after it."""
    last: dict[int, int] = {}
    for place, node in enumerate(graph.nodes):
        for value in (*node.reads(), *(out for out in node.outs if out is not None)):
            last[value] = place
    kept = {*graph.outputs, *graph.literals, *range(graph.inputs)}
    dying: dict[int, set[int]] = {}
    for value, place in last.items():
        if value not in kept:
            dying.setdefault(place, set()).add(value)
    return dying
