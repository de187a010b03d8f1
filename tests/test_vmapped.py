"""``vmapped.apply`` against the loop over examples: values, dtypes, errors, views, tracing."""

from __future__ import annotations

import operator
import threading
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from autobatch import compat
from autobatch.batching.applying.predicates import predicate
from autobatch.batching.applying.vmapped import (
    Batched,
    DrawError,
    ExampleError,
    Layout,
    NoRule,
    apply,
    apply_inplace,
    is_view_result,
    level,
)
from tests.batched_loop import check, loop
from tests.custom_gradient import Doubled

K = 4


def column(*event: int, dtype: torch.dtype = torch.float32) -> Batched:
    return Batched((torch.randn(K, *event) * 3).to(dtype))


def same_as_loop(fn: Any, *args: Any, **kwargs: Any) -> Any:
    got = apply(fn, args, kwargs, K)
    check(got, fn, args, kwargs, K)
    return got


def test_the_probe_accepts_this_torch() -> None:
    compat.probe()


def test_results_on_which_no_thread_had_an_influence_stay_uniform() -> None:
    x = column(3)
    assert type(apply(lambda t: torch.ones(t.shape), (x,), None, K)) is Tensor
    assert type(apply(torch.add, (torch.ones(2), 1), None, K)) is Tensor
    assert apply(lambda t: (t.shape, t.dim()), (x,), None, K) == (torch.Size([3]), 1)


def test_results_keep_their_structure() -> None:
    x = column(3)
    got = same_as_loop(torch.max, x, 0)
    assert type(got).__name__ == "max"
    assert set(same_as_loop(lambda t: {"a": [t, 1], "b": (t + 1,)}, x)) == {"a", "b"}
    same_as_loop(torch.cat, [x, column(2), torch.ones(1)])
    same_as_loop(torch.Tensor.split, x, [1, 2])


