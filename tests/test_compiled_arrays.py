"""Small tensors in machine code: each thread's own, with torch's values, dtypes and aliases."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import note, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import autobatch
from programs import nuts, runge_kutta
from tests import array_programs
from tests.generator.record import load_module
from tests.of_its_own import of_its_own
from tests.oracle import CONFIGURATIONS, assert_matches_loop
from tests.test_compiled import runs, why_not
from tests.test_properties import LONG, QUICK
from tests.vector_programs import vector_program

pytest.importorskip("llvmlite")

COMPILED = {"executor": "compiled"}
SIZES = (1, 2, 7)


def given(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(7, *shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def function_of(expression: str, names: str = "a, b") -> Callable[..., Any]:
    """An expression behind a branch: programs without one go block by block."""
    lines = [f"def program({names}):", "    if a.sum() > 1e30:", f"        return {names}"]
    source = "\n".join(["import torch", *lines, f"    return {expression}", ""])
    found: Callable[..., Any] = load_module(source).program
    return found


def held(function: Callable[..., Any], *args: Any, **options: Any) -> None:
    """The loop's results, of one launch, in which no thread gives up."""
    found = runs(function, *args, **options)
    assert (found.block_executions, found.launches, found.given_up) == (1, 1, 0)


# fmt: off
OF_VECTORS = [
    "a + b", "a * 2", "2 - a", "a / 3", "a ** 2", "2 ** a", "-a", "abs(a)", "a % 2", "a // 0.3",
    "a @ b", "a.dot(b)", "torch.outer(a, b)", "a > b", "(a > 0) & ~(b > 0)", "(a > 0).any()",
    "(a > 0).all()", "(a > 0).sum()", "a.sum()", "a.mean()", "a.prod()", "a.std()", "a.var()",
    "a.min()", "a.max(dim=0).values", "a.argmax()", "a.amax(0)", "a.cumsum(0)", "a.norm()",
    "torch.logsumexp(a, 0)", "a.softmax(0)", "torch.log_softmax(a, 0)", "torch.where(a > 0, a, b)",
    "torch.where(a > 0, a, 0.0)", "a.clamp(0.2, 0.5)", "torch.maximum(a, b)", "torch.tanh(a)",
    "torch.sigmoid(a)", "a.relu()", "torch.nn.functional.gelu(a)", "torch.nn.functional.silu(a)",
    "torch.nn.functional.softplus(a)", "a.exp()", "a.abs().log()", "a.abs().sqrt()", "a.sign()",
    "a.round()", "torch.fmod(a, 2)", "torch.atan2(a, b)", "torch.erf(a)", "torch.lerp(a, b, 0.3)",
    "torch.copysign(a, b)", "a.copysign(-0.0)", "torch.copysign(a.int(), b)",
    "torch.stack((a, b))", "torch.cat([a, b])", "a[1:]", "a[None]", "a[::2]", "a[-1]", "a.flip(0)",
    "a.unsqueeze(0)", "a.repeat(2)", "a.expand(2, 3)", "a.reshape(3, 1)", "a.clone()", "a.int()",
    "a.to(torch.float32)", "a.bool()", "torch.zeros(3)", "torch.eye(3)", "torch.arange(3) + a",
    "torch.ones_like(a)", "a.new_zeros(3)", "torch.diag(a)", "torch.tensor([1.0, 2.0, 3.0]) * a",
    "torch.linspace(0, 1, 3) * a", "a.diff()", "torch.cosine_similarity(a, b, dim=0)",
    "torch.nn.functional.mse_loss(a, b)", "a.shape[0] + len(a) + a.numel() + a.size(0)",
    "torch.full_like(a, 0.5)", "torch.isfinite(a)", "a.var(correction=0)",
    "a.masked_fill(a > 0, 2.0)",
]
OF_MATRICES = [
    "a @ b", "a.T", "a.sum(0)", "a.mean(dim=1)", "a.sum(dim=1, keepdim=True)", "a.softmax(-1)",
    "a[0]", "a[:, 1]", "a[1:, 2:]", "a[..., 0]", "a[0, -1]", "a.amax(dim=(0, 1))", "a.argmax(1)",
    "a.transpose(0, 1) @ a", "torch.einsum('ij,jk->ik', a, b)", "a.flatten()", "a.max(1).values",
    "a.permute(1, 0).reshape(15)", "torch.linalg.norm(a)", "a.diagonal()", "a.cumsum(1)",
    "torch.nn.functional.linear(a, b.T)", "a.t().contiguous()", "a.unbind(0)", "a.split(2)",
    "a.chunk(2, dim=1)", "torch.vstack((a, a))", "torch.hstack((a, a))", "a.tril()", "a.mT * 2",
    "torch.trace(a)", "(a > 0).any(1)", "a.T.stride()", "a.T.is_contiguous()",
    "a[:, :2].reshape(6)",
]
OF_PLACES = [
    "a[i]", "a[-i - 1]", "a * i", "torch.where(a > i, a, i)", "a ** i", "a.clamp(max=0.5) + i",
    "i * a.sum()", "torch.zeros(3)[i]", "torch.full_like(a, i)", "torch.tensor([i, 2 * i]).sum()",
]
OF_INDICES = [
    "a[i]", "a[i, 1]", "a[:, j]", "a[i[:, None], j]", "a[i[:1], :, None]", "a[[0, -1]]",
    "a[-i - 1]", "a[1:][i.clamp(max=1)]", "a[..., j]", "a[i.int()]", "a[:, j].stride()",
    "a.take(i)",
    "a.gather(1, j[None])", "torch.gather(a, 0, i[:, None].expand(2, 3))", "a.index_select(1, j)",
    "torch.take_along_dim(a, j[None], 1)", "a.scatter(1, j[None], 2.0)", "a.index_fill(0, i, 2.0)",
    "a.scatter(1, j[None], a[:1] * 2)", "a.scatter_add(1, j[None], a[:1])", "a.index_add(1, j, a)",
    "a.index_put((i,), a[0])", "a.index_put((i, i), a[0, 0])", "a.index_copy(0, i, a[:2])",
    "torch.nn.functional.embedding(i, a)", "torch.nn.functional.cross_entropy(a, j)",
]
WRITES_AT = [
    "b[i] = 5.0", "b[:, j] = a", "b[i, i] = a[0, 0]", "b[i] += 1", "b[i, 1] *= 2", "b[i] = a[:2]",
    "b[-1, j] = a[1]", "b[-i - 1] = 7.0",
]
# fmt: on


