"""A function of torch for tensors of given shapes, as a graph of aten's operators.

torch's own tracer (``make_fx``) runs it on tensors without data, and torch's decompositions take
apart what has no rule here. A function that looks at elements cannot be traced, and is refused.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from autobatch.batching.trace.loading import is_loaded
from autobatch.compiled.arrays import elementwise, extremes, picking, products, reductions, views
from autobatch.compiled.arrays.draws import RULES as DRAWN
from autobatch.compiled.types import Refused, refuse
from autobatch.random.drawing import drawing, is_random
from autobatch.random.sources import Thread

RULES = frozenset(
    {
        *elementwise.RULES,
        *views.RULES,
        *views.MANY,
        *reductions.RULES,
        *extremes.RULES,
        *extremes.MANY,
        *products.RULES,
        *picking.RULES,
        *DRAWN,
        "aten.where.self",
        "aten.full_like.default",
    }
)
aten = torch.ops.aten
MORE: tuple[Any, ...] = (
    *(aten.addmm, aten.addmv, aten.addr, aten.baddbmm, aten._softmax, aten._log_softmax),
    *(aten._softmax_backward_data, aten._log_softmax_backward_data, aten.native_layer_norm),
    *(aten.var, aten.std, aten.std_mean, aten.var_mean, aten.linalg_vector_norm, aten.logsumexp),
    *(aten.gelu, aten.silu, aten.elu, aten.leaky_relu, aten.softplus, aten.lerp, aten.norm),
    *(aten.log_sigmoid_forward, aten.log_sigmoid_backward, aten.clamp, aten.stack, aten.rsub),
)
"""Decompositions beyond torch's core set."""


TENSOR = object()

_LOADS: ContextVar[bool] = ContextVar("autobatch.loads_tracing", default=True)


class NotLoaded(Exception):
    """Torch's tracing, which takes long to load, is not to be loaded for this."""


@contextmanager
def loading(on: bool) -> Iterator[None]:
    """Within, what needs torch's tracing loads it, or raises ``NotLoaded`` where it is not."""
    token = _LOADS.set(on)
    try:
        yield
    finally:
        _LOADS.reset(token)


@dataclass(frozen=True, slots=True)
class Of:
    """A tensor argument."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None

    def empty(self, device: str = "cpu") -> Tensor:
        """A tensor like it, where tensors have no data."""
        if self.strides is None:
            return torch.empty(self.shape, dtype=self.dtype, device=device)
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=device)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Traced:
    """``graph`` is a function of the tensor arguments; ``tree`` tells how its results are held.

    What is no tensor in the results is in ``fixed``, ``TENSOR`` where there is one.
    """

    graph: GraphModule
    tree: pytree.TreeSpec
    fixed: tuple[Any, ...]


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    found = {**core_aten_decompositions(), **get_decompositions(MORE)}
    return {operator: each for operator, each in found.items() if str(operator) not in RULES}


class NoReads(TorchFunctionMode):
    """Refuses what makes numbers of tensors: a trace would hold them for good."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in READS:
            refuse(f"{named(func)} of a tensor is a number of its own each time")
        return func(*args, **(kwargs or {}))


READS = frozenset(
    getattr(Tensor, name)
    for name in [
        "item",
        "tolist",
        "numpy",
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "__array__",
    ]
)


def tried(function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Call a function of torch's once: some kernels are missing of which shapes say nothing.

    What it says of the numbers, as of ones that no matrix should have, is not the program's.
    """

    def ones(leaf: Any) -> Any:
        if type(leaf) is not Of:
            return leaf
        return leaf.empty().fill_(1)

    with torch.no_grad(), quiet(), drawing(Thread(0, 0)):
        mine, named_ = pytree.tree_map(ones, (args, kwargs), is_leaf=lambda x: type(x) is Of)
        with suppress(torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            function(*mine, **named_)


def traced(function: Callable[..., Any], args: Any, kwargs: Any, is_torchs: bool = False) -> Traced:
    """Of arguments in which an ``Of`` stands for each tensor."""
    if not _LOADS.get() and not is_loaded():
        raise NotLoaded
    leaves, tree = pytree.tree_flatten((args, kwargs), is_leaf=lambda x: type(x) is Of)
    results: list[Any] = []

    def flat(*tensors: Tensor) -> list[Tensor]:
        given = iter(tensors)
        filled = [next(given) if type(leaf) is Of else leaf for leaf in leaves]
        mine, named = pytree.tree_unflatten(filled, tree)
        results[:] = pytree.tree_flatten(function(*mine, **named))
        return [leaf for leaf in results[0] if isinstance(leaf, Tensor)]

    try:
        if is_torchs:
            tried(function, args, kwargs)
        with quiet(), NoReads(), FakeTensorMode(allow_non_fake_inputs=True):
            tensors = [leaf.empty() for leaf in leaves if type(leaf) is Of]
            graph = make_fx(flat, decomposition_table=decompositions())(*tensors)
            if any(map(writes, graph.graph.nodes)):
                pure = torch.func.functionalize(graph, remove="mutations")
                graph = make_fx(pure, decomposition_table=decompositions())(*tensors)
            graph.graph.eliminate_dead_code()
            graph.recompile()
    except Refused:
        raise
    except Exception as error:
        refuse(f"{named(function)} cannot be traced: {str(error).splitlines()[0][:200]}")
    found, structure = results
    fixed = tuple(TENSOR if isinstance(leaf, Tensor) else leaf for leaf in found)
    return Traced(graph, structure, fixed)


def of_torch(function: Callable[..., Any], args: Any, kwargs: Any) -> Traced:
    """The same of a function of torch's, which does not change: its graph is kept."""
    leaves, tree = pytree.tree_flatten((args, kwargs), is_leaf=lambda x: type(x) is Of)
    try:
        typed = tuple((type(leaf), repr(leaf), leaf) for leaf in leaves)  # 0.0 is -0.0
        hash((function, typed))
    except TypeError:
        return traced(function, args, kwargs, is_torchs=True)
    return _by_type(function, typed, tree, torch.get_default_dtype())


@lru_cache(maxsize=2048)
def _by_type(function: Any, typed: tuple[Any, ...], tree: Any, default: torch.dtype) -> Traced:
    args, kwargs = pytree.tree_unflatten([leaf for *_, leaf in typed], tree)
    return traced(function, args, kwargs, is_torchs=True)


def writes(node: Node) -> bool:
    """Whether an operator writes in place: something of the function's own, if it is pure."""
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def draws(node: Node) -> bool:
    """Whether an operator draws at random."""
    return isinstance(node.target, OpOverload) and is_random(node.target)


@contextmanager
def quiet() -> Iterator[None]:
    """torch logs and warns of what a trace does, which is not the user's call."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.disabled
    logger.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = before


def named(function: Any) -> str:
    return f"`{getattr(function, '__name__', type(function).__name__)}`"
