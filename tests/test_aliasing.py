"""Programs that cannot tell two names for one tensor from two tensors: groups go by values."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Geometric, Independent, Normal

import autobatch
from autobatch.ir.definitions import definitions_of
from autobatch.vm.aliasing import Blindness, kinds_of
from autobatch.vm.library import Library
from autobatch.vm.purity import Known, Names
from programs import adaptive_computation, quicksort
from tests.oracle import assert_matches_loop


def chain(x, steps):
    samples = []
    for step in steps:
        proposal = x + step
        if proposal.abs() < 1.5:
            x = proposal
        samples.append(x)
    return torch.stack(samples)


def filtered(values, seen):
    x, weight, out = 0.0, 1.0, []
    for value, is_seen in zip(values, seen, strict=True):
        weight = weight + 0.1
        if is_seen:
            gain = weight / (weight + 0.5)
            x = x + gain * (value - x)
            weight = (1 - gain) * weight
        out.append(x)
    return torch.stack([torch.as_tensor(each) for each in out])


def counted(x, n):
    i, kept = 0, None
    while i < n:
        i += 1
        if kept is None or i % 2 == 0:
            kept = x
        x = x * 2
    return x, kept


def helped(x):
    return torch.relu(x) + doubled(x)


def doubled(x):
    y = x * 2
    return y if y.sum() > 0 else x


def nested(x):
    def inner(y):
        return y + 1

    return inner(x)


STANDARD = Normal(0.0, 1.0)


def log_density(x):
    return torch.logaddexp(Normal(-1.0, 0.5).log_prob(x), STANDARD.log_prob(x))


def metropolis(x, steps, thresholds):
    """A chain whose density is one of torch's distributions."""
    samples, density = [], log_density(x)
    for step, threshold in zip(steps, thresholds, strict=True):
        proposal = x + step
        proposed = log_density(proposal)
        if threshold.log() < proposed - density:
            x, density = proposal, proposed
        samples.append(x)
    return torch.stack(samples), Categorical(logits=torch.stack(samples)).entropy()


def adds_in_place(x):
    y = x
    y += 1
    return x


def maybe_a_tensor(x):
    total = 0.0
    for each in x:
        total += each
    return total


def method_in_place(x):
    return x.clamp_(min=0)


def into_out(x):
    y = torch.zeros(())
    torch.add(x, 1, out=y)
    return y


def compares(x):
    y = x
    return 1 if x is y else 0


def contains(x):
    return 1 if x in [x, x + 1] else 0


def asks_id(x):
    return id(x) % 1


def points(x):
    return x.data_ptr() % 1


def by_helper(x):
    return doubled(adds_in_place(x))


def by_argument(x, function=doubled):
    return function(x)


def made_of_own(x):
    return Holder(x).value


class Holder:
    def __init__(self, value):
        self.value = value


class Adding(Normal):
    def log_prob(self, value):
        return value.add_(1)


