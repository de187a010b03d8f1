"""torch's operator database inside a program, under a branch that each thread takes its own way."""

from __future__ import annotations

import itertools
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.batching.levels import Batched, leaves_of
from tests.batched_loop import difference
from tests.test_opdb import K, batched, operators, samples

FLAGS = torch.tensor([1.0, -1.0, 2.0])
DRAWING = ("dropout", "rand", "normal", "bernoulli", "multinomial", "lowrank", "fractional")
NOT_A_BATCH = {"item", "equal", "allclose", "nonzero_static", "unique_consecutive", "to_sparse"}
NO_KERNELS = {"hash_tensor"}  # its dtype cannot even be indexed on CPU


def programs(fn: Callable[..., Any], rest: Any, kwargs: Any) -> dict[int, Callable[..., Any]]:
    """A program for one, two or three tensors."""

    def one(flag: Tensor, a: Tensor) -> Any:
        if flag > 0:
            return fn(a, *rest, **kwargs)
        b = a + 0
        return fn(b, *rest, **kwargs)

    def two(flag: Tensor, a: Tensor, b: Tensor) -> Any:
        if flag > 0:
            return fn(a, b, *rest, **kwargs)
        c = b.clone()
        return fn(a, c, *rest, **kwargs)

    def three(flag: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Any:
        if flag > 0:
            return fn(a, b, c, *rest, **kwargs)
        d = c.clone()
        return fn(a, b, d, *rest, **kwargs)

    return {1: one, 2: two, 3: three}


def cases(count: int, every: int) -> Iterator[tuple[str, Callable[..., Any], list[Tensor]]]:
    for op in itertools.islice(operators(), 0, None, every):
        own = isinstance(op.op, types.FunctionType) and "torch.testing" in op.op.__module__
        if own or op.name in NOT_A_BATCH | NO_KERNELS or any(word in op.name for word in DRAWING):
            continue
        for args, kwargs in samples(op, count):
            number = sum(isinstance(arg, Tensor) for arg in args)
            rest = args[number:]
            nested = any(isinstance(leaf, Tensor) for leaf in leaves_of(rest, kwargs))
            if not 1 <= number <= 3 or nested or not isinstance(args[number - 1], Tensor):
                continue
            columns = batched(args[:number], lambda n: True)
            if all(type(column) is Batched for column in columns):
                tensors = [column.data for column in columns]
                yield op.name, programs(op.op, rest, kwargs)[number], tensors


def looped(program: Callable[..., Any], tensors: list[Tensor]) -> list[Any] | None:
    """Each thread's result; None if one fails, draws, or the results would not stack."""
    try:
        results = [program(FLAGS[i], *(t[i].clone() for t in tensors)) for i in range(K)]
    except Exception:
        return None
    kinds = [
        [(leaf.dtype, leaf.shape) if isinstance(leaf, Tensor) else leaf for leaf in leaves_of(out)]
        for out in results
    ]
    strided = all(
        leaf.layout == torch.strided for leaf in leaves_of(results) if isinstance(leaf, Tensor)
    )
    return results if strided and all(kind == kinds[0] for kind in kinds) else None


def stacked(out: Any) -> Any:
    """A batched result with its tensors marked as such."""
    if isinstance(out, Tensor):
        return Batched(out)
    if isinstance(out, tuple | list):
        return type(out)(map(stacked, out))
    return out


def sweep(count: int, every: int, **options: Any) -> int:
    wrong: dict[str, str] = {}
    right = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, program, tensors in cases(count, every):
            wanted = looped(program, tensors)
            if wanted is None:
                continue
            try:
                got = stacked(autobatch.vmap(program, **options)(FLAGS, *tensors))
            except Exception as error:
                wrong[name] = f"{type(error).__name__}: {error}"
                continue
            found = [difference(got, want, row) for row, want in enumerate(wanted)]
            if any(found):
                wrong[name] = next(filter(None, found))
            right += not any(found)
    assert not wrong, "; ".join(f"{name}: {what}" for name, what in wrong.items())
    return right


def test_a_sample_of_every_tenth_operator() -> None:
    assert sweep(1, 10) > 20


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["vmap", "traced"])
def test_every_operator_in_a_program(executor: str) -> None:
    assert sweep(2, 1, executor=executor, trace_after=0) > 400
