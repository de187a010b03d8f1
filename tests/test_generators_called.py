"""Functions that yield, called by a program: Python runs them, thread by thread, as the loop does.

What they may not do is in ``test_generators_refused``.
"""

from __future__ import annotations

import itertools
import re
from collections import deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch import UnsupportedError
from tests.oracle import assert_matches_loop

COUNTS = torch.tensor([3, 1, 0, 4, 2])
WAYS: list[dict[str, Any]] = [
    {},
    {"plain": "never"},
    {"plain": "never", "trace_after": 0},
    {"plain": "never", "executor": "vmap"},
    {"plain": "never", "engine": "program_counter"},
    {"executor": "compiled"},
    {"engine": "sequential"},
]


class Node:
    def __init__(self, value: int, left: Node | None = None, right: Node | None = None) -> None:
        self.value, self.left, self.right = value, left, right

    def walk(self) -> Iterator[int]:
        if self.left is not None:
            yield from self.left.walk()
        yield self.value
        if self.right is not None:
            yield from self.right.walk()


class Marked(Node):
    def walk(self) -> Iterator[int]:
        yield -1
        yield from super().walk()


def squares(n: int, step: int = 1) -> Iterator[int]:
    for i in range(0, n, step):
        yield i * i


def fibonacci() -> Iterator[int]:
    a, b = 0, 1
    while True:
        yield a
        a, b = b, a + b


def walk(tree: Node | None) -> Iterator[int]:
    if tree is None:
        return
    yield from walk(tree.left)
    yield tree.value
    yield from walk(tree.right)


def multiples(x: Tensor, n: int) -> Iterator[Tensor]:
    for i in range(n):
        yield x * (i + 1)


def halved(n: int) -> Iterator[int]:
    """What it does to a number nobody else sees."""
    while n > 0:
        yield n
        n //= 2


def pairs(values: Iterable[Any]) -> Iterator[Any]:
    going = iter(values)
    for value in going:
        yield value, next(going, None)


def breadth_first(graph: dict[int, list[int]]) -> Iterator[tuple[int, int]]:
    visited, queue = {0}, deque([(0, iter(graph[0]))])
    while queue:
        parent, children = queue[0]
        try:
            child = next(children)
            if child not in visited:
                yield parent, child
                visited.add(child)
                queue.append((child, iter(graph[child])))
        except StopIteration:
            queue.popleft()


def topological(graph: dict[int, list[int]]) -> Iterator[int]:
    incoming = dict.fromkeys(graph, 0)
    for others in graph.values():
        for other in others:
            incoming[other] += 1
    ready = [node for node in graph if incoming[node] == 0]
    while ready:
        yield (node := ready.pop())
        for other in graph[node]:
            incoming[other] -= 1
            if incoming[other] == 0:
                ready.append(other)


PATTERN = re.compile(r"(?P<NUMBER>\d+)|(?P<PLUS>\+)|(?P<SPACE>\s+)")
Token = namedtuple("Token", ["kind", "text"])


def tokens(text: str) -> Iterator[Token]:
    scanner = PATTERN.scanner(text)  # type: ignore[attr-defined]
    for match in iter(scanner.match, None):
        token = Token(match.lastgroup, match.group())
        if token.kind != "SPACE":
            yield token


def stepped(function: Callable[[int], int], n: int) -> Iterator[int]:
    for i in range(n):
        yield function(i)


def smallest(values: list[int]) -> Iterator[int]:
    import heapq  # noqa: PLC0415

    heap = list(values)
    heapq.heapify(heap)
    while heap:
        yield heapq.heappop(heap)


def items(values: list[Any]) -> Iterator[Any]:
    for value in values:  # noqa: UP028
        yield value


def tidied(n: int) -> Iterator[int]:
    try:
        yield from range(n)
    finally:
        pass


def tried(n: int) -> Iterator[int]:
    for i in range(n):
        try:
            yield 6 // (i - 1)
        except (ZeroDivisionError, KeyError):
            yield -1


def failing(n: int) -> Iterator[int]:
    for i in range(n):
        yield 6 // (2 - i)


