"""``vmap`` inside a program: threads x inner rows.

In: a group of ``k`` rows and arguments with an inner dimension of ``n``. The function runs once,
for ``k * n`` rows in the order of their outer rows; row ``i`` is of the thread of row ``i // n``,
so a failure in any of them is that thread's. What is not mapped, what the function has captured
among it, is what the outer row has, a copy for each inner row: a function that writes to it is
refused, since there is no one order in which the inner rows would. What it writes to its mapped
arguments is the outer row's under torch's ``vmap``, and under ours nobody's, as for one example.
Out: ``[k, n, *E]``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from autobatch.batching import writes
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.levels import DrawError
from autobatch.errors import Diagnostic, SharedWriteError
from autobatch.options import own_options
from autobatch.presence import moves
from autobatch.transforms import parts
from autobatch.transforms.captured import Captured, held
from autobatch.transforms.inner_rows import InnerRows
from autobatch.transforms.records import TORCH, Transform
from autobatch.transforms.regrouping import regrouped
from autobatch.transforms.runs import Call
from autobatch.values.cells import (
    Cell,
    Column,
    Objects,
    Uniform,
    read,
)
from autobatch.values.heap import selecting


def mapped(call: Call, options: dict[str, Any]) -> Cell:
    """The function for every inner row of every thread."""
    context = call.context
    apart = own_option_here(context, options)
    if apart:
        return call.by_thread(f"it has {apart} of its own")
    trees = [parts.opened(arg) for arg in call.args]
    dims = dims_of(trees, options["in_dims"])
    if dims is None:
        return call.by_thread("its in_dims do not fit")
    leaves = [leaf for tree in trees for leaf in parts.leaves(tree)]
    n = inner_size(leaves, dims)
    if n is None:
        return call.by_thread("what it maps has no common size")
    k, out_dims = context.k, options["out_dims"]
    rows = InnerRows.of(n, context)
    shared = [leaf for leaf, dim in zip(leaves, dims, strict=True) if dim is None]
    own = selecting.select([call.function, *call.kwargs.values(), *shared], rows.owners)
    function, *rest = own
    kwargs = dict(zip(call.kwargs, rest, strict=False))
    copies = iter(rest[len(kwargs) :])
    new = [
        next(copies) if dim is None else inner_rows(leaf, dim, k)
        for leaf, dim in zip(leaves, dims, strict=True)
    ]
    leaf_of = iter(new)
    args = [parts.rebuilt(tree, leaf_of) for tree in trees]
    part = rows.within(context, options["randomness"])
    captured = Captured(part, own)
    shares = is_torchs(call.callee)
    given = Captured(part, new if shares else [])
    gone = [] if shares else [arg for arg in args if not reaches(arg, own)]
    try:
        with held(context, own):
            result = context.invoke(part, function, args, kwargs, gone=gone)
        part.flush()
    except RowsFail as failure:
        for error in (failure.error, *(error for error, _ in (context.lost or {}).values())):
            tell_outermost(error)
        by_thread = partial(regrouped, out_dims=out_dims)
        raise rows.outer(context, failure, by_thread) from failure.error
    except DrawError as error:
        tell_outermost(error)
        raise
    refuse_writes(captured, context, "vmap")
    changed = set(map(id, given.written()))
    for leaf, cell, dim in zip(leaves, new, dims, strict=True):
        if dim is not None and id(cell) in changed:
            write_back(context, leaf, cell, n, dim)
    return regrouped(part, result, rows, out_dims)


OUTERMOST = "; of a vmap within another, the outermost one's randomness says so"


def tell_outermost(error: BaseException) -> None:
    """Say which of them refuses a draw."""
    if isinstance(error, DrawError) and not (told := str(error)).endswith(OUTERMOST):
        error.args = (told + OUTERMOST,)


MEANING = {
    "scalars": "tensor",
    "on_error": "raise",
    "ragged_out": None,
    "seed": None,
    "stateful": "refuse",
}
"""Options that say what a mapped function gets, draws and gives; and what they are by default."""
LIMITS = ("max_steps", "max_depth")


def own_option(options: dict[str, Any], randomness: str | None) -> str | None:
    """An option that is to hold for the inner rows of each thread by themselves, if there is one.

    Those that do not change what comes out are the outermost call's. ``randomness`` is what draws
    mean outside; None where that holds within, too: a seed says what is drawn, and what refuses all
    draws does so there.
    """
    given = options.get("options", {})
    for name in (*MEANING, *LIMITS):
        if given.get(name, MEANING.get(name)) != MEANING.get(name):
            return name
    drawing = options.get("randomness")
    own = randomness is not None and drawing not in (None, "error", randomness)
    return "randomness" if own else None


def own_option_here(context: Context, options: dict[str, Any]) -> str | None:
    """The same of a call within a batch."""
    alike = context.paths is None and context.randomness != "error"
    return own_option(options, context.randomness if alike else None)


def draw_alike(own: str | None, outside: str) -> bool:
    """Whether inner rows draw the same: their map says so, or leaves it to a batch that does."""
    return own == "same" or (own != "different" and outside == "same")


def loop_options(kind: str, function: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Those of ``pfor`` or ``map_fn``, as ``own_option`` takes them; an index is always an int."""
    options = {**own_options(function), **given}
    if kind == "pfor":
        options.pop("scalars", None)
    return {"options": options, "randomness": options.get("randomness")}