@pytest.mark.sampled(32)
@pytest.mark.parametrize("expression", OF_VECTORS)
def test_operators_on_vectors(expression: str) -> None:
    dtype = torch.float32 if expression in ("2 ** a", "a.exp()") else torch.float64
    held(function_of(expression), given(3, dtype=dtype), given(3, dtype=dtype, seed=1))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("expression", OF_MATRICES)
def test_operators_on_matrices(expression: str) -> None:
    held(function_of(expression), given(3, 5), given(5, 2, seed=1))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("expression", OF_PLACES)
def test_places_that_differ(expression: str) -> None:
    places = torch.tensor([0, 1, 2, 1, 0, 2, 2])
    held(function_of(expression, "a, i"), given(3), places, scalars="python")


def test_a_place_beyond_the_ends_is_the_loops_error() -> None:
    found = runs(function_of("a[i]", "a, i"), given(3), torch.tensor([0, 1, 2, 1, 3, 2, 5]))
    assert found.given_up == 2


def written_at(statement: str) -> Callable[..., Any]:
    lines = ["def program(a, i, j):", "b = a.clone()", "while b.sum() > 1e30:", "    b += 1"]
    body = "\n    ".join([*lines, statement, "return b"])
    found: Callable[..., Any] = load_module(f"import torch\n{body}\n").program
    return found


def indices(bad: int = 2) -> tuple[Tensor, Tensor]:
    i = torch.tensor([[0, 1], [2, 2], [1, 0], [0, 0], [2, bad], [1, 1], [0, 2]])
    return i, torch.cat((i, i.flip(1)[:, :1]), 1)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("expression", OF_INDICES)
def test_tensors_of_places(expression: str) -> None:
    """Places from either end, and beyond the ends, of one thread."""
    function = function_of(expression, "a, i, j")
    held(function, given(3, 3), *indices())
    for bad in (-1, 3, -4):
        assert_matches_loop(function, (given(3, 3), *indices(bad)), configurations=(COMPILED,))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("statement", WRITES_AT)
