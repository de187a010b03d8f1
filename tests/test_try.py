"""``try`` in programs: what the corpus (``language.exceptions``) does not show."""

from __future__ import annotations

import gc
import itertools
import sys
import weakref
from collections.abc import Iterator

import pytest
import torch

import autobatch
from autobatch import DepthLimitError, StepLimitError
from autobatch.ir.dataflow import liveness
from autobatch.ir.program import Handler
from autobatch.passes import run_passes
from tests.building import Lines, block, function
from tests.oracle import CONFIGURATIONS, assert_matches_loop
from tests.test_isolation import hold

AT = Lines()
ENGINES = pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])


# Results, in every way and at every batch size.


def guarded(n, m):
    total = 0
    for i in range(5):
        try:
            total = total + 60 // (n - i)
            if total % 7 == 3:
                break
            total = total + [1, 2, 3][m + i]
        except ZeroDivisionError:
            total = total - 1
            continue
        except IndexError as error:
            if m == 3:
                raise ValueError(total) from error
            return -total
        finally:
            total = total + 100
    return total


def test_threads_that_fail_and_threads_that_do_not():
    hold(guarded, [k % 8 for k in range(70)], [k % 5 for k in range(70)])


def deletes(n, m):
    xs, table = [1, 2], {0: 1, 1: 2}
    met = 0
    for _ in range(4):
        try:
            del xs[n]
            met = met * 10 + 1
            del table[m]
        except IndexError:
            met = met * 10 + 2
        except KeyError:
            met = met * 10 + 3
    return met, sum(xs), sum(table.values())


def test_what_threads_delete_before_another_fails_is_deleted_once():
    hold(deletes, [(0, 5, 0, 1, 7)[k % 5] for k in range(70)], [k % 4 % 3 for k in range(70)])


def writes_and_deletes(x, n, m):
    xs = [x, 1, 2]
    try:
        x *= 2
        del xs[n]
        return x, [1, 2][m], len(xs)
    except IndexError:
        return x, -1, len(xs)


def test_a_write_before_a_delete_is_done_once():
    for size in (1, 2, 7, 64):
        x = torch.arange(1.0, 2 * size + 1).reshape(size, 2)
        n, m = (torch.tensor([k * step % 5 % 4 for k in range(size)]) for step in (1, 3))
        assert_matches_loop(writes_and_deletes, (x, n, m), scalars="python")


def deletes_key(n):
    table = {0: 1, 1: 2}
    del table[n]
    return sum(table.values())


def adds(xs, more):
    xs += more
    if len(xs) > 2:
        raise ValueError("added twice")
    return len(xs)


def test_of_what_cannot_be_done_twice_the_failure_is_the_loops():
    for size in (1, 2, 7, 64):
        numbers = torch.tensor([(0, 1, 1, 5, 0, 7)[k % 6] for k in range(size)])
        assert_matches_loop(deletes_key, (numbers,), scalars="python")
        lists = autobatch.objects([[k] for k in range(size)])
        more = autobatch.objects([[k] if k % 4 < 3 else k for k in range(size)])
        assert_matches_loop(adds, (lists, more))


def half(n, m):
    if n % m:
        raise ValueError(f"{n} by {m}")
    return n // m


def halves(n, m):
    steps = []
    while n > 1:
        try:
            n = half(n, m)
            steps.append(n)
        except ValueError as error:
            steps.append(str(error))
            n = n - 1
        except ZeroDivisionError:
            if len(steps) > 2:
                raise
            m = 2
    return str(steps)


def test_exceptions_leave_calls():
    hold(halves, [k * 7 % 40 for k in range(24)], [(0, 2, 3)[k % 3] for k in range(24)])


def search(n, depth):
    if depth == 0:
        return 12 // n
    try:
        return search(n - 1, depth - 1) + search(n, depth - 1)
    except ZeroDivisionError:
        if depth == 3:
            raise KeyError(n) from None
        return depth * 100


def test_recursion():
    hold(search, [k % 5 for k in range(64)], [k % 6 for k in range(64)])


def test_dtypes_and_the_first_exception():
    def mixed(x, i):
        try:
            y = x[i]
        except IndexError:
            y = x.double().sum()
        return y * 2

    x = torch.arange(21.0).reshape(7, 3)
    for index in ([0, 1, 2, 0, 1, 2, 0], [5, 4, 3, 9, 5, 3, 4]):
        assert_matches_loop(
            mixed, (x, torch.tensor(index)), batch_sizes=(0, 1, 2, 7), scalars="python"
        )


def test_the_lowest_thread_that_is_not_caught_is_raised():
    def partly(n):
        try:
            return 12 // n
        except ZeroDivisionError:
            return [1, 2][n + 2]
        finally:
            if n == 3:
                raise ValueError("three")

    for row in ([1, 2, 3, 0], [1, 2, 0, 3], [3, 3], [0, 1], [1, 2]):
        assert_matches_loop(partly, (torch.tensor(row),), scalars="python")


