"""Drivers: what repeats a plan on values of the same kinds runs by one, and means the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import autobatch
from autobatch.batching import operations
from autobatch.batching.context import RowsFail
from autobatch.batching.stretches import TracedExecutor
from autobatch.batching.stretches.drivers import Driver
from autobatch.batching.stretches.plans import Unforeseen, foreseen
from autobatch.vm.blocks import Blocks
from tests.oracle import assert_matches_loop


@dataclass(slots=True)
class Item:
    number: int
    text: str
    inner: Item | None = None


class Asked:
    """Its attribute is computed: no driver may read it at once."""

    def __init__(self, number: int) -> None:
        self.hidden = number

    @property
    def number(self) -> int:
        return self.hidden + 1


@dataclass
class Tape:
    rows: Tensor
    at: Any = 0

    def read(self) -> Tensor:
        self.at = self.at + 1
        return self.rows[self.at - 1]


class Other(Tape):
    """It is not known which of them is asked."""


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


TABLE = torch.randn(9, 20)


def of_pairs(x: Tensor) -> Tensor:
    pair = Pair(x, x + 1)
    both = [pair.left * 2, pair.right]
    while both[0].sum() < 40:
        first, second = both
        both = [first * 2 + second, second + 1]
    return both[0] + both[1]


def of_parts(x: Tensor) -> Tensor:
    """Parts of what holds more; a number for all threads first, then one of each."""
    tape, pair = Tape(torch.stack([x, x + 1, x + 2, x + 3] * 5)), Pair(x, x)
    while pair.left.sum() < 60:
        pair = Pair(pair.left + tape.read().abs(), tape.read())
        if pair.right.sum() > 5:
            pair = Pair(pair.left + tape.read(), pair.left)
    return pair.left + tape.at


def of_rows_in_turn(rows: Tensor) -> tuple[Tensor, Tensor]:
    """A number that all threads share picks a row, which is returned, and then written."""
    tape = Tape(rows) if rows.dim() == 2 else Other(rows)
    total = tape.read()
    for _ in range(15):
        row = tape.read()
        total = total * 0.5 + row + tape.rows[2]
        row += 1
    return total, tape.rows


def of_ints(n: int) -> int:
    total = 0
    while n > 0:
        total = total * 3 + n
        n = n - 1
    return total


def of_counts(x: Tensor, n: int) -> Tensor:
    while n > 0:
        n -= 1
        x = torch.tanh(x) * 1.5
    return x


def of_tuples(x: Tensor) -> tuple[Tensor, Tensor]:
    state = (x, (x * 2, 1.5))
    while state[0].sum() < 40:
        a, (b, c) = state
        state = (a + b.abs() + 1, (b + c, c))
    return state[0], state[1][0]


def of_lookups(i: int) -> Tensor:
    found = TABLE[i]
    while found.sum() < 20:
        i = (i + 1) % 9
        found = found.abs() + TABLE[i]
    return found


def captured(scale: float) -> Any:
    def by_scale(x: Tensor) -> Tensor:
        while x.sum() < 40:
            x = x * scale + 1
        return x

    return by_scale


def of_objects(item: Any) -> int:
    total = 0
    while item is not None:
        total = total * 2 + item.number
        item = item.inner
    return total


def of_properties(asked: Any) -> int:
    total = 0
    while total < 9:
        total = total + asked.number
    return total


def items(depth: int) -> Item:
    return Item(depth, "x" * depth, items(depth - 1) if depth else None)


ROWS = torch.tensor([[0.5, 1.0, -0.25], [3.0, 2.0, 1.0], [0.1, 0.2, 0.3], [9.0, 9.0, 40.0]])


@pytest.fixture
def ran(monkeypatch):
    """How many drivers have answered what; none may fail but for what the program does."""
    counts: Counter[bool] = Counter()

    def fits(self, env, scope, k, context):
        if self.asks_context and (context is None or context.checkpoint is not None):
            return False
        try:
            found = self.drive(env, scope, k, context)
        except (RowsFail, Unforeseen):
            found = False
        counts[found] += 1
        return found

    begins = Driver.starts

    def starts(self, env, scope, run=None):
        begun = begins(self, env, scope, run)

        def counted(way):
            def again(env, k):
                try:
                    found = way(env, k)
                except Exception as error:
                    if not isinstance(error, Unforeseen):
                        broken.append(error)
                    raise
                counts[found] += 1
                return found

            return again

        return tuple(map(counted, begun)) if begun else None

    broken: list[Exception] = []
    monkeypatch.setattr(Driver, "fits", fits)
    monkeypatch.setattr(Driver, "starts", starts)
    yield counts
    assert not broken


@pytest.mark.sampled(2)
@pytest.mark.parametrize("func", [of_pairs, of_tuples, of_parts, captured(2.0)])
def test_containers_and_captured_variables(func, ran):
    for _ in range(3):
        assert_matches_loop(func, (ROWS,))
    assert ran[True] > 20


@pytest.mark.parametrize("func", [of_ints, of_lookups])
def test_ints(func, ran):
    for _ in range(3):
        assert_matches_loop(func, (torch.tensor([3, 0, 7, 5]),), scalars="python")
    assert ran[True] > 20


def test_a_number_that_is_counted_down_ends_no_stretch(ran):
    batched = autobatch.vmap(of_counts, trace_after=0, plain="never", scalars="python")
    for _ in range(4):
        ran.clear()
        with autobatch.counts() as counts:
            found = batched(ROWS, torch.tensor([20, 19, 18, 20]))
    torch.testing.assert_close(found[1], of_counts(ROWS[1], 19))
    assert ran.total() < 1.5 * counts.block_executions


class Picks:
    def part(self, x: Tensor) -> Tensor:
        return x[1, 0] - x[0, 1] + (x[:, 1] * x[0, :] - x[1, :] + x[:, 0] * x[1, 1]).sum()


def of_literal_places(x: Tensor, n: Tensor) -> Tensor:
    """More literals than there are other places, in a loop and in a block of their own."""
    picks = Picks() if n > 0 else None
    for i in range(2):
        x = x * 0.5 + x[i, 0] + (x[:, 1] * x[0, :] - x[1, :] + x[:, 0] * x[1, 1])
        if n > i:
            x = x + picks.part(x)
    return x


def test_literal_places_are_no_numbers_of_a_recording(monkeypatch):
    alone: list[str] = []
    perform = Blocks.perform

    def noted(self, frame, op, *more):
        alone.append(op.name)
        perform(self, frame, op, *more)

    monkeypatch.setattr(Blocks, "perform", noted)
    rows, n = torch.randn(4, 2, 2), torch.tensor([1, 5, 2, 2])
    assert_matches_loop(of_literal_places, (rows, n))
    alone.clear()
    autobatch.vmap(of_literal_places, trace_after=0, plain="never")(rows, n)
    assert "getitem" not in alone


def of_writes(x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    """Writes to what the program has made; the tail of it is a second name, a view."""
    held = torch.zeros(4)
    tail = held[2:]
    while held.sum() < 40:
        held[i] += x.abs().sum() + 1
        held.mul_(1.5)
        x = x + held[:3]
    return held, tail


def of_two_names(x: Tensor, i: Tensor) -> Tensor:
    """Threads of one place in the program: two names for one tensor in some, for two in others."""
    one = x.clone()
    other = one if i == 0 else x.clone()
    while one.sum() < 40:
        one.add_(1.0)
        x = other * 2
    return x + other


def of_new_names(x: Tensor, i: Tensor) -> Tensor:
    """What is written has another meaning of its name before its stretch is over."""
    held = x * 1.0
    while held.sum() < 400:
        held.add_(1.0)
        held = held * 2
    return held


def of_views(x: Tensor, i: Tensor) -> Tensor:
    """A part of what is written in some threads, of something else in others."""
    total = x.sum() * 0
    for step in range(6):
        one, other = x * 1.0, x * 2.0
        first = one[0] if i > step else other[0]
        if x.sum() > -100:
            one[0] = one[0] + 1
            total = total + (first + 1) + one[0]
    return total


def of_quotients_kept(x: Tensor, n: int, m: int) -> Tensor:
    kept = torch.zeros(3)
    while n > 0:
        n = n - 10 // m
        kept[m % 3] = x.sum() + n
        m = m - 1
    return kept


@pytest.mark.parametrize("func", [of_writes, of_two_names, of_new_names])
def test_what_is_written_in_place(func, ran):
    for given in ([0, 1, 0, 2], [1, 1, 1, 1], [0, 0, 0, 0], [2, 0, 1, 1]):
        for _ in range(3):
            assert_matches_loop(func, (ROWS.abs(), torch.tensor(given)))
    assert ran[True] > 20


def test_what_is_written_shows_in_the_views_of_some_threads(ran):
    """A plan is made where none shows it, and meets threads where one does."""
    for given in ([0, 0, 0, 0], [9, 9, 9, 9], [0, 0, 0, 0], [2, 0, 9, 1]):
        for _ in range(3):
            assert_matches_loop(of_views, (ROWS.abs(), torch.tensor(given)))
    assert ran[True] > 20


def test_what_is_written_where_something_fails(ran):
    batched = autobatch.vmap(of_quotients_kept, trace_after=0, scalars="python", on_error="isolate")
    given = [(30, 4), (30, 3), (3, 4), (100, 9)]
    for _ in range(4):
        found = batched(ROWS, *map(torch.tensor, zip(*given, strict=True)))
        for x, (n, m), result in zip(ROWS, given, found, strict=True):
            try:
                assert torch.equal(result.value, of_quotients_kept(x, n, m))
            except ZeroDivisionError:
                assert type(result.exception) is ZeroDivisionError
    assert ran[True] > 5


@dataclass(eq=False)
class Noted:
    """Records as usual; ``inputs`` are the numbers of inputs of the recordings."""

    inputs: list[int] = field(default_factory=list)

    def compile(self, stretch: Any, inputs: Any) -> Any:
        self.inputs.append(len(inputs))
        return TracedExecutor().compile(stretch, inputs)


def test_a_part_is_an_input_without_the_rest():
    def func(x: Tensor) -> Tensor:
        pair = Pair(x + 1, Pair(x + 2, x + 3))
        if x.sum() > -100:
            x = pair.left * 2
        return x

    executor = Noted()
    autobatch.vmap(func, executor=executor, trace_after=0)(ROWS)
    assert max(executor.inputs) == 1


def of_conjunctions(n: Tensor) -> tuple[Tensor, int]:
    """A truth that all threads share, then one of each thread's own, under one name."""
    steps = 0
    while n != 1 and steps < 20:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return n, steps