def test_writes_at_tensors_of_places(statement: str) -> None:
    held(written_at(statement), given(3, 3), *indices())
    found = runs(written_at(statement), given(3, 3), *indices(3))
    assert found.given_up == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8, torch.bool])
def test_other_dtypes(dtype: torch.dtype) -> None:
    a, b = given(3).mul(3).to(dtype), given(3, seed=1).mul(3).to(dtype)
    for expression in ("a.sum()", "a == b", "a[0]", "torch.stack((a, b))", "a.double() + b"):
        held(function_of(expression), a, b)
    for expression in ("a.any()", "a.all()", "a[0].any()", "torch.stack((a, b)).all(0)"):
        held(function_of(expression), a, b)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", array_programs.COMPILED)
def test_programs_that_write(kind: str) -> None:
    x = given(6) if kind == "x" else given(3, 3)
    for function in array_programs.COMPILED[kind]:
        held(function, x)
        assert_matches_loop(function, (x.float(),), batch_sizes=SIZES, configurations=(COMPILED,))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("function", array_programs.SEEN)
def test_what_a_write_shows_elsewhere(function: Any) -> None:
    for options in (COMPILED, {"executor": "auto"}):
        assert_matches_loop(function, (given(6),), batch_sizes=SIZES, configurations=(options,))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("function", array_programs.FAILING)
def test_what_the_loop_refuses_or_gives_apart(function: Any) -> None:
    assert_matches_loop(function, (given(6),), batch_sizes=SIZES, configurations=(COMPILED,))


def test_rows_without_elements() -> None:
    for expression in ("a.max()", "a.sum()", "a * 2"):
        none = torch.ones(7, 0)
        assert_matches_loop(function_of(expression, "a"), (none,), configurations=(COMPILED,))


def test_a_zeros_sign_is_not_another_programs() -> None:
    held(function_of("a * 0.0"), given(3).abs(), given(3))
    minus = autobatch.vmap(function_of("a * -0.0"), **COMPILED)(given(3).abs(), given(3))
    assert bool(torch.signbit(minus).all())


def test_a_tensor_for_all_lies_as_it_lies() -> None:
    shared = torch.randn(3, 3, dtype=torch.float64).t()
    for expression in ("b.stride()[0]", "b.is_contiguous()", "b.reshape(9)", "b.view(9)", "b[1]"):
        function = function_of(expression)
        x = given(3)
        assert_matches_loop(function, (x, shared), in_dims=(0, None), configurations=(COMPILED,))


def test_a_callers_tensor_is_not_written_however_it_lies() -> None:
    wide = given(6, 2).mT[:, 0]
    before = wide.clone()
    runs(array_programs.bubble_sort, wide)
    runs(array_programs.bubble_sort, given(12)[:, ::2])
    assert torch.equal(wide, before)
    held(function_of("a.sum() + a[1]", "a"), given(12)[:, ::2])


