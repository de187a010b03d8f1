"""The oracle of all tests: a batched call must give what a plain loop over the batch gives.

``assert_matches_loop(f, args)`` runs ``f`` as plain Python on a private, contiguous copy of each
row, stacks what it returned as the documentation says results stack, runs the batch under every
configuration, and compares values, dtypes, structure and the exception's type and message.
It also checks that the caller's arguments are as they were.

Of several batch sizes the default run takes every other one for each configuration, and each size
under every other configuration; which, follows from the function's name. Sweeps take all.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

import autobatch
from autobatch.random.drawing import drawing
from autobatch.random.paths import key_of
from autobatch.random.sources import Thread
from tests.expected import check, has_unstackable, stacked

Options = Mapping[str, Any]

CONFIGURATIONS: tuple[Options, ...] = (
    {"engine": "sequential"},
    {"executor": "vmap"},
    {"executor": "traced", "trace_after": 0, "plain": "never"},
    {"executor": "traced"},
    {"executor": "vmap", "fork": "off", "schedule": "most_threads"},
    {"engine": "program_counter", "executor": "traced", "trace_after": 0, "plain": "never"},
)

EVERY_PAIR = True
"""Whether each configuration runs with each batch size; the default run of tests clears it."""

RUNS = 3
"""Where stretches are recorded at once: the first run records, from the third on drivers run."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The loop's result: ``rows`` of the threads that finished, or the first ``error``."""

    rows: list[Any]
    error: Exception | None


def assert_matches_loop(
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    in_dims: Any = 0,
    batch_sizes: Sequence[int | None] = (None,),
    chunk_sizes: Sequence[int | None] = (None,),
    configurations: Sequence[Options] = CONFIGURATIONS,
    scalars: str = "tensor",
    rtol: float | None = None,
    atol: float | None = None,
    **options: Any,
) -> None:
    """Hold ``autobatch.vmap(func)`` to the loop; a batch size of n takes the first n rows.

    ``rtol`` and ``atol`` are ``torch.testing.assert_close``'s; ``options`` go to every run.
    """
    dims = tuple(in_dims) if isinstance(in_dims, (tuple, list)) else (in_dims,) * len(args)
    first = crc32(getattr(func, "__qualname__", "").encode())
    for place, size in enumerate(batch_sizes, first):
        some = _take(tuple(args), dims, size)
        named = dict(kwargs or {})
        outcome = run_loop(func, some, named, dims, scalars, options.get("seed"))
        paired = EVERY_PAIR or len(batch_sizes) == 1 or len(configurations) == 1
        for configuration in configurations if paired else configurations[place % 2 :: 2]:
            for chunk_size in chunk_sizes:
                chosen = {**configuration, **options, "chunk_size": chunk_size, "scalars": scalars}
                batched = autobatch.vmap(func, in_dims=dims, **chosen)
                try:
                    for _ in range(RUNS if chosen.get("trace_after") == 0 else 1):
                        _check_run(batched, some, named, outcome, rtol, atol)
                except AssertionError as error:
                    error.add_note(f"batch size {_batch_size(some, named, dims)}, options {chosen}")
                    raise


def run_loop(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dims: tuple[Any, ...],
    scalars: str = "tensor",
    seed: int | None = None,
) -> Outcome:
    """``func`` on a private copy of each row, in order, up to the first that raises.

    With a seed each row draws what its thread does. That holds for programs that draw in no
    function but the outermost, and call none with branches or methods: those open paths.
    """
    rows: list[Any] = []
    for index in range(_batch_size(args, kwargs, dims)):
        row = _row(args, dims, index, scalars)
        named = _row(kwargs, None, index, scalars)
        try:
            with nullcontext() if seed is None else drawing(Thread(index, key_of(seed))):
                rows.append(func(*row, **named))
        except Exception as error:
            return Outcome(rows, error)
    return Outcome(rows, None)


