"""``autobatch.vmap(f)`` within ``torch.vmap``: rows of rows, or a clear refusal, never garbage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import autobatch
from autobatch.batching.levels import DrawError
from autobatch.errors import AutobatchError

W = torch.tensor([0.7, -1.2, 0.5])
XS = torch.tensor([[1.0, 2, -1], [-0.5, 0.3, 0.2], [2, -1, 0.4], [0.1, -0.2, -0.3]])
XX = torch.stack([XS, XS * 2 - 1])


def branching(x: Tensor, w: Tensor) -> Tensor:
    s = (x * w).sum()
    if s > 0:
        return torch.sin(s) * x[0]
    return (x * x * w).sum()


def looping(x: Tensor, w: Tensor) -> Tensor:
    s = x[0] * 1
    while s < 3:
        s = s * 1.5 + w[0].abs() + 1
    return s * x[1]


def writing(x: Tensor, w: Tensor) -> Tensor:
    y = torch.zeros(3)
    for i in range(3):
        y[i] = x[i] * w[i]
        if y[i] > 0:
            y[i] *= 2
    return (y * y).sum()


PROGRAMS: list[Callable[..., Any]] = [branching, looping, writing]
named = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


def rows_of_rows(program: Callable[..., Any]) -> Tensor:
    return torch.stack([torch.stack([program(x, W) for x in xs]) for xs in XX])


@named
def test_rows_of_rows(program: Callable[..., Any]) -> None:
    inner = autobatch.vmap(program, in_dims=(0, None), trace_after=0)
    expected = rows_of_rows(program)
    torch.testing.assert_close(torch.vmap(inner, in_dims=(0, None))(XX, W), expected)
    moved = torch.vmap(inner, in_dims=(2, None), out_dims=1)(XX.permute(1, 2, 0), W)
    torch.testing.assert_close(moved, expected.T)
    thrice = torch.vmap(torch.vmap(inner, in_dims=(0, None)), in_dims=(1, None))
    torch.testing.assert_close(thrice(XX[:, None].expand(2, 3, 4, 3), W), expected.expand(3, 2, 4))


@named
def test_gradients_of_rows_of_rows(program: Callable[..., Any]) -> None:
    expected = torch.stack([torch.stack([torch.func.grad(program)(x, W) for x in xs]) for xs in XX])
    inner = autobatch.vmap(autobatch.grad(program), in_dims=(0, None))
    torch.testing.assert_close(torch.vmap(inner, in_dims=(0, None))(XX, W), expected)
    values = torch.vmap(autobatch.vmap(program, in_dims=(0, None)), in_dims=(0, None))
    found = torch.func.grad(lambda xx: values(xx, W).sum())(XX)
    torch.testing.assert_close(found, expected)


def batch_of(program: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return autobatch.vmap(program, in_dims=(0, None), **options)


def loop_of(program: Callable[..., Any]) -> Callable[..., Any]:
    return lambda xs, w: torch.stack([program(x, w) for x in xs])


def along(batch: Callable[..., Any], xs: Tensor, w: Tensor) -> Any:
    return torch.func.jvp(batch, (xs, w), (xs.flip(0), torch.ones_like(w)))


def pulled(batch: Callable[..., Any], xs: Tensor, w: Tensor) -> Any:
    out, pull = torch.func.vjp(batch, xs, w)
    return pull(out.cos())


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "grad": lambda batch, *xs: torch.func.grad(lambda *xs: batch(*xs).sum(), (0, 1))(*xs),
    "own grad": lambda batch, *xs: autobatch.grad(lambda *xs: batch(*xs).sum())(*xs),
    "jacrev": lambda batch, *xs: torch.func.jacrev(batch, (0, 1))(*xs),
    "jacfwd": lambda batch, *xs: torch.func.jacfwd(batch, (0, 1))(*xs),
    "hessian": lambda batch, *xs: torch.func.hessian(lambda *xs: batch(*xs).sum(), 1)(*xs),
    "jvp": along,
    "vjp": pulled,
}
WAYS = (
    {"trace_after": 0},
    {"chunk_size": 3, "engine": "program_counter"},
    {"engine": "sequential"},
)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("transform", TRANSFORMS)
@named
def test_transforms_of_a_batch_within_a_map(program: Callable[..., Any], transform: str) -> None:
    derived = TRANSFORMS[transform]
    for size, options in zip((7, 2, 1), WAYS, strict=True):
        xx = torch.linspace(-1.5, 2.0, size * 6, dtype=torch.float64).sin().view(size, 2, 3) * 2
        ww = W.double() * torch.linspace(0.5, 1.5, size, dtype=torch.float64)[:, None]

        def mapped(xs: Tensor, w: Tensor, options: Any = options) -> Any:
            return derived(batch_of(program, **options), xs, w)

        def by_row(ww: Tensor, xx: Tensor = xx) -> Any:
            rows = [derived(loop_of(program), xs, w) for xs, w in zip(xx, ww, strict=True)]
            return pytree.tree_map(lambda *each: torch.stack(each), *rows)

        torch.testing.assert_close(torch.vmap(mapped)(xx, ww), by_row(ww))
        shared = torch.vmap(mapped, in_dims=(1, None))(xx.movedim(0, 1), ww[0])
        torch.testing.assert_close(shared, by_row(ww[:1].expand(size, 3)))


@pytest.mark.sampled(3)
@named
def test_maps_and_transforms_by_turns(program: Callable[..., Any]) -> None:
    """Levels within levels; and the graph of what is around goes on through all of them."""

    def loss(of: Callable[..., Any], xs: Tensor, w: Tensor) -> Tensor:
        return of(xs, w).square().sum()

    def slopes(of: Callable[..., Any]) -> Callable[..., Any]:
        return lambda xs, w: torch.func.grad(lambda w: loss(of, xs, w))(w).sum()

    def second(of: Callable[..., Any], xx: Tensor, w: Tensor) -> Tensor:
        each = torch.vmap(slopes(of), in_dims=(0, None))
        return torch.func.grad(lambda xx: each(xx, w).sum())(xx)

    def by_loop(xx: Tensor, w: Tensor) -> Tensor:
        total = lambda xx: sum(slopes(loop_of(program))(xs, w) for xs in xx)  # noqa: E731
        return torch.func.grad(total)(xx)

    xxx = torch.stack([XX, XX * 0.5 + 0.1]).double().requires_grad_()
    w = W.double().requires_grad_()
    found = torch.vmap(lambda xx, w: second(batch_of(program), xx, w), in_dims=(0, None))(xxx, w)
    expected = torch.stack([by_loop(xx, w) for xx in xxx])
    torch.testing.assert_close(found, expected)
    of_found = torch.autograd.grad(found.sum(), (xxx, w))
    torch.testing.assert_close(of_found, torch.autograd.grad(expected.sum(), (xxx, w)))


def test_draws_within_a_map() -> None:
    """By a seed each row of the map is a batch like any other; else the batch's option holds.

    The map must not say otherwise.
    """

    def drawing(x: Tensor) -> Tensor:
        return (x * torch.rand(3)).sum() if x[0] > 0 else torch.nn.functional.dropout(x).sum()

    def slopes(xs: Tensor, **options: Any) -> Tensor:
        return torch.func.grad(lambda xs: autobatch.vmap(drawing, **options)(xs).sum())(xs)

    expected = torch.stack([slopes(xs, seed=3) for xs in XX])
    torch.testing.assert_close(torch.vmap(lambda xs: slopes(xs, seed=3))(XX), expected)
    for around in ("error", "different"):
        drawn = torch.vmap(lambda xs: slopes(xs, randomness="different"), randomness=around)(XX)
        assert drawn.shape == XX.shape and len(set(drawn[XX[..., 0] > 0].flatten().tolist())) > 3
    for own, around in (("different", "same"), ("same", "different")):
        with pytest.raises(DrawError, match="rand draws random numbers for a batch"):
            torch.vmap(lambda xs, own=own: slopes(xs, randomness=own), randomness=around)(XX)


def test_draws_directly_within_a_map() -> None:
    def drawing(x: Tensor) -> Tensor:
        return x * torch.rand(()) if x.sum() > 0 else x

    for own, around in (("different", "same"), ("same", "different")):
        with pytest.raises(DrawError, match=f'randomness="{around}"'):
            torch.vmap(
                lambda xs, own=own: autobatch.vmap(drawing, randomness=own)(xs), randomness=around
            )(XX)
        still = torch.vmap(
            lambda xs, own=own: autobatch.vmap(drawing, randomness=own)(xs), randomness=around
        )
        assert torch.equal(still(-XX.abs()), -XX.abs())
    for own in ("different", "same"):
        for around in ("error", own):
            drawn = torch.vmap(
                lambda xs, own=own: autobatch.vmap(drawing, randomness=own)(xs), randomness=around
            )
            factors = (drawn(XX.abs()) / XX.abs())[..., 0].flatten()
            assert len({round(f, 4) for f in factors.tolist()}) == (
                1 if own == "same" else factors.numel()
            )


def test_results_that_are_no_floats_within_a_map() -> None:
    def counted(x: Tensor) -> Any:
        n = 0
        while x.sum() < 5:
            x, n = x * x + 1, n + 1
        return x, n, x > 3

    def derived(xs: Tensor) -> Any:
        def total(xs: Tensor) -> Any:
            x, n, large = autobatch.vmap(counted)(xs)
            return x.sum(), (n, large)

        return torch.func.grad(total, has_aux=True)(xs)

    found = torch.vmap(derived)(XX)
    torch.testing.assert_close(found[1], autobatch.vmap(autobatch.vmap(counted))(XX)[1:])
    torch.testing.assert_close(found[0], torch.stack([derived(xs)[0] for xs in XX]))


def test_what_torch_maps_and_autobatch_does_not_get_to_see_is_refused() -> None:
    def within(xs: Tensor) -> Any:
        return autobatch.vmap(lambda w: branching(xs[0], w))(W.expand(2, 3))

    def beside(xs: Tensor) -> Any:
        return autobatch.vmap(lambda x: x * xs[0])(xs)

    def differentiated(xs: Tensor) -> Any:
        of_all = autobatch.vmap(lambda x: (x * xs[0]).sum())
        return autobatch.grad(lambda t: of_all(t).sum())(xs)

    def in_rounds(xs: Tensor) -> Any:
        return autobatch.map_fn(lambda x: branching(x, W), xs)

    def by_what_is_captured(xs: Tensor) -> Any:  # its gradient is one for each row of the map
        return torch.func.grad(lambda w: autobatch.vmap(lambda x: branching(x, w))(xs).sum())(W)

    def by_a_large_one(xs: Tensor) -> Any:
        kernel = torch.ones(3, 4096)
        return torch.func.grad(lambda k: autobatch.vmap(lambda x: (x @ k).sum())(xs).sum())(kernel)

    def by_one_that_is_returned(xs: Tensor) -> Any:
        return torch.func.grad(lambda w: autobatch.vmap(lambda x: w)(xs).sum())(W)

    def by_one_of_a_tangent(xs: Tensor) -> Any:
        def slope(w: Tensor) -> Tensor:
            of_x = lambda xs: autobatch.vmap(lambda x: (x * x).sum())(xs)  # noqa: E731
            return torch.func.jvp(of_x, (xs,), (w.expand(4, 3),))[1].sum()

        return torch.func.grad(slope)(W)

    torch.testing.assert_close(torch.vmap(by_one_of_a_tangent)(XX), 2 * XX.sum(1))
    all_refused = (within, beside, differentiated, in_rounds, by_what_is_captured)
    for refused in (*all_refused, by_a_large_one, by_one_that_is_returned):
        with pytest.raises(AutobatchError, match=r"tensor that torch\.vmap maps"):
            torch.vmap(refused)(XX)


def test_keywords_and_results_that_torch_cannot_map_are_told() -> None:
    inner = autobatch.vmap(lambda x, w=W: branching(x, w))
    with pytest.raises(AutobatchError, match="by position"):
        torch.vmap(lambda xs, w: inner(xs, w=w))(XX, W.expand(2, 3))
    words = autobatch.vmap(lambda x: "up" if x.sum() > 0 else "down")
    with pytest.raises(AutobatchError, match="return tensors"):
        torch.vmap(words)(XX)
