"""What goes wrong in a transform says what it says for one example; and what is left behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from tests.test_transforms import W, X, engines, generated, loop, looping, same


def vector(w: Tensor) -> Tensor:
    return w * 2 if w.sum() > 0 else -w


def number(w: Tensor) -> float:
    return 2.0 if w.sum() > 0 else 1.0


def truth(w: Tensor) -> Tensor:
    return w.sum() > 0


def mixed(w: Tensor) -> Any:
    return w.sum(), truth(w)


def no_pair(w: Tensor) -> Tensor:
    return w.sum() if w[0] > 0 else w.prod()


def pair_with_number(w: Tensor) -> Any:
    return no_pair(w), 3


def total(w: Tensor) -> Tensor:
    return w.sum() if w[0] > 0 else w.prod()


WRONG: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "grad of a vector": lambda m: m.grad(vector),
    "grad of a number": lambda m: m.grad(number),
    "grad of a pair": lambda m: m.grad(mixed),
    "aux that is none": lambda m: m.grad(no_pair, has_aux=True),
    "aux that is no tensor": lambda m: m.grad(pair_with_number, has_aux=True),
    "argnums out of range": lambda m: m.grad(total, argnums=1),
    "argnums that equal an int": lambda m: lambda w: m.grad(total, argnums=0.0)(w),
    "argnums twice": lambda m: m.grad(lambda w, x: w.sum(), argnums=(0, 0)),
    "jacobian of a truth": lambda m: m.jacrev(truth),
    "jacobian of both": lambda m: m.jacrev(mixed),
    "of an int": lambda m: lambda w: m.grad(total)(w.long()),
    "forward, of an int": lambda m: lambda w: m.jacfwd(total)(w.long()),
    "of a list": lambda m: lambda w: m.grad(lambda parts: total(parts[0]))([w, 1.0]),
    "of complex": lambda m: lambda w: m.grad(lambda z: (z * z).sum())(w * 1j),
    "the jacobian of complex": lambda m: lambda w: m.jacrev(lambda z: z.real * 2)(w * 1j),
    "forward, of complex": lambda m: lambda w: m.jacfwd(lambda z: z.real * 2)(w * 1j),
    "the hessian of complex": lambda m: lambda w: m.hessian(lambda z: (z.abs() ** 2).sum())(w * 1j),
    "a complex jacobian": lambda m: m.jacrev(lambda v: v * 1j),
    "a complex jacobian, forward": lambda m: m.jacfwd(lambda v: v * 1j),
    "complex beside": lambda m: lambda w: m.jacrev(lambda v, z: v * z.real)(w, w * 1j),
    "a cotangent of another shape": lambda m: lambda w: m.vjp(vector, w)[1](w[:2]),
    "a cotangent of another structure": lambda m: lambda w: m.vjp(vector, w)[1]((w, w)),
    "a tangent of another shape": lambda m: lambda w: m.jvp(vector, (w,), (w[:2],)),
    "primals that are no tuple": lambda m: lambda w: m.jvp(vector, w, w),
    "primals that are a list": lambda m: lambda w: m.jvp(vector, [w], [w]),
    "strict": lambda m: lambda w: m.jvp(lambda v: torch.ones(2), (w,), (w,), strict=True),
    "no arguments": lambda m: lambda w: m.vjp(vector),
    "an option of another name": lambda m: lambda w: m.grad(total, argnum=0)(w),
    "an error of its own": lambda m: m.grad(lambda w: w @ w[:2]),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", WRONG)
def test_the_error_is_the_examples(name: str) -> None:
    wrong = WRONG[name]
    with pytest.raises(Exception) as alone:
        wrong(torch.func)(W[0])

    def inside(w: Tensor) -> Any:
        right = torch.func.grad(total, argnums=0)(w) * 0  # equal options are of one type
        return wrong(torch.func)(w), right

    with pytest.raises(type(alone.value)) as got:
        autobatch.vmap(inside)(W)
    assert str(got.value).splitlines()[0] == str(alone.value).splitlines()[0]


PLACED = {
    "grad": lambda x: autobatch.grad(kinked)(x),
    "jacrev": lambda x: autobatch.jacrev(kinked)(x),
    "vjp": lambda x: autobatch.vjp(kinked, x)[0],
    "jvp": lambda x: autobatch.jvp(kinked, (x,), (x,))[0],
    "function": lambda x: autobatch.function(kinked)(x),
}


def kinked(x: torch.Tensor) -> torch.Tensor:
    return x * x if x > 0 else -x


@pytest.mark.parametrize("name", PLACED)
def test_within_torchs_vmap_it_says_what_to_put_in_its_place(name: str) -> None:
    with pytest.raises(RuntimeError, match="It looks like you're") as caught:
        torch.vmap(PLACED[name])(torch.tensor([1.0, -2.0]))
    (note,) = caught.value.__notes__
    assert note.startswith("Hint: put autobatch.vmap in the place of the torch.vmap")


@pytest.mark.parametrize("module", [torch.func, autobatch], ids=["torch.func", "autobatch"])
def test_an_output_that_has_no_derivative(module: Any) -> None:
    def zeros(w: Tensor) -> Any:
        return module.grad(truth)(w), module.grad(lambda v: torch.ones(()))(w)

    same(autobatch.vmap(zeros)(W), loop(zeros, W))


def lowest_first(w: Tensor) -> Tensor:
    if w[0] < 0:
        raise ValueError(f"below: {w[0].item():.4f}")
    return (w**2).sum()


@engines
@pytest.mark.parametrize("name", ["grad", "jacrev", "jacfwd", "hessian"])
def test_the_lowest_threads_exception(name: str, way: dict[str, Any]) -> None:
    transform = getattr(autobatch, name)
    with pytest.raises(ValueError, match="below") as alone:
        for w in W:
            lowest_first(w)
    with pytest.raises(ValueError, match="below") as got:
        autobatch.vmap(transform(lowest_first), **way)(W)
    assert str(got.value) == str(alone.value)


@pytest.mark.parametrize("name", ["grad", "jacrev", "jacfwd", "hessian"])
def test_threads_that_fail_leave(name: str) -> None:
    transform, alone = getattr(autobatch, name), getattr(torch.func, name)

    def inside(w: Tensor) -> Tensor:
        return transform(lowest_first)(w) * 2  # type: ignore[no-any-return]

    for result, w in zip(autobatch.vmap(inside, on_error="isolate")(W), W, strict=True):
        if w[0] < 0:
            assert str(result.exception) == f"below: {w[0].item():.4f}"
        else:
            same(result.value, alone(lowest_first)(w) * 2)


def test_threads_below_go_on_with_their_derivatives() -> None:
    """A thread that fails later, but is lower, is the one that counts."""
    first = W.abs()
    first[2, 0] = -1.0

    def inside(w: Tensor) -> Tensor:
        slope: Tensor = autobatch.grad(lowest_first)(w)
        if slope[1] > 2 * first[1, 1] - 1e-9 and slope[1] < 2 * first[1, 1] + 1e-9:
            raise KeyError(f"slope {slope[1].item():.4f}")
        return slope

    with pytest.raises(KeyError, match="slope"):
        autobatch.vmap(inside)(first)


@engines
def test_effects_happen_once_for_each_thread(way: dict[str, Any]) -> None:
    seen: list[float] = []

    @autobatch.per_thread
    def note(x: Tensor) -> None:
        seen.append(round(float(x), 6))

    def loss(w: Tensor) -> Tensor:
        note(w.detach()[0])
        return (w**2).sum() if w[0] > 0 else w.sum()

    autobatch.vmap(autobatch.grad(loss), **way)(W)
    assert sorted(seen) == sorted(round(float(w[0]), 6) for w in W)


@engines
def test_what_a_run_leaves_behind_is_a_plain_tensor(way: dict[str, Any]) -> None:
    """A closure's list and variable, written while a transform is at work."""

    def outer(w: Tensor, x: Tensor) -> Any:
        kept = []
        last = x

        def loss(v: Tensor) -> Tensor:
            nonlocal_total = looping(v, x)
            kept.append(last * 2)
            return nonlocal_total.sum()

        first = autobatch.grad(loss)(w)
        if w[0] > 0:
            first = first + kept[0]
        return first, kept[-1] * last, len(kept)

    expected = loop(lambda w, x: (*outer(w, x)[:2], torch.tensor(outer(w, x)[2])), W, X)
    got = autobatch.vmap(outer, **way)(W, X)
    same(got, expected)
    for part in got:
        assert not torch._C._functorch.is_functorch_wrapped_tensor(part)  # type: ignore[attr-defined]
        assert not part.requires_grad


