"""``cond``, ``while_loop``, ``scan``, ``foldl`` and ``foldr`` in programs, against the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan as torch_scan

import autobatch
from autobatch.forms import STAND_INS
from tests.oracle import assert_matches_loop
from tests.test_transforms import engines, generated, same

SIZES = (1, 4, None)
NUMBERS = torch.tensor([1.0, -1.0, 3.0, 0.2, -7.0, 0.0])
ROWS = generated(6, 5, 3, seed=11)


def climb(x: Tensor) -> Tensor:
    while x < 3:
        x = x + 1.5
    return x


def branched(x: Tensor) -> Any:
    def negative(a: Tensor) -> Tensor:
        return climb(a) if a < -2 else a * 2

    y = autobatch.cond(x > 0, lambda a: a.sin(), negative, (x,))
    return y, autobatch.cond(pred=y.item() > 1, true_fn=lambda: 1, false_fn=lambda: 2)


def looped(x: Tensor) -> Any:
    def going(state: dict[str, Any], n: int) -> Tensor:
        return state["a"] < 10

    def body(state: dict[str, Any], n: int) -> Any:
        a = state["a"]
        a = a * 2 + 0.5 if a > 0 else a.abs() + 0.25
        return {"a": a, "rest": [state["rest"][0] + 1]}, n + 1

    return autobatch.while_loop(going, body, ({"a": x, "rest": [x]}, 0))


def scanned(rows: Tensor) -> Any:
    def combine(carry: tuple[Tensor, Tensor], x: dict[str, Tensor]) -> Any:
        total, most = carry
        if x["a"].sum() > 0:
            total = total + x["a"]
        return (total, torch.maximum(most, x["b"])), {"t": total * 2, "m": [most]}

    xs = {"a": rows, "b": rows.sum(-1)}
    init = (rows[0] * 0, rows[0, 0])
    first = autobatch.scan(combine, init, xs)
    last = autobatch.scan(combine, init, xs, reverse=True)
    across = autobatch.scan(lambda c, x: (c + x, c * x), rows[:, 0], rows, dim=1)
    return first, last, across


def folded(rows: Tensor) -> Any:
    def fn(acc: Tensor, row: Tensor) -> Tensor:
        return acc * 0.5 + row if row[0] > 0 else acc - row

    def pair(acc: Any, row: tuple[Tensor, Tensor]) -> Any:
        return acc + row[0] * row[1].sum()

    left, right = autobatch.foldl(fn, rows), autobatch.foldr(fn, rows)
    both = autobatch.foldr(pair, (rows[:, 0], rows), initializer=2.0)
    return left, right, both, autobatch.foldl(fn, rows, torch.ones(3))


def drawing(x: Tensor) -> Tensor:
    return torch.stack([x, autobatch.cond(x > 0, lambda: x * 2, lambda: x - 1)]).sum()


def recursive(n: Tensor) -> Any:
    def more(m: Tensor) -> Any:
        return recursive(m - 1) + recursive(m - 2)

    return autobatch.cond(n < 2, lambda m: m * 1, more, (n,))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("program", "given"),
    [
        (branched, NUMBERS),
        (looped, NUMBERS),
        (scanned, ROWS),
        (folded, ROWS),
        (drawing, NUMBERS),
        (recursive, torch.tensor([5, 0, 7, 1])),
    ],
)
def test_forms_are_the_loop(program: Callable[..., Any], given: Tensor) -> None:
    assert_matches_loop(program, (given,), batch_sizes=SIZES)


def test_nothing_runs_thread_by_thread() -> None:
    for program, given in ((branched, NUMBERS), (looped, NUMBERS), (scanned, ROWS), (folded, ROWS)):
        with autobatch.counts() as counts:
            autobatch.vmap(program)(given)
        assert counts.fallbacks == 0, program


@engines
def test_forms_of_torch_are_ours(way: dict[str, Any]) -> None:
    def with_torch(x: Tensor) -> Any:
        y = torch.cond(x > 0, lambda a: a.sin(), climb, (x,))
        a, n = torch.while_loop(lambda a, n: a < 9, lambda a, n: (a + climb(a), n + 1), (y, 0))
        return y, a, n

    def with_ours(x: Tensor) -> Any:
        y = autobatch.cond(x > 0, lambda a: a.sin(), climb, (x,))
        a, n = autobatch.while_loop(lambda a, n: a < 9, lambda a, n: (a + climb(a), n + 1), (y, 0))
        return y, a, n

    got = autobatch.vmap(with_torch, **way)(NUMBERS)
    rows = zip(*(with_ours(x) for x in NUMBERS), strict=True)
    same(got, tuple(torch.stack([torch.as_tensor(item) for item in row]) for row in rows))

    def torch_scanned(rows: Tensor) -> Any:
        return torch_scan(lambda c, x: (c + x, c * x.sum()), rows[0], rows, dim=0, reverse=True)

    total, out = autobatch.vmap(torch_scanned, **way)(ROWS)
    alone = [autobatch.scan(lambda c, x: (c + x, c * x.sum()), r[0], r, reverse=True) for r in ROWS]
    same((total, out), tuple(map(torch.stack, zip(*alone, strict=True))))


def test_one_example_is_what_torch_gives() -> None:
    def body(a: Tensor, n: Tensor) -> Any:
        return a * 2, n + 1

    given = (torch.tensor(1.5), torch.tensor(0))
    want = torch.while_loop(lambda a, n: a < 10, body, given)
    same(autobatch.while_loop(lambda a, n: a < 10, body, given), tuple(want))

    def combine(c: Tensor, x: Tensor) -> Any:
        return c + x, (c * x).clone()

    for dim, reverse in ((0, False), (1, True), (-1, False)):
        init = ROWS[0].select(dim, 0).contiguous()
        wanted = torch_scan(combine, init, ROWS[0], dim=dim, reverse=reverse)
        same(STAND_INS[torch_scan](combine, init, ROWS[0], dim=dim, reverse=reverse), tuple(wanted))


@pytest.mark.sampled(2)
@engines
def test_the_outputs_of_a_scan_stack_along_its_dimension(way: dict[str, Any]) -> None:
    """torch's do since 2.13, ours with any."""

    def outer(c: Tensor, x: Tensor) -> Any:
        return c + x, c[:, None] * x

    def ours(rows: Tensor) -> Any:
        return autobatch.scan(outer, rows[:, 0], rows, dim=-1)

    def torchs(rows: Tensor) -> Any:
        return torch_scan(outer, rows[:, 0].contiguous(), rows, dim=-1)

    first = autobatch.vmap(lambda rows: autobatch.scan(outer, rows[0], rows))(ROWS.mT)
    same(autobatch.vmap(ours, **way)(ROWS), (first[0], first[1].movedim(1, 2)))
    alone = [torchs(rows) for rows in ROWS]
    wanted = tuple(torch.stack(parts) for parts in zip(*alone, strict=True))
    same(autobatch.vmap(torchs, **way)(ROWS), wanted)


