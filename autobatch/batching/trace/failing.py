"""Which operators of a recording may fail for some elements: they stay, though nobody reads them.

``c // d`` of integers raises where ``d`` has a zero, for one example as for a batch.
"""

from __future__ import annotations

from collections.abc import Mapping

from autobatch.batching.trace.graph import Meta, Node

INTEGER_ARITHMETIC = frozenset({"div", "floor_divide", "fmod", "pow", "remainder"})
"""They fail for a zero divisor, and for a negative exponent, where all operands are integers."""
PLACES = (
    *("bincount", "embedding", "embedding_bag", "gather", "index", "index_add", "index_copy"),
    *("index_fill", "index_put", "index_reduce", "index_select", "masked_scatter", "one_hot"),
    *("nll_loss_forward", "nll_loss2d_forward", "repeat_interleave", "scatter", "scatter_add"),
    *("scatter_reduce", "take", "take_along_dim"),
)
"""They fail for a place out of range."""
OTHERS = (
    *("bernoulli", "binomial", "cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "histc"),
    *("inverse", "linear_cross_entropy", "logdet", "lu_solve", "lu_unpack", "multinomial"),
    *("normal", "ormqr", "poisson", "slogdet", "triangular_solve"),
)
NEVER = ("linalg_cross", "linalg_vecdot", "linalg_vector_norm")
"""Of those with such prefixes."""
PREFIXES = ("linalg", "_linalg", "_cholesky", "_assert")


def may_fail(node: Node, metas: Mapping[int, Meta]) -> bool:
    """Whether an operator may raise for some values of its operands."""
    name = node.op._schema.name.split("::")[1].removesuffix("_")
    if name in INTEGER_ARITHMETIC:
        return not any(metas[value].dtype.is_floating_point for value in node.reads())
    if name in NEVER:
        return False
    return name in PLACES or name in OTHERS or name.startswith(PREFIXES)
