"""``autobatch.vmap(f)`` called by what ``torch.vmap`` maps: its rows are one more dimension.

In: a mapped function, and arguments that hold tensors batched at a level of ``torch.vmap``. Out:
its results, batched at that level. The call is made for all rows of the level at once: outside of
the level where it is the innermost one; where others are within (``torch.func.grad``, ``jvp``), at
all of them, with tensors that the level does not map (``remapped``).

A derivative that a level within takes is one for each row of the level. So what is differentiated
there goes in with rows, too; and a call of which something has been captured that is differentiated
there is refused: its gradient would be the sum over the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from autobatch.batching.levels import DrawError
from autobatch.compat import (
    add_batch_dim,
    batch_dim,
    current_level,
    drawing_alike,
    is_batched,
    is_wrapped,
    level_of,
    outside_everything,
    outside_level,
    own_randomness,
    tangent_of,
    unwrap_batched,
    unwrapped,
    within_level,
)
from autobatch.errors import AutobatchError
from autobatch.presence.layers import differentiated
from autobatch.runs.remapped import CAPTURED, Mapped, Unmapped


def is_lifted(*args: Any) -> bool:
    """Whether some argument is batched by one of functorch's levels."""
    return within_level() and bool(sizes_of_levels(args))


def sizes_of_levels(tree: Any) -> dict[int, int]:
    """The levels that tensors are batched at, and how many rows each has."""
    return {
        level_of(part): unwrapped(part).shape[batch_dim(part)]
        for leaf in tensors_of(tree)
        for part in batched_parts(leaf)
    }


def tensors_of(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def batched_parts(tensor: Tensor, tangents: bool = False) -> Iterator[Tensor]:
    """What the levels of ``torch.vmap`` see of a tensor that they map, and of its tangents."""
    if not is_wrapped(tensor):
        return
    if is_batched(tensor):
        yield tensor
    elif tangents and (tangent := tangent_of(tensor)) is not None:
        yield from batched_parts(tangent, True)
    yield from batched_parts(unwrapped(tensor), tangents)


def lifted(
    make: Callable[[Any], Callable[..., Any]],
    args: Any,
    kwargs: dict[str, Any],
    randomness: str | None,
) -> Any:
    """``make(in_dims)`` maps the same function over the level's rows, too.

    ``randomness`` is the call's; None where it has a seed, by which each row draws.
    """
    if sizes_of_levels(kwargs):
        raise AutobatchError("Under torch.vmap, pass what it maps by position, not by keyword.")
    sizes = sizes_of_levels(args)
    level = max(sizes)
    if level == current_level():
        with undrawn_unless(randomness):
            return outside(make, args, kwargs, level)
    return within(make, args, kwargs, level, sizes[level], randomness)


@contextmanager
def undrawn_unless(randomness: str | None) -> Iterator[None]:
    """Refuse draws of a batch that are to be otherwise than the level around says."""
    said = own_randomness()
    if randomness is None or said in ("error", randomness):
        yield
        return
    before = states_of_generators()
    yield
    if states_of_generators() != before:
        raise DrawError(
            f'A batch with randomness="{randomness}" draws within torch.vmap(..., '
            f'randomness="{said}"): give both the same, or the batch a seed=0 (each example draws '
            "its own, and the same draws each time)"
        )


def states_of_generators() -> list[bytes]:
    """Where torch's generators are, by device."""
    with outside_everything():
        states = [torch.get_rng_state()]
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            states += torch.cuda.get_rng_state_all()
        return [state.numpy().tobytes() for state in states]


def outside(make: Callable[[Any], Any], args: Any, kwargs: dict[str, Any], level: int) -> Any:
    """The call outside of the level, which is the innermost one."""

    def is_mapped(leaf: Any) -> bool:
        return isinstance(leaf, Tensor) and is_batched(leaf) and level_of(leaf) == level

    def rows(leaf: Any) -> Any:
        inner, dim = unwrap_batched(leaf, level)
        return inner.movedim(dim or 0, 0)

    whole, in_dims = mapped_by(is_mapped, rows, args)
    with outside_level(), told():
        done = make(in_dims)(*whole, **kwargs)
    return pytree.tree_map(lambda leaf: add_batch_dim(a_tensor(leaf), 0, level), done)


def within(
    make: Callable[[Any], Any],
    args: Any,
    kwargs: dict[str, Any],
    level: int,
    size: int,
    randomness: str | None,
) -> Any:
    """The call at all levels, of which one has nothing to map meanwhile.

    All rows draw as those of one batch do, so the level must not say that its own do otherwise.
    """
    with outside_everything():  # a level within would wrap it
        numbers = torch.zeros(size, device="cpu")
    marker = add_batch_dim(numbers, 0, level)

    def is_mapped(leaf: Any) -> bool:
        if not isinstance(leaf, Tensor):
            return False
        if any(level_of(part) == level for part in batched_parts(leaf, tangents=True)):
            return True
        return bool(nodes_within([leaf], level))

    whole, in_dims = mapped_by(is_mapped, lambda leaf: Unmapped.apply(leaf, marker, 0), args)  # type: ignore[no-untyped-call]
    with drawing_alike(level, randomness):
        done = make(in_dims)(*whole, **kwargs)
    refuse_captured(tensors_of(done), tensors_of(whole), level)
    return pytree.tree_map(lambda leaf: Mapped.apply(a_tensor(leaf), marker, 0), done)  # type: ignore[no-untyped-call]


def mapped_by(
    is_mapped: Callable[[Any], bool], rows: Callable[[Any], Any], args: Any
) -> tuple[Any, Any]:
    """The arguments with the rows of the level as dimension 0 of some, and which these are."""
    in_dims = pytree.tree_map(lambda leaf: 0 if is_mapped(leaf) else None, args)
    whole = pytree.tree_map(
        lambda leaf, dim: leaf if dim is None else rows(leaf), args, in_dims, is_leaf=is_none
    )
    return whole, in_dims


def is_none(leaf: Any) -> bool:
    return leaf is None


def a_tensor(leaf: Any) -> Tensor:
    if isinstance(leaf, Tensor):
        return leaf
    raise AutobatchError(
        "torch.vmap maps functions that return tensors: "
        f"replace it by autobatch.vmap to get each {type(leaf).__name__}."
    )


def nodes_within(tensors: list[Tensor], level: int) -> set[Any]:
    """The nodes of tensors, and of their tangents, in the graphs of levels within a level.

    A tensor that has been made to be differentiated stands for its own.
    """
    found = (layer for tensor in tensors for layer in differentiated(tensor))
    return {layer.tensor.grad_fn or layer.tensor for layer in found if layer.level > level}


def refuse_captured(results: list[Tensor], given: list[Tensor], level: int) -> None:
    """Refuse results whose graph within a level has other beginnings than what was given."""
    seen = nodes_within(given, level)
    waiting = list(nodes_within(results, level) - seen)
    while waiting:
        node = waiting.pop()
        edges = () if isinstance(node, Tensor) else node.next_functions
        before = [each for each, _ in edges if each is not None]
        if not before:
            raise AutobatchError(CAPTURED)
        fresh = set(before) - seen
        seen |= fresh
        waiting += fresh


@contextmanager
def told() -> Iterator[None]:
    """Say what torch takes for a fault of its own: a captured tensor of a level that is left."""
    try:
        yield
    except RuntimeError as error:
        if "may have escaped from inside a function being vmapped" not in str(error):
            raise
        raise AutobatchError(CAPTURED) from error
