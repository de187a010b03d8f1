"""Control flow as functions: ``cond``, ``while_loop``, ``scan``, ``foldl``, ``foldr``.

Each is what it says for one example, in ordinary Python. A program that calls one runs this Python
as it runs the user's own: predicates and trip counts are each thread's, the functions may hold any
control flow, and derivatives, draws, recursion and ragged data work as in a loop written out.
``torch.cond``, ``torch.while_loop`` and torch's ``scan`` mean these where a program calls them.

A carry keeps its structure, dtypes and shapes, as torch demands; only the branch that is taken
runs, so what the other would have returned is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from autobatch.forms.trees import (
    check_cond,
    check_fold,
    check_loop,
    check_pair,
    check_result,
    check_scan,
    check_test,
    element,
    leaves,
    like,
    push,
)


def cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: tuple[Any, ...] | list[Any] = (),
) -> Any:
    """``true_fn(*operands)`` where ``pred`` holds, else ``false_fn(*operands)``: ``torch.cond``.

    Args:
        pred: a bool, a number, or a tensor of one element.
        true_fn, false_fn: functions of the operands, with any control flow.
        operands: a tuple or list of trees of tensors (or of anything else).

    Raises ``RuntimeError`` for arguments of another kind.
    """
    check_cond(pred, true_fn, false_fn, operands)
    if pred:
        return true_fn(*operands)
    return false_fn(*operands)


def while_loop(
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried_inputs: tuple[Any, ...] | list[Any],
) -> tuple[Any, ...]:
    """``carried = body_fn(*carried)`` while ``cond_fn(*carried)`` holds: ``torch.while_loop``.

    Args:
        cond_fn: gives a bool or a 0-d bool tensor.
        body_fn: gives a tuple with the structure, dtypes and shapes of what it gets.
        carried_inputs: a tuple of trees of tensors ``[*E]`` and numbers.

    Returns:
        The carried values of the first round that does not run, a tuple.

    Raises ``RuntimeError`` where a function gives something else.
    """
    check_loop(cond_fn, body_fn, carried_inputs)
    carried = tuple(carried_inputs)
    going = cond_fn(*carried)
    check_test(going)
    while going:
        new = body_fn(*carried)
        check_result("body_fn", carried, new)
        carried = new
        going = cond_fn(*carried)
        check_test(going)
    return carried


def scan(
    combine_fn: Callable[..., Any],
    init: Any,
    xs: Any,
    *,
    dim: int = 0,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Carry a value along the rows of ``xs``: ``carry, y = combine_fn(carry, x)`` for each.

    Args:
        combine_fn: gives the next carry, in the structure, dtypes and shapes of ``init``, and an
            output, a tree of tensors.
        init: the first carry, a tree of tensors.
        xs: a tree of tensors with ``n`` rows along ``dim``; a ragged one along 0.
        dim: the dimension that is gone along, and that the outputs stack along.
        reverse: whether to go from the last row to the first; output ``i`` is row ``i``'s all the
            same.

    Returns:
        The last carry, and the outputs ``[n, *O]``, the ``n`` at ``dim``.

    Raises ``RuntimeError`` where a function or an argument is of another form, or without rows.
    """
    check_scan(combine_fn, init, xs, dim, reverse)
    if dim < 0:
        dim = dim + leaves(xs)[0].dim()
    rows = xs if dim == 0 else like(xs, [leaf.movedim(dim, 0) for leaf in leaves(xs)])
    n = len(leaves(rows)[0])
    carry, y = init, None
    lists: list[list[Any]] = []
    for i in range(n - 1, -1, -1) if reverse else range(n):
        pair = combine_fn(carry, element(rows, i))
        check_pair(carry, pair)
        carry, y = pair
        push(lists, y)
    outputs = [torch.stack(rows) for rows in lists]
    if reverse:
        outputs = [output.flip(0) for output in outputs]
    if dim != 0:
        outputs = [out.movedim(0, dim) if dim < out.dim() else out for out in outputs]
    return carry, like(y, outputs)


def scan_stacking_first(
    combine_fn: Callable[..., Any],
    init: Any,
    xs: Any,
    *,
    dim: int = 0,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """torch's ``scan`` before 2.13: as ``scan``, but outputs stack along their first dimension."""
    check_scan(combine_fn, init, xs, dim, reverse)
    rows = xs if dim == 0 else like(xs, [leaf.movedim(dim, 0) for leaf in leaves(xs)])
    return scan(combine_fn, init, rows, reverse=reverse)


def foldl(fn: Callable[..., Any], elems: Any, initializer: Any = None) -> Any:
    """Fold from the first element to the last: ``acc = fn(acc, elem)``.

    Args:
        fn: a function of the accumulator and an element, which gives the next accumulator.
        elems: a tree of tensors ``[n, *E]``; an element is the same tree of ``[*E]``.
        initializer: the first accumulator; None for the first element.

    Raises ``RuntimeError`` for elements of different numbers, or none and no initializer.
    """
    check_fold("foldl", fn, elems)
    n = len(leaves(elems)[0])
    acc, first = initializer, 0
    if initializer is None:
        if n == 0:
            raise RuntimeError("foldl of no elements needs an initializer.")
        acc, first = element(elems, 0), 1
    for i in range(first, n):
        acc = fn(acc, element(elems, i))
    return acc


def foldr(fn: Callable[..., Any], elems: Any, initializer: Any = None) -> Any:
    """Fold from the last element to the first: ``acc = fn(acc, elem)``; see ``foldl``."""
    check_fold("foldr", fn, elems)
    n = len(leaves(elems)[0])
    acc, last = initializer, n - 1
    if initializer is None:
        if n == 0:
            raise RuntimeError("foldr of no elements needs an initializer.")
        acc, last = element(elems, n - 1), n - 2
    for i in range(last, -1, -1):
        acc = fn(acc, element(elems, i))
    return acc
