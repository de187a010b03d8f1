"""``torch.autograd.grad`` of what all threads share: one backward for the vectors of all of them.

    torch.autograd.grad(y, x, v)    y, x the same tensors for all threads, v [k, *y.shape]

The graph is autograd's own, of before the call or of what the program has computed for all threads
at once; the rows of ``v`` go through it together, under vmap. What differs by thread has no graph
of a thread's own, so its backward is refused. The graph is kept for the threads that come later.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autobatch import compat
from autobatch.batching.applying.failures import explained
from autobatch.batching.context import Context, Handler, RowsFail
from autobatch.batching.levels import (
    Batched,
    ExampleError,
    NoRule,
    has_batched,
    leaves_of,
    level,
    map_tree,
)
from autobatch.batching.tensors import torch_ops
from autobatch.batching.tensors.aliases import by_thread
from autobatch.batching.trace import Untraceable
from autobatch.batching.trace.recorder import is_recording
from autobatch.batching.trees import NotATree, cell_of, tree_of
from autobatch.values.cells import Cell, Uniform, read

ENDS = ("outputs", "inputs")
NAMES = (
    *(*ENDS, "grad_outputs", "retain_graph", "create_graph", "only_inputs"),
    *("allow_unused", "is_grads_batched", "materialize_grads"),
)


def grad(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``torch.autograd.grad``; None where what is differentiated is a thread's own."""
    given = {**dict(zip(NAMES, args, strict=False)), **kwargs}
    if len(args) > len(NAMES) or not given.keys() <= set(NAMES) or not given.keys() >= set(ENDS):
        return None
    ends, along = [given.pop(name) for name in ENDS], given.pop("grad_outputs", None)
    cells = [*ends, *([] if along is None else [along])]
    if not all(map(holds_shared_tensors, torch_ops.leaf_values(ends))):
        return None
    if not all(type(read(option)) is Uniform for option in given.values()):
        return None
    if is_recording():
        raise Untraceable("it runs a backward pass")
    options = {name: read(option).obj for name, option in given.items()}  # type: ignore[union-attr]
    try:
        made = tuple(tree_of(cell, None) for cell in cells)
    except NotATree:
        return by_thread(context, pulled, cells, given, "vectors of no one shape")
    if not has_batched(made):
        return cell_of(pulled(*made, **options))
    try:
        found = explained(pulled, made, options, lambda: pulled_together(context.k, made, options))
    except NoRule as refusal:
        return by_thread(context, pulled, cells, given, str(refusal))
    except ExampleError as failure:
        raise RowsFail(context.lowest(), failure.original) from failure.original
    context.counter.launch()
    return cell_of(found)


def holds_shared_tensors(value: Any) -> bool:
    """Whether it is a tensor that all threads share, or a sequence of such from before the call."""
    return type(value) is Uniform and all(isinstance(leaf, Tensor) for leaf in leaves_of(value.obj))


def pulled(outputs: Any, inputs: Any, along: Any = None, **options: Any) -> Any:
    """``torch.autograd.grad``, which leaves the graph as it is, in memory of its own."""
    options["retain_graph"] = True
    held = {compat.storage_id(leaf) for leaf in leaves_of(along) if isinstance(leaf, Tensor)}

    def own(leaf: Any) -> Any:
        lent = isinstance(leaf, Tensor) and compat.storage_id(leaf) in held
        return leaf.clone() if lent else leaf

    return map_tree(own, torch.autograd.grad(outputs, inputs, along, **options))


def pulled_together(k: int, made: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The same for ``k`` threads, of which none may be there."""
    outputs, inputs, along = made
    if not k:
        one = map_tree(lambda leaf: blank(leaf) if type(leaf) is Batched else leaf, along)
        return map_tree(no_rows, pulled(outputs, inputs, one, **options))
    with level(k) as threads:
        return threads.unwrap(pulled(outputs, inputs, threads.wrap(along), **options))


def blank(rows: Batched) -> Tensor:
    return rows.data.new_zeros(rows.data.shape[1:])


def no_rows(leaf: Any) -> Any:
    return Batched(leaf.new_empty((0, *leaf.shape))) if isinstance(leaf, Tensor) else leaf


HANDLERS: dict[Any, Handler] = {torch.autograd.grad: grad}
