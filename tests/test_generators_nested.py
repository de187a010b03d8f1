"""Functions that yield and stand within a program: they read its variables as in the loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch
from autobatch.batching import foreign
from tests.oracle import assert_matches_loop
from tests.test_generators_called import COUNTS, WAYS, Node, stepped


def recursive(n: int) -> int:
    def down(k: int) -> Iterator[int]:
        if k:
            yield from down(k - 1)
            yield k * n

    return sum(down(n)) * 10 + sum(1 for _ in down(2))


def mutual(n: int) -> int:
    def even(k: int) -> Iterator[int]:
        if k:
            yield k
            yield from odd(k - 1)

    def odd(k: int) -> Iterator[int]:
        if k:
            yield -k
            yield from even(k - 1)

    return sum(even(n)) * 10 + sum(odd(n))


def assigned_meanwhile(n: int) -> int:
    k, found = 1, 0

    def multiples() -> Iterator[int]:
        for i in range(3):
            yield k * i

    for each in multiples():
        found = found * 10 + each
        k += n
    return found


def kept(n: int) -> int:
    """All read the last ``k``."""
    made = []
    for k in range(3):

        def pair() -> Iterator[int]:
            yield k  # noqa: B023
            yield n

        made.append(pair())
    return sum(sum(each) for each in made)


def in_a_loop(n: int) -> int:
    found = 0
    for k in range(3):

        def multiples() -> Iterator[int]:
            for i in range(n):
                yield k * i  # noqa: B023

        for each in multiples():
            found += each
    return found


def goes_two_ways(n: int) -> int:
    k = 0

    def steps() -> Iterator[int]:
        for i in range(4):
            yield i * k + n

    made = steps()
    found = next(made)
    if n > 1:
        k += 2
        found += next(made)
    else:
        k = 3
        found -= next(made)
    k += 1
    return found * 100 + sum(made) + k


def of_a_branch(n: int) -> int:
    if n > 2:

        def some() -> Iterator[int]:
            yield n
            yield 1
    else:

        def some() -> Iterator[int]:
            yield 7

    return sum(some())


def made_anew(n: int) -> int:
    def some() -> Iterator[int]:
        yield 1

    made = some()

    def some() -> Iterator[int]:  # type: ignore[no-redef]
        yield 2

    return next(made) + next(some()) * 10 + n


def with_defaults(n: int) -> int:
    def some(k: int = n, *rest: int, step: int = n + 1) -> Iterator[int]:
        yield from (k, step, *rest)

    n += 100
    return sum(some()) + sum(some(2, 3, step=4)) + n


def calls_helpers(n: int) -> int:
    def helper(x: int) -> int:
        return x * n + 1

    added = lambda x: x + n  # noqa: E731

    def some() -> Iterator[int]:
        for i in range(n):
            yield helper(i) + added(i)

    return sum(some()) + helper(2)


def counts_itself(n: int) -> int:
    def steps() -> Iterator[int]:
        value = n
        while value < 20:
            yield value
            value += n + 1

    made = steps()
    pairs = zip(steps(), steps(), strict=True)
    return next(made) + sum(itertools.islice(made, 2)) + sum(b - a for a, b in pairs)


def sent(n: int) -> int:
    def total() -> Iterator[int]:
        so_far = n
        while True:
            so_far += yield so_far  # type: ignore[misc]

    made: Any = total()
    next(made)
    return made.send(2) + made.send(n)  # type: ignore[no-any-return]


def sees_what_is_appended(n: int) -> int:
    seen = [1]

    def lengths() -> Iterator[int]:
        for i in range(3):
            yield len(seen) + i

    for each in lengths():
        seen.append(each + n)
    return sum(seen)


def writes_what_is_yielded(n: int) -> int:
    rows = [[n], [1]]

    def each() -> Iterator[list[int]]:
        yield from rows

    for row in each():
        row.append(n)
    return sum(map(len, rows)) * 10 + rows[0][-1]


def of_objects(n: int) -> int:
    tree = Node(n, Node(1), Node(n, Node(2), None))

    def walk(node: Node | None) -> Iterator[int]:
        if node is not None:
            yield from walk(node.left)
            yield node.value
            yield from walk(node.right)

    return sum(walk(tree))


def permutations(n: int) -> int:
    def orders(rest: list[int]) -> Iterator[list[int]]:
        if not rest:
            yield []
        for i in range(len(rest)):
            for order in orders(rest[:i] + rest[i + 1 :]):
                yield [rest[i], *order]

    return sum(order[0] if order else 1 for order in orders(list(range(min(n, 3)))))


def empty_variable(n: int) -> int:
    def some() -> Iterator[int]:
        yield late

    if n > 0:
        late = n
    return sum(some())


def wrong_arguments(n: int) -> int:
    def some(a: int) -> Iterator[int]:
        yield a

    return sum(some(1, n))  # type: ignore[call-arg]


def caught(n: int) -> int:
    def some() -> Iterator[int]:
        for i in range(n):
            yield 6 // (2 - i)

    found = []
    try:
        for each in some():
            found.append(each)
    except ZeroDivisionError:
        found.append(-1)
    finally:
        found.append(n)
    return sum(found) * 10 + len(found)


def forked(n: int) -> int:
    def some() -> Iterator[int]:
        for i in range(n):
            yield i * n

    found = sum(some())
    return found if n < 2 else forked(n - 1) + forked(n - 2) + found


def given_lambdas(n: int) -> int:
    def helper(i: int) -> int:
        return i * 2 + n

    return sum(stepped(lambda i: i * n, n)) + sum(stepped(helper, 2))


def with_functions_within(n: int) -> int:
    def outer() -> Iterator[int]:
        added = lambda k: k + n  # noqa: E731

        def inner() -> Iterator[int]:
            yield added(1)
            yield n

        yield from inner()
        yield sum(inner())

    return sum(outer()) + sum(with_its_own(n))


def with_its_own(n: int) -> Iterator[int]:
    def times(k: int) -> int:
        return k * n

    def some(count: int) -> Iterator[int]:
        for i in range(count):
            yield times(i)

    for i in range(n):
        yield times(i)
        yield from some(i)


def held_in_lists(n: int) -> int:
    def some() -> Iterator[int]:
        yield n

    table: dict[str, Any] = {"some": some}
    both = [some, some]
    return sum(table["some"]()) + sum(sum(each()) for each in both) + sum(both[n % 2]())


def makes_it(k: int) -> Callable[[], Iterator[int]]:
    def some() -> Iterator[int]:
        yield k
        yield 2 * k

    return some


def of_another_call(n: int) -> int:
    made = makes_it(n) if n > 2 else makes_it(7)
    return sum(made()) + sum(makes_it(3)())


def mapped_within(n: int) -> float:
    def some(x: Tensor) -> Iterator[Tensor]:
        yield x * n

    return autobatch.vmap(lambda x: sum(some(x)))(torch.arange(3.0)).sum().item()


PROGRAMS: list[Callable[[int], Any]] = [
    *(recursive, mutual, assigned_meanwhile, kept, in_a_loop, goes_two_ways, of_a_branch),
    *(made_anew, with_defaults, calls_helpers, counts_itself, sent, sees_what_is_appended),
    *(writes_what_is_yielded, of_objects, permutations, empty_variable, wrong_arguments, caught),
    *(forked, given_lambdas, mapped_within, with_functions_within),
    *(held_in_lists, of_another_call),
]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_result_is_the_loops(program: Callable[[int], Any], way: dict[str, Any]) -> None:
    for counts in (COUNTS, torch.tensor([2]), torch.tensor([1, 5, 1])):
        for _ in range(2):
            assert_matches_loop(program, (counts,), scalars="python", configurations=[way])


def doubled(i: int) -> int:
    return 2 * i


def noted(i: int) -> int:
    NOTED.append(i)
    return i


NOTED: list[int] = []


def around(function: Callable[[int], int], step: int) -> tuple[Callable[[int], int], Any]:
    def program(n: int) -> int:
        def some() -> Iterator[int]:
            for i in range(n):
                yield function(i) * step

        return sum(some())

    def steps(value: int) -> None:
        nonlocal step
        step = value

    return program, steps


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_is_around_the_program_is_read_at_each_call(way: dict[str, Any]) -> None:
    program, steps = around(doubled, 1)
    batched = autobatch.vmap(program, scalars="python", **way)
    for step in range(4):
        steps(step)
        assert batched(COUNTS).tolist() == list(map(program, COUNTS.tolist()))
    with pytest.raises(autobatch.SharedWriteError):
        autobatch.vmap(around(noted, 1)[0], scalars="python", **way)(COUNTS)
    assert not NOTED


@pytest.mark.parametrize("way", [way for way in WAYS if "plain" in way or "engine" in way], ids=str)
def test_a_variable_that_may_come_to_hold_another_function_is_not_called(
    way: dict[str, Any],
) -> None:
    def program(n: int) -> int:
        function = doubled

        def some() -> Iterator[int]:
            for i in range(n):
                yield function(i)

        made = some()
        function = noted
        return sum(made)

    with pytest.raises(autobatch.UnsupportedError, match="it is not known what this calls"):
        autobatch.vmap(program, scalars="python", **{**way, "plain": "never"})(COUNTS)
    assert not NOTED


LAYER = nn.Linear(2, 2)


def layered(x: Tensor, n: Tensor) -> Tensor:
    scale = x.sum()

    def steps(start: Tensor) -> Iterator[Tensor]:
        for i in range(int(n)):
            yield LAYER(start) * scale + x * i

    return sum(steps(x), x * 0) + sum(stepped(LAYER, 0), x * 0)  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_gradients_are_the_loops(way: dict[str, Any]) -> None:
    for change in range(4):
        xs = (torch.arange(10.0).reshape(5, 2) + change).requires_grad_()
        expected = torch.stack([layered(x, n) for x, n in zip(xs, COUNTS, strict=True)])
        wanted = torch.autograd.grad(expected.sum(), [xs, LAYER.weight])
        found = autobatch.vmap(layered, **way)(xs, COUNTS)
        torch.testing.assert_close(found, expected)
        for one, other in zip(
            torch.autograd.grad(found.sum(), [xs, LAYER.weight]), wanted, strict=True
        ):
            torch.testing.assert_close(one, other)


def test_it_may_run_as_plain_python() -> None:
    with autobatch.counts() as seen:
        autobatch.vmap(recursive, scalars="python")(COUNTS)
    assert seen.plain == len(COUNTS)


def test_what_existed_before_is_looked_for_in_what_a_function_holds(monkeypatch) -> None:
    """Not in its module, by which everything there is can be reached."""
    looked: list[Any] = []
    parts = foreign.parts
    monkeypatch.setattr(foreign, "parts", lambda item: looked.append(item) or parts(item))
    for way in WAYS:
        assert_matches_loop(kept, (COUNTS,), scalars="python", configurations=[way])
    assert len(looked) < 2000
