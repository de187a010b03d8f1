"""Which operations of a recording a fused kernel may hold, and which are views.

A kernel computes what torch's own operators do, to rounding, and fails on no value: so there are
no integers that may leave their dtype or be divided by zero in it, no indices, no half precision
(which a kernel would round less often), and no literal zero in a sum (``x + 0.0`` and ``0.0 - x``
may come out with the other sign of zero, by the flags that torch compiles with).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

import torch

from autobatch.batching.trace.graph import Count, Graph, Node, Ref, Symbol

_FLOATS = frozenset((torch.float32, torch.float64))
_INTS = frozenset((torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8))


def _named(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SUMS = _named("add sub rsub")
_ARITHMETIC = _named(
    "abs acos addcdiv addcmul asin atan atan2 ceil cos cosh div elu erf exp expm1 floor leaky_relu"
    " lerp log log10 log1p log2 mul neg pow reciprocal relu round rsqrt sigmoid sign silu sin sinh"
    " softplus sqrt tan tanh trunc"
)
"""Of floats only."""
_ANY = _named(
    "bitwise_and bitwise_not bitwise_or bitwise_xor clamp clamp_max clamp_min eq ge gt isinf isnan"
    " le logical_and logical_not logical_or logical_xor lt maximum minimum ne where"
)
REDUCING = _named("all any amax amin linalg_vector_norm max mean min sum")
JOINING = _named("cat stack")
VIEWS = _named(
    "_unsafe_view alias detach expand permute select slice squeeze t transpose unbind unsqueeze"
    " view"
)
LONGEST = 4096
"""Elements that a kernel adds up: torch's own sum is the more accurate one."""


def name_of(node: Node) -> str:
    return node.op._schema.name.removeprefix("aten::")


def is_free_view(node: Node) -> bool:
    """Whether a node is a view that any part may make again for itself."""
    return (
        name_of(node) in VIEWS
        and (node.is_view or name_of(node) == "_unsafe_view")
        and all(type(part) is not Symbol for part in leaves(node))
    )


def may_fuse(node: Node, graph: Graph, floats: Collection[int]) -> bool:
    """Whether a fused kernel may hold a node; ``floats`` are the inputs that are numbers."""
    name, metas = name_of(node), graph.metas
    if node.mutates or node.is_view or node.op.namespace != "aten":
        return False
    reads = [metas[value] for value in node.reads()]
    made = [metas[out] for out in node.outs if out is not None]
    if any(meta.device.type != "cpu" or None in (*meta.shape, *meta.stride) for meta in made):
        return False
    dtypes = {meta.dtype for meta in (*reads, *made)}
    if not dtypes <= _FLOATS | _INTS | {torch.bool}:
        return False
    symbols = [part.position for part in leaves(node) if type(part) is Symbol]
    if symbols and not ({meta.dtype for meta in reads} <= _FLOATS and set(symbols) <= set(floats)):
        return False
    if name in _SUMS:
        return dtypes <= _FLOATS and not any(is_zero(part, graph) for part in leaves(node))
    if name in _ARITHMETIC:
        return dtypes <= _FLOATS and "rounding_mode" not in node.kwargs
    if name in REDUCING:
        return reduces(node, graph)
    if name == "_to_copy":
        given = set(node.kwargs) <= {"dtype"}
        return given and all(meta.dtype in _FLOATS | {torch.bool} for meta in made)
    return name in _ANY or name in JOINING


def reduces(node: Node, graph: Graph) -> bool:
    """Whether a reduction is one over few elements of each thread's own."""
    given, *rest = node.args
    if not isinstance(given, Ref) or not rest or not (node.single or node.outs[1:] == (None,)):
        return False
    meta = graph.metas[given.value]
    dims = next((arg for arg in rest if isinstance(arg, (list, tuple))), None)
    if dims is None and name_of(node) != "linalg_vector_norm" and type(rest[0]) is int:
        dims = rest[:1]
    if not dims or not meta.shape or type(meta.shape[0]) is not Count:
        return False
    places = [dim % len(meta.shape) for dim in dims]
    sizes = [meta.shape[place] for place in places]
    if 0 in places or any(type(size) is not int for size in sizes):
        return False
    floats = meta.dtype in _FLOATS or name_of(node) in ("all", "any")
    return floats and 0 < math.prod(sizes) <= LONGEST


def leaves(node: Node) -> Iterator[Any]:
    """The arguments, without the lists that hold them."""
    waiting = [*node.args, *node.kwargs.values()]
    while waiting:
        part = waiting.pop()
        if isinstance(part, (list, tuple)):
            waiting += part
        else:
            yield part


def is_zero(part: Any, graph: Graph) -> bool:
    """Whether an argument is a zero that the stretch wrote down."""
    if isinstance(part, Ref):
        literal = graph.literals.get(part.value)
        return literal is not None and bool((literal == 0).any())
    return type(part) in (int, float) and part == 0
