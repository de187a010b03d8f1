"""What a callee does with its arguments, and the calls that are refused."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.effects import effect_of
from autobatch.batching.kinds import is_instance, is_tensor
from autobatch.batching.known_callees import is_called_at
from autobatch.batching.switching import switches
from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.values.cells import (
    CLOSURE,
    METHOD,
    PARTIAL,
    Cell,
    Column,
    Container,
    Objects,
    View,
    is_iterator,
    is_mutable,
    read,
)
from autobatch.values.heap import walks


def is_code(cell: Cell) -> bool:
    """Whether a host call given this may run code with effects, so not once for all threads."""
    obj = getattr(read(cell), "obj", None)
    if not callable(obj) or switches(obj):
        return callable(obj)
    return not isinstance(obj, type) and effect_of(obj) in ("unknown", "program")


def makes_by_code(callee: Any, args: Sequence[Cell], kwargs: Mapping[str, Cell]) -> bool:
    """Whether a host call makes instances of a user's class that it is given, ``map(Node, xs)``."""
    places: list[tuple[int | str, Cell]] = [*enumerate(args), *kwargs.items()]
    called = (cell for place, cell in places if is_called_at(callee, place, len(args)))
    kinds = (getattr(read(cell), "obj", None) for cell in called)
    return any(isinstance(kind, type) and effect_of(kind) == "program" for kind in kinds)


def is_used_up(cell: Cell) -> bool:
    """Whether a host call given this may change it: an iterator, or code of the user's runs."""
    value = read(cell)
    return is_instance(value) or (
        is_iterator(value)
        or (type(value) is Container and value.type in (METHOD, CLOSURE, PARTIAL))
    )


def in_place_option(callee: Any, args: list[Cell], kwargs: dict[str, Cell]) -> bool:
    """Whether ``inplace=True`` is among the arguments."""
    place = inplace_position(callee)
    given = kwargs.get("inplace", args[place] if place is not None and place < len(args) else None)
    return given is not None and getattr(read(given), "obj", None) is True


@lru_cache(maxsize=4096)
def inplace_position(callee: Any) -> int | None:
    if isinstance(callee, type):  # it makes something anew
        return None
    try:
        names = list(inspect.signature(callee).parameters)
    except (TypeError, ValueError):
        return None
    return names.index("inplace") if "inplace" in names else None


def refuse_backward(context: Context, callee: Any) -> None:
    if callee in (Tensor.backward, torch.autograd.backward, torch.autograd.grad):
        raise UnsupportedError(
            Diagnostic(
                "A program cannot run the backward pass of its own operations.",
                context.span,
                "called here",
                ("the threads' operations are recorded together, not one graph for each thread.",),
                (
                    "call backward on the results of the batch; inside the program, write "
                    "autobatch.grad(f)(x) with the function f that is differentiated; or mark the "
                    "function with autobatch.per_thread: it runs example by example.",
                ),
                "backward-inside",
            )
        )


TENSOR_HOOKS = (Tensor.register_hook, Tensor.register_post_accumulate_grad_hook)


def refuse_tensor_hook(context: Context, callee: Any, args: list[Cell]) -> None:
    """A hook sees one example's gradient; the tensor here is that of all, or a copy of a row."""
    if callee not in TENSOR_HOOKS or not args or not may_have_gradient(read(args[0])):
        return
    raise UnsupportedError(
        Diagnostic(
            f"A program cannot hang a hook on a tensor (`{callee.__name__}`).",
            context.span,
            "hung here",
            ("one backward pass runs for all threads, and comes to no tensor of a thread's own.",),
            (
                "write a torch.autograd.Function whose backward does what the hook does; or mark "
                "the function with autobatch.per_thread: it runs example by example.",
            ),
            "tensor-hook",
        )
    )


def may_have_gradient(value: Any) -> bool:
    if type(value) is Column:
        return bool(value.data.requires_grad)
    if type(value) is Objects:
        return any(isinstance(item, Tensor) and item.requires_grad for item in value.items)
    obj = getattr(value, "obj", None)
    return isinstance(obj, Tensor) and obj.requires_grad


def refuse_optimizer(context: Context, callee: Any) -> None:
    """Optimizers take leaves and read ``.grad``: neither is there for the tensors of a thread."""
    if isinstance(callee, type) and issubclass(callee, torch.optim.Optimizer):
        raise UnsupportedError(
            Diagnostic(
                f"A program cannot make an optimizer (`{callee.__name__}`).",
                context.span,
                "made here",
                ("it reads the .grad that backward leaves, and no backward runs in a program.",),
                (
                    "write the step itself, w = w - rate * autobatch.grad(loss)(w); or mark the "
                    "function that trains with autobatch.per_thread: it runs example by example.",
                ),
                "optimizer-inside",
            )
        )


def is_hashable(obj: Any) -> bool:
    try:
        hash(obj)
    except TypeError:
        return False
    return True


def gives_back(callee: Any, args: Sequence[Cell], sees: bool) -> bool:
    """Whether a host call gives back an operand, or an item of one, one thread another one.

    ``sees``: the program may see that a tensor's items are parts of it.
    """
    if callee in (dict.get, getattr):
        items = args[:1] if callee is dict.get else ()
        return any(may_be_given(arg, arg not in items) for arg in (*items, *args[2:]))
    if callee in (max, min, sorted):
        several = len(args) > 1
        return any(may_be_given(arg, several or (sees and is_tensor(read(arg)))) for arg in args)
    return False


def may_be_given(cell: Cell, itself: bool) -> bool:
    """Whether what may be written later is among the items of a cell, or is the cell ``itself``.

    To give it back is to give that very object.
    """
    return any(
        type(part.value) is View or is_tensor(part.value) or is_mutable(part.value)
        for part in walks.parts(cell)
        if itself or part is not cell
    )


def is_fresh(callee: Any) -> bool:
    """Whether a host call makes its result, rather than giving a part of an operand back."""
    return callee not in (max, min, sum, next, getattr, sorted) and getattr(
        callee, "__objclass__", None
    ) not in (dict, list, tuple)
