"""Which operands and results of a recorded stretch are guarded (see ``presence``).

In: a graph through whose replays gradients may flow. Out: by place among the nodes and place among
its arguments, the guard of an operand that has a row for each thread, or is broadcast to that; and
by place among the nodes what its results go through.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.trace.graph import Count, Graph, Meta, Node, Ref, Symbol
from autobatch.presence import risks
from autobatch.presence.guards import (
    ONE,
    WHOLE,
    Fold,
    all_bounded,
    bounded,
    bounded_if_shared_wild,
    guarded,
    guarded_if_shared_wild,
    guarded_if_wild,
)
from autobatch.presence.moves import kept
from autobatch.presence.products import FACTORS
from autobatch.presence.record import is_finite
from autobatch.presence.risks import HOLDING, PRODUCTS, is_steep, name_of

_THREADS = Count(1)


@dataclass(frozen=True, slots=True)
class Guard:
    """``function(operand, dim, shape, fold)``; threads are in dimension ``dim``, folded so."""

    function: Callable[..., Tensor]
    dim: int
    shape: tuple[Any, ...] | None = None
    fold: Fold = ONE


def guards(graph: Graph) -> Mapping[int, Mapping[int, Guard]]:
    """``wild`` are the values that may be infinite for finite inputs."""
    function: Callable[..., Tensor]
    wild: set[int] = set()
    found: dict[int, Mapping[int, Guard]] = {}
    makers = makers_of(graph)
    for place, node in enumerate(graph.nodes):
        name, reads_wild = name_of(node.op), not wild.isdisjoint(node.reads())
        infinite = may_be_infinite(graph, node)
        risky = infinite or is_steep(name, node.kwargs)
        if infinite or reads_wild:
            wild.update(out for out in node.outs if out is not None)
        if node.mutates or node.is_view or not node.grad:
            continue
        if risky or name in PRODUCTS or name in HOLDING or has_groups(node):
            function = guarded if risky or reads_wild else guarded_if_wild
            if here := dict(of_operands(graph, makers, node, function)):
                found[place] = here
        elif name in FACTORS and (others := shared_by(graph, node)):
            function = guarded if not wild.isdisjoint(others) else guarded_if_shared_wild
            own = of_operands(graph, makers, node, function)
            first = int(name.startswith(ADDING))
            if here := {nr: guard for nr, guard in own if nr >= first}:
                found[place] = here
    return found


ADDING = ("add", "badd")
"""Products whose first operand is added to them."""


def in_calm(
    given: Mapping[int, Mapping[int, Guard]], ended: Mapping[int, End]
) -> tuple[Mapping[int, Mapping[int, Guard]], Mapping[int, End]]:
    """What is left of both where no operand is infinite: what is looked at whatever they are."""
    always: dict[int, Mapping[int, Guard]] = {}
    for place, here in given.items():
        if found := {nr: guard for nr, guard in here.items() if guard.function is guarded}:
            always[place] = found
    return always, {at: e for at, e in ended.items() if e.function is kept or at in always}


def is_bare(graph: Graph) -> bool:
    """Whether nothing is looked at where no operand is infinite."""
    found = guards(graph)
    return not (gives_infinities(graph) or any(in_calm(found, ends(graph, found))))


def barring(given: Mapping[int, Mapping[int, Guard]]) -> Iterator[int]:
    """The guarded places at which more than what all threads share may be infinite."""
    for place, here in given.items():
        if any(guard.function is not guarded_if_shared_wild for guard in here.values()):
            yield place


def has_infinite(graph: Graph, node: Node) -> bool:
    """Whether a number that the stretch itself wrote down is, and makes a product so."""
    literals = (graph.literals[value] for value in node.reads() if value in graph.literals)
    numbers = (arg for arg in node.args if type(arg) is float)
    return not (all(map(is_finite, literals)) and all(map(math.isfinite, numbers)))


def shared_by(graph: Graph, node: Node) -> set[int]:
    """The operands of a product that all threads share."""
    return {value for value in node.reads() if is_uniform(graph.metas[value])}


def shared_inputs(graph: Graph) -> list[int]:
    """What a replay gets that all threads share, and that may make something infinite.

    Numbers do as factors; else they are what is put where a mask says, or bounds.
    """
    metas, factors = graph.metas, (n for n in graph.nodes if name_of(n.op) in PRODUCTS)
    numbers = {arg.position for node in factors for arg in node.args if type(arg) is Symbol}
    tensors = (i for i in range(graph.inputs) if i in metas and is_uniform(metas[i]))
    return sorted(numbers | {i for i in tensors if is_smooth(metas[i].dtype)})


@dataclass(frozen=True, slots=True)
class End:
    """``function(results, *dims)``; threads are in those dimensions."""

    function: Callable[..., Any]
    dims: tuple[Any, ...] = ()


def ends(graph: Graph, given: Mapping[int, Mapping[int, Guard]]) -> Mapping[int, End]:
    """``given`` are the guards of operands."""
    always = set(barring(given))
    found = {at: End(kept) for at, node in enumerate(graph.nodes) if keeps_rows(node)}
    for place in given:
        outs = graph.nodes[place].outs
        dims = tuple(None if out is None else rows_dim(graph.metas[out]) for out in outs)
        if not graph.nodes[place].single:
            found[place] = End(all_bounded, (dims,))
        elif dims[0] is not None:
            found[place] = End(bounded if place in always else bounded_if_shared_wild, dims)
    return found


Dims = tuple[tuple[int | None, ...], int, Fold]


def products(graph: Graph) -> Mapping[int, Dims]:
    """Products of rows with what all threads share: the rows' dimension in each operand and in the
    result, and how threads are folded into it.
    """
    found: dict[int, Dims] = {}
    makers = makers_of(graph)
    read = {*graph.outputs, *(value for node in graph.nodes for value in node.reads())}
    for place, node in enumerate(graph.nodes):
        if name_of(node.op) not in FACTORS or not node.grad or node.mutates:
            continue
        out, *others = node.outs
        if not read.isdisjoint(others):
            continue
        own = [rows_of(graph, makers, argument) for argument in node.args]
        dims = [None if rows is None else rows[0] for rows in own]
        smooth = [a for a in node.args if type(a) is Ref and is_uniform(graph.metas[a.value])]
        folds = {rows[1] for rows in own if rows is not None}
        if out is None or not smooth or len(folds) != 1:
            continue
        (fold,) = folds
        dim = threads_dim(graph.metas[out], math.prod(fold))
        known = all(dims[nr] is not None or is_whole(graph, a) for nr, a in enumerate(node.args))
        if dim is not None and known:
            found[place] = (tuple(dims), dim, fold)
    return found


def makers_of(graph: Graph) -> Mapping[int, Node]:
    return {out: node for node in graph.nodes for out in node.outs if out is not None}


def has_groups(node: Node) -> bool:
    """Whether it is a convolution in which each thread has weights of its own."""
    return name_of(node.op) == "convolution" and type(node.args[-1]) is Count


def rows_of(graph: Graph, makers: Mapping[int, Node], argument: Any) -> tuple[int, Fold] | None:
    """In which dimension of an argument threads have rows, and how they are folded into it."""
    if type(argument) is not Ref:
        return None
    meta, maker = graph.metas[argument.value], makers.get(argument.value)
    if (dim := threads_dim(meta)) is not None:
        return dim, ONE
    if maker is None or name_of(maker.op) not in FOLDING or type(maker.args[0]) is not Ref:
        return None
    given = graph.metas[maker.args[0].value].shape
    counts = [at for at, size in enumerate(meta.shape) if type(size) is Count]
    if len(counts) != 1 or given.count(_THREADS) != 1 or not is_smooth(meta.dtype):
        return None
    (dim,), at = counts, given.index(_THREADS)
    multiple = meta.shape[dim].multiple
    if any(type(size) is not int for sizes in (meta.shape[:dim], given[:at]) for size in sizes):
        return None
    turns, rest = divmod(math.prod(given[:at]), math.prod(meta.shape[:dim]))
    if rest or not turns or multiple % turns:
        return None
    return dim, (turns, multiple // turns)


FOLDING = ("reshape", "unsafe_view", "view")
"""They keep the order of elements: of ``[k, n, ...]`` a thread's are next to each other."""