@pytest.mark.sampled(2)
@engines
def test_gradients_and_ragged_rows(way: dict[str, Any]) -> None:
    def total(x: Tensor) -> Tensor:
        return autobatch.scan(lambda c, r: (c * 0.9 + r.sin(), c), x[0] * 0, x)[0].sum()

    got = autobatch.vmap(autobatch.grad(total), **way)(ROWS)
    same(got, torch.stack([torch.func.grad(total)(row) for row in ROWS]))
    ragged = [ROWS[0], ROWS[1, :2], ROWS[2, :1], ROWS[3, :4]]

    def prefix(x: Tensor) -> Any:
        return autobatch.scan(lambda c, r: (c + r, c.sum() + r), x[0] * 0, x)

    last, sums = autobatch.vmap(prefix, ragged_out=(None, "list"), **way)(autobatch.ragged(ragged))
    for row, (own, outs) in enumerate(map(prefix, ragged)):
        same(last[row], own)
        same(sums[row], outs)


def grows(x: Tensor) -> Any:
    return autobatch.while_loop(lambda a: a.sum() < 9, lambda a: (torch.stack([a, a]),), (x,))


def changes_dtype(x: Tensor) -> Any:
    return autobatch.while_loop(lambda a: a < 9, lambda a: (a.double() + 5,), (x,))


def loses_structure(x: Tensor) -> Any:
    return autobatch.while_loop(lambda a: a["k"] < 9, lambda a: ((a["k"] + 5,),), ({"k": x},))


def loops_on_a_number(x: Tensor) -> Any:
    return autobatch.while_loop(lambda a: a, lambda a: (a,), (x,))


def carries_text(x: Tensor) -> Any:
    return autobatch.while_loop(lambda a, t: a < 1, lambda a, t: (a, t), (x, "no"))


def wide_pred(x: Tensor) -> Any:
    return autobatch.cond(torch.stack([x, x]) > 0, lambda: x, lambda: x)


def no_branch(x: Tensor) -> Any:
    return autobatch.cond(x > 0, x, lambda: x)


def scans_wrong_carry(x: Tensor) -> Any:
    return autobatch.scan(lambda c, r: (c.double(), r), x, torch.stack([x, x]))


def scans_no_pair(x: Tensor) -> Any:
    return autobatch.scan(lambda c, r: c, x, torch.stack([x, x]))


def scans_unequal(x: Tensor) -> Any:
    return autobatch.scan(lambda c, r: (c, c), x, (torch.zeros(2), torch.zeros(3)))


def folds_nothing(x: Tensor) -> Any:
    return autobatch.foldl(lambda a, r: a + r, torch.zeros(0))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("program", "message"),
    [
        (grows, r"got \(float32\[\],\) and returned \(float32\[2\],\)"),
        (changes_dtype, r"got \(float32\[\],\) and returned \(float64\[\],\)"),
        (loses_structure, r"got \(\{'k': float32\[\]\},\) and returned \(\(float32\[\],\),\)"),
        (loops_on_a_number, r"cond_fn must return a boolean scalar tensor"),
        (carries_text, "tensors or numbers, but got a str"),
        (wide_pred, "single-element tensor"),
        (no_branch, "both branches to be callable"),
        (scans_wrong_carry, "combine_fn must return the carry"),
        (scans_no_pair, "combine_fn must return"),
        (scans_unequal, "different sizes"),
        (folds_nothing, "needs an initializer"),
    ],
)
def test_what_does_not_fit_is_told(program: Callable[..., Any], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        program(torch.tensor(1.0))
    assert_matches_loop(program, (torch.tensor([1.0, 2.0]),))


def test_branches_of_different_structure_name_their_returns() -> None:
    def uneven(x: Tensor) -> Any:
        return torch.cond(x > 0, lambda a: a, lambda a: (a, a), (x,))

    with pytest.raises(autobatch.StackingError, match="different structures"):
        autobatch.vmap(uneven)(NUMBERS)