MIXED = [torch.float16, torch.float32, torch.float64, torch.int32, torch.int64, torch.bool]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fn", [torch.add, torch.mul, torch.where, torch.lt, torch.maximum])
@pytest.mark.parametrize("left", MIXED)
@pytest.mark.parametrize("right", MIXED)
def test_promotion_is_one_examples(fn: Any, left: torch.dtype, right: torch.dtype) -> None:
    condition = (Batched(torch.rand(K, 3) > 0.5),) if fn is torch.where else ()
    for first, second in (((3,), ()), ((), (3,)), ((), ())):
        args = (*condition, column(*first, dtype=left), column(*second, dtype=right))
        same_as_loop(fn, *args)
        same_as_loop(fn, *args[:-1], args[-1].data[0])


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (torch.clamp, ((3,), (), ())),
        (torch.addcmul, ((), (3,), ())),
        (torch.addcdiv, ((3,), (), ())),
        (torch.clamp, ((), (), (3,))),
    ],
)
def test_promotion_of_three_operands(fn: Any, shapes: Any) -> None:
    dtypes = (torch.float32, torch.float64, torch.float16)
    args = [column(*shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    same_as_loop(fn, *args)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("other", [torch.int64, torch.float64])
def test_a_number_beside_half_precision_is_not_rounded_first(half: Any, other: Any) -> None:
    numbers = torch.tensor([70_000, -70_001, 2_049, 2**40 + 1])
    for shape in ((), (1,), (3,)):
        x = Batched(torch.tensor([0.01, 3.0, 300.0, -0.5]).to(half).view(4, *map(bool, shape)))
        x = Batched(x.data.expand(4, *shape))
        for y in (Batched(numbers.to(other)), Batched(numbers.to(other)[:, None]), numbers[3]):
            for fn in (torch.mul, torch.div, operator.mul, Tensor.true_divide, Tensor.mul):
                exactly_the_loop(fn, x, y)
                exactly_the_loop(fn, y, x)
            exactly_the_loop(torch.div, x, y, rounding_mode="floor")
            exactly_the_loop(torch.float_power, x, y)


INTEGERS = (torch.uint8, torch.int8, torch.int32, torch.int64)


@pytest.mark.parametrize("rows", INTEGERS)
@pytest.mark.parametrize("other", INTEGERS)
def test_integers_of_two_dtypes_become_floats_at_once(rows: Any, other: Any) -> None:
    """``x / x.sum()`` of bytes divides by the sum, which is an int64 and larger than they are."""
    x = Batched(torch.tensor([[200, 3, 0], [0, 7, 255], [1, 2, 3], [100, 100, 99]]).to(rows))
    few = torch.tensor([200, -3, 2**31 - 1, 2**31 + 70_000]).to(other)
    special = (torch.special.xlog1py, torch.special.zeta, torch.special.xlogy)
    for fn in (
        torch.div,
        operator.truediv,
        Tensor.true_divide,
        torch.atan2,
        torch.copysign,
        *special,
    ):
        for y in (Batched(few), few[3], Batched(few[:, None])):
            exactly_the_loop(fn, x, y)
            exactly_the_loop(fn, y, x)
    exactly_the_loop(torch.div, x, Batched(few | 1), rounding_mode="floor")
    exactly_the_loop(torch.ldexp, x, Batched(torch.tensor([-100, 3, 0, 30]).to(other)))


def exactly_the_loop(fn: Any, *args: Any, **kwargs: Any) -> None:
    rows = [[a.data[i] if type(a) is Batched else a for a in args] for i in range(4)]
    wanted = torch.stack([fn(*row, **kwargs) for row in rows])
    got = apply(fn, args, kwargs, 4).data
    torch.testing.assert_close(got, wanted, rtol=1e-15, atol=0, equal_nan=True)


def test_a_comparison_is_made_in_one_examples_dtype() -> None:
    x = Batched(torch.full((K, 1), 0.1))
    y = Batched(torch.full((K,), 0.1, dtype=torch.float64))
    assert not same_as_loop(torch.lt, x, y).data.any()
    assert not same_as_loop(operator.gt, x, y).data.any()


def test_the_users_error_is_told_from_a_missing_rule() -> None:
    with pytest.raises(ExampleError) as caught:
        apply(torch.add, (column(3), torch.ones(2)), None, K)
    assert "size of tensor a (3)" in str(caught.value.original)
    with pytest.raises(ExampleError):
        apply(operator.sub, (column(3), Batched(torch.ones(K) > 0)), None, K)
    with pytest.raises(ExampleError):
        apply(torch.mm, (column(2, 2), torch.ones(2, 2, dtype=torch.float64)), None, K)
    for fn in (torch.nonzero, Tensor.item, Tensor.tolist, torch.unique):
        with pytest.raises(NoRule):
            apply(fn, (Batched(torch.arange(float(K))),), None, K)


def test_an_error_that_only_some_rows_make_is_left_to_the_loop() -> None:
    index = Batched(torch.tensor([0, 1, 9, 1]))
    with pytest.raises(NoRule):
        apply(torch.nn.functional.embedding, (index, torch.rand(2, 3)), None, K)


def test_a_view_of_rows_that_lie_apart_asks_for_another_layout() -> None:
    x = torch.rand(3, K, 2).movedim(1, 0)
    with pytest.raises(Layout):
        apply(Tensor.view, (Batched(x), -1), None, K)
    check(
        apply(Tensor.view, (Batched(x.contiguous()), -1), None, K),
        Tensor.view,
        (Batched(x.contiguous()), -1),
        None,
        K,
    )


def test_draws_follow_the_randomness_option() -> None:
    with pytest.raises(DrawError, match="rand"):
        apply(torch.rand, (3,), None, K)
    each = apply(torch.rand, (3,), None, K, randomness="different")
    assert each.data.shape == (K, 3)
    assert len(each.data.unique(dim=0)) == K
    assert apply(torch.rand, (3,), None, K, randomness="same").shape == (3,)
    with pytest.raises(DrawError):
        apply(torch.nn.Dropout(), (column(3),), None, K)


@pytest.mark.parametrize("name", ["add_", "mul_", "clamp_", "fill_", "zero_", "copy_", "tanh_"])
def test_in_place_gives_a_new_value_and_keeps_the_old(name: str) -> None:
    fn = getattr(Tensor, name)
    operands = {"add_": (column(3),), "mul_": (column(),), "clamp_": (0, 1), "fill_": (2.0,)}
    operands["copy_"] = (torch.rand(3),)
    x = column(3)
    before = x.data.clone()
    new, returned = apply_inplace(fn, (x, *operands.get(name, ())), None, K)
    assert torch.equal(x.data, before)
    check(new, fn, (x, *operands.get(name, ())), None, K)
    assert torch.equal(returned.data, new.data)


def test_in_place_keeps_the_targets_dtype_and_shape() -> None:
    integers = Batched(torch.zeros(K, 2, dtype=torch.int64))
    with pytest.raises(ExampleError, match="can't be cast"):
        apply_inplace(Tensor.add_, (integers, 0.5), None, K)
    with pytest.raises((ExampleError, NoRule)):
        apply_inplace(Tensor.add_, (column(3), torch.ones(2, 3)), None, K)
    new, _ = apply_inplace(Tensor.add_, (column(3), column(dtype=torch.float64)), None, K)
    assert new.data.dtype == torch.float32


def test_a_uniform_target_gets_a_row_for_each_thread() -> None:
    x, y = torch.zeros(3), column(3)
    new, _ = apply_inplace(operator.iadd, (x, y), None, K)
    assert torch.equal(new.data, y.data)
    assert not x.any()


def test_views_are_told_from_new_tensors() -> None:
    x = column(2, 3)
    assert is_view_result(apply(Tensor.t, (x,), None, K), (x,))
    assert is_view_result(apply(operator.getitem, (x, 0), None, K), (x,))
    assert not is_view_result(apply(torch.add, (x, 1), None, K), (x,))
    assert not is_view_result(apply(operator.getitem, (x, torch.tensor([0])), None, K), (x,))


def test_several_operations_under_one_level() -> None:
    x, y = column(3), column(3)
    with level(K) as threads:
        out = threads.unwrap(torch.tanh(threads.wrap(x) + 1) * threads.wrap(y).sum())
    assert torch.allclose(out.data, torch.tanh(x.data + 1) * y.data.sum(1, keepdim=True))


def composed(x: Tensor, i: Tensor, w: Tensor) -> Tensor:
    """What vmap refuses or gets wrong, inside one Python function."""
    y = torch.zeros_like(x)
    y[i] = x[i] * 2
    weak = torch.where(x[0] > 0, x, i.double())
    return y + weak + torch.isclose(x, x).float() + w[i]


def test_python_code_is_run_with_its_parts_converted() -> None:
    i = Batched(torch.tensor([0, 2, 1, -1]))
    same_as_loop(composed, column(3), i, torch.rand(3))


def test_custom_functions_and_hooks_run_under_vmap() -> None:
    x = column(3).data.requires_grad_()
    apply(Doubled.apply, (Batched(x),), None, K).data.sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 10))
    layer = torch.nn.Linear(3, 2)
    layer.register_forward_hook(lambda module, args, out: out + 1)
    same_as_loop(layer, column(3))


