"""``pfor`` and ``map_fn`` for one thread: round after round, as the sequential engine runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

from autobatch import structure
from autobatch.batching.containers.callees import is_hashable
from autobatch.errors import Diagnostic, EmptyBatchError
from autobatch.random.drawing import SOURCE
from autobatch.random.repeating import Repeating
from autobatch.random.sources import Thread
from autobatch.results.mismatch import Part
from autobatch.results.stacking import plain, stacked_leaves
from autobatch.transforms.loops import count
from autobatch.transforms.records import kind_of
from autobatch.values.numbers import fits_tensor


def round_by_round(callee: Any) -> Callable[..., Any] | None:
    """What a call of ``pfor`` or ``map_fn`` runs for one thread; None for any other callee.

    It is told whether rounds draw alike, and then what the call gets.
    """
    kind = kind_of(callee) if is_hashable(callee) else None
    if kind == "pfor":
        return pfor
    return map_fn if kind == "map_fn" else None


def pfor(alike: bool, body: Callable[[int], Any], n: Any, **options: Any) -> Any:
    return stacked(run(body, range(count(n)), alike))


def map_fn(alike: bool, f: Callable[[Any], Any], elems: Any, **options: Any) -> Any:
    leaves, spec = structure.flattened(elems)
    sizes = {leaf.shape[0] for leaf in leaves}
    if len(sizes) != 1:
        raise ValueError(f"map_fn takes elements of one number; it got {sorted(sizes)}")
    trees = (
        structure.unflattened([leaf[row].clone() for leaf in leaves], spec)
        for row in range(sizes.pop())
    )
    return stacked(run(f, trees, alike))


def run(f: Callable[[Any], Any], items: Iterable[Any], alike: bool) -> list[Any]:
    """Each round draws from words of its own, if there is a seed (see ``InnerRows.within``).

    ``alike``: all draw what the first one does.
    """
    source = SOURCE.get()
    if not isinstance(source, Thread):
        return repeated(f, items) if alike else [f(item) for item in items]
    path, results = source.path(), []
    try:
        for row, item in enumerate(items):
            SOURCE.set(path.inner(0 if alike else row))
            results.append(f(item))
    finally:
        SOURCE.set(source)
    return results


def repeated(f: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Each round draws from where the first one began."""
    repeating, results = Repeating(), []
    for item in items:
        with repeating.thread():
            results.append(f(item))
    repeating.end()
    return results


def stacked(results: list[Any]) -> Any:
    """The results of all rounds, leaf by leaf."""
    if not results:
        raise EmptyBatchError(
            Diagnostic(
                "A loop of no rounds, one thread at a time, has no result to tell its shape."
            )
        )
    flat, specs = zip(*map(structure.flattened, results), strict=True)
    if any(spec != specs[0] for spec in specs):
        return results
    leaves = [stack(list(column)) for column in zip(*flat, strict=True)]
    return structure.unflattened(leaves, specs[0])


def stack(column: list[Any]) -> Any:
    """One leaf of all rounds: a tensor where they stack, else a list."""
    if all(isinstance(item, Tensor) or fits_tensor(item) for item in column):
        device = next((item.device for item in column if isinstance(item, Tensor)), None)
        return plain(stacked_leaves(column, device, Part()))
    return column
