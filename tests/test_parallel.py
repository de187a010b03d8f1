"""``pfor`` and ``map_fn``, outside of programs and in them, against the plain loop."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import autobatch
from tests.test_transforms import generated, same

WAYS: tuple[dict[str, Any], ...] = (
    {"engine": "sequential"},
    {"executor": "vmap"},
    {"trace_after": 0},
    {"engine": "program_counter", "trace_after": 0},
)
ways = pytest.mark.parametrize("way", WAYS, ids=["sequential", "vmap", "traced", "program_counter"])
XS = generated(7, 3, seed=21)
WEIGHTS = generated(3, 3, seed=22)


def stacked(rows: list[Any]) -> Any:
    """The results of a loop as the documentation says they stack."""
    flat, specs = zip(*map(pytree.tree_flatten, rows), strict=True)
    columns = [
        torch.stack([torch.as_tensor(x) for x in column]) for column in zip(*flat, strict=True)
    ]
    return pytree.tree_unflatten(columns, specs[0])


def loop(body: Callable[[int], Any], n: int) -> Any:
    return stacked([body(i) for i in range(n)])


def reads_and_writes(i: int) -> Any:
    x, out = XS[i] @ WEIGHTS, torch.zeros(4)
    while x.norm() < 3:
        x = x * 1.5
    out[i % 4] = x.sum()
    parts = [x]
    if i > 2:
        parts.append(-x)
    return {"out": out, "last": parts[-1]}, i * i


def differentiates(i: int) -> Any:
    def loss(x: Tensor) -> Tensor:
        return (x * x).sum() if i % 2 else x.exp().sum()

    return autobatch.grad(loss)(XS[i]), torch.func.jacrev(lambda x: x.sin() * x[0])(XS[i])


def nests(i: int) -> Any:
    inner = autobatch.pfor(lambda j: XS[j] * i if j < i else XS[i] + j, 4)
    return inner, autobatch.map_fn(lambda row: row.sum() if row[0] > 0 else row[1], inner)


@pytest.mark.sampled(12)
@ways
@pytest.mark.parametrize("n", [1, 4, 7])
@pytest.mark.parametrize("body", [reads_and_writes, differentiates, nests])
def test_pfor_is_the_loop(body: Callable[[int], Any], n: int, way: dict[str, Any]) -> None:
    expected = loop(body, n)
    for count in (n, torch.tensor(n)):
        for _ in range(3):
            got = autobatch.pfor(body, count, fallback="error", **way)
        same(got, expected)


@ways
def test_map_fn_is_the_loop(way: dict[str, Any]) -> None:
    def f(elem: dict[str, Any]) -> Any:
        a, (b,) = elem["a"], elem["b"]
        return (a * b, b > 0) if a.sum() > 0 else (a - b, a[0] > 0)

    elems = {"a": XS, "b": (XS[:, 0],)}
    expected = stacked([f({"a": a, "b": (b,)}) for a, b in zip(XS, XS[:, 0], strict=True)])
    same(autobatch.map_fn(f, elems, **way), expected)


def inside(x: Tensor, n: Tensor) -> Any:
    """A loop of each thread's own length, in a branch, with another one in it."""
    if x[0] > 0:
        x = x * 2

    def body(i: int) -> Tensor:
        y = XS[i] + x
        while y.norm() < 4:
            y = y * 1.5
        return y * autobatch.pfor(lambda j: x[j] * i, 3).sum()

    rows = autobatch.pfor(body, n)
    return rows.sum(0), len(rows), autobatch.map_fn(lambda r: r * 2 if r[0] > 0 else r, rows)


@pytest.mark.sampled(2)
@ways
def test_pfor_inside_a_program_has_each_threads_own_rounds(way: dict[str, Any]) -> None:
    counts = torch.tensor([2, 5, 1, 7, 2, 3, 4])
    chosen = {**way, "ragged_out": (None, None, "list")}
    sums, lengths, rows = autobatch.vmap(inside, **chosen)(XS, counts)
    for thread, n in enumerate(counts.tolist()):
        wanted = inside(XS[thread], n)
        same((sums[thread], lengths[thread]), (wanted[0], torch.tensor(n)))
        same(rows[thread], wanted[2])
    alike = autobatch.vmap(inside, in_dims=(0, None), **way)(XS, 3)
    same(alike, stacked([inside(x, 3) for x in XS]))


