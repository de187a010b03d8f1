"""What a thread's row of a batched tensor has no answer of its own to: its identity, its memory.

Any answer would be of the tensor that all threads are in, or of one that is made for the question.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.tables.packed import unpack
from autobatch.batching.trees import NotATree, tree_of
from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.values.cells import (
    DICT_VIEW,
    Cell,
    Column,
    Container,
    Uniform,
    Value,
    View,
    read,
    uniform,
)
from autobatch.values.layouts import is_dense, row_strides
from autobatch.values.packs import is_packed

IDENTITY = (
    "A program asks for the identity of a tensor.",
    "a batched tensor is no object of its own for each thread.",
    "ask `x is y`, which tells whether they are one tensor for a thread.",
    "tensor-id",
)
CONTENT = (
    "A program asks for the identity of a {}.",
    "what it holds is kept for all threads at once: it is no object of its own for each.",
    "ask `x is y` of lists and dicts, `x == y` of others; instances of classes have an identity.",
    "content-id",
)
MEMORY = (
    "A program asks for the memory of a tensor.",
    "a batched tensor has no memory of its own for each thread.",
    "`x._is_view()` tells a part of another tensor, `x.numel() * x.element_size()` the size.",
    "tensor-memory",
)
REACH = (
    "A program reaches around in the memory of which a tensor is a part (`as_strided`).",
    "a part of a batched tensor need not lie between what lies around it for one example.",
    "call `as_strided` on the whole tensor, or pick by indices.",
    "tensor-reach",
)
VERSION = (
    "A program asks how often a tensor has been written.",
    "a batched tensor is not written as often as one example's.",
    "count the writes in a variable.",
    "tensor-version",
)
HISTORY = (
    "A program asks what a tensor was computed by.",
    "autograd knows what has computed the batched tensor, for all threads.",
    "`x.requires_grad` tells whether it has a gradient, `x.is_leaf` whether it was computed.",
    "tensor-history",
)
KEPT_BY_CONTENT = (list, dict, set, frozenset, tuple, range, slice)
ATTRIBUTES = {"_version": VERSION, "_base": MEMORY, "_cdata": IDENTITY}


def refuse_attribute(context: Context, value: Value, name: str) -> None:
    """Refuse to read ``x.name`` of what is not a tensor of the caller's, where it has no answer."""
    if name in ATTRIBUTES and not (type(value) is Uniform and value.shared):
        raise refused(context, *ATTRIBUTES[name])


def refuse(
    context: Context, args: list[Cell], kwargs: dict[str, Cell], *, told: tuple[str, ...]
) -> Cell | None:
    value = read(args[0]) if len(args) == 1 and not kwargs else None
    if is_packed(value) or (type(value) is Column and value.tag == "tensor"):
        raise refused(context, *told)
    return None


def identity(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``id(x)``: what is made anew for each function of the host's has none that lasts."""
    kind = kept_by_content(read(args[0])) if len(args) == 1 and not kwargs else None
    if kind is not None:
        raise refused(context, CONTENT[0].format(kind), *CONTENT[1:])
    return refuse(context, args, kwargs, told=IDENTITY)


def kept_by_content(value: Value) -> str | None:
    """What a number is, or a list, dict or tuple that the program has made; else None."""
    if type(value) is Column and value.tag in ("int", "float"):
        return "number"
    if type(value) is not Container:
        return None
    if value.type is DICT_VIEW:
        return "dict's view"
    kinds = value.type.__mro__ if isinstance(value.type, type) else ()
    return next((kind.__name__ for kind in kinds if kind in KEPT_BY_CONTENT), None)


def refused(context: Context, headline: str, note: str, hint: str, code: str) -> UnsupportedError:
    return UnsupportedError(
        Diagnostic(headline, context.span, "asked here", (note,), (hint,), code)
    )


def refuse_reach(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``x.as_strided(...)`` of a part of a tensor, where it may reach what is not in that part."""
    cell = args[0] if args else kwargs.get("input")
    value = None if cell is None else read(cell)
    if cell is not None and is_packed(value):
        if type(cell.value) is View:
            raise refused(context, *REACH)
        unpack(context, [cell])  # what it gives shares memory with its tensor
        return None
    if cell is None or type(cell.value) is not View or type(value) is not Column:
        return None
    names = ("size", "stride", "storage_offset")
    given = {**dict(zip(names, args[1:], strict=False)), **kwargs}
    try:
        size, stride, offset = (tree_of(given.get(n, uniform(None)), None) for n in names)
        reach = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    except (NotATree, TypeError, ValueError):
        return None  # an error of torch's, or sizes of each thread's own
    shape = value.data.shape[1:]
    inside = isinstance(reach, int) and reach < shape.numel()
    if offset is None and inside and is_dense(shape, row_strides(value.data)):
        return None
    raise refused(context, *REACH)


HANDLERS: dict[Any, Any] = {
    id: identity,
    **{function: partial(refuse, told=IDENTITY) for function in (hash, Tensor.__hash__)},
    **{
        function: partial(refuse, told=MEMORY)
        for function in (Tensor.data_ptr, Tensor.storage, Tensor.untyped_storage)
    },
    **dict.fromkeys((Tensor.as_strided, torch.as_strided), refuse_reach),
}
