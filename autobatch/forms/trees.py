"""Trees of tensors as the functional forms take them: leaves, rows, and what must stay alike.

Lists, tuples, named tuples and dicts are structure, everything else is a leaf. ``SHAPED`` are the
functions that look at nothing but structure, types, dtypes and shapes; ``leaves``, ``like``,
``element`` and ``push`` move leaves about. In a batch they run once for all threads
(``batching.structures``), for one example they are the Python that stands here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

NUMBERS = (bool, int, float)


def is_structure(tree: Any) -> bool:
    return isinstance(tree, list | tuple | dict) and not isinstance(tree, torch.Size)


def children(tree: Any) -> list[Any]:
    return list(tree.values() if isinstance(tree, dict) else tree)


def leaves(tree: Any) -> list[Any]:
    """The leaves of a tree, in order."""
    if not is_structure(tree):
        return [tree]
    return [leaf for child in children(tree) for leaf in leaves(child)]


def like(tree: Any, new: Sequence[Any]) -> Any:
    """The same tree with other leaves."""
    return filled(tree, iter(new))


def filled(tree: Any, new: Iterator[Any]) -> Any:
    if not is_structure(tree):
        return next(new)
    inner = [filled(child, new) for child in children(tree)]
    if isinstance(tree, dict):
        return type(tree)(zip(tree, inner, strict=True))
    return type(tree)(*inner) if hasattr(tree, "_fields") else type(tree)(inner)


def element(tree: Any, index: Any) -> Any:
    """The tree of every leaf's row at an index."""
    return like(tree, [leaf[index] for leaf in leaves(tree)])


def push(lists: list[list[Any]], tree: Any) -> None:
    """Append the leaves of a tree, each to a list of its own."""
    if not lists:
        lists.extend([] for _ in leaves(tree))
    for own, leaf in zip(lists, leaves(tree), strict=True):
        own.append(leaf)


# What must hold of the arguments.


def check_cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> None:
    """What ``torch.cond`` asks of its arguments."""
    if not isinstance(pred, Tensor | bool | int | float):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {type(pred).__name__}.")
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise RuntimeError(
            f"Expected pred to be bool or single-element tensor, but got {outline(pred)}."
        )
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, tuple | list):
        raise RuntimeError(f"Expect operands to be a tuple, but got {type(operands).__name__}.")


def check_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any) -> None:
    """What ``torch.while_loop`` asks of its arguments."""
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, tuple | list):
        raise RuntimeError(
            f"carried_inputs must be a tuple or list but got {type(carried_inputs).__name__}"
        )
    for leaf in leaves(carried_inputs):
        if not isinstance(leaf, (Tensor, *NUMBERS)):
            raise RuntimeError(
                "Expect carried_inputs to be a tuple of possibly nested dict/list/tuple of "
                f"tensors or numbers, but got a {type(leaf).__name__}."
            )


def check_test(pred: Any) -> None:
    """What ``torch.while_loop`` asks of what ``cond_fn`` returns."""
    scalar = isinstance(pred, Tensor) and pred.dim() == 0 and pred.dtype == torch.bool
    if not scalar and not isinstance(pred, bool):
        raise RuntimeError(
            f"cond_fn must return a boolean scalar tensor or a boolean but got {outline(pred)}"
        )


def check_scan(combine_fn: Any, init: Any, xs: Any, dim: Any, reverse: Any) -> None:
    """What ``scan`` of torch asks of its arguments."""
    if not callable(combine_fn):
        raise RuntimeError(f"Combine_fn must be a callable, but got {combine_fn!r}")
    if type(dim) is not int:
        raise RuntimeError(f"Dim must be an int, but got {type(dim).__name__}")
    if type(reverse) is not bool:
        raise RuntimeError(f"Reverse must be a bool, but got {type(reverse).__name__}")
    if not leaves(init):
        raise RuntimeError("scan() operator requires init leaves.")
    for name, tree in (("init", init), ("xs", xs)):
        for leaf in leaves(tree):
            if not isinstance(leaf, Tensor):
                raise RuntimeError(f"All {name} leaves must be a Tensor but got {outline(leaf)}")
    check_rows("scan", xs, dim)
    if any(leaf.shape[dim] == 0 for leaf in leaves(xs)):
        raise RuntimeError(f"All xs leaves must have at least one row along dim {dim}")


def check_fold(name: str, fn: Any, elems: Any) -> None:
    """What ``foldl`` and ``foldr`` ask of their arguments."""
    if not callable(fn):
        raise RuntimeError(f"{name} takes a function of the accumulator and an element.")
    for leaf in leaves(elems):
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"All elems leaves must be a Tensor but got {outline(leaf)}")
    check_rows(name, elems, 0)


def check_rows(name: str, tree: Any, dim: int) -> None:
    """Every leaf must have the dimension, and as many rows along it as the others."""
    for leaf in leaves(tree):
        if not -leaf.dim() <= dim < leaf.dim():
            raise RuntimeError(f"{name} goes along dimension {dim}, which {outline(leaf)} has not.")
    sizes = {leaf.shape[dim] for leaf in leaves(tree)}
    if len(sizes) > 1:
        raise RuntimeError(f"{name} got leaves of different sizes along dim {dim}: {sizes}")


def check_result(body: str, before: Any, after: Any) -> None:
    """A carry must keep its structure, and its leaves their types, dtypes and shapes."""
    if not alike(before, after):
        raise RuntimeError(
            f"{body} must return the carry as it gets it: it got {outline(before)} "
            f"and returned {outline(after)}"
        )


def check_pair(carry: Any, pair: Any) -> None:
    """``combine_fn`` gives the next carry and an output."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise RuntimeError(f"combine_fn must return (carry, y) but returned {outline(pair)}")
    check_result("combine_fn", carry, pair[0])


def alike(before: Any, after: Any) -> bool:
    if isinstance(before, Tensor):
        same = isinstance(after, Tensor) and before.dtype == after.dtype
        return same and before.shape == after.shape
    if not is_structure(before):
        return type(before) is type(after)
    if type(before) is not type(after) or len(before) != len(after):
        return False
    if isinstance(before, dict) and before.keys() != after.keys():
        return False
    new = [after[key] for key in before] if isinstance(before, dict) else children(after)
    return all(map(alike, children(before), new))


def outline(tree: Any) -> str:
    """A tree in a message: its structure, types, dtypes and shapes."""
    if isinstance(tree, Tensor):
        return f"{str(tree.dtype).rpartition('.')[2]}{list(tree.shape)}"
    if not is_structure(tree):
        return type(tree).__name__
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key!r}: {outline(tree[key])}" for key in tree) + "}"
    inner = ", ".join(map(outline, tree))
    if isinstance(tree, list):
        return f"[{inner}]"
    return f"({inner},)" if len(tree) == 1 else f"({inner})"


SHAPED: tuple[Callable[..., None], ...] = (
    *(check_cond, check_loop, check_test, check_scan, check_fold, check_result, check_pair),
)
for _function in (*SHAPED, leaves, like, element):
    _function.__autobatch__ = "host"  # type: ignore[attr-defined]
push.__autobatch__ = "unknown"  # type: ignore[attr-defined]