def is_whole(graph: Graph, argument: Any) -> bool:
    """Whether an argument is the same whichever threads there are."""
    if type(argument) is Ref:
        return is_uniform(graph.metas[argument.value])
    return type(argument) is not Count


def threads_dim(meta: Meta, count: int = 1) -> int | None:
    """The dimension in which each thread has so many rows."""
    size = Count(count)
    return meta.shape.index(size) if is_smooth(meta.dtype) and size in meta.shape else None


def rows_dim(meta: Meta) -> int | None:
    """The same, or ``WHOLE`` of what they share."""
    return WHOLE if is_smooth(meta.dtype) and is_uniform(meta) else threads_dim(meta)


def keeps_rows(node: Node) -> bool:
    """Whether its kind may move rows, which what is recorded of threads never does."""
    return node.grad and name_of(node.op) in MOVING


MOVING = frozenset({"flip", "index", "index_add", "index_put", "index_select", "roll"})
"""Those that give the nodes ``presence.moves.PERMUTES``."""


def gives_infinities(graph: Graph) -> bool:
    """Whether some value may be infinite for finite inputs, be it differentiated or not."""
    return any(may_be_infinite(graph, node) for node in graph.nodes)


def may_be_infinite(graph: Graph, node: Node) -> bool:
    made, name = (graph.metas[out].dtype for out in node.outs if out is not None), name_of(node.op)
    gives = risks.gives_infinities(name, node.args)
    return (gives or (name in PRODUCTS and has_infinite(graph, node))) and any(map(is_smooth, made))


