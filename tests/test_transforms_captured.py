"""What functions that transforms map or differentiate inside a program write to what they captured.

The oracle is the plain loop, in which ``torch.vmap`` and ``torch.func`` are torch's own. What only
some inner rows of a thread would write is refused, never lost.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from tests.oracle import assert_matches_loop

XS = torch.arange(12.0).reshape(4, 3) - 2
CONFIGURATIONS: list[dict[str, Any]] = [
    {"executor": "vmap"},
    {"executor": "traced", "trace_after": 0},
    {"engine": "program_counter"},
]
ways = pytest.mark.parametrize("way", CONFIGURATIONS, ids=["vmap", "traced", "program_counter"])


class Holder:
    def __init__(self) -> None:
        self.a = torch.zeros(())


def appends(xs: Tensor) -> Any:
    seen: list[int] = []
    ys = torch.vmap(lambda x: (seen.append(1), x)[1])(xs)
    return ys.sum() + len(seen)


def appends_for_ours(xs: Tensor) -> Any:
    seen: list[Tensor] = []
    ys = autobatch.vmap(lambda x: (seen.append(x), x)[1])(xs)
    return ys.sum() + len(seen)


def adds(xs: Tensor) -> Any:
    t = torch.zeros(())
    return torch.vmap(lambda x: x * t.add_(1.0))(xs).sum() + t


def adds_rows(xs: Tensor) -> Any:
    t = torch.zeros(())
    return torch.vmap(lambda x: x * t.add_(x))(xs).sum() + t


def stores(xs: Tensor) -> Any:
    d: dict[str, Tensor] = {}

    def g(x: Tensor) -> Tensor:
        if x > 0:
            d["a"] = x
        return x

    return torch.vmap(g)(xs).sum() + len(d)


def sets_an_attribute(xs: Tensor) -> Any:
    o = Holder()

    def g(x: Tensor) -> Tensor:
        o.a = x
        return x

    return torch.vmap(g)(xs).sum() + o.a


def adds_to_a_set(xs: Tensor) -> Any:
    s: set[int] = set()
    return torch.vmap(lambda x: (s.add(len(s)), x)[1])(xs).sum() + len(s)


def writes_by_a_helper(xs: Tensor) -> Any:
    seen = [0]

    def note(x: Tensor) -> None:
        seen[0] = 1

    def g(x: Tensor) -> Tensor:
        note(x)
        return x

    return torch.vmap(g)(xs).sum() + seen[0]


def writes_what_is_not_mapped(xs: Tensor) -> Any:
    t = torch.zeros(())

    def g(x: Tensor, t: Tensor) -> Tensor:
        t += 1
        return x * t

    return torch.vmap(g, in_dims=(0, None))(xs, t).sum() + t


def within_a_gradient(xs: Tensor) -> Any:
    seen: list[int] = []

    def h(x: Tensor) -> Tensor:
        seen.append(1)
        return x * x

    return torch.vmap(torch.func.grad(h))(xs).sum() + len(seen)


def adds_to_a_number(xs: Tensor) -> Any:
    total = [1.0]

    def h(x: Tensor) -> Tensor:
        total[0] += 1e-12
        return x * x

    return torch.vmap(h)(xs).sum() + total[0]


def turns_a_number_into_a_tensor(xs: Tensor) -> Any:
    total: list[Any] = [1.0]

    def h(x: Tensor) -> Tensor:
        total[0] = torch.ones((), dtype=torch.float64)
        return x * x

    return torch.vmap(h)(xs).sum() + total[0]


REFUSED = [
    *((appends, "seen"), (appends_for_ours, "seen"), (adds, "t"), (adds_rows, "t"), (stores, "d")),
    *((sets_an_attribute, "o"), (adds_to_a_set, "s"), (writes_by_a_helper, "note")),
    *((writes_what_is_not_mapped, ""), (within_a_gradient, "")),
    *((adds_to_a_number, "total"), (turns_a_number_into_a_tensor, "total")),
]


@ways
@pytest.mark.parametrize("func,name", REFUSED, ids=lambda case: getattr(case, "__name__", ""))
def test_a_mapped_function_may_not_write_to_what_rows_share(
    func: Callable[..., Any], name: str, way: dict[str, Any]
) -> None:
    with pytest.raises(autobatch.SharedWriteError, match=r"\^+ mapped here") as raised:
        autobatch.vmap(func, **way)(XS)
    assert f"writes to `{name}`" in str(raised.value) if name else "not mapped" in str(raised.value)
    assert "return the new value" in str(raised.value)


def appends_to_a_deque(xs: Tensor) -> Any:
    q: collections.deque[int] = collections.deque()
    return torch.vmap(lambda x: (q.append(1), x)[1])(xs).sum() + len(q)


def pulls_back_through_a_deque(xs: Tensor) -> Any:
    q: collections.deque[int] = collections.deque()
    _, pull = torch.func.vjp(lambda x: (q.append(1), x * 2)[1], xs)
    return pull(xs)[0].sum() + len(q)


@ways
@pytest.mark.parametrize("func", [appends_to_a_deque, pulls_back_through_a_deque])
def test_objects_on_the_host_are_not_written_once_more(
    func: Callable[..., Any], way: dict[str, Any]
) -> None:
    with pytest.raises(autobatch.SharedWriteError, match="writes to a deque"):
        autobatch.vmap(func, **way)(XS)


# What stays.


def grows(x: Tensor) -> Tensor:
    while x.sum() < 4:
        x = x * 2 + 1
    return x


def reads(xs: Tensor) -> Any:
    seen, t, o = [xs[0], xs[1]], xs * 2, Holder()
    o.a = xs.mean()

    def g(x: Tensor, y: Tensor) -> Tensor:
        return x * seen[0] + t.sum() + o.a + y.sum()

    ys = torch.vmap(g, in_dims=(0, None))(xs, t[1:])
    seen.append(ys[0])
    t += 1
    return ys.sum() + seen[-1] + t.sum()


def own_writes(xs: Tensor) -> Any:
    def g(x: Tensor) -> Tensor:
        mine = [x]
        mine.append(x * 2)
        total = torch.zeros_like(x)
        for each in mine:
            total += each
        return total

    return torch.vmap(g)(xs)


def writes_its_rows(xs: Tensor) -> Any:
    rows = torch.stack([xs, xs + 1, xs * 3])

    def g(x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2

    return torch.vmap(g)(rows), rows, torch.vmap(g, in_dims=1)(rows), rows


def writes_rows_of_an_argument(xs: Tensor) -> Any:
    view = xs[:2]
    ys = torch.vmap(lambda x: x.mul_(2))(view)
    return ys, xs


def differentiated(transform: Callable[..., Any]) -> Callable[..., Any]:
    """A program that differentiates a function which writes, and whose threads return unlike."""

    def program(xs: Tensor) -> Any:
        seen: list[int] = []

        def h(x: Tensor) -> Tensor:
            seen.append(len(seen) + 1)
            if x.sum() > 3:
                return x.sum()
            return (x * 2).sum().double()

        return transform(h)(xs), sum(seen)

    return program


def pulled(h: Callable[..., Any]) -> Callable[..., Any]:
    def pull_back(xs: Tensor) -> Any:
        out, pull = torch.func.vjp(h, xs)
        return pull(torch.ones_like(out))[0]

    return pull_back


DIFFERENTIATED = [
    differentiated(make)
    for make in (torch.func.grad, torch.func.jacrev, torch.func.hessian, pulled)
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "func",
    [reads, own_writes, writes_its_rows, writes_rows_of_an_argument, *DIFFERENTIATED],
)
def test_like_the_loop(func: Callable[..., Any]) -> None:
    assert_matches_loop(func, (XS,), batch_sizes=(1, 2, 4))


@ways
def test_reads_of_threads_that_part(way: dict[str, Any]) -> None:
    """Rows that part and meet again have moved, not changed."""

    def func(xs: Tensor) -> Tensor:
        seen, t, o = [xs[0]], xs * 2, Holder()
        o.a = xs.mean()
        first, second = t[:2], t[1:]

        def g(x: Tensor) -> Tensor:
            x = x + grows(t).sum() + seen[0] if x > 1 else x - o.a
            return x * first.sum() + second.sum() if x > 2 else x

        ys = torch.stack([g(x) for x in xs]) if t.dim() > 5 else torch.vmap(g)(xs)
        t += 1
        return ys.sum() + second.sum()

    def looped(xs: Tensor) -> Tensor:
        t = xs * 2
        ys = []
        for x in xs:
            x = x + grows(t).sum() + xs[0] if x > 1 else x - xs.mean()
            ys.append(x * t[:2].sum() + t[1:].sum() if x > 2 else x)
        return torch.stack(ys).sum() + (t + 1)[1:].sum()

    got = autobatch.vmap(func, **way)(XS)
    torch.testing.assert_close(got, torch.stack([looped(row) for row in XS]))


@ways
def test_our_own_vmap_maps_copies(way: dict[str, Any]) -> None:
    def func(xs: Tensor) -> Any:
        rows = xs * 1
        return autobatch.vmap(lambda x: x.add_(1))(rows), rows

    got, rows = autobatch.vmap(func, **way)(XS)
    torch.testing.assert_close((got, rows), (XS + 1, XS))
    assert torch.equal(torch.stack([func(row)[1] for row in XS]), XS)
