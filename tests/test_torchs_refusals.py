"""What torch refuses to write is refused: by ``out=`` in other dtypes, of gradients, of numbers.

Where a function has a rule of its own for such an ``out=``, or takes a number in the place of a
tensor, its result is that of the loop.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.errors import UnsupportedError
from tests.oracle import assert_matches_loop

XS = torch.tensor([[0.5, -1.25, 2.0], [1.5, 2.25, -0.5], [-2.0, 0.25, 3.5]])
PLACES = torch.tensor([0, 1, 0])
INT, DOUBLE = torch.int64, torch.float64
WAYS = ({"executor": "vmap"}, {"trace_after": 0, "plain": "never"})

OUTS: dict[str, Callable[[Tensor], Any]] = {
    "add to ints": lambda x: torch.add(x, 1.5, out=torch.zeros(3, dtype=INT)),
    "add of doubles": lambda x: torch.add(x.double(), 1.5, out=torch.zeros(3)),
    "sum in ints": lambda x: torch.sum(x, 0, out=torch.zeros((), dtype=INT)),
    "index_select": lambda x: torch.index_select(x, 0, PLACES, out=torch.zeros(3, dtype=DOUBLE)),
    "gather": lambda x: torch.gather(x, 0, PLACES, out=torch.zeros(3, dtype=DOUBLE)),
    "where": lambda x: torch.where(x > 0, x, -x, out=torch.zeros(3, dtype=DOUBLE)),
    "clamp": lambda x: torch.clamp(x, -1, 1, out=torch.zeros(3, dtype=DOUBLE)),
    "gt": lambda x: torch.gt(x, 0, out=torch.zeros(3)),
    "argmax": lambda x: torch.argmax(x, 0, out=torch.zeros((), dtype=torch.int32)),
    "norm": lambda x: torch.linalg.vector_norm(x, out=torch.zeros((), dtype=DOUBLE)),
    "mm": lambda x: torch.mm(x[:, None], x[None], out=torch.zeros(3, 3, dtype=DOUBLE)),
    "stack": lambda x: torch.stack([x[0], x[2]], out=torch.zeros(2, dtype=DOUBLE)),
    "cumsum": lambda x: torch.cumsum(x.double(), 0, out=torch.zeros(3)),
    "sort": lambda x: torch.sort(x, out=(torch.zeros(3), torch.zeros(3, dtype=INT)))[0],
    "sort in doubles": lambda x: torch.sort(
        x, out=(torch.zeros(3, dtype=DOUBLE), torch.zeros(3, dtype=INT))
    )[0],
    "zeros": lambda x: torch.zeros(3, out=torch.ones(3, dtype=DOUBLE)) + x,
    "arange": lambda x: torch.arange(3, out=torch.zeros(3)) + x,
    "another size": lambda x: torch.add(x[:2], 1, out=torch.zeros(3)),
    "number": lambda x: torch.mul(x, float(x[0]), out=torch.zeros(3)),
    "number for a tensor": lambda x: torch.where(x > 0, float(x[0]), 1.0, out=torch.zeros(3)),
}
NUMBERS: dict[str, Callable[[Tensor], Any]] = {
    "scatter_": lambda x: torch.zeros(3).scatter_(0, PLACES, float(x[0])),
    "scatter_ to ints": lambda x: torch.zeros(3, dtype=INT).scatter_(0, PLACES, float(x[0])),
    "scatter_ by *": lambda x: torch.ones(3).scatter_(0, PLACES, float(x[0]), reduce="multiply"),
    "scatter_add_": lambda x: torch.zeros(3).scatter_add_(0, PLACES, float(x[0])),
    "index_put_": lambda x: torch.zeros(3).index_put_((PLACES,), float(x[0])),
    "index_add_": lambda x: torch.zeros(3).index_add_(0, PLACES, float(x[0])),
    "lerp_": lambda x: torch.zeros(3).lerp_(float(x[0]), 0.5),
    "lerp_ by a number": lambda x: torch.zeros(3).lerp_(x, float(x[0])),
    "addcmul_": lambda x: torch.zeros(3).addcmul_(x, float(x[0])),
    "atan2_": lambda x: torch.ones(3).atan2_(float(x[0])),
    "logical_and_": lambda x: torch.arange(3).logical_and_(bool(x[0] > 0)),
    "clamp_": lambda x: torch.arange(3).clamp_(min=float(x[0])),
    "copy_": lambda x: torch.ones(3).copy_(float(x[0])),
}


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.parametrize("name", [*OUTS, *NUMBERS])
def test_what_is_written_is_what_the_loop_writes(name: str) -> None:
    function = OUTS.get(name) or NUMBERS[name]
    assert_matches_loop(function, (XS,), configurations=WAYS)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", ["add of doubles", "stack", "sort"])
def test_out_has_no_gradients(name: str, way: Any) -> None:
    batched, xs = autobatch.vmap(OUTS[name], **way), XS.clone().requires_grad_()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
            batched(xs)
    with torch.no_grad():
        batched(xs)


def max_into(x: Tensor, whole: Tensor) -> Any:
    return torch.max(whole.reshape(1, 6), 0, out=(whole[:2], torch.zeros(6, dtype=torch.int64)))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("n", [2, 3, 4])
def test_a_part_of_each_examples_own_length_takes_another_size(n: int) -> None:
    def resized(x: Tensor) -> tuple[Tensor, Tensor]:
        whole = torch.arange(6) + x[0]
        part = whole[1 : 3 if x[0] > 0 else 4]
        torch.cumsum(whole[:n], 0, out=part)
        return whole, part

    assert_matches_loop(resized, (XS,), configurations=WAYS)


RESIZING: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "add": lambda x, whole: torch.add(x, 1, out=whole[:2]),
    "add of doubles": lambda x, whole: torch.add(x.double(), 1, out=whole[:2]),
    "sum of what it is a part of": lambda x, whole: torch.sum(whole[:1], 0, out=whole[1:]),
    "max of what it is a part of": max_into,
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", RESIZING)
def test_a_part_of_a_tensor_keeps_its_size(name: str, way: Any) -> None:
    def resized(x: Tensor) -> Tensor:
        whole = torch.zeros(6) + x[0]
        RESIZING[name](x, whole)
        return whole

    for on_error in ("raise", "isolate"):
        batched = autobatch.vmap(resized, on_error=on_error, **way)
        for _ in range(4):
            with pytest.raises(UnsupportedError, match="another size to a part"):
                batched(XS)


def context_of(operation: Callable[[Tensor], Any]) -> Callable[[Tensor], str]:
    def program(x: Tensor) -> str:
        try:
            operation(x)
        except Exception as error:
            return repr((error, error.__context__, error.__cause__))
        return "none"

    return program


FAILING: dict[str, Callable[[Tensor], Any]] = {
    "product": lambda x: x @ torch.ones(7),
    "in place": lambda x: operator.ilshift(x, True),
    "without data otherwise": lambda x: x // 1j,
    "a size of its own": lambda x: torch.ones(-int(x[0].abs().ceil())),
}


@pytest.mark.parametrize("way", (*WAYS, {"engine": "sequential"}), ids=str)
@pytest.mark.parametrize("name", FAILING)
def test_what_torch_raises_has_no_context_of_the_engines(name: str, way: Any) -> None:
    program = context_of(FAILING[name])
    batched, expected = autobatch.vmap(program, **way), [program(x.clone()) for x in XS]
    for rows in (XS, XS[:1]):
        assert batched(rows) == expected[: len(rows)]
    with pytest.raises((RuntimeError, NotImplementedError)) as caught:
        autobatch.vmap(FAILING[name], **way)(XS)
    assert caught.value.__context__ is None