def of_operands(
    graph: Graph, makers: Mapping[int, Node], node: Node, function: Callable[..., Tensor]
) -> Iterator[tuple[int, Guard]]:
    metas = graph.metas
    shared = broadcast_shape(graph, node)
    once = is_once(graph, node)
    for place, argument in enumerate(node.args):
        if type(argument) is not Ref or argument.value in graph.literals:
            continue
        meta = metas[argument.value]
        if not is_smooth(meta.dtype):
            continue
        if _THREADS in meta.shape:
            yield place, Guard(function, meta.shape.index(_THREADS))
        elif shared is not None and is_uniform(meta):
            yield place, Guard(function, shared.index(_THREADS), shared)
        elif once:
            yield place, Guard(function, WHOLE)
        elif (rows := rows_of(graph, makers, argument)) is not None:
            yield place, Guard(function, rows[0], fold=rows[1])


def is_once(graph: Graph, node: Node) -> bool:
    """Whether it runs once for all threads: they share what it gives, and what it reads."""
    values = [*node.reads(), *(out for out in node.outs if out is not None)]
    return all(is_uniform(graph.metas[value]) for value in values)


LOSSES = frozenset(
    {"binary_cross_entropy", "huber_loss", "mse_loss", "smooth_l1_loss", "soft_margin_loss"}
)
"""Pointwise, where they do not reduce; torch does not say so."""


def broadcast_shape(graph: Graph, node: Node) -> tuple[Any, ...] | None:
    """The shape of what a pointwise operation gives for threads, if it can be that of its operands.

    One of another dtype might then count as another kind of number.
    """
    is_pointwise = torch.Tag.pointwise in node.op.tags or name_of(node.op) in LOSSES
    if not is_pointwise or len(node.outs) != 1 or node.outs[0] is None:
        return None
    shape = graph.metas[node.outs[0]].shape
    dtypes = {graph.metas[value].dtype for value in node.reads()}
    known = all(type(size) is int or size == _THREADS for size in shape)
    return shape if _THREADS in shape and known and len(dtypes) == 1 else None


def is_uniform(meta: Meta) -> bool:
    return all(type(size) is int for size in meta.shape)


def is_smooth(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex
