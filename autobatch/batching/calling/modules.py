"""Calls of ``nn.Module``s that are more than one operation: hooks, and ``nn.Sequential`` by parts.

A module of the user's own runs as its lowered ``forward``; one of torch's is one operation. Forward
hooks are programs of their own around either. An ``nn.Sequential`` that holds the user's modules,
or modules that write their argument in place, runs one module after another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from autobatch.batching.context import Context
from autobatch.batching.foreign import memory_of
from autobatch.batching.host.rows import run_rows
from autobatch.batching.module_classes import is_chain
from autobatch.batching.submodules import parts_of
from autobatch.compat import FORWARD_HOOKS, FORWARD_HOOKS_WITH_KWARGS, FORWARD_PRE_HOOKS
from autobatch.structure import own_attribute
from autobatch.values.cells import Cell, Container, Objects, Uniform, read, uniform
from autobatch.values.heap import walks

KEEP_NONE = (
    "call eval() on the module, or make the layer with track_running_stats=False; "
    'stateful="sequential" runs the threads one after the other.'
)

SCALE_NONE = (
    "make the module without max_norm, and scale the rows that it gives; "
    'stateful="sequential" runs the threads one after the other.'
)


def keeping(module: nn.Module) -> list[nn.Module]:
    """Its parts whose forward pass changes them: a BatchNorm in train mode, an ``nn.Embedding``
    that scales the rows of its weight.
    """
    return [part for part in parts_of(module) if changes_itself(part)]


def changes_itself(part: nn.Module) -> bool:
    if isinstance(part, nn.Embedding | nn.EmbeddingBag):
        return part.max_norm is not None
    return (
        isinstance(part, nn.modules.batchnorm._NormBase)
        and part.training
        and part.track_running_stats
    )


def what_changes(part: nn.Module) -> tuple[str, str]:
    """What of a part its forward pass changes, and what to do instead."""
    name = type(part).__name__
    if isinstance(part, nn.Embedding | nn.EmbeddingBag):
        return f"the weight of a {name} with max_norm", SCALE_NONE
    return f"the running statistics of a {name}", KEEP_NONE


def writes_argument(module: nn.Module) -> bool:
    """Whether a part of the module may change its argument in place."""
    return any(getattr(part, "inplace", False) is True for part in parts_of(module))


def own_parts(callee: Any, args: list[Cell], result: Cell) -> Cell:
    """The result of a module's method: its own parameters and buffers may not be written."""
    owner = own_attribute(callee, "__self__", getattr(read(args[0]), "obj", None) if args else None)
    if isinstance(owner, nn.Module):
        memory = {memory_of(part) for part in (*owner.parameters(), *owner.buffers())}
        mark(result, memory - {0})
    return result


def mark(cell: Cell, memory: set[int]) -> None:
    for value in (part.value for part in walks.parts(cell)):
        if type(value) is Uniform and memory_of(value.obj) in memory:
            value.shared = True


def run_chain(context: Context, modules: Iterable[nn.Module | Cell], item: Cell) -> Cell:
    """``nn.Sequential``'s forward."""
    for module in modules:
        item = context.invoke(context, module, [item], {})
    return item


def run_hooked(
    context: Context, module: nn.Module, args: list[Cell], kwargs: dict[str, Cell]
) -> Cell:
    """``module(*args, **kwargs)``: its hooks before and after its ``forward``."""
    own = uniform(module, shared=True)
    for key, hook in {**FORWARD_PRE_HOOKS, **module._forward_pre_hooks}.items():
        given = [own, Cell(Container(tuple, list(args)))]
        if key in module._forward_pre_hooks_with_kwargs:
            given.append(Cell(Container(dict, dict(kwargs))))
        result = context.invoke(context, hook, given, {})
        if not is_none(result):
            args = parts(result)
    if is_chain(module):
        out = run_chain(context, module.children(), *args)
    else:
        out = context.invoke(context, module.forward, args, kwargs)
    for key, hook in {**FORWARD_HOOKS, **module._forward_hooks}.items():
        given = [own, Cell(Container(tuple, list(args)))]
        if key in module._forward_hooks_with_kwargs or key in FORWARD_HOOKS_WITH_KWARGS:
            given.append(Cell(Container(dict, dict(kwargs))))
        result = context.invoke(context, hook, [*given, out], {})
        out = replaced(context, out, result)
    return out


def replaced(context: Context, out: Cell, result: Cell) -> Cell:
    """What a hook gives takes the place of the output, for each thread to which it is not None."""
    if is_none(result):
        return out
    if type(read(result)) is not Objects:
        return result

    def either(old: Any, new: Any) -> Any:
        return old if new is None else new

    return run_rows(context, either, [out, result], {}, "a hook changes some threads' output")


def is_none(cell: Cell) -> bool:
    value = read(cell)
    return type(value) is Uniform and value.obj is None


def parts(result: Cell) -> list[Cell]:
    value = read(result)
    if type(value) is Container and value.type is tuple:
        return list(value.children())
    return [result]