class Scoring(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.within = Normal(0.0, 1.0)

    def log_prob(self, x):
        return x.add_(1)


ADDING, AROUND = Adding(0.0, 1.0), Independent(Adding(torch.zeros(2), 1.0), 1)


def of_a_class_of_ones_own(x):
    return Adding(0.0, 1.0).log_prob(x)


def of_one_that_existed(x):
    return ADDING.log_prob(x)


def of_what_holds_one(x):
    return AROUND.log_prob(x)


def draws(x):
    return Normal(x, 1.0).rsample()


def has_a_score_that_writes(x):
    return Geometric(logits=x).log_prob(x * 0)


def by_a_score(x, model):
    return model.log_prob(x)


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(x)


def by_keyword(x):
    return torch.nn.functional.relu(x, inplace=True)


def hashed_in_a_set(x, y):
    return len({x, y})


def hashed_into_a_set(x, y):
    found = set()
    found.add(x)
    found.add(y)
    return len(found)


def hashed_by_a_set(x, y):
    both = [x, y]
    return len(set(both))


def hashed_in_a_dict(x, y):
    return len({x: 1, y: 2})


def hashed_into_a_dict(x, y):
    found = {x: 1}
    found[y] = 2
    return len(found)


def hashed_by_a_dict(x, y):
    return len(dict(zip([x, y], [1, 2], strict=True)))


def hashed_by_setdefault(x, y):
    found = {}
    found.setdefault(x, 1)
    found.setdefault(y, 2)
    return len(found)


def compared_in_a_list(x, y):
    return 1 if [x] == [y] else 0


def compared_in_tuples(x, y):
    return 1 if (x, 1) == (y, 1) else 0


def compared_by_operator(x, y):
    return 1 if operator.eq([x], [y]) else 0


def counted_in_a_list(x, y):
    return operator.countOf([x], y)


def into_out_by_stars(x, y):
    options = {"out": y}
    torch.add(x, 1, **options)
    return x


def by_a_key(x, y):
    return sorted([x, y], key=lambda each: each.add_(1).item())[0] + x


OF_TWO = (
    *(hashed_in_a_set, hashed_into_a_set, hashed_by_a_set, hashed_in_a_dict, hashed_into_a_dict),
    *(hashed_by_a_dict, hashed_by_setdefault, compared_in_a_list, compared_in_tuples),
    *(compared_by_operator, counted_in_a_list, into_out_by_stars, by_a_key),
)


class Bare:
    """Whose instances only have attributes."""


@dataclass
class State:
    h: Tensor
    n: int = 0


@dataclass
class Making:
    h: Tensor
    made: list[Any] = field(default_factory=lambda: [1])


class Computed(Bare):
    @property
    def total(self):
        self.h += 1
        return self.h


class Noting(Bare):
    def __setattr__(self, name, value):
        super().__setattr__(name, value.add_(1))


class Kind(type):
    def __call__(cls, h):
        h += 1
        return super().__call__()


class Counted(metaclass=Kind):
    pass


def held_in_an_object(x):
    held = Bare()
    held.h, held.n = x, 1
    if x > 0:
        held.h, held.n = x * 2, held.n + 1
    return held.h * held.n


def held_in_a_dataclass(x):
    held = State(x)
    while held.h < 3:
        held.h = held.h + 1
        held.n = held.n + 1
    return held.h * held.n


def counted_in_a_dataclass(x):
    held = State(x)
    while held.h < 3:
        held.h = held.h + 1
        held.n += 1
    return held.h * held.n


def counted_in_an_object(x):
    held = Bare()
    held.h, held.n = x, 0
    held.n += 2
    return held.h * held.n


def counted_in_a_dict(x):
    held = {"h": x, "n": 0}
    held["n"] += 2
    held["m"] = 1.0
    held["m"] *= held["n"]
    return held["h"] * held["m"]


def added_to_in_an_object(x):
    held = Bare()
    held.h = x
    held.h += 1
    return x


def added_to_in_a_dataclass(x):
    held = State(x, n=x)
    held.n += 1
    return x


def added_to_in_any_of_two(x):
    held, other = State(x), Bare()
    other.n = x
    for each in range(2):
        held = other if each else held
    held.n += 1
    return x


class Beginning:
    """Whose instances begin with a tensor of the class's, or a number."""

    n = torch.zeros(())
    m = 1


def added_to_of_the_class(x):
    held = Beginning()
    if x > 0:
        held.n = 0
    held.n += 1
    return x


def counted_from_the_class(x):
    held = Beginning()
    held.m += 1
    return x * held.m


def added_to_by_stars(x):
    held = State(*[x, x])
    held.n += 1
    return x


def added_to_in_what_was_made_elsewhere(x):
    held = with_a_shape(x)
    held.ndim += 1
    return x


def with_a_shape(x):
    held = Bare()
    held.ndim = x
    return held


def added_to_in_a_dict(x):
    held = {"h": 0, "n": x}
    held["n"] += 1
    return x


def added_to_under_any_key(x):
    held = {"h": 0, "n": 1}
    for key in ("n", "h"):
        held[key] = x
    held["n"] += 1
    return x


def added_to_after_an_update(x):
    held = {"h": 0, "n": 1}
    held.update({"n": x})
    held["n"] += 1
    return x


def added_to_after_a_merge(x):
    held = {"h": 0, "n": 1}
    held |= {"n": x}
    held["n"] += 1
    return x


def added_to_in_a_copy(x):
    held = dict([("n", x)], h=1)
    held["n"] += 1
    return x


def added_to_by_a_helper(x):
    held = {"h": x, "n": 1}
    puts_into(held, x)
    held["n"] += 1
    return x


def puts_into(held, x):
    held["n"] = x


def compared_as_dataclasses(x, y):
    return 1 if State(x) == State(y) else 0


def made_by_a_factory(x):
    return Making(x).h


def computed_by_a_property(x):
    held = Computed()
    held.h = x
    return held.total


def noted_when_set(x):
    held = Noting()
    held.h = x
    return x


def made_by_a_metaclass(x):
    Counted(x)
    return x


def set_on_what_is_not_known(x, held):
    held.h = x
    return x


TELLING = (
    *(added_to_in_a_dataclass, added_to_in_any_of_two, added_to_by_stars, added_to_in_a_dict),
    *(added_to_under_any_key, added_to_after_an_update, added_to_after_a_merge),
    added_to_of_the_class,
    *(added_to_in_a_copy, added_to_by_a_helper, added_to_in_what_was_made_elsewhere),
    *(added_to_in_an_object, compared_as_dataclasses, made_by_a_factory, computed_by_a_property),
    *(noted_when_set, made_by_a_metaclass, set_on_what_is_not_known),
    *(adds_in_place, maybe_a_tensor, method_in_place, into_out, compares, contains),
    *(asks_id, points, by_helper, by_argument, made_of_own, by_keyword),
    *(of_a_class_of_ones_own, of_one_that_existed, of_what_holds_one, draws),
    has_a_score_that_writes,
    *OF_TWO,
)


QUIET = (
    *(chain, filtered, counted, helped, log_density, metropolis),
    *(held_in_an_object, held_in_a_dataclass),
    *(counted_in_a_dataclass, counted_in_an_object, counted_in_a_dict),
    counted_from_the_class,
)


def tells(function: Any, *given: object) -> bool:
    library = Library()
    receiver = {"receiver": function.__self__} if hasattr(function, "__self__") else {}
    plain = getattr(function, "__func__", function)
    code = library.code_of(plain, *receiver.values())
    names = Names.of(plain, **receiver)
    return not Blindness(lambda names: library.told(code, names), lambda: names, [*given])()


class Running(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))

    def norm(self, x):
        self.total += x
        return x