def total() -> Iterator[int]:
    so_far = 0
    while True:
        so_far += yield so_far


def summed(n: int) -> int:
    return sum(squares(n, step=2)) + sum(tidied(n))


def left_early(n: int) -> int:
    for value in squares(n):
        if value > 3:
            break
    else:
        value = -1
    return value


def left_in_a_try(n: int) -> int:
    made = tried(n + 1)
    return next(made) * 10 + next(made, 0) + max(zip(tried(3), range(2), strict=False))[0]


def asked(n: int) -> str:
    made = squares(n)
    return str((next(made, None), next(made, 7), list(made)))


def endless(n: int) -> int:
    for place, value in enumerate(fibonacci()):
        if place == n:
            return value
    return -1


def sliced(n: int) -> int:
    return sum(itertools.islice(fibonacci(), n))


def zipped(n: int) -> int:
    so_far = 0
    for a, b in zip(squares(n), fibonacci(), strict=False):
        so_far = so_far * 2 + a - b
    return so_far


def in_order(n: int) -> str:
    tree = Node(n, Node(1), Node(2, Node(n * 2)))
    return str(list(walk(tree)))


def by_method(n: int) -> str:
    tree = Node(n, Marked(1), Node(2, Node(n * 2)))
    found = []
    for value in tree.walk():
        found.append(value)
        tree.value = 7
    return str(found)


def paired(n: int) -> str:
    return str(list(pairs(pairs(halved(n * 3))))) + str(n)


def of_graphs(n: int) -> str:
    graph = {i: [j for j in range(i + 1, n + 2) if (i * j + n) % 3] for i in range(n + 2)}
    return str(list(breadth_first(graph))) + str(list(topological(graph))) + str(graph)


def visits(graph: dict[int, list[int]]) -> Iterator[int]:
    counts = {node: node * 2 for node in graph}
    for others in graph.values():
        for other in others:
            counts[other] += 1
    yield from counts.values()


def of_unlike_lists(n: int) -> int:
    """It is given numbers in lists, whose lengths differ by example."""
    return sum(visits({i: list(range(i + 1, n + 2)) for i in range(n + 2)})) * 10 + n


def twice(n: int) -> int:
    return 2 * n


def of_the_library(n: int) -> str:
    found = [list(tokens(f"{n} + {n * n}")), list(smallest([n, 3, n * 2])), list(stepped(twice, n))]
    return str(found)


def one_of_two(n: int) -> int:
    made = squares(n) if n > 1 else fibonacci()
    return next(made) + next(made)


def edits(word: str, most: int) -> Iterator[str]:
    """By expressions, which read what it assigns until they are gone through."""
    halves = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    yield from (left + right[1:] for left, right in halves if right)
    yield from (left + "a" + right for left, right in halves)
    longer = (letter * most for letter in word)
    most += 1
    yield next(longer, "")
    most += 1
    yield from longer


def by_expressions(n: int) -> str:
    return " ".join(each for each in edits("cab"[:n], n) if each != "b")


def fails(n: int) -> int:
    return sum(failing(n))


def sent(n: int) -> int:
    made, last = total(), 0
    next(made)
    for i in range(n):
        last = made.send(i)
    return last


def recursion(n: int) -> int:
    return 0 if n <= 0 else sum(squares(n)) + recursion(n - 1)


def grown(n: int) -> str:
    values = [n, n + 1]
    for value in items(values):
        if len(values) < 5:
            values.append(value * 2)
    return str(values)


def extended(values: list[list[int]], n: int) -> int:
    for each in items(values):
        each.append(n)
    return 0


def writes_what_is_yielded(n: int) -> str:
    """A function that writes what it takes out of a generator is not pure."""
    values = [[n], [n]]
    extended(values, 1) + extended(values, 2)
    return str(values)