def _check_run(
    batched: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    outcome: Outcome,
    rtol: float | None,
    atol: float | None,
) -> None:
    before = _private(args), _private(kwargs)
    expected = None if outcome.error else stacked(outcome.rows)
    try:
        actual = batched(*args, **kwargs)
    except Exception as error:
        _check_error(error, expected, outcome)
    else:
        assert outcome.error is None, f"the loop raises {outcome.error!r}, the batch {actual!r}"
        if outcome.rows:
            check(actual, expected, rtol, atol)
        else:
            assert all(len(leaf) == 0 for leaf in _leaves(actual)), f"rows from nowhere: {actual!r}"
    check((args, kwargs), before, 0.0, 0.0)


def _check_error(error: Exception, expected: Any, outcome: Outcome) -> None:
    if outcome.error is None:
        no_rows = not outcome.rows and isinstance(error, autobatch.AutobatchError)
        unstackable = has_unstackable(expected) and type(error).__name__ == "StackingError"
        if not (no_rows or unstackable):
            raise AssertionError(f"the loop does not raise, the batch {error!r}") from error
        return
    if type(error) is not type(outcome.error) or str(error) != str(outcome.error):
        raise AssertionError(f"the loop raises {outcome.error!r}, the batch {error!r}") from error


# What the rows of a batch are.


def _walk(value: Any, dim: Any, leaf: Callable[[Any, Any], Any]) -> Any:
    """``value`` with each leaf replaced; ``dim`` is a prefix of its structure, as in vmap."""
    if isinstance(value, dict):
        items = value.items()
        return {k: _walk(v, dim[k] if isinstance(dim, dict) else dim, leaf) for k, v in items}
    if isinstance(value, (tuple, list)):
        inner = dim if isinstance(dim, (tuple, list)) else [dim] * len(value)
        parts = [_walk(v, d, leaf) for v, d in zip(value, inner, strict=True)]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return leaf(value, dim)


def _leaves(value: Any) -> Iterator[Any]:
    """The batched leaves of a result; a list is one unless it holds tensors or containers."""
    if isinstance(value, dict):
        value = list(value.values())
    elif not (isinstance(value, tuple) or (isinstance(value, list) and value)):
        yield value
        return
    for part in value:
        yield from _leaves(part)


def _row(value: Any, dims: Any, index: int, scalars: str) -> Any:
    def leaf(part: Any, dim: Any) -> Any:
        if dim is None:
            return _private(part)
        if isinstance(part, autobatch.objects):
            return _private(part.items[index])
        if isinstance(part, autobatch.ragged):
            return part.tensors[index].clone()
        row = torch.as_tensor(part).select(dim, index)
        dense = row.layout is torch.strided
        row = row.clone(memory_format=torch.contiguous_format) if dense else row.clone()
        return row.item() if scalars == "python" and row.dim() == 0 else row

    return _walk(value, dims, leaf)


def _take(value: Any, dims: Any, size: int | None) -> Any:
    def leaf(part: Any, dim: Any) -> Any:
        if dim is None or size is None:
            return part
        if isinstance(part, autobatch.objects):
            return autobatch.objects(part.items[:size])
        if isinstance(part, autobatch.ragged):
            return autobatch.ragged(list(part.tensors[:size]))
        return torch.as_tensor(part).narrow(dim, 0, size)

    return _walk(value, dims, leaf)


def _batch_size(args: tuple[Any, ...], kwargs: dict[str, Any], dims: tuple[Any, ...]) -> int:
    sizes: set[int] = set()

    def leaf(part: Any, dim: Any) -> None:
        if dim is not None:
            whole = isinstance(part, autobatch.objects | autobatch.ragged)
            sizes.add(len(part) if whole else part.shape[dim])

    _walk(args, dims, leaf)
    _walk(kwargs, None, leaf)
    assert len(sizes) == 1, f"batch sizes disagree: {sizes}"
    return sizes.pop()


def _private(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, autobatch.objects):
        return autobatch.objects([_private(part) for part in value.items])
    if isinstance(value, autobatch.ragged):
        return autobatch.ragged([part.clone() for part in value.tensors])
    if type(value) in (tuple, list):
        return type(value)(_private(part) for part in value)
    if type(value) is dict:
        return {key: _private(part) for key, part in value.items()}
    return copy.deepcopy(value)
