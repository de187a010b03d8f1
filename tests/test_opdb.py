"""torch's operator database against the loop: each operator equals it or says that it has no rule.

``wrong`` must be empty: values, dtypes and structure, and errors that one example makes. The
default run takes one sample of every twentieth operator; ``-m slow`` takes more of all, and varies
which operands differ by thread and their dtypes.
"""

from __future__ import annotations

import itertools
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db

from autobatch.batching.applying.vmapped import (
    Batched,
    DrawError,
    ExampleError,
    NoRule,
    apply,
    apply_inplace,
)
from autobatch.batching.levels import leaves_of, map_tree
from tests.batched_loop import difference, loop

K = 3
UNDEFINED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty")
NOT_HERE = {"new_empty_strided", "_softmax_backward_data", "resize_", "resize_as_"}
DTYPES = (torch.float16, torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)
Case = tuple[str, Callable[..., Any], Any, Any]


def operators() -> Iterator[Any]:
    for op in op_db:
        if torch.float32 in op.dtypes and op.name not in NOT_HERE and op.name not in UNDEFINED:
            yield op


def samples(op: Any, count: int) -> Iterator[tuple[Any, Any]]:
    """Samples of one operator as (args, kwargs) of ordinary tensors."""
    for sample in itertools.islice(op.sample_inputs("cpu", torch.float32), count):
        args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
        tensors = [leaf for leaf in leaves_of(args, kwargs) if isinstance(leaf, Tensor)]
        plain = all(tensor.layout == torch.strided for tensor in tensors)
        if plain and tensors and "out" not in kwargs:
            yield args, kwargs


def batched(tree: Any, chosen: Callable[[int], bool]) -> Any:
    """The tensors that are chosen, by number, with slightly different values in each thread."""
    numbers = itertools.count()

    def leaf(value: Any) -> Any:
        number = next(numbers)
        if not isinstance(value, Tensor):
            return value
        value = value.detach()
        if not chosen(number):
            return value.clone()
        scales = [1 + 0.03 * row if value.is_floating_point() else 1 for row in range(K)]
        return Batched(torch.stack([(value * scale).to(value.dtype) for scale in scales]))

    return map_tree(leaf, tree)


def verdict(fn: Callable[..., Any], args: Any, kwargs: Any, inplace: bool = False) -> str:
    """ok, no rule, draw or error; anything else is wrong."""
    run = apply_inplace if inplace else apply
    wanted = loop(fn, args, kwargs, K)
    failed = [row for row in wanted if isinstance(row, Exception)]
    try:
        got = run(fn, args, kwargs, K)
    except NoRule:
        return "no rule"
    except DrawError:
        return "draw"
    except ExampleError as error:
        return "error" if failed else f"an error of its own: {error}"
    if failed:
        return f"no error, where one example raises {failed[0]!r}"
    for row, want in enumerate(wanted):
        if found := difference(got[0] if inplace else got, want, row):
            return f"row {row}: {found}"
    return "ok"


def sweep(cases: Iterator[Case], inplace: bool = False) -> Counter[str]:
    """How many cases got which verdict; fails on a wrong one."""
    torch.manual_seed(0)
    verdicts: Counter[str] = Counter()
    wrong: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, fn, args, kwargs in cases:
            said = verdict(fn, args, kwargs, inplace)
            verdicts[said] += 1
            if said not in ("ok", "no rule", "draw", "error"):
                wrong[name] = said
    assert not wrong, wrong
    return verdicts


def everything_batched(count: int, inplace: bool = False, every: int = 1) -> Iterator[Case]:
    for op in itertools.islice(operators(), 0, None, every):
        fn = op.inplace_variant if inplace else op.op
        if fn is None:
            continue
        for args, kwargs in samples(op, count):
            yield op.name, fn, *batched((args, kwargs), lambda number: True)


def one_operand_batched(count: int) -> Iterator[Case]:
    for op in operators():
        for args, kwargs in samples(op, count):
            leaves = leaves_of(args, kwargs)
            numbers = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
            for chosen in numbers if len(numbers) > 1 else ():
                yield op.name, op.op, *batched((args, kwargs), lambda n, c=chosen: n == c)


def mixed_dtypes(count: int) -> Iterator[Case]:
    """Operands of several dtypes, some of them 0-d."""
    draw = random.Random(0)

    def recast(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or leaf.dtype != torch.float32:
            return leaf
        leaf = leaf.detach()
        if leaf.numel() and draw.random() < 0.5:
            leaf = leaf.flatten()[0]
        return (leaf * 3 + 0.1).to(draw.choice(DTYPES))

    for op in operators():
        for args, kwargs in samples(op, count):
            if sum(isinstance(leaf, Tensor) for leaf in leaves_of(args, kwargs)) < 2:
                continue
            for _ in range(4):
                mixed = map_tree(recast, (args, kwargs))
                yield op.name, op.op, *batched(mixed, lambda number: draw.random() < 0.7)


def erring() -> Iterator[Case]:
    """Operands that one example refuses."""
    for op in operators():
        if op.error_inputs_func is None:
            continue
        for case in op.error_inputs("cpu"):
            sample = case.sample_input
            args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
            tensors = [leaf for leaf in leaves_of(args, kwargs) if isinstance(leaf, Tensor)]
            plain = all(tensor.layout == torch.strided for tensor in tensors)
            if plain and tensors and "out" not in kwargs:
                yield op.name, op.op, *batched((args, kwargs), lambda number: True)


def test_one_sample_of_every_twentieth_operator() -> None:
    verdicts = sweep(everything_batched(1, every=20))
    assert verdicts["ok"] > 8 * verdicts["no rule"]


@pytest.mark.slow
def test_errors_are_one_examples() -> None:
    assert sweep(erring())["error"] > 300


@pytest.mark.slow
def test_every_operator() -> None:
    assert sweep(everything_batched(12))["ok"] > 4000


@pytest.mark.slow
def test_every_operator_in_place() -> None:
    assert sweep(everything_batched(6, inplace=True), inplace=True)["ok"] > 500


@pytest.mark.slow
def test_one_operand_that_differs_by_thread() -> None:
    assert sweep(one_operand_batched(6))["ok"] > 2000


@pytest.mark.slow
def test_operands_of_several_dtypes() -> None:
    assert sweep(mixed_dtypes(4))["ok"] > 800
