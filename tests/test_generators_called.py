"""Functions that yield, called by a program: Python runs them, thread by thread, as the loop does.

What one does that others might see is refused, and so is a write to what it yields that existed
before the call.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections import defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import autobatch
from autobatch import SharedWriteError, UnsupportedError
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


def twice(n: int) -> int:
    return 2 * n


def of_the_library(n: int) -> str:
    found = [list(tokens(f"{n} + {n * n}")), list(smallest([n, 3, n * 2])), list(stepped(twice, n))]
    return str(found)


def one_of_two(n: int) -> int:
    made = squares(n) if n > 1 else fibonacci()
    return next(made) + next(made)


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
    *(of_graphs, of_the_library),
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


SEEN: list[list[int]] = [[1], [2]]
WEIGHTS = torch.zeros(2)


class Watched:
    noted = SEEN[0]

    def __init__(self, n: int) -> None:
        self.n = n

    @property
    def value(self) -> int:
        self.noted.append(self.n)
        return self.n

    def __add__(self, other: int) -> int:
        self.noted.append(other)
        return self.n


def appends(n: int) -> Iterator[int]:
    for i in range(n):
        SEEN[0].append(i)
        yield i


def adds(n: int) -> Iterator[int]:
    for i in range(n):
        WEIGHTS[0] += 1
        yield i


def adds_to(x: Tensor) -> Iterator[Tensor]:
    x += 1
    yield x


def prints(n: int) -> Iterator[int]:
    for i in range(n):
        print(i)
        yield i


def values(each: Watched) -> Iterator[int]:
    yield each.value


def sums(each: Watched) -> Iterator[int]:
    yield each + 1


class Held:
    table = SEEN[0]

    def tables(self) -> Iterator[list[int]]:
        yield self.table

    def __bool__(self) -> bool:
        self.table.append(0)
        return True

    def __setitem__(self, key: int, value: int) -> None:
        SEEN[0].append(value)


class Kept:
    table = SEEN[0]

    def tables(self) -> Iterator[list[int]]:
        yield self.table


KEPT = Kept()
WATCHED = Watched(1)
NUMBERS = np.zeros(2)
NORM = nn.BatchNorm1d(2)
GOING = iter(range(1000))
ENTRIES: defaultdict[int, list[int]] = defaultdict(list)


def makes_and_asks(n: int) -> Iterator[int]:
    yield 1 if Held() else n


def makes_and_writes(n: int) -> Iterator[int]:
    held = Held()
    held[n] = n
    yield n


def reads_property(n: int) -> Iterator[int]:
    yield WATCHED.value + n


def maps(n: int) -> Iterator[Any]:
    yield from map(SEEN[0].append, range(n))


def norms(n: int) -> Iterator[float]:
    yield NORM(torch.ones(3, 2) * n).sum().item()


def copies(n: int) -> Iterator[int]:
    np.copyto(NUMBERS, n + 1.0)
    yield n


def adds_positional(n: int) -> Iterator[int]:
    np.add(NUMBERS, 1, NUMBERS)
    yield n


def goes_on(n: int) -> Iterator[int]:
    for value in GOING:
        yield value
        if value > n:
            return


def enters(n: int) -> Iterator[int]:
    yield len(ENTRIES[n])


def into_what_is_sent() -> Iterator[None]:
    given = yield
    given.append(1)
    yield


def deep(value: Any) -> Any:
    return value.poke()


def calls_deep(value: Any) -> Iterator[Any]:
    yield deep(value)


class Poked:
    def poke(self) -> int:
        SEEN[0].append(1)
        return 1


def sends(n: int) -> int:
    made = into_what_is_sent()
    next(made)
    made.send(SEEN[0])
    return n


def of_default_iterator(given: Iterator[int] = GOING) -> Iterator[int]:
    yield next(given)


def pops(n: int) -> Iterator[int]:
    [*[SEEN[0]]].pop().append(n)
    yield n


def substitutes(n: int) -> Iterator[str]:
    yield re.compile("a").sub(noting, "aa" * n)


def noting(match: Any) -> str:
    SEEN[0].append(1)
    return ""


def writes_table(n: int) -> int:
    for table in KEPT.tables():
        table.append(n)
    return n


def drawn() -> Iterator[float]:
    yield torch.rand(()).item()


def of_all() -> Iterator[list[int]]:
    yield from SEEN


def of_default(given: list[list[int]] = SEEN) -> Iterator[list[int]]:
    yield given[0]


def weights() -> Iterator[Tensor]:
    yield WEIGHTS


def nested(n: int) -> int:
    def inner() -> Iterator[int]:
        yield n

    return sum(inner())


def adds_in_loop(n: int) -> int:
    for each in weights():
        each += n
    return 0


def writes_first(n: int) -> int:
    next(of_all()).append(n)
    return 0


def writes_default(n: int) -> int:
    for each in of_default():
        each.append(n)
    return 0


def prints_one(n: int) -> int:
    print(n)
    return n


REFUSED: dict[str, Callable[[int], Any]] = {
    "a list": lambda n: sum(appends(n)),
    "a tensor": lambda n: sum(adds(n)),
    "an operand": lambda n: sum(adds_to(torch.zeros(2) + n)),
    "a print": lambda n: sum(prints(n)),
    "a property": lambda n: sum(values(Watched(n))),
    "an operator": lambda n: sum(sums(Watched(n))),
    "a draw": lambda n: sum(drawn()),
    "within a function": nested,
    "a yielded list": lambda n: extended(list(of_all()), n),
    "a yielded list in a loop": lambda n: [each.append(n) for each in of_all()],
    "a yielded first": writes_first,
    "a default": writes_default,
    "a yielded tensor": adds_in_loop,
    "a class of its own": lambda n: sum(makes_and_asks(n)),
    "an item of its own": lambda n: sum(makes_and_writes(n)),
    "a property of a global": lambda n: sum(reads_property(n)),
    "a map": lambda n: len(list(maps(n))),
    "a module": lambda n: sum(norms(n)),
    "an array": lambda n: sum(copies(n)),
    "an operand of numpy's": lambda n: sum(adds_positional(n)),
    "an iterator": lambda n: sum(goes_on(n)),
    "an entry": lambda n: sum(enters(n)),
    "what is sent": sends,
    "a method that a helper calls": lambda n: sum(calls_deep(Poked())),
    "what a class holds": writes_table,
    "a default that goes on": lambda n: sum(of_default_iterator()),
    "a popped list": lambda n: sum(pops(n)),
    "a substitution": lambda n: len(list(substitutes(n))),
    "a given function": lambda n: sum(stepped(prints_one, n)),
}


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", REFUSED)
def test_what_others_would_see_is_refused(
    name: str, way: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    batched = autobatch.vmap(REFUSED[name], scalars="python", **way)
    for _ in range(4):
        with pytest.raises((SharedWriteError, UnsupportedError)):
            batched(COUNTS)
    assert SEEN == [[1], [2]]
    assert not WEIGHTS.any() and not NUMBERS.any()
    assert not ENTRIES and NORM.running_mean is not None and not NORM.running_mean.any()
    assert next(copy.copy(GOING)) == 0
    assert not capsys.readouterr().out


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_one_with_a_finally_is_not_left(way: dict[str, Any]) -> None:
    def left(n: int) -> int:
        return next(tidied(n + 1))

    with pytest.raises(UnsupportedError, match="A generator, tidied, is left before its end"):
        autobatch.vmap(left, scalars="python", **way)(COUNTS)


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


@pytest.mark.parametrize("way", [way for way in WAYS if "engine" not in way], ids=str)
def test_an_iterator_that_existed_before_is_not_gone_through(way: dict[str, Any]) -> None:
    """Threads would take each other's items."""
    going = iter(range(100))

    def program(n: int) -> int:
        return next(value for value in items(going) if value > n)  # type: ignore[arg-type]

    with pytest.raises(SharedWriteError, match="uses up an iterator that existed before"):
        autobatch.vmap(program, scalars="python", **way)(COUNTS)
    assert next(going) == 0


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


def test_the_place_and_the_reason_are_told() -> None:
    for program, what in (
        (lambda n: sum(prints(n)), r"print\(i\)\n +\| +\^+ others may see what this does"),
        (lambda n: len(list(into([n]))), r"xs.pop\(\)\n +\| +\^+ this may write what the function"),
        (lambda n: len(list(applied(str, n))), r"\^ it is not known what this calls"),
        (lambda n: sum(drawn()), r"\^ this draws, and randomness is 'error'"),
    ):
        with pytest.raises(UnsupportedError, match=what):
            autobatch.vmap(program, scalars="python")(COUNTS)


def into(xs: list[int]) -> Iterator[int]:
    while xs:
        yield xs.pop()


def applied(function: Callable[[int], Any], n: int) -> Iterator[Any]:
    yield function(n)