@pytest.mark.parametrize("way", WAYS[1:])
def test_threads_without_rounds(way: dict[str, Any]) -> None:
    def program(n: Tensor) -> Any:
        return autobatch.pfor(lambda i: XS[i] * 2, n)

    rows = autobatch.vmap(program, ragged_out="list", **way)(torch.tensor([0, 2, 0]))
    assert [len(row) for row in rows] == [0, 2, 0]
    same(rows[1], XS[:2] * 2)
    assert autobatch.pfor(lambda i: XS[i] * 2, 0, **way).shape == (0, 3)


@pytest.mark.parametrize("way", WAYS[1:], ids=["vmap", "traced", "program_counter"])
def test_a_body_may_give_back_what_it_was_given(way: dict[str, Any]) -> None:
    """For some elements, and a new tensor for others: what the rounds give is one tensor."""

    def folded(x: Tensor, n: Tensor) -> Tensor:
        def body(i: int) -> Tensor:
            return autobatch.map_fn(lambda e: e if e > 0 else e * x[i], x)

        return autobatch.pfor(body, n).sum()

    counts = torch.tensor([0, 1, 3, 0, 2, 1, 3])
    given = XS.clone().requires_grad_()
    expected = torch.stack(
        [
            sum((torch.where(x > 0, x, x * x[i]).sum() for i in range(n)), x.sum() * 0)
            for x, n in zip(given, counts.tolist(), strict=True)
        ]
    )
    leaf = XS.clone().requires_grad_()
    with autobatch.counts() as seen:
        found = autobatch.vmap(folded, **way)(leaf, counts)
    same(found, expected)
    same(torch.autograd.grad(found.sum(), leaf), torch.autograd.grad(expected.sum(), given))
    assert seen.by_thread == 0


@ways
def test_gradients_through_and_around(way: dict[str, Any]) -> None:
    def total(w: Tensor) -> Tensor:
        def body(i: int) -> Tensor:
            y = XS[i] * w
            return y.sum() if y[0] > 0 else (y * y).sum()

        return autobatch.pfor(body, 5).sum()

    def looped(w: Tensor) -> Tensor:
        ys = [XS[i] * w for i in range(5)]
        return torch.stack([y.sum() if y[0] > 0 else (y * y).sum() for y in ys]).sum()

    wanted = torch.stack([torch.func.grad(looped)(w) for w in WEIGHTS])
    same(autobatch.vmap(autobatch.grad(total), **way)(WEIGHTS), wanted)
    same(autobatch.grad(total)(WEIGHTS[0]), wanted[0])
    leaf = WEIGHTS[0].clone().requires_grad_()
    total(leaf).backward()
    assert leaf.grad is not None
    same(leaf.grad, wanted[0])


def draws(x: Tensor, n: Tensor) -> Any:
    def noisy(i: int) -> Tensor:
        return torch.randn(()) + i

    first = torch.randn(())
    rows = autobatch.pfor(lambda i: torch.rand(2) + autobatch.pfor(noisy, 2).sum() + x, n)
    return first, rows, torch.randn(())


def test_draws_are_keyed_by_path() -> None:
    counts = torch.tensor([2, 3, 1, 3, 2, 3, 1])
    runs = [
        autobatch.vmap(draws, seed=5, ragged_out=(None, "list", None), **way)(XS[:, 0], counts)
        for way in (*WAYS, {"chunk_size": 2})
    ]
    for run in runs[1:]:
        same(run, runs[0])
    values = torch.cat([torch.cat(runs[0][1]).flatten() % 1, runs[0][0], runs[0][2]])
    assert len(values.unique()) == len(values)
    alone = autobatch.vmap(draws, seed=5, thread_offset=3, ragged_out=(None, "list", None))
    same(alone(XS[3:4, 0], counts[3:4])[1][0], runs[0][1][3])
    seeded = [autobatch.pfor(lambda i: torch.randn(2) * i, 4, seed=1, **way) for way in WAYS]
    for run in seeded[1:]:
        same(run, seeded[0])
    drawn = autobatch.pfor(lambda i: torch.randn(()), 50)
    assert len(drawn.unique()) == 50