def test_the_solver_and_the_sampler_are_one_launch() -> None:
    for module in (runge_kutta, nuts):
        made: Any = module.example(64)  # type: ignore[attr-defined]
        assert_matches_loop(
            made.function,
            made.args,
            batch_sizes=(*SIZES, 64),
            configurations=(COMPILED,),
            rtol=1e-3,
            atol=1e-3,
        )
        with autobatch.counts() as found:
            autobatch.vmap(made.function, **COMPILED)(*made.args)
        assert (found.block_executions, found.given_up) == (1, 0)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.arange(9.0, dtype=torch.float64).view(3, 3).T)
        self.scale = 2.0
        self.shift = nn.Parameter(torch.ones(3, dtype=torch.float64), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        while x.abs().sum() < 50.0:
            x = self.weight @ x * self.scale + self.moved()
        return x

    def moved(self) -> Tensor:
        return self.shift


def test_what_a_module_holds_is_read_as_it_is() -> None:
    module, x = Scaled(), given(3)
    held(module, x)
    module.scale = 3.0
    held(module, x)
    module.weight.mul_(2)
    held(module, x)
    module.weight = torch.eye(3, dtype=torch.float64) * 2
    held(module, x)
    module.moved = lambda: torch.zeros(3, dtype=torch.float64)  # type: ignore[method-assign]
    assert_matches_loop(module, (x,), configurations=(COMPILED,))
    del module.moved
    module.shift.requires_grad_()
    assert "without gradients" in why_not(module, x)
    with torch.no_grad():
        held(module, x)
    module.register_forward_hook(lambda module, args, result: result + 1)
    assert_matches_loop(module, (x,), configurations=(COMPILED,))


class Inner(nn.Module):
    def __init__(self, scaled: nn.Module) -> None:
        super().__init__()
        self.scaled = scaled

    def forward(self, x: Tensor) -> Tensor:
        return self.scaled(x) + 1


def test_a_module_within_a_module_and_its_hooks() -> None:
    module, x = Inner(Scaled()), given(3)
    held(module, x)
    module.scaled.register_forward_hook(lambda module, args, result: result * 2)
    assert_matches_loop(module, (x,), configurations=(COMPILED,))


def test_a_class_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    function = of_its_own(array_programs.counted)
    held(function, given(6))
    monkeypatch.setattr(array_programs.Counter, "add", lambda self, value: 0.0)
    assert_matches_loop(function, (given(6),), configurations=(COMPILED,))


SHARPNESS = 2.0


def well(x: Tensor) -> Tensor:
    return (SHARPNESS * x * x).sum() - torch.log1p((x * x).sum())


def descended(x: Tensor) -> Any:
    slope, value = torch.func.grad_and_value(well)(x)
    rounds = 0
    while slope @ slope > 1e-3 and rounds < 20:
        x = x - 0.1 * slope
        slope, value = torch.func.grad_and_value(well)(x)
        rounds += 1
    return x, value, torch.func.hessian(well)(x)


def test_derivatives_of_functions_whose_globals_change(monkeypatch: pytest.MonkeyPatch) -> None:
    held(descended, given(3))
    monkeypatch.setitem(globals(), "SHARPNESS", 1.0)
    held(descended, given(3))


FACTOR = torch.tensor(2.0, dtype=torch.float64)


def scaled(x: Tensor) -> Tensor:
    return (x * x).sum() * FACTOR.item()


def scaled_slope(x: Tensor) -> Tensor:
    return torch.func.grad(scaled)(x) if x[0] < 1e9 else x


def test_a_number_read_in_a_derivative_is_that_of_now() -> None:
    for factor in (2.0, 3.0):
        FACTOR.fill_(factor)
        assert_matches_loop(scaled_slope, (given(3),), configurations=(COMPILED,))


class Turning:
    step = 1.0

    def turned(self, x: Tensor) -> Tensor:
        return x + self.step


class Returning(Turning):
    def turned(self, x: Tensor) -> Tensor:
        return x - self.step


TURN = Turning()


def turned(x: Tensor) -> Tensor:
    return TURN.turned(x).relu() if x[0] < 1e9 else x


def test_objects_that_become_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def follows() -> None:
        assert_matches_loop(turned, (given(3),), configurations=(COMPILED,))

    held(turned, given(3))
    TURN.step = 2.0
    follows()
    TURN.__dict__ = {"step": 5.0}
    follows()
    TURN.__class__ = Returning
    follows()
    monkeypatch.setattr(torch.Tensor, "relu", lambda self: self * 100)
    follows()


def told(x: Tensor) -> Tensor:
    print("told")
    return (x * x).sum()


def steered(x: Tensor) -> Tensor:
    return (x * x).sum() if x.sum() > 0 else (x * x * x).sum()


@pytest.mark.parametrize("function", [told, steered])
def test_derivatives_of_what_does_more_than_compute_run_traced(function: Any) -> None:
    def sloped(x: Tensor) -> Tensor:
        return torch.func.grad(function)(x) * 2

    assert_matches_loop(sloped, (given(3),), configurations=(COMPILED,))


def test_draws_and_large_products_run_traced() -> None:
    wide = torch.randn(128, 128)

    def drawn(x: Tensor) -> Tensor:
        return x + torch.rand(3)

    def large(x: Tensor) -> Tensor:
        return torch.tanh(wide @ x)

    with autobatch.counts() as found:
        autobatch.vmap(drawn, randomness="different", **COMPILED)(given(3))
    assert found.compilations == 0
    assert "multiplications" in why_not(large, torch.randn(4, 128))


def of_several(x: Tensor) -> Any:
    """Of other strides, of other shapes, or none."""
    m = torch.outer(x, x + 1)
    if x.sum() > 1:
        return m.t(), x
    if x.sum() > 0:
        return m, x + 1
    return m[:], x * 2


def of_other_shapes(x: Tensor) -> Any:
    return x if x.sum() > 0 else x[1:]


def of_beyond_the_ends(x: Tensor) -> Any:
    return x + x[int(x[0] * 2)]


def test_results_of_several_types() -> None:
    held(of_several, given(3))
    for function in (of_other_shapes, of_beyond_the_ends):
        assert_matches_loop(
            function, (given(3).clamp(max=1.4),), batch_sizes=SIZES, configurations=(COMPILED,)
        )
    inside = torch.tensor([[0.0, 1.0, 2.0], [0.5, 4.0, 5.0], [-1.0, 2.0, 3.0], [1.2, 0.0, 2.0]])
    assert runs(of_beyond_the_ends, inside).given_up == 0


def test_another_default_device_is_no_machine_codes() -> None:
    def made(x: Tensor) -> Tensor:
        return torch.zeros(3, dtype=torch.float64) + x

    batched, x = autobatch.vmap(made, **COMPILED), given(3)
    assert torch.equal(batched(x), x)
    with torch.device("meta"), pytest.raises(RuntimeError, match="meta"):
        batched(x)


def test_many_threads_go_block_by_block_where_that_is_faster() -> None:
    weight = torch.randn(64, 64)

    def settled(x: Tensor) -> Tensor:
        return torch.tanh(weight @ x) if x[0] < 1e9 else x

    few, many = torch.randn(4, 64), torch.randn(4096, 64)
    batched = autobatch.vmap(settled, **COMPILED)
    for x, launches in ((few, 1), (many, None), (few, 1)):
        with autobatch.counts() as found:
            torch.testing.assert_close(batched(x), torch.tanh(x @ weight.T), atol=1e-5, rtol=1e-4)
        assert launches is None or (found.launches, found.iterations) == (launches, 0)


def test_programs_without_a_branch_are_not_made_machine_code_of() -> None:
    with autobatch.counts() as found:
        autobatch.vmap(lambda x: (x * 2).sum() + x, **COMPILED)(given(3))
    assert (found.compilations, found.iterations) == (0, 0)


def test_deep_recursion_with_large_frames_goes_the_general_way() -> None:
    def deep(x: Tensor, n: int) -> Tensor:
        if n == 0:
            return x
        return deep(x + 1, n - 1) + x.sum()

    found = runs(deep, given(500), torch.tensor([1, 2, 3, 700, 1, 2, 3]), scalars="python")
    assert found.given_up == 1


def test_what_cannot_be_traced_is_told_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    def misfit(x: Tensor) -> Tensor:
        return x + torch.ones(2) if x.sum() > 1e9 else x * 2

    assert_matches_loop(misfit, (given(3),), configurations=(COMPILED,))
    assert capfd.readouterr().err == ""


def hold_vectors(random: Random, options: dict[str, Any]) -> None:
    """A generated program of tensors that view and write each other; it may fail, as the loop."""
    source = vector_program(random)
    note(source)
    x, m = given(3, seed=random.randint(0, 99)), given(3, 3, seed=random.randint(0, 99))
    assert_matches_loop(
        load_module(source).program, (x, m), configurations=(options,), rtol=1e-6, atol=1e-6
    )


@settings(QUICK, max_examples=15)
@hypothesis.given(random=st.randoms(use_true_random=False))
def test_generated_programs_that_view_and_write(random: Random) -> None:
    hold_vectors(random, COMPILED)


@pytest.mark.slow
@settings(LONG, max_examples=1000)
@hypothesis.given(random=st.randoms(use_true_random=False))
def test_many_generated_programs_that_view_and_write(random: Random) -> None:
    hold_vectors(random, COMPILED)


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(CONFIGURATIONS)))
@settings(LONG, max_examples=300)
@hypothesis.given(random=st.randoms(use_true_random=False))
def test_other_ways_view_and_write_alike(random: Random, place: int) -> None:
    hold_vectors(random, dict(CONFIGURATIONS[place]))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