def test_what_the_host_and_then_the_replay_assigns(ran):
    for _ in range(3):
        assert_matches_loop(of_conjunctions, (torch.tensor([5, 7, 1, 27]),))
    assert ran[True] > 20


def test_ints_that_leave_their_dtype(ran):
    for _ in range(4):
        assert_matches_loop(of_ints, (torch.tensor([45, 3, 60]),), scalars="python")
    assert ran[True] > 20


def of_quotients(n: int, m: int) -> int:
    while n > 0:
        n = n - 10 // m
        m = m - 1
    return n


def test_what_fails_is_what_the_operands_were(ran):
    """The operands of a check have other values by the time that it is looked at."""
    batched = autobatch.vmap(of_quotients, trace_after=0, scalars="python", on_error="isolate")
    given = [(30, 4), (30, 3), (3, 4), (100, 9), (7, 2)]
    for _ in range(4):
        found = batched(*map(torch.tensor, zip(*given, strict=True)))
        for (n, m), result in zip(given, found, strict=True):
            try:
                assert result.value == of_quotients(n, m) and result.exception is None
            except ZeroDivisionError:
                assert type(result.exception) is ZeroDivisionError
    assert ran[True] > 5


def test_an_index_out_of_range(ran):
    batched = autobatch.vmap(lambda i: TABLE[i] * 2, trace_after=0, scalars="python")
    for _ in range(4):
        assert torch.equal(batched(torch.tensor([1, -9, 8])), TABLE[[1, 0, 8]] * 2)
    assert ran[True]
    for indices in ([1, 9], [-10, 2]):
        with pytest.raises(IndexError):
            batched(torch.tensor(indices))


