"""The kernels that number columns spend, how they trace, and how they join tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from autobatch.batching import numbers
from autobatch.batching.numbers import Number, NumberResult, as_operand, joined_dtype
from autobatch.batching.numbers.api import CALLABLES
from tests.number_rows import (
    BINARY,
    EDGES,
    KINDS,
    MATH,
    UNARY,
    column,
    flat,
    pairs,
)

torch.set_num_threads(1)


class Kernels(TorchDispatchMode):
    """Counts torch's operators."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("name", "operands", "kernels"),
    [
        ("add", [[1, 2], 1], ["add"]),
        ("add", [1, [1, 2]], ["add"]),
        ("add", [[1, 2], [3, 4]], ["add"]),
        ("sub", [1, [1, 2]], ["rsub"]),
        ("mul", [3, [1, 2]], ["mul"]),
        ("floordiv", [[1, 2], 2], ["div"]),
        ("mod", [[1, 2], 2], ["remainder"]),
        ("mod", [[1, 2], [3, 4]], ["remainder"]),
        ("pow", [[1, 2], 2], ["mul"]),
        ("lshift", [[1, 2], 2], ["bitwise_left_shift"]),
        ("lt", [[1, 2], 2], ["lt"]),
        ("eq", [[1, 2], [1, 3]], ["eq"]),
        ("lt", [[1, 2], 2.5], ["le"]),
        ("lt", [[1.0, 2.0], 2], ["lt"]),
        ("lt", [2.5, [1.0, 2.0]], ["gt"]),
        ("add", [[1.0, 2.0], 2], ["add"]),
        ("truediv", [[1.0, 2.0], 2], ["div"]),
        ("mod", [[1.0, 2.0], 2.0], ["remainder", "add"]),
        ("neg", [[1, 2]], ["neg"]),
        ("min", [[1, 2], 2], ["clamp"]),
        ("truth", [[True, False]], []),
        ("int", [[1, 2]], []),
    ],
)
def test_kernels_spent(name: str, operands: list[Any], kernels: list[str]) -> None:
    cells = [column(o, tight=True) if isinstance(o, list) else o for o in operands]
    with Kernels() as seen:
        result = numbers.apply(name, *cells)
    assert isinstance(result, NumberResult)
    assert seen.names == kernels
    assert result.failed is None
    assert result.escape is None


def test_unchecked_spends_nothing_on_rows_that_fail() -> None:
    a = column([1, 2, 0])
    for name in ("add", "mul", "floordiv", "mod", "truediv", "pow", "lshift"):
        result = numbers.apply(name, a, a, checked=False)
        assert isinstance(result, NumberResult)
        assert result.failed is None
        assert result.escape is None


CALLS: list[tuple[Any, list[Any]]] = [
    *[(n, [k, k]) for n in BINARY.split() for k in (int, float) if n[-1] != "x"],
    *[(n, [k]) for n in UNARY.split() for k in KINDS],
    *[(n, [k]) for n in ("int", "float", "bool", "round") for k in KINDS],
    *[(n, [int, float]) for n in ("add", "mod", "pow", "lt", "eq", "min")],
    *[(f, [k] * CALLABLES[f].parts[0].most) for f in MATH for k in (int, float)],
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("scalar", [None, 3])
@pytest.mark.parametrize(("name", "kinds"), CALLS)
def test_rows_of_vmap_and_a_recording_give_the_same(
    name: Any, kinds: list[type], scalar: int | None
) -> None:
    """Elementwise on 0-d rows, and no host reads: recorded on fake tensors, replayed on data."""
    columns = [column(EDGES[kind][:24]) for kind in kinds]
    operation = CALLABLES[name] if callable(name) else name
    if scalar is not None:
        columns = columns[:-1]

    def run(*datas: torch.Tensor) -> list[Any]:
        cells = [Number(c.tag, d) for c, d in zip(columns, datas, strict=True)]
        extra = [] if scalar is None else [scalar]
        return flat(numbers.apply(operation, *cells, *extra))

    datas = [c.data for c in columns]
    if (
        not datas
        or numbers.apply(operation, *columns, *([] if scalar is None else [scalar])) is None
    ):
        return
    want = run(*datas)
    rows = torch.vmap(run)(*datas)
    replayed = make_fx(run, tracing_mode="fake")(*datas)(*datas)
    for w, row, again in zip(want, rows, replayed, strict=True):
        assert w.dtype is row.dtype is again.dtype
        torch.testing.assert_close(row, w, rtol=1e-15, atol=0, equal_nan=True)
        torch.testing.assert_close(again, w, rtol=0, atol=0, equal_nan=True)


REAL = [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16]
REAL += [torch.bfloat16, torch.float32, torch.float64, torch.complex64]


@pytest.mark.parametrize("like", REAL, ids=str)
@pytest.mark.parametrize("value", [True, 3, -1, 2**40, 2.5, 1e6])
def test_a_number_joins_a_tensor_as_python_s_does(value: Any, like: torch.dtype) -> None:
    number = column([value, value])
    for tensor in (torch.ones(2, dtype=like), torch.ones((), dtype=like)):
        assert joined_dtype(number.tag, like) is torch.result_type(tensor, value)
    operand_tensor = as_operand(number, like)
    if like is not torch.bool:
        torch.testing.assert_close(
            torch.zeros(2, dtype=like) + operand_tensor, torch.zeros(2, dtype=like) + value
        )


def sound(result: NumberResult) -> torch.Tensor:
    """The rows whose data counts."""
    rows = torch.ones_like(result.data, dtype=torch.bool)
    for mask in (result.failed, result.escape):
        rows = rows if mask is None else rows & ~mask
    return rows


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("scalar", [None, 3, -7])
@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("name", [*BINARY.split(), "min", "max", "divmod"])
def test_a_gpu_gives_what_the_cpu_gives(name: str, kind: type, scalar: int | None) -> None:
    here = [column(values) for values in pairs(EDGES[kind], EDGES[kind])]
    there = [Number(c.tag, c.data.to("cuda")) for c in here]
    want = numbers.apply(name, *here) if scalar is None else numbers.apply(name, here[0], scalar)
    got = numbers.apply(name, *there) if scalar is None else numbers.apply(name, there[0], scalar)
    wants, gots = (r if isinstance(r, tuple) else (r,) for r in (want, got))
    for w, g in zip(wants, gots, strict=True):
        if w is None or g is None:
            assert w is g
            continue
        rows = sound(w)
        assert torch.equal(rows, sound(g).cpu())
        data = g.data.cpu()[rows]
        rtol = 1e-15 if name == "pow" else 0
        torch.testing.assert_close(data, w.data[rows], rtol=rtol, atol=0, equal_nan=True)