class Plain(nn.Module):
    def forward(self, x):
        return torch.relu(x).norm()


def by_method(x, model):
    return model.norm(x)


RUNNING = Running()


def by_global_method(x):
    return by_method(x, RUNNING)


def test_a_method_with_the_name_of_a_tensors() -> None:
    assert tells(by_method, Running())
    assert tells(by_method, object())
    assert not tells(by_method, Plain())
    assert not tells(by_method)
    assert tells(by_global_method)
    assert not tells(Plain().forward)
    assert tells(by_a_score, Scoring())
    assert not tells(by_a_score, Normal(0.0, 1.0))
    assert tells(by_a_score, ADDING)


@pytest.mark.parametrize("function", QUIET, ids=lambda f: f.__name__)
def test_what_cannot_tell(function: Any) -> None:
    assert not tells(function)


@pytest.mark.parametrize("function", TELLING, ids=lambda f: f.__name__)
def test_what_may_tell(function: Any) -> None:
    assert tells(function)


def test_a_module_that_writes_its_input_tells() -> None:
    assert tells(InPlace().forward)


@pytest.mark.parametrize("function", OF_TWO, ids=lambda f: f.__name__)
def test_one_tensor_here_and_two_there(function: Any) -> None:
    def met(x, n):
        y = x if n % 2 == 0 else x * 1
        return function(x, y) + 0 * n

    x, n = torch.tensor([1.0, torch.nan, torch.nan, 4.0]), torch.arange(4)
    wanted = torch.stack([torch.as_tensor(met(*row)) for row in zip(x.clone(), n, strict=True)])
    found = autobatch.vmap(met, trace_after=0)(x, n)
    torch.testing.assert_close(found, wanted, equal_nan=True)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("executor", ["vmap", "traced"])
@pytest.mark.parametrize("batch", [1, 2, 7, 64])
def test_threads_that_keep_a_tensor_meet_those_that_made_one(
    engine: str, executor: str, batch: int
) -> None:
    generator = torch.Generator().manual_seed(batch)
    x, steps = torch.randn(batch, generator=generator), torch.randn(batch, 9, generator=generator)
    mapped = autobatch.vmap(chain, engine=engine, executor=executor, trace_after=0)
    for _ in range(3):
        with autobatch.counts() as count:
            found = mapped(x, steps)
        torch.testing.assert_close(found, torch.stack([*map(chain, x, steps)]))
        assert count.fallbacks == 0
        assert count.block_executions <= 2 + 3 * 9  # once kept apart, 74 of 64 threads