def objects(func: Any, given: list[Any]) -> list[Any]:
    batched = autobatch.vmap(func, trace_after=0, plain="never")
    return batched(autobatch.objects(given)).tolist()  # type: ignore[no-any-return]


def test_attributes_of_objects(ran):
    given = [items(depth) for depth in (3, 0, 5, 1)]
    for _ in range(4):
        assert objects(of_objects, given) == [of_objects(item) for item in given]
    assert ran[True] > 20


def test_an_attribute_that_some_do_not_have(ran):
    given = [items(3), items(2)]
    for _ in range(4):
        objects(of_objects, given)
    del given[1].inner.number
    with pytest.raises(AttributeError, match="number"):
        objects(of_objects, given)


def test_properties_run_as_the_program_has_them(ran):
    given = [Asked(2), Asked(0), Asked(7)]
    for _ in range(4):
        assert objects(of_properties, given) == [of_properties(one) for one in given]


def test_a_class_whose_attribute_becomes_a_property(ran, monkeypatch):
    class Plain:
        def __init__(self, number: int) -> None:
            self.number = number

    given = [Plain(2), Plain(1)]
    for _ in range(4):
        assert objects(of_properties, given) == [of_properties(one) for one in given]
    monkeypatch.setattr(Plain, "number", property(lambda self: 5), raising=False)
    assert objects(of_properties, given) == [of_properties(one) for one in given] == [10, 10]