def test_gradients_reach_through_a_transform() -> None:
    """``backward`` through a batched gradient; without anything to differentiate, no graph."""
    w = W.clone().requires_grad_()

    def loss(v: Tensor, x: Tensor) -> Tensor:
        return (looping(v, x) ** 2).sum()

    mapped = autobatch.vmap(autobatch.grad(loss))
    mapped(w, X).pow(2).sum().backward()
    alone = W.clone().requires_grad_()
    expected = torch.stack([torch.func.grad(loss)(v, x) for v, x in zip(alone, X, strict=True)])
    expected.pow(2).sum().backward()
    same(w.grad, alone.grad)
    assert not mapped(W, X).requires_grad
    with torch.no_grad():
        assert not mapped(w, X).requires_grad
        same(mapped(w, X), expected.detach())


@engines
def test_derivatives_of_unlike_outputs(way: dict[str, Any]) -> None:
    """Threads whose outputs have shapes of their own: objects, as any such results."""

    def ragged(w: Tensor) -> Tensor:
        return w[:2] * 3 if w[0] > 0 else w * w[1]

    def size(w: Tensor) -> Tensor:
        jacobian: Tensor = autobatch.jacrev(ragged)(w)
        return jacobian.sum()

    same(autobatch.vmap(size, **way)(W), loop(size, W))


