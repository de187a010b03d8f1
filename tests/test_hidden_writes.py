"""Calls that write to what they are given by an option, or through a function handed on."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.library import custom_op
from torch.nn import functional as F

import autobatch
from autobatch.batching.updates import is_updating

WEIGHT = torch.ones(3, 2) * 4
MEAN, VARIANCE = torch.zeros(2), torch.ones(2)


@custom_op("autobatch_tests::counted", mutates_args=("count",))
def counted(x: Tensor, count: Tensor) -> Tensor:
    count.add_(x.sum())
    return x * 2


@custom_op("autobatch_tests::spread_", mutates_args=("parts", "last"))
def spread(x: Tensor, parts: list[Tensor], last: Tensor | None = None) -> None:
    for part in parts:
        part.add_(x)
    if last is not None:
        last.copy_(x * 3)


def by_map(x, n):
    y = x * 1
    list(map(torch.Tensor.mul_, [y], [2]))
    return y


def by_operator(x, n):
    y = x * 1
    made = list(map(operator.iadd, [y], [2]))
    return y + made[0]


def by_loop(x, n):
    y = x * 1
    if n > 1:
        y = y + 1
    for _ in map(torch.sin_, [y]):
        pass
    return y


def into_lists(x, n):
    lists = [[1], [2]]
    list(map(list.append, lists, [n, n]))
    return lists[0][1] + lists[1][1] + x


def without_writes(x, n):
    y = x * 1
    made = list(map(torch.sin, [y, x]))
    return made[0] + made[1] + y


def statistics(x, n):
    mean, variance = torch.zeros(2), torch.ones(2)
    rows = torch.stack([torch.stack([x, x + 1]), torch.stack([x * 3, x])])
    out = F.batch_norm(rows, mean, variance, training=True)
    return out, mean, variance


def statistics_at_rest(x, n):
    mean, variance = torch.zeros(2), torch.ones(2)
    rows = torch.stack([x, x + 1])[None]
    return F.batch_norm(rows, mean, variance), mean


def renormalised(x, n):
    weight = torch.ones(3, 2) * (x + 2)
    found = F.embedding(n % 3, weight, max_norm=1.0)
    return found, weight


def renormalised_bags(x, n):
    weight = torch.ones(3, 2) * (x + 2)
    found = F.embedding_bag((n % 3)[None, None], weight, max_norm=1.0)
    return found, weight


def statistics_of_operators(x, n):
    mean, variance = torch.zeros(2), torch.ones(2)
    rows = torch.stack([torch.stack([x, x + 1]), torch.stack([x * 3, x])])
    out = torch.batch_norm(rows, None, None, mean, variance, True, 0.1, 1e-5, False)
    by_keyword = torch.zeros(2)
    torch.batch_norm(
        input=rows, weight=None, bias=None, running_mean=by_keyword, running_var=variance,
        training=True, momentum=0.1, eps=1e-5, cudnn_enabled=False,
    )  # fmt: skip
    torch.native_batch_norm(rows, None, None, mean, variance, True, 0.1, 1e-5)
    torch.ops.aten.native_batch_norm(rows, None, None, mean, variance, True, 0.1, 1e-5)
    torch.instance_norm(rows[None], None, None, mean, variance, True, 0.1, 1e-5, False)
    return out, mean, variance, by_keyword


def statistics_that_rest(x, n):
    rows = torch.stack([x, x + 1])[None]
    return torch.batch_norm(rows, None, None, MEAN, VARIANCE, False, 0.1, 1e-5, False)


def observed(x, n):
    low, high, scale, zero = torch.zeros(1), torch.zeros(1), torch.ones(1), torch.zeros(1).int()
    on = torch.ones(1).int()
    y = torch.stack([x, x + 1])
    y = torch.fused_moving_avg_obs_fake_quant(y, on, on, low, high, scale, zero, 0.5, 0, 255, -1)
    return y, low, high, scale, zero


def by_custom_operators(x, n):
    count, other = torch.zeros(2), torch.zeros(2)
    y = counted(x, count)
    if n > 1:
        count = count + 1
        y = torch.ops.autobatch_tests.counted(y, count=other)
    torch.ops.autobatch_tests.counted.default(y, count)
    return y, count, other


def into_several(x, n):
    a, b, last = torch.zeros(2), torch.zeros(2), torch.zeros(2)
    spread(x, [a, b[:1]], last[n % 2])
    if n > 2:
        torch.ops.autobatch_tests.spread_(x + 1, [b, b], last=a)
    spread(x, [last])
    return a, b, last


def looked_up(x, n):
    return F.embedding(n % 3, WEIGHT)


PROGRAMS = (
    *(by_map, by_operator, by_loop, into_lists, without_writes, statistics, statistics_at_rest),
    *(renormalised, renormalised_bags, looked_up, statistics_of_operators, statistics_that_rest),
    *(observed, by_custom_operators, into_several),
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("executor", ["vmap", "traced"])
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_the_loop_gives_the_same(program: Any, engine: str, executor: str) -> None:
    x, n = torch.arange(4.0), torch.arange(4)
    if program is into_several:
        try:
            program(x[0], n[0])
        except IndexError:
            pytest.skip("torch 2.11 fails where an operator is not given what it may write")
    mapped = autobatch.vmap(program, engine=engine, executor=executor, trace_after=0)
    for _ in range(2):
        found = mapped(x, n)
        wanted = [program(a.clone(), b) for a, b in zip(x, n, strict=True)]
        if not isinstance(found, tuple):
            found, wanted = (found,), [(each,) for each in wanted]
        for place, column in enumerate(found):
            torch.testing.assert_close(column, torch.stack([each[place] for each in wanted]))


def of_rows(w, n):
    found = F.embedding(n[None], w, max_norm=1.0)
    bags = F.embedding_bag(n[None, None] + 1, w, max_norm=1.0)
    y = w * 1
    if n > 0:
        y = counted(w, y)
    counted(y, w)
    return found, bags, w.sum(), y.sum()


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("lengths", [(3, 5, 2), (3, 3, 3)], ids=str)
def test_tensors_of_a_length_of_their_own_are_written(lengths: Any, engine: str) -> None:
    ws, ns = [torch.randn(length, 2) * 4 for length in lengths], torch.tensor([0, 1, 0])
    mapped = autobatch.vmap(of_rows, engine=engine, trace_after=0, plain="never")
    for _ in range(3):
        found = mapped(autobatch.ragged(ws), ns)
        wanted = [of_rows(w.clone(), n) for w, n in zip(ws, ns, strict=True)]
        for place, column in enumerate(found):
            torch.testing.assert_close(column, torch.stack([each[place] for each in wanted]))


def shared_rows(n):
    return F.embedding(n % 3, WEIGHT, max_norm=1.0)


def shared_bags(n):
    return F.embedding_bag((n % 3)[None, None], WEIGHT, None, 1.0)


def shared_statistics(n):
    rows = WEIGHT + n
    return torch.batch_norm(rows, None, None, MEAN, VARIANCE, True, 0.1, 1e-5, False)


def shared_statistics_of_aten(n):
    rows = WEIGHT + n
    return torch.ops.aten.native_batch_norm(rows, None, None, MEAN, VARIANCE, True, 0.1, 1e-5)[0]


def shared_observers(n):
    on = torch.ones(1).int()
    return torch.fused_moving_avg_obs_fake_quant(
        WEIGHT + n, on, on, MEAN[:1], VARIANCE[:1], torch.ones(1), torch.zeros(1).int(),
        *(0.5, 0, 255, -1),
    )  # fmt: skip


def shared_counts(n):
    return counted(n * 1.0, MEAN)


def shared_parts(n):
    spread(n * 1.0, [torch.zeros(2), MEAN])
    return n


SHARED = (
    *(shared_rows, shared_bags, shared_statistics, shared_statistics_of_aten, shared_observers),
    *(shared_counts, shared_parts),
)


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
@pytest.mark.parametrize("program", SHARED, ids=lambda f: f.__name__)
def test_what_existed_before_is_not_written(program: Any, engine: str) -> None:
    for _ in range(4):
        with pytest.raises(autobatch.AutobatchError, match="existed before"):
            autobatch.vmap(program, engine=engine)(torch.arange(4))
        assert (WEIGHT == 4).all() and (MEAN == 0).all() and (VARIANCE == 1).all()


def test_functions_that_write_nothing_are_one_operation() -> None:
    """TorchScript has functions of its lists, ``aten::sort.int(int[](a!))``, that write them."""

    def ordered(x: Tensor) -> Tensor:
        values = torch.sort(x).values
        return values if values[0] > 0 else -values

    batched = autobatch.vmap(ordered, plain="never", fallback="error")
    x = torch.randn(7, 4)
    assert batched(x).tolist() == [ordered(row).tolist() for row in x]


def test_what_writes_is_told_of_functions_that_all_can_see() -> None:
    functions = (vars(each).items() for each in (torch, F, torch.linalg, torch.special, torch.fft))
    found = {
        name
        for each in functions
        for name, function in each
        if not name.startswith("_") and not name.endswith("_") and is_updating(function)
    }
    assert found == {
        *("batch_norm", "instance_norm", "native_batch_norm", "embedding", "embedding_bag"),
        *("fbgemm_linear_fp16_weight", "fbgemm_linear_fp16_weight_fp32_activation"),
        "fused_moving_avg_obs_fake_quant",
    }