def test_aliases_among_inputs_and_later_writes(ran):
    def two_names(x: Tensor, same: bool) -> tuple[Tensor, Tensor]:
        a = x * 2
        b = a if same else x * 3
        while b.sum() < 40:
            c = a + b  # reads both, whether they are one or not
            b += c.abs() + 1
        return a, b

    flags = torch.tensor([True, False, True, False])
    for _ in range(4):
        assert_matches_loop(two_names, (ROWS, flags), scalars="python")


def test_a_module_is_read_at_each_run(ran):
    layer = nn.Linear(3, 3)
    batched = autobatch.vmap(layer, trace_after=0)
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(batched(ROWS), layer(ROWS))
        assert ran[True]
        layer.weight.mul_(2)
        torch.testing.assert_close(batched(ROWS), layer(ROWS))
        layer.bias = None
        torch.testing.assert_close(batched(ROWS), layer(ROWS))


def test_the_driver_that_fits_is_tried_first_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[bool] = []
    fits = Driver.fits

    def counted(self: Driver, *args: Any) -> bool:
        tried.append(fits(self, *args))
        return tried[-1]

    def program(x: Tensor) -> Tensor:
        return (x * 3 - 1).cos()

    monkeypatch.setattr(Driver, "fits", counted)
    mapped, xs = autobatch.vmap(program, trace_after=0), torch.linspace(0.0, 1.0, 6).reshape(3, 2)
    for _ in range(4):
        mapped(xs)
    for _ in range(4):
        mapped(xs.double())
    tried.clear()
    for _ in range(3):
        torch.testing.assert_close(mapped(xs), program(xs))
    assert tried == [False, True, True, True]


def drawn_in_turn(start: int, n: int) -> Tensor:
    tape, total = Tape(torch.arange(50.0), start), torch.tensor(0.0)
    for _ in range(n):
        total = total + tape.read()
    return total


def test_a_forecast_is_made_once_for_the_same_bounds():
    args = (torch.tensor([0, 3, 5]), torch.tensor([20, 7, 30]))
    func = autobatch.vmap(drawn_in_turn, scalars="python")
    assert_matches_loop(drawn_in_turn, args, scalars="python")
    func(*args)
    before = foreseen.cache_info()
    func(*args)
    after = foreseen.cache_info()
    assert after.misses == before.misses and after.hits > before.hits


def test_rows_that_a_number_of_all_threads_picks_are_recorded_once(monkeypatch):
    rows = torch.randn(4, 17, 3)
    run = autobatch.vmap(of_rows_in_turn)
    for _ in range(12):
        run(rows)
    alone: Counter[str] = Counter()
    perform = operations.perform

    def noted(context, scope, op, env):
        alone[op.name] += 1
        return perform(context, scope, op, env)

    with monkeypatch.context() as patched:
        patched.setattr(operations, "perform", noted)
        run(rows)
    assert alone["next"] and not alone["getitem"]
    assert_matches_loop(of_rows_in_turn, (rows,), trace_after=0)


def test_a_variable_without_a_value_is_the_error_of_the_loop_where_nobody_uses_it():
    """The runs before it have driven the block, with a value."""

    def marked(x: Tensor, limit: Tensor, n: int) -> Tensor:
        if n > 3:
            mark = n
        for _ in range(20):
            x = torch.tanh(x) + 0.2
            limit = limit - 1
            last = mark  # noqa: F841
            if (x * x).sum() > limit:
                break
        return x

    batched = autobatch.vmap(marked, scalars="python", plain="never", trace_after=0)
    xs, limits = torch.linspace(0.0, 1.0, 32).reshape(8, 4), torch.linspace(5.0, 30.0, 8)
    for _ in range(4):
        batched(xs, limits, torch.full((8,), 5))
    with pytest.raises(UnboundLocalError, match="'mark'"):
        batched(xs, limits, torch.full((8,), 0))