@engines
def test_a_guarded_singularity_has_a_finite_gradient(way: dict[str, Any]) -> None:
    def guarded(x: Tensor, y: Tensor) -> Tensor:
        if x <= 0:
            return y * 2
        if y != 0:
            return x.sqrt() + x.log() / y
        return x.sqrt() * y

    x = torch.tensor([0.0, -1.0, 4.0, 1e-3, 2.0], dtype=torch.float64)
    y = torch.tensor([1.0, 0.0, 2.0, 0.5, 0.0], dtype=torch.float64)
    for name in ("jacrev", "jacfwd", "grad"):
        both = getattr(autobatch, name)(guarded, argnums=(0, 1))
        got = autobatch.vmap(both, **way)(x, y)
        assert all(bool(part.isfinite().all()) for part in got)
        same(got, loop(getattr(torch.func, name)(guarded, argnums=(0, 1)), x, y))


def test_an_empty_batch() -> None:
    straight = autobatch.vmap(autobatch.grad(lambda w: (w**2).sum()))
    assert straight(generated(0, 3)).shape == (0, 3)
    jacobian = autobatch.vmap(autobatch.jacfwd(lambda w: w[:2] * 3))
    assert jacobian(generated(0, 3)).shape == (0, 2, 3)


def test_a_decorated_function_and_a_method() -> None:
    @autobatch.function
    def decorated(w: Tensor) -> Tensor:
        return total(w)

    class Model:
        scale = 3.0

        def loss(self, w: Tensor) -> Tensor:
            return total(w) * self.scale

    same(autobatch.vmap(autobatch.grad(decorated))(W), loop(torch.func.grad(total), W))
    same(autobatch.vmap(torch.func.grad(decorated))(W), loop(torch.func.grad(total), W))
    same(autobatch.grad(decorated)(W[0]), torch.func.grad(total)(W[0]))
    same(autobatch.vmap(autobatch.vmap(decorated))(W[None]), loop(total, W)[None])
    same(autobatch.vmap(autobatch.grad(Model().loss))(W), loop(torch.func.grad(total), W) * 3.0)


def test_no_function() -> None:
    for name in ("grad", "value_and_grad", "jacrev", "jacfwd", "hessian"):
        with pytest.raises(TypeError, match=f"autobatch.{name} takes a function"):
            getattr(autobatch, name)(3)