@pytest.mark.parametrize(
    "function",
    [
        lambda a, n: torch.full_like(a, 0.5),
        lambda a, n: torch.full_like(a, 1.7) + a,
        lambda a, n: a.new_full((2,), 2.9),
        lambda a, n: torch.full_like(a, n * 0.5),
    ],
)
def test_ints_are_filled_with_a_float_without_its_fraction(
    function: Callable[..., Tensor], dtype: torch.dtype
) -> None:
    rows, ns = torch.tensor([[1, 0, 3], [4, 2, 0]]).to(dtype), torch.tensor([1, 3])
    want = torch.stack([function(row, int(n)) for row, n in zip(rows, ns, strict=True)])
    batch = autobatch.vmap(function, scalars="python", executor="compiled", plain="never")
    found = batch(rows, ns)
    assert found.dtype is want.dtype
    assert torch.equal(found, want)


@pytest.mark.parametrize("expression", ["torch.where(b > 1, a, a)", "torch.abs(b) + a"])
def test_a_number_where_torch_takes_tensors_alone_is_its_error(expression: str) -> None:
    args = given(3)[:2], torch.tensor([1, 2])
    configurations = ({"executor": "compiled"},)
    assert_matches_loop(
        function_of(expression), args, scalars="python", configurations=configurations
    )