PROGRAMS = (
    *(summed, left_early, asked, endless, sliced, zipped, in_order, one_of_two, fails, sent),
    *(recursion, grown, writes_what_is_yielded, by_method, paired),
    *(of_graphs, of_the_library, left_in_a_try, by_expressions, of_unlike_lists),
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_gone_through_as_in_the_loop(program: Callable[[int], Any]) -> None:
    sizes = (1, 5)
    assert_matches_loop(
        program, (COUNTS,), scalars="python", batch_sizes=sizes, configurations=WAYS
    )


def seen_later(x: Tensor, n: Tensor) -> Tensor:
    """What is written between two items is seen in the next one."""
    total, y = x * 0, torch.zeros(3) + x
    for item in multiples(y[1:], int(n)):
        total = total * 2 + item.sum()
        y += 1
        x += item[0]
    return total + x


def buffers(x: Tensor, n: int) -> Iterator[Tensor]:
    """What is cloned is its own to write to."""
    found = torch.zeros(2)
    for i in range(n):
        found = found.clone()
        found[i % 2] = x.sum()
        yield found


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_it_writes_to_clones(way: dict[str, Any]) -> None:
    def program(x: Tensor, n: Tensor) -> Tensor:
        return sum((each for each in buffers(x, int(n))), x * 0)

    xs = torch.tensor([0.5, 1.0, 2.0, 3.0, -1.0])
    assert_matches_loop(lambda x, n: program(x, n) + 0, (xs, COUNTS + 1), configurations=[way])


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_tensors_are_shared_with_it(way: dict[str, Any]) -> None:
    xs = torch.tensor([0.5, 1.0, 2.0, 3.0, -1.0])
    assert_matches_loop(seen_later, (xs, COUNTS), configurations=[way])

    def grown(x: Tensor, n: Tensor) -> Tensor:
        return sum((item * item for item in multiples(x, int(n))), x * 0)

    rows = xs.clone().requires_grad_()
    expected = torch.stack([grown(x, n) for x, n in zip(rows, COUNTS, strict=True)]).sum()
    (slopes,) = torch.autograd.grad(expected, rows)
    for _ in range(4):
        given = autobatch.vmap(grown, **way)(rows, COUNTS).sum()
        torch.testing.assert_close(torch.autograd.grad(given, rows)[0], slopes)


@pytest.mark.parametrize("way", [way for way in WAYS if "plain" in way], ids=str)
def test_one_with_a_finally_is_not_left(way: dict[str, Any]) -> None:
    """Threads that are kept together would do what it does later."""

    def left(n: int) -> int:
        return next(tidied(n + 1))

    assert autobatch.vmap(left, scalars="python")(COUNTS).tolist() == list(map(left, COUNTS))
    with pytest.raises(UnsupportedError, match="A generator, tidied, is left before its end"):
        autobatch.vmap(left, scalars="python", **{**way, "plain": "never"})(COUNTS)
    assert autobatch.vmap(left, scalars="python")(COUNTS).eq(0).all()  # plain Python's


def drawn() -> Iterator[float]:
    yield torch.rand(()).item()


def test_its_draws_are_by_seed() -> None:
    def program(n: int) -> float:
        return sum(drawn()) + n

    alone = autobatch.vmap(program, scalars="python", seed=3, engine="sequential")(COUNTS)
    for way in WAYS:
        batched = autobatch.vmap(program, scalars="python", seed=3, **way)
        for _ in range(4):
            assert torch.equal(batched(COUNTS), alone)


def test_it_is_told_of() -> None:
    with pytest.warns(autobatch.FallbackWarning, match="Python runs it"):
        autobatch.vmap(left_early, scalars="python", fallback="warn", plain="never")(COUNTS)
    with pytest.raises(autobatch.FallbackError):
        autobatch.vmap(left_early, scalars="python", fallback="error")(COUNTS)


def steps_of(n: int) -> Iterator[int]:
    for i in range(n):
        yield i * i


@pytest.mark.parametrize(
    "way",
    [{}, {"plain": "never"}, {"engine": "sequential"}, {"engine": "program_counter"}],
    ids=str,
)
def test_a_batch_of_generators_is_refused(way: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="`yield` is not supported in a program"):
        autobatch.vmap(steps_of, scalars="python", **way)(torch.tensor([1, 2]))
    with pytest.raises(UnsupportedError, match="`yield` is not supported in a program"):
        autobatch.lower(steps_of)