@ways
def test_failures_are_the_loops(way: dict[str, Any]) -> None:
    def body(i: int) -> Any:
        if i % 3 == 2:
            raise ValueError(f"round {i}")
        return XS[i]

    with pytest.raises(ValueError, match="round 2"):
        autobatch.pfor(body, 7, **way)
    with pytest.raises(IndexError):
        autobatch.pfor(lambda i: XS[i + 1], 7, **way)

    def program(n: Tensor) -> Any:
        return autobatch.pfor(body, n).sum()

    with pytest.raises(ValueError, match="round 2") as caught:
        autobatch.vmap(program, **way)(torch.tensor([1, 2, 3, 6]))
    assert "Example index: 2" in "".join(caught.value.__notes__)
    results = autobatch.vmap(program, on_error="isolate", **way)(torch.tensor([1, 3, 2, 6]))
    assert [result.exception is None for result in results] == [True, False, True, False]
    for n, kind in ((-1, ValueError), (2.0, TypeError), (torch.tensor([1, 2]), TypeError)):
        with pytest.raises(kind):
            autobatch.pfor(body, n)  # type: ignore[arg-type]
        with pytest.raises(kind):
            autobatch.vmap(lambda x, n=n: autobatch.pfor(body, n) * x, **way)(XS[:, 0])


class Kernels(TorchDispatchMode):
    """The kernels that run, and the shapes that they are given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shapes = [tuple(arg.shape) for arg in args if isinstance(arg, Tensor)]
        self.seen.append((func.overloadpacket.__name__, shapes))
        return func(*args, **(kwargs or {}))

    def of(self, name: str) -> list[Any]:
        return [shapes for kernel, shapes in self.seen if kernel == name]


@pytest.mark.parametrize("way", WAYS[1:])
def test_uniform_values_stay_unstacked(way: dict[str, Any]) -> None:
    """A shared tensor at the loop's index is one gather, what depends on no index runs once."""
    xs, weight = torch.randn(6, 40), torch.randn(40, 40)

    def body(i: int) -> Tensor:
        return xs[i] @ (weight * 2)

    for _ in range(4):
        with Kernels() as kernels, autobatch.counts() as counts:
            got = autobatch.pfor(body, 6, **way)
    same(got, xs @ (weight * 2))
    assert counts.row_copies == 0
    assert kernels.of("index_select") == [[(6, 40), (6,)]]
    assert not kernels.of("index")
    assert kernels.of("mul") == [[(40, 40)]]
    assert kernels.of("mm") == [[(6, 40), (40, 40)]]


def test_what_has_no_batched_form_loops_with_a_warning() -> None:
    def body(i: int) -> Tensor:
        return torch.unique(XS[i]).sum() + torch.tensor(XS[i].tolist()).sum()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        same(autobatch.pfor(body, 7), loop(body, 7))
    texts = [str(warning.message) for warning in caught]
    line = body.__code__.co_firstlineno + 1
    assert all(warning.category is autobatch.FallbackWarning for warning in caught)
    assert any(f"line {line}" in text and "dynamic shape" in text for text in texts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        autobatch.pfor(body, 7, fallback="allow")


@pytest.mark.parametrize("way", WAYS[1:], ids=["vmap", "traced", "program_counter"])
@pytest.mark.parametrize("form", ["pfor", "map_fn"])
def test_a_body_inside_a_program_may_not_write_to_what_it_captures(
    way: dict[str, Any], form: str
) -> None:
    def gathered(x: Tensor) -> Tensor:
        seen = torch.zeros(3)

        def body(i: Any) -> Any:
            seen[0] += 1
            return x[0] * i

        if form == "pfor":
            return autobatch.pfor(body, 3) + seen
        return autobatch.map_fn(body, x) + seen

    with pytest.raises(autobatch.AutobatchError) as failure:
        autobatch.vmap(gathered, **way)(XS)
    assert f"`{form}` maps" in str(failure.value) and "`seen`" in str(failure.value)


@pytest.mark.parametrize("n", [np.int64(2), np.int8(2), torch.tensor(2, dtype=torch.uint8)])
def test_a_number_of_rounds_is_what_a_range_takes(n: Any) -> None:
    assert autobatch.pfor(lambda i: i * 2, n).tolist() == [0, 2]
    inside = autobatch.vmap(lambda x: autobatch.pfor(lambda i: x + i, n))
    assert inside(torch.tensor([1.0, 5.0])).tolist() == [[1.0, 2.0], [5.0, 6.0]]