def reaches(cell: Cell, others: list[Cell]) -> bool:
    """Whether a tree holds one of the others as a leaf."""
    leaves = parts.leaves(parts.opened(cell))
    return any(leaf is other for leaf in leaves for other in others)


def is_torchs(callee: Any) -> bool:
    """Whether the rows are parts of the arguments themselves, as in torch, and no copies."""
    return isinstance(callee, Transform) and callee.make in TORCH


def write_back(context: Context, leaf: Cell, cell: Cell, n: int, dim: int) -> None:
    """Let a mapped argument hold what the function has written to its inner rows."""
    writes.refuse_foreign(context, leaf, "{}")
    value = read(cell)
    data = parts.column(cell, context.k * n)
    if writes.is_outside(leaf) or data is None or type(value) is Objects:
        raise writes.shared_write(context, "a tensor")
    whole = data.reshape(context.k, n, *data.shape[1:])
    writes.set_content(leaf, Column(whole.movedim(1, dim + 1 if dim >= 0 else dim)))


def refuse_writes(captured: Captured, context: Context, by: str) -> None:
    """Refuse a function that has written to what the inner rows of a thread share."""
    names = [captured.name_of(cell) for cell in captured.written()]
    if not names:
        return
    raise SharedWriteError(
        Diagnostic(
            f"A function that `{by}` maps inside a program writes to what it has captured.",
            context.span,
            "mapped here",
            (
                f"it writes to {f'`{names[0]}`' if names[0] else 'what is not mapped'}, which "
                "all inner rows share, so there is no one order in which they would write it.",
            ),
            ("return the new value from the function, or call it in a `for` loop over the rows.",),
            "shared-write",
        )
    )


def dims_of(trees: list[Cell], in_dims: Any) -> list[int | None] | None:
    """The mapped dimension of each leaf; None where ``in_dims`` do not fit."""
    if isinstance(in_dims, list):
        in_dims = tuple(in_dims)
    specs = tuple(parts.skeleton(tree) for tree in trees)
    if isinstance(in_dims, tuple) and len(in_dims) != len(trees):
        return None
    spec = pytree.tree_structure(specs)
    return pytree._broadcast_to_and_flatten(in_dims, spec) or None


def inner_size(leaves: list[Cell], dims: list[int | None]) -> int | None:
    """The size of the inner dimension; None if the mapped leaves have none in common."""
    mapped = [(leaf, dim) for leaf, dim in zip(leaves, dims, strict=True) if dim is not None]
    sizes = {size_of(leaf, dim) for leaf, dim in mapped}
    return sizes.pop() if len(sizes) == 1 else None


def size_of(leaf: Cell, dim: Any) -> int | None:
    """How many inner rows a mapped leaf has; None if it has none."""
    value = read(leaf)
    if type(value) is Column and value.tag == "tensor":
        event: Any = value.event_shape
    elif type(value) is Uniform and isinstance(value.obj, Tensor):
        event = value.obj.shape
    else:
        return None
    if type(dim) is not int or not -len(event) <= dim < len(event):
        return None
    return int(event[dim])


def inner_rows(leaf: Cell, dim: int, k: int) -> Cell:
    """A mapped leaf as a column of ``k * n`` rows."""
    data = parts.column(leaf, k)
    assert data is not None
    moved = data.movedim(dim + 1 if dim >= 0 else dim, 1)
    return Cell(Column(moves.flattened(moved)))
