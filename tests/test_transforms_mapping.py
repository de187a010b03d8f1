"""``vmap`` within ``vmap``: threads x inner rows, against the loop over the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from tests.test_transforms import engines, generated, same

X = generated(4, 5, 3, seed=3)
SCALE = generated(4, seed=4)
WEIGHTS = generated(3, 3, seed=5)


def walk(x: Tensor) -> Tensor:
    """A loop and a branch of each row's own."""
    steps = 0
    while x.norm() < 3.0 and steps < 9:
        x = x * 1.3 + 0.1
        steps += 1
    return x if x.sum() > 0 else -x * steps


def count(x: Tensor) -> int:
    steps = 0
    while x.norm() > 0.1:
        x = x / 2
        steps += 1
    return steps


def looped(f: Callable[..., Any], *rows: Any) -> Any:
    return torch.stack([torch.as_tensor(f(*row)) for row in zip(*rows, strict=True)])


@engines
@pytest.mark.parametrize("program", [walk, count])
def test_vmap_of_vmap(program: Callable[..., Any], way: dict[str, Any]) -> None:
    expected = torch.stack([looped(program, rows) for rows in X])
    with autobatch.counts() as counts:
        got = autobatch.vmap(autobatch.vmap(program), **way)(X)
    same(got, expected)
    assert counts.fallbacks == 0
    deep = autobatch.vmap(autobatch.vmap(autobatch.vmap(lambda x: x if x > 0 else x * x)), **way)
    same(deep(X), torch.where(X > 0, X, X * X))


def of_torch(rows: Tensor, scale: Tensor) -> Any:
    return torch.vmap(lambda x: walk(x) * scale)(rows)


def of_ours(rows: Tensor, scale: Tensor) -> Any:
    if scale > 0:
        rows = rows[:3]
    mapped = autobatch.vmap(lambda x, s: (walk(x) * s, x.sum() > 0), in_dims=(0, None))
    out, signs = mapped(rows, scale)
    return out.sum(0), signs.sum()


def of_columns(rows: Tensor, scale: Tensor) -> Any:
    both = autobatch.vmap(
        lambda d, w: (d["x"] @ w, w), in_dims=({"x": 1}, None), out_dims=(-1, None)
    )
    product, weights = both({"x": rows.mT * scale}, WEIGHTS)
    return product, weights


def of_uniform_rows(rows: Tensor, scale: Tensor) -> Any:
    return autobatch.vmap(lambda w: walk(w * scale))(WEIGHTS), torch.vmap(lambda w: w * 2)(WEIGHTS)


def of_recursion(rows: Tensor, scale: Tensor) -> Any:
    def halve(x: Tensor) -> Tensor:
        return halve(x * 0.5) + x if x.norm() > 1 else x * scale

    return torch.func.vmap(halve)(rows)


def of_keywords(rows: Tensor, scale: Tensor) -> Any:
    return torch.vmap(lambda x, s: walk(x) + s)(rows, s=scale)


INSIDE = [of_torch, of_ours, of_columns, of_uniform_rows, of_recursion, of_keywords]


