"""Rewrites of a recorded graph, each small, and the order in which they run.

    dead code          what no result needs goes
    in place → pure    c = clone(x); add_(c, y)         →  c = add(x, y)
    copies             y = _to_copy(x) to x's own dtype →  y is x
    constants          scalar_tensor(2.0)               →  a literal, made once
    numbers            mul(x, 2.0)                      →  mul(x, literal 2.0)

and those of ``arithmetic``, ``layout`` and ``dots``. A rewrite keeps every value of the results;
the storage that a result shares with inputs or other results is kept too. Storages that are
written to stay untouched, except by the second rewrite. Where gradients may flow that takes
what shares memory with values that are read no more (``sigmoid_`` of a gate), if a backward may
have to look at the operands.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from autobatch.batching.trace.arithmetic import Site, cheaper, equal
from autobatch.batching.trace.dots import fuse_dots, part_outers
from autobatch.batching.trace.failing import may_fail
from autobatch.batching.trace.graph import (
    Graph,
    Meta,
    Node,
    Ref,
    dense_strides,
    is_constant,
    rename,
)
from autobatch.batching.trace.layout import fuse_products, simplify_views, turn_products
from autobatch.presence.risks import is_looked_at, name_of

_ATEN = torch.ops.aten
_TO = _ATEN._to_copy.default
_UNSAFE_SPLIT = _ATEN.unsafe_split.Tensor
_NO_GRADIENT = (_ATEN.copy.default, _ATEN.zero.default)
_LARGEST_CONSTANT = 4096
_ROUNDS = 4


def simplify(graph: Graph, grad: bool, fast: bool = False, flows: bool = False) -> Graph:
    """The graph after all rewrites.

    ``grad``: gradients may flow through a replay, by what it gets if that ``flows``; ``fast``:
    floats may be rounded otherwise.
    """
    graph = make_pure(drop_dead(graph), flows)
    for _ in range(_ROUNDS):
        before = graph.nodes
        graph = drop_copies(simplify_views(graph), grad, fast)
        graph = drop_dead(part_outers(fuse_dots(fuse_products(turn_products(graph)))))
        if graph.nodes == before:
            break
    return drop_dead(lift_numbers(lift_constants(graph)))


def drop_dead(graph: Graph) -> Graph:
    """Keep the nodes that a result needs: by value, or by a write to a storage it reads.

    And those that may fail, which shows.
    """
    live = set(graph.outputs)
    storages = set(graph.leaving())
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        written = {graph.metas[value].storage for value in node.writes()}
        if (
            not written & storages
            and live.isdisjoint(node.outs)
            and not may_fail(node, graph.metas)
        ):
            continue
        kept.append(node)
        live.update(node.reads())
        storages.update(graph.metas[value].storage for value in node.reads())
    literals = {value: tensor for value, tensor in graph.literals.items() if value in live}
    return replace(graph, nodes=tuple(reversed(kept)), literals=literals)


def make_pure(graph: Graph, grad: bool = False) -> Graph:
    """An in-place operator on a value without views becomes its pure form.

    Only where all operands have one floating dtype: otherwise the pure form may promote.
    """
    shared = _shared_storages(graph)
    split = {
        out: node.outs for node in graph.nodes if node.op is _UNSAFE_SPLIT for out in node.outs
    }
    metas = dict(graph.metas)
    now: dict[int, int] = {}
    nodes: list[Node] = []
    for place, node in enumerate(graph.nodes):
        pure = _pure_form(node, graph, shared)
        if pure is None and grad and is_looked_at(name_of(node.op), node.args):
            pure = _pure_beside(place, graph, split)
        node = rename(node, now)
        if pure is not None:
            target = next(node.writes())
            out = max(metas) + 1
            metas[out] = replace(metas[target], storage=out)
            if target in split:
                metas[out] = replace(metas[out], stride=dense_strides(metas[out].shape))
            now = {old: out if new == target else new for old, new in now.items()}
            now[target] = out
            node = replace(node, op=pure, outs=(out,))
        elif node.is_view and now:
            metas.update(follow(node, metas))
        nodes.append(node)
    outputs = tuple(now.get(out, out) for out in graph.outputs)
    return replace(graph, nodes=tuple(nodes), outputs=outputs, metas=metas)


def _shared_storages(graph: Graph) -> set[int]:
    """The storages of more than one value."""
    made = [out for node in graph.nodes for out in node.outs if out is not None]
    given = [value for value in (*range(graph.inputs), *graph.literals) if value in graph.metas]
    uses = Counter(graph.metas[value].storage for value in (*given, *made))
    return {storage for storage, number in uses.items() if number > 1}


def _pure_form(node: Node, graph: Graph, shared: set[int]) -> OpOverload | None:
    if not node.mutates or any(graph.metas[value].storage in shared for value in node.writes()):
        return None
    return pure_op(node, graph)


def _pure_beside(
    place: int, graph: Graph, split: Mapping[int | None, Iterable[int | None]]
) -> OpOverload | None:
    """The pure form of a write that no other value of the same memory sees.

    ``split`` has the parts of unsafe splits, by each of them.
    """
    node = graph.nodes[place]
    target = next(node.writes(), None)
    if target is None or not is_unseen(graph, place, target, split.get(target, ())):
        return None
    return pure_op(node, graph)


def is_unseen(graph: Graph, place: int, target: int, parts: Iterable[int | None]) -> bool:
    """Whether what is read after a write lies apart from what it writes, or comes of it.

    ``parts``: those of the split that the target is a part of.
    """
    storage = graph.metas[target].storage
    before = {out for node in graph.nodes[:place] for out in node.outs}
    before |= set(range(graph.inputs)) | set(graph.literals)
    later = {value for node in graph.nodes[place + 1 :] for value in node.reads()}
    known = (later | set(graph.outputs)) & before
    return all(graph.metas[value].storage != storage for value in known - {target, *parts})


def follow(view: Node, metas: Mapping[int, Meta]) -> dict[int, Meta]:
    """What is known of views, which have the memory of what their base has become."""
    (base, *_) = view.reads()
    storage = metas[base].storage
    return {out: replace(metas[out], storage=storage) for out in view.outs if out is not None}


def pure_op(node: Node, graph: Graph) -> OpOverload | None:
    """The pure form of a write to one tensor, where all operands have one floating dtype."""
    name = node.op._schema.name.split("::")[1]
    written = list(node.writes())
    if not node.grad or node.op.namespace != "aten" or not name.endswith("_") or len(written) != 1:
        return None
    dtypes = {graph.metas[value].dtype for value in node.reads()}
    pure = getattr(getattr(_ATEN, name[:-1], None), node.op._overloadname, None)
    fits = len(dtypes) == 1 and dtypes.pop().is_floating_point
    return pure if fits and isinstance(pure, OpOverload) and _computes(pure, node.op) else None


def _computes(pure: OpOverload, op: OpOverload) -> bool:
    """Whether the pure operator makes a new tensor from the same arguments, differentiably."""
    kinds = {torch.Tag.inplace_view, torch.Tag.nondeterministic_seeded}
    names = [[a.name for a in schema.arguments] for schema in (pure._schema, op._schema)]
    return kinds.isdisjoint(op.tags) and names[0] == names[1] and pure not in _NO_GRADIENT


def drop_copies(graph: Graph, grad: bool, fast: bool = False) -> Graph:
    """What is equal to a value is that value, where nobody can tell them apart."""
    written = graph.written()
    pinned = written | graph.leaving()
    metas = dict(graph.metas)
    now: dict[int, int] = {}
    nodes: list[Node] = []
    moved: dict[int, int] = {}
    makers: dict[int, Node] = {}
    for node in graph.nodes:
        node = rename(node, now)
        site = Site(node, makers, metas, grad, fast)
        source = _copied(node, metas, grad)
        if source is None:
            source = equal(site)
        if source is not None and node.outs[0] is not None:
            old, new = metas[node.outs[0]].storage, metas[source].storage
            if old == new or (old not in pinned and new not in written):
                now[node.outs[0]] = source
                moved[old] = moved.get(new, new)
                continue
        less = cheaper(site)
        if written.isdisjoint(metas[value].storage for value in less.reads()):
            node = less
            out = node.outs[0] if len(node.outs) == 1 else None
            if out is not None and metas[out].storage not in written:
                makers[out] = node
        nodes.append(node)
    metas = {v: replace(m, storage=moved.get(m.storage, m.storage)) for v, m in metas.items()}
    outputs = tuple(now.get(out, out) for out in graph.outputs)
    return replace(graph, nodes=tuple(nodes), outputs=outputs, metas=metas)


def _copied(node: Node, metas: Mapping[int, Meta], grad: bool) -> int | None:
    """The value that a node only copies, layout and all."""
    if not node.grad or not node.args or not isinstance(node.args[0], Ref):
        return None
    source = node.args[0].value
    if node.op is _ATEN.alias.default or (node.op is _ATEN.detach.default and not grad):
        return source
    if node.op in (_TO, _ATEN.clone.default) and node.outs[0] is not None:
        a, b = metas[source], metas[node.outs[0]]
        known = None not in (*a.shape, *a.stride)
        if known and replace(a, storage=0) == replace(b, storage=0):
            return source
    return None


def lift_constants(graph: Graph) -> Graph:
    """Run now what makes the same small tensor at every run."""
    literals = dict(graph.literals)
    pinned = graph.written() | graph.leaving()
    nodes: list[Node] = []
    for node in graph.nodes:
        if _is_constant_node(node, graph, literals, pinned) and node.outs[0] is not None:
            literals[node.outs[0]] = _run(node, literals)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), literals=literals)


def _is_constant_node(
    node: Node, graph: Graph, literals: Mapping[int, Tensor], pinned: frozenset[int]
) -> bool:
    if len(node.outs) != 1 or node.outs[0] is None or node.mutates:
        return False
    meta = graph.metas[node.outs[0]]
    if meta.storage in pinned or torch.Tag.nondeterministic_seeded in node.op.tags:
        return False
    fixed = all(is_constant(a) or isinstance(a, Ref) for a in (*node.args, *node.kwargs.values()))
    small = is_constant(meta.shape) and None not in meta.shape
    small = small and math.prod(meta.shape) <= _LARGEST_CONSTANT
    return fixed and small and all(value in literals for value in node.reads())


def _run(node: Node, literals: Mapping[int, Tensor]) -> Tensor:
    args = [literals[a.value] if isinstance(a, Ref) else a for a in node.args]
    with torch.no_grad():
        made: Tensor = node.op(*args, **node.kwargs)
    return made


WITH_TENSOR: Mapping[OpOverload, OpOverload] = {
    _ATEN.add.Tensor: _ATEN.add.Tensor,
    _ATEN.sub.Tensor: _ATEN.sub.Tensor,
    _ATEN.mul.Tensor: _ATEN.mul.Tensor,
    _ATEN.div.Tensor: _ATEN.div.Tensor,
    _ATEN.mul.Scalar: _ATEN.mul.Tensor,
    _ATEN.div.Scalar: _ATEN.div.Tensor,
    _ATEN.div.Tensor_mode: _ATEN.div.Tensor_mode,
    _ATEN.remainder.Scalar: _ATEN.remainder.Tensor,
    _ATEN.bitwise_and.Scalar: _ATEN.bitwise_and.Tensor,
    _ATEN.bitwise_right_shift.Tensor_Scalar: _ATEN.bitwise_right_shift.Tensor,
    _ATEN.eq.Scalar: _ATEN.eq.Tensor,
    _ATEN.ne.Scalar: _ATEN.ne.Tensor,
    _ATEN.lt.Scalar: _ATEN.lt.Tensor,
    _ATEN.le.Scalar: _ATEN.le.Tensor,
    _ATEN.gt.Scalar: _ATEN.gt.Tensor,
    _ATEN.ge.Scalar: _ATEN.ge.Tensor,
}
_KIND = {torch.float32: float, torch.float64: float, torch.int64: int}


def lift_numbers(graph: Graph) -> Graph:
    """A number operand becomes a literal: torch spends 1.6 µs on wrapping one at every call.

    Only where it would be converted to the other operand's dtype anyway, so that no value and
    no dtype changes.
    """
    metas, literals = dict(graph.metas), dict(graph.literals)
    made: dict[Any, int] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if (dtype := _takes_number(node, metas)) is not None:
            key = (repr(node.args[1]), dtype)
            if key not in made:
                value = made[key] = max(metas) + 1
                literals[value] = torch.tensor(node.args[1], dtype=dtype)
                metas[value] = Meta((), (), dtype, literals[value].device, value)
            op = WITH_TENSOR[node.op]
            node = replace(node, op=op, args=(node.args[0], Ref(made[key])))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), literals=literals, metas=metas)


def _takes_number(node: Node, metas: Mapping[int, Meta]) -> torch.dtype | None:
    if node.op not in WITH_TENSOR or len(node.args) != 2 or not isinstance(node.args[0], Ref):
        return None
    meta = metas[node.args[0].value]
    kind = _KIND.get(meta.dtype)
    number = node.args[1]
    fits = type(number) is kind or (kind is float and type(number) is int)
    if not fits or not meta.shape or None in meta.shape or "alpha" in node.kwargs:
        return None
    return meta.dtype