def test_gradients():
    def model(x, n):
        total = x * 0
        for i in range(4):
            try:
                total = total + x * (6 // (n - i))
            except ZeroDivisionError:
                total = total * x
        return total

    x = torch.randn(9, 3, dtype=torch.float64)
    n = torch.arange(9) % 6
    wanted = x.clone().requires_grad_()
    torch.stack([model(row, k) for row, k in zip(wanted, n.tolist(), strict=True)]).sum().backward()
    for options in CONFIGURATIONS:
        mine = x.clone().requires_grad_()
        autobatch.vmap(model, scalars="python", **options)(mine, n).sum().backward()
        torch.testing.assert_close(mine.grad, wanted.grad)


# Effects.


def test_a_thread_that_fails_does_nothing_more(capsys):
    def talks(n):
        try:
            print("before", n)
            x = 6 // (n % 3)
            print("after", n, x)
        except ZeroDivisionError:
            print("handler", n)
        finally:
            print("finally", n)

    numbers = list(range(7))
    for options in CONFIGURATIONS:
        autobatch.vmap(talks, scalars="python", **options)(torch.tensor(numbers))
        said = capsys.readouterr().out.splitlines()
        for n in numbers:
            talks(n)
            wanted = capsys.readouterr().out.splitlines()
            assert [line for line in said if line.split()[1] == str(n)] == wanted


def test_draws_are_not_repeated():
    def draws(n):
        x = torch.rand(2)
        try:
            x = x + torch.rand(2)
            k = 12 // n
        except ZeroDivisionError:
            k = -1
        return x * 1.0, k

    numbers = torch.tensor([1, 2, 3])
    results = []
    for kind in (draws, _without_try):
        torch.manual_seed(5)
        x, _ = autobatch.vmap(kind, scalars="python", randomness="different")(numbers)
        results.append((x, torch.rand(1)))
    torch.testing.assert_close(results[0], results[1])


def _without_try(n):
    x = torch.rand(2)
    x = x + torch.rand(2)
    k = 12 // n
    return x * 1.0, k


def quotient(n, depth):
    b = torch.rand(2)
    if depth == 0:
        return b * (12 // n)
    return quotient(n, depth - 1) + torch.rand(2)


def seeded(n):
    x = torch.rand(2)
    try:
        x = x + torch.rand(2)
        y = quotient(n, 2)
        x = x + torch.rand(2)
    except ZeroDivisionError:
        y = torch.rand(2)
    for i in range(2):
        try:
            x = x + torch.rand(2) * (6 // (n - i))
        except ZeroDivisionError:
            x = x + 100 + torch.rand(2)
    return x, y, torch.rand(2)


def test_seeded_draws_are_those_of_each_thread_alone():
    numbers = torch.tensor([0, 1, 2, 3, 0, 1])
    wanted = autobatch.vmap(seeded, scalars="python", seed=3, engine="sequential")(numbers)
    for options in CONFIGURATIONS:
        found = autobatch.vmap(seeded, scalars="python", seed=3, **options)(numbers)
        torch.testing.assert_close(found, wanted)


# Limits are no exceptions of the program's.


@ENGINES
def test_a_limit_on_steps_is_not_caught(engine):
    def forever(n):
        while True:
            try:
                n = n + 1
            except Exception:
                return n

    with pytest.raises(StepLimitError):
        autobatch.vmap(forever, engine=engine, max_steps=50)(torch.arange(3))


@ENGINES
def test_a_limit_on_depth_is_not_caught(engine):
    def down(n):
        try:
            return down(n + 1)
        except Exception:
            return n

    with pytest.raises(DepthLimitError):
        autobatch.vmap(down, engine=engine, max_depth=20)(torch.arange(3))


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_a_thread_may_come_back_from_deep_calls(engine):
    def down(n):
        if n == 0:
            raise ValueError("bottom")
        return down(n - 1) + 1

    def start(n):
        try:
            return down(n)
        except ValueError:
            return -n

    numbers = torch.tensor([3, 300, 0, 40])
    assert autobatch.vmap(start, scalars="python", engine=engine)(numbers).tolist() == [
        -3,
        -300,
        0,
        -40,
    ]


# Performance, counted.


def test_a_body_without_failures_runs_as_one():
    def model(x, w):
        for _ in range(5):
            try:
                x = torch.tanh(x @ w)
                x = x * 2 - 1
            except RuntimeError:
                x = x * 0
        return x

    def bare(x, w):
        for _ in range(5):
            x = torch.tanh(x @ w)
            x = x * 2 - 1
        return x

    x, w = torch.randn(32, 4), torch.randn(4, 4)
    counted = []
    for each in (model, bare):
        batched = autobatch.vmap(each, in_dims=(0, None), trace_after=0)
        batched(x, w)
        with autobatch.counts() as counts:
            batched(x, w)
        counted.append(counts.launches)
        assert sum(counts.threads_by_block.values()) == 32 * counts.block_executions
    assert counted[0] == counted[1]


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
def test_exceptions_that_were_caught_are_let_go(engine):
    class Item:
        def __init__(self, n: int) -> None:
            self.n = n

    def catches(item):
        try:
            if item.n:
                raise ValueError(item)
        except ValueError as error:
            return len(error.args)
        return 0

    alive: list[weakref.ref[Item]] = []

    def items() -> Iterator[Item]:
        for n in itertools.cycle([0, 1]):
            item = Item(n)
            alive.append(weakref.ref(item))
            yield item

    for _ in itertools.islice(autobatch.stream(catches, items(), 4, engine=engine), 2000):
        pass
    gc.collect()
    assert sum(reference() is not None for reference in alive) < 300


# The program.


def appending_where_there_is_one(t, i):
    lists = [[1], [2, 3]]
    try:
        lists[i].append(5)
    except IndexError:
        lists.append([i])
    return str(lists)


def writing_where_there_is_one(t, i):
    parts, table = [t, t * 2], {0: [1], 1: [2]}
    try:
        part = parts[i]
        part += 1
        parts[i - 1] *= 2
        table[i].append(i)
    except LookupError as error:
        parts[0] += 10
        table[2] = [str(error)]
    return parts[0], parts[1], str(table)


@pytest.mark.parametrize("program", [appending_where_there_is_one, writing_where_there_is_one])
def test_what_a_thread_finds_is_its_own_where_others_find_nothing(program):
    args = [torch.ones(4, 2), torch.tensor([0, 2, 1, -1])]
    assert_matches_loop(program, args, scalars="python", batch_sizes=(2, 4))
    isolated = autobatch.vmap(program, scalars="python", on_error="isolate", plain="never")
    assert all(result.exception is None for result in isolated(*args))


def test_a_part_of_a_tuple_may_be_put_back():
    def program(n):
        m = n.item()
        values = (m, int(n) + 1, 5)[1:]
        try:
            if m > 1:
                m = values[m % 2]
            m = 6 // m
        except ZeroDivisionError:
            values = (*values, m)[-2:]
        return values, m

    assert_matches_loop(program, [torch.arange(5)])


def test_what_a_handler_needs_lives_in_all_of_its_block():
    blocks = (
        block(AT.op("y = neg x"), AT.op("x = neg y"), AT.jump(2), handler=Handler(1, "%1")),
        block(AT.op("x = add y, z"), AT.op("x = add x, %1"), AT.jump(2)),
        block(AT.give("x")),
    )
    assert liveness(blocks) == (frozenset("xyz"), frozenset({"y", "z", "%1"}), frozenset("x"))


def test_blocks_of_different_handlers_stay_apart():
    handled = Handler(3, "%1")
    before = function(
        "f",
        "x",
        block(AT.op("x = neg x"), AT.jump(1)),
        block(AT.op("x = invert x"), AT.jump(2), handler=handled),
        block(AT.op("x = pos x"), AT.jump(4)),
        block(AT.jump(4)),
        block(AT.give("x")),
    )
    after = run_passes(before)
    assert [len(each.ops) for each in after.blocks] == [1, 1, 1, 0]
    assert [each.handler for each in after.blocks] == [None, Handler(3, "%1"), None, None]


def test_the_text_shows_handlers():
    def divides(n):
        try:
            return 12 // n
        except ZeroDivisionError:
            return 0

    text = str(autobatch.lower(divides))
    assert "b0 except %1 -> b1:" in text
    assert "= catches %1, %" in text


# What a function finds being handled by those that call it.


def reraises():
    raise


def reraises_later(log, n):
    for i in range(3):
        log.append(i)
        if i == n:
            reraises()
    try:
        raise KeyError("own")
    except KeyError:
        log.append(sys.exc_info()[0].__name__)
    log.append(type(sys.exception()).__name__)
    if n == 4:
        raise


def handles_by_calls(n, m):
    log = [str(sys.exc_info())]
    try:
        try:
            log.append(12 // (n - m))
        except ZeroDivisionError:
            if m == 1:
                reraises()
            try:
                log.append([1, 2][n])
            except IndexError as error:
                reraises_later(log, n - 1)
                log.append(error is sys.exception())
            finally:
                log.append(sys.exc_info()[0].__name__)
            reraises_later(log, n)
    except (IndexError, ZeroDivisionError) as error:
        log.append(str(error))
    log.append(sys.exception())
    if n == 5:
        reraises()
    return str(log)


def test_raise_in_a_function_that_a_handler_calls():
    rows = [(n, m) for n in range(6) for m in range(6)]
    hold(handles_by_calls, [n for n, _ in rows], [m for _, m in rows])


def test_raise_without_an_exception():
    def func(n):
        if n > 1:
            raise
        return n

    for row in ([0, 1], [0, 2, 3]):
        assert_matches_loop(func, (torch.tensor(row),), scalars="python")