def plain(f: Callable[..., Any]) -> list[Any]:
    """The oracle: the inner ``vmap`` is a loop over the inner rows."""

    def each(g: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(args)
            rows = []
            first = args[0]["x"].unbind(1) if isinstance(args[0], dict) else args[0].unbind(0)
            for item in first:
                own = {"x": item} if isinstance(args[0], dict) else item
                rows.append(g(own, *args[1:], **kwargs))
            assert len(dims) == len(args)
            if isinstance(rows[0], tuple):
                columns = zip(*rows, strict=True)
                places = out_dims if isinstance(out_dims, tuple) else (out_dims,) * len(rows[0])
                return tuple(
                    column[0] if dim is None else torch.stack(column, dim)
                    for column, dim in zip(columns, places, strict=True)
                )
            return torch.stack(rows)

        return run

    with pytest.MonkeyPatch.context() as patch:
        for module in (torch, torch.func, autobatch):
            patch.setattr(module, "vmap", each)
        return [f(x.clone(), s.clone()) for x, s in zip(X, SCALE, strict=True)]


@pytest.mark.sampled(4)
@engines
@pytest.mark.parametrize("program", INSIDE, ids=lambda f: f.__name__)
def test_inside_a_program(program: Callable[..., Any], way: dict[str, Any]) -> None:
    rows = plain(program)
    expected = (
        tuple(map(torch.stack, zip(*rows, strict=True)))
        if isinstance(rows[0], tuple)
        else torch.stack(rows)
    )
    mapped = autobatch.vmap(program, **way)
    for _ in range(2):
        with autobatch.counts() as counts:
            same(mapped(X, SCALE), expected)
        assert counts.fallbacks == 0


def failing(x: Tensor) -> Tensor:
    if x.sum() < -1:
        raise ValueError(f"too low: {x.sum().item():.3f}")
    return x * 2


@engines
def test_a_failing_row_is_its_threads(way: dict[str, Any]) -> None:
    def alone() -> None:
        for rows in X:
            for row in rows:
                failing(row)

    with pytest.raises(ValueError) as expected:
        alone()
    with pytest.raises(ValueError) as got:
        autobatch.vmap(autobatch.vmap(failing), **way)(X)
    assert str(got.value) == str(expected.value)


def test_threads_that_fail_leave() -> None:
    def outer(rows: Tensor) -> Tensor:
        out: Tensor = autobatch.vmap(failing)(rows)
        return out.sum()

    results = autobatch.vmap(outer, on_error="isolate")(X)
    for rows, result in zip(X, results, strict=True):
        low = [row.sum() for row in rows if row.sum() < -1]
        if low:
            assert str(result.exception) == f"too low: {low[0].item():.3f}"
        else:
            torch.testing.assert_close(result.value, (rows * 2).sum())


@pytest.mark.sampled(2)
@engines
def test_derivatives_of_maps(way: dict[str, Any]) -> None:
    def total(x: Tensor, rows: Tensor) -> Tensor:
        out: Tensor = autobatch.vmap(lambda row: walk(row * x))(rows)
        return (out**2).sum()

    def alone(x: Tensor, rows: Tensor) -> Tensor:
        return sum((walk(row * x) ** 2).sum() for row in rows)  # type: ignore[return-value]

    scale = SCALE.abs() + 0.5
    for of, check in ((autobatch.grad, torch.func.grad), (autobatch.hessian, torch.func.hessian)):
        expected = looped(check(alone), scale, X)
        same(autobatch.vmap(of(total), **way)(scale, X), expected)
        inner = autobatch.vmap(
            autobatch.vmap(of(total), in_dims=(0, None)), in_dims=(None, 0), **way
        )
        each = torch.stack([looped(lambda s: check(alone)(s, rows), scale) for rows in X])  # noqa: B023
        same(inner(scale, X), each)


@engines
def test_inner_results_that_do_not_stack(way: dict[str, Any]) -> None:
    def names(rows: Tensor) -> Any:
        return autobatch.vmap(lambda x: "up" if x.sum() > 0 else "down")(rows)

    expected = [["up" if x.sum() > 0 else "down" for x in rows] for rows in X]
    assert autobatch.vmap(names, **way)(X) == expected


def test_what_does_not_fit_says_what_it_says_alone() -> None:
    for wrong in (
        lambda rows: torch.vmap(walk, in_dims=(0, 0))(rows),
        lambda rows: torch.vmap(walk, in_dims=5)(rows),
        lambda rows: torch.vmap(lambda a, b: a + b)(rows, rows[:2]),
        lambda rows: autobatch.vmap(walk, in_dims=5)(rows),
    ):
        with pytest.raises(Exception) as alone:
            wrong(X[0])
        with pytest.raises(type(alone.value)) as together:
            autobatch.vmap(wrong)(X)
        assert str(together.value).splitlines()[0] == str(alone.value).splitlines()[0]


def test_inner_rows_draw_by_themselves_under_a_seed() -> None:
    def noisy(rows: Tensor) -> Any:
        both = autobatch.vmap(lambda x: x * 0 + torch.randn(()) if x.sum() < 9 else x)
        return both(rows), both(rows), torch.randn(())

    run = autobatch.vmap(noisy, seed=3)
    first, second, after = run(X)
    drawn = torch.cat([first[:, :, 0].flatten(), second[:, :, 0].flatten(), after])
    assert len(set(drawn.tolist())) == len(drawn)
    alone = autobatch.vmap(noisy, seed=3, chunk_size=1)(X)
    for got, expected in zip(alone, (first, second, after), strict=True):
        same(got, expected)


def climbs(x: torch.Tensor) -> torch.Tensor:
    while x < 30:
        x = x + 1
    return x


WITHIN = {
    "vmap": lambda x: autobatch.vmap(climbs)(x).sum(),
    "torch.vmap": lambda x: torch.vmap(climbs)(x).sum(),
    "map_fn": lambda x: autobatch.map_fn(climbs, x).sum(),
    "grad": lambda x: autobatch.grad(climbs)(x[0]),
    "vjp": lambda x: torch.func.vjp(climbs, x[0])[0],
    "nested": lambda x: torch.vmap(torch.func.grad(climbs))(x).sum(),
}


@pytest.mark.parametrize("name", WITHIN)
@pytest.mark.parametrize("options", [{}, {"on_error": "isolate"}], ids=str)
def test_the_sequential_engine_limits_the_steps_of_what_a_transform_runs(name, options):
    xs = torch.arange(6.0).reshape(2, 3)
    few = autobatch.vmap(WITHIN[name], engine="sequential", max_steps=20, **options)
    many = autobatch.vmap(WITHIN[name], engine="sequential", max_steps=1000, **options)
    assert len(many(xs)) == 2
    if options:
        assert [type(each.exception) for each in few(xs)] == [autobatch.errors.StepLimitError] * 2
        return
    with pytest.raises(autobatch.errors.StepLimitError, match="more than max_steps=20 "):
        few(xs)


def bent(r: torch.Tensor) -> torch.Tensor:
    return r.sin() if r > 0 else r * r


BRANCHING = {
    "closure": lambda x, w: torch.vmap(lambda r: r * x if r > 0 else r)(w),
    "function": lambda x, w: torch.vmap(bent)(w) * x,
    "gradient": lambda x, w: torch.vmap(autobatch.grad(bent))(w) * x,
    "twice": lambda x, w: torch.vmap(torch.vmap(bent))(w.reshape(3, 1)) * x,
    "within": lambda x, w: autobatch.grad(lambda v: torch.vmap(bent)(v).sum())(w) * x,
    "dims": lambda x, w: torch.vmap(lambda a, b: a if a > b else x, (0, None), -1)(w, w[0]),
}


@pytest.mark.parametrize("name", BRANCHING)
@pytest.mark.parametrize("options", [{"engine": "sequential"}, {"stateful": "sequential"}], ids=str)
def test_torchs_vmap_may_branch_one_thread_at_a_time(name, options):
    xs = torch.tensor([1.0, -2.0, 3.0])
    expected = autobatch.vmap(BRANCHING[name], in_dims=(0, None))(xs, xs)
    result = autobatch.vmap(BRANCHING[name], in_dims=(0, None), **options)(xs, xs)
    torch.testing.assert_close(result, expected)


def test_torchs_vmap_tells_what_it_cannot_map_one_thread_at_a_time():
    mapped = autobatch.vmap(lambda x: torch.vmap(bent)(x.item()), engine="sequential")
    with pytest.raises(ValueError, match="vmap"):
        mapped(torch.ones(2))


def of_none(rows: Tensor, scale: Tensor) -> Any:
    one = torch.vmap(
        lambda x: (x * scale, rows.sum(), [rows[0], scale > 0]), out_dims=(0, None, None)
    )
    other = autobatch.vmap(
        lambda x, s: (walk(x) * s, (s, "even", None)), in_dims=(0, None), out_dims=(0, None)
    )
    return one(rows), other(rows, scale)[0], other(rows, scale)[1][0]


@pytest.mark.sampled(2)
@engines
def test_what_is_the_same_for_all_inner_rows(way: dict[str, Any]) -> None:
    rows, scale = X.clone().requires_grad_(), SCALE.clone().requires_grad_()
    mapped = autobatch.vmap(of_none, **way)
    for _ in range(3):
        (products, sums, (firsts, signs)), walks, scales = mapped(rows, scale)
        same(products, rows * scale[:, None, None])
        same(sums, rows.sum((1, 2)))
        same(firsts, rows[:, 0])
        same(signs, scale > 0)
        same(walks, torch.stack([looped(walk, x) * s for x, s in zip(rows, scale, strict=True)]))
        same(scales, scale)
        (given,) = torch.autograd.grad((sums * scales).sum(), rows)
        same(given, scale[:, None, None].expand_as(rows))


@engines
def test_what_differs_by_inner_row_needs_a_dimension(way: dict[str, Any]) -> None:
    def outer(rows: Tensor) -> Any:
        return autobatch.vmap(lambda x: (x, x.sum()), out_dims=(0, None))(rows)

    with pytest.raises(autobatch.OptionError, match=r"out_dims is None for the result\[1\]"):
        autobatch.vmap(outer, **way)(X)


@pytest.mark.parametrize("dim", [-3, -2, 1])
@engines
def test_a_dimension_that_a_result_has_not(dim: int, way: dict[str, Any]) -> None:
    def outer(rows: Tensor) -> Any:
        return torch.vmap(lambda x: x.sum(), out_dims=dim)(rows)

    with pytest.raises(
        autobatch.OptionError, match=rf"dimension {dim} for a result of shape .5,.\."
    ):
        autobatch.vmap(outer, **way)(X)
