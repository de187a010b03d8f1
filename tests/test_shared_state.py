"""Writes to tensors that all threads share: reduced over the threads and applied once.

The plain loop on a copy of the state is the oracle: values up to rounding, integers exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch
from autobatch.batching.contributions import Contributions
from autobatch.batching.shared import merging, merging_at, updates
from autobatch.frontend.subset import SHARED_WRITES
from tests.goldens import assert_golden

OPTIONS: tuple[dict[str, Any], ...] = (
    {"executor": "vmap"},
    {"trace_after": 0},
    {"trace_after": 0, "engine": "program_counter"},
    {"chunk_size": 3, "trace_after": 0},
)
XS = torch.tensor([3.0, -1.0, 4.0, 1.5, -5.0, 2.0, 6.0])


class State:
    """What all threads share: tensors of several dtypes and shapes, and modules with buffers."""

    def __init__(self) -> None:
        self.count = torch.zeros((), dtype=torch.int64)
        self.total = torch.zeros(3)
        self.product = torch.ones(2, dtype=torch.float64)
        self.table = torch.zeros(4, 3)
        self.hits = torch.zeros(5, dtype=torch.int32)
        self.low = torch.full((3,), 9.0)
        self.high = torch.full((), -9.0)
        self.seen = torch.zeros(2, dtype=torch.bool)
        self.norm = Running()


class Running(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("batches", torch.tensor(0))
        self.register_buffer("most", torch.full((), -9.0))
        self.register_buffer("mean", torch.zeros(2))
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x):
        self.batches += 1
        self.most = torch.maximum(self.most, x)
        self.mean = self.mean + torch.stack([x, -x])
        return x * self.weight.sum()


def place_of(x: Any) -> Any:
    return (x.abs() % 4).long()


def counted(s, x):
    s.count += 1
    return x


def added(s, x):
    s.total += x
    return x * 2


def aliased(s, x):
    t = s.total
    t += x
    t.add_(1, alpha=2)
    return x


def subtracted(s, x):
    s.total -= x
    s.total.sub_(x, alpha=3)
    return x


def multiplied(s, x):
    s.product *= x
    return x


def branched(s, x):
    if x > 0:
        s.count += 2
        s.total[1] += x
    else:
        s.count -= 1
    return x


def looped(s, x):
    n = 0
    while n < x:
        s.hits[n % 5] += 1
        s.total += n
        n += 1
    return n


def binned(s, x):
    s.hits[place_of(x)] += 1
    return x


def binned_rows(s, x):
    s.table[place_of(x)] += torch.stack([x, x + 1, x + 2])
    return x


def binned_elements(s, x):
    s.table[place_of(x), 1] += x
    s.table[0] -= 1
    return x


def several_bins(s, x):
    where = torch.stack([place_of(x), place_of(x), place_of(x + 1)])
    s.hits[where] += 1
    return x


def masked(s, x):
    s.total[torch.stack([x > 0, x > 2, x < 0])] += x
    return x


def index_added(s, x):
    where = torch.stack([place_of(x), place_of(x)])
    s.table.index_add_(0, where, torch.ones(2, 3) * x, alpha=2)
    return x


def index_put(s, x):
    s.table.index_put_((place_of(x), torch.tensor([0, 2, 2])), x, accumulate=True)
    return x


def scattered(s, x):
    where = torch.stack([place_of(x), place_of(x)])
    s.hits.scatter_add_(0, where, torch.ones(3, dtype=torch.int32))
    return x


def scatter_reduced(s, x):
    s.low.scatter_reduce_(0, torch.zeros(2, dtype=torch.int64), torch.stack([x, x + 1]), "amin")
    return x


def minimum_out(s, x):
    torch.minimum(s.low, x, out=s.low)
    torch.maximum(x, s.high, out=s.high)
    return x


def maximum_copied(s, x):
    s.low.copy_(torch.minimum(s.low, x))
    s.high.copy_(torch.maximum(x, s.high))
    return x


def maximum_named(s, x):
    s.low = torch.minimum(s.low, x)
    s.high = s.high.maximum(x)
    return x


def summed_named(s, x):
    s.count = s.count + 1
    s.total = s.total + x
    s.product = s.product * x
    return x


def promoted(s, x):
    s.count = s.count + x
    return x


def cleared(s, x):
    s.total.fill_(3.0)
    s.table.zero_()
    s.low[1] = 4.0
    s.high = torch.tensor(2.5)
    return x


def in_order(s, x):
    s.total.zero_()
    s.total[1] = 2
    s.total[2:] = 3.0
    return x


def any_seen(s, x):
    s.seen += x > 3
    return x


def of_views(s, x):
    s.table[1].add_(x)
    s.table.view(-1)[4] += x
    s.table.t()[2] -= 1
    s.table.data += 1
    return x


def module(s, x):
    return s.norm(x)


def called(s, x):
    helper(s, x)
    return helper(s, x + 1)


def helper(s, x):
    if x > 1:
        s.count += 1
        return x + 1
    s.total += x
    return x


def lists(s, x):
    for t in [s.total, s.table]:
        t += x
    return x


def with_numbers(s, x):
    n = int(x)
    s.count += n
    s.total += n * 0.5
    s.hits[n % 5] += n
    return n


def late_value(s, x):
    s.hits[place_of(x)] += branching(x)
    return x


def branching(x):
    return 3 if x > 0 else 5


def in_try(s, x):
    try:
        s.count += 1
        if x > 3:
            raise ValueError("large")
        s.count += 10
    except ValueError:
        s.count += 100
    return x


def read_before(s, x):
    y = x + s.low.sum()
    s.total += y
    return s.total.shape[0] + y + len(s.total)


PROGRAMS = [
    *(counted, added, aliased, subtracted, multiplied, branched, looped, binned, binned_rows),
    *(binned_elements, several_bins, masked, index_added, index_put, scattered, scatter_reduced),
    *(minimum_out, maximum_copied, maximum_named, summed_named, promoted, cleared, in_order),
    *(any_seen, of_views, module, called, lists, with_numbers, late_value, in_try, read_before),
]


def tensors(state: State) -> dict[str, Tensor]:
    found = {name: value for name, value in vars(state).items() if isinstance(value, Tensor)}
    return {**found, **state.norm.state_dict()}


def bound(program: Callable[..., Any], state: State) -> Callable[..., Any]:
    """The program on a state that it closes over."""
    return lambda x: program(state, x)


def assert_same(ours: State, theirs: State) -> None:
    expected = tensors(theirs)
    for name, tensor in tensors(ours).items():
        assert tensor.dtype == expected[name].dtype, name
        if tensor.is_floating_point():
            torch.testing.assert_close(tensor, expected[name], msg=name)
        else:
            assert torch.equal(tensor, expected[name]), name


def plain(function: Any, xs: Any) -> Any:
    return [function(x.clone()) for x in xs]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_the_loop(program: Any, options: Any) -> None:
    ours, theirs = State(), State()
    batched = autobatch.vmap(bound(program, ours), **options)
    for xs in (XS, XS[:3] + 1):
        result = batched(xs)
        expected = plain(bound(program, theirs), xs)
        for mine, one in zip(result, expected, strict=True):
            torch.testing.assert_close(mine, torch.as_tensor(one))
        assert_same(ours, theirs)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_is_applied_once(options: Any) -> None:
    state = State()
    versions = {name: tensor._version for name, tensor in tensors(state).items()}
    with autobatch.counts() as counts:
        autobatch.vmap(bound(looped, state), **options)(XS)
    assert counts.shared_writes == 2  # the hits and the total
    changed = [name for name, t in tensors(state).items() if t._version != versions[name]]
    assert changed == ["total", "hits"]
    assert state.total._version == versions["total"] + 1


def failing(s, x):
    s.count += 1
    if x == 4:
        raise ValueError("four")
    s.count += 10
    s.hits[int(x)] += 1  # too large for 6
    s.count += 100
    return x


def loop_until_it_fails(state: State, xs: Tensor) -> str:
    with pytest.raises(Exception) as caught:
        plain(bound(failing, state), xs)
    return repr(caught.value)


FAILING = (XS, XS[[6, 2, 0]], XS[[1, 3, 6, 2]])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("xs", FAILING, ids=str)
def test_up_to_the_thread_that_fails(xs: Tensor, options: Any) -> None:
    ours, theirs = State(), State()
    expected = loop_until_it_fails(theirs, xs)
    with pytest.raises(Exception) as caught:
        autobatch.vmap(bound(failing, ours), **options)(xs)
    assert repr(caught.value) == expected
    assert_same(ours, theirs)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_isolated_threads_give_what_they_have(options: Any) -> None:
    ours, theirs = State(), State()
    results = autobatch.vmap(bound(failing, ours), on_error="isolate", **options)(XS)
    for x, result in zip(XS, results, strict=True):
        try:
            assert torch.equal(failing(theirs, x), result.value)
        except (ValueError, IndexError) as error:
            assert repr(result.exception) == repr(error)
    assert_same(ours, theirs)


def half(x):
    if x > 5:
        raise ValueError("large")
    return x / 2


def after_a_call_that_fails(s, x):
    a, b = half(x), half(x + 1)
    s.count += 1
    return a + b


def test_calls_that_are_noted_come_first() -> None:
    ours, theirs = State(), State()
    for s, run in ((ours, autobatch.vmap), (theirs, lambda f: lambda xs: plain(f, xs))):
        with pytest.raises(ValueError, match="large"):
            run(bound(after_a_call_that_fails, s))(XS)
    assert_same(ours, theirs)
    assert ours.count == 6


def wrong_dtype(s, x):
    s.count += x
    return x


def wrong_shape(s, x):
    s.high += torch.stack([x, x])
    return x


def wrong_place(s, x):
    s.hits[int(x) + 3] += 1
    return x


def wrong_index(s, x):
    s.hits.index_add_(0, (x + 3).long().unsqueeze(0), torch.ones(1, dtype=torch.int32))
    return x


def wrong_leaf(s, x):
    s.norm.weight += x
    return x


def wrong_parameter(s, x):
    s.norm.weight = s.norm.weight + x
    return x


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
@pytest.mark.parametrize(
    "program", [wrong_dtype, wrong_shape, wrong_place, wrong_index, wrong_leaf, wrong_parameter]
)
def test_errors_are_torchs(program: Any, options: Any) -> None:
    ours, theirs = State(), State()
    xs = XS[[3, 0, 1]]
    with pytest.raises(Exception) as expected:
        plain(bound(program, theirs), xs)
    with pytest.raises(Exception) as caught:
        autobatch.vmap(bound(program, ours), **options)(xs)
    assert type(caught.value) is type(expected.value)
    assert str(caught.value) == str(expected.value)
    assert_same(ours, theirs)


def weighted(s, w, x):
    s.total += w * x
    s.table[place_of(x)] += w * w
    s.low = torch.minimum(s.low, w + x)
    with torch.no_grad():
        s.high.copy_(torch.maximum(s.high, w[0]))
    return x


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
def test_gradients(options: Any) -> None:
    found = []
    for batched in (True, False):
        state = State()
        w = torch.tensor([0.5, 2.0, -1.0], requires_grad=True)
        if batched:
            autobatch.vmap(lambda x, s=state, w=w: weighted(s, w, x), **options)(XS)
        else:
            plain(lambda x, s=state, w=w: weighted(s, w, x), XS)
        assert not state.high.requires_grad
        (state.total.sum() + (state.table * state.total).sum() + state.low.sum()).backward()
        found.append((w.grad, state.total.detach(), state.low.detach()))
    for mine, one in zip(*found, strict=True):
        torch.testing.assert_close(mine, one)


@pytest.mark.parametrize("make", [torch.func.grad, autobatch.grad, autobatch.jacfwd])
def test_derivatives_write_nothing(make: Any) -> None:
    state = State()
    with pytest.raises(RuntimeError):
        plain(torch.func.grad(bound(added, state)), XS)
    with pytest.raises(autobatch.SharedWriteError, match="has_aux"):
        autobatch.vmap(make(bound(added, state)))(XS)
    assert_same(state, State())


def test_rows_of_the_batch_have_gradients() -> None:
    state = State()
    xs = XS.clone().requires_grad_()
    autobatch.vmap(bound(added, state))(xs)
    state.total.sum().backward()
    assert xs.grad is not None
    assert xs.grad.tolist() == [3.0] * 7


def test_all_see_what_was_there_before_the_call() -> None:
    total = torch.tensor(10.0)

    def shifted(x):
        y = x + total
        total.add_(x)
        return y

    assert autobatch.vmap(shifted, chunk_size=2)(XS).tolist() == (XS + 10).tolist()
    assert total.item() == 10 + XS.sum().item()


def rounds(s, x):
    def body(i):
        s.count += i
        return x * i

    return autobatch.pfor(body, 3).sum() + autobatch.map_fn(lambda e: added(s, e), x + XS).sum()


def test_rounds_inside() -> None:
    ours, theirs = State(), State()
    result = autobatch.vmap(bound(rounds, ours))(XS)
    torch.testing.assert_close(result, torch.stack(plain(bound(rounds, theirs), XS)))
    assert_same(ours, theirs)
    assert ours.count == 3 * len(XS)


def test_pfor() -> None:
    state = State()
    autobatch.pfor(lambda i: binned(state, torch.tensor(1.0) * i), 6)
    assert state.hits.tolist() == [2, 2, 1, 1, 0]


def test_no_threads() -> None:
    ours, theirs = State(), State()
    autobatch.vmap(bound(added, ours))(XS[:0])
    assert_same(ours, theirs)


def test_a_stretch_before_and_after_is_recorded() -> None:
    state = State()

    def steps(x):
        n = 0
        while n < 40:
            x = torch.tanh(x * 1.5 + 0.25)
            state.count.add_(1)
            x = x * 0.5 + torch.sin(x)
            n += 1
        return x

    batched = autobatch.vmap(steps, trace_after=0)
    with autobatch.counts() as counts:
        batched(XS)
    assert state.count == 40 * len(XS)
    assert counts.traces == 3  # the first one ends at the write
    assert counts.shared_writes == 1


def test_lowering_knows_the_methods() -> None:
    methods = {name for name in dir(Tensor) if name in updates.ASSIGN or name in merging_at.AT}
    methods |= {f"{name}_" for name in merging.IN_PLACE}
    assert methods == SHARED_WRITES


def many_rounds(s, x):
    n = 0
    while n < 90 + x:
        s.count += n
        s.hits[torch.stack([place_of(x + n), place_of(x)])] += 1
        s.low[:] = 2.0
        s.total += x / (n + 1)
        torch.maximum(s.high, x + n % 7, out=s.high)
        s.table.scatter_reduce_(0, torch.tensor([[n % 4]]), (x * n).reshape(1, 1), "amin")
        s.norm.most.fill_(n // 100)
        n += 1
        if n == 60 and x == 1.5:
            raise ValueError("enough")
    return x


@pytest.mark.parametrize("xs", [XS[:3], XS], ids=["all", "one fails"])
def test_long_loops_are_put_together(xs: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = State(), State()
    most: list[int] = []
    note = Contributions.note

    def noting(self, contribution):
        note(self, contribution)
        most.append(len(self.noted))

    monkeypatch.setattr(Contributions, "note", noting)
    for s, run in ((ours, autobatch.vmap), (theirs, lambda f: lambda xs: plain(f, xs))):
        try:
            run(bound(many_rounds, s))(xs)
        except ValueError as error:
            assert str(error) == "enough" and len(xs) > 3
    assert_same(ours, theirs)
    assert len(most) > 500 and max(most) <= 256 + 7


STREAMS: tuple[dict[str, Any], ...] = ({}, {"order": "input"}, {"engine": "program_counter"})


@pytest.mark.parametrize("options", STREAMS, ids=str)
def test_a_stream_applies_what_has_finished(options: Any) -> None:
    ours, theirs = State(), State()
    stream = autobatch.stream(bound(looped, ours), XS, width=3, **options)
    first = next(stream)
    assert ours.hits.sum() <= sum(x.ceil().clamp(min=0) for x in XS)
    found = dict([first, *stream])
    expected = plain(bound(looped, theirs), XS)
    assert [found[index] for index in range(len(XS))] == expected
    assert_same(ours, theirs)


@pytest.mark.parametrize("options", STREAMS, ids=str)
@pytest.mark.parametrize("xs", FAILING, ids=str)
def test_a_stream_that_fails(xs: Tensor, options: Any) -> None:
    ours, theirs = State(), State()
    expected = loop_until_it_fails(theirs, xs)
    with pytest.raises(Exception) as caught:
        list(autobatch.stream(bound(failing, ours), xs, width=2, **options))
    assert repr(caught.value) == expected
    assert_same(ours, theirs)


def test_a_stream_of_isolated_examples() -> None:
    ours, theirs = State(), State()
    list(autobatch.stream(bound(failing, ours), XS, width=2, on_error="isolate"))
    autobatch.vmap(bound(failing, theirs), on_error="isolate")(XS)
    assert_same(ours, theirs)


def test_a_stream_that_is_closed() -> None:
    state = State()
    stream = autobatch.stream(bound(counted, state), (torch.ones(()) for _ in iter(int, 1)), 4)
    handed = [next(stream) for _ in range(6)]
    stream.close()
    assert state.count >= len(handed)


# What is refused, with the place.


def read_of_own(s, x):
    s.count += 1
    return x + s.count


def read_of_a_view(s, x):
    first = s.table[0]
    s.table[1] += x
    return first.sum() + x


def read_on_the_host(s, x):
    s.total += x
    return str(s.total)


def read_in_a_list(s, x):
    s.total[0] += x
    return torch.stack([s.total, s.low]).sum() + x


def read_by_index(s, x):
    s.hits[place_of(x)] += 1
    return s.hits[place_of(x)]


def read_by_a_branch(s, x):
    s.count += 1
    return x if s.count else -x


def read_in_a_call(s, x):
    s.norm.weight.data.add_(1)
    return torch.nn.functional.linear(torch.stack([x, x]), s.norm.weight)


def read_in_a_helper(s, x):
    y = looks(s, x)
    s.total += x
    return looks(s, y)


def looks(s, x):
    return x + s.total.sum()


def read_in_a_loop(s, x):
    n = 0
    while n < 5:
        x = torch.tanh(x) + s.total.sum()
        if n == 3:
            s.total += x
        n += 1
    return x


def read_where_only_some_have_written(s, x):
    if x > 5:
        s.count += 1
    return x + s.count


def in_two_ways(s, x):
    s.total += x
    s.total *= 2
    return x


def own_value(s, x):
    s.total.copy_(torch.stack([x, x, x]))
    return x


def own_attribute(s, x):
    s.high = x * 2
    return x


def own_element(s, x):
    s.hits[place_of(x)] = 1
    return x


def different_values(s, x):
    if x > 0:
        s.count.fill_(1)
    else:
        s.count.fill_(2)
    return x


def divided(s, x):
    s.total /= x
    return x


def maximum_of_another(s, x):
    s.low.copy_(torch.maximum(s.total, x))
    return x


def rounded_sums(s, x):
    s.count.copy_(s.count + x)
    return x


REFUSED = [
    *(read_of_own, read_of_a_view, read_on_the_host, read_in_a_list, read_by_index),
    *(read_by_a_branch, read_in_a_call, read_where_only_some_have_written, in_two_ways, own_value),
    *(read_in_a_helper, read_in_a_loop),
    *(own_attribute, own_element, different_values, divided, maximum_of_another, rounded_sums),
]


def message(program: Any, options: Any) -> str:
    ours, before = State(), State()
    with pytest.raises(autobatch.SharedWriteError) as caught:
        autobatch.vmap(bound(program, ours), **options)(XS)
    assert_same(ours, before)
    start = program.__code__.co_firstlineno
    text = re.sub(r'File "[^"]*[\\/]', 'File "', str(caught.value))
    text = re.sub(r"\bline (\d+)", lambda n: f"line {int(n[1]) - start}", text)
    return re.sub(r"(?m)^( +)(\d+) \|", lambda n: f"{n[1]}{int(n[2]) - start} |", text)


def test_golden_refusals() -> None:
    texts = [f"== {each.__name__}\n{message(each, OPTIONS[0])}\n" for each in REFUSED]
    assert_golden("shared_state", "\n".join(texts))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("options", OPTIONS[1:], ids=str)
@pytest.mark.parametrize("program", REFUSED)
def test_refused_alike(program: Any, options: Any) -> None:
    assert message(program, options) == message(program, OPTIONS[0])


def test_some_may_read_what_others_write() -> None:
    def program(total, x):
        if x > 0:
            total += x
            return x
        return x + total.sum()

    for options in (*OPTIONS, {"schedule": "most_threads"}):
        total = torch.ones(3)
        result = autobatch.vmap(lambda x, total=total: program(total, x), **options)(XS[:2])
        assert result.tolist() == [3.0, 2.0] and total.tolist() == [4.0] * 3