def writes(self: Normal, value: Tensor) -> Tensor:
    return value.add_(1)


def scored(x, n):
    y = x * 1
    z = y if n % 2 == 0 else y * 1
    return z + Normal(0.0, 1.0).log_prob(y), y


def scored_by_what_existed(x, n):
    y = x * 1
    z = y if n % 2 == 0 else y * 1
    return z + STANDARD.log_prob(y), y


@pytest.mark.parametrize("function", [scored, scored_by_what_existed])
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_a_method_in_the_place_of_a_distributions(engine, function, monkeypatch) -> None:
    x, n = torch.arange(7.0), torch.arange(7)
    mapped = autobatch.vmap(function, engine=engine, plain="never")
    for _ in range(3):
        for method in (writes, Normal.log_prob):
            with monkeypatch.context() as patch:
                patch.setattr(Normal, "log_prob", method)
                wanted = [function(*row) for row in zip(x.clone(), n, strict=True)]
                found = mapped(x, n)
            for part, parts in zip(found, zip(*wanted, strict=True), strict=True):
                torch.testing.assert_close(part, torch.stack(parts))


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_threads_that_score_by_a_distribution_meet(engine: str) -> None:
    generator = torch.Generator().manual_seed(3)
    x, steps = torch.randn(32, generator=generator), torch.randn(32, 6, generator=generator)
    thresholds = torch.rand(32, 6, generator=generator)
    wanted = [metropolis(*row) for row in zip(x, steps, thresholds, strict=True)]
    mapped = autobatch.vmap(metropolis, engine=engine, plain="never")
    for _ in range(4):
        with autobatch.counts() as count:
            found = mapped(x, steps, thresholds)
        for part, parts in zip(found, zip(*wanted, strict=True), strict=True):
            torch.testing.assert_close(part, torch.stack(parts))
    with autobatch.counts() as alone:
        mapped(x[:1], steps[:1], thresholds[:1])
    assert count.block_executions <= 1.5 * alone.block_executions


def test_gradients_through_tensors_that_were_one() -> None:
    x = torch.randn(16, requires_grad=True)
    steps = torch.randn(16, 6)
    wanted = torch.autograd.grad(torch.stack([*map(chain, x, steps)]).square().sum(), x)
    found = torch.autograd.grad(autobatch.vmap(chain)(x, steps).square().sum(), x)
    torch.testing.assert_close(found, wanted)


def test_numbers_that_meet_tensors() -> None:
    values, seen = torch.randn(64, 8), torch.rand(64, 8) < 0.6
    with autobatch.counts() as count:
        found = autobatch.vmap(filtered)(values, seen)
    torch.testing.assert_close(found, torch.stack([*map(filtered, values, seen)]))
    assert count.fallbacks == 0