def test_predicates_answer_with_a_bool_for_each_thread() -> None:
    x = column(3)
    y = Batched(x.data.clone())
    y.data[1] += 1
    for fn in (torch.equal, torch.allclose):
        assert predicate(fn, (x, y), {}, K).tolist() == loop(fn, (x, y), {}, K)
        assert predicate(fn, (x, x.data[1]), {}, K).tolist() == loop(fn, (x, x.data[1]), {}, K)
    assert predicate(torch.add, (x, y), {}, K) is None


@pytest.mark.parametrize("k", [0, 1])
def test_no_thread_and_one_thread(k: int) -> None:
    x, i = Batched(torch.rand(k, 3)), Batched(torch.zeros(k, dtype=torch.int64))
    for fn, args in (
        (torch.add, (x, 1)),
        (torch.softmax, (x, 0)),
        (operator.matmul, (torch.rand(2, 3), x)),
        (operator.getitem, (x, i)),
        (torch.nn.LSTMCell(3, 2), (x,)),
        (torch.where, (Batched(x.data > 0), x, i)),
    ):
        got = apply(fn, args, None, k)
        check(got, fn, args, None, k)


def test_everything_can_be_recorded() -> None:
    def stretch(x: Tensor, i: Tensor, w: Tensor) -> Tensor:
        k = x.shape[0]
        y = apply(torch.where, (Batched(x > 0), Batched(x), Batched(i)), None, k)
        z = apply(operator.getitem, (y, Batched(i)), None, k)
        new, _ = apply_inplace(operator.setitem, (y, Batched(i), z), None, k)
        return apply(operator.matmul, (w, new), None, k).data

    args = (torch.rand(K, 3), torch.tensor([0, 1, 2, 1]), torch.rand(2, 3))
    graph = make_fx(stretch, tracing_mode="fake")(*args)
    again = (torch.rand(K, 3), torch.tensor([2, 1, 0, 0]), torch.rand(2, 3))
    assert torch.allclose(graph(*again), stretch(*again))


def test_inside_of_other_transforms() -> None:
    x = column(3).data

    def total(data: Tensor) -> Tensor:
        y = apply(
            torch.where, (Batched(data > 0), Batched(data), Batched(data[:, 0].double())), None, K
        )
        return apply(torch.norm, (y,), None, K).data.sum()

    gradient = torch.func.grad(total)(x)
    leaf = x.clone().requires_grad_()
    total(leaf).backward()
    assert torch.allclose(gradient, leaf.grad)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert (
            apply(torch.mm, (column(2, 2), torch.rand(2, 2)), None, K).data.dtype == torch.bfloat16
        )


def test_expected_dtypes_follow_autocast() -> None:
    args = (column(2, 2, dtype=torch.bfloat16), column(2, 2))
    with pytest.raises(ExampleError):
        apply(torch.mm, args, None, K)
    with torch.autocast("cpu", torch.bfloat16):
        same_as_loop(torch.mm, *args)


def test_vmaps_own_loop_is_off_only_while_it_runs() -> None:
    enabled = torch._C._functorch._is_vmap_fallback_enabled
    assert enabled()

    def work() -> None:
        for _ in range(200):
            with pytest.raises(NoRule):
                apply(torch.histc, (column(3),), None, K)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert enabled()
