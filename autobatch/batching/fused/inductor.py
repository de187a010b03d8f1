"""A region as one kernel by torch's Inductor, for any thread count: what of it is private is here.

In: the graph of a region. Out: a function of a list (the thread count, then the inputs, dense; a
bool as its bytes, a number as a 0-d tensor) that gives the results, bools as bytes again. It is
made once, ahead, with the thread count as a symbol, and called as it is: no Dynamo, no guards. A
kernel for which torch would need one is refused.

Bools go in and out as bytes by way of floats, since masks that are stored, or loaded, take the
kernel ten times as long as all the rest.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.torch_version import TorchVersion

from autobatch.batching.fused.elements import Elements, Whole
from autobatch.batching.trace.graph import Count, Graph, Ref, Symbol, dense_strides

HINT = 4099
"""A thread count that torch's heuristics go by: no event size divides it."""

OLDEST = "2.13"
"""The first torch whose fake tensors with symbols do not end the process in a new host thread."""

Call = Callable[[list[Any]], Sequence[Tensor]]
Way = Callable[[Graph, Any, Mapping[int, Tensor]], list[Tensor]]


class Unfusible(Exception):
    """A region that Inductor does not take, and why."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """``call`` runs it; ``is_new``: it was compiled now, and is not out of torch's cache."""

    call: Call
    is_new: bool


@lru_cache(maxsize=1)
def missing() -> str:
    """What is not there that kernels take; empty where all is."""
    if torch.__version__ < TorchVersion(OLDEST):
        return f"torch {torch.__version__} is too old"
    names = import_module("torch._inductor.config").cpp.cxx
    if not any(name and shutil.which(name) for name in names):
        return "there is no C++ compiler"
    return ""


def compiled(graph: Graph) -> Kernel:
    """The kernel of a region; call it inside ``trace.recorder.outside``, without modes."""
    if missing():
        raise Unfusible(missing())
    inductor = import_module("torch._inductor.compile_fx")
    counters = import_module("torch._dynamo.utils").counters["inductor"]
    before = counters["fxgraph_cache_hit"]
    env, mode, inputs = symbolic(graph)
    try:
        with torch.no_grad():
            with mode:
                module, by_element = traced(graph, inputs)
            with settings(mode, by_element):
                made = inductor.compile_fx_inner(module, inputs, is_inference=True)
    except Exception as error:  # whatever torch's compiler does not know
        raise Unfusible(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}") from error
    if env.guards or env.replacements:
        raise Unfusible("torch compiles it for certain thread counts only")
    return Kernel(made.current_callable, counters["fxgraph_cache_hit"] == before)


@contextmanager
def settings(mode: FakeTensorMode, by_element: bool) -> Iterator[None]:
    """What Inductor is told: no checks in kernels, and as many host threads as torch has.

    Of instructions it takes what the machine says it has, untried: trying takes half a minute.
    ``by_element``: the loop over the threads takes vectors, though inputs lie apart in memory.
    """
    guards = import_module("torch._guards")
    config = import_module("torch._inductor.config")
    alone = torch.get_num_threads() == 1
    changes = {
        "size_asserts": False,
        "alignment_asserts": False,
        "compile_threads": 1,
        "cpp.vec_isa_ok": True,
        "cpp.enable_tiling_heuristics": not by_element,
        "cpp.threads": 1 if alone else -1,
        "cpp.dynamic_threads": not alone,
    }
    with guards.tracing(guards.TracingContext(mode)), config.patch(changes):
        yield


def symbolic(graph: Graph) -> tuple[Any, FakeTensorMode, list[Any]]:
    """The thread count as a symbol, and inputs that have it for their sizes, without data."""
    shapes = import_module("torch.fx.experimental.symbolic_shapes")
    source = import_module("torch._dynamo.source").ConstantSource("k")
    env = shapes.ShapeEnv(duck_shape=False)
    mode = FakeTensorMode(shape_env=env)
    symbol = env.create_symbol(HINT, source, dynamic_dim=shapes.DimDynamic.DYNAMIC)
    k = env.create_symintnode(symbol, hint=HINT, source=source)
    inputs: list[Any] = [k]
    with mode:
        for place in range(graph.inputs):
            meta = graph.metas.get(place)
            if meta is None:  # a Python number
                inputs.append(torch.empty((), dtype=torch.float64))
                continue
            if meta.stride != dense_strides(meta.shape):
                raise Unfusible("an input is not dense")
            shape = [k * size.multiple if type(size) is Count else size for size in meta.shape]
            inputs.append(torch.empty(shape, dtype=bytes_of(meta.dtype)))
    return env, mode, inputs


def bytes_of(dtype: torch.dtype) -> torch.dtype:
    return torch.uint8 if dtype is torch.bool else dtype


def traced(graph: Graph, inputs: list[Any]) -> tuple[Any, bool]:
    """The region in the operators that Inductor knows, and whether it is element by element."""
    table = import_module("torch._inductor.decomposition").select_decomp_table()
    make_fx = import_module("torch.fx.experimental.proxy_tensor").make_fx

    def module_of(way: Way) -> Any:
        run = partial(computed, graph, way)
        module = make_fx(run, decomposition_table=table)(*inputs)
        output = next(iter(reversed(module.graph.nodes)))
        output.meta["user_visible_output_idxs"] = list(range(len(graph.outputs)))
        return module

    try:
        return module_of(by_element), True
    except Whole:
        return module_of(in_whole), False


def computed(graph: Graph, way: Way, k: Any, *values: Any) -> tuple[Tensor, ...]:
    """The region's results, with bools in and out as bytes."""
    inputs = {}
    for place, value in enumerate(values):
        meta = graph.metas.get(place)
        is_mask = meta is not None and meta.dtype is torch.bool
        inputs[place] = value.to(torch.float32) != 0 if is_mask else value
    for place, literal in graph.literals.items():
        inputs[place] = torch.full(tuple(literal.shape), literal.item(), dtype=literal.dtype)
    return tuple(
        result.to(torch.float32).to(torch.uint8) if result.dtype is torch.bool else result
        for result in way(graph, k, inputs)
    )


def by_element(graph: Graph, k: Any, inputs: Mapping[int, Tensor]) -> list[Tensor]:
    """One tensor ``[k]`` for each number that threads have; ``Whole`` where they have many."""
    elements = Elements(graph)
    for value, tensor in inputs.items():
        elements.enter(value, tensor)
    for node in graph.nodes:
        elements.run(node)
    return [elements.result(out, k) for out in graph.outputs]


def in_whole(graph: Graph, k: Any, inputs: Mapping[int, Tensor]) -> list[Tensor]:
    """Operator by operator, as recorded."""
    env: dict[int, Any] = dict(inputs)

    def given(argument: Any) -> Any:
        match argument:
            case Ref(value):
                return env[value]
            case Count(multiple):
                return k * multiple
            case Symbol(position):
                return env[position]
            case list() | tuple():
                return type(argument)(map(given, argument))
        return argument

    for node in graph.nodes:
        args = [given(arg) for arg in node.args]
        kwargs = {name: given(arg) for name, arg in node.kwargs.items()}
        made = node.op.overloadpacket(*args, **kwargs)
        for out, each in zip(node.outs, [made] if node.single else made, strict=True):
            if out is not None:
                env[out] = each
    return [env[out] for out in graph.outputs]