class Secret:
    """An operator that writes in place, where nobody sees it before it runs."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __add__(self, other):
        other += 1
        return other


def unforeseen(x, n, secret):
    kept = x
    if n > 1:
        x = x * 2
    return secret + x, kept


def test_a_write_that_nobody_foresaw_is_an_error_or_right() -> None:
    x, n = torch.randn(4), torch.arange(4)
    secret = Secret(torch.zeros(()))
    wanted = [unforeseen(a.clone(), b, secret) for a, b in zip(x, n, strict=True)]
    try:
        found = autobatch.vmap(unforeseen, in_dims=(0, 0, None))(x, n, secret)
    except autobatch.AutobatchError as error:
        assert "taken to write none" in str(error)
    else:
        for place in (0, 1):
            assert found[place].tolist() == [each[place].item() for each in wanted]


def named_after_itself(x, n):
    items = [x, x * 2]
    if n > 100:
        y = y  # noqa: F821
        x = x
        y += x
    for each in items:
        x = x + each
    return x


def test_a_variable_that_is_defined_by_itself() -> None:
    """The chain of its definitions has no end."""
    x, n = torch.arange(3.0), torch.arange(3)
    for _ in range(2):
        assert autobatch.vmap(named_after_itself, trace_after=0)(x, n).tolist() == [0.0, 4.0, 8.0]
    with pytest.raises(UnboundLocalError, match="'y'"):
        autobatch.vmap(named_after_itself)(x, n + 100)


def test_a_list_that_grows_where_a_function_counts_it() -> None:
    """What is known of the list when first looked at is less than what is known later."""

    def program(n, x):
        found = [x]

        def size():
            return len(found)

        while size() <= n:
            found = found + [x * 2]  # noqa: RUF005
            if size() > 2:
                found += [x]
                found = found * 1
        return size(), sum(found), len({n.item(), 0})

    assert not tells(program)
    assert_matches_loop(program, [torch.arange(5), torch.ones(5, 2)])


def test_tensors_that_nobody_writes_are_not_carried_through_calls() -> None:
    """Threads of two calls meet in a callee, whatever their callers keep; 307 where they do not."""
    example = adaptive_computation.example(64)
    options = {"engine": "program_counter", "schedule": "most_threads", **example.options()}
    with autobatch.counts() as counts, torch.no_grad():
        autobatch.vmap(example.function, **options)(*example.args)
    assert counts.block_executions == 220


def noted(x, seen):
    note(x, seen)
    seen.append(x)
    return x + len(seen) + seen[0]


def note(x, seen):
    if x > 0:
        seen.append(x * 2)


def noting(x):
    return noted(x, [])


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_lists_are_carried_all_the_same(engine) -> None:
    xs = torch.tensor([-1.0, 2.0, 3.0])
    got = autobatch.vmap(noting, engine=engine)(xs)
    torch.testing.assert_close(got, torch.stack(list(map(noting, xs))))


def kept_parts(x, n):
    """Threads alone pick as many rows as they do, others unlike numbers of them."""
    parts = x[x > 0]
    while len(parts) > n:
        parts = parts[parts > parts[0]]
    return parts.sum() + len(parts)


def test_tensors_of_a_thread_alone_meet_packed_ones() -> None:
    example = quicksort.example(64)
    with autobatch.counts() as counts:
        got = autobatch.vmap(example.function, engine="program_counter")(*example.args)
    assert counts.block_executions == 119
    expected = [example.function(*row) for row in zip(*example.args, strict=True)]
    assert torch.equal(got, torch.stack(expected))


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("batch", [1, 2, 7, 64])
def test_what_masks_pick_meets(engine, batch) -> None:
    draw = torch.Generator().manual_seed(batch)
    xs = torch.randn(batch, 6, generator=draw).requires_grad_()
    n = torch.randint(0, 4, (batch,), generator=draw)
    got = autobatch.vmap(kept_parts, engine=engine)(xs, n)
    expected = torch.stack([kept_parts(x, limit) for x, limit in zip(xs, n, strict=True)])
    torch.testing.assert_close(got, expected)
    theirs, ours = (torch.autograd.grad(y.sum(), xs)[0] for y in (expected, got))
    torch.testing.assert_close(ours, theirs)


def largest_tripled(row):
    m = row[0]
    _, b, c = row
    if b > m:
        m = b
    if c > m:
        m = c
    m.mul_(3)
    return row


def largest_of_all_tripled(row):
    m = row[0]
    for v in row:
        if v > m:
            m = v
    m.mul_(3)
    return row


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("f", [largest_tripled, largest_of_all_tripled])
def test_a_part_that_is_chosen_stays_a_part(f, engine) -> None:
    rows = torch.rand(6, 3, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([f(row.clone()) for row in rows])
    for _ in range(3):
        assert torch.equal(autobatch.vmap(f, engine=engine)(rows), expected)


def starred_counts(x):
    total = 0.0
    for *heads, row in enumerate(x):
        for i, each in enumerate(row):
            heads[0] += i
            total = total + each * heads[0]
    return total


def test_counts_of_enumerate_are_numbers():
    """And what a starred name takes of them is a list."""
    rows = torch.randn(3, 2, 4)
    assert_matches_loop(starred_counts, (rows,))
    lowered = Library().code_of(starred_counts).function
    known = Known(lowered, Names.of(starred_counts), definitions_of(lowered))
    kinds = kinds_of(lowered, known)
    assert {kinds.get("i"), kinds.get("heads")} == {"number", ""}