@pytest.mark.parametrize(
    "expression", ["a.cumsum(0)", "a.cumprod(0)", "(a[:2] + b[:2]).var()", "(a * 1e22).std(0)"]
)
def test_running_sums_of_float32_are_kept_in_float64_as_torchs(expression: str) -> None:
    a = torch.tensor([[1e8, 1.0, -1e8, 3.0], [1e15, 1e15, 1e15, 1e-30]])
    held(function_of(expression), a, torch.ones(2, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
def test_tensors_of_numbers_in_a_dtype_that_is_named(dtype: torch.dtype) -> None:
    def made(n: int, a: Tensor) -> tuple[Tensor, ...]:
        if n > 10**18:
            return torch.tensor(n, dtype=dtype), torch.tensor([n, n], dtype=dtype), a
        few = torch.tensor([n, True], dtype=dtype)
        return torch.tensor(n, dtype=dtype), few, few + torch.tensor(2, dtype=a.dtype)

    rows = torch.tensor([3, -7, 2**24 + 1, 2**25 + 3, 5, 6, 0])
    held(made, rows, given(2), scalars="python")
    if dtype.is_floating_point:  # torch makes a double of an int first: 2 ** 60 + 2 ** 36 + 1
        held(made, torch.full((7,), 2**60 + 2**36 + 1), given(2), scalars="python")


def test_tensors_of_floats_in_a_dtype_that_is_named() -> None:
    def made(x: float, a: Tensor) -> tuple[Tensor, ...]:
        if a.sum() > 1e30:
            return torch.tensor(x, dtype=None), torch.tensor([x, a[0]], dtype=torch.float32)
        return torch.tensor(x, dtype=a.dtype), torch.tensor((x, a[1], 2), dtype=torch.float32)

    held(made, given(), given(3), scalars="python")


def test_what_torch_makes_of_other_numbers_is_its_own() -> None:
    def truth(n: int, a: Tensor) -> Tensor:
        return torch.tensor(n, dtype=torch.bool) if n > 2 else torch.tensor(n > 0)

    assert "as bools" in why_not(truth, torch.arange(7), given(2), scalars="python")

    def small(n: int, a: Tensor) -> Tensor:  # int8 has no 300, where the loop raises
        return (
            torch.tensor(n, dtype=torch.int8) if a.sum() < 1e30 else torch.tensor(1).to(torch.int8)
        )

    held(small, torch.arange(-3, 4), given(2), scalars="python")
    with pytest.raises(RuntimeError):
        autobatch.vmap(small, scalars="python", **COMPILED)(torch.tensor([3, 300]), given(2)[:2])


def test_a_trial_with_a_singular_matrix_says_nothing_of_the_program() -> None:
    def inverted(a: Tensor) -> Tensor:
        return torch.linalg.inv(a) if a.sum() > 0 else a

    why = why_not(inverted, given(3, 3))
    assert "inv_ex.default has no compiled form" in why
